// Where the time of an attempt went. Timings are milliseconds from its start until that was done.
import type { Attempt } from './types'

export const PHASES = ['dns', 'connect', 'tls', 'first byte', 'body'] as const
export type Phase = (typeof PHASES)[number]

export interface Stretch {
  phase: Phase
  from: number
  to: number
  /** Whether it was in this phase when the attempt failed. */
  broken: boolean
}

const TIMED = [
  ['dns', 'dns_ms'],
  ['connect', 'connect_ms'],
  ['tls', 'tls_ms'],
  ['first byte', 'first_byte_ms'],
] as const
const FAILED_IN: Record<string, Phase> = {
  dns: 'dns',
  connect: 'connect',
  tls: 'tls',
  send: 'first byte',
  first_byte: 'first byte',
  body: 'body',
}
const RAN_OUT: [string, Phase][] = [
  ['looking up', 'dns'],
  ['connecting', 'connect'],
  ['TLS', 'tls'],
  ['sending', 'first byte'],
  ['waiting for the response', 'first byte'],
  ['response body', 'body'],
]

/** What did not happen is not there; on a kept connection that is looking up, connecting and TLS. */
export function stretches(attempt: Attempt): Stretch[] {
  const found: Stretch[] = []
  let from = 0
  for (const [phase, name] of TIMED) {
    const to = attempt.timings[name]
    if (to === undefined) continue
    found.push({ phase, from, to: Math.max(from, to), broken: false })
    from = Math.max(from, to)
  }
  const total = attempt.duration_ms ?? 0
  const broken = brokenIn(attempt)
  if (broken) found.push({ phase: broken, from, to: Math.max(from, total), broken: true })
  else if (attempt.timings.first_byte_ms !== undefined)
    found.push({ phase: 'body', from, to: Math.max(from, total), broken: false })
  return found
}

function brokenIn(attempt: Attempt): Phase | null {
  if (!attempt.failure) return null
  if (attempt.failure === 'timeout')
    return RAN_OUT.find(([words]) => attempt.detail.includes(words))?.[1] ?? 'first byte'
  return FAILED_IN[attempt.failure] ?? null
}
