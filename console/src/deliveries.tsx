// The account's deliveries: filtered, page by page, and live.
import { useEffect, useRef, useState } from 'preact/hooks'
import { useChoices } from './choices'
import { away, count, duration, useNow } from './figures'
import { Filters } from './filters'
import { brief, Code, Mark, markOf, StatusWord } from './marks'
import { Empty, Live, Stale, Time, Trouble, Waiting } from './parts'
import { useReading } from './reading'
import { FILTERS, href, type Query } from './route'
import type { Attempt, Delivery, Endpoint, Page } from './types'

const EVERY = 2000

export function Deliveries({ query, account }: { query: Query; account: string }) {
  const { live } = useChoices()
  const reading = useReading<Page<Delivery>>(query, live ? EVERY : 0)
  const fresh = useFresh(reading.data?.data, reading.old, JSON.stringify(query))
  const now = useNow()
  const names = useNames()
  const refused = reading.problem?.kind === 'refused' ? reading.problem : undefined
  const found = refused ? undefined : reading.data
  const filtered = FILTERS.some((name) => query[name])
  return (
    <>
      <div class="title">
        <h1>Deliveries</h1>
        <Live reading={reading} />
      </div>
      <Filters query={query} />
      {!refused && <Stale reading={reading} />}
      {!found && reading.problem && <Trouble problem={reading.problem} again={reading.again} />}
      {!found && !reading.problem && <Waiting rows={10} />}
      {found && (
        <div aria-busy={reading.old}>
          {found.data.length > 0 && <Rows page={found.data} fresh={fresh} now={now} names={names} />}
          {found.data.length === 0 && (
            <Nothing filtered={filtered} more={found.next_cursor !== null} account={account} />
          )}
          <Pages query={query} page={found} />
        </div>
      )}
      <p class="unseen" role="status">
        {fresh.size > 0 ? `${count(fresh.size)} new` : ''}
      </p>
    </>
  )
}

/** The descriptions of the endpoints, read once. */
function useNames(): Map<string, string> {
  const { data } = useReading<Page<Endpoint>>({ view: 'endpoints', limit: '200' }, 0)
  return new Map((data?.data ?? []).filter((each) => each.description).map((each) => [each.id, each.description]))
}

/** The ids that came since the page was first read: they are shown for a moment as new. */
function useFresh(page: Delivery[] | undefined, old: boolean, key: string): Set<string> {
  const known = useRef<{ key: string; ids: Set<string> }>({ key: '', ids: new Set() })
  const [fresh, tell] = useState<Set<string>>(new Set())
  useEffect(() => {
    if (!page || old) return
    const before = known.current
    const came = before.key === key ? page.filter((each) => !before.ids.has(each.id)).map((each) => each.id) : []
    known.current = { key, ids: new Set(page.map((each) => each.id)) }
    if (came.length || fresh.size) tell(new Set(came))
  }, [page, old, key])
  return fresh
}

interface RowsProps {
  page: Delivery[]
  /** The ids that are shown as new. */
  fresh: Set<string>
  now: number
  /** Endpoint id → its description, where it has one. */
  names: Map<string, string>
}

export function Rows({ page, fresh, now, names }: RowsProps) {
  return (
    <table class="deliveries">
      <thead>
        <tr>
          <th scope="col">Status</th>
          <th scope="col">Event</th>
          <th scope="col">Endpoint</th>
          <th scope="col">Attempts</th>
          <th scope="col" class="number">
            Duration
          </th>
          <th scope="col" class="number">
            Next attempt
          </th>
          <th scope="col" class="number">
            Created
          </th>
        </tr>
      </thead>
      <tbody>
        {page.map((each) => (
          <Row record={each} fresh={fresh.has(each.id)} now={now} name={names.get(each.endpoint.id)} key={each.id} />
        ))}
      </tbody>
    </table>
  )
}

interface RowProps {
  record: Delivery
  fresh: boolean
  now: number
  name: string | undefined
}

function Row({ record, fresh, now, name }: RowProps) {
  const last = record.attempts.at(-1)
  const next = record.retries.next_at
  const url = parted(record.endpoint.url)
  return (
    <tr class={`is-${record.status}${fresh ? ' fresh' : ''}`} data-id={record.id}>
      <td class="state">
        <StatusWord status={record.status} />
      </td>
      <td class="event">
        <a class="opens" href={href('delivery', { id: record.id })}>
          {record.event.type}
        </a>
        <code class="tail" title={record.id}>
          …{record.id.slice(-6)}
        </code>
        {record.trigger !== 'event' && <span class="trigger">{record.trigger}</span>}
      </td>
      <td class="endpoint" title={record.endpoint.url}>
        <b>{name ?? url.host}</b>
        <span>{name ? ` ${url.host}` : url.path}</span>
      </td>
      <td class="attempts">
        <Trail attempts={record.attempts} />
      </td>
      <td class="number took">{last?.duration_ms != null ? duration(last.duration_ms) : ''}</td>
      <td class="number next">
        {next && <time dateTime={next}>{Date.parse(next) > now ? away(Date.parse(next), now) : 'due'}</time>}
      </td>
      <td class="number made">
        <Time at={record.created_at} now={now} />
      </td>
    </tr>
  )
}

function parted(url: string): { host: string; path: string } {
  const [, host = url, path = ''] = /^[a-z]+:\/\/([^/]+)(.*)$/.exec(url) ?? []
  return { host, path }
}

const TRAIL = 5

/** The last attempts, oldest first: a mark for each, and the last in words. */
function Trail({ attempts }: { attempts: Attempt[] }) {
  const last = attempts.at(-1)
  if (!last) return <span class="none">none yet</span>
  const before = attempts.slice(0, -1).slice(-TRAIL)
  const hidden = attempts.length - 1 - before.length
  return (
    <span class="trail">
      {hidden > 0 && <span class="hidden">+{hidden}</span>}
      {before.map((each) => (
        <Mark of={markOf(each)} label={`attempt ${each.number}: ${brief(each)}`} key={each.number} />
      ))}
      <Mark of={markOf(last)} label={`attempt ${last.number}:`} />
      <Code attempt={last} />
    </span>
  )
}

function Nothing({ filtered, more, account }: { filtered: boolean; more: boolean; account: string }) {
  if (more)
    return (
      <Empty title="No matches on this page">
        <p>A page examines at most ten thousand records. Continue with the next page below.</p>
      </Empty>
    )
  if (filtered)
    return (
      <Empty title="No deliveries match these filters">
        <p>
          <a href={href('deliveries')}>Show all deliveries</a>
        </p>
      </Empty>
    )
  return (
    <Empty title="No deliveries yet">
      <p>An event creates a delivery for each matching subscription. To create one, publish an event:</p>
      <pre
        tabIndex={0}
      >{`gatepost event publish --account ${account || 'NAME'} --type invoice.paid --data '{"invoice": 17}'`}</pre>
    </Empty>
  )
}

function Pages({ query, page }: { query: Query; page: Page<Delivery> }) {
  const { cursor, ...rest } = query
  const oldest = (query['order'] ?? (query['due_before'] ? 'oldest' : 'newest')) === 'oldest'
  if (!cursor && !page.next_cursor) return <p class="pages">{page.data.length > 0 && 'End of the list.'}</p>
  return (
    <nav class="pages" aria-label="Pages">
      {cursor && <a href={href('deliveries', rest)}>First page</a>}
      {cursor && (
        <button type="button" class="link" onClick={() => history.back()}>
          Back
        </button>
      )}
      {page.next_cursor ? (
        <a class="next-page" href={href('deliveries', { ...rest, cursor: page.next_cursor })}>
          {oldest ? 'Newer' : 'Older'} →
        </a>
      ) : (
        <span>End of the list.</span>
      )}
    </nav>
  )
}
