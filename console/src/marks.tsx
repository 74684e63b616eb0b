// Marks that differ in shape as well as in colour, so that a state is seen without either.
import type { JSX } from 'preact'
import type { Attempt, Status } from './types'
import words from './words.json'

const SHAPES: Record<string, JSX.Element> = {
  succeeded: (
    <>
      <circle cx="8" cy="8" r="7" fill="currentColor" />
      <path d="m4.8 8.3 2.2 2.2 4.2-4.6" fill="none" stroke="var(--on-mark)" stroke-width="1.7" />
    </>
  ),
  failed: (
    <>
      <rect x="1.5" y="1.5" width="13" height="13" rx="2.5" fill="currentColor" />
      <path d="m5.3 5.3 5.4 5.4m0-5.4-5.4 5.4" stroke="var(--on-mark)" stroke-width="1.7" />
    </>
  ),
  degraded: (
    <>
      <path d="M8 1.6 15.2 14.4H.8Z" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linejoin="round" />
      <path d="M8 6v4.2m0 1.2v1.3" stroke="currentColor" stroke-width="1.7" />
    </>
  ),
  pending: (
    <>
      <circle cx="8" cy="8" r="6.2" fill="none" stroke="currentColor" stroke-width="1.6" />
      <path d="M8 4.6V8l2.4 1.6" fill="none" stroke="currentColor" stroke-width="1.6" />
    </>
  ),
  held: (
    <>
      <path d="M8 .9 15.1 8 8 15.1.9 8Z" fill="none" stroke="currentColor" stroke-width="1.5" />
      <path d="M6.4 5.5v5m3.2-5v5" stroke="currentColor" stroke-width="1.7" />
    </>
  ),
  in_flight: <path d="M1.5 2.5 14.5 8l-13 5.5L4 8Z" fill="none" stroke="currentColor" stroke-width="1.6" />,
  cancelled: (
    <>
      <circle cx="8" cy="8" r="6.2" fill="none" stroke="currentColor" stroke-width="1.6" />
      <path d="m3.8 12.2 8.4-8.4" stroke="currentColor" stroke-width="1.6" />
    </>
  ),
  interrupted: <path d="M8 1v5m0 4v5M1 8h4m6 0h4" stroke="currentColor" stroke-width="1.7" />,
  not_sent: <path d="M2 8h12" stroke="currentColor" stroke-width="1.7" stroke-dasharray="3 2" />,
}

export function Mark({ of, label }: { of: string; label?: string }) {
  const hidden = label ? ({ role: 'img', 'aria-label': label } as const) : ({ 'aria-hidden': true } as const)
  return (
    <svg class={`mark is-${of}`} viewBox="0 0 16 16" width="14" height="14" {...hidden}>
      {SHAPES[of]}
    </svg>
  )
}

export const statusWord = (status: Status): string => words.statuses[status]

export function StatusWord({ status }: { status: Status }) {
  return (
    <span class={`status is-${status}`}>
      <Mark of={status} />
      {statusWord(status)}
    </span>
  )
}

/** What came of an attempt, as short as can be: a code, a phase, or a word. */
export function brief(attempt: Attempt): string {
  if (attempt.outcome === null) return 'in progress'
  if (attempt.failure && attempt.failure !== 'redirect') return attempt.failure.replace('_', ' ')
  return attempt.response_code === null ? attempt.outcome.replace('_', ' ') : String(attempt.response_code)
}

export const markOf = (attempt: Attempt): string => attempt.outcome ?? 'in_flight'

export function Code({ attempt }: { attempt: Attempt }) {
  return <span class={`code is-${markOf(attempt)}`}>{brief(attempt)}</span>
}
