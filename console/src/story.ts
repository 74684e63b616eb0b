// What happened to a delivery and why, in the sentences of `gatepost delivery explain`, from the record alone.
import { span } from './figures'
import type { Attempt, Delivery, Endpoint, Planned } from './types'
import words from './words.json'

/** Text, a time, or something to type. */
export type Part = string | { time: string } | { code: string }
export type Sentence = Part[]

const TRIGGERS: Record<string, string> = {
  event: 'in the same commit as its event',
  replay: 'by a replay of the subscription',
  retry: 'by an operator, from a delivery that had ended',
}
const WAITED: Record<string, string> = {
  rate_limit: "the endpoint's rate limit",
  retry_after: 'the time that the receiver had requested',
  window: 'other attempts to the same endpoint to finish',
  turn: 'its turn among other endpoints',
}
const BECAUSE: Record<string, string> = words.because
const ENDS: Record<string, string> = words.ends

/** `endpoint` is null when it was removed: it is then no longer listed. */
export function story(record: Delivery, endpoint: Endpoint | null, now: number): Sentence[] {
  const { event } = record
  return [
    [
      `${record.id} delivers the event ${event.type} (${event.id}) of `,
      { time: event.at },
      ` to ${record.endpoint.url} (${record.endpoint.id}), for ${record.subscription_id}.`,
    ],
    ['It was created at ', { time: record.created_at }, ` ${TRIGGERS[record.trigger] ?? ''}.`],
    ...record.attempts.map(attempted),
    ...(record.ended_reason ? end(record, endpoint) : next(record, endpoint, now)),
  ]
}

export function attempted(attempt: Attempt): Sentence {
  const { waited } = attempt
  const reason = WAITED[waited.for]
  const after = reason && waited.ms ? `, after waiting ${span(waited.ms)} for ${reason}` : ''
  return [`Attempt ${attempt.number} started at `, { time: attempt.started_at }, `${after}. ${outcome(attempt)}`]
}

function outcome(attempt: Attempt): string {
  if (attempt.outcome === null) return 'It is in progress.'
  if (attempt.outcome === 'interrupted') {
    const reason = attempt.detail?.split(': ')[1] ?? 'its worker was lost'
    return `Its outcome is unknown, because ${reason}: the receiver may have got the request.`
  }
  if (attempt.outcome === 'not_sent') {
    const reason = attempt.detail?.split(' sent: ')[1] ?? 'its worker was stopped'
    return `It was never sent, because ${reason}. The receiver got nothing.`
  }
  const duration = attempt.duration_ms === null ? '' : ` after ${span(Math.round(attempt.duration_ms))}`
  const wait = attempt.retry_after ? ` with Retry-After: ${attempt.retry_after}` : ''
  const sentence = attempt.failure
    ? `It failed${duration} (${attempt.failure})`
    : `The receiver responded ${attempt.response_code}${duration}${wait}`
  return `${sentence}${attempt.detail ? `: ${attempt.detail}` : ''}.`
}

function next(record: Delivery, endpoint: Endpoint | null, now: number): Sentence[] {
  const { plan } = record.retries
  if (record.status === 'held') return held(record, endpoint)
  if (record.status === 'in_flight') {
    const [first, ...rest] = planned(plan, now)
    if (first === undefined) return [['If it fails, the delivery fails: it is the last attempt.']]
    return [[`If it fails, ${first}`, ...rest]]
  }
  const [first, ...rest] = planned(plan, now)
  return first === undefined ? [] : [[`Next, ${first}`, ...rest]]
}

function planned(plan: Planned[], now: number): [] | [string, ...Part[]] {
  const [first] = plan
  const last = plan.at(-1)
  if (!first || !last) return []
  const wait = Date.parse(first.at) - now
  const when = wait > 0 ? `in ${span(wait)}` : 'which is due now'
  const sentence: [string, ...Part[]] = [
    `attempt ${first.number} is planned for `,
    { time: first.at },
    `, ${when}: ${BECAUSE[first.because] ?? first.because}.`,
  ]
  if (plan.length > 1) {
    const more = plan.length === 2 ? 'is one more' : `are ${plan.length - 1} more, the last`
    sentence.push(` If it fails at once, there ${more} at `, { time: last.at }, '.')
  }
  return sentence
}

function held(record: Delivery, endpoint: Endpoint | null): Sentence[] {
  const sentences: Sentence[] = []
  if (endpoint?.status !== 'active') {
    const since: Part[] = endpoint?.disabled_at ? [' since ', { time: endpoint.disabled_at }] : []
    const state = endpoint ? `${endpoint.status} (${endpoint.disabled_reason ?? 'removed'})` : 'removed (removed)'
    const enable = command('endpoint enable', record.endpoint.id)
    sentences.push([`It is held, because the endpoint is ${state}`, ...since, '. To continue: ', enable, '.'])
  }
  sentences.push(["It fails when it has been held for longer than the account's hold_limit."])
  return sentences
}

function end(record: Delivery, endpoint: Endpoint | null): Sentence[] {
  const reason = record.ended_reason ?? ''
  const retry = command('delivery retry', record.id)
  const sentences: Sentence[] = [
    ['It ended at ', { time: record.ended_at ?? '' }, `: ${record.status} (${reason}). ${ENDS[reason] ?? ''}`],
  ]
  if (endpoint?.status === 'disabled' && ['endpoint_gone', 'held_too_long', 'attempts_exhausted'].includes(reason)) {
    const enable = command('endpoint enable', record.endpoint.id)
    const start = 'The endpoint is disabled. Fix the receiver, run '
    sentences.push([start, enable, ', and then send the event again with ', retry, '.'])
  } else if (reason === 'endpoint_removed' || (endpoint === null && record.status !== 'succeeded')) {
    sentences.push(['The endpoint was removed. Subscribe another endpoint, and replay the event to it.'])
  } else if (record.status === 'failed') {
    sentences.push(['Fix the receiver, and then send the event again with ', retry, '.'])
  } else if (record.status === 'cancelled') {
    sentences.push(['To send the event anyway, run ', retry, '.'])
  }
  return sentences
}

function command(verb: string, id: string): { code: string } {
  return { code: `gatepost ${verb} ${id}` }
}
