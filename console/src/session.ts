// Who looks: a client's id and secret, or a token. Both live in this module's memory and nowhere else.
import { useEffect, useState } from 'preact/hooks'

export const BASE = document.querySelector<HTMLMetaElement>('meta[name="gatepost-base-url"]')?.content ?? ''
export const SCOPE = 'gatepost:deliveries'
const EARLY = 30_000 // a token is renewed so long before its end

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
}

export type Kind = 'away' | 'credentials' | 'scope' | 'expired' | 'throttled' | 'refused' | 'failing'

/** Why something could not be read, with the words of the service and the ids that find it in the log. */
export class Problem extends Error {
  constructor(
    readonly kind: Kind,
    detail: string,
    readonly request = '',
    readonly event = '',
    readonly retryAfter = 0,
  ) {
    super(detail)
  }

  /** Whether nothing more can be read before somebody enters something else. */
  get ends(): boolean {
    return this.kind === 'credentials' || this.kind === 'scope' || this.kind === 'expired'
  }
}

let session: Session | null = null
let ended: Problem | null = null
let renewing: Promise<void> | null = null
const watchers = new Set<() => void>()

export interface Shown {
  account: string
  client: string
  /** Whether the token is renewed by itself. */
  lasts: boolean
}

export function shown(): Shown | null {
  return session && { account: session.account, client: session.client, lasts: session.by !== null }
}

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
  for (const watch of watchers) watch()
}

export async function enterClient(by: Credentials): Promise<void> {
  become(await issued(by), null)
}

export async function enterToken(token: string): Promise<void> {
  await get({ limit: '1' }, token)
  become({ by: null, token, ...claims(token) }, null)
}

export function leave(): void {
  become(null, null)
}

/** GET /webhooks/deliveries. Renews the token when it is about to end, and once when it is refused. */
export async function read<T>(query: Record<string, string>, signal?: AbortSignal): Promise<T> {
  return JSON.parse(await readText(query, signal)) as T
}

export async function readText(query: Record<string, string>, signal?: AbortSignal): Promise<string> {
  const mine = session
  if (!mine) throw new Problem('expired', 'You are not signed in.')
  try {
    if (mine.by && mine.expires - Date.now() < EARLY) await renew(mine)
    try {
      return await get(query, session?.token ?? '', signal)
    } catch (problem) {
      if (!(problem instanceof Problem && problem.kind === 'expired' && session?.by)) throw problem
      await renew(session)
      return await get(query, session.token, signal)
    }
  } catch (problem) {
    if (problem instanceof Problem && problem.ends && session) become(null, problem)
    throw problem
  }
}

/** Several readers that need a new token share one request for it. */
async function renew(old: Session): Promise<void> {
  if (session !== old || !old.by) return
  renewing ??= issued(old.by)
    .then((next) => {
      if (session === old) become(next, null)
    })
    .finally(() => {
      renewing = null
    })
  await renewing
}

async function issued(by: Credentials): Promise<Session> {
  const form = new URLSearchParams({ grant_type: 'client_credentials', scope: SCOPE })
  const headers: Record<string, string> = {}
  if (by.way === 'client_secret_basic') {
    const both = `${encodeURIComponent(by.id)}:${encodeURIComponent(by.secret)}` // RFC 6749, section 2.3.1
    headers['Authorization'] = `Basic ${btoa(both)}`
  } else {
    form.set('client_id', by.id)
    form.set('client_secret', by.secret)
  }
  const answer = await ask('/oauth/tokens', { method: 'POST', body: form, headers })
  const body = await said(answer)
  if (answer.ok) {
    const { account, client } = claims(String(body['access_token']))
    const expires = Date.now() + Number(body['expires_in']) * 1000
    return { by, token: String(body['access_token']), expires, account, client }
  }
  const kinds: Record<string, Kind> = {
    invalid_client: 'credentials',
    invalid_scope: 'scope',
    unauthorized_client: 'scope',
    too_many_failures: 'throttled',
  }
  throw problem(answer, kinds[String(body['error'])], body['error_description'])
}

async function get(query: Record<string, string>, token: string, signal?: AbortSignal): Promise<string> {
  const headers = { Authorization: `Bearer ${token}` }
  const answer = await ask(`/webhooks/deliveries?${new URLSearchParams(query)}`, { headers, signal: signal ?? null })
  if (answer.ok) return answer.text()
  const kind = answer.status === 401 ? 'expired' : answer.status === 403 ? 'scope' : undefined
  throw problem(answer, kind, (await said(answer))['detail'])
}

async function ask(path: string, init: RequestInit): Promise<Response> {
  const rules: RequestInit = {
    credentials: 'omit',
    cache: 'no-store',
    referrerPolicy: 'no-referrer',
    redirect: 'error',
  }
  try {
    return await fetch(BASE + path, { ...rules, ...init })
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new Problem('away', `${BASE} does not respond.`)
  }
}

async function said(answer: Response): Promise<Record<string, unknown>> {
  try {
    return (await answer.json()) as Record<string, unknown>
  } catch {
    return {}
  }
}

function problem(answer: Response, kind: Kind | undefined, words: unknown): Problem {
  const usual: Kind = answer.status === 429 || answer.status >= 500 ? 'failing' : 'refused'
  const detail = typeof words === 'string' && words ? words : `The service answered ${answer.status}.`
  const named = (header: string) => answer.headers.get(header) ?? ''
  const wait = Number(named('retry-after')) || 0
  return new Problem(kind ?? usual, detail, named('x-request-id'), named('gatepost-event'), wait)
}

/** What a token says of itself, only to be shown: whether it is good is for the service to say. */
function claims(token: string): Pick<Session, 'account' | 'client' | 'expires'> {
  try {
    const part = (token.split('.')[1] ?? '').replaceAll('-', '+').replaceAll('_', '/')
    const found = JSON.parse(atob(part)) as Record<string, unknown>
    const until = Number(found['exp']) * 1000
    return { account: String(found['account']), client: String(found['client_id']), expires: until || Infinity }
  } catch {
    return { account: '', client: '', expires: Infinity }
  }
}
