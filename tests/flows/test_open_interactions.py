"""Anyone can open interactions and push requests of a public client, but cannot block others with them.

Where there are too many the oldest makes room, by browser, and by client and address.
"""

from datetime import timedelta
from typing import Any

import pytest
import requests

from gatepost.core import ids
from gatepost.core.secrets import digest, random_text
from gatepost.oauth.authorize import flow, interactions
from gatepost.oauth.authorize.flow import MAX_PER_BROWSER, LoginRedirect, Parameters, Visit
from gatepost.oauth.client_authentication import ClientCredentials
from gatepost.store.transaction import Tx
from tests.flows.test_authorize import check_headers, check_nowhere
from tests.flows.test_par import PREFIX, opening, pushed
from tests.login import LOGIN_URL, Browser, Platform, redirect_target
from tests.service import Client, Service
from tests.wire import session_from_new_address


@pytest.fixture(scope="module")
def platform(gatepost: Service) -> Platform:
    return Platform(gatepost, "open-interactions")


def count_interactions(platform: Platform, client: Client) -> int:
    def unit(tx: Tx) -> int:
        statement = "SELECT count(*) FROM interactions WHERE client = :client"
        return int(tx.select(statement, {"client": ids.raw(client.id)})[0][0])

    return platform.gatepost.opened.store.read_now(unit)


def finishes(platform: Platform, browser: Browser, interaction: dict[str, Any]) -> bool:
    answer = platform.submit_handoff(browser, platform.handoff(interaction))
    return answer.status_code == 303 and "code" in redirect_target(answer)[1]


# --- interactions


def test_anonymous_visits_do_not_block_others_behind_the_same_address(platform: Platform) -> None:
    client = platform.define()
    with session_from_new_address() as session:
        person = Browser(session)
        before = platform.interaction(person, platform.auth_request(client))
        mine = session.cookies.copy()
        for _ in range(150):
            session.cookies.clear()
            assert platform.authorize(Browser(session), platform.auth_request(client)).status_code == 303
        session.cookies = mine
        after = platform.interaction(person, platform.auth_request(client))
        assert finishes(platform, person, before)
        assert finishes(platform, person, after)


def test_a_browser_has_twenty_open_interactions(platform: Platform) -> None:
    """Of tabs that were left behind the oldest goes; another browser is not concerned."""
    client, browser, other = platform.define(), Browser(), Browser()
    theirs = platform.interaction(other, platform.auth_request(client))
    mine = [platform.interaction(browser, platform.auth_request(client)) for _ in range(MAX_PER_BROWSER + 2)]
    assert count_interactions(platform, client) == MAX_PER_BROWSER + 1
    for gone in mine[:2]:
        check_nowhere(platform.submit_handoff(browser, platform.handoff(gone)), "handoff", "start again")
    assert finishes(platform, browser, mine[2])
    assert finishes(platform, browser, mine[-1])
    assert finishes(platform, other, theirs)


def visit(platform: Platform, client: Client, source: str, browser: bytes | None = None) -> str:
    """As the web process does it; says which interaction was opened."""
    opened, sent = platform.gatepost.opened, Parameters(platform.auth_request(client))
    visitor = Visit(browser or random_text().encode(), source, first=browser is None)
    begun = opened.store.run_now(lambda tx: flow.begin(tx, opened.service, sent, visitor))
    assert isinstance(begun, LoginRedirect)
    return str(begun.claims["jti"])


def left(platform: Platform, *names: str) -> list[str]:
    opened = platform.gatepost.opened

    def unit(tx: Tx) -> list[str]:
        return [each for each in names if interactions.load(tx, platform.account, each, opened.service.keys.data)]

    return opened.store.read_now(unit)


def test_first_visits_of_a_client_and_address(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    assert flow.MAX_FIRST_VISITS == 1_000
    monkeypatch.setattr(flow, "MAX_FIRST_VISITS", 3)
    client, second = platform.define(), platform.define()
    returning = visit(platform, client, "2001:db8::1", b"b" * 32)
    elsewhere_, of_another = visit(platform, client, "192.0.2.1"), visit(platform, second, "2001:db8::1")
    first = [visit(platform, client, f"2001:db8::{number}") for number in range(1, 6)]
    expected = [returning, elsewhere_, of_another, *first[2:]]
    assert left(platform, returning, elsewhere_, of_another, *first) == expected


def test_a_new_cookie_for_each_visit_does_not_avoid_the_limit(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert flow.MAX_RETURNING == 10_000
    monkeypatch.setattr(flow, "MAX_RETURNING", 3)
    client = platform.define()
    first = visit(platform, client, "192.0.2.1")
    made_up = [visit(platform, client, "192.0.2.1", bytes([number]) * 32) for number in range(5)]
    assert left(platform, first, *made_up) == [first, *made_up[2:]]


def test_head_opens_nothing(platform: Platform) -> None:
    client = platform.define()
    address = f"{platform.url}/oauth/authorize"
    answer = requests.head(address, params=platform.auth_request(client), allow_redirects=False)
    check_headers(answer)
    assert (answer.status_code, answer.headers["Location"]) == (303, LOGIN_URL)
    assert "Set-Cookie" not in answer.headers
    assert count_interactions(platform, client) == 0
    wrong = requests.head(address, params=platform.auth_request(client, scope="nothing"), allow_redirects=False)
    assert "error=invalid_scope" in wrong.headers["Location"]


def test_head_completes_nothing(platform: Platform) -> None:
    browser = Browser()
    interaction = platform.interaction(browser, platform.auth_request())
    handoff = {"handoff": platform.handoff(interaction)}
    answer = browser.session.head(f"{platform.url}/oauth/authorize", params=handoff, allow_redirects=False)
    assert answer.status_code == 400
    assert finishes(platform, browser, interaction)


# --- pushed requests


def stored(platform: Platform, client: Client) -> list[bytes]:
    opened = platform.gatepost.opened

    def unit(tx: Tx) -> list[bytes]:
        statement = "SELECT id, request FROM pushed WHERE client = :client ORDER BY expires_at"
        rows = tx.select(statement, {"client": ids.raw(client.id)})
        box = opened.service.keys.data
        return [box.decrypt(sealed, f"pushed {platform.account} {raw.hex()}") for raw, sealed in rows]

    return opened.store.read_now(unit)


def test_only_known_parameters_are_stored(platform: Platform) -> None:
    client = platform.define(token_endpoint_auth_method="none")
    unknown = {"unknown": "x" * 30_000, "client_secret_": "y" * 1000, "": "z"}
    again = {"scope": "things:read " * 1500 + "things:read", "prompt": "login " * 1000 + "login"}
    request_uri = pushed(platform, client, **unknown, **again, resource=[platform.api] * 50, state="s" * 2048)
    [kept] = stored(platform, client)
    assert len(kept) < 3000
    assert b'"unknown"' not in kept
    interaction = platform.interaction(Browser(), opening(platform, request_uri, client))
    assert [each["name"] for each in interaction["scopes"]] == ["things:read"]
    assert interaction["prompt"] == "login"


@pytest.mark.parametrize(
    ("method", "limit"), [("none", "MAX_PUSHED"), ("client_secret_basic", "MAX_PUSHED_AUTHENTICATED")]
)
def test_the_oldest_pushed_request_is_evicted(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, method: str, limit: str
) -> None:
    """A push is never refused and ends no authorization in progress. Only requests that no browser opened are lost."""
    monkeypatch.setattr(flow, limit, 3)
    client, browser = platform.define(token_endpoint_auth_method=method), Browser()
    first = push(platform, client)
    interaction = platform.interaction(browser, opening(platform, first, client))
    there = push(platform, client, "192.0.2.2")
    later = [push(platform, client) for _ in range(4)]
    assert len(stored(platform, client)) == 4
    for gone in (first, later[0]):
        check_nowhere(platform.authorize(Browser(), opening(platform, gone, client)), "request_uri")
    for kept in (there, *later[1:]):
        assert platform.interaction(Browser(), opening(platform, kept, client))
    assert finishes(platform, browser, interaction)


def push(platform: Platform, client: Client, source: str = "192.0.2.1") -> str:
    """As the web process does it, each later than the one before."""
    opened = platform.gatepost.opened
    before = opened.store.now()
    while opened.store.now() < before + timedelta(milliseconds=5):
        pass
    shown = ClientCredentials(client.id, "none")
    if client.secret:
        shown = ClientCredentials(
            client.id, "client_secret_basic", digest=digest(opened.service.keys.hash, client.secret)
        )
    sent = Parameters(platform.auth_request(client))
    outcome = opened.store.run_now(lambda tx: flow.push(tx, opened.service, shown, sent, None, "req_1", source))
    assert isinstance(outcome, str)
    assert outcome.startswith(PREFIX)
    return outcome
