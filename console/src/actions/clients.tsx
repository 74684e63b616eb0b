// Defining clients and scopes, and rotating the secret of a client.
import { useState } from 'preact/hooks'
import { ActionDialog, SecretOnce } from '../action'
import type { Members } from '../api'
import { AreaField, CheckField, changes, numberOf, objectOf, SelectField, TextField, useForm, wordsOf } from '../fields'
import { href } from '../route'
import type { Answer } from '../session'

const PATH = '/oauth/clients'
export const JWT_BEARER = 'urn:ietf:params:oauth:grant-type:jwt-bearer'
export const TOKEN_EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange'
const GRANT_TYPES = ['client_credentials', 'authorization_code', 'refresh_token', JWT_BEARER, TOKEN_EXCHANGE]
const METHODS = ['client_secret_basic', 'client_secret_post', 'private_key_jwt', 'none'].map((each) => [each, each] as const)

export const shortGrant = (type: string): string => type.replace('urn:ietf:params:oauth:grant-type:', '')

const texts = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : [])

/** Creates a client, or changes the one given. Only members that differ are sent. */
export function DefineClient({ client, close }: { client?: Members; close: () => void }) {
  const { values, bind } = useForm({
    client_name: String(client?.['client_name'] ?? ''),
    scope: String(client?.['scope'] ?? ''),
    redirect_uris: texts(client?.['redirect_uris']).join('\n'),
    method: String(client?.['token_endpoint_auth_method'] ?? 'client_secret_basic'),
    lifetime: String(client?.['access_token_lifetime'] ?? ''),
    more: '',
  })
  const [grants, setGrants] = useState(() => texts(client?.['grant_types'] ?? ['client_credentials']))
  const more = objectOf(values.more)
  const uris = wordsOf(values.redirect_uris)
  const after: Members = {
    client_name: values.client_name.trim() || null,
    grant_types: GRANT_TYPES.filter((each) => grants.includes(each)),
    scope: wordsOf(values.scope).join(' ') || null,
    redirect_uris: uris.length ? uris : null,
    token_endpoint_auth_method: values.method,
    access_token_lifetime: numberOf(values.lifetime),
  }
  const before = client ? { ...client, redirect_uris: texts(client['redirect_uris']).length ? client['redirect_uris'] : null } : {}
  const body: Members = { ...changes(before, after), ...more }
  const complete = more !== null && grants.length > 0 && Object.keys(body).length > 0
  const id = client?.['client_id']
  return (
    <ActionDialog
      wide
      title={client ? `Edit ${nameOfClient(client)}` : 'Create a client'}
      verb={client ? 'Save' : 'Create'}
      requests={complete ? [{ path: PATH, body: client ? { client_id: id, ...body } : body }] : null}
      missing={more === null ? 'Further members: must be a JSON object.' : grants.length ? 'Nothing has changed yet.' : 'Choose a grant type.'}
      result={([answer]) => <DefinedClient answer={answer!} created={!client} />}
      close={close}
    >
      <div class="pair">
        <TextField label="Name" {...bind('client_name')} placeholder="Billing worker" />
        <SelectField label="Authentication" {...bind('method')} options={METHODS} />
      </div>
      <fieldset class="checks">
        <legend>Grant types</legend>
        {GRANT_TYPES.map((each) => (
          <CheckField
            key={each}
            label={shortGrant(each)}
            value={grants.includes(each)}
            set={(chosen) => setGrants(chosen ? [...grants, each] : grants.filter((other) => other !== each))}
          />
        ))}
      </fieldset>
      <TextField
        label="Scopes"
        {...bind('scope')}
        placeholder="invoices:read invoices:write"
        mono
        hint="All scopes that the client may obtain, separated by spaces. Those of its grants follow from them."
      />
      {grants.includes('authorization_code') && (
        <AreaField label="Redirect URIs" {...bind('redirect_uris')} placeholder="https://app.example.com/callback" rows={2} />
      )}
      <div class="pair">
        <TextField label="Longest access token lifetime (seconds)" {...bind('lifetime')} type="number" hint="Empty: the limit of the account" />
        <AreaField
          label="Further members (JSON)"
          {...bind('more')}
          placeholder={'{"jwks_uri": "https://example.com/jwks", "contacts": ["ops@example.com"]}'}
          rows={2}
        />
      </div>
    </ActionDialog>
  )
}

export const nameOfClient = (client: Members): string => String(client['client_name'] ?? client['client_id'])

function DefinedClient({ answer, created }: { answer: Answer; created: boolean }) {
  const { body } = answer
  const id = String(body['client_id'])
  const hasSecret = String(body['token_endpoint_auth_method']).startsWith('client_secret')
  return (
    <>
      <p>
        {created ? 'Created ' : 'Changed '}
        <a href={href('access', { client: id })}>
          <code>{id}</code>
        </a>
        .{created && ' Keep this id: the API does not list clients.'}
      </p>
      {((created && hasSecret) || 'client_secret' in body) && <SecretOnce secret={body['client_secret']} name="secret" />}
    </>
  )
}

const OVERLAPS = [
  ['86400', '24 hours'],
  ['3600', '1 hour'],
  ['0', 'not at all: it leaked'],
] as const

export function RotateClientSecret({ client, close }: { client: Members; close: () => void }) {
  const [overlap, setOverlap] = useState<string>('86400')
  const body = { client_id: client['client_id'], rotate_secret: { overlap: Number(overlap) } }
  return (
    <ActionDialog
      title={`Rotate the secret of ${nameOfClient(client)}`}
      verb="Rotate"
      danger={overlap === '0'}
      requests={[{ path: PATH, body }]}
      result={([answer]) => <SecretOnce secret={answer!.body['client_secret']} name="secret" />}
      close={close}
    >
      <p>Creates a new secret. The client can authenticate with either until the overlap ends.</p>
      <SelectField label="The previous secret stays valid" value={overlap} set={setOverlap} options={OVERLAPS} />
    </ActionDialog>
  )
}

export function SetClientStatus({ client, close }: { client: Members; close: () => void }) {
  const active = client['status'] === 'active'
  const verb = active ? 'Disable' : 'Enable'
  return (
    <ActionDialog
      title={`${verb} ${nameOfClient(client)}`}
      verb={verb}
      danger={active}
      requests={[{ path: PATH, body: { client_id: client['client_id'], status: active ? 'disabled' : 'active' } }]}
      result={() => <p>The client is {active ? 'disabled' : 'enabled'}.</p>}
      close={close}
    >
      <p>
        {active
          ? 'The client gets no more tokens, and its access tokens stop working at Gatepost and in introspection.'
          : 'The client can obtain tokens again.'}
      </p>
    </ActionDialog>
  )
}

const SCOPE_STATUSES = [
  ['active', 'active'],
  ['retired', 'retired: no longer granted'],
] as const

export function DefineScope({ close }: { close: () => void }) {
  const { values, bind } = useForm({ name: '', description: '', resource: '', claims: '', max_lifetime: '', status: 'active' })
  const [redefine, setRedefine] = useState(false)
  const claims = wordsOf(values.claims)
  const body: Members = {
    name: values.name.trim(),
    ...(values.description.trim() && { description: values.description.trim() }),
    ...(values.resource.trim() && { resource: values.resource.trim() }),
    ...(claims.length && { claims }),
    ...(values.max_lifetime && { max_lifetime: numberOf(values.max_lifetime) }),
    ...(values.status !== 'active' && { status: values.status }),
    ...(redefine && { redefine }),
  }
  return (
    <ActionDialog
      title="Define a scope"
      verb="Define"
      requests={body['name'] ? [{ path: '/oauth/scopes', body }] : null}
      missing="Enter the name of the scope."
      result={([answer]) => (
        <p>
          <code>{String(answer!.body['name'])}</code> is {answer!.status === 201 ? 'created' : 'defined'}, for the resource{' '}
          <code>{String(answer!.body['resource'])}</code>. A client gets it only if its grants list it.
        </p>
      )}
      close={close}
    >
      <TextField label="Name" {...bind('name')} placeholder="invoices:read" required mono />
      <TextField label="Description" {...bind('description')} hint="Shown to people who are asked for consent" />
      <TextField
        label="Resource"
        {...bind('resource')}
        placeholder="https://api.example.com"
        mono
        hint="The audience of tokens with this scope. Empty: the account's own resource"
      />
      <div class="pair">
        <TextField label="Claims" {...bind('claims')} placeholder="email email_verified" mono />
        <TextField label="Longest lifetime (seconds)" {...bind('max_lifetime')} type="number" />
      </div>
      <SelectField label="Status" {...bind('status')} options={SCOPE_STATUSES} />
      <CheckField label="Change the scope if it exists" value={redefine} set={setRedefine} />
    </ActionDialog>
  )
}
