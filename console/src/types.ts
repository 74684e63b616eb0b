// What GET /webhooks/deliveries answers, as far as the pages use it.

export type Status = 'pending' | 'held' | 'in_flight' | 'succeeded' | 'failed' | 'cancelled'
export type Outcome = 'succeeded' | 'failed' | 'interrupted' | 'not_sent'

export interface Attempt {
  number: number
  planned_at: string
  started_at: string
  ended_at: string | null
  duration_ms: number | null
  outcome: Outcome | null
  response_code: number | null
  failure: string | null
  detail: string
  timings: Partial<Record<'dns_ms' | 'connect_ms' | 'tls_ms' | 'first_byte_ms', number>>
  url: string
  remote_ip: string | null
  signed_with: string[]
  waited: { for: string; ms: number }
  worker: string
  retry_after?: string
  response?: string
}

export interface Planned {
  number: number
  at: string
  because: string
}

export interface Delivery {
  id: string
  account: string
  endpoint: { id: string; url: string }
  subscription_id: string
  event: { id: string; type: string; at: string }
  status: Status
  created_at: string
  ended_at: string | null
  ended_reason: string | null
  trigger: string
  attempts: Attempt[]
  retries: { made: number; remaining: number; next_at: string | null; plan: Planned[] }
  payload?: unknown
}

export interface Endpoint {
  id: string
  url: string
  description: string
  headers: Record<string, string>
  timeout: number
  signing: 'v1' | 'v1a'
  format: 'standard' | 'cloudevents'
  status: 'active' | 'disabled'
  disabled_reason: string | null
  disabled_at: string | null
  health: {
    consecutive_failures: number
    failing_since: string | null
    will_be_disabled_at: string | null
    retry_after_until: string | null
  }
  held: number
  created_at: string
  max_in_flight: number
  rate_limit: number | null
  max_retry_after: number
  retry_schedule: number[] | null
  secrets: { id: string; created_at: string; expires_at: string | null }[]
  subscriptions: Subscription[]
  condition: Condition
  /** The counts of the last minutes. */
  recent: Counts & { since: string; attempts_per_second: number }
  last_delivery: { id: string; created_at: string; response_code: number | null; failure: string | null } | null
}

export type Condition = 'failing' | 'degraded' | 'disabled' | 'healthy'

export interface Replay {
  id: string
  state: 'running' | 'ended'
  examined: number
  made: number
}

export interface Subscription {
  id: string
  endpoint_id: string
  events: string[]
  filter: Record<string, string | number | boolean | null>
  status: 'active' | 'disabled'
  description: string
  replay: Replay | null
}

export interface Page<T> {
  data: T[]
  next_cursor: string | null
}

export interface Counts {
  deliveries: { made: number; ended: Record<string, number> }
  attempts: Record<string, number>
  success_ratio: number | null
  attempt_success_ratio: number | null
  duration_ms: Record<'p50' | 'p95' | 'p99', number | null>
}

export interface Interval extends Counts {
  start: string
}

export interface Summary {
  data: Interval[]
  total: Counts
  now: { pending: number; held: number; in_flight: number; counted_to: number; oldest_pending_at: string | null }
}
