// Which events a subscription matches, by the rules of the service: types, and values at JSON pointers.
import type { Subscription } from './types'

export type Definition = Pick<Subscription, 'events' | 'filter'>

export const matches = (definition: Definition, type: string, data: unknown): boolean =>
  definition.events.some((pattern) => matchesType(pattern, type)) &&
  Object.entries(definition.filter).every(([pointer, value]) => valueAt(data, pointer) === value)

function matchesType(pattern: string, type: string): boolean {
  if (pattern === '*') return !/^(account|oauth|webhook)\./.test(type)
  return pattern.endsWith('.*') ? type.startsWith(pattern.slice(0, -1)) : pattern === type
}

/** The value at a JSON pointer (RFC 6901), or undefined. */
function valueAt(data: unknown, pointer: string): unknown {
  let found = data
  for (const part of pointer.split('/').slice(1)) {
    const name = part.replaceAll('~1', '/').replaceAll('~0', '~')
    if (Array.isArray(found)) found = /^(0|[1-9][0-9]*)$/.test(name) ? found[Number(name)] : undefined
    else if (found !== null && typeof found === 'object' && Object.hasOwn(found, name))
      found = (found as Record<string, unknown>)[name]
    else return undefined
  }
  return found
}

/** A filter from lines such as `/customer/country = "NL"`. A value that is not JSON is a string. */
export function filterOf(text: string): Definition['filter'] {
  const lines = text.split('\n').filter((line) => line.trim())
  return Object.fromEntries(
    lines.map((line) => {
      const [pointer = '', ...rest] = line.split('=')
      return [pointer.trim(), scalarOf(rest.join('=').trim())]
    }),
  )
}

function scalarOf(text: string): string | number | boolean | null {
  try {
    return JSON.parse(text) as string | number | boolean | null
  } catch {
    return text
  }
}

export const filterText = (filter: Definition['filter']): string =>
  Object.entries(filter)
    .map(([pointer, value]) => `${pointer} = ${JSON.stringify(value)}`)
    .join('\n')
