// How an endpoint fares. Failing: nothing succeeds. Degraded: some attempts succeed and some do not.
import type { Endpoint, Summary } from './types'

export type EndpointState = 'failing' | 'degraded' | 'disabled' | 'healthy'

const MANY = 5 // failures in a row after which an endpoint is failing, whatever succeeded before
const HOUR = 3_600_000
const SHARE = 0.05 // of attempts that failed in the last hour

/** For each state the mark of the delivery status with the same color. */
export const MARKS: Record<EndpointState, string> = {
  failing: 'failed',
  degraded: 'degraded',
  disabled: 'held',
  healthy: 'succeeded',
}

/** `hour` is the summary of the last hour, as soon as it has been read. */
export function stateOf(endpoint: Endpoint, hour: Summary | undefined, now: number): EndpointState {
  if (endpoint.status === 'disabled') return 'disabled'
  const { consecutive_failures: failures, failing_since: since, retry_after_until: wait } = endpoint.health
  const { succeeded, failed } = outcomes(hour)
  if (failures >= MANY || (failures && since && now - Date.parse(since) > HOUR)) return 'failing'
  if (failures && hour && !succeeded) return 'failing'
  const waits = wait !== null && Date.parse(wait) > now
  return failures || waits || (failed && failed / (failed + succeeded) >= SHARE) ? 'degraded' : 'healthy'
}

/** The attempts of a summary that succeeded and that failed. Attempts that were not sent count as neither. */
export function outcomes(summary: Summary | undefined): { succeeded: number; failed: number } {
  const attempts = summary?.total.attempts ?? {}
  const failed = ['1xx', '3xx', '4xx', '5xx', 'none'].reduce((sum, name) => sum + (attempts[name] ?? 0), 0)
  return { succeeded: attempts['2xx'] ?? 0, failed }
}

const ORDER: EndpointState[] = ['failing', 'degraded', 'disabled', 'healthy']

/** For sorting: the worst first, then those that will be disabled soonest. */
export function worry(endpoint: Endpoint, state: EndpointState): [number, number] {
  return [ORDER.indexOf(state), Date.parse(endpoint.health.will_be_disabled_at ?? '') || Infinity]
}

export const nameOfEndpoint = (endpoint: { description?: string; url: string }): string =>
  endpoint.description || endpoint.url.replace(/^https?:\/\//, '')
