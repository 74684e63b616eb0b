// The two charts of the health view, drawn by uPlot: attempts by the class of their answer, and how long they took.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import { isDark, useChoices, utc } from './choices'
import { count, duration, parts } from './figures'
import { go, type Query } from './route'
import type { Interval, Summary } from './types'

export type Size = 'minute' | 'hour' | 'day'
const SECONDS: Record<Size, number> = { minute: 60, hour: 3600, day: 86_400 }

interface ChartProps {
  summary: Summary
  interval: Size
  /** Filters of the deliveries that a click opens, beside the time. */
  filters?: Query
}

const CLASSES: Record<string, string> = {
  '2xx': 'delivered',
  '1xx': 'no final response',
  '3xx': 'redirects, not followed',
  '4xx': 'refused by the receiver',
  '5xx': 'receiver errors',
  none: 'no complete response',
  interrupted: 'worker lost',
  not_sent: 'claimed, never sent',
}
const PERCENTILES = { p50: 'median', p95: '95th percentile', p99: '99th percentile' } as const

// --- volume

export function VolumeChart({ summary, interval, filters = {} }: ChartProps) {
  const shown = Object.keys(CLASSES).filter((name) => name === '2xx' || summary.total.attempts[name])
  const [at, point] = useState<number | null>(null)
  const build = (look: Look): Built => {
    const lower: number[][] = []
    const upper: number[][] = []
    let base = summary.data.map(() => 0)
    for (const name of shown) {
      lower.push(base)
      base = base.map((sum, place) => sum + (summary.data[place]?.attempts[name] ?? 0))
      upper.push(base)
    }
    const bars = (place: number) =>
      uPlot.paths.bars!({
        size: [0.82, 64],
        disp: {
          y0: { unit: 1, values: () => lower[place]! },
          y1: { unit: 1, values: () => upper[place]! },
        },
      })
    const series = shown.map((name, place): uPlot.Series => ({
      label: name,
      fill: look.fill(name),
      width: 0,
      points: { show: false },
      paths: bars(place),
    }))
    return {
      data: upper,
      series,
      scale: { range: (_, __, max) => [0, Math.max(4, max * 1.08)] },
      axis: { values: (_, ticks) => ticks.map((each) => (Number.isInteger(each) ? count(each) : '')), size: 46 },
    }
  }
  const one = at === null ? null : summary.data[at]
  return (
    <figure class="chart" aria-labelledby="volume-title">
      <figcaption id="volume-title">
        Attempts <small>{one ? bucket(one, interval) : `by ${interval}`}</small>
      </figcaption>
      <Plot
        label={`Attempts by ${interval} and response class. Use the arrow keys to move, and Enter to open the deliveries of that ${interval}.`}
        summary={summary}
        interval={interval}
        filters={filters}
        build={build}
        point={point}
        version={shown.join()}
      />
      <dl class="legend">
        {shown.map((name) => (
          <div key={name}>
            <dt>
              <Swatch name={name} /> {name.replace('_', ' ')} <span class="meaning">{CLASSES[name]}</span>
            </dt>
            <dd>{count((one ?? summary.total).attempts[name] ?? 0)}</dd>
          </div>
        ))}
      </dl>
      <Table
        summary={summary}
        interval={interval}
        heads={shown}
        cell={(each, name) => count(each.attempts[name] ?? 0)}
      />
    </figure>
  )
}

// --- durations

export function LatencyChart({ summary, interval, filters = {} }: ChartProps) {
  const names = ['p50', 'p95', 'p99'] as const
  const [at, point] = useState<number | null>(null)
  const build = (look: Look): Built => {
    const values = names.map((name) => summary.data.map((each) => each.duration_ms[name]))
    const all = values.flat().filter((each): each is number => each !== null)
    const low = 10 ** Math.floor(Math.log10(Math.max(0.1, Math.min(...all))))
    const high = Math.max(low * 10, 10 ** Math.ceil(Math.log10(Math.max(1, ...all) * 1.02)))
    const decades = Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, place) => low * 10 ** place)
    return {
      data: values,
      series: names.map((name) => ({
        label: name,
        stroke: look.line(name),
        width: 1.75,
        dash: DASHES[name],
        points: { show: true, size: 5, fill: look.line(name) },
      })),
      scale: { distr: 3, range: () => [low, high] },
      axis: { splits: () => decades, filter: (_, ticks) => ticks, values: (_, ticks) => ticks.map(round), size: 54 },
    }
  }
  const one = at === null ? null : summary.data[at]
  return (
    <figure class="chart" aria-labelledby="latency-title">
      <figcaption id="latency-title">
        Response times of answered attempts <small>{one ? bucket(one, interval) : 'logarithmic scale'}</small>
      </figcaption>
      <Plot
        label={`Response times of answered attempts by ${interval}: p50, p95 and p99. Use the arrow keys to move.`}
        summary={summary}
        interval={interval}
        filters={filters}
        build={build}
        point={point}
        version=""
      />
      <dl class="legend">
        {names.map((name) => {
          const ms = (one ?? summary.total).duration_ms[name]
          return (
            <div key={name}>
              <dt>
                <Stroke name={name} /> {name} <span class="meaning">{PERCENTILES[name]}</span>
              </dt>
              <dd>{ms === null ? '–' : duration(ms)}</dd>
            </div>
          )
        })}
      </dl>
      <Table
        summary={summary}
        interval={interval}
        heads={names}
        cell={(each, name) => {
          const ms = each.duration_ms[name as 'p50']
          return ms === null ? '–' : duration(ms)
        }}
      />
    </figure>
  )
}

/** A whole decade of milliseconds. */
const round = (ms: number): string => (ms < 1000 ? `${+ms.toPrecision(1)} ms` : `${Math.round(ms / 1000)} s`)

const DASHES: Record<string, number[]> = { p50: [], p95: [7, 4], p99: [2, 3] }

// --- a plot

interface Look {
  line: (name: string) => string
  fill: (name: string) => string | CanvasPattern
  text: string
  grid: string
}

interface Built {
  data: (number | null)[][]
  series: uPlot.Series[]
  scale: uPlot.Scale
  axis: uPlot.Axis
}

interface PlotParts extends ChartProps {
  label: string
  build: (look: Look) => Built
  point: (place: number | null) => void
  /** Which series there are: with others it is made anew. */
  version: string
}

const HEIGHT = 208

function Plot({ label, summary, interval, filters = {}, build, point, version }: PlotParts) {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const { theme } = useChoices()
  const dark = isDark()
  const starts = useMemo(() => summary.data.map((each) => Date.parse(each.start) / 1000), [summary])
  const half = SECONDS[interval] / 2

  useEffect(() => {
    const holder = box.current!
    const look = looks(holder)
    const built = build(look)
    const font = `12px ${getComputedStyle(holder).fontFamily}`
    const axis: uPlot.Axis = { stroke: look.text, font, grid: { stroke: look.grid, width: 1 }, ticks: { show: false } }
    const made = new uPlot(
      {
        width: holder.clientWidth,
        height: HEIGHT,
        padding: [10, 18, 0, 0],
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
        tzDate: (at) => (utc() ? uPlot.tzDate(new Date(at * 1000), 'Etc/UTC') : new Date(at * 1000)),
        scales: { x: { time: true, range: (_, min, max) => [min - half, max + half] }, y: built.scale },
        axes: [
          { ...axis, grid: { show: false }, size: 28, space: 64, values: (_, ticks) => days(ticks, interval) },
          { ...axis, ...built.axis, gap: 6 },
        ],
        series: [{}, ...built.series],
        hooks: { setCursor: [(self) => point(self.cursor.idx ?? null)] },
      },
      [starts.map((each) => each + half), ...built.data] as uPlot.AlignedData,
      holder,
    )
    made.over.addEventListener('click', () => open(summary.data[made.cursor.idx ?? -1], interval, filters))
    made.over.addEventListener('mouseleave', () => point(null))
    const before = plot.current?.cursor.idx
    plot.current = made
    if (before != null && starts[before]) made.setCursor({ left: made.valToPos(starts[before] + half, 'x'), top: 0 })
    const watch = new ResizeObserver(() => made.setSize({ width: holder.clientWidth, height: HEIGHT }))
    watch.observe(holder)
    return () => {
      watch.disconnect()
      made.destroy()
    }
  }, [summary, theme, dark, version, utc()])

  const press = (event: KeyboardEvent) => {
    const made = plot.current
    if (!made) return
    const last = starts.length - 1
    const here = made.cursor.idx ?? (event.key === 'ArrowLeft' ? last + 1 : -1)
    if (event.key === 'Enter') return open(summary.data[here], interval, filters)
    if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return
    event.preventDefault()
    const next = Math.min(last, Math.max(0, here + (event.key === 'ArrowLeft' ? -1 : 1)))
    made.setCursor({ left: made.valToPos(starts[next]! + half, 'x'), top: 0 })
    point(next)
  }
  return (
    <div
      class="plot"
      ref={box}
      role="application"
      aria-label={label}
      tabIndex={0}
      onKeyDown={press}
      onBlur={() => point(null)}
    />
  )
}

/** The deliveries that were made in an interval. */
function open(one: Interval | undefined, interval: Size, filters: Query): void {
  if (!one) return
  const end = Date.parse(one.start) + SECONDS[interval] * 1000
  const plain = (at: number) => new Date(at).toISOString().replace('.000Z', 'Z')
  go('deliveries', { ...filters, created_after: plain(Date.parse(one.start)), created_before: plain(end) })
}

function days(ticks: number[], interval: Size): string[] {
  let before = ''
  return ticks.map((each) => {
    const { day, time } = parts(each * 1000)
    const shown =
      interval === 'day' || (day !== before && before) || time === '00:00:00' ? day.slice(5) : time.slice(0, 5)
    before = day
    return shown
  })
}

function bucket(one: Interval, interval: Size): string {
  const at = Date.parse(one.start)
  const { day, time } = parts(at)
  if (interval === 'day') return `${day}${time === '00:00:00' ? '' : ` from ${time.slice(0, 5)}`}`
  return `${day} ${time.slice(0, 5)} to ${parts(at + SECONDS[interval] * 1000).time.slice(0, 5)}`
}

// --- looks: colours come from the stylesheet, and failures have a texture beside their colour

const TEXTURES: Record<string, 'plain' | 'up' | 'down' | 'dots'> = {
  '4xx': 'up',
  none: 'down',
  interrupted: 'dots',
  not_sent: 'dots',
}

function looks(element: HTMLElement): Look {
  const style = getComputedStyle(element)
  const colour = (name: string) => resolved(style.getPropertyValue(`--${name}`), element)
  return {
    line: (name) => colour(`line-${name}`),
    fill: (name) => textured(colour(`class-${name.replace('_', '-')}`), TEXTURES[name] ?? 'plain'),
    text: colour('ink-2'),
    grid: colour('rule'),
  }
}

/** A canvas does not know light-dark(): have the page work it out. */
function resolved(value: string, element: HTMLElement): string {
  const probe = document.createElement('span')
  probe.style.color = value
  element.append(probe)
  const found = getComputedStyle(probe).color
  probe.remove()
  return found
}

function textured(colour: string, texture: string): string | CanvasPattern {
  if (texture === 'plain') return colour
  const tile = document.createElement('canvas')
  const size = 6 * Math.max(1, Math.round(devicePixelRatio))
  tile.width = tile.height = size
  const pen = tile.getContext('2d')!
  pen.fillStyle = colour
  pen.globalAlpha = 0.28
  pen.fillRect(0, 0, size, size)
  pen.globalAlpha = 1
  pen.strokeStyle = colour
  pen.lineWidth = size / 3.4
  if (texture === 'dots') pen.fillRect(size / 3, size / 3, size / 2.6, size / 2.6)
  else {
    if (texture === 'down') pen.setTransform(1, 0, 0, -1, 0, size)
    for (const shift of [-size, 0, size]) {
      pen.beginPath()
      pen.moveTo(shift, size)
      pen.lineTo(shift + size, 0)
      pen.stroke()
    }
  }
  return pen.createPattern(tile, 'repeat') ?? colour
}

function Swatch({ name }: { name: string }) {
  return <span class={`swatch class-${name.replace('_', '-')} ${TEXTURES[name] ?? 'plain'}`} aria-hidden />
}

function Stroke({ name }: { name: string }) {
  return (
    <svg class={`stroke line-${name}`} viewBox="0 0 22 8" width="22" height="8" aria-hidden>
      <path d="M0 4h22" stroke="currentColor" stroke-width="2" stroke-dasharray={DASHES[name]?.join(' ')} />
    </svg>
  )
}

// --- the same figures as a table

interface TableParts {
  summary: Summary
  interval: Size
  heads: readonly string[]
  cell: (one: Interval, name: string) => string
}

function Table({ summary, interval, heads, cell }: TableParts) {
  return (
    <details class="as-table">
      <summary>As a table</summary>
      <div class="scrolls" tabIndex={0} role="region" aria-label="The figures of the chart">
        <table>
          <thead>
            <tr>
              <th scope="col">{interval}</th>
              {heads.map((name) => (
                <th scope="col" class="number" key={name}>
                  {name.replace('_', ' ')}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {summary.data.map((each) => (
              <tr key={each.start}>
                <th scope="row">{bucket(each, interval)}</th>
                {heads.map((name) => (
                  <td class="number" key={name}>
                    {cell(each, name)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  )
}
