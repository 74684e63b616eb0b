// Creating, changing, disabling, enabling and removing a subscription, with a preview of what it matches.
import { useMemo } from 'preact/hooks'
import { ActionDialog } from '../action'
import type { Members } from '../api'
import { AreaField, changes, TextField, useForm, wordsOf } from '../fields'
import { count } from '../figures'
import { Mark } from '../marks'
import { type Definition, filterOf, filterText, matches } from '../matching'
import { useReading } from '../reading'
import type { Delivery, Endpoint, Page, Subscription } from '../types'
import { nameOf } from './replay'

const PATH = '/webhooks/subscriptions'

interface DefineProps {
  endpoint: Endpoint
  subscription?: Subscription
  close: () => void
}

export function DefineSubscription({ endpoint, subscription, close }: DefineProps) {
  const { values, bind } = useForm({
    events: subscription?.events.join('\n') ?? '',
    filter: filterText(subscription?.filter ?? {}),
    description: subscription?.description ?? '',
  })
  const definition: Definition = { events: wordsOf(values.events), filter: filterOf(values.filter) }
  const after: Members = { ...definition, description: values.description.trim() }
  const body = subscription
    ? changes({ ...subscription }, after)
    : { endpoint_id: endpoint.id, ...changes({ filter: {}, description: '' }, after) }
  const complete = definition.events.length > 0 && (!subscription || Object.keys(body).length > 0)
  return (
    <ActionDialog
      wide
      title={subscription ? `Edit the subscription ${nameOf(subscription)}` : `Subscribe ${endpoint.description || endpoint.url}`}
      verb={subscription ? 'Save' : 'Subscribe'}
      requests={complete ? [{ path: PATH, body: subscription ? { id: subscription.id, ...body } : body }] : null}
      missing={definition.events.length ? 'Nothing has changed yet.' : 'Enter at least one event type.'}
      result={() => <p>{subscription ? 'The subscription is changed.' : 'The endpoint is subscribed.'}</p>}
      close={close}
    >
      <div class="pair">
        <AreaField
          label="Event types"
          {...bind('events')}
          placeholder={'invoice.paid\ncustomer.*'}
          rows={4}
          hint="One per line. invoice.* matches any depth, * all types of the platform."
        />
        <AreaField
          label="Filter"
          {...bind('filter')}
          placeholder={'/customer/country = "NL"'}
          rows={4}
          hint="One JSON pointer into the data per line, with the value that must be there. All must match."
        />
      </div>
      <TextField label="Name or description" {...bind('description')} />
      <MatchPreview definition={definition} />
    </ActionDialog>
  )
}

interface RecentEvent {
  id: string
  type: string
  data: unknown
}

/** The events of the latest deliveries that the session can read, and whether the definition matches them. */
function MatchPreview({ definition }: { definition: Definition }) {
  const reading = useReading<Page<Delivery>>({ include: 'payload', limit: '50' }, 0)
  const events = useMemo(() => recentEvents(reading.data?.data ?? []), [reading.data])
  const matched = events.filter((event) => matches(definition, event.type, event.data))
  if (!reading.data) return <p class="hint">Reading recent events…</p>
  if (!events.length) return <p class="hint">There are no recent deliveries to compare with.</p>
  return (
    <section class="preview" aria-label="Preview">
      <h3 aria-live="polite">{`Matches ${count(matched.length)} of ${count(events.length)} recent events`}</h3>
      <ul class="matches" tabIndex={0} aria-label="Recent events">
        {events.map((event) => {
          const match = matched.includes(event)
          return (
            <li key={event.id} class={match ? '' : 'no'}>
              <Mark of={match ? 'succeeded' : 'cancelled'} label={match ? 'matches' : 'does not match'} />
              <b>{event.type}</b>
              <code class="data">{JSON.stringify(event.data)}</code>
            </li>
          )
        })}
      </ul>
      <p class="hint">These are the events of the latest 50 deliveries, so events that no subscription matched are missing.</p>
    </section>
  )
}

function recentEvents(deliveries: Delivery[]): RecentEvent[] {
  const found = new Map<string, RecentEvent>()
  for (const { event, payload } of deliveries)
    if (payload) found.set(event.id, { id: event.id, type: event.type, data: (payload as Members)['data'] })
  return [...found.values()]
}

const STATUSES = {
  active: ['Enable', 'New events match it again. To send those that it missed, replay a time range.'],
  disabled: ['Disable', 'It matches no new events. Deliveries that exist go on.'],
  removed: ['Remove', 'This is final. It matches no new events. Deliveries that exist go on.'],
} as const

interface StatusProps {
  subscription: Subscription
  status: keyof typeof STATUSES
  close: () => void
}

export function SetSubscriptionStatus({ subscription, status, close }: StatusProps) {
  const [verb, effect] = STATUSES[status]
  return (
    <ActionDialog
      title={`${verb} the subscription ${nameOf(subscription)}`}
      verb={verb}
      danger={status === 'removed'}
      requests={[{ path: PATH, body: { id: subscription.id, status } }]}
      result={() => <p>The subscription is {status}.</p>}
      close={close}
    >
      <p>{effect}</p>
    </ActionDialog>
  )
}
