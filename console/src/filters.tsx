// Every filter of the operation. A change goes into the address at once, and so into what is read.
import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { useChoices } from './choices'
import { count, field, instant, useNow, zone } from './figures'
import { Mark, statusWord } from './marks'
import { useReading } from './reading'
import { type Filter, FILTERS, go, href, place, type Query } from './route'
import type { Endpoint, Page, Status, Summary } from './types'
import words from './words.json'

const FIRST: Filter[] = ['status', 'event_type', 'endpoint_id', 'response_code', 'failure']
const CODES = ['2xx', '3xx', '4xx', '5xx', '400', '401', '403', '404', '410', '429', '500', '502', '503', '504']
const LIMITS = ['25', '50', '100', '200']

export function Filters({ query }: { query: Query }) {
  const further = [...FILTERS, 'limit'].some((name) => !FIRST.includes(name as Filter) && query[name])
  const [open, setOpen] = useState(further)
  const { cursor: _, ...kept } = query
  // From the address itself: two changes may come before the page is drawn again.
  const set = (name: string, value: string) =>
    go('deliveries', { ...place(location.hash).query, cursor: '', [name]: value })
  const part = { query, set }
  const counts = useCounts(query)
  return (
    <section class="filters" aria-label="Filters">
      <nav class="statuses" aria-label="Status">
        <a href={href('deliveries', { ...kept, status: '' })} aria-current={query['status'] ? undefined : 'true'}>
          All
        </a>
        {(Object.keys(words.statuses) as Status[]).map((each) => (
          <a
            key={each}
            class={`is-${each}`}
            href={href('deliveries', { ...kept, status: each })}
            aria-current={query['status'] === each ? 'true' : undefined}
          >
            <Mark of={each} />
            {statusWord(each)}
            {counts && <small>{counts[each]}</small>}
          </a>
        ))}
        {counts && <small class="note">Ended deliveries are those of the last 24 hours.</small>}
      </nav>
      <div class={`fields${open ? '' : ' few'}`}>
        <Text {...part} name="event_type" label="Event type" placeholder="invoice.paid" first />
        <EndpointField {...part} />
        <Text {...part} name="response_code" label="Last code" placeholder="503 or 5xx" options={CODES} short />
        <Select
          {...part}
          name="failure"
          label="Last failure"
          options={words.failures.map((each) => [each, each.replace('_', ' ')])}
        />
        <Select
          {...part}
          name="order"
          label="Order"
          empty={query['due_before'] ? 'earliest due first' : 'newest first'}
          options={[[query['due_before'] ? 'newest' : 'oldest', query['due_before'] ? 'latest due first' : 'oldest first']]}
        />
        <button type="button" class="quiet" aria-expanded={open} aria-controls="further" onClick={() => setOpen(!open)}>
          {open ? 'Fewer filters' : 'More filters'}
        </button>
        {FILTERS.some((name) => query[name]) && (
          <a class="clear" href={href('deliveries')}>
            Clear
          </a>
        )}
      </div>
      <div class="fields" id="further" hidden={!open}>
        <When {...part} name="created_after" label="Created after" />
        <When {...part} name="created_before" label="Created before" />
        <When {...part} name="due_before" label="Due before" />
        <Text {...part} name="event_id" label="Event ID" placeholder="evt_…" />
        <Text {...part} name="subscription_id" label="Subscription ID" placeholder="sub_…" />
        <Text {...part} name="id" label="Delivery ID" placeholder="dlv_…" />
        <Select
          {...part}
          name="limit"
          label="Per page"
          empty="50"
          options={LIMITS.filter((each) => each !== '50').map((each) => [each, each])}
        />
      </div>
    </section>
  )
}

const ENDED: Record<string, Status> = {
  delivered: 'succeeded',
  attempts_exhausted: 'failed',
  endpoint_gone: 'failed',
  held_too_long: 'failed',
  endpoint_removed: 'cancelled',
  cancelled_by_operator: 'cancelled',
}

/** Counts for the tabs: of what waits now, and of what ended in the last 24 hours. Null if other filters apply. */
function useCounts(query: Query): Record<Status, string> | null {
  const { live } = useChoices()
  const hour = Math.floor(useNow(60_000) / 3_600_000)
  const endpoint = query['endpoint_id']
  const filtered = FILTERS.some((name) => name !== 'status' && name !== 'endpoint_id' && query[name])
  const created_after = new Date((hour - 23) * 3_600_000).toISOString()
  const asked = { view: 'summary', created_after, ...(endpoint && { endpoint_id: endpoint }) }
  const { data, old } = useReading<Summary>(filtered ? null : asked, live ? 10_000 : 0)
  if (!data || old || filtered) return null
  const { now, total } = data
  const counts = { pending: now.pending, held: now.held, in_flight: now.in_flight, succeeded: 0, failed: 0, cancelled: 0 }
  for (const [reason, number] of Object.entries(total.deliveries.ended)) {
    const status = ENDED[reason]
    if (status) counts[status] += number
  }
  const most = (number: number) => `${count(number)}${number === now.counted_to ? '+' : ''}`
  return Object.fromEntries(Object.entries(counts).map(([name, number]) => [name, most(number)])) as Record<Status, string>
}

interface Part {
  query: Query
  set: (name: string, value: string) => void
  name: string
  label: string
}

function Field({ label, set, children }: { label: string; set: boolean; children: ComponentChildren }) {
  return (
    <label class={`field${set ? ' set' : ''}`}>
      <span>{label}</span>
      {children}
    </label>
  )
}

const valueOf = (event: Event): string => (event.currentTarget as HTMLInputElement).value.trim()

interface TextPart extends Part {
  placeholder: string
  options?: string[]
  first?: boolean
  short?: boolean
}

function Text({ query, set, name, label, placeholder, options, first, short }: TextPart) {
  const list = options ? `options-of-${name}` : undefined
  const [typed, type] = useState('') // what is half typed is not undone when the page is drawn again
  useEffect(() => type(query[name] ?? ''), [query[name]])
  return (
    <Field label={label} set={!!query[name]}>
      <input
        class={short ? 'short' : ''}
        name={name}
        value={typed}
        onInput={(event) => type(event.currentTarget.value)}
        placeholder={placeholder}
        list={list}
        spellcheck={false}
        autoComplete="off"
        autoCapitalize="off"
        data-first-filter={first}
        onChange={(event) => set(name, valueOf(event))}
      />
      {options && (
        <datalist id={list}>
          {options.map((each) => (
            <option value={each} key={each} />
          ))}
        </datalist>
      )}
    </Field>
  )
}

interface SelectPart extends Part {
  options: [string, string][]
  empty?: string
}

function Select({ query, set, name, label, options, empty = 'any' }: SelectPart) {
  const value = query[name] ?? ''
  const known = !value || options.some(([each]) => each === value)
  return (
    <Field label={label} set={!!value}>
      <select name={name} value={value} onChange={(event) => set(name, valueOf(event))}>
        <option value="">{empty}</option>
        {!known && <option value={value}>{value}</option>}
        {options.map(([each, said]) => (
          <option value={each} key={each}>
            {said}
          </option>
        ))}
      </select>
    </Field>
  )
}

function When({ query, set, name, label }: Part) {
  return (
    <Field label={`${label} (${zone()})`} set={!!query[name]}>
      <input
        type="datetime-local"
        step="1"
        name={name}
        value={field(query[name] ?? '')}
        onChange={(event) => set(name, instant(valueOf(event)))}
      />
    </Field>
  )
}

/** A choice among the account's endpoints; where there are more than one page has, any id can be typed. */
function EndpointField(part: Omit<Part, 'name' | 'label'>) {
  const { data } = useReading<Page<Endpoint>>({ view: 'endpoints', limit: '200' }, 0)
  const name = 'endpoint_id'
  const label = 'Endpoint'
  if (data?.next_cursor)
    return <Text {...part} name={name} label={label} placeholder="ep_…" options={data.data.map((each) => each.id)} />
  const options = (data?.data ?? []).map((each): [string, string] => [
    each.id,
    each.description || each.url.replace(/^https?:\/\//, ''),
  ])
  return <Select {...part} name={name} label={label} options={options} />
}
