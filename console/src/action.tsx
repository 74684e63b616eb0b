// Actions: a button that opens a dialog, which shows the requests that it sends and sends them when confirmed.
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { urlOf } from './api'
import { quoted } from './curl'
import { Advice, Copy, titleOf, Trace } from './parts'
import { readAllAgain } from './reading'
import { type Answer, type ApiRequest, allows, Problem, type Scope, send } from './session'

interface ButtonProps {
  /** The scope without which the action is not offered. */
  scope: Scope
  name: string
  look?: 'main' | 'danger' | ''
  children: (close: () => void) => ComponentChildren
}

export function ActionButton({ scope, name, look = '', children }: ButtonProps) {
  const [open, setOpen] = useState(false)
  if (!allows(scope)) return null
  return (
    <>
      <button type="button" class={look} aria-haspopup="dialog" onClick={() => setOpen(true)}>
        {name}
      </button>
      {open && children(() => setOpen(false))}
    </>
  )
}

export interface ActionProps {
  title: string
  /** The text of the button that confirms. */
  verb: string
  /** What is sent, in this order. Null while the fields are incomplete, with `missing` saying what is. */
  requests: ApiRequest[] | null
  missing?: string
  danger?: boolean
  wide?: boolean
  children?: ComponentChildren
  /** What is shown when all requests have succeeded. */
  result: (answers: Answer[]) => ComponentChildren
  close: () => void
}

/** A random value for the header Idempotency-Key. `randomUUID` exists only on pages that are served securely. */
const newKey = (): string =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('')

export function ActionDialog(props: ActionProps) {
  const { title, verb, requests, missing, danger, wide, children, result, close } = props
  const dialog = useRef<HTMLDialogElement>(null)
  const heading = useId()
  const keys = useRef(new Map<string, string>())
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState<Problem | null>(null)
  const [answers, setAnswers] = useState<Answer[] | null>(null)
  useEffect(() => {
    const leave = () => dialog.current?.close()
    dialog.current?.showModal()
    dialog.current?.querySelector<HTMLElement>('input, textarea, select, .buttons button')?.focus()
    window.addEventListener('hashchange', leave)
    return () => window.removeEventListener('hashchange', leave)
  }, [])

  useEffect(() => {
    if (answers) dialog.current?.querySelector<HTMLElement>('.buttons button')?.focus()
  }, [answers])

  const closed = () => {
    if (answers) readAllAgain() // not before, because the page behind may no longer have this dialog
    close()
  }
  const keyed = requests?.map((request) => withKey(request, keys.current)) ?? null
  const confirm = async (event: SubmitEvent) => {
    event.preventDefault()
    if (!keyed || busy) return
    setBusy(true)
    setProblem(null)
    try {
      const got: Answer[] = []
      for (const request of keyed) got.push(await send(request))
      setAnswers(got)
    } catch (error) {
      setProblem(error instanceof Problem ? error : new Problem('failing', String(error)))
    }
    setBusy(false)
  }
  return (
    <dialog ref={dialog} class={`action${wide ? ' wide' : ''}`} aria-labelledby={heading} onClose={closed}>
      <h2 id={heading}>{title}</h2>
      {answers ? (
        <>
          <div role="status" class="result">
            {result(answers)}
          </div>
          <div class="buttons">
            <button type="button" class="main" onClick={() => dialog.current?.close()}>
              Close
            </button>
          </div>
        </>
      ) : (
        <form onSubmit={confirm} autoComplete="off">
          {children}
          <div role="alert">
            {problem && (
              <div class="trouble">
                <h3>{titleOf(problem)}</h3>
                <Advice problem={problem} />
                <Trace problem={problem} />
                {problem.kind === 'away' && <p>You can safely repeat it: it has the same key, so it takes effect only once.</p>}
              </div>
            )}
          </div>
          {keyed ? <RequestPreview requests={keyed} /> : <p class="missing">{missing}</p>}
          <div class="buttons">
            <button type="button" onClick={() => dialog.current?.close()}>
              Cancel
            </button>
            <button type="submit" class={danger ? 'danger main' : 'main'} disabled={!keyed || busy}>
              {busy ? 'Sending…' : problem ? `${verb} again` : verb}
            </button>
          </div>
        </form>
      )}
    </dialog>
  )
}

/** The request with its key, which stays the same until the request changes. The key of an event is its id. */
function withKey(request: ApiRequest, keys: Map<string, string>): ApiRequest {
  const content = JSON.stringify([request.path, request.body])
  if (!keys.has(content)) keys.set(content, newKey())
  const key = keys.get(content)!
  if (request.path === '/events') return { path: request.path, body: { specversion: '1.0', id: key, ...request.body } }
  return { ...request, key }
}

function RequestPreview({ requests }: { requests: ApiRequest[] }) {
  return (
    <section class="preview" aria-label="Request">
      <h3>
        {requests.length === 1 ? 'Request' : `${requests.length} requests`}
        <Copy text={requests.map(curlOf).join('\n')} label="Copy as a command, without the token">
          Copy as curl
        </Copy>
      </h3>
      {requests.map((request) => (
        <pre tabIndex={0} key={JSON.stringify(request.body)}>
          {`POST ${urlOf(request.path)}\n`}
          {request.key && `Idempotency-Key: ${request.key}\n`}
          {`\n${JSON.stringify(request.body, null, 2)}`}
        </pre>
      ))}
    </section>
  )
}

/** The request as a command. The token is read from the environment. */
function curlOf({ path, body, key }: ApiRequest): string {
  return [
    `curl -gi ${quoted(urlOf(path))} \\`,
    `  -H "Authorization: Bearer \${TOKEN:?set it to an access token}" \\`,
    "  -H 'Content-Type: application/json' \\",
    ...(key ? [`  -H 'Idempotency-Key: ${key}' \\`] : []),
    `  --data-binary ${quoted(JSON.stringify(body))}`,
    '',
  ].join('\n')
}

/** A secret that only this response contains. */
export function SecretOnce({ secret, name }: { secret: unknown; name: string }) {
  if (typeof secret !== 'string')
    return <p>The {name} was in the first response to this request, which was lost. Rotate it to get another.</p>
  return (
    <>
      <p>
        <b>This {name} is shown only once.</b> Copy it now.
      </p>
      <p class="secret">
        <code>{secret}</code>
        <Copy text={secret} label={`Copy the ${name}`}>
          Copy
        </Copy>
      </p>
    </>
  )
}
