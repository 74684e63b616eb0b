// The session: a client's credentials in memory, and its token, which the tab keeps over a reload.
import { useEffect, useState } from 'preact/hooks'
import { ask, basic, decode, type Kind, type Members, members, Problem, problem } from './api'

export { BASE, INTAKE, Problem } from './api'

export const SCOPE = 'gatepost:deliveries'
const SCOPES = [
  SCOPE,
  'gatepost:endpoints',
  'gatepost:subscriptions',
  'gatepost:events',
  'gatepost:clients',
  'gatepost:scopes',
] as const
const EARLY = 30_000 // milliseconds before its end at which a token is renewed
const KEPT = 'gatepost-token'

export type Scope = (typeof SCOPES)[number]
export type Way = 'client_secret_basic' | 'client_secret_post'

export interface Credentials {
  id: string
  secret: string
  way: Way
}

interface Session {
  by: Credentials | null
  token: string
  expires: number
  account: string
  client: string
  scopes: string[]
}

let session: Session | null = kept()
let ended: Problem | null = null
let renewing: { old: Session; done: Promise<void> } | null = null
const watchers = new Set<() => void>()

export interface Shown {
  account: string
  client: string
  scopes: string[]
  /** Whether the token is renewed automatically. */
  lasts: boolean
}

export function shown(): Shown | null {
  return session && { account: session.account, client: session.client, scopes: session.scopes, lasts: session.by !== null }
}

export const allows = (scope: Scope): boolean => session?.scopes.includes(scope) ?? false

/** The session as it may be shown, and why there is none if one ended. */
export function useSession(): { session: Shown | null; ended: Problem | null } {
  const [, draw] = useState(0)
  useEffect(() => {
    const watch = () => draw((count) => count + 1)
    watchers.add(watch)
    return () => void watchers.delete(watch)
  }, [])
  return { session: shown(), ended }
}

function become(next: Session | null, because: Problem | null): void {
  session = next
  ended = because
  try {
    if (next) sessionStorage.setItem(KEPT, next.token)
    else sessionStorage.removeItem(KEPT)
  } catch {
    // without storage, a reload ends the session
  }
  for (const watch of watchers) watch()
}

/** The session of this tab before it was reloaded. It has the token alone, so it ends with it. */
function kept(): Session | null {
  try {
    const token = sessionStorage.getItem(KEPT)
    const found = token ? { by: null, token, ...claims(token) } : null
    return found && found.expires > Date.now() ? found : null
  } catch {
    return null
  }
}

export async function enterClient(by: Credentials): Promise<void> {
  become(await issued(by, SCOPES), null)
}

export async function enterToken(token: string): Promise<void> {
  await get({ limit: '1' }, token)
  become({ by: null, token, ...claims(token) }, null)
}

export function leave(): void {
  become(null, null)
}

/** GET /webhooks/deliveries. */
export async function read<T>(query: Record<string, string>, signal?: AbortSignal): Promise<T> {
  return JSON.parse(await readText(query, signal)) as T
}

export const readText = (query: Record<string, string>, signal?: AbortSignal): Promise<string> =>
  withToken((token) => get(query, token, signal))

export interface ApiRequest {
  path: string
  body: Members
  /** The header Idempotency-Key. `/events` has none: the id of the event has its effect. */
  key?: string
}

export interface Answer {
  status: number
  body: Members
}

/** POST a JSON body. The same request with the same key has its effect once. */
export const send = ({ path, body, key }: ApiRequest): Promise<Answer> =>
  withToken(async (token) => {
    const headers: Record<string, string> = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' }
    if (key) headers['Idempotency-Key'] = key
    const response = await ask(path, { method: 'POST', headers, body: JSON.stringify(body) })
    const answer = await members(response)
    if (response.ok) return { status: response.status, body: answer }
    throw problem(response, answer, response.status === 401 ? 'expired' : undefined)
  })

/** Renews the token when it is about to end, and once when it is refused. */
async function withToken<T>(use: (token: string) => Promise<T>): Promise<T> {
  const mine = session
  if (!mine) throw new Problem('expired', 'You are not signed in.')
  // A renewed session has the credentials of the first. Whoever signs in meanwhile must not send this request.
  const isMine = () => session === mine || (mine.by !== null && session?.by === mine.by)
  const token = () => {
    if (session && isMine()) return session.token
    throw new Problem('expired', 'You have signed out.')
  }
  try {
    if (mine.by && mine.expires - Date.now() < EARLY) await renew(mine)
    try {
      return await use(token())
    } catch (problem) {
      if (!(problem instanceof Problem && problem.kind === 'expired' && session?.by && isMine())) throw problem
      await renew(session)
      return await use(token())
    }
  } catch (problem) {
    if (problem instanceof Problem && problem.ends && session && isMine()) become(null, problem)
    throw problem
  }
}

/** Several readers that need a new token share one request for it. */
async function renew(old: Session): Promise<void> {
  if (session !== old || !old.by) return
  if (renewing?.old !== old) {
    const done = issued(old.by, old.scopes)
      .then((next) => {
        if (session === old) become(next, null)
      })
      .finally(() => {
        if (renewing?.old === old) renewing = null
      })
    renewing = { old, done }
  }
  await renewing.done
}

const KINDS: Record<string, Kind> = {
  invalid_client: 'credentials',
  invalid_scope: 'scope',
  unauthorized_client: 'scope',
  too_many_failures: 'throttled',
}

/** A token with as many of these scopes as the client has: a refusal names the first that it does not have. */
async function issued(by: Credentials, scopes: readonly string[]): Promise<Session> {
  const form = new URLSearchParams({ grant_type: 'client_credentials', scope: scopes.join(' ') })
  const headers: Record<string, string> = {}
  if (by.way === 'client_secret_basic') headers['Authorization'] = basic(by.id, by.secret)
  else {
    form.set('client_id', by.id)
    form.set('client_secret', by.secret)
  }
  const response = await ask('/oauth/tokens', { method: 'POST', body: form, headers })
  const body = await members(response)
  if (response.ok) {
    const token = String(body['access_token'])
    return { by, token, ...claims(token), expires: Date.now() + Number(body['expires_in']) * 1000 }
  }
  const missing = scopes.find((each) => each !== SCOPE && String(body['error_description']).includes(`${each} `))
  if (body['error'] === 'invalid_scope' && missing) return issued(by, scopes.filter((each) => each !== missing))
  throw problem(response, body, KINDS[String(body['error'])])
}

async function get(query: Record<string, string>, token: string, signal?: AbortSignal): Promise<string> {
  const headers = { Authorization: `Bearer ${token}` }
  const response = await ask(`/webhooks/deliveries?${new URLSearchParams(query)}`, { headers, signal: signal ?? null })
  if (response.ok) return response.text()
  const kind = response.status === 401 ? 'expired' : response.status === 403 ? 'scope' : undefined
  throw problem(response, await members(response), kind)
}

/** The claims that the pages show. Only the service decides whether a token is valid. */
function claims(token: string): Omit<Session, 'by' | 'token'> {
  const found = decode(token)?.claims
  if (!found) return { account: '', client: '', scopes: [], expires: Infinity }
  return {
    account: String(found['account']),
    client: String(found['client_id']),
    scopes: String(found['scope'] ?? '').split(' '),
    expires: Number(found['exp']) * 1000 || Infinity,
  }
}
