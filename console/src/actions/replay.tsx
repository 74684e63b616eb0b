// Sending events again: one delivery, all failed deliveries of an endpoint, or the events of a time range.
import { useEffect, useState } from 'preact/hooks'
import { ActionDialog } from '../action'
import { CheckField, SelectField, TextField } from '../fields'
import { count, field, instant, several, zone } from '../figures'
import { readAllAgain, useReading } from '../reading'
import { href, type Query } from '../route'
import { type Answer, type ApiRequest, Problem, send } from '../session'
import type { Delivery, Endpoint, Page, Replay, Subscription } from '../types'

const PATH = '/webhooks/subscriptions'

interface ResendProps {
  record: Delivery
  endpoint: Endpoint
  close: () => void
}

/** A replay of the event by the subscription of the delivery. */
export function ResendDelivery({ record, endpoint, close }: ResendProps) {
  const request = { path: PATH, body: { id: record.subscription_id, replay: { event_ids: [record.event.id] } } }
  return (
    <ActionDialog
      title={`Send ${record.event.type} again`}
      verb="Send again"
      requests={[request]}
      result={(answers) => <Progress answers={answers} found={{ event_id: record.event.id }} />}
      close={close}
    >
      <p>
        This creates a new delivery of <code>{record.event.id}</code> to <b>{endpoint.description || endpoint.url}</b>. The
        receiver gets the same <code>webhook-id</code> as before.
      </p>
      <HeldNote endpoint={endpoint} />
    </ActionDialog>
  )
}

/** Replays of the events of which a delivery failed, by every subscription of the endpoint. */
export function ResendFailed({ endpoint, close }: { endpoint: Endpoint; close: () => void }) {
  const failed = useReading<Page<Delivery>>({ endpoint_id: endpoint.id, status: 'failed', limit: '200' }, 0)
  const [from, setFrom] = useState('')
  const start = instant(from)
  const requests = endpoint.subscriptions.map((each): ApiRequest => {
    return { path: PATH, body: { id: each.id, replay: { only: 'failed', ...(start && { from: start }) } } }
  })
  const found = failed.data?.data.filter((each) => !start || Date.parse(each.event.at) >= Date.parse(start)).length
  const amount = found === undefined ? '' : `${count(found)}${failed.data?.next_cursor ? ' or more' : ''}`
  return (
    <ActionDialog
      title={`Send all failed deliveries to ${endpoint.description || endpoint.url} again`}
      verb="Send again"
      requests={requests.length && found !== 0 ? requests : null}
      missing={requests.length ? 'No delivery failed in this time.' : 'The endpoint has no subscription.'}
      result={(answers) => <Progress answers={answers} found={{ endpoint_id: endpoint.id }} />}
      close={close}
    >
      <p>
        {amount && (
          <>
            <b>{amount}</b> failed.{' '}
          </>
        )}
        Each retained event of which a delivery failed is delivered again, also if it was sent again before.
      </p>
      <TextField
        label={`Only events since (${zone()})`}
        type="datetime-local"
        value={from}
        set={setFrom}
        hint="Leave it empty for all retained events."
      />
      <HeldNote endpoint={endpoint} />
    </ActionDialog>
  )
}

/** A replay of the events of a time range by one subscription. */
export function ReplayRange({ endpoint, close }: { endpoint: Endpoint; close: () => void }) {
  const [subscription, setSubscription] = useState(endpoint.subscriptions[0]?.id ?? '')
  const [from, setFrom] = useState(() => field(new Date(Date.now() - 3_600_000).toISOString()))
  const [until, setUntil] = useState('')
  const [onlyFailed, setOnlyFailed] = useState(false)
  const replay = {
    from: instant(from),
    ...(instant(until) && { until: instant(until) }),
    ...(onlyFailed && { only: 'failed' }),
  }
  const complete = subscription && replay.from
  return (
    <ActionDialog
      title={`Replay a time range to ${endpoint.description || endpoint.url}`}
      verb="Start the replay"
      requests={complete ? [{ path: PATH, body: { id: subscription, replay } }] : null}
      missing="Choose a subscription and the start of the range."
      result={(answers) => <Progress answers={answers} found={{ endpoint_id: endpoint.id }} />}
      close={close}
    >
      <p>
        Creates a new delivery of every retained event in the range that matches the subscription, whatever became of
        earlier deliveries.
      </p>
      <SelectField
        label="Subscription"
        value={subscription}
        set={setSubscription}
        options={endpoint.subscriptions.map((each) => [each.id, nameOf(each)])}
      />
      <div class="pair">
        <TextField label={`From (${zone()})`} type="datetime-local" value={from} set={setFrom} required />
        <TextField label={`Until (${zone()})`} type="datetime-local" value={until} set={setUntil} hint="Default: now" />
      </div>
      <CheckField label="Only events of which a delivery failed" value={onlyFailed} set={setOnlyFailed} />
      <HeldNote endpoint={endpoint} />
    </ActionDialog>
  )
}

export const nameOf = (subscription: Subscription): string =>
  subscription.description || subscription.events.join(', ')

function HeldNote({ endpoint }: { endpoint: Endpoint }) {
  if (endpoint.status === 'active') return null
  return <p class="hint">The endpoint is disabled: new deliveries are held until it is enabled.</p>
}

const EVERY = 1000

/** The progress of replays that were started, read until all have ended. */
function Progress({ answers, found }: { answers: Answer[]; found: Query }) {
  const [replays, setReplays] = useState(() => answers.map((answer) => answer.body as unknown as Subscription))
  const [problem, setProblem] = useState('')
  const running = replays.some((each) => each.replay?.state === 'running')
  useEffect(() => {
    if (!running) return readAllAgain()
    const timer = window.setTimeout(async () => {
      try {
        const again = await Promise.all(replays.map((each) => send({ path: PATH, body: { id: each.id } })))
        setReplays(again.map((answer) => answer.body as unknown as Subscription))
      } catch (error) {
        setProblem(error instanceof Problem ? error.message : String(error))
      }
    }, EVERY)
    return () => window.clearTimeout(timer)
  }, [replays])
  const sum = (name: 'examined' | 'made') =>
    replays.reduce((total, each) => total + ((each.replay as Replay | null)?.[name] ?? 0), 0)
  return (
    <>
      <p>
        <b>{running ? 'The replay is running.' : 'The replay has ended.'}</b> {several(sum('examined'), 'event')}{' '}
        examined, {several(sum('made'), 'delivery', 'deliveries')} created.
      </p>
      {!running && sum('made') === 0 && (
        <p>Nothing was created: no retained event in the request matches the subscription as it is defined now.</p>
      )}
      {problem && <p>The progress cannot be read: {problem}</p>}
      {sum('made') > 0 && (
        <p>
          <a href={href('deliveries', found)}>Show the deliveries</a>
        </p>
      )}
    </>
  )
}
