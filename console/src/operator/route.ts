// The place in the page, kept in the address after the #, so that it can be shared. It never contains the token.
import { useEffect, useState } from 'preact/hooks'
import type { Query } from './session'

export const VIEWS = ['overview', 'accounts', 'account', 'entry'] as const

export interface Place {
  view: (typeof VIEWS)[number]
  query: Query
}

export function href(view: Place['view'], query: Query = {}): string {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString()
  return `#/${view}${text ? `?${text}` : ''}`
}

function place(): Place {
  const [path = '', rest = ''] = location.hash.replace(/^#\/?/, '').split('?', 2)
  const view = VIEWS.find((each) => each === path) ?? 'overview'
  return { view, query: Object.fromEntries(new URLSearchParams(rest)) }
}

export function usePlace(): Place {
  const [found, find] = useState(place)
  useEffect(() => {
    const moved = () => find(place())
    window.addEventListener('hashchange', moved)
    return () => window.removeEventListener('hashchange', moved)
  }, [])
  return found
}
