// Numbers, durations and times in words. Times are local or UTC, as the person chose.
import { useEffect, useState } from 'preact/hooks'
import { utc } from './choices'

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

export const count = (number: number): string => whole.format(number)

export const several = (number: number, one: string, many = `${one}s`): string =>
  `${count(number)} ${number === 1 ? one : many}`

/** A share in percent. It is never rounded to 100 or 0 when it is not. */
export function percent(share: number): string {
  if (share >= 1 || share <= 0) return share >= 1 ? '100' : '0'
  const shown = Math.floor(share * 10_000) / 100
  return Math.max(0.01, shown).toFixed(2)
}

/** Milliseconds as measured, to three digits. */
export function duration(ms: number): string {
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : ms.toFixed(0)} ms`
  return ms < 59_950 ? `${(ms / 1000).toFixed(ms < 9995 ? 2 : 1)} s` : span(ms)
}

/** A duration in its two largest units: below a minute in seconds, below a second in milliseconds. */
export function span(ms: number): string {
  if (ms < 1000) return ms ? `${Math.round(ms)}ms` : '0s'
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)}s`
  const seconds = Math.max(60, Math.floor(ms / 1000))
  const parts: [string, number][] = [
    ['d', Math.floor(seconds / 86_400)],
    ['h', Math.floor(seconds / 3600) % 24],
    ['m', Math.floor(seconds / 60) % 60],
    ['s', seconds % 60],
  ]
  const first = parts.findIndex(([, amount]) => amount > 0)
  const shown = parts.slice(first, first + 2).filter(([, amount]) => amount > 0)
  return shown.map(([unit, amount]) => `${amount}${unit}`).join(' ')
}

/** The same in one unit, for where seconds would only flicker. */
export const about = (ms: number): string => span(ms < 60_000 ? Math.floor(ms / 1000) * 1000 : ms).replace('.0s', 's')

/** How far away an instant is, in words. */
export function away(at: number, now: number): string {
  if (Math.abs(at - now) < 1000) return 'now'
  return at > now ? `in ${about(at - now)}` : `${about(now - at)} ago`
}

const two = (number: number): string => String(number).padStart(2, '0')

/** An instant as `2026-11-15 08:03:22.431`, in parts. */
export function parts(at: number): { day: string; time: string; ms: string } {
  const shift = utc() ? 0 : new Date(at).getTimezoneOffset() * 60_000
  const [day = '', rest = ''] = new Date(at - shift).toISOString().split('T')
  return { day, time: rest.slice(0, 8), ms: rest.slice(8, 12) }
}

/** `08:03:22` today, and `11-14 08:03` on another day of this year. */
export function moment(at: number, now: number): string {
  const shown = parts(at)
  const today = parts(now).day
  if (shown.day === today) return shown.time
  const day = shown.day.slice(0, 4) === today.slice(0, 4) ? shown.day.slice(5) : shown.day
  return `${day} ${shown.time.slice(0, 5)}`
}

export function wholeMoment(at: number): string {
  const shown = parts(at)
  return `${shown.day} ${shown.time}${shown.ms}`
}

/** The offset of the zone in which times are shown, as `UTC+01:00`. */
export function zone(): string {
  const minutes = utc() ? 0 : -new Date().getTimezoneOffset()
  if (!minutes) return 'UTC'
  const size = Math.abs(minutes)
  return `UTC${minutes < 0 ? '−' : '+'}${two(Math.floor(size / 60))}:${two(size % 60)}`
}

/** What a field of local time holds, for an instant as the address has it; and back. */
export function field(instant: string): string {
  const at = Date.parse(instant)
  if (Number.isNaN(at)) return ''
  const shown = parts(at)
  return `${shown.day}T${shown.time}`
}

export function instant(text: string): string {
  const at = Date.parse(utc() ? `${text}Z` : text)
  return Number.isNaN(at) ? '' : new Date(at).toISOString().replace('.000Z', 'Z')
}

/** Now, told again every second to everything that shows how long something is ago. */
export function useNow(every = 1000): number {
  const [now, tell] = useState(Date.now)
  useEffect(() => {
    const timer = window.setInterval(() => tell(Date.now()), every)
    return () => window.clearInterval(timer)
  }, [every])
  return now
}
