// The operator's view: the sign-in, and what frames every view. It reads, and changes nothing.
import { render } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { choose, useChoices, wear } from '../choices'
import { AccountView } from './account'
import { Trouble } from './parts'
import { href, type Place, usePlace } from './route'
import { Problem, signIn, signOut, useSession } from './session'
import { Accounts, EntryView, Overview } from './views'
import '../style/base.css'
import '../style/frame.css'
import './operator.css'

const TITLES: Record<Place['view'], string> = {
  overview: 'Overview',
  accounts: 'Accounts',
  account: 'Account',
  entry: 'Entry',
}

function Operator() {
  const { signedIn, ended } = useSession()
  const place = usePlace()
  useEffect(() => {
    document.title = `${signedIn ? TITLES[place.view] : 'Sign in'} · Gatepost operator`
  }, [place.view, signedIn])
  return (
    <>
      {signedIn ? <Signed place={place} /> : <SignIn ended={ended} />}
      <footer class="foot">
        <span class="of">This view only reads.</span>
        <Choices />
      </footer>
    </>
  )
}

function Signed({ place }: { place: Place }) {
  const main = useRef<HTMLElement>(null)
  const first = useRef(true)
  useEffect(() => {
    if (!first.current) main.current?.focus({ preventScroll: true })
    first.current = false
  }, [place.view])
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        Skip to content
      </a>
      <header class="head">
        <a class="home" href={href('overview')} aria-label="Gatepost operator, overview">
          <Brand />
        </a>
        <nav aria-label="Views">
          {(['overview', 'accounts'] as const).map((view) => (
            <a href={href(view)} aria-current={place.view === view ? 'page' : undefined} key={view}>
              {TITLES[view]}
            </a>
          ))}
        </nav>
        <Find />
        <button type="button" class="quiet" onClick={signOut} title="Discard the token">
          Sign out
        </button>
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        {place.view === 'overview' && <Overview />}
        {place.view === 'accounts' && <Accounts place={place} />}
        {place.view === 'account' && <AccountView place={place} key={place.query['account']} />}
        {place.view === 'entry' && <EntryView place={place} />}
      </main>
    </>
  )
}

/** Opens an entry by its id, or an account by its name or id. */
function Find() {
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    const form = event.currentTarget as HTMLFormElement
    const found = String(new FormData(form).get('find') ?? '').trim()
    if (found) location.hash = found.startsWith('evt_') ? href('entry', { id: found }) : href('account', { account: found })
    form.reset()
  }
  return (
    <form class="find" role="search" onSubmit={submit} autoComplete="off">
      <input name="find" aria-label="Open an account or an entry" placeholder="account or evt_…" spellcheck={false} />
    </form>
  )
}

function SignIn({ ended }: { ended: Problem | null }) {
  const [problem, meet] = useState<Problem | null>(ended)
  const [busy, setBusy] = useState(false)
  const field = useRef<HTMLInputElement>(null)
  useEffect(() => field.current?.focus(), [])
  const enter = async (event: SubmitEvent) => {
    event.preventDefault()
    setBusy(true)
    meet(null)
    try {
      await signIn(field.current?.value.trim() ?? '')
    } catch (error) {
      meet(error instanceof Problem ? error : new Problem(String(error)))
      setBusy(false)
      field.current?.focus()
    }
  }
  return (
    <main class="sign-in" id="main">
      <header>
        <Brand />
        <h1>Operator sign-in</h1>
        <p class="where">reads all accounts</p>
      </header>
      {problem && <Trouble problem={problem} />}
      <form onSubmit={enter} autoComplete="off">
        <label class="field">
          <span>Operator token</span>
          <input ref={field} name="token" type="password" required autoComplete="off" placeholder="gpo_…" />
        </label>
        <button type="submit" class="main" disabled={busy}>
          {busy ? 'Signing in…' : 'Sign in'}
        </button>
      </form>
      <p class="note">
        The command <code>gatepost operator token</code> creates a token. The token stays in this tab until you close it or
        sign out.
      </p>
    </main>
  )
}

function Choices() {
  const { theme, utc } = useChoices()
  return (
    <>
      <fieldset class="choice small">
        <legend>Times</legend>
        {[false, true].map((each) => (
          <label key={String(each)}>
            <input type="radio" name="zone" checked={utc === each} onChange={() => choose({ utc: each })} />
            <span>{each ? 'UTC' : 'Local'}</span>
          </label>
        ))}
      </fieldset>
      <fieldset class="choice small">
        <legend>Colors</legend>
        {(['auto', 'light', 'dark'] as const).map((each) => (
          <label key={each}>
            <input type="radio" name="theme" checked={theme === each} onChange={() => choose({ theme: each })} />
            <span>{each[0]!.toUpperCase() + each.slice(1)}</span>
          </label>
        ))}
      </fieldset>
    </>
  )
}

function Brand() {
  return (
    <span class="brand">
      <svg viewBox="0 0 20 20" width="20" height="20" aria-hidden>
        <path d="M5 2v16M15 2v16" stroke="currentColor" stroke-width="2.4" stroke-linecap="round" />
        <path class="bars" d="M5 7h10M5 13h10" stroke-width="1.8" />
      </svg>
      <span>Gatepost operator</span>
    </span>
  )
}

wear()
render(<Operator />, document.getElementById('console')!)
