// The operator token and the requests that it is sent with. Only the session storage of this tab keeps it.
import { useEffect, useState } from 'preact/hooks'

const KEY = 'gatepost-operator-token'

export type Query = Record<string, string>
export type Json = Record<string, unknown>

/** Why something could not be read, and the request id that the log has it under. */
export class Problem extends Error {
  constructor(
    detail: string,
    readonly status = 0,
    readonly request = '',
  ) {
    super(detail)
  }
}

let token = sessionStorage.getItem(KEY) ?? ''
let ended: Problem | null = null
const watchers = new Set<() => void>()

function change(next: string, because: Problem | null): void {
  token = next
  ended = because
  if (next) sessionStorage.setItem(KEY, next)
  else sessionStorage.removeItem(KEY)
  for (const watch of watchers) watch()
}

/** Whether somebody is signed in, and why not if the token was refused. */
export function useSession(): { signedIn: boolean; ended: Problem | null } {
  const [, draw] = useState(0)
  useEffect(() => {
    const watch = () => draw((times) => times + 1)
    watchers.add(watch)
    return () => void watchers.delete(watch)
  }, [])
  return { signedIn: token !== '', ended }
}

export async function signIn(text: string): Promise<void> {
  await get('overview', {}, text)
  change(text, null)
}

export const signOut = (): void => change('', null)

/** Read a view. A token that is refused ends the session. */
export async function read(view: string, query: Query, signal: AbortSignal): Promise<Json> {
  const sent = token
  try {
    return await get(view, query, sent, signal)
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 401 && token === sent) change('', problem)
    throw problem
  }
}

/** Parse JSON. A whole number that JavaScript cannot represent becomes a string, where the browser gives its digits. */
function parse(body: string): Json {
  const exact = (_: string, value: unknown, context?: { source?: string }) =>
    typeof value === 'number' && Math.abs(value) > Number.MAX_SAFE_INTEGER && context?.source ? context.source : value
  try {
    return JSON.parse(body, exact) as Json
  } catch {
    return {}
  }
}

async function get(view: string, query: Query, bearer: string, signal: AbortSignal | null = null): Promise<Json> {
  const text = new URLSearchParams(query).toString()
  const init: RequestInit = {
    headers: { Authorization: `Bearer ${bearer}` },
    credentials: 'omit',
    cache: 'no-store',
    referrerPolicy: 'no-referrer',
    redirect: 'error',
    signal,
  }
  let answer: Response
  try {
    answer = await fetch(`./${view}${text ? `?${text}` : ''}`, init)
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new Problem('The operations plane does not respond.')
  }
  const body = parse(await answer.text())
  if (answer.ok) return body
  const detail = typeof body['detail'] === 'string' ? body['detail'] : `The service answered ${answer.status}.`
  throw new Problem(detail, answer.status, answer.headers.get('x-request-id') ?? '')
}
