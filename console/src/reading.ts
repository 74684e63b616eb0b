// Reading what a view shows: at once, again when asked, and by itself while it is live.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { type Problem, readText } from './session'

const SLOWEST = 30_000
const readers = new Set<() => void>()

/** Read everything that is shown again, after a change. */
export function readAllAgain(): void {
  for (const again of readers) again()
}

/** A number that changes when everything is to be read again. */
export function useVersion(): number {
  const [version, setVersion] = useState(0)
  useEffect(() => {
    const again = () => setVersion((count) => count + 1)
    readers.add(again)
    return () => void readers.delete(again)
  }, [])
  return version
}

export interface Reading<T> {
  data: T | undefined
  /** Whether `data` was read for an earlier question. */
  old: boolean
  problem: Problem | undefined
  busy: boolean
  /** When `data` was read, in milliseconds. */
  at: number
  again: () => void
}

interface Held<T> {
  key: string
  /** What was answered: as long as it is the same, `data` is the same object. */
  text?: string
  data?: T
  problem?: Problem | undefined
  at: number
}

/** `every`: milliseconds between two readings, or 0 for one only. `query` null: nothing is to be read. */
export function useReading<T>(
  query: Record<string, string> | null,
  every: number,
  parse: (text: string) => T = JSON.parse,
): Reading<T> {
  const key = query ? new URLSearchParams(query).toString() : ''
  const [held, hold] = useState<Held<T>>({ key: '', at: 0 })
  const [busy, setBusy] = useState(false)
  const [turn, setTurn] = useState(0)
  const version = useVersion()
  const failures = useRef(0)
  const again = useCallback(() => setTurn((count) => count + 1), [])

  useEffect(() => {
    if (!query) return
    const stop = new AbortController()
    let timer = 0
    const once = async () => {
      let refused = false // asked again it would be refused again, and each time be on record
      setBusy(true)
      try {
        const text = await readText(query, stop.signal)
        failures.current = 0
        if (stop.signal.aborted) return
        hold((before) => ({ key, text, data: before.text === text ? before.data! : parse(text), at: Date.now() }))
      } catch (problem) {
        if (stop.signal.aborted) return
        failures.current += 1
        refused = (problem as Problem).kind === 'refused'
        hold((before) => ({ ...before, problem: problem as Problem, key: before.data ? before.key : key }))
      }
      if (stop.signal.aborted) return
      setBusy(false)
      if (every && !refused)
        timer = window.setTimeout(next, Math.min(every * 2 ** failures.current, Math.max(SLOWEST, every)))
    }
    // Nobody looks at a hidden page: it is read again when it is shown.
    const next = () => {
      if (!document.hidden) return void once()
      document.addEventListener('visibilitychange', () => void once(), { once: true, signal: stop.signal })
    }
    void once()
    return () => {
      stop.abort()
      window.clearTimeout(timer)
    }
  }, [key, every, turn, version])

  return { data: held.data, old: held.key !== key, problem: held.problem, busy, at: held.at, again }
}
