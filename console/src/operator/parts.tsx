// Pieces that all views use: reading, tables, times, pages and problems.
import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { useChoices } from '../choices'
import { wholeMoment } from '../figures'
import { href, type Place } from './route'
import { type Json, Problem, type Query, read } from './session'

interface Reading {
  data: Json | undefined
  problem: Problem | undefined
  busy: boolean
  again: () => void
}

/** Read a view when the question changes, and when asked to read it again. */
export function useReading(view: string, query: Query): Reading {
  const key = `${view}?${new URLSearchParams(query)}`
  const [held, hold] = useState<{ key: string; data?: Json; problem?: Problem }>({ key: '' })
  const [turn, setTurn] = useState(0)
  const [busy, setBusy] = useState(true)
  useEffect(() => {
    const stop = new AbortController()
    setBusy(true)
    read(view, query, stop.signal)
      .then((data) => hold({ key, data }))
      .catch((error: unknown) => {
        if (!stop.signal.aborted) hold({ key, problem: error instanceof Problem ? error : new Problem(String(error)) })
      })
      .finally(() => !stop.signal.aborted && setBusy(false))
    return () => stop.abort()
  }, [key, turn])
  const current = held.key === key ? held : { key }
  return { data: current.data, problem: current.problem, busy, again: () => setTurn((count) => count + 1) }
}

/** A title with a button that reads again, and below it what was read or why it could not be. */
export function Panel({
  title,
  reading,
  level = 1,
  children,
}: {
  title: string
  reading: Reading
  level?: 1 | 2
  children: (data: Json) => ComponentChildren
}) {
  const Heading = level === 1 ? 'h1' : 'h2'
  return (
    <section aria-busy={reading.busy}>
      <div class="title">
        <Heading>{title}</Heading>
        <button type="button" class="quiet" onClick={reading.again}>
          Refresh
        </button>
      </div>
      {reading.problem && <Trouble problem={reading.problem} />}
      {reading.data ? children(reading.data) : !reading.problem && <p role="status">Reading…</p>}
    </section>
  )
}

export function Trouble({ problem }: { problem: Problem }) {
  return (
    <div class="trouble" role="alert">
      <p>{problem.message}</p>
      {problem.request && (
        <p class="trace">
          request <code>{problem.request}</code>
        </p>
      )}
    </div>
  )
}

// --- values

export const text = (value: unknown): string => (value === null || value === undefined ? '' : String(value))
export const list = (value: unknown): Json[] => (Array.isArray(value) ? (value as Json[]) : [])
export const object = (value: unknown): Json => (value && typeof value === 'object' ? (value as Json) : {})

export function Time({ at }: { at: unknown }) {
  useChoices()
  if (typeof at !== 'string') return <span class="none">–</span>
  return <time dateTime={at}>{wholeMoment(Date.parse(at)).slice(0, 19)}</time>
}

export function State({ good, children }: { good: boolean; children: ComponentChildren }) {
  return <span class={good ? undefined : 'bad'}>{children}</span>
}

/** JSON that is shown on demand. */
export function Details({ name, of }: { name: string; of: unknown }) {
  return (
    <details>
      <summary>{name}</summary>
      <pre tabIndex={0}>{JSON.stringify(of, null, 2)}</pre>
    </details>
  )
}

// --- tables

export type Column = [heading: string, cell: (row: Json) => ComponentChildren, kind?: 'number']

export function Table({ name, columns, rows, empty = 'None.' }: { name: string; columns: Column[]; rows: Json[]; empty?: string }) {
  if (!rows.length) return <p class="none">{empty}</p>
  return (
    <div class="scrolls" role="region" aria-label={name} tabIndex={0}>
      <table class="listing">
        <thead>
          <tr>
            {columns.map(([heading, , kind]) => (
              <th scope="col" class={kind} key={heading}>
                {heading}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, number) => (
            <tr key={text(row['id'] ?? row['client_id'] ?? row['name'] ?? number)}>
              {columns.map(([heading, cell, kind]) => (
                <td class={kind} key={heading}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

export function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {of.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}

export function Pages({ place, next }: { place: Place; next: unknown }) {
  const { cursor, ...rest } = place.query
  return (
    <nav class="pages" aria-label="Pages">
      {cursor && <a href={href(place.view, rest)}>First page</a>}
      {typeof next === 'string' ? (
        <a class="next-page" href={href(place.view, { ...rest, cursor: next })}>
          Next page →
        </a>
      ) : (
        <span>End of the list.</span>
      )}
    </nav>
  )
}
