// Creating, changing, disabling, enabling and removing an endpoint, and rotating its secret.
import { useState } from 'preact/hooks'
import { ActionDialog, SecretOnce } from '../action'
import type { Members } from '../api'
import { AreaField, changes, numberOf, pairsOf, SelectField, TextField, useForm, wordsOf } from '../fields'
import { several } from '../figures'
import { href } from '../route'
import type { Answer } from '../session'
import type { Endpoint } from '../types'

const PATH = '/webhooks/endpoints'

const linesOf = (pairs: Record<string, string>): string =>
  Object.entries(pairs)
    .map(([name, value]) => `${name}: ${value}`)
    .join('\n')

/** Creates an endpoint, or changes the one given. Only members that differ are sent. */
export function DefineEndpoint({ endpoint, close }: { endpoint?: Endpoint; close: () => void }) {
  const form = useForm({
    url: endpoint?.url ?? '',
    description: endpoint?.description ?? '',
    timeout: String(endpoint?.timeout ?? 15),
    max_in_flight: String(endpoint?.max_in_flight ?? 16),
    rate_limit: String(endpoint?.rate_limit ?? ''),
    max_retry_after: String(endpoint?.max_retry_after ?? 3600),
    retry_schedule: endpoint?.retry_schedule ? endpoint.retry_schedule.join(' ') || 'none' : '',
    headers: linesOf(endpoint?.headers ?? {}),
    signing: endpoint?.signing ?? 'v1',
    format: endpoint?.format ?? 'standard',
  })
  const { values, bind } = form
  const after: Members = {
    url: values.url.trim(),
    description: values.description.trim(),
    timeout: numberOf(values.timeout),
    max_in_flight: numberOf(values.max_in_flight),
    rate_limit: numberOf(values.rate_limit),
    max_retry_after: numberOf(values.max_retry_after),
    retry_schedule: scheduleOf(values.retry_schedule),
    headers: pairsOf(values.headers, ':'),
    signing: values.signing,
    format: values.format,
  }
  const body = endpoint ? changes({ ...endpoint }, after) : changes(DEFAULTS, after)
  const complete = endpoint ? Object.keys(body).length > 0 : !!values.url.trim()
  return (
    <ActionDialog
      title={endpoint ? `Edit ${endpoint.description || endpoint.url}` : 'Create an endpoint'}
      verb={endpoint ? 'Save' : 'Create'}
      requests={complete ? [{ path: PATH, body: endpoint ? { id: endpoint.id, ...body } : body }] : null}
      missing={endpoint ? 'Nothing has changed yet.' : 'Enter the URL of the receiver.'}
      result={([answer]) => <Defined answer={answer!} created={!endpoint} />}
      close={close}
    >
      <TextField label="URL" {...bind('url')} placeholder="https://example.com/hooks" required mono />
      <TextField label="Name or description" {...bind('description')} placeholder="Billing of Acme" />
      <AreaField
        label="Headers"
        {...bind('headers')}
        placeholder="x-team: billing"
        rows={2}
        hint="One per line, sent with every request. A value shown as *** stays as it is."
      />
      <details>
        <summary>Delivery options</summary>
        <div class="page-form">
          <div class="pair">
            <TextField label="Timeout (seconds)" {...bind('timeout')} type="number" />
            <TextField label="Attempts at the same time" {...bind('max_in_flight')} type="number" />
          </div>
          <div class="pair">
            <TextField label="Attempts per second" {...bind('rate_limit')} type="number" hint="Empty: no limit" />
            <TextField label="Longest Retry-After (seconds)" {...bind('max_retry_after')} type="number" />
          </div>
          <TextField
            label="Retry schedule (seconds)"
            {...bind('retry_schedule')}
            placeholder="5 300 1800"
            hint={'Delays after failed attempts. Empty: the schedule of the account. "none": no retries.'}
          />
          <div class="pair">
            <SelectField label="Signature" {...bind('signing')} options={SIGNING} />
            <SelectField label="Format" {...bind('format')} options={FORMATS} />
          </div>
        </div>
      </details>
    </ActionDialog>
  )
}

const SIGNING = [['v1', 'v1, HMAC-SHA256'], ['v1a', 'v1a, Ed25519']] as const
const FORMATS = [['standard', 'Standard Webhooks'], ['cloudevents', 'CloudEvents']] as const
/** Of a new endpoint: what equals these is not sent. */
const DEFAULTS: Members = {
  description: '',
  timeout: 15,
  max_in_flight: 16,
  max_retry_after: 3600,
  headers: {},
  signing: 'v1',
  format: 'standard',
}

function scheduleOf(text: string): (number | string | null)[] | null {
  if (!text.trim()) return null
  return text.trim() === 'none' ? [] : wordsOf(text).map(numberOf)
}

function Defined({ answer, created }: { answer: Answer; created: boolean }) {
  const { body } = answer
  const dropped = (body['dropped_headers'] as string[] | undefined) ?? []
  return (
    <>
      <p>
        {created ? 'Created ' : 'Changed '}
        <a href={href('endpoint', { id: String(body['id']) })}>{String(body['description'] || body['url'])}</a>.
        {created && ' It receives nothing until you subscribe it to events.'}
      </p>
      {dropped.length > 0 && (
        <p>
          The origin of the URL changed, so these headers with hidden values were removed: <code>{dropped.join(', ')}</code>
        </p>
      )}
      {(created || 'secret' in body) && <SecretOnce secret={body['secret']} name={nameOfSecret(body)} />}
    </>
  )
}

const nameOfSecret = (body: Members): string => (body['signing'] === 'v1a' ? 'public key' : 'secret')

// --- status

const STATUSES = {
  active: {
    verb: 'Enable',
    done: 'It is enabled. Held deliveries are being sent.',
    effect: 'Held deliveries are sent, and a wait that the receiver requested ends.',
  },
  disabled: {
    verb: 'Disable',
    done: 'It is disabled. New deliveries are held.',
    effect: 'Deliveries are held, and sent when the endpoint is enabled again. After hold_limit (7 days by default) they fail.',
  },
  removed: {
    verb: 'Remove',
    done: 'It is removed.',
    effect: 'This is final: its secrets are deleted, and its waiting deliveries end as endpoint_removed.',
  },
} as const

interface StatusProps {
  endpoint: Endpoint
  status: keyof typeof STATUSES
  close: () => void
}

export function SetEndpointStatus({ endpoint, status, close }: StatusProps) {
  const { verb, done, effect } = STATUSES[status]
  return (
    <ActionDialog
      title={`${verb} ${endpoint.description || endpoint.url}`}
      verb={verb}
      danger={status === 'removed'}
      requests={[{ path: PATH, body: { id: endpoint.id, status } }]}
      result={() => <p>{done}</p>}
      close={close}
    >
      <p>{effect}</p>
      {endpoint.held > 0 && <p>{several(endpoint.held, 'delivery is', 'deliveries are')} held at the moment.</p>}
    </ActionDialog>
  )
}

// --- secret

const OVERLAPS = [
  ['86400', '24 hours'],
  ['3600', '1 hour'],
  ['604800', '7 days'],
  ['0', 'not at all: it leaked'],
] as const

export function RotateEndpointSecret({ endpoint, close }: { endpoint: Endpoint; close: () => void }) {
  const [overlap, setOverlap] = useState<string>('86400')
  const body = { id: endpoint.id, rotate_secret: { overlap: Number(overlap) } }
  return (
    <ActionDialog
      title={`Rotate the secret of ${endpoint.description || endpoint.url}`}
      verb="Rotate"
      danger={overlap === '0'}
      requests={[{ path: PATH, body }]}
      result={([answer]) => <SecretOnce secret={answer!.body['secret']} name={nameOfSecret(answer!.body)} />}
      close={close}
    >
      <p>
        Creates a new secret. During the overlap every request has a signature for each secret, so the receiver can
        change over without losing one.
      </p>
      <SelectField label="The previous secret stays valid" value={overlap} set={setOverlap} options={OVERLAPS} />
    </ActionDialog>
  )
}
