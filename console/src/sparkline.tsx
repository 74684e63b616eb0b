// The attempts of the last hour by the minute, in the size of a word: succeeded below, failed on top.
import { count } from './figures'
import { outcomes } from './states'
import type { Summary } from './types'

const WIDTH = 122
const HEIGHT = 26

export function Sparkline({ hour }: { hour: Summary | undefined }) {
  if (!hour) return <div class="sparkline" />
  const minutes = hour.data.map((each) => outcomes({ ...hour, total: each }))
  const most = Math.max(4, ...minutes.map(({ succeeded, failed }) => succeeded + failed))
  const all = outcomes(hour)
  const step = WIDTH / Math.max(1, minutes.length)
  const height = (number: number) => (number ? Math.max(1.5, (number / most) * HEIGHT) : 0)
  return (
    <div class="sparkline">
      <svg
        width={WIDTH}
        height={HEIGHT}
        role="img"
        aria-label={`Last hour: ${count(all.succeeded)} attempts succeeded, ${count(all.failed)} failed`}
      >
        <line class="base" x1="0" x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} />
        {minutes.map(({ succeeded, failed }, place) => (
          <g key={place}>
            <rect
              class="succeeded"
              x={place * step}
              y={HEIGHT - height(succeeded)}
              width={step - 0.5}
              height={height(succeeded)}
            />
            <rect
              class="failed"
              x={place * step}
              y={HEIGHT - height(succeeded) - height(failed)}
              width={step - 0.5}
              height={height(failed)}
            />
          </g>
        ))}
      </svg>
    </div>
  )
}
