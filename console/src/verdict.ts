// What became of a delivery, in one or two sentences that come first on its page.
import { about, duration, several, span } from './figures'
import { brief } from './marks'
import type { Attempt, Delivery, Endpoint } from './types'
import words from './words.json'

const ENDS: Record<string, string> = words.ends

/** `endpoint` is null if it was removed. */
export function verdict(record: Delivery, endpoint: Endpoint | null, now: number): string {
  const { attempts } = record
  const last = attempts.findLast((each) => each.outcome !== null)
  switch (record.status) {
    case 'succeeded': {
      const took = span(Date.parse(record.ended_at ?? record.created_at) - Date.parse(record.created_at))
      return `Delivered at attempt ${attempts.length}, ${took} after it was created.`
    }
    case 'failed':
      return `${ENDS[record.ended_reason ?? ''] ?? ''} ${lastResult(last)}`
    case 'cancelled':
      return `It was not delivered. ${ENDS[record.ended_reason ?? ''] ?? ''}`
    case 'held':
      return endpoint?.status === 'active'
        ? 'It waits, because the account is suspended.'
        : 'It waits, because the endpoint is disabled. It is sent when the endpoint is enabled.'
    case 'in_flight': {
      const open = attempts.find((each) => each.outcome === null)
      const since = open ? ` for ${about(Math.max(0, now - Date.parse(open.started_at)))}` : ''
      return `Attempt ${open?.number ?? attempts.length} has been in progress${since}.`
    }
    case 'pending': {
      const next = record.retries.next_at ? Date.parse(record.retries.next_at) - now : 0
      const when = next > 0 ? `in ${span(next)}` : 'due now'
      if (!last) return `No attempt has been made. The first is ${when}.`
      return `${lastResult(last)} Attempt ${attempts.length + 1} is ${when}; ${several(record.retries.remaining, 'retry', 'retries')} left.`
    }
  }
}

function lastResult(attempt: Attempt | undefined): string {
  if (!attempt) return 'No attempt was made.'
  const took = attempt.duration_ms === null ? '' : ` after ${duration(attempt.duration_ms)}`
  if (attempt.failure) return `Attempt ${attempt.number} failed (${brief(attempt)})${took}.`
  if (attempt.response_code === null) return `Attempt ${attempt.number} was ${brief(attempt)}.`
  return `Attempt ${attempt.number} got ${attempt.response_code}${took}.`
}
