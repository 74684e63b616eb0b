"""Pushed authorization requests (RFC 9126): who may push, who may open, until when, and when one is spent."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from joserfc.jwk import ECKey

from gatepost.core import ids
from gatepost.store.transaction import Tx
from tests.assertions import assertion
from tests.flows.test_authorize import BACK, check_back, check_nowhere
from tests.login import CALLBACK, Browser, Platform, redirect_target
from tests.service import Client, Service
from tests.wire import check_every_answer, check_refusal, session_from_new_address

PREFIX = "urn:ietf:params:oauth:request_uri:"
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
KEY = ECKey.generate_key("P-256", {"kid": "ec"})


@pytest.fixture(scope="module")
def platform(gatepost: Service) -> Platform:
    return Platform(gatepost, "par")


@pytest.fixture(scope="module")
def other(gatepost: Service) -> Platform:
    return Platform(gatepost, "par-other")


@pytest.fixture(scope="module")
def single(sqlite_gatepost: Service) -> Platform:
    """Where the store does not matter."""
    return Platform(sqlite_gatepost, "par-single")


def pushed(platform: Platform, client: Client | None = None, **changes: Any) -> str:
    answer = platform.post("par", client, **platform.auth_request(client, **changes))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["request_uri"])


def opening(platform: Platform, request_uri: str, client: Client | None = None, **more: Any) -> dict[str, Any]:
    return {"client_id": (client or platform.client).id, "request_uri": request_uri} | more


# --- pushing


def test_a_request_is_pushed_and_opened(platform: Platform) -> None:
    answer = platform.post("par", **platform.auth_request(prompt="login", state="pushed"))
    assert answer.status_code == 201
    assert answer.headers["Cache-Control"] == "no-store"
    check_every_answer({name.lower(): value for name, value in answer.headers.items()})
    assert set(answer.json()) == {"request_uri", "expires_in"}
    assert 0 < answer.json()["expires_in"] <= 600
    request_uri = answer.json()["request_uri"]
    assert request_uri.startswith(PREFIX)
    assert len(request_uri.removeprefix(PREFIX)) == 43, "256 random bits"
    browser = Browser()
    interaction = platform.interaction(browser, opening(platform, request_uri))
    assert interaction["prompt"] == "login"
    where, query = redirect_target(platform.submit_handoff(browser, platform.handoff(interaction)))
    assert (where, query["state"], query["iss"]) == (CALLBACK, "pushed", platform.url)
    assert platform.redeem(query["code"]).status_code == 200


def test_pushed_parameters_override_those_of_the_request(single: Platform) -> None:
    """RFC 9101, section 6.3: parameters outside are not mixed in."""
    along: dict[str, Any] = {
        "scope": "openid things:write", "redirect_uri": "https://evil.example", "state": "x", "prompt": "none",
        "code_challenge": "A" * 43, "response_type": "token", "nonce": "x", "response_mode": "form_post",
    }  # fmt: skip
    browser = Browser()
    interaction = single.interaction(browser, opening(single, pushed(single), **along))
    assert "prompt" not in interaction
    assert [each["name"] for each in interaction["scopes"]] == ["openid", "offline_access", "things:read"]
    _, query = redirect_target(single.submit_handoff(browser, single.handoff(interaction)))
    assert query["state"] == "a state"
    assert single.redeem(query["code"]).status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_pushed_request_is_opened_by_get_or_post(single: Platform, method: str) -> None:
    sent = opening(single, pushed(single))
    address, browser = f"{single.url}/oauth/authorize", Browser()
    answer = browser.open(address, sent) if method == "GET" else browser.send(address, sent)
    assert set(redirect_target(answer)[1]) == {"interaction"}


@pytest.mark.parametrize("name", BACK)
def test_an_invalid_request_is_refused_when_it_is_pushed(single: Platform, name: str) -> None:
    changes, error, words = BACK[name]
    answer = single.post("par", **single.auth_request(**changes))
    check_refusal(answer, "/oauth/par", error, *words)
    event = answer.headers["Gatepost-Event"]
    [entry] = [each for each in single.entries("oauth.request.refused") if each["id"] == event]
    assert entry["subject"] == single.client.id
    assert (entry["data"]["at"], entry["data"]["error"]) == ("par", error)


@pytest.mark.parametrize("uri", [None, "https://evil.example", f"{CALLBACK}?x=1"])
def test_an_invalid_redirect_uri_is_refused_when_it_is_pushed(single: Platform, uri: str | None) -> None:
    answer = single.post("par", **single.auth_request(redirect_uri=uri))
    check_refusal(answer, "/oauth/par", "invalid_request", "redirect_uri")


def test_a_pushed_request_is_not_pushed_again(single: Platform) -> None:
    for uri in (pushed(single), PREFIX + "x", "https://evil.example/request.jwt"):
        answer = single.post("par", **single.auth_request(request_uri=uri))
        check_refusal(answer, "/oauth/par", "invalid_request", "request_uri")


def test_a_parameter_that_is_sent_twice(single: Platform) -> None:
    body = [*single.auth_request().items(), ("scope", "openid")]
    answer = requests.post(f"{single.url}/oauth/par", data=body, headers={"Authorization": single.client.basic})
    check_refusal(answer, "/oauth/par", "invalid_request", "scope", "more than once")


def test_only_a_form_is_read(single: Platform) -> None:
    headers = {"Authorization": single.client.basic}
    answer = requests.post(f"{single.url}/oauth/par", json=single.auth_request(), headers=headers)
    check_refusal(answer, "/oauth/par", "invalid_request", "application/x-www-form-urlencoded")
    assert requests.get(f"{single.url}/oauth/par", params=single.auth_request(), headers=headers).status_code == 405


# --- who pushes


def refused_client(answer: requests.Response) -> None:
    check_refusal(answer, "/oauth/par", "invalid_client", "client authentication failed")
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    assert "Gatepost-Event" not in answer.headers


def test_a_client_authenticates(single: Platform, sqlite_gatepost: Service) -> None:
    client, disabled = single.client, single.define(status="disabled")
    wrong = {
        "nothing shown": (None, single.auth_request()),
        "wrong secret": (Client(client.id, "gps_wrong").basic, single.auth_request()),
        "secret in the form": (None, single.auth_request(client_secret=client.secret)),
        "unknown": (Client(ids.new("cli"), client.secret).basic, single.auth_request(client_id=None)),
        "disabled": (disabled.basic, single.auth_request(disabled)),
        "bearer": (f"Bearer {single.admin}", single.auth_request()),
    }
    for name, (shown, sent) in wrong.items():
        with session_from_new_address() as session:
            headers = {"Authorization": shown} if shown else {}
            answer = session.post(f"{single.url}/oauth/par", data=sent, headers=headers)
        assert answer.status_code == 401, name
        refused_client(answer)


def test_a_client_cannot_push_for_another(single: Platform) -> None:
    second = single.define()
    answer = single.post("par", **single.auth_request(second))
    check_refusal(answer, "/oauth/par", "invalid_request", "client_id")


def test_a_public_client_pushes_without_a_secret(single: Platform) -> None:
    client = single.define(token_endpoint_auth_method="none")
    browser = Browser()
    interaction = single.interaction(browser, opening(single, pushed(single, client), client))
    _, query = redirect_target(single.submit_handoff(browser, single.handoff(interaction)))
    assert single.redeem(query["code"], client).status_code == 200


def test_a_client_with_a_key_pushes_with_an_assertion(single: Platform) -> None:
    members = {"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [KEY.as_dict(private=False)]}}
    client = single.define(**members)
    address = f"{single.url}/oauth/par"
    for audience in (single.url, f"{single.url}/oauth/tokens", address):
        shown = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion(KEY, client.id, audience)}
        answer = requests.post(address, data=single.auth_request(client) | shown)
        assert answer.status_code == 201, (audience, answer.text)
    again = requests.post(address, data=single.auth_request(client) | shown)
    refused_client(again)
    assert single.interaction(Browser(), opening(single, answer.json()["request_uri"], client))


def test_a_secret_in_the_form_is_not_kept(single: Platform) -> None:
    """What is stored is encrypted; and of what proves who the client is, nothing is stored."""
    client = single.define(token_endpoint_auth_method="client_secret_post")
    sent = single.auth_request(client, client_secret=client.secret, login_hint="ada@example.com")
    answer = requests.post(f"{single.url}/oauth/par", data=sent)
    assert answer.status_code == 201
    name = answer.json()["request_uri"].removeprefix(PREFIX)
    box = single.gatepost.opened.service.keys.data

    def rows(tx: Tx) -> list[tuple[Any, ...]]:
        return tx._connection.select(
            "SELECT id, request FROM pushed WHERE client = :client", {"client": ids.raw(client.id)}
        )

    [(raw_id, request)] = single.gatepost.opened.store.read_now(rows)
    assert name.encode() not in raw_id
    assert b"ada@example.com" not in request
    opened = box.decrypt(request, f"pushed {single.account} {raw_id.hex()}")
    assert b"ada@example.com" in opened
    assert client.secret.encode() not in opened


# --- who opens


def test_only_the_client_that_pushed_may_open(platform: Platform, other: Platform) -> None:
    second = platform.define()
    request_uri = pushed(platform)
    check_nowhere(platform.authorize(Browser(), opening(platform, request_uri, second)), "request_uri")
    check_nowhere(other.authorize(Browser(), opening(other, request_uri)), "request_uri")
    check_nowhere(platform.authorize(Browser(), opening(platform, request_uri, client_id=None)), "client_id")
    assert platform.interaction(Browser(), opening(platform, request_uri)), "it is open to its own all the while"


@pytest.mark.parametrize(
    "request_uri",
    [
        "x", PREFIX, PREFIX + "x", PREFIX.upper() + "x", "https://app.example/request.jwt", "urn:x", PREFIX + "é",
        "a" * 5000,
    ],
)  # fmt: skip
def test_a_request_uri_that_was_never_pushed(single: Platform, request_uri: str) -> None:
    """Nothing is fetched either; and though client and redirect URI are right, nothing is answered there."""
    check_nowhere(single.authorize(Browser(), opening(single, request_uri)), "request_uri")
    check_nowhere(single.authorize(Browser(), single.auth_request(request_uri=request_uri)), "request_uri")


def test_a_request_uri_without_its_prefix(single: Platform) -> None:
    name = pushed(single).removeprefix(PREFIX)
    check_nowhere(single.authorize(Browser(), opening(single, name)), "request_uri")


def test_it_expires(platform: Platform) -> None:
    client = platform.define()
    request_uri = pushed(platform, client)
    browser = Browser()
    interaction = platform.interaction(browser, opening(platform, request_uri, client))

    def expire(tx: Tx) -> list[tuple[Any, ...]]:
        statement = "UPDATE pushed SET expires_at = :at WHERE client = :client RETURNING expires_at"
        given = {"client": ids.raw(client.id), "at": int(time.time()) * 1000}
        return tx._connection.select(statement, given)

    assert len(platform.gatepost.opened.store.run_now(expire)) == 1
    check_nowhere(platform.authorize(Browser(), opening(platform, request_uri, client)), "request_uri")
    _, query = redirect_target(platform.submit_handoff(browser, platform.handoff(interaction)))
    assert "code" in query, "what was opened in time may be completed"


def test_changes_since_the_request_was_pushed(platform: Platform) -> None:
    client = platform.define()
    request_uri = pushed(platform, client)
    members = {"client_id": client.id, "scope": "openid offline_access"}
    assert platform.gatepost.post("/oauth/clients", platform.admin, members).status_code == 200
    answer = platform.authorize(Browser(), opening(platform, request_uri, client))
    check_back(answer, platform, "invalid_scope", "things:read")
    moved = {"client_id": client.id, "redirect_uris": ["https://app.example/moved"]}
    assert platform.gatepost.post("/oauth/clients", platform.admin, moved).status_code == 200
    check_nowhere(platform.authorize(Browser(), opening(platform, request_uri, client)), "redirect_uri")


# --- when it is spent


def test_it_is_spent_when_its_authorization_completes_and_not_when_it_is_opened(platform: Platform) -> None:
    """A browser may load the page twice, or a person come back to a bookmark of it."""
    request_uri = pushed(platform)
    browser, elsewhere_open = Browser(), Browser()
    reported = [platform.interaction(browser, opening(platform, request_uri)) for _ in range(3)]
    theirs = platform.interaction(elsewhere_open, opening(platform, request_uri))
    _, first = redirect_target(platform.submit_handoff(browser, platform.handoff(reported[1])))
    assert "code" in first
    late = platform.submit_handoff(browser, platform.handoff(reported[0]))
    check_back(late, platform, "invalid_request", "request_uri", "before")
    late = platform.submit_handoff(elsewhere_open, platform.handoff(theirs))
    check_back(late, platform, "invalid_request", "request_uri", "before")
    check_nowhere(platform.authorize(browser, opening(platform, request_uri)), "request_uri", "used")
    assert platform.redeem(first["code"]).status_code == 200


def test_a_denial_spends_the_pushed_request(platform: Platform) -> None:
    request_uri = pushed(platform)
    browser = Browser()
    interaction = platform.interaction(browser, opening(platform, request_uri))
    denied = platform.handoff(interaction, sub=None, scope=None, error="access_denied", error_description="No.")
    check_back(platform.submit_handoff(browser, denied), platform, "access_denied")
    check_nowhere(platform.authorize(browser, opening(platform, request_uri)), "request_uri")


def test_an_invalid_handoff_does_not_spend_the_pushed_request(platform: Platform) -> None:
    request_uri = pushed(platform)
    browser = Browser()
    interaction = platform.interaction(browser, opening(platform, request_uri))
    check_nowhere(platform.submit_handoff(browser, platform.handoff(interaction, scope="things:write")))
    assert platform.interaction(browser, opening(platform, request_uri))


def test_request_uris_and_codes_are_not_interchangeable(platform: Platform) -> None:
    """A pushed request is no code, a code no pushed request, and neither is an interaction or a refresh token."""
    request_uri, code = pushed(platform), platform.code()
    name = request_uri.removeprefix(PREFIX)
    for sent in (name, request_uri):
        refused = platform.redeem(sent)
        check_refusal(refused, "/oauth/tokens", "invalid_grant", "code")
        check_refusal(platform.refresh(sent), "/oauth/tokens", "invalid_grant", "refresh_token")
    for sent in (code, PREFIX + code):
        check_nowhere(platform.authorize(Browser(), opening(platform, sent)), "request_uri")
    check_refusal(platform.refresh(code), "/oauth/tokens", "invalid_grant", "refresh_token")
    interaction = platform.interaction(Browser(), opening(platform, request_uri))
    for sent in (interaction["jti"], json.dumps(interaction)):
        check_refusal(platform.redeem(sent), "/oauth/tokens", "invalid_grant", "code")
    check_nowhere(platform.authorize(Browser(), opening(platform, PREFIX + interaction["jti"])), "request_uri")
    assert platform.redeem(code).status_code == 200, "and none of that used them up"


def test_of_concurrent_completions_one_gives_a_code(platform: Platform) -> None:
    """Each is an authorization of its own, in a browser of its own; the request that they share is one."""
    client = platform.define()
    request_uri = pushed(platform, client)
    browsers = [Browser() for _ in range(20)]
    reported = [platform.interaction(each, opening(platform, request_uri, client)) for each in browsers]
    handoffs = [platform.handoff(each) for each in reported]
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(platform.submit_handoff, browsers, handoffs))
    back = [redirect_target(answer)[1] for answer in answers]
    assert sum("code" in each for each in back) == 1
    assert sum(each.get("error") == "invalid_request" for each in back) == 19
