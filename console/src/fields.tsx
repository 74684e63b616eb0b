// The fields of the forms in dialogs, and how their text becomes the members of a request.
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import type { Members } from './api'

interface Common {
  label: string
  hint?: ComponentChildren
}

interface TextProps extends Common {
  value: string
  set: (value: string) => void
  placeholder?: string
  required?: boolean
  type?: 'text' | 'password' | 'datetime-local' | 'number'
  mono?: boolean
}

export function TextField({ label, hint, value, set, type = 'text', mono, ...rest }: TextProps) {
  return (
    <label class="field">
      <span>{label}</span>
      <input
        {...rest}
        {...({ type } as { type: 'text' })}
        class={mono ? 'mono' : ''}
        step={type === 'datetime-local' ? '1' : undefined}
        value={value}
        spellcheck={false}
        autoComplete="off"
        autoCapitalize="off"
        onInput={(event) => set(event.currentTarget.value)}
      />
      {hint && <small>{hint}</small>}
    </label>
  )
}

export function AreaField({ label, hint, value, set, placeholder, rows = 3 }: Omit<TextProps, 'type'> & { rows?: number }) {
  return (
    <label class="field">
      <span>{label}</span>
      <textarea
        rows={rows}
        value={value}
        placeholder={placeholder}
        spellcheck={false}
        onInput={(event) => set(event.currentTarget.value)}
      />
      {hint && <small>{hint}</small>}
    </label>
  )
}

interface SelectProps extends Common {
  value: string
  set: (value: string) => void
  options: readonly (readonly [value: string, name: string])[]
}

export function SelectField({ label, hint, value, set, options }: SelectProps) {
  return (
    <label class="field">
      <span>{label}</span>
      <select value={value} onChange={(event) => set(event.currentTarget.value)}>
        {options.map(([each, name]) => (
          <option value={each} key={each}>
            {name}
          </option>
        ))}
      </select>
      {hint && <small>{hint}</small>}
    </label>
  )
}

export function CheckField({ label, hint, value, set }: Common & { value: boolean; set: (value: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={value} onChange={(event) => set(event.currentTarget.checked)} />
      <span>
        {label}
        {hint && <small>{hint}</small>}
      </span>
    </label>
  )
}

// --- from text to members

/** The words of a text, separated by spaces, commas or lines. */
export const wordsOf = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean)

/** A number, null for an empty text, or the text itself, which the service refuses with a reason. */
export const numberOf = (text: string): number | string | null =>
  text.trim() === '' ? null : Number.isNaN(Number(text)) ? text.trim() : Number(text)

/** An object from lines such as `name: value`. */
export function pairsOf(text: string, separator: string): Record<string, string> {
  const lines = text.split('\n').filter((line) => line.trim())
  return Object.fromEntries(
    lines.map((line) => {
      const at = line.indexOf(separator)
      return at < 0 ? [line.trim(), ''] : [line.slice(0, at).trim(), line.slice(at + separator.length).trim()]
    }),
  )
}

/** The JSON object that a text contains; an empty text is an empty object, and null stands for anything else. */
export function objectOf(text: string): Members | null {
  if (!text.trim()) return {}
  try {
    const found: unknown = JSON.parse(text)
    return found !== null && typeof found === 'object' && !Array.isArray(found) ? (found as Members) : null
  } catch {
    return null
  }
}

/** The members of `after` that differ from `before`: only these are sent in a redefinition. */
export function changes(before: Members, after: Members): Members {
  const differs = ([name, value]: [string, unknown]) => JSON.stringify(value) !== JSON.stringify(before[name] ?? null)
  return Object.fromEntries(Object.entries(after).filter(differs))
}

/** The texts of a form, and for each name what a field needs to show and change it. */
export function useForm<Names extends string>(initial: Record<Names, string>) {
  const [values, setValues] = useState(initial)
  const bind = (name: Names) => ({
    value: values[name],
    set: (value: string) => setValues((before) => ({ ...before, [name]: value })),
  })
  return { values, bind }
}
