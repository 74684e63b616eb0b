// The page: who looks, where they are, and what frames every view.
import { render } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { Access } from './access'
import { choose, type Theme, useChoices, wear } from './choices'
import { Deliveries } from './deliveries'
import { DeliveryView } from './delivery'
import { EndpointView } from './endpoint'
import { zone } from './figures'
import { Health } from './health'
import { Keys, useKeys } from './keys'
import { href, type Place, usePlace } from './route'
import { BASE, leave, type Shown, useSession } from './session'
import { Brand, SignIn } from './signin'
import './style/base.css'
import './style/frame.css'
import './style/health.css'
import './style/list.css'
import './style/delivery.css'
import './style/endpoint.css'
import './style/access.css'
import './style/forms.css'

const TITLES: Record<Place['view'], string> = {
  health: 'Health',
  deliveries: 'Deliveries',
  delivery: 'Delivery',
  endpoint: 'Endpoint',
  access: 'Access',
}
/** A view that has no tab → the tab that is shown as current. */
const TABS: Partial<Record<Place['view'], Place['view']>> = { delivery: 'deliveries', endpoint: 'health' }

function Console() {
  const { session, ended } = useSession()
  const place = usePlace()
  useChoices()
  useEffect(() => {
    document.title = `${session ? TITLES[place.view] : 'Sign in'} · Gatepost`
  }, [place.view, session === null])
  if (!session)
    return (
      <>
        <SignIn ended={ended} />
        <footer class="foot">
          <ThemeSwitch />
        </footer>
      </>
    )
  return <Signed session={session} place={place} />
}

function Signed({ session, place }: { session: Shown; place: Place }) {
  const main = useRef<HTMLElement>(null)
  const help = useRef<HTMLDialogElement>(null)
  const before = useRef(place.view)
  useKeys(place, help)
  useEffect(() => {
    if (before.current !== place.view) main.current?.focus({ preventScroll: true })
    if (before.current !== place.view) window.scrollTo(0, 0)
    before.current = place.view
  }, [place.view, place.query['id']])
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        Skip to content
      </a>
      <header class="head">
        <a class="home" href={href('health')} aria-label="Gatepost, health">
          <Brand />
        </a>
        <nav aria-label="Views">
          <Tab view="health" place={place} />
          <Tab view="deliveries" place={place} />
          <Tab view="access" place={place} />
        </nav>
        <span class="account" title={`Client ${session.client}`}>
          <code>{session.account || 'one account'}</code>
        </span>
        <button type="button" class="quiet" onClick={leave} title="Discard the credentials">
          Sign out
        </button>
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        {place.view === 'health' && <Health query={place.query} account={session.account} />}
        {place.view === 'deliveries' && <Deliveries query={place.query} account={session.account} />}
        {place.view === 'access' && <Access query={place.query} />}
        {place.view === 'endpoint' && <EndpointView query={place.query} key={place.query['id']} />}
        {place.view === 'delivery' && <DeliveryView id={place.query['id'] ?? ''} key={place.query['id']} />}
      </main>
      <footer class="foot">
        <span class="of">
          <code>{BASE}</code>
          {session.lasts ? ' · the token is renewed automatically' : ' · until the token expires'}
        </span>
        <ZoneSwitch />
        <ThemeSwitch />
        <button type="button" class="quiet" onClick={() => help.current?.showModal()}>
          Keys <kbd>?</kbd>
        </button>
      </footer>
      <Keys dialog={help} />
    </>
  )
}

function Tab({ view, place }: { view: Place['view']; place: Place }) {
  const here = (TABS[place.view] ?? place.view) === view
  return (
    <a href={href(view)} aria-current={here ? 'page' : undefined}>
      {TITLES[view]}
    </a>
  )
}

function ThemeSwitch() {
  const { theme } = useChoices()
  const names: [Theme, string][] = [
    ['auto', 'Auto'],
    ['light', 'Light'],
    ['dark', 'Dark'],
  ]
  return (
    <fieldset class="choice small">
      <legend>Colors</legend>
      {names.map(([each, name]) => (
        <label key={each}>
          <input type="radio" name="theme" checked={theme === each} onChange={() => choose({ theme: each })} />
          <span>{name}</span>
        </label>
      ))}
    </fieldset>
  )
}

function ZoneSwitch() {
  const { utc } = useChoices()
  return (
    <fieldset class="choice small">
      <legend>Times</legend>
      <label>
        <input type="radio" name="zone" checked={!utc} onChange={() => choose({ utc: false })} />
        <span>{utc ? 'Local' : `Local, ${zone()}`}</span>
      </label>
      <label>
        <input type="radio" name="zone" checked={utc} onChange={() => choose({ utc: true })} />
        <span>UTC</span>
      </label>
    </fieldset>
  )
}

wear()
render(<Console />, document.getElementById('console')!)
