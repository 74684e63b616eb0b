// The account's endpoints: those in trouble first, with how long until they are disabled.
import { useState } from 'preact/hooks'
import { away, count, several, span, useNow } from './figures'
import { Mark } from './marks'
import { Copy, Empty, Stale, Time, Trouble, Waiting } from './parts'
import { useReading } from './reading'
import { href } from './route'
import type { Endpoint, Page } from './types'

const SHOWN = 12

export function Endpoints({ every }: { every: number }) {
  const reading = useReading<Page<Endpoint>>({ view: 'endpoints', limit: '200' }, every)
  const [all, showAll] = useState(false)
  const now = useNow()
  const found = [...(reading.data?.data ?? [])].sort((one, other) => worry(one) - worry(other))
  const failing = found.filter((each) => each.health.will_be_disabled_at)
  const near = failing.filter((each) => isNear(each, now))
  const shown = all ? found : found.slice(0, SHOWN)
  return (
    <section class="endpoints" aria-labelledby="endpoints-title">
      <h2 id="endpoints-title">
        Endpoints
        {reading.data && found.length > 0 && (
          <small>
            {count(found.length)}
            {reading.data.next_cursor && ' and more'}
            {failing.length > 0 && `, ${count(failing.length)} failing`}
            {near.length > 0 && `, ${count(near.length)} will be disabled within a day`}
          </small>
        )}
      </h2>
      <Stale reading={reading} />
      {!reading.data && reading.problem && <Trouble problem={reading.problem} again={reading.again} />}
      {!reading.data && !reading.problem && <Waiting rows={3} />}
      {reading.data && !found.length && (
        <Empty title="No endpoints">
          <p>
            An endpoint receives webhooks. <code>POST /webhooks/endpoints</code> defines one,{' '}
            <code>POST /webhooks/subscriptions</code> subscribes it to events.
          </p>
        </Empty>
      )}
      {shown.length > 0 && (
        <ul class="rows">
          {shown.map((each) => (
            <Row endpoint={each} now={now} key={each.id} />
          ))}
        </ul>
      )}
      {!all && found.length > SHOWN && (
        <button type="button" class="quiet more" onClick={() => showAll(true)}>
          Show all {count(found.length)}
        </button>
      )}
    </section>
  )
}

const DAY = 86_400_000

const isNear = (endpoint: Endpoint, now: number): boolean =>
  Date.parse(endpoint.health.will_be_disabled_at ?? '') - now < DAY

/** Lower is worse: first those soon disabled, then those that are, then those that fail or hold, then the rest. */
function worry(endpoint: Endpoint): number {
  const { health } = endpoint
  if (health.will_be_disabled_at) return Date.parse(health.will_be_disabled_at)
  if (endpoint.status === 'disabled') return 1e14 - endpoint.held
  return health.consecutive_failures || health.retry_after_until ? 2e14 : 3e14
}

function Row({ endpoint, now }: { endpoint: Endpoint; now: number }) {
  const { health } = endpoint
  const state = endpoint.status === 'disabled' ? 'held' : health.consecutive_failures ? 'failed' : 'succeeded'
  const word = endpoint.status === 'disabled' ? 'disabled' : health.consecutive_failures ? 'failing' : 'healthy'
  const types = [
    ...new Set(endpoint.subscriptions.filter((each) => each.status === 'active').flatMap((each) => each.events)),
  ]
  return (
    <li class={`endpoint is-${state}`}>
      <span class={`status is-${state}`}>
        <Mark of={state} />
        {word}
      </span>
      <div class="what">
        <a class="url" href={href('deliveries', { endpoint_id: endpoint.id })}>
          {endpoint.url}
        </a>
        <Copy text={endpoint.id} label={`Copy the id of ${endpoint.url}`} />
        <p class="about">
          {endpoint.description && <span>{endpoint.description}</span>}
          {types.length ? types.map((each) => <code key={each}>{each}</code>) : <span>no active subscription</span>}
        </p>
      </div>
      <div class="state">
        <State endpoint={endpoint} now={now} />
      </div>
    </li>
  )
}

const REASONS: Record<string, string> = {
  requested: 'on request',
  operator: 'by an operator',
  gone: 'the receiver responded with 410',
  failing: '120 hours without a success',
}

function State({ endpoint, now }: { endpoint: Endpoint; now: number }) {
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
      {health.retry_after_until && (
        <p>
          asked to wait, until <Time at={health.retry_after_until} now={now} />
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
