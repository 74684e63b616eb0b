// Where one is, kept in the address after the #: it can be shared, and never holds more than the names below.
import { useEffect, useState } from 'preact/hooks'

export const FILTERS = [
  'status',
  'event_type',
  'endpoint_id',
  'subscription_id',
  'event_id',
  'id',
  'response_code',
  'failure',
  'created_after',
  'created_before',
  'due_before',
] as const
const NAMES: Record<string, readonly string[]> = {
  health: ['range'],
  deliveries: [...FILTERS, 'order', 'limit', 'cursor'],
  delivery: ['id'],
  endpoint: ['id', 'range'],
  access: ['client'],
}

export type Filter = (typeof FILTERS)[number]
export type Query = Record<string, string>

export interface Place {
  view: 'health' | 'deliveries' | 'delivery' | 'endpoint' | 'access'
  query: Query
}

export function place(hash: string): Place {
  const [path = '', rest = ''] = hash.replace(/^#\/?/, '').split('?', 2)
  const view = Object.hasOwn(NAMES, path) ? (path as Place['view']) : 'health'
  const sent = new URLSearchParams(rest)
  const query: Query = {}
  for (const name of NAMES[view] ?? []) {
    const value = sent.get(name)?.trim()
    if (value) query[name] = value
  }
  return { view, query }
}

export function href(view: Place['view'], query: Query = {}): string {
  const kept = (NAMES[view] ?? []).flatMap((name) => (query[name] ? [[name, query[name]]] : []))
  const text = new URLSearchParams(kept as [string, string][]).toString().replaceAll('%3A', ':')
  return `#/${view}${text ? `?${text}` : ''}`
}

export function go(view: Place['view'], query: Query = {}): void {
  location.hash = href(view, query)
}

let list = href('deliveries')

/** The list as it was seen last, with its filters. */
export const lastList = (): string => list

function here(): Place {
  const found = place(location.hash)
  if (found.view === 'deliveries') list = href('deliveries', found.query)
  return found
}

export function usePlace(): Place {
  const [found, find] = useState(here)
  useEffect(() => {
    const moved = () => find(here())
    window.addEventListener('hashchange', moved)
    return () => window.removeEventListener('hashchange', moved)
  }, [])
  return found
}
