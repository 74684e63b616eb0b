// One delivery: what it is, why it is as it is, its attempts on a line of time, and what was sent.
import { useEffect, useState } from 'preact/hooks'
import { ActionButton } from './action'
import { ResendDelivery } from './actions/replay'
import { useChoices } from './choices'
import { useNow } from './figures'
import { StatusWord } from './marks'
import { Empty, Id, Live, Said, Stale, Time, Trouble, Waiting } from './parts'
import { useReading } from './reading'
import { href, lastList } from './route'
import { Sent } from './sent'
import { story } from './story'
import { Strip } from './strip'
import { Timeline } from './timeline'
import type { Delivery, Page } from './types'
import { useEndpoint } from './use-endpoint'
import { verdict } from './verdict'

const EVERY = 2000

interface Found {
  record: Delivery | undefined
  /** The payload as it was sent: numbers that JavaScript would round keep their digits. */
  payload: unknown
}

export function DeliveryView({ id }: { id: string }) {
  const { live } = useChoices()
  const [ended, end] = useState(false)
  const reading = useReading<Found>({ id, include: 'payload,responses' }, live && !ended ? EVERY : 0, found)
  const record = reading.data?.record
  const endpoint = useEndpoint(record?.endpoint.id, record?.status)
  const now = useNow()
  useEffect(() => end(!!record?.ended_at), [record?.ended_at])
  return (
    <>
      <p class="back">
        <a href={lastList()}>Deliveries</a>
      </p>
      {!reading.data && reading.problem && <Trouble problem={reading.problem} again={reading.again} />}
      {!reading.data && !reading.problem && <Waiting />}
      {reading.data && !record && (
        <Empty title="Delivery not found">
          <p>
            <code>{id}</code> is not a delivery of this account, or its retention period has passed.
          </p>
        </Empty>
      )}
      {record && (
        <article class="delivery">
          <div class="title">
            <h1>
              <StatusWord status={record.status} />
              {record.event.type}
            </h1>
            <Live reading={reading} />
          </div>
          {endpoint !== undefined && <p class="verdict">{verdict(record, endpoint, now)}</p>}
          <p class="to">
            to{' '}
            <a href={href('endpoint', { id: record.endpoint.id })}>{endpoint?.description || record.endpoint.url}</a>
            {endpoint?.description && ` ${record.endpoint.url}`}
          </p>
          {record.ended_at && endpoint && (
            <div class="actions">
              <ActionButton scope="gatepost:subscriptions" name="Send again" look="main">
                {(close) => <ResendDelivery record={record} endpoint={endpoint} close={close} />}
              </ActionButton>
            </div>
          )}
          <Stale reading={reading} />
          <Facts record={record} now={now} />
          {endpoint !== undefined && (
            <section class="why" aria-labelledby="why-title">
              <h2 id="why-title">Explanation</h2>
              <ol>
                {story(record, endpoint, now).map((each, place) => (
                  <li key={place} class={place > record.attempts.length + 1 ? 'latest' : ''}>
                    <Said sentence={each} now={now} />
                  </li>
                ))}
              </ol>
            </section>
          )}
          <section class="course" aria-labelledby="course-title">
            <h2 id="course-title">Attempts</h2>
            <Strip record={record} now={now} />
            <Timeline record={record} now={now} />
          </section>
          {endpoint !== undefined && <Sent record={record} endpoint={endpoint} payload={reading.data?.payload} />}
        </article>
      )}
    </>
  )
}

function found(text: string): Found {
  const page = JSON.parse(text) as Page<Delivery>
  return { record: page.data[0], payload: exact(text) }
}

type Source = { source?: string } | undefined
type RawJson = { rawJSON?: (text: string) => unknown }

/** The payload with every number as it was written, where the browser can tell. */
function exact(text: string): unknown {
  const keep = (_: string, value: unknown, context: Source) => {
    const source = context?.source
    const raw = (JSON as RawJson).rawJSON
    return typeof value === 'number' && source && raw && String(value) !== source ? raw(source) : value
  }
  const page = JSON.parse(text, keep as (key: string, value: unknown) => unknown) as Page<Delivery>
  return page.data[0]?.payload
}

function Facts({ record, now }: { record: Delivery; now: number }) {
  return (
    <dl class="facts">
      <div>
        <dt>Delivery</dt>
        <dd>
          <Id of={record.id} name="delivery" />
        </dd>
      </div>
      <div>
        <dt>Event</dt>
        <dd>
          <Id of={record.event.id} name="event" />
          <a href={href('deliveries', { event_id: record.event.id })}>all deliveries</a>
        </dd>
      </div>
      <div>
        <dt>Endpoint</dt>
        <dd>
          <Id of={record.endpoint.id} name="endpoint" />
          <a href={href('deliveries', { endpoint_id: record.endpoint.id })}>all deliveries</a>
        </dd>
      </div>
      <div>
        <dt>Subscription</dt>
        <dd>
          <Id of={record.subscription_id} name="subscription" />
        </dd>
      </div>
      <div>
        <dt>Created</dt>
        <dd>
          <Time at={record.created_at} now={now} as="whole" />
          {record.trigger !== 'event' && <span> by {record.trigger}</span>}
        </dd>
      </div>
      <div>
        <dt>{record.ended_at ? 'Ended' : 'Next attempt'}</dt>
        <dd>
          {record.ended_at ? (
            <>
              <Time at={record.ended_at} now={now} as="whole" />{' '}
              <span>{record.ended_reason?.replaceAll('_', ' ')}</span>
            </>
          ) : record.retries.next_at && record.status === 'pending' ? (
            <>
              <Time at={record.retries.next_at} now={now} as="whole" />{' '}
              <Time at={record.retries.next_at} now={now} as="away" />
            </>
          ) : (
            <span>{record.status === 'held' ? 'after the hold' : 'in progress'}</span>
          )}
        </dd>
      </div>
    </dl>
  )
}
