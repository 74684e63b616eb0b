// What was sent: the body, the headers, and the whole as a command.
import { useMemo } from 'preact/hooks'
import { curl, headers } from './curl'
import { Copy } from './parts'
import type { Delivery, Endpoint } from './types'

export function Sent({ record, endpoint, payload }: { record: Delivery; endpoint: Endpoint | null; payload: unknown }) {
  const last = record.attempts.findLast((each) => each.outcome !== 'not_sent')
  const body = useMemo(() => (payload == null ? null : JSON.stringify(payload)), [payload])
  return (
    <section class="sent" aria-labelledby="sent-title">
      <h2 id="sent-title">
        {last ? 'Request' : 'Planned request'}
        {body !== null && (
          <Copy text={curl(record, endpoint, body)} label="Copy the request as a command">
            Copy as curl
          </Copy>
        )}
      </h2>
      <div class="two">
        <div>
          <h3>Headers</h3>
          <dl class="headers">
            {headers(record, endpoint, last?.started_at ?? null).map(([name, value, note]) => (
              <div key={name}>
                <dt>
                  <code>{name}</code>
                </dt>
                <dd>
                  <code>{value}</code>
                  {note && <small>{note}</small>}
                </dd>
              </div>
            ))}
          </dl>
        </div>
        <div>
          <h3>
            Payload
            {body !== null && <Copy text={body} label="Copy the payload" />}
          </h3>
          {body === null ? <p>The event is no longer retained.</p> : <Json value={payload} />}
        </div>
      </div>
    </section>
  )
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)/g

/** JSON with its parts told apart. */
function Json({ value }: { value: unknown }) {
  const text = JSON.stringify(value, null, 2)
  const found = []
  let from = 0
  for (const match of text.matchAll(TOKEN)) {
    const [whole, string, colon, word] = match
    found.push(text.slice(from, match.index))
    from = match.index + whole.length
    if (string && colon) found.push(<span class="key">{string}</span>, colon)
    else found.push(<span class={string ? 'text' : word ? 'word' : 'digits'}>{whole}</span>)
  }
  found.push(text.slice(from))
  return (
    <pre class="json" tabIndex={0} aria-label="Payload">
      {found}
    </pre>
  )
}
