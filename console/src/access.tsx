// Clients, scopes and tokens. Nothing lists clients, so a client is opened by its id.
import { useEffect, useState } from 'preact/hooks'
import { ActionButton } from './action'
import { DefineClient, DefineScope, nameOfClient, RotateClientSecret, SetClientStatus, shortGrant } from './actions/clients'
import type { Members } from './api'
import { Decode, Explain } from './explain'
import { Id, Trouble, Waiting } from './parts'
import { useVersion } from './reading'
import { go, type Query } from './route'
import { allows, Problem, send } from './session'

export function Access({ query }: { query: Query }) {
  const id = query['client'] ?? ''
  const [entered, enter] = useState(id)
  useEffect(() => enter(id), [id])
  const open = (event: SubmitEvent) => {
    event.preventDefault()
    go('access', { client: entered.trim() })
  }
  return (
    <>
      <div class="title">
        <h1>Access</h1>
        <div class="actions">
          <ActionButton scope="gatepost:clients" name="Create a client">
            {(close) => <DefineClient close={close} />}
          </ActionButton>
          <ActionButton scope="gatepost:scopes" name="Define a scope">
            {(close) => <DefineScope close={close} />}
          </ActionButton>
        </div>
      </div>
      {allows('gatepost:clients') && (
        <section class="panel" aria-labelledby="client-title">
          <h2 id="client-title">Open a client</h2>
          <form class="open-client" onSubmit={open}>
            <label class="field">
              <span>Client ID</span>
              <input
                class="mono"
                value={entered}
                required
                placeholder="cli_…"
                spellcheck={false}
                autoComplete="off"
                onInput={(event) => enter(event.currentTarget.value)}
              />
            </label>
            <button type="submit">Open</button>
          </form>
          {id && <ClientPanel id={id} key={id} />}
        </section>
      )}
      <Explain />
      <Decode />
    </>
  )
}

function ClientPanel({ id }: { id: string }) {
  const [client, setClient] = useState<Members | null>(null)
  const [problem, setProblem] = useState<Problem | null>(null)
  const version = useVersion()
  useEffect(() => {
    let open = true
    send({ path: '/oauth/clients', body: { client_id: id } }).then(
      ({ body }) => open && (setClient(body), setProblem(null)),
      (error: Problem) => open && setProblem(error),
    )
    return () => void (open = false)
  }, [id, version])
  if (problem) return <Trouble problem={problem} />
  if (!client) return <Waiting rows={2} />
  const secrets = (client['client_secrets'] ?? client['secrets']) as unknown[] | undefined
  return (
    <article class="client">
      <h3>
        {nameOfClient(client)}
        <span class={`status is-${client['status'] === 'active' ? 'succeeded' : 'held'}`}>{client['status'] === 'active' ? 'Active' : 'Disabled'}</span>
      </h3>
      <div class="actions">
        <ActionButton scope="gatepost:clients" name="Edit">
          {(close) => <DefineClient client={client} close={close} />}
        </ActionButton>
        {String(client['token_endpoint_auth_method']).startsWith('client_secret') && (
          <ActionButton scope="gatepost:clients" name="Rotate the secret">
            {(close) => <RotateClientSecret client={client} close={close} />}
          </ActionButton>
        )}
        <ActionButton scope="gatepost:clients" name={client['status'] === 'active' ? 'Disable' : 'Enable'}>
          {(close) => <SetClientStatus client={client} close={close} />}
        </ActionButton>
      </div>
      <dl class="facts">
        <div>
          <dt>Client</dt>
          <dd>
            <Id of={id} name="client" />
          </dd>
        </div>
        <div>
          <dt>Authentication</dt>
          <dd>
            {String(client['token_endpoint_auth_method'])}
            {secrets && ` (${secrets.length})`}
          </dd>
        </div>
        {(client['grants'] as Grant[]).map((grant) => (
          <div key={grant.id}>
            <dt>
              {shortGrant(grant.grant_type)}
              {grant.status === 'disabled' && ', disabled'}
            </dt>
            <dd>
              <code>{grant.scopes.join(' ') || 'no scopes'}</code>
            </dd>
          </div>
        ))}
      </dl>
      <details>
        <summary>All members</summary>
        <pre tabIndex={0}>{JSON.stringify(client, null, 2)}</pre>
      </details>
    </article>
  )
}

interface Grant {
  id: string
  grant_type: string
  scopes: string[]
  status: string
}
