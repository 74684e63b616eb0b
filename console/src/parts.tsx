// Small pieces that every view uses: times, ids to copy, states of waiting, emptiness and trouble.
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { choose, useChoices } from './choices'
import { away, moment, useNow, wholeMoment } from './figures'
import type { Reading } from './reading'
import { BASE, type Problem } from './session'
import type { Part, Sentence } from './story'

export function Time({ at, now, as = 'moment' }: { at: string; now: number; as?: 'moment' | 'away' | 'whole' }) {
  const ms = Date.parse(at)
  const text = as === 'away' ? away(ms, now) : as === 'whole' ? wholeMoment(ms) : moment(ms, now)
  return (
    <time dateTime={at} title={as === 'away' ? wholeMoment(ms) : `${wholeMoment(ms)}, ${away(ms, now)}`}>
      {text}
    </time>
  )
}

// --- copying

async function copied(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text)
  const field = document.createElement('textarea') // an http page beyond this machine has no clipboard
  field.value = text
  document.body.append(field)
  field.select()
  document.execCommand('copy')
  field.remove()
}

export function Copy({ text, children, label }: { text: string; children?: ComponentChildren; label: string }) {
  const [said, say] = useState('')
  const timer = useRef(0)
  useEffect(() => () => window.clearTimeout(timer.current), [])
  const copy = async () => {
    try {
      await copied(text)
      say('Copied')
    } catch {
      say('Copying failed. Select the text manually.')
    }
    timer.current = window.setTimeout(() => say(''), 1600)
  }
  return (
    <button
      type="button"
      class={children ? 'quiet' : 'copy'}
      onClick={copy}
      aria-label={children ? undefined : label}
      title={label}
    >
      {children ?? <CopyShape />}
      <span class="said" role="status">
        {said}
      </span>
    </button>
  )
}

function CopyShape() {
  return (
    <svg viewBox="0 0 16 16" width="13" height="13" aria-hidden>
      <path d="M5.5 5.5V2.2h8.3v8.3h-3.3M2.2 5.5h8.3v8.3H2.2Z" fill="none" stroke="currentColor" stroke-width="1.4" />
    </svg>
  )
}

export function Id({ of, name }: { of: string; name: string }) {
  return (
    <span class="id">
      <code>{of}</code>
      <Copy text={of} label={`Copy the id of the ${name}`} />
    </span>
  )
}

// --- sentences

export function Said({ sentence, now }: { sentence: Sentence; now: number }) {
  return <>{sentence.map((part) => piece(part, now))}</>
}

function piece(part: Part, now: number) {
  if (typeof part === 'string') return part
  if ('time' in part) return <Time at={part.time} now={now} as="whole" />
  return (
    <span class="command">
      <code>{part.code}</code>
      <Copy text={part.code} label="Copy the command" />
    </span>
  )
}

// --- live

export function Live<T>({ reading }: { reading: Reading<T> }) {
  const { live } = useChoices()
  const now = useNow()
  return (
    <div class="live">
      {reading.at > 0 && (
        <span class="read-at">
          updated <Time at={new Date(reading.at).toISOString()} now={now} />
        </span>
      )}
      <button type="button" class="quiet" onClick={reading.again} title="Refresh (r)">
        Refresh
      </button>
      <button
        type="button"
        class="switch"
        role="switch"
        aria-checked={live}
        onClick={() => choose({ live: !live })}
        title="Refresh automatically (l)"
      >
        <span class="knob" aria-hidden />
        Live
      </button>
    </div>
  )
}

// --- waiting, emptiness, trouble

export function Waiting({ rows = 6 }: { rows?: number }) {
  return (
    <div class="waiting" role="status" aria-label="Reading">
      {Array.from({ length: rows }, (_, place) => (
        <div class="bone" key={place} />
      ))}
    </div>
  )
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  )
}

const TITLES: Record<Problem['kind'], string> = {
  away: 'The service does not respond',
  credentials: 'These credentials are not accepted',
  scope: 'The scope gatepost:deliveries is missing',
  expired: 'The token is no longer valid',
  throttled: 'Too many failed attempts',
  refused: 'The service refused the request',
  failing: 'The service is temporarily unavailable',
}

export const titleOf = (problem: Problem): string => TITLES[problem.kind]

export function Advice({ problem }: { problem: Problem }) {
  switch (problem.kind) {
    case 'away':
      return (
        <p>
          Nothing came back from <code>{BASE}</code>. Is the service running, and is its <code>base_url</code> one that
          this browser can reach?
        </p>
      )
    case 'credentials':
      return (
        <p>
          The client ID or the secret is wrong, or the client or its account is disabled. The service does not reveal which.{' '}
          <code>gatepost client list</code> lists the existing clients.
        </p>
      )
    case 'scope':
      return (
        <p>
          Reading deliveries requires <code>gatepost:deliveries</code>, which this client cannot obtain or this token does
          not have. The account's first client can obtain it.
        </p>
      )
    case 'expired':
      return (
        <p>
          The service reports: {problem.message.replace(/\.$/, '')}. Enter another token, or the credentials of a client,
          with which the console renews its token automatically.
        </p>
      )
    case 'throttled':
      return (
        <p>
          These credentials are not accepted. Ten attempts to authenticate as this client from this address failed
          within a minute, so further failures are refused
          {problem.retryAfter ? ` for another ${problem.retryAfter} s` : ''}. Correct credentials are accepted at any time.
        </p>
      )
    default:
      return <p>{problem.message}</p>
  }
}

export function Trouble({ problem, again }: { problem: Problem; again?: () => void }) {
  return (
    <div class="trouble" role="alert">
      <h2>{titleOf(problem)}</h2>
      <Advice problem={problem} />
      <Trace problem={problem} />
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  )
}

/** The ids under which the service's log and the ledger have it. */
export function Trace({ problem }: { problem: Problem }) {
  if (!problem.request) return null
  return (
    <p class="trace">
      request <code>{problem.request}</code>
      {problem.event && (
        <>
          , ledger <code>{problem.event}</code>
        </>
      )}
    </p>
  )
}

/** Above what was read before, when it could not be read again. */
export function Stale<T>({ reading }: { reading: Reading<T> }) {
  const now = useNow()
  if (!reading.problem || !reading.data) return null
  return (
    <div class="stale" role="alert">
      <strong>{titleOf(reading.problem)}.</strong> The data shown was read {away(reading.at, now)}.{' '}
      <button type="button" class="link" onClick={reading.again}>
        Try again
      </button>
    </div>
  )
}
