// Publishing a test event with POST /events, which the operations plane serves where the intake is on.
import { ActionDialog } from '../action'
import type { Members } from '../api'
import { AreaField, TextField, useForm } from '../fields'
import { several } from '../figures'
import { matches } from '../matching'
import { useReading } from '../reading'
import { href } from '../route'
import type { Answer } from '../session'
import type { Endpoint, Page } from '../types'

export function SendTestEvent({ type, close }: { type?: string; close: () => void }) {
  const { values, bind } = useForm({ type: type ?? 'test.event', data: '{"test": true}' })
  const data = dataOf(values.data)
  const body = { source: '/console', type: values.type.trim(), data }
  const complete = body.type && data !== undefined
  return (
    <ActionDialog
      title="Send a test event"
      verb="Send"
      requests={complete ? [{ path: '/events', body }] : null}
      missing="Enter an event type, and data that is valid JSON."
      result={([answer]) => <Published answer={answer!} />}
      close={close}
    >
      <p>This publishes a real event: it is recorded in the ledger, and every matching subscription receives it.</p>
      <TextField label="Event type" {...bind('type')} required mono />
      <AreaField label="Data (JSON)" {...bind('data')} rows={5} />
      <Receivers type={body.type} data={data} />
    </ActionDialog>
  )
}

function dataOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** The endpoints that will get the event. */
function Receivers({ type, data }: { type: string; data: unknown }) {
  const { data: page } = useReading<Page<Endpoint>>({ view: 'endpoints', limit: '200' }, 0)
  if (!page) return null
  const found = page.data.filter((endpoint) =>
    endpoint.subscriptions.some((each) => each.status === 'active' && matches(each, type, data)),
  )
  if (!found.length) return <p class="hint">No subscription matches it: it is recorded, but delivered to no endpoint.</p>
  return (
    <p class="hint">
      {several(found.length, 'endpoint')} will receive it:{' '}
      {found.map((endpoint) => endpoint.description || endpoint.url).join(', ')}
    </p>
  )
}

function Published({ answer }: { answer: Answer }) {
  const { id, matched, deliveries } = answer.body as Members & { id: string; matched: number; deliveries: string[] }
  return (
    <>
      <p>
        Published <code>{id}</code>, which created {several(matched, 'delivery', 'deliveries')}.
      </p>
      {deliveries?.map((delivery) => (
        <p key={delivery}>
          <a href={href('delivery', { id: delivery })}>{delivery}</a>
        </p>
      ))}
    </>
  )
}
