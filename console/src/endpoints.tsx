// The account's endpoints: those in trouble first, with how long until they are disabled.
import { useState } from 'preact/hooks'
import { ActionButton } from './action'
import { DefineEndpoint } from './actions/endpoints'
import { away, count, duration, several, span, useNow } from './figures'
import { Mark } from './marks'
import { Copy, Empty, Time, Trouble, Waiting } from './parts'
import type { Reading } from './reading'
import { href } from './route'
import { byUrgency, MARKS, nameOfEndpoint } from './states'
import type { Condition, Endpoint, Page } from './types'

const SHOWN = 12
const DAY = 86_400_000

export function Endpoints({ reading }: { reading: Reading<Page<Endpoint>> }) {
  const [all, showAll] = useState(false)
  const now = useNow()
  const list = reading.data && [...reading.data.data].sort(byUrgency)
  const shown = all ? list : list?.slice(0, SHOWN)
  return (
    <section class="endpoints" aria-labelledby="endpoints-title">
      <div class="heading">
        <h2 id="endpoints-title">
          Endpoints
          {list && list.length > 0 && <small>{summarize(list, !!reading.data?.next_cursor, now)}</small>}
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
            <Row endpoint={each} now={now} key={each.id} />
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

function summarize(list: Endpoint[], more: boolean, now: number): string {
  const near = list.filter(({ health }) => Date.parse(health.will_be_disabled_at ?? '') - now < DAY)
  return [
    `${count(list.length)}${more ? ' and more' : ''}`,
    ...(near.length ? [`${count(near.length)} will be disabled within a day`] : []),
  ].join(', ')
}

const WORDS: Record<Condition, string> = {
  failing: 'Failing',
  degraded: 'Degraded',
  disabled: 'Disabled',
  healthy: 'Healthy',
}

export function ConditionWord({ condition }: { condition: Condition }) {
  return (
    <span class={`status is-${MARKS[condition]}`}>
      <Mark of={MARKS[condition]} />
      {WORDS[condition]}
    </span>
  )
}

function Row({ endpoint, now }: { endpoint: Endpoint; now: number }) {
  const active = endpoint.subscriptions.filter((each) => each.status === 'active')
  const types = [...new Set(active.flatMap((each) => each.events))]
  return (
    <li class={`endpoint is-${MARKS[endpoint.condition]}`}>
      <ConditionWord condition={endpoint.condition} />
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
      <div class="state">
        <ConditionDetails endpoint={endpoint} now={now} />
        <Activity endpoint={endpoint} now={now} />
      </div>
    </li>
  )
}

/** Rate and response time of the last minutes, and the last delivery. */
function Activity({ endpoint, now }: { endpoint: Endpoint; now: number }) {
  const { recent, last_delivery: last } = endpoint
  const rate = recent.attempts_per_second
  const { p50 } = recent.duration_ms
  const share = recent.attempt_success_ratio
  return (
    <p>
      {rate > 0 && <b>{rate >= 1 ? `${rate.toFixed(1)}/s` : `${(rate * 60).toFixed(1)}/min`}</b>}
      {rate > 0 && p50 !== null && `, median ${duration(p50)}`}
      {rate > 0 && share !== null && share > 0 && share < 1 && `, ${Math.floor(share * 100)} % succeed`}
      {rate > 0 && ', '}
      {last ? (
        <>
          last delivery <Time at={last.created_at} now={now} as="away" />
          {(last.response_code || last.failure) && ` (${last.failure?.replace('_', ' ') ?? last.response_code})`}
        </>
      ) : (
        'no recent delivery'
      )}
    </p>
  )
}

const REASONS: Record<string, string> = {
  requested: 'on request',
  operator: 'by an operator',
  gone: 'the receiver responded with 410',
  failing: '120 hours without a success',
}

export function ConditionDetails({ endpoint, now }: { endpoint: Endpoint; now: number }) {
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
