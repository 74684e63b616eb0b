// One endpoint: its state, its own figures and charts, its subscriptions, its latest deliveries, and what can be done.
import { ActionButton } from './action'
import { DefineEndpoint, RotateEndpointSecret, SetEndpointStatus } from './actions/endpoints'
import { SendTestEvent } from './actions/events'
import { ReplayRange, ResendFailed } from './actions/replay'
import { DefineSubscription, SetSubscriptionStatus } from './actions/subscriptions'
import { useChoices } from './choices'
import { Rows } from './deliveries'
import { ConditionDetails, ConditionWord } from './endpoints'
import { several, span, useNow } from './figures'
import { Copy, Empty, Id, Live, Stale, Time, Trouble, Waiting } from './parts'
import { useReading } from './reading'
import { href, type Query } from './route'
import { INTAKE } from './session'
import { nameOfEndpoint } from './states'
import { Charts, Figures, hasAttempts, Ranges, RANGES, rangeOf, useSummary } from './summary'
import type { Condition, Delivery, Endpoint, Page, Subscription } from './types'
import { useEndpoint } from './use-endpoint'

const EVERY = 10_000

export function EndpointView({ query }: { query: Query }) {
  const id = query['id'] ?? ''
  const range = rangeOf(query)
  const reading = useSummary(range, id)
  const endpoint = useEndpoint(id, reading.at)
  const now = useNow()
  if (!id || endpoint === null || reading.problem?.kind === 'refused')
    return (
      <Empty title="Endpoint not found">
        <p>
          <code>{id}</code> is not an endpoint of this account, or it was removed.{' '}
          <a href={href('deliveries', { endpoint_id: id })}>Its deliveries</a>
        </p>
      </Empty>
    )
  const found = reading.data
  if (!endpoint || !found)
    return reading.problem ? <Trouble problem={reading.problem} again={reading.again} /> : <Waiting />
  return (
    <article class="endpoint-page">
      <p class="back">
        <a href={href('health')}>Health</a>
      </p>
      <div class="title">
        <h1>
          <ConditionWord condition={endpoint.condition} />
          {nameOfEndpoint(endpoint)}
        </h1>
        <Ranges view="endpoint" query={query} range={range} />
        <Live reading={reading} />
      </div>
      <p class="to">
        <b>{endpoint.url}</b> <Copy text={endpoint.url} label="Copy the URL" />
      </p>
      <Stale reading={reading} />
      <Verdict endpoint={endpoint} now={now} />
      <EndpointActions endpoint={endpoint} />
      <Figures summary={found} endpoint={id} />
      {hasAttempts(found) ? (
        <Charts summary={found} range={range} endpoint={id} />
      ) : (
        <Empty title={`No attempts in the last ${RANGES[range]!.text}`} />
      )}
      <Subscriptions endpoint={endpoint} />
      <Latest endpoint={endpoint} now={now} />
      <Definition endpoint={endpoint} now={now} />
    </article>
  )
}

const VERDICTS: Record<Condition, string> = {
  failing: 'Nothing succeeds at this endpoint.',
  degraded: 'Some attempts succeed, others fail or have to wait.',
  disabled: 'This endpoint is disabled: its deliveries are held.',
  healthy: 'This endpoint is healthy.',
}

function Verdict({ endpoint, now }: { endpoint: Endpoint; now: number }) {
  return (
    <div class="verdict">
      <p>
        <b>{VERDICTS[endpoint.condition]}</b>
      </p>
      <div class="state">
        <ConditionDetails endpoint={endpoint} now={now} />
      </div>
    </div>
  )
}

function EndpointActions({ endpoint }: { endpoint: Endpoint }) {
  const active = endpoint.status === 'active'
  return (
    <div class="actions">
      <ActionButton scope="gatepost:endpoints" name="Edit">
        {(close) => <DefineEndpoint endpoint={endpoint} close={close} />}
      </ActionButton>
      <ActionButton scope="gatepost:endpoints" name={active ? 'Disable' : 'Enable'} look={active ? '' : 'main'}>
        {(close) => <SetEndpointStatus endpoint={endpoint} status={active ? 'disabled' : 'active'} close={close} />}
      </ActionButton>
      <ActionButton scope="gatepost:endpoints" name="Rotate the secret">
        {(close) => <RotateEndpointSecret endpoint={endpoint} close={close} />}
      </ActionButton>
      {endpoint.subscriptions.length > 0 && (
        <>
          <ActionButton scope="gatepost:subscriptions" name="Send failed deliveries again">
            {(close) => <ResendFailed endpoint={endpoint} close={close} />}
          </ActionButton>
          <ActionButton scope="gatepost:subscriptions" name="Replay a time range">
            {(close) => <ReplayRange endpoint={endpoint} close={close} />}
          </ActionButton>
        </>
      )}
      {INTAKE && (
        <ActionButton scope="gatepost:events" name="Send a test event">
          {(close) => <SendTestEvent type={exampleType(endpoint)} close={close} />}
        </ActionButton>
      )}
      <ActionButton scope="gatepost:endpoints" name="Remove" look="danger">
        {(close) => <SetEndpointStatus endpoint={endpoint} status="removed" close={close} />}
      </ActionButton>
    </div>
  )
}

/** An event type that the endpoint is subscribed to. */
function exampleType(endpoint: Endpoint): string {
  const patterns = endpoint.subscriptions.filter((each) => each.status === 'active').flatMap((each) => each.events)
  const pattern = patterns.find((each) => !/^(account|oauth|webhook)\./.test(each)) ?? '*'
  return pattern === '*' ? 'test.event' : pattern.replace(/\*$/, 'test')
}

// --- subscriptions

function Subscriptions({ endpoint }: { endpoint: Endpoint }) {
  return (
    <section aria-labelledby="subscriptions-title">
      <div class="heading">
        <h2 id="subscriptions-title">Subscriptions</h2>
        <ActionButton scope="gatepost:subscriptions" name="Subscribe to events">
          {(close) => <DefineSubscription endpoint={endpoint} close={close} />}
        </ActionButton>
      </div>
      {endpoint.subscriptions.length ? (
        <ul class="rows">
          {endpoint.subscriptions.map((each) => (
            <SubscriptionRow key={each.id} endpoint={endpoint} subscription={each} />
          ))}
        </ul>
      ) : (
        <Empty title="No subscriptions">
          <p>The endpoint receives nothing until it is subscribed to event types.</p>
        </Empty>
      )}
    </section>
  )
}

function SubscriptionRow({ endpoint, subscription }: { endpoint: Endpoint; subscription: Subscription }) {
  const { replay } = subscription
  const other = subscription.status === 'active' ? 'disabled' : 'active'
  return (
    <li class="subscription">
      <div class="what">
        <p class="patterns">
          {subscription.events.map((each) => (
            <code key={each}>{each}</code>
          ))}
          {subscription.status === 'disabled' && <span class="status is-held">Disabled</span>}
        </p>
        <p class="about">
          {subscription.description && <span>{subscription.description}</span>}
          {Object.entries(subscription.filter).map(([pointer, value]) => (
            <code key={pointer}>{`${pointer} = ${JSON.stringify(value)}`}</code>
          ))}
          {replay && (
            <span>{`${replay.state === 'running' ? 'replay running' : 'last replay'}: ${several(replay.made, 'delivery', 'deliveries')} of ${several(replay.examined, 'event')}`}</span>
          )}
          <Id of={subscription.id} name="subscription" />
        </p>
      </div>
      <div class="actions small">
        <ActionButton scope="gatepost:subscriptions" name="Edit">
          {(close) => <DefineSubscription endpoint={endpoint} subscription={subscription} close={close} />}
        </ActionButton>
        <ActionButton scope="gatepost:subscriptions" name={other === 'active' ? 'Enable' : 'Disable'}>
          {(close) => <SetSubscriptionStatus subscription={subscription} status={other} close={close} />}
        </ActionButton>
        <ActionButton scope="gatepost:subscriptions" name="Remove" look="danger">
          {(close) => <SetSubscriptionStatus subscription={subscription} status="removed" close={close} />}
        </ActionButton>
      </div>
    </li>
  )
}

// --- latest deliveries and definition

function Latest({ endpoint, now }: { endpoint: Endpoint; now: number }) {
  const { live } = useChoices()
  const reading = useReading<Page<Delivery>>({ endpoint_id: endpoint.id, limit: '8' }, live ? EVERY : 0)
  return (
    <section class="one-endpoint" aria-labelledby="latest-title">
      <div class="heading">
        <h2 id="latest-title">Latest deliveries</h2>
        <a href={href('deliveries', { endpoint_id: endpoint.id })}>All deliveries</a>
      </div>
      {!reading.data && <Waiting rows={3} />}
      {reading.data && reading.data.data.length === 0 && <Empty title="No deliveries yet" />}
      {reading.data && reading.data.data.length > 0 && (
        <Rows page={reading.data.data} fresh={new Set()} now={now} names={new Map()} />
      )}
    </section>
  )
}

function Definition({ endpoint, now }: { endpoint: Endpoint; now: number }) {
  const schedule = endpoint.retry_schedule
  const facts: [string, preact.ComponentChildren][] = [
    ['Endpoint', <Id of={endpoint.id} name="endpoint" />],
    ['Created', <Time at={endpoint.created_at} now={now} as="whole" />],
    ['Timeout', `${endpoint.timeout} s`],
    ['At the same time', several(endpoint.max_in_flight, 'attempt')],
    ['Rate limit', endpoint.rate_limit ? `${endpoint.rate_limit} per second` : 'none'],
    [
      'Retries',
      schedule ? schedule.map((each) => span(each * 1000)).join(', ') || 'none' : 'the schedule of the account',
    ],
    ['Signature', endpoint.signing === 'v1' ? 'v1, HMAC-SHA256' : 'v1a, Ed25519'],
    ['Format', endpoint.format === 'standard' ? 'Standard Webhooks' : 'CloudEvents'],
    [
      'Secrets',
      `${several(endpoint.secrets.length, 'valid secret')}${endpoint.secrets.length > 1 ? ', rotating' : ''}`,
    ],
    ['Headers', Object.keys(endpoint.headers).join(', ') || 'none'],
  ]
  return (
    <section aria-labelledby="definition-title">
      <h2 id="definition-title">Definition</h2>
      <dl class="facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  )
}
