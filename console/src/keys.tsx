// Keys that work everywhere but where one types, and the page that tells them.
import type { RefObject } from 'preact'
import { useEffect } from 'preact/hooks'
import { choose, useChoices } from './choices'
import { go, lastList, type Place } from './route'

const KEYS: [string, string][] = [
  ['1', 'health'],
  ['2', 'deliveries'],
  ['3', 'access'],
  ['j  k', 'next or previous row'],
  ['Enter', 'open the row'],
  ['Esc', 'back'],
  ['/', 'focus the first filter'],
  ['r', 'refresh'],
  ['l', 'turn live updates on or off'],
  ['?', 'show this list'],
]

export function useKeys(place: Place, help: RefObject<HTMLDialogElement | null>): void {
  const { live } = useChoices()
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return
      if ((event.target as HTMLElement).closest('input, select, textarea')) {
        if (event.key === 'Escape') (event.target as HTMLElement).blur()
        return
      }
      const act = ACTS[event.key]
      if (act) {
        event.preventDefault()
        act()
      }
    }
    const ACTS: Record<string, () => void> = {
      '1': () => go('health'),
      '2': () => go('deliveries'),
      '3': () => go('access'),
      j: () => step(1),
      k: () => step(-1),
      '/': () => document.querySelector<HTMLElement>('[data-first-filter]')?.focus(),
      r: () => document.querySelector<HTMLElement>('.live .quiet')?.click(),
      l: () => choose({ live: !live }),
      '?': () => help.current?.showModal(),
      Escape: () => {
        if (place.view === 'delivery') location.hash = lastList()
        if (place.view === 'endpoint') go('health')
      },
    }
    document.addEventListener('keydown', press)
    return () => document.removeEventListener('keydown', press)
  }, [place, live])
}

function step(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>('a.opens')]
  const here = rows.indexOf(document.activeElement as HTMLElement)
  const next = here < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, here + by))
  rows[next]?.focus()
}

export function Keys({ dialog }: { dialog: RefObject<HTMLDialogElement | null> }) {
  return (
    <dialog ref={dialog} aria-labelledby="keys-title">
      <h2 id="keys-title">Keyboard shortcuts</h2>
      <dl>
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt>
              {key.split('  ').map((each) => (
                <kbd key={each}>{each}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <form method="dialog">
        <button type="submit">Close</button>
      </form>
    </dialog>
  )
}
