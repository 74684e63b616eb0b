// The service as a whole: nodes, workers, the queue, signing keys, all accounts, and an entry by its id.
import { count, percent, span } from '../figures'
import { Facts, list, object, Pages, Panel, State, Table, Time, text, useReading } from './parts'
import { href, type Place } from './route'
import type { Json } from './session'

export function Overview() {
  const reading = useReading('overview', {})
  return (
    <Panel title="Overview" reading={reading}>
      {(data) => (
        <>
          <Queue of={data['queue'] as Json | null} />
          <h2>Nodes</h2>
          <Table
            name="Nodes"
            rows={list(data['nodes'])}
            columns={[
              ['Host', (row) => text(row['host'])],
              ['Kind', (row) => text(row['kind'])],
              ['Version', (row) => text(row['version'])],
              ['State', (row) => <Running row={row} />],
              ['Started', (row) => <Time at={row['started_at']} />],
              ['Last heartbeat', (row) => <Time at={row['heartbeat_at']} />],
            ]}
          />
          <h2>Workers</h2>
          <Table
            name="Workers"
            rows={list(data['workers'])}
            columns={[
              ['Worker', (row) => <code>{text(row['id'])}</code>],
              ['State', (row) => <Running row={row} />],
              ['Last heartbeat', (row) => <Time at={row['heartbeat_at']} />],
            ]}
          />
          {list(data['database_nodes']).length > 0 && (
            <>
              <h2>Database nodes</h2>
              <Table
                name="Database nodes"
                rows={list(data['database_nodes'])}
                columns={[
                  ['Node', (row) => text(row['name'])],
                  ['State', (row) => <State good={row['reachable'] === true}>{row['reachable'] ? 'up' : 'down'}</State>],
                ]}
              />
            </>
          )}
          <h2>Signing keys</h2>
          <Table
            name="Signing keys"
            rows={list(data['keys'])}
            columns={[
              ['Key', (row) => <code>{text(row['id'])}</code>],
              ['Algorithm', (row) => text(row['alg'])],
              ['Status', (row) => text(row['status'])],
              ['Announced', (row) => <Time at={row['announced_at']} />],
              ['Activated', (row) => <Time at={row['activated_at']} />],
              ['Rotates', (row) => <Time at={row['rotates_at']} />],
              ['Retired', (row) => <Time at={row['retired_at']} />],
            ]}
          />
          <p class="none">Gatepost {text(data['version'])}</p>
        </>
      )}
    </Panel>
  )
}

function Running({ row }: { row: Json }) {
  return <State good={row['running'] === true}>{row['running'] ? 'running' : 'silent'}</State>
}

function Queue({ of }: { of: Json | null }) {
  if (!of) return <p role="alert">The store could not count the queue.</p>
  const most = (name: string) => `${count(Number(of[name]))}${Number(of[name]) >= Number(of['counted_to']) ? '+' : ''}`
  return (
    <Facts
      of={[
        ['Queue age', span(Number(of['age_seconds']) * 1000)],
        ['Pending', most('pending')],
        ['In flight', most('in_flight')],
        ['Held', most('held')],
        ['Running replays', count(Number(of['replays_running']))],
      ]}
    />
  )
}

export function Accounts({ place }: { place: Place }) {
  const reading = useReading('accounts', place.query)
  const hour = (row: Json) => object(row['last_hour'])
  return (
    <Panel title="Accounts" reading={reading}>
      {(data) => (
        <>
          <Table
            name="Accounts"
            rows={list(data['data'])}
            columns={[
              ['Account', (row) => <a href={href('account', { account: text(row['name']) })}>{text(row['name'])}</a>],
              ['Status', (row) => <Health row={row} />],
              ['Created', (row) => <Time at={row['created_at']} />],
              ['Ledger entries', (row) => amount(row['sealed_entries']), 'number'],
              ['Deliveries, last hour', (row) => amount(hour(row)['made']), 'number'],
              ['Succeeded', (row) => share(hour(row)['success_ratio']), 'number'],
              ['Unfinished', (row) => unfinished(object(hour(row)['unfinished'])), 'number'],
              ['Oldest unfinished', (row) => <Time at={object(hour(row)['unfinished'])['oldest']} />],
            ]}
          />
          <Pages place={place} next={data['next_cursor']} />
        </>
      )}
    </Panel>
  )
}

function Health({ row }: { row: Json }) {
  if (row['reachable'] === false) return <State good={false}>database node down</State>
  if (row['ledger_problem']) return <State good={false}>{text(row['ledger_problem'])}</State>
  return <State good={row['status'] === 'active'}>{text(row['status'])}</State>
}

export const amount = (value: unknown): string => (typeof value === 'number' ? count(value) : '–')
export const share = (value: unknown): string => (typeof value === 'number' ? `${percent(value)} %` : '–')

export function unfinished(of: Json): string {
  if (!('pending' in of)) return '–'
  const total = ['pending', 'held', 'in_flight'].reduce((sum, name) => sum + Number(of[name]), 0)
  return `${count(total)}${total >= Number(of['counted_to']) ? '+' : ''}`
}

/** An entry by its id. Its account is searched for, some accounts at a time. */
export function EntryView({ place }: { place: Place }) {
  const reading = useReading('entry', place.query)
  return (
    <Panel title="Entry" reading={reading}>
      {(data) => {
        const entry = data['entry'] as Json | null
        if (entry)
          return (
            <>
              <Facts
                of={[
                  ['Id', <code>{text(entry['id'])}</code>],
                  ['Account', <a href={href('account', { account: text(entry['account']) })}>{text(entry['account_name'])}</a>],
                  ['Type', text(entry['type'])],
                  ['Time', <Time at={entry['at']} />],
                  ['Actor', text(entry['actor'])],
                  ['Subject', text(entry['subject'])],
                  ['Sealed', entry['sealed'] ? 'yes' : 'not yet'],
                  ['Matching subscriptions', amount(entry['matched'])],
                  ['Request', text(entry['request']) || '–'],
                  ['Source', text(entry['source']) || '–'],
                ]}
              />
              <pre tabIndex={0}>{JSON.stringify(entry['data'], null, 2)}</pre>
            </>
          )
        const next = data['next_cursor']
        return (
          <>
            <p>
              {typeof next === 'string'
                ? `No account up to ${next} has this entry.`
                : 'No account has this entry. It may have been pruned.'}
            </p>
            {Number(data['not_searched']) > 0 && <p>Accounts on database nodes that are down were not searched.</p>}
            {typeof next === 'string' && <a href={href('entry', { ...place.query, cursor: next })}>Search further →</a>}
          </>
        )
      }}
    </Panel>
  )
}
