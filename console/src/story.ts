// What happened to a delivery and why, in the sentences of `gatepost delivery explain`, from the record alone.
import { span } from './figures'
import type { Attempt, Delivery, Endpoint, Planned } from './types'
import words from './words.json'

/** Text, a time, or something to type. */
export type Part = string | { time: string } | { code: string }
export type Sentence = Part[]

const TRIGGERS: Record<string, string> = {
  event: 'in one commit with its event',
  replay: 'by a replay of the subscription',
  retry: 'by an operator, out of one that had ended',
}
const WAITED: Record<string, string> = {
  rate_limit: "the endpoint's rate limit",
  retry_after: 'the time that the receiver had asked for',
  window: 'other attempts to the same endpoint to end',
  turn: 'its turn among other endpoints',
}
const BECAUSE: Record<string, string> = words.because
const ENDS: Record<string, string> = words.ends

/** `endpoint` is null when it was removed: it is then no longer listed. */
export function story(record: Delivery, endpoint: Endpoint | null, now: number): Sentence[] {
  const { event } = record
  return [
    [
      `${record.id} is for the event ${event.type} (${event.id}) of `,
      { time: event.at },
      `, and goes to ${record.endpoint.url} (${record.endpoint.id}) by ${record.subscription_id}.`,
    ],
    ['It was made at ', { time: record.created_at }, ` ${TRIGGERS[record.trigger] ?? ''}.`],
    ...record.attempts.map(attempted),
    ...(record.ended_reason ? end(record, endpoint) : next(record, endpoint, now)),
  ]
}

export function attempted(attempt: Attempt): Sentence {
  const { waited } = attempt
  const reason = WAITED[waited.for]
  const after = reason && waited.ms ? `, after waiting ${span(waited.ms)} for ${reason}` : ''
  return [`Attempt ${attempt.number} was begun at `, { time: attempt.started_at }, `${after}. ${outcome(attempt)}`]
}

function outcome(attempt: Attempt): string {
  if (attempt.outcome === null) return 'It is under way now.'
  if (attempt.outcome === 'interrupted')
    return 'Its worker was lost, so nobody knows what became of it: the receiver may have got it.'
  if (attempt.outcome === 'not_sent') {
    const why = attempt.detail?.split(' sent: ')[1] ?? 'its worker was told to stop'
    return `It was never sent, because ${why}: the receiver got nothing.`
  }
  const took = attempt.duration_ms === null ? '' : ` after ${span(Math.round(attempt.duration_ms))}`
  const asked = attempt.retry_after ? ` and asked to wait (Retry-After: ${attempt.retry_after})` : ''
  const said = attempt.failure
    ? `It failed${took} (${attempt.failure})`
    : `The receiver answered ${attempt.response_code}${took}${asked}`
  return `${said}${attempt.detail ? `: ${attempt.detail}` : ''}.`
}

function next(record: Delivery, endpoint: Endpoint | null, now: number): Sentence[] {
  const { plan } = record.retries
  if (record.status === 'held') return held(record, endpoint)
  if (record.status === 'in_flight') {
    const [first, ...rest] = planned(plan, now)
    if (first === undefined) return [['If that fails, it was the last, and the delivery ends failed.']]
    return [[`If that fails, ${first}`, ...rest]]
  }
  const [first, ...rest] = planned(plan, now)
  return first === undefined ? [] : [[`Next, ${first}`, ...rest]]
}

function planned(plan: Planned[], now: number): [] | [string, ...Part[]] {
  const [first] = plan
  const last = plan.at(-1)
  if (!first || !last) return []
  const wait = Date.parse(first.at) - now
  const when = wait > 0 ? `in ${span(wait)}` : 'which is due'
  const said: [string, ...Part[]] = [
    `attempt ${first.number} is planned for `,
    { time: first.at },
    `, ${when}: ${BECAUSE[first.because] ?? first.because}.`,
  ]
  if (plan.length > 1) {
    const more = plan.length === 2 ? 'is one more' : `are ${plan.length - 1} more, the last`
    said.push(` If that fails at once there ${more} at `, { time: last.at }, '.')
  }
  return said
}

function held(record: Delivery, endpoint: Endpoint | null): Sentence[] {
  const found: Sentence[] = []
  if (endpoint?.status !== 'active') {
    const since: Part[] = endpoint?.disabled_at ? [' since ', { time: endpoint.disabled_at }] : []
    const state = endpoint ? `${endpoint.status} (${endpoint.disabled_reason ?? 'removed'})` : 'removed (removed)'
    const enable = command('endpoint enable', record.endpoint.id, record)
    found.push([`It is held, because the endpoint is ${state}`, ...since, '; ', enable, ' lets it go on.'])
  }
  found.push(["Held for longer than the account's hold_limit it ends failed."])
  return found
}

function end(record: Delivery, endpoint: Endpoint | null): Sentence[] {
  const reason = record.ended_reason ?? ''
  const again = command('delivery retry', record.id, record)
  const found: Sentence[] = [
    ['It ended at ', { time: record.ended_at ?? '' }, `: ${record.status} (${reason}). ${ENDS[reason] ?? ''}`],
  ]
  if (endpoint?.status === 'disabled' && ['endpoint_gone', 'held_too_long', 'attempts_exhausted'].includes(reason)) {
    const enable = command('endpoint enable', record.endpoint.id, record)
    const start = 'The endpoint is disabled. Put the receiver right, then '
    found.push([start, enable, ', then ', again, ' sends it anew.'])
  } else if (reason === 'endpoint_removed' || (endpoint === null && record.status !== 'succeeded')) {
    found.push(['Nothing goes to that endpoint any more: subscribe another, and replay the event to it.'])
  } else if (record.status === 'failed') {
    found.push(['Put the receiver right, then ', again, ' sends it anew.'])
  } else if (record.status === 'cancelled') {
    found.push([again, ' sends it after all.'])
  }
  return found
}

function command(verb: string, id: string, record: Delivery): { code: string } {
  return { code: `gatepost ${verb} ${id} --account ${record.account}` }
}
