// The health of the account: what needs attention, figures and charts of a range, and the endpoints.
import { ActionButton } from './action'
import { SendTestEvent } from './actions/events'
import { Attention } from './attention'
import { useChoices } from './choices'
import { Endpoints } from './endpoints'
import { Empty, Live, Stale, Trouble, Waiting } from './parts'
import { useReading } from './reading'
import type { Query } from './route'
import { INTAKE } from './session'
import { Charts, Figures, hasAttempts, Ranges, RANGES, rangeOf, useSummary } from './summary'
import type { Endpoint, Page } from './types'

const EVERY = 10_000

export function Health({ query, account }: { query: Query; account: string }) {
  const { live } = useChoices()
  const range = rangeOf(query)
  const reading = useSummary(range)
  const endpoints = useReading<Page<Endpoint>>({ view: 'endpoints', limit: '200' }, live ? EVERY : 0)
  const found = reading.data
  return (
    <>
      <div class="title">
        <h1>Health</h1>
        <Ranges view="health" query={query} range={range} />
        <Live reading={reading} />
      </div>
      <Stale reading={reading} />
      {!found && reading.problem && <Trouble problem={reading.problem} again={reading.again} />}
      {!found && !reading.problem && <Waiting />}
      {found && (
        <div aria-busy={reading.old}>
          {endpoints.data && (
            <Attention summary={found} endpoints={endpoints.data.data} more={!!endpoints.data.next_cursor} />
          )}
          <Figures summary={found} />
          {hasAttempts(found) ? <Charts summary={found} range={range} /> : <NoAttempts account={account} range={range} />}
        </div>
      )}
      {found && <Endpoints reading={endpoints} />}
    </>
  )
}

function NoAttempts({ account, range }: { account: string; range: string }) {
  return (
    <Empty title={`No attempts in the last ${RANGES[range]!.text}`}>
      <p>An event creates a delivery for each matching subscription. To create one, publish an event:</p>
      <pre
        tabIndex={0}
      >{`gatepost event publish --account ${account || 'NAME'} --type invoice.paid --data '{"invoice": 17}'`}</pre>
      {INTAKE && (
        <div class="actions">
          <ActionButton scope="gatepost:events" name="Send a test event">
            {(close) => <SendTestEvent close={close} />}
          </ActionButton>
        </div>
      )}
    </Empty>
  )
}
