// One account: its ledger and settings, its clients, scopes, tokens and entries.
import { Details, Facts, list, object, Pages, Panel, State, Table, Time, text, useReading, type Column } from './parts'
import { href, type Place } from './route'
import type { Json, Query } from './session'
import { amount, share, unfinished } from './views'

const TABS = ['summary', 'clients', 'scopes', 'tokens', 'entries'] as const
const FILTERS: Record<string, [name: string, label: string, example: string][]> = {
  tokens: [['client', 'Client', 'cli_…']],
  entries: [
    ['type', 'Type', 'oauth.token.*'],
    ['actor', 'Actor', 'cli_…'],
    ['subject', 'Subject', 'ep_…'],
    ['mentions', 'Mentions', 'tok_…'],
    ['since', 'Since', '2026-11-15T08:00:00Z'],
    ['until', 'Until', '2026-11-15T09:00:00Z'],
  ],
}

export function AccountView({ place }: { place: Place }) {
  const account = place.query['account'] ?? ''
  const tab = TABS.find((each) => each === place.query['tab']) ?? 'summary'
  return (
    <>
      <h1>
        Account <code>{account}</code>
      </h1>
      <nav class="tabs" aria-label="Account">
        {TABS.map((each) => (
          <a href={href('account', { account, tab: each })} aria-current={each === tab ? 'page' : undefined} key={each}>
            {each[0]!.toUpperCase() + each.slice(1)}
          </a>
        ))}
      </nav>
      {tab === 'summary' ? <Summary account={account} /> : <List place={place} tab={tab} key={tab} />}
    </>
  )
}

function Summary({ account }: { account: string }) {
  const reading = useReading('account', { account })
  return (
    <Panel title="Summary" reading={reading} level={2}>
      {(data) => {
        const total = object(object(data['deliveries'])['total'])
        const counts = object(data['counts'])
        return (
          <>
            <Facts
              of={[
                ['Id', <code>{text(data['id'])}</code>],
                ['Status', <State good={data['status'] === 'active'}>{text(data['status'])}</State>],
                ['Created', <Time at={data['created_at']} />],
                ['Clients', amount(counts['clients'])],
                ['Scopes', amount(counts['scopes'])],
                ['Deliveries, last 24 h', amount(object(total['deliveries'])['made'])],
                ['Succeeded', share(total['success_ratio'])],
                ['Unfinished', unfinished(object(object(data['deliveries'])['now']))],
              ]}
            />
            <Chain of={object(data['ledger'])} />
            <Details name="Settings" of={data['settings']} />
          </>
        )
      }}
    </Panel>
  )
}

function Chain({ of }: { of: Json }) {
  const checkpoint = of['checkpoint'] ? object(of['checkpoint']) : null
  return (
    <>
      <h3>Ledger</h3>
      <Facts
        of={[
          ['Last seal', <State good={of['problem'] === null}>{text(of['problem'] ?? 'intact')}</State>],
          ['Sealed entries', amount(of['entries'])],
          ['Seals', amount(of['seals'])],
          ['Sealed up to', <Time at={of['sealed_at']} />],
          ['Not sealed yet', amount(of['unsealed'])],
          ['Pruned seals', amount(of['pruned_seals'])],
          ['Checkpoint of', checkpoint ? `${amount(checkpoint['size'])} entries` : 'none yet'],
          ['Checkpoint recorded', <Time at={checkpoint?.['recorded_at']} />],
        ]}
      />
      <p class="none">
        Only the last seal is checked here. <code>gatepost audit verify</code> checks all of them.
      </p>
      {checkpoint && (
        <details>
          <summary>Signed checkpoint</summary>
          <pre tabIndex={0}>{text(checkpoint['note'])}</pre>
        </details>
      )}
    </>
  )
}

const COLUMNS: Record<string, (account: string) => Column[]> = {
  clients: (account) => [
    ['Client', (row) => <code>{text(row['client_id'])}</code>],
    ['Name', (row) => text(row['client_name'])],
    ['Status', (row) => <State good={row['status'] === 'active'}>{text(row['status'])}</State>],
    ['Authentication', (row) => text(row['token_endpoint_auth_method'])],
    ['Scope', (row) => text(row['scope'])],
    ['Tokens', (row) => <a href={href('account', { account, tab: 'tokens', client: text(row['client_id']) })}>Tokens</a>],
    ['Definition', (row) => <Details name="all" of={row} />],
  ],
  scopes: () => [
    ['Scope', (row) => <code>{text(row['name'])}</code>],
    ['Status', (row) => <State good={row['status'] === 'active'}>{text(row['status'])}</State>],
    ['Resource', (row) => text(row['resource'])],
    ['Description', (row) => text(row['description'])],
    ['Created', (row) => <Time at={row['created_at']} />],
  ],
  tokens: () => [
    ['Token', (row) => <a href={href('entry', { id: text(row['event']) })}>{text(row['id'])}</a>],
    ['State', (row) => <State good={row['state'] === 'active'}>{text(row['state'])}</State>],
    ['Client', (row) => <code>{text(row['client_id'])}</code>],
    ['Grant', (row) => text(row['grant_type'])],
    ['Scope', (row) => text(row['scope'])],
    ['Issued', (row) => <Time at={row['issued_at']} />],
    ['Expires', (row) => <Time at={row['expires_at']} />],
  ],
  entries: (account) => [
    ['Time', (row) => <Time at={row['at']} />],
    ['Type', (row) => text(row['type'])],
    ['Entry', (row) => <a href={href('entry', { account, id: text(row['id']) })}>{text(row['id'])}</a>],
    ['Actor', (row) => text(row['actor'])],
    ['Subject', (row) => text(row['subject'])],
    ['Data', (row) => <Details name="data" of={row['data']} />],
  ],
}

function List({ place, tab }: { place: Place; tab: Exclude<(typeof TABS)[number], 'summary'> }) {
  const { tab: _, ...query } = place.query
  const account = query['account'] ?? ''
  const reading = useReading(tab, query)
  const filters = FILTERS[tab] ?? []
  return (
    <>
      {filters.length > 0 && <Filters filters={filters} query={query} apply={(found) => go({ account, tab, ...found })} />}
      <Panel title={tab === 'tokens' ? 'Tokens of the last day' : tab[0]!.toUpperCase() + tab.slice(1)} reading={reading} level={2}>
        {(data) => (
          <>
            <Table
              name={tab}
              rows={list(data['data'])}
              columns={COLUMNS[tab]!(account)}
              empty={data['next_cursor'] === null ? 'None.' : 'No matches among the entries that this page examined.'}
            />
            <Pages place={place} next={data['next_cursor']} />
          </>
        )}
      </Panel>
    </>
  )
}

function go(query: Query): void {
  location.hash = href('account', query)
}

interface FilterParts {
  filters: [name: string, label: string, example: string][]
  query: Query
  apply: (found: Query) => void
}

function Filters({ filters, query, apply }: FilterParts) {
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    const sent = new FormData(event.currentTarget as HTMLFormElement)
    apply(Object.fromEntries(filters.map(([name]) => [name, String(sent.get(name) ?? '').trim()])))
  }
  return (
    <form class="filter-row" onSubmit={submit} autoComplete="off">
      {filters.map(([name, label, example]) => (
        <label class="field" key={name}>
          <span>{label}</span>
          <input name={name} defaultValue={query[name] ?? ''} placeholder={example} spellcheck={false} />
        </label>
      ))}
      <button type="submit">Filter</button>
    </form>
  )
}
