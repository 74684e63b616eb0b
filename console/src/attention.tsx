// What needs attention, in one sentence at the top of the health view.
import type { ComponentChildren } from 'preact'
import { about, count, several, useNow } from './figures'
import { Mark } from './marks'
import { href } from './route'
import { nameOfEndpoint } from './states'
import type { Condition, Endpoint, Summary } from './types'

interface AttentionProps {
  summary: Summary
  endpoints: Endpoint[]
  /** Whether there are more endpoints than were read. */
  more: boolean
}

export function Attention({ summary, endpoints, more }: AttentionProps) {
  const now = useNow()
  const { pending, held, oldest_pending_at: oldest, counted_to: limit } = summary.now
  const all = `${count(endpoints.length)}${more ? '+' : ''} ${endpoints.length === 1 ? 'endpoint' : 'endpoints'}`
  const those = (condition: Condition) => endpoints.filter((each) => each.condition === condition)
  const failing = those('failing')
  const degraded = those('degraded')
  const disabled = those('disabled')
  const waiting = pending + held
  const mark = failing.length ? 'failed' : degraded.length || disabled.length ? 'degraded' : 'succeeded'
  const parts: ComponentChildren[] = []
  if (failing.length) parts.push(`${count(failing.length)} of ${all} failing`)
  if (degraded.length) parts.push(`${count(degraded.length)} ${failing.length ? '' : `of ${all} `}degraded`)
  if (disabled.length) parts.push(`${count(disabled.length)} disabled`)
  if (!parts.length) parts.push(endpoints.length === 1 ? 'The endpoint is healthy' : `All ${all} are healthy`)
  if (waiting)
    parts.push(
      <>
        <a href={href('deliveries', { status: pending ? 'pending' : 'held', order: 'oldest' })}>
          {`${count(waiting)}${waiting >= limit ? '+' : ''} ${waiting === 1 ? 'delivery' : 'deliveries'} waiting`}
        </a>
        {oldest && `, oldest ${about(Math.max(0, now - Date.parse(oldest)))}`}
      </>,
    )
  else parts.push('no delivery waiting')
  if (!endpoints.length) return null
  const worst = [...failing, ...degraded].slice(0, NAMED)
  return (
    <section class={`attention is-${mark}`} aria-label="Attention">
      <p class="sentence">
        <Mark of={mark} />
        <span>
          {parts.map((part, place) => (
            <>
              {place > 0 && ', '}
              {part}
            </>
          ))}
          .
        </span>
      </p>
      {worst.length > 0 && (
        <p class="worst">
          {worst.map((endpoint) => (
            <a key={endpoint.id} href={href('endpoint', { id: endpoint.id })}>
              {nameOfEndpoint(endpoint)}
            </a>
          ))}
          {failing.length + degraded.length > NAMED &&
            ` and ${several(failing.length + degraded.length - NAMED, 'other')}`}
        </p>
      )}
    </section>
  )
}

const NAMED = 4
