// Requests to the service, and what goes wrong with them. Nothing here knows of a session.

const meta = (name: string): string =>
  document.querySelector<HTMLMetaElement>(`meta[name="gatepost-${name}"]`)?.content ?? ''

/** Where the six operations are. */
export const BASE = meta('base-url')
/** Whether the operations plane, which serves these pages, accepts POST /events. */
export const INTAKE = meta('intake') === 'http'

export type Kind = 'away' | 'credentials' | 'scope' | 'expired' | 'throttled' | 'refused' | 'failing'
export type Members = Record<string, unknown>

/** Why a request failed, with the words of the service and the ids that find it in the log. */
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

  /** Whether nothing more can be read until the user enters other credentials. */
  get ends(): boolean {
    return this.kind === 'credentials' || this.kind === 'scope' || this.kind === 'expired'
  }
}

const RULES: RequestInit = {
  credentials: 'omit',
  cache: 'no-store',
  referrerPolicy: 'no-referrer',
  redirect: 'error',
}

/** Only `/events` is on the operations plane, the origin of these pages. */
export const urlOf = (path: string): string => (path === '/events' ? location.origin : BASE) + path

export async function ask(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(urlOf(path), { ...RULES, ...init })
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new Problem('away', `${new URL(urlOf(path)).origin} does not respond.`)
  }
}

/** The members of a JSON response, or none. */
export async function members(response: Response): Promise<Members> {
  try {
    return (await response.json()) as Members
  } catch {
    return {}
  }
}

/** The problem that a response reports: RFC 9457, or an OAuth error. */
export function problem(response: Response, body: Members, kind?: Kind): Problem {
  const usual: Kind = response.status === 429 || response.status >= 500 ? 'failing' : 'refused'
  const words = body['detail'] ?? body['error_description']
  const detail = typeof words === 'string' && words ? words : `The service responded with ${response.status}.`
  const header = (name: string) => response.headers.get(name) ?? ''
  const wait = Number(header('retry-after')) || 0
  return new Problem(kind ?? usual, detail, header('x-request-id'), header('gatepost-event'), wait)
}

/** The value of HTTP Basic for a client. RFC 6749, section 2.3.1. */
export const basic = (id: string, secret: string): string =>
  `Basic ${btoa(`${encodeURIComponent(id)}:${encodeURIComponent(secret)}`)}`

/** The parts of a JWT, decoded but not verified; null if it is not a JWT. */
export function decode(token: string): { header: Members; claims: Members } | null {
  try {
    const [header, claims] = token.split('.', 2).map((part) => {
      const text = atob(part.replaceAll('-', '+').replaceAll('_', '/'))
      return JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (each) => each.charCodeAt(0)))) as Members
    })
    return header && claims ? { header, claims } : null
  } catch {
    return null
  }
}
