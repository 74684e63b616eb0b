// Entering a client's id and secret, or a token.
import { useEffect, useRef, useState } from 'preact/hooks'
import { Advice, titleOf, Trace } from './parts'
import { BASE, enterClient, enterToken, Problem, type Way } from './session'

export function SignIn({ ended }: { ended: Problem | null }) {
  const [how, choose] = useState<'client' | 'token'>('client')
  const [problem, meet] = useState<Problem | null>(ended)
  const [busy, setBusy] = useState(false)
  const first = useRef<HTMLInputElement>(null)
  useEffect(() => first.current?.focus(), [how])

  const enter = async (event: SubmitEvent) => {
    event.preventDefault()
    const sent = new FormData(event.currentTarget as HTMLFormElement)
    const text = (name: string) => String(sent.get(name) ?? '').trim()
    setBusy(true)
    meet(null)
    try {
      if (how === 'token') await enterToken(text('token'))
      else await enterClient({ id: text('id'), secret: text('secret'), way: text('way') as Way })
    } catch (found) {
      meet(found instanceof Problem ? found : new Problem('failing', String(found)))
      setBusy(false)
      first.current?.focus()
    }
  }

  return (
    <main class="sign-in" id="main">
      <header>
        <Brand />
        <h1>Sign in</h1>
        <p class="where">
          to an account of <code>{BASE}</code>
        </p>
      </header>
      <div role="alert">
        {problem && (
          <div class="trouble">
            <h2>{titleOf(problem)}</h2>
            <Advice problem={problem} />
            <Trace problem={problem} />
          </div>
        )}
      </div>
      <form onSubmit={enter} autoComplete="off">
        <fieldset class="choice">
          <legend class="unseen">Sign in with</legend>
          {(['client', 'token'] as const).map((each) => (
            <label key={each}>
              <input type="radio" name="how" value={each} checked={how === each} onChange={() => choose(each)} />
              <span>{each === 'client' ? 'Client credentials' : 'Access token'}</span>
            </label>
          ))}
        </fieldset>
        {how === 'client' ? (
          <>
            <label class="field">
              <span>Client ID</span>
              <input
                ref={first}
                name="id"
                required
                spellcheck={false}
                autoComplete="off"
                autoCapitalize="off"
                placeholder="cli_…"
              />
            </label>
            <label class="field">
              <span>Client secret</span>
              <input name="secret" type="password" required autoComplete="off" placeholder="gps_…" />
            </label>
            <label class="field">
              <span>Authentication method</span>
              <select name="way">
                <option value="client_secret_basic">client_secret_basic (default)</option>
                <option value="client_secret_post">client_secret_post</option>
              </select>
            </label>
          </>
        ) : (
          <label class="field">
            <span>Token</span>
            <input ref={first} name="token" type="password" required autoComplete="off" placeholder="eyJ…" />
          </label>
        )}
        <button type="submit" class="main" disabled={busy}>
          {busy ? 'Signing in…' : 'Sign in'}
        </button>
      </form>
      <p class="note">
        The scope <code>gatepost:deliveries</code> is required. What else you can do depends on the other scopes of the
        client. The secret is never stored. The token is kept in this tab until you sign out, close the tab, or it expires.
      </p>
    </main>
  )
}

export function Brand() {
  return (
    <span class="brand">
      <svg viewBox="0 0 20 20" width="20" height="20" aria-hidden>
        <path d="M5 2v16M15 2v16" stroke="currentColor" stroke-width="2.4" stroke-linecap="round" />
        <path class="bars" d="M5 7h10M5 13h10" stroke-width="1.8" />
      </svg>
      <span>Gatepost</span>
    </span>
  )
}
