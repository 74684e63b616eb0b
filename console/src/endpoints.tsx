// The account's endpoints with their states: those in trouble first, with how long until they are disabled.
import { useEffect, useRef, useState } from 'preact/hooks'
import { ActionButton } from './action'
import { DefineEndpoint } from './actions/endpoints'
import { away, count, duration, several, span, useNow } from './figures'
import { Mark } from './marks'
import { Copy, Empty, Time, Trouble, Waiting } from './parts'
import { type Reading, useReading } from './reading'
import { href } from './route'
import { read } from './session'
import { Sparkline } from './sparkline'
import { type EndpointState, MARKS, nameOfEndpoint, outcomes, stateOf, worry } from './states'
import type { Endpoint, Page, Summary } from './types'

const SHOWN = 12
const MEASURED = 24 // endpoints of which the last hour is read
const AT_ONCE = 4

export interface EndpointWithState {
  endpoint: Endpoint
  state: EndpointState
  /** The summary of the last hour by the minute, as soon as it has been read. */
  hour: Summary | undefined
}

interface EndpointStates {
  reading: Reading<Page<Endpoint>>
  list: EndpointWithState[] | undefined
  more: boolean
}

export function useEndpointStates(every: number): EndpointStates {
  const reading = useReading<Page<Endpoint>>({ view: 'endpoints', limit: '200' }, every)
  const hours = useHours(reading.data?.data, reading.at)
  const now = useNow(10_000)
  const list = reading.data?.data.map((endpoint): EndpointWithState => {
    const hour = hours.get(endpoint.id)
    return { endpoint, hour, state: stateOf(endpoint, hour, now) }
  })
  list?.sort((one, other) => {
    const [a, b] = [worry(one.endpoint, one.state), worry(other.endpoint, other.state)]
    return a[0] - b[0] || (a[1] === b[1] ? 0 : a[1] - b[1])
  })
  return { reading, list, more: !!reading.data?.next_cursor }
}

/** The summaries of the last hour of the first endpoints, active ones and the worst first. */
function useHours(endpoints: Endpoint[] | undefined, version: number): Map<string, Summary> {
  const [hours, setHours] = useState(new Map<string, Summary>())
  const readAt = useRef(0)
  useEffect(() => {
    if (!endpoints || Date.now() - readAt.current < 9000) return
    readAt.current = Date.now()
    const stop = new AbortController()
    const created_after = new Date(Math.floor(Date.now() / 60_000) * 60_000 - 59 * 60_000).toISOString()
    const waiting = endpoints
      .filter((each) => each.status === 'active')
      .sort((one, other) => other.health.consecutive_failures - one.health.consecutive_failures)
      .slice(0, MEASURED)
      .map((each) => each.id)
    const found = new Map<string, Summary>()
    const next = async (): Promise<void> => {
      const id = waiting.shift()
      if (!id) return
      found.set(id, await read({ view: 'summary', interval: 'minute', endpoint_id: id, created_after }, stop.signal))
      return next()
    }
    Promise.all(Array.from({ length: AT_ONCE }, next))
      .then(() => setHours(found))
      .catch(() => undefined) // the reading of the endpoints reports problems
    return () => stop.abort()
  }, [version])
  return hours
}

export function Endpoints({ reading, list, more }: EndpointStates) {
  const [all, showAll] = useState(false)
  const now = useNow()
  const shown = all ? list : list?.slice(0, SHOWN)
  return (
    <section class="endpoints" aria-labelledby="endpoints-title">
      <div class="heading">
        <h2 id="endpoints-title">
          Endpoints
          {list && list.length > 0 && <small>{summarize(list, more, now)}</small>}
        </h2>
        <ActionButton scope="gatepost:endpoints" name="Create an endpoint">
          {(close) => <DefineEndpoint close={close} />}
        </ActionButton>
      </div>
      {!list && reading.problem && <Trouble problem={reading.problem} again={reading.again} />}
      {!list && !reading.problem && <Waiting rows={3} />}
      {list && !list.length && (
        <Empty title="No endpoints">
          <p>An endpoint is a URL that receives webhooks. Create one, and subscribe it to events.</p>
        </Empty>
      )}
      {shown && shown.length > 0 && (
        <ul class="rows">
          {shown.map((each) => (
            <Row {...each} now={now} key={each.endpoint.id} />
          ))}
        </ul>
      )}
      {!all && list && list.length > SHOWN && (
        <button type="button" class="quiet more" onClick={() => showAll(true)}>
          Show all {count(list.length)}
        </button>
      )}
    </section>
  )
}

const DAY = 86_400_000

function summarize(list: EndpointWithState[], more: boolean, now: number): string {
  const near = list.filter(
    ({ endpoint, state }) =>
      state !== 'disabled' && Date.parse(endpoint.health.will_be_disabled_at ?? '') - now < DAY,
  )
  return [
    `${count(list.length)}${more ? ' and more' : ''}`,
    ...(near.length ? [`${count(near.length)} will be disabled within a day`] : []),
  ].join(', ')
}

const WORDS: Record<EndpointState, string> = {
  failing: 'Failing',
  degraded: 'Degraded',
  disabled: 'Disabled',
  healthy: 'Healthy',
}

export function StateWord({ state }: { state: EndpointState }) {
  return (
    <span class={`status is-${MARKS[state]}`}>
      <Mark of={MARKS[state]} />
      {WORDS[state]}
    </span>
  )
}

function Row({ endpoint, state, hour, now }: EndpointWithState & { now: number }) {
  const active = endpoint.subscriptions.filter((each) => each.status === 'active')
  const types = [...new Set(active.flatMap((each) => each.events))]
  return (
    <li class={`endpoint is-${MARKS[state]}`}>
      <StateWord state={state} />
      <div class="what">
        <a class="name" href={href('endpoint', { id: endpoint.id })}>
          {nameOfEndpoint(endpoint)}
        </a>
        <Copy text={endpoint.id} label={`Copy the id of ${nameOfEndpoint(endpoint)}`} />
        <p class="about">
          {endpoint.description && <span class="url">{endpoint.url}</span>}
          {types.length ? types.map((each) => <code key={each}>{each}</code>) : <span>no active subscription</span>}
        </p>
      </div>
      <Sparkline hour={hour} />
      <div class="state">
        <StateDetails endpoint={endpoint} now={now} />
        {endpoint.status === 'active' && hour && <Rate hour={hour} now={now} />}
      </div>
    </li>
  )
}

/** Rate, response time and last attempt of an hour. */
function Rate({ hour, now }: { hour: Summary; now: number }) {
  const { succeeded, failed } = outcomes(hour)
  const last = hour.data.findLast((each) => Object.values(each.attempts).some((number) => number > 0))
  if (!succeeded && !failed) return <p>no attempts in the last hour</p>
  const { p50 } = hour.total.duration_ms
  const minutes = last ? Math.floor((now - Date.parse(last.start)) / 60_000) : 0
  return (
    <p>
      <b>{count(succeeded + failed)}</b>/h{p50 !== null && `, median ${duration(p50)}`}
      {failed > 0 && succeeded > 0 && `, ${count(failed)} failed`}, last {minutes < 1 ? 'in this minute' : `${several(minutes, 'minute')} ago`}
    </p>
  )
}

const REASONS: Record<string, string> = {
  requested: 'on request',
  operator: 'by an operator',
  gone: 'the receiver responded with 410',
  failing: '120 hours without a success',
}

export function StateDetails({ endpoint, now }: { endpoint: Endpoint; now: number }) {
  const { health } = endpoint
  return (
    <>
      {health.will_be_disabled_at && health.failing_since && (
        <Countdown since={Date.parse(health.failing_since)} until={Date.parse(health.will_be_disabled_at)} now={now} />
      )}
      {health.consecutive_failures > 0 && (
        <p>
          <b>{several(health.consecutive_failures, 'failure')}</b> in a row
          {health.failing_since && (
            <>
              {' since '}
              <Time at={health.failing_since} now={now} />
            </>
          )}
        </p>
      )}
      {endpoint.status === 'disabled' && (
        <p>
          {REASONS[endpoint.disabled_reason ?? ''] ?? endpoint.disabled_reason}
          {endpoint.disabled_at && (
            <>
              {', '}
              <Time at={endpoint.disabled_at} now={now} as="away" />
            </>
          )}
        </p>
      )}
      {health.retry_after_until && Date.parse(health.retry_after_until) > now && (
        <p>
          the receiver asked to wait until <Time at={health.retry_after_until} now={now} />
        </p>
      )}
      {endpoint.held > 0 && (
        <p>
          <a href={href('deliveries', { endpoint_id: endpoint.id, status: 'held' })}>
            <b>{count(endpoint.held)}</b> held
          </a>
        </p>
      )}
    </>
  )
}

/** How much of the time that is left to a failing endpoint has passed. */
function Countdown({ since, until, now }: { since: number; until: number; now: number }) {
  const share = Math.min(1, Math.max(0, (now - since) / (until - since)))
  const left = until > now ? `disabled in ${span(Math.max(60_000, until - now))}` : `disabled ${away(until, now)}`
  return (
    <div class={`countdown${until - now < DAY ? ' near' : ''}`}>
      <p>
        <b>{left}</b> unless it succeeds
      </p>
      <div class="track" aria-hidden>
        <div class="passed" style={{ width: `${(share * 100).toFixed(1)}%` }} />
      </div>
    </div>
  )
}
