// How the account fares: what succeeded, how fast, what waits, and which endpoints are in trouble.
import type { ComponentChildren } from 'preact'
import { useMemo } from 'preact/hooks'
import { LatencyChart, VolumeChart } from './charts'
import { useChoices } from './choices'
import { Endpoints } from './endpoints'
import { about, count, duration, percent, several, useNow } from './figures'
import { Mark } from './marks'
import { Empty, Live, Stale, Time, Trouble, Waiting } from './parts'
import { useReading } from './reading'
import { href, type Query } from './route'
import type { Summary } from './types'

const EVERY = 10_000

/** name → how it is said, by which interval, and how many hours back. */
const RANGES: Record<string, { said: string; interval: 'hour' | 'day'; hours: number }> = {
  '24h': { said: '24 hours', interval: 'hour', hours: 24 },
  '7d': { said: '7 days', interval: 'hour', hours: 168 },
  '30d': { said: '30 days', interval: 'day', hours: 720 },
  '90d': { said: '90 days', interval: 'day', hours: 2160 },
}

export function Health({ query, account }: { query: Query; account: string }) {
  const { live } = useChoices()
  const name = query['range'] && query['range'] in RANGES ? query['range'] : '24h'
  const range = RANGES[name]!
  const hour = Math.floor(useNow(60_000) / 3_600_000)
  const asked = useMemo(() => {
    const after = new Date((hour - range.hours + 1) * 3_600_000).toISOString()
    return { view: 'summary', interval: range.interval, created_after: after }
  }, [name, hour])
  const reading = useReading<Summary>(asked, live ? EVERY : 0)
  const found = reading.data
  return (
    <>
      <div class="title">
        <h1>Health</h1>
        <nav class="ranges" aria-label="Range">
          {Object.entries(RANGES).map(([each, { said }]) => (
            <a key={each} href={href('health', { range: each })} aria-current={each === name ? 'true' : undefined}>
              {said}
            </a>
          ))}
        </nav>
        <Live reading={reading} />
      </div>
      <Stale reading={reading} />
      {!found && reading.problem && <Trouble problem={reading.problem} again={reading.again} />}
      {!found && !reading.problem && <Waiting />}
      {found && (
        <div aria-busy={reading.old}>
          <Figures summary={found} />
          {attempts(found) ? (
            <div class="charts">
              <VolumeChart summary={found} interval={range.interval} />
              <LatencyChart summary={found} interval={range.interval} />
            </div>
          ) : (
            <Empty title={`No attempts in the last ${range.said}`}>
              <p>An event creates a delivery for each matching subscription. To create one, publish an event:</p>
              <pre
                tabIndex={0}
              >{`gatepost event publish --account ${account || 'NAME'} --type invoice.paid --data '{"invoice": 17}'`}</pre>
            </Empty>
          )}
        </div>
      )}
      <Endpoints every={live ? EVERY : 0} />
    </>
  )
}

const attempts = (summary: Summary): number =>
  Object.values(summary.total.attempts).reduce((sum, each) => sum + each, 0)

function Figures({ summary }: { summary: Summary }) {
  const now = useNow()
  const { total } = summary
  const waits = summary.now
  const ended = Object.values(total.deliveries.ended).reduce((sum, each) => sum + each, 0)
  const delivered = total.deliveries.ended['delivered'] ?? 0
  const lost = Object.entries(total.deliveries.ended).filter(([reason, number]) => reason !== 'delivered' && number)
  const most = (number: number) => `${count(number)}${number >= waits.counted_to ? '+' : ''}`
  return (
    <section class="figures" aria-label="Figures">
      <Figure name="Succeeded" wide>
        {total.success_ratio === null ? (
          <span class="none">–</span>
        ) : (
          <>
            {percent(total.success_ratio)}
            <i>%</i>
          </>
        )}
        <small>
          {ended ? `${count(delivered)} of ${several(ended, 'ended delivery', 'ended deliveries')}` : 'no ended deliveries'}
          {lost.map(([reason, number]) => (
            <span class="lost" key={reason}>
              {count(number)} {reason.replaceAll('_', ' ')}
            </span>
          ))}
        </small>
      </Figure>
      {(['p50', 'p95', 'p99'] as const).map((each) => (
        <Figure name={each} key={each}>
          <Measured ms={total.duration_ms[each]} />
          <small>{each === 'p50' ? 'median duration' : `${each.slice(1)}th percentile`}</small>
        </Figure>
      ))}
      <Figure name="Pending" mark="pending" to={href('deliveries', { status: 'pending', order: 'oldest' })}>
        {most(waits.pending)}
        <small>
          {waits.oldest_pending_at ? (
            <>
              oldest <b>{about(Math.max(0, now - Date.parse(waits.oldest_pending_at)))}</b>, since{' '}
              <Time at={waits.oldest_pending_at} now={now} />
            </>
          ) : (
            'none waiting'
          )}
        </small>
      </Figure>
      <Figure name="In flight" mark="in_flight" to={href('deliveries', { status: 'in_flight' })}>
        {most(waits.in_flight)}
        <small>in progress</small>
      </Figure>
      <Figure name="Held" mark="held" to={href('deliveries', { status: 'held' })} loud={waits.held > 0}>
        {most(waits.held)}
        <small>{waits.held ? 'their endpoints are disabled' : 'none held'}</small>
      </Figure>
    </section>
  )
}

interface FigureParts {
  name: string
  mark?: string
  to?: string
  wide?: boolean
  loud?: boolean
  children: ComponentChildren
}

function Figure({ name, mark, to, wide, loud, children }: FigureParts) {
  const label = (
    <span class="name">
      {mark && <Mark of={mark} />}
      {name}
    </span>
  )
  return (
    <div class={`figure${wide ? ' wide' : ''}${loud ? ' loud' : ''}`}>
      {to ? <a href={to}>{label}</a> : label}
      <div class="number">{children}</div>
    </div>
  )
}

/** A duration as a large figure with a small unit. */
function Measured({ ms }: { ms: number | null }) {
  if (ms === null) return <span class="none">–</span>
  const [number, unit] = duration(ms).split(' ')
  return (
    <>
      {number}
      <i>{unit}</i>
    </>
  )
}
