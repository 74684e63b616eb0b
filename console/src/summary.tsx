// Figures and charts of a time range, of the account or of one endpoint.
import type { ComponentChildren } from 'preact'
import { useMemo } from 'preact/hooks'
import { LatencyChart, type Size, VolumeChart } from './charts'
import { useChoices } from './choices'
import { about, count, duration, percent, several, useNow } from './figures'
import { Mark } from './marks'
import { Time } from './parts'
import { type Reading, useReading } from './reading'
import { href, type Place, type Query } from './route'
import { attemptsOf } from './states'
import type { Summary } from './types'

const EVERY = 10_000
const HOUR = 3_600_000

/** name → its text, the interval, and the number of hours. */
export const RANGES: Record<string, { text: string; interval: Size; hours: number }> = {
  '1h': { text: '1 hour', interval: 'minute', hours: 1 },
  '24h': { text: '24 hours', interval: 'hour', hours: 24 },
  '7d': { text: '7 days', interval: 'hour', hours: 168 },
  '30d': { text: '30 days', interval: 'day', hours: 720 },
  '90d': { text: '90 days', interval: 'day', hours: 2160 },
}

export const rangeOf = (query: Query): string => (query['range'] && Object.hasOwn(RANGES, query['range']) ? query['range'] : '24h')

/** The summary of a range that ends now, read again while the page is live. */
export function useSummary(range: string, endpoint?: string): Reading<Summary> {
  const { live } = useChoices()
  const { interval, hours } = RANGES[range]!
  const step = interval === 'minute' ? 60_000 : HOUR
  const end = Math.floor(useNow(10_000) / step) * step
  const query = useMemo(() => {
    const created_after = new Date(end + step - hours * HOUR).toISOString()
    return { view: 'summary', interval, created_after, ...(endpoint && { endpoint_id: endpoint }) }
  }, [range, end, endpoint])
  return useReading<Summary>(query, live ? EVERY : 0)
}

export function Ranges({ view, query, range }: { view: Place['view']; query: Query; range: string }) {
  return (
    <nav class="ranges" aria-label="Range">
      {Object.entries(RANGES).map(([each, { text }]) => (
        <a key={each} href={href(view, { ...query, range: each })} aria-current={each === range ? 'true' : undefined}>
          {text}
        </a>
      ))}
    </nav>
  )
}

export function Charts({ summary, range, endpoint }: { summary: Summary; range: string; endpoint?: string }) {
  const { interval } = RANGES[range]!
  const filters: Query = endpoint ? { endpoint_id: endpoint } : {}
  return (
    <div class="charts">
      <VolumeChart summary={summary} interval={interval} filters={filters} />
      <LatencyChart summary={summary} interval={interval} filters={filters} />
    </div>
  )
}

export const hasAttempts = (summary: Summary): boolean =>
  Object.values(summary.total.attempts).some((number) => number > 0)

export function Figures({ summary, endpoint }: { summary: Summary; endpoint?: string }) {
  const { total } = summary
  const ended = Object.values(total.deliveries.ended).reduce((sum, each) => sum + each, 0)
  const delivered = total.deliveries.ended['delivered'] ?? 0
  const lost = Object.entries(total.deliveries.ended).filter(([reason, number]) => reason !== 'delivered' && number)
  const { succeeded, all } = attemptsOf(total)
  return (
    <section class="figures" aria-label="Figures">
      <Figure name="Attempts succeeded" wide>
        <Share share={total.attempt_success_ratio} />
        <small>{all ? `${count(succeeded)} of ${several(all, 'attempt')}` : 'no attempts'}</small>
      </Figure>
      <Figure name="Deliveries succeeded" wide>
        <Share share={total.success_ratio} />
        <small>
          {ended ? `${count(delivered)} of ${several(ended, 'ended delivery', 'ended deliveries')}` : 'none ended'}
          {lost.map(([reason, number]) => (
            <span class="lost" key={reason}>
              {count(number)} {reason.replaceAll('_', ' ')}
            </span>
          ))}
        </small>
      </Figure>
      <Figure name="Response time">
        <Measured ms={total.duration_ms.p50} />
        <small>
          median of answered attempts
          {total.duration_ms.p95 !== null && (
            <span>
              p95 <b>{duration(total.duration_ms.p95)}</b>, p99 <b>{duration(total.duration_ms.p99 ?? 0)}</b>
            </span>
          )}
        </small>
      </Figure>
      <Waiting summary={summary} {...(endpoint && { endpoint })} />
    </section>
  )
}

function Waiting({ summary, endpoint }: { summary: Summary; endpoint?: string }) {
  const now = useNow()
  const waits = summary.now
  const filters: Query = endpoint ? { endpoint_id: endpoint } : {}
  const atLeast = (number: number) => `${count(number)}${number >= waits.counted_to ? '+' : ''}`
  return (
    <>
      <Figure name="Pending" mark="pending" to={href('deliveries', { ...filters, status: 'pending', order: 'oldest' })}>
        {atLeast(waits.pending)}
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
      <Figure name="In flight" mark="in_flight" to={href('deliveries', { ...filters, status: 'in_flight' })}>
        {atLeast(waits.in_flight)}
        <small>in progress</small>
      </Figure>
      <Figure name="Held" mark="held" to={href('deliveries', { ...filters, status: 'held' })} loud={waits.held > 0}>
        {atLeast(waits.held)}
        <small>{waits.held ? 'the endpoint is disabled' : 'none held'}</small>
      </Figure>
    </>
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

function Share({ share }: { share: number | null }) {
  if (share === null) return <span class="none">–</span>
  return (
    <>
      {percent(share)}
      <i>%</i>
    </>
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
