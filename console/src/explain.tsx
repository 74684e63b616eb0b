// Whether a token would be issued, and why: `Prefer: explain`. The credentials are sent once and not kept.
import { useRef, useState } from 'preact/hooks'
import { JWT_BEARER, shortGrant, TOKEN_EXCHANGE } from './actions/clients'
import { ask, basic, decode, type Members, members, Problem, problem } from './api'
import { AreaField, SelectField, TextField, useForm } from './fields'
import { Mark } from './marks'
import { Advice, titleOf, Trace } from './parts'

const GRANTS = ['client_credentials', JWT_BEARER, TOKEN_EXCHANGE].map((each) => [each, shortGrant(each)] as const)
const METHODS = ['client_secret_basic', 'client_secret_post'].map((each) => [each, each] as const)
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token'

export function Explain() {
  const { values, bind } = useForm({
    grant: 'client_credentials',
    client: '',
    method: 'client_secret_basic',
    scope: '',
    resource: '',
    assertion: '',
  })
  const secret = useRef<HTMLInputElement>(null)
  const [busy, setBusy] = useState(false)
  const [trouble, setTrouble] = useState<Problem | null>(null)
  const [decision, setDecision] = useState<Members | null>(null)

  const submit = async (event: SubmitEvent) => {
    event.preventDefault()
    const entered = secret.current!.value.trim()
    secret.current!.value = ''
    bind('assertion').set('')
    setBusy(true)
    setTrouble(null)
    setDecision(null)
    try {
      setDecision(await explain(values, entered))
    } catch (error) {
      setTrouble(error instanceof Problem ? error : new Problem('failing', String(error)))
    }
    setBusy(false)
  }
  return (
    <section class="panel" aria-labelledby="explain-title">
      <h2 id="explain-title">Would this token request succeed?</h2>
      <p>
        Asks the service to explain its decision, with <code>Prefer: explain</code>. No token is issued. The request is
        recorded in the ledger. The secret, and an assertion or token that you enter, are discarded as soon as they are sent.
      </p>
      <form class="page-form" onSubmit={submit} autoComplete="off">
        <div class="pair">
          <TextField label="Client ID" {...bind('client')} placeholder="cli_…" required mono />
          <label class="field">
            <span>Secret of this client</span>
            <input ref={secret} type="password" required autoComplete="off" placeholder="gps_…" class="mono" />
          </label>
        </div>
        <div class="pair">
          <SelectField label="Grant type" {...bind('grant')} options={GRANTS} />
          <SelectField label="Authentication" {...bind('method')} options={METHODS} />
        </div>
        <div class="pair">
          <TextField label="Scopes" {...bind('scope')} placeholder="invoices:read" mono />
          <TextField label="Resource (optional)" {...bind('resource')} placeholder="https://api.example.com" mono />
        </div>
        {values.grant !== 'client_credentials' && (
          <AreaField
            label={values.grant === JWT_BEARER ? 'Assertion (JWT)' : 'Subject token (access token)'}
            {...bind('assertion')}
            placeholder="eyJ…"
          />
        )}
        <div class="buttons">
          <button type="submit" class="main" disabled={busy}>
            {busy ? 'Asking…' : 'Explain'}
          </button>
        </div>
      </form>
      <div role="alert">
        {trouble && (
          <div class="trouble">
            <h3>{titleOf(trouble)}</h3>
            <Advice problem={trouble} />
            <Trace problem={trouble} />
          </div>
        )}
      </div>
      <div role="status">{decision && <Decision decision={decision} />}</div>
    </section>
  )
}

async function explain(values: Record<string, string>, secret: string): Promise<Members> {
  const form = new URLSearchParams({ grant_type: values['grant']! })
  const optional: Record<string, string | undefined> = {
    scope: values['scope'],
    resource: values['resource'],
    ...(values['grant'] === JWT_BEARER && { assertion: values['assertion'] }),
    ...(values['grant'] === TOKEN_EXCHANGE && { subject_token: values['assertion'], subject_token_type: ACCESS_TOKEN }),
  }
  for (const [name, value] of Object.entries(optional)) if (value?.trim()) form.set(name, value.trim())
  const headers: Record<string, string> = { Prefer: 'explain' }
  const client = values['client']!.trim()
  if (values['method'] === 'client_secret_basic') headers['Authorization'] = basic(client, secret)
  else {
    form.set('client_id', client)
    form.set('client_secret', secret)
  }
  const response = await ask('/oauth/tokens', { method: 'POST', body: form, headers })
  const body = await members(response)
  if (!response.ok) throw problem(response, body, body['error'] === 'invalid_client' ? 'credentials' : undefined)
  return body
}

interface RuleResult {
  rule: string
  held: boolean
  means: string
}

function Decision({ decision }: { decision: Members }) {
  const issued = decision['decision'] === 'issue'
  return (
    <div class="decision">
      <h3>
        <Mark of={issued ? 'succeeded' : 'failed'} />
        {issued ? 'The token would be issued.' : `The token would be refused: ${String(decision['error'])}.`}
      </h3>
      {!issued && <p>{String(decision['error_description'])}</p>}
      <ol class="rules">
        {(decision['rules'] as RuleResult[]).map(({ rule, held, means }) => (
          <li key={rule} class={held ? '' : 'refused'}>
            <Mark of={held ? 'succeeded' : 'failed'} label={held ? 'held' : 'refused'} />
            <span>
              {means} <code>{rule}</code>
            </span>
          </li>
        ))}
      </ol>
      {issued && (
        <pre tabIndex={0} aria-label="Claims of the token">
          {JSON.stringify({ expires_in: decision['expires_in'], claims: decision['claims'] }, null, 2)}
        </pre>
      )}
    </div>
  )
}

/** The claims of a token that is entered. Nothing is sent, so nothing is verified. */
export function Decode() {
  const [token, setToken] = useState('')
  const found = decode(token.trim())
  return (
    <section class="panel" aria-labelledby="decode-title">
      <h2 id="decode-title">What is in a token?</h2>
      <p>The token is decoded in this page. It is not sent, and its signature is not verified.</p>
      <form class="page-form" onSubmit={(event) => event.preventDefault()} autoComplete="off">
        <TextField label="Token" value={token} set={setToken} type="password" placeholder="eyJ…" mono />
      </form>
      <div role="status">
        {token.trim() && !found && <p>This is not a JWT.</p>}
        {found && (
          <>
            <p>{validity(found.claims)}</p>
            <pre tabIndex={0} aria-label="Header and claims">
              {JSON.stringify(found, null, 2)}
            </pre>
          </>
        )}
      </div>
    </section>
  )
}

function validity(claims: Members): string {
  const end = Number(claims['exp']) * 1000
  if (!end) return 'It has no expiry.'
  const at = new Date(end).toISOString()
  return end > Date.now() ? `It expires at ${at}.` : `It expired at ${at}.`
}
