// The attempts, those made with where their time went, those planned with when and why.
import { about, away, duration, span } from './figures'
import { brief, Mark, markOf, statusWord } from './marks'
import { Time } from './parts'
import { PHASES, type Stretch, stretches } from './phases'
import type { Attempt, Delivery, Planned } from './types'
import words from './words.json'

const BECAUSE: Record<string, string> = words.because
const WAITED: Record<string, string> = { rate_limit: 'the rate limit', retry_after: 'the Retry-After', window: 'the window', turn: 'its turn' }

export function Timeline({ record, now }: { record: Delivery; now: number }) {
  const { attempts, retries } = record
  const longest = Math.max(1, ...attempts.map((each) => taken(each, now)))
  const timed = attempts.some((each) => stretches(each).length > 0)
  return (
    <>
      {timed && <PhaseKey longest={longest} />}
      <ol class="timeline">
        {attempts.map((each, place) => (
          <Made attempt={each} before={attempts[place - 1]} longest={longest} now={now} key={each.number} />
        ))}
        {retries.plan.map((each, place) => (
          <Coming
            planned={each}
            exact={place === 0 && record.status === 'pending'}
            held={record.status === 'held'}
            now={now}
            key={each.number}
          />
        ))}
        {record.ended_at && (
          <li class={`end is-${record.status}`}>
            <div class="rail">
              <Mark of={record.status} />
            </div>
            <div class="when">
              <Time at={record.ended_at} now={now} />
            </div>
            <div class="what">
              <p>
                <b>{statusWord(record.status)}</b> {record.ended_reason?.replaceAll('_', ' ')}
              </p>
            </div>
          </li>
        )}
      </ol>
    </>
  )
}

const taken = (attempt: Attempt, now: number): number =>
  attempt.duration_ms ?? (attempt.outcome === null ? Math.max(0, now - Date.parse(attempt.started_at)) : 0)

function PhaseKey({ longest }: { longest: number }) {
  return (
    <p class="phase-key">
      {PHASES.map((each) => (
        <span key={each}>
          <i class={`phase ${each.replace(' ', '-')}`} aria-hidden />
          {each}
        </span>
      ))}
      <span class="scale">full width is {duration(longest)}</span>
    </p>
  )
}

interface MadeProps {
  attempt: Attempt
  /** The attempt before it. */
  before: Attempt | undefined
  longest: number
  now: number
}

function Made({ attempt, before, longest, now }: MadeProps) {
  const { waited } = attempt
  const failed = attempt.outcome === 'failed'
  return (
    <li class={`made is-${markOf(attempt)}`}>
      <div class="rail">
        <Mark of={markOf(attempt)} />
      </div>
      <div class="when">
        <span class="which">Attempt {attempt.number}</span>
        <Time at={attempt.started_at} now={now} />
      </div>
      <div class="what">
        <p class="result">
          <b>{brief(attempt)}</b>
          {attempt.duration_ms !== null && <span class="took">{duration(attempt.duration_ms)}</span>}
          {attempt.outcome === null && <span class="took">for {about(taken(attempt, now))}</span>}
          {attempt.detail && <span class="detail">{attempt.detail}</span>}
          {attempt.outcome === 'interrupted' && (
            <span class="detail">worker lost: the receiver may have received the request</span>
          )}
          {attempt.outcome === 'not_sent' && (
            <span class="detail">claimed but never sent</span>
          )}
          {attempt.retry_after && <span class="detail">Retry-After: {attempt.retry_after}</span>}
        </p>
        <Bar attempt={attempt} longest={longest} now={now} />
        {failed && attempt.response && (
          <div class="response">
            <span>Response body</span>
            {before?.response === attempt.response ? (
              ` as in attempt ${before.number}`
            ) : (
              <pre tabIndex={0}>{attempt.response}</pre>
            )}
          </div>
        )}
        <details>
          <summary>
            Details<span class="unseen"> of attempt {attempt.number}</span>
          </summary>
          <dl class="small-facts">
            <Fact name="planned for">
              <Time at={attempt.planned_at} now={now} as="whole" />
            </Fact>
            <Fact name="waited">
              {waited.ms && WAITED[waited.for]
                ? `${span(waited.ms)} longer, for ${WAITED[waited.for]}`
                : 'not delayed'}
            </Fact>
            <Fact name="url">
              <code>{attempt.url}</code>
            </Fact>
            {attempt.remote_ip && (
              <Fact name="address">
                <code>{attempt.remote_ip}</code>
              </Fact>
            )}
            <Fact name="signed with">
              <code>{attempt.signed_with.join(', ')}</code>
            </Fact>
            <Fact name="worker">
              <code>{attempt.worker}</code>
            </Fact>
            {!(failed && attempt.response) && (
              <Fact name="response">{attempt.response ? <pre tabIndex={0}>{attempt.response}</pre> : 'no body'}</Fact>
            )}
          </dl>
        </details>
      </div>
    </li>
  )
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

function Bar({ attempt, longest, now }: { attempt: Attempt; longest: number; now: number }) {
  const found = stretches(attempt)
  if (!found.length && attempt.outcome !== null) return null
  const share = (ms: number) => `${Math.min(100, (ms / longest) * 100).toFixed(2)}%`
  return (
    <div class="bar">
      <div class="phases" aria-hidden>
        {found.map((each) => (
          <i
            class={`phase ${each.phase.replace(' ', '-')}${each.broken ? ' broken' : ''}`}
            style={{ width: share(each.to - each.from) }}
            key={each.phase + each.broken}
          />
        ))}
        {attempt.outcome === null && <i class="phase running" style={{ width: share(taken(attempt, now)) }} />}
      </div>
      <p class="timings">{found.map((each) => timing(each))}</p>
    </div>
  )
}

function timing(stretch: Stretch) {
  return (
    <span key={stretch.phase + stretch.broken} class={stretch.broken ? 'broken' : ''}>
      {stretch.broken ? `failed in ${stretch.phase}` : stretch.phase} <b>{duration(stretch.to - stretch.from)}</b>
    </span>
  )
}

function Coming({ planned, exact, held, now }: { planned: Planned; exact: boolean; held: boolean; now: number }) {
  const at = Date.parse(planned.at)
  return (
    <li class="coming">
      <div class="rail">
        <span class="ring" aria-hidden />
      </div>
      <div class="when">
        <span class="which">Attempt {planned.number}</span>
        {!held && <Time at={planned.at} now={now} />}
      </div>
      <div class="what">
        <p>
          <b>{held ? 'after the hold' : at <= now ? 'due' : exact ? away(at, now) : away(at, now).replace('in ', 'in about ')}</b>
          <span class="detail">{BECAUSE[planned.because] ?? planned.because}</span>
        </p>
      </div>
    </li>
  )
}
