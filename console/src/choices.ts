// How a person likes to see it: light or dark, local time or UTC, live or not. Nothing else is ever stored.
import { useEffect, useState } from 'preact/hooks'

export type Theme = 'auto' | 'light' | 'dark'

interface Choices {
  theme: Theme
  utc: boolean
  live: boolean
}

const KEY = 'gatepost-console'
const watchers = new Set<() => void>()
let choices: Choices = { theme: 'auto', utc: false, live: true, ...stored() }

function stored(): Partial<Choices> {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? '{}') as Partial<Choices>
    const theme = found.theme === 'light' || found.theme === 'dark' ? found.theme : 'auto'
    return { theme, utc: found.utc === true, live: found.live !== false }
  } catch {
    return {}
  }
}

export const utc = (): boolean => choices.utc

export function choose(some: Partial<Choices>): void {
  choices = { ...choices, ...some }
  try {
    localStorage.setItem(KEY, JSON.stringify(choices))
  } catch {
    // a browser that stores nothing forgets the choice with the page
  }
  wear()
  for (const watch of watchers) watch()
}

export function useChoices(): Choices {
  const [, draw] = useState(0)
  useEffect(() => {
    const watch = () => draw((times) => times + 1)
    const dark = matchMedia('(prefers-color-scheme: dark)')
    watchers.add(watch)
    dark.addEventListener('change', watch)
    return () => {
      watchers.delete(watch)
      dark.removeEventListener('change', watch)
    }
  }, [])
  return choices
}

export function isDark(): boolean {
  if (choices.theme !== 'auto') return choices.theme === 'dark'
  return matchMedia('(prefers-color-scheme: dark)').matches
}

/** Have the page look as chosen. */
export function wear(): void {
  if (choices.theme === 'auto') delete document.documentElement.dataset['theme']
  else document.documentElement.dataset['theme'] = choices.theme
}
