// The conditions of endpoints, which the service decides, and how they are shown.
import type { Condition, Counts, Endpoint } from './types'

/** The mark for each condition. */
export const MARKS: Record<Condition, string> = {
  failing: 'failed',
  degraded: 'degraded',
  disabled: 'held',
  healthy: 'succeeded',
}

/** The worst first. */
const ORDER: Condition[] = ['failing', 'degraded', 'disabled', 'healthy']

/** Sorts the worst endpoints first, and of those the ones that will be disabled soonest. */
export function byUrgency(one: Endpoint, other: Endpoint): number {
  const end = (endpoint: Endpoint) => Date.parse(endpoint.health.will_be_disabled_at ?? '9999-12-31')
  return ORDER.indexOf(one.condition) - ORDER.indexOf(other.condition) || end(one) - end(other)
}

export const nameOfEndpoint = (endpoint: { description?: string; url: string }): string =>
  endpoint.description || endpoint.url.replace(/^https?:\/\//, '')

/** The attempts with a known result. */
export function attemptsOf({ attempts }: Counts): { succeeded: number; all: number } {
  const all = ['1xx', '2xx', '3xx', '4xx', '5xx', 'none'].reduce((sum, name) => sum + (attempts[name] ?? 0), 0)
  return { succeeded: attempts['2xx'] ?? 0, all }
}
