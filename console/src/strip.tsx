// All attempts on one line of time. Its scale is logarithmic: the first seconds and the last days both show.
import { useEffect, useRef, useState } from 'preact/hooks'
import { brief, markOf } from './marks'
import type { Delivery } from './types'

const TICKS: [number, string][] = [
  [1, '1s'],
  [10, '10s'],
  [60, '1m'],
  [600, '10m'],
  [3600, '1h'],
  [6 * 3600, '6h'],
  [86_400, '1d'],
  [3 * 86_400, '3d'],
  [7 * 86_400, '7d'],
  [30 * 86_400, '30d'],
]
const HEIGHT = 54
const LINE = 20
const EDGE = 10

export function Strip({ record, now }: { record: Delivery; now: number }) {
  const box = useRef<HTMLDivElement>(null)
  const [width, setWidth] = useState(0)
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(entry?.contentRect.width ?? 0))
    watch.observe(box.current!)
    return () => watch.disconnect()
  }, [])
  const start = Date.parse(record.created_at)
  const since = (at: string | number) => Math.max(0, (typeof at === 'number' ? at : Date.parse(at)) - start) / 1000
  const plan = record.status === 'held' ? [] : record.retries.plan // nothing is planned until the hold ends
  const points = [...record.attempts.map((each) => each.started_at), ...plan.map((each) => each.at)]
  if (points.length < 2) return <div ref={box} />
  const open = record.ended_at === null
  const last = Math.max(...points.map(since), record.ended_at ? since(record.ended_at) : 0, open ? since(now) : 0, 2)
  const x = (seconds: number) => EDGE + (Math.log1p(seconds) / Math.log1p(last)) * Math.max(0, width - 2 * EDGE)
  const here = x(since(now))
  let edge = -40
  const ticks = TICKS.filter(([seconds]) => {
    const fits = seconds < last && x(seconds) - edge > 34 && x(seconds) < width - 24
    if (fits) edge = x(seconds)
    return fits
  })
  return (
    <div class="strip" ref={box}>
      {width > 0 && (
        <svg
          width={width}
          height={HEIGHT}
          role="img"
          aria-label={`${record.attempts.length} attempts made, ${plan.length} planned, on a logarithmic time axis`}
        >
          <line class="line done" x1={EDGE} x2={open ? here : width - EDGE} y1={LINE} y2={LINE} />
          {open && <line class="line ahead" x1={here} x2={width - EDGE} y1={LINE} y2={LINE} />}
          {ticks.map(([seconds, said]) => (
            <g class="tick" key={said}>
              <line x1={x(seconds)} x2={x(seconds)} y1={LINE + 5} y2={LINE + 10} />
              <text x={x(seconds)} y={HEIGHT - 11} text-anchor="middle">
                {said}
              </text>
            </g>
          ))}
          {record.attempts.map((each) => (
            <circle
              class={`point is-${markOf(each)}`}
              cx={x(since(each.started_at))}
              cy={LINE}
              r="5.5"
              key={each.number}
            >
              <title>{`attempt ${each.number}: ${brief(each)}`}</title>
            </circle>
          ))}
          {plan.map((each) => (
            <circle class="point planned" cx={x(since(each.at))} cy={LINE} r="4.5" key={each.number}>
              <title>{`attempt ${each.number}, planned`}</title>
            </circle>
          ))}
          {open && (
            <g class="now">
              <line x1={here} x2={here} y1={4} y2={LINE + 12} />
              <text x={here} y={HEIGHT - 1} text-anchor={here > width - 40 ? 'end' : here < 40 ? 'start' : 'middle'}>
                now
              </text>
            </g>
          )}
        </svg>
      )}
    </div>
  )
}
