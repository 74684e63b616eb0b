"""Coming back from the login application: who may say what, in which browser, once; and what changed meanwhile."""

import hmac
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
import requests
from joserfc.jwk import ECKey, Key, OKPKey

from gatepost.core import ids
from gatepost.oauth import client_rows
from gatepost.oauth.scopes import PROTOCOL_CLAIMS
from gatepost.store.transaction import Tx
from tests.assertions import b64
from tests.flows.test_authorize import check_back, check_nowhere
from tests.login import CLAIMS, LOGIN_URL, SCOPES, Browser, Platform, decode_jwt, redirect_target
from tests.receiver import Answer, receiver
from tests.rsa_keys import rsa_key
from tests.service import Service
from tests.wire import check_refusal

KEY = ECKey.generate_key("P-256", {"kid": "ec"})
KEYS: dict[str, Key] = {
    "ES256": KEY,
    "RS256": rsa_key({"kid": "rsa"}),
    "EdDSA": OKPKey.generate_key("Ed25519", {"kid": "ed"}),
}
ATTACKER = ECKey.generate_key("P-256", {"kid": "ec"})


def key_set(*keys: Key) -> str:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]})


def with_keys(gatepost: Service, name: str) -> Platform:
    return Platform(gatepost, name, f"login_jwks={key_set(*KEYS.values())}", key=KEY)


@pytest.fixture(scope="module")
def platform(sqlite_gatepost: Service) -> Platform:
    return with_keys(sqlite_gatepost, "handoff")


@pytest.fixture(scope="module")
def other(sqlite_gatepost: Service) -> Platform:
    return Platform(sqlite_gatepost, "handoff-other")


@pytest.fixture(scope="module")
def stored(gatepost: Service) -> Platform:
    """The same on each store."""
    return with_keys(gatepost, "handoff-stored")


def start_interaction(platform: Platform, **changes: Any) -> tuple[Browser, dict[str, Any]]:
    browser = Browser()
    return browser, platform.interaction(browser, platform.auth_request(**changes))


def now() -> int:
    return int(time.time())


# --- what is right


def test_the_client_gets_a_code(stored: Platform) -> None:
    browser, interaction = start_interaction(stored)
    answer = stored.submit_handoff(browser, stored.handoff(interaction))
    where, query = redirect_target(answer)
    assert where == "https://app.example/callback"
    assert set(query) == {"code", "state", "iss"}
    assert (query["state"], query["iss"]) == ("a state", stored.url)
    assert stored.redeem(query["code"]).status_code == 200


def test_the_handoff_may_be_posted(platform: Platform) -> None:
    browser, interaction = start_interaction(platform)
    answer = browser.send(f"{platform.url}/oauth/authorize", {"handoff": platform.handoff(interaction)})
    assert "code" in redirect_target(answer)[1]


RIGHT: dict[str, Callable[[Platform, dict[str, Any]], str]] = {
    "RS256": lambda p, i: p.handoff(i, KEYS["RS256"]),
    "PS256": lambda p, i: p.handoff(i, KEYS["RS256"], {"alg": "PS256"}),
    "EdDSA": lambda p, i: p.handoff(i, KEYS["EdDSA"]),
    "audience as a list": lambda p, i: p.handoff(i, aud=[p.url]),
    "a clock a little ahead": lambda p, i: p.handoff(i, iat=now() + 8, auth_time=now() + 8),
    "five minutes": lambda p, i: p.handoff(i, exp=now() + 300),
    "no claims": lambda p, i: p.handoff(i, claims=None),
    "more claims than we know": lambda p, i: p.handoff(i, nonce="x", email="x", client_id="x"),
    "less scope": lambda p, i: p.handoff(i, scope="openid"),
    "8 KiB": lambda p, i: padded(p, i, 8 * 1024),
}


def padded(platform: Platform, interaction: dict[str, Any], size: int) -> str:
    """A handoff of so many bytes, or a few less: base64 goes in steps."""
    empty = len(platform.handoff(interaction, claims={"a": ""}))
    found = platform.handoff(interaction, claims={"a": "b" * ((size - empty) * 3 // 4 - 2)})
    assert size - 8 < len(found) <= size
    return found


@pytest.mark.parametrize("name", RIGHT)
def test_a_valid_handoff(platform: Platform, name: str) -> None:
    browser, interaction = start_interaction(platform)
    assert "code" in redirect_target(platform.submit_handoff(browser, RIGHT[name](platform, interaction)))[1]


# --- invalid handoffs: there is no redirect, and the interaction stays open


def unsigned(platform: Platform, interaction: dict[str, Any], alg: str, secret: bytes | None = None) -> str:
    head = b64(json.dumps({"alg": alg, "typ": "gatepost-handoff+jwt", "kid": "ec"}).encode())
    message = f"{head}.{platform.handoff(interaction).split('.')[1]}"
    return f"{message}.{b64(hmac.digest(secret, message.encode(), 'sha256')) if secret is not None else ''}"


def altered(token: str, part: int) -> str:
    """With one character of a part turned into another."""
    parts = token.split(".")
    parts[part] = parts[part][:10] + ("A" if parts[part][10] != "A" else "B") + parts[part][11:]
    return ".".join(parts)


UNVERIFIED = "cannot be verified"
Make = Callable[[Platform, dict[str, Any]], str]
WRONG: dict[str, tuple[Make, str]] = {
    "another key of the same name": (lambda p, i: p.handoff(i, ATTACKER), UNVERIFIED),
    "a key in the header": (
        lambda p, i: p.handoff(i, ATTACKER, {"jwk": ATTACKER.as_dict(private=False), "kid": None}), UNVERIFIED,
    ),
    "a key by address": (lambda p, i: p.handoff(i, ATTACKER, {"jku": "https://evil.example"}), UNVERIFIED),
    "an unknown kid": (lambda p, i: p.handoff(i, header={"kid": "nobody"}), UNVERIFIED),
    "the kid of another key": (lambda p, i: p.handoff(i, header={"kid": "rsa"}), UNVERIFIED),
    "alg none": (lambda p, i: unsigned(p, i, "none"), UNVERIFIED),
    "HS256 by nothing": (lambda p, i: unsigned(p, i, "HS256", b""), UNVERIFIED),
    "HS256 by the public key": (
        lambda p, i: unsigned(p, i, "HS256", KEY.as_bytes("PEM", private=False)), UNVERIFIED,
    ),
    "no signature": (lambda p, i: p.handoff(i).rpartition(".")[0] + ".", UNVERIFIED),
    "an altered signature": (lambda p, i: altered(p.handoff(i), 2), UNVERIFIED),
    "altered claims": (lambda p, i: altered(p.handoff(i), 1), ""),
    "crit": (lambda p, i: p.handoff(i, header={"crit": ["exp"], "exp": 1}), UNVERIFIED),
    "no typ": (lambda p, i: p.handoff(i, header={"typ": None}), UNVERIFIED),
    **{
        f"typ {each}": (lambda p, i, each=each: p.handoff(i, header={"typ": each}), UNVERIFIED)  # type: ignore[misc]
        for each in ("JWT", "at+jwt", "dpop+jwt", "gatepost-interaction+jwt", "gatepost-revoke+jwt")
    },
    "our own interaction": (
        lambda p, i: redirect_target(p.authorize(Browser(), p.auth_request()))[1]["interaction"],
        "interaction",
    ),
    "an ID token": (lambda p, i: str(p.tokens()["id_token"]), "interaction"),
    "no JWT": (lambda p, i: "x", "interaction"),
    "two dots": (lambda p, i: "..", "interaction"),
    "no issuer": (lambda p, i: p.handoff(i, iss=None), "interaction"),
    "the account's name for its id": (lambda p, i: p.handoff(i, iss=p.name), "interaction"),
    "the base URL for the account": (lambda p, i: p.handoff(i, iss=p.url), "interaction"),
    "no interaction": (lambda p, i: p.handoff(i | {"jti": None}), "interaction"),
    "an unknown interaction": (lambda p, i: p.handoff(i | {"jti": ids.new("int")}), "interaction"),
    "an interaction of another prefix": (
        lambda p, i: p.handoff(i | {"jti": i["jti"].replace("int_", "cli_")}), "interaction",
    ),
    "a list of interactions": (lambda p, i: p.handoff(i | {"jti": [i["jti"]]}), "interaction"),
    "another audience": (lambda p, i: p.handoff(i, aud="https://evil.example"), "aud"),
    "the login URL as audience": (lambda p, i: p.handoff(i, aud=LOGIN_URL), "aud"),
    "two audiences": (lambda p, i: p.handoff(i, aud=[p.url, "https://evil.example"]), "aud"),
    "expired": (lambda p, i: p.handoff(i, iat=now() - 60, exp=now() - 1), "expired"),
    "no exp": (lambda p, i: p.handoff(i, exp=None), "exp"),
    "no iat": (lambda p, i: p.handoff(i, iat=None), "iat"),
    "iat ahead": (lambda p, i: p.handoff(i, iat=now() + 90, exp=now() + 120), "not yet valid"),
    "too long a life": (lambda p, i: p.handoff(i, exp=now() + 400), "5 minutes"),
    "exp is text": (lambda p, i: p.handoff(i, exp="soon"), UNVERIFIED),
    "no jti": (lambda p, i: p.handoff(i, jti=None), "jti"),
    "no sub": (lambda p, i: p.handoff(i, sub=None), "sub"),
    "a long sub": (lambda p, i: p.handoff(i, sub="a" * 201), "sub"),
    "a sub that is not ASCII": (lambda p, i: p.handoff(i, sub="adä"), "sub"),
    "no scope": (lambda p, i: p.handoff(i, scope=None), "scope"),
    "a wider scope": (lambda p, i: p.handoff(i, scope="openid things:read things:write"), "things:write"),
    "a scope of the service": (lambda p, i: p.handoff(i, scope="gatepost:clients"), "gatepost:clients"),
    "offline_access alone": (lambda p, i: p.handoff(i, scope="offline_access"), "offline_access"),
    "no auth_time": (lambda p, i: p.handoff(i, auth_time=None), "auth_time"),
    "auth_time ahead": (lambda p, i: p.handoff(i, auth_time=now() + 60), "auth_time"),
    **{
        f"claim {each}": (lambda p, i, each=each: p.handoff(i, claims=CLAIMS | {each: "x"}), each)  # type: ignore[misc]
        for each in sorted(PROTOCOL_CLAIMS)
    },
    "an error and a person": (lambda p, i: p.handoff(i, error="access_denied"), "error"),
    "an unknown error": (lambda p, i: p.handoff(i, sub=None, error="server_error"), "error"),
    "over 8 KiB": (lambda p, i: p.handoff(i, claims={"a": "b" * 6200}), "8192"),
    "deep": (lambda p, i: p.handoff(i, claims=json.loads('{"a":' + "[" * 600 + "]" * 600 + "}")), UNVERIFIED),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_handoff(platform: Platform, name: str) -> None:
    make, words = WRONG[name]
    browser, interaction = start_interaction(platform)
    check_nowhere(platform.submit_handoff(browser, make(platform, interaction)), words)
    assert "code" in redirect_target(platform.submit_handoff(browser, platform.handoff(interaction)))[1]


@pytest.mark.parametrize(
    "more", [{"client_id": "x"}, {"response_type": "token"}, {"state": "x"}, {"redirect_uri": "https://evil.example"}]
)
def test_a_handoff_must_be_the_only_parameter(platform: Platform, more: dict[str, str]) -> None:
    """So a request cannot be changed when the browser returns."""
    browser, interaction = start_interaction(platform)
    sent = more | {"handoff": platform.handoff(interaction)}
    check_nowhere(browser.open(f"{platform.url}/oauth/authorize", sent), "alone")
    check_nowhere(browser.send(f"{platform.url}/oauth/authorize", sent), "alone")
    beside = f"{platform.url}/oauth/authorize?{urlencode(more)}"
    check_nowhere(browser.send(beside, {"handoff": sent["handoff"]}), "alone")
    twice = [("handoff", sent["handoff"])] * 2
    check_nowhere(browser.open(f"{platform.url}/oauth/authorize", twice), "more than once")


# --- whose it is


def test_the_key_of_another_account(platform: Platform, other: Platform) -> None:
    """However it names itself: an interaction is answered by the account it is of."""
    browser, interaction = start_interaction(platform)
    for sent in (
        other.handoff(interaction, iss=platform.account),
        other.handoff(interaction),
        platform.handoff(interaction, iss=other.account),
        other.handoff(interaction, iss=platform.account, header={"kid": "ec"}),
    ):
        check_nowhere(platform.submit_handoff(browser, sent))
    theirs = other.interaction(browser, other.auth_request())
    check_nowhere(platform.submit_handoff(browser, platform.handoff(theirs)), "no such interaction")
    check_nowhere(platform.submit_handoff(browser, platform.handoff(theirs, iss=other.account)), UNVERIFIED)
    for mine, result in ((platform, interaction), (other, theirs)):
        assert "code" in redirect_target(mine.submit_handoff(browser, mine.handoff(result)))[1], (
            "and both are still open"
        )


def test_a_handoff_in_another_browser(stored: Platform) -> None:
    """Neither one that began nothing here, nor one that began something of its own."""
    browser, interaction = start_interaction(stored)
    sent = stored.handoff(interaction)
    check_nowhere(stored.submit_handoff(Browser(), sent), "this browser sent no cookie")
    victim, _ = start_interaction(stored)
    check_nowhere(stored.submit_handoff(victim, sent), "another browser")
    forged = Browser()
    forged.session.cookies.update(dict.fromkeys(browser.session.cookies.get_dict(), "A" * 43))
    check_nowhere(stored.submit_handoff(forged, sent), "another browser")
    assert "code" in redirect_target(stored.submit_handoff(browser, sent))[1]


def test_interactions_of_one_browser_are_independent(stored: Platform) -> None:
    browser = Browser()
    result = {state: stored.interaction(browser, stored.auth_request(state=state)) for state in ("one", "two", "three")}
    for state in reversed(result):
        _, back = redirect_target(stored.submit_handoff(browser, stored.handoff(result[state], sub=state)))
        assert back["state"] == state
        given = stored.redeem(back["code"]).json()
        assert decode_jwt(given["access_token"])[1]["sub"] == f"{stored.account}.{state}"


# --- once, and in time


def test_an_interaction_is_finished_once(stored: Platform) -> None:
    browser, interaction = start_interaction(stored)
    sent = stored.handoff(interaction)
    _, query = redirect_target(stored.submit_handoff(browser, sent))
    for again in (sent, stored.handoff(interaction), stored.handoff(interaction, sub=None, error="access_denied")):
        check_nowhere(stored.submit_handoff(browser, again), "completed or has expired")
    assert stored.redeem(query["code"]).status_code == 200, "nor does trying again spoil what was given"


def test_a_denial_finishes_the_interaction(stored: Platform) -> None:
    browser, interaction = start_interaction(stored)
    denied = stored.handoff(interaction, sub=None, scope=None, error="access_denied", error_description='Nö, "no"')
    check_back(stored.submit_handoff(browser, denied), stored, "access_denied", "N?, 'no'")
    check_nowhere(stored.submit_handoff(browser, stored.handoff(interaction)), "completed or has expired")
    [entry] = [each for each in stored.entries("oauth.consent.refused") if each["subject"] == interaction["jti"]]
    assert (entry["data"]["client"], entry["data"]["error"]) == (stored.client.id, "access_denied")


def test_an_expired_interaction(stored: Platform) -> None:
    browser, interaction = start_interaction(stored)

    def expire(tx: Tx) -> int:
        statement = "UPDATE interactions SET expires_at = :at WHERE id = :id RETURNING 1"
        return len(tx._connection.select(statement, {"id": ids.raw(interaction["jti"]), "at": now() * 1000}))

    assert stored.gatepost.opened.store.run_now(expire) == 1
    check_nowhere(stored.submit_handoff(browser, stored.handoff(interaction)), "completed or has expired")


def test_of_fifty_concurrent_handoffs_one_gives_a_code(stored: Platform) -> None:
    client = stored.define()
    browser = Browser()
    interaction = stored.interaction(browser, stored.auth_request(client))
    sent, cookies = stored.handoff(interaction), browser.session.cookies.get_dict()

    def submit_handoff(_: int) -> requests.Response:
        return requests.get(
            f"{stored.url}/oauth/authorize", {"handoff": sent}, cookies=cookies, allow_redirects=False
        )  # fmt: skip

    with ThreadPoolExecutor(25) as pool:
        answers = list(pool.map(submit_handoff, range(50)))
    [one] = [answer for answer in answers if answer.status_code == 303]
    for each in answers:
        if each is not one:
            check_nowhere(each, "completed or has expired")
    given = [each for each in stored.entries("oauth.consent.given") if each["data"]["client"] == client.id]
    assert len(given) == 1
    assert stored.redeem(redirect_target(one)[1]["code"], client).status_code == 200


# --- what the client wanted of the person

ESSENTIAL = {"id_token": {"acr": {"essential": True, "values": ["gold", "golden"]}}}
UNMET: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "prompt=login": ({"prompt": "login"}, {"auth_time": 1}, "login_required"),
    "max_age": ({"max_age": "60"}, {"auth_time": 1}, "login_required"),
    "max_age=0": ({"max_age": "0"}, {"auth_time": 1}, "login_required"),
    "no acr": ({"claims": json.dumps(ESSENTIAL)}, {}, "unmet_authentication_requirements"),
    "another acr": ({"claims": json.dumps(ESSENTIAL)}, {"acr": "silver"}, "unmet_authentication_requirements"),
}


@pytest.mark.parametrize("name", UNMET)
def test_an_authentication_that_does_not_meet_the_request(platform: Platform, name: str) -> None:
    asked, output, error = UNMET[name]
    browser, interaction = start_interaction(platform, **asked)
    check_back(platform.submit_handoff(browser, platform.handoff(interaction, **output)), platform, error)
    browser, interaction = start_interaction(platform, **asked)
    assert "code" in redirect_target(platform.submit_handoff(browser, platform.handoff(interaction, acr="gold")))[1]


def test_a_person_other_than_the_hinted_one(platform: Platform) -> None:
    hint = platform.tokens(sub="ada")["id_token"]
    named = json.dumps({"id_token": {"sub": {"value": f"{platform.account}.ada"}}})
    for asked in ({"id_token_hint": hint}, {"claims": named}, {"id_token_hint": hint, "claims": named}):
        browser, interaction = start_interaction(platform, **asked)
        assert interaction["sub"] == "ada"
        check_back(
            platform.submit_handoff(browser, platform.handoff(interaction, sub="bob")), platform, "login_required"
        )
        browser, interaction = start_interaction(platform, **asked)
        assert "code" in redirect_target(platform.submit_handoff(browser, platform.handoff(interaction)))[1]


@pytest.mark.parametrize("error", ["login_required", "consent_required", "interaction_required", "access_denied"])
def test_what_the_login_application_answers_to_prompt_none(platform: Platform, error: str) -> None:
    browser, interaction = start_interaction(platform, prompt="none")
    assert interaction["prompt"] == "none"
    sent = platform.handoff(interaction, sub=None, scope=None, auth_time=None, claims=None, error=error)
    _, query = redirect_target(platform.submit_handoff(browser, sent))
    assert query == {"error": error, "state": "a state", "iss": platform.url}


# --- what changed meanwhile


def redefine(platform: Platform, client: str, **members: Any) -> None:
    answer = platform.gatepost.post("/oauth/clients", platform.admin, {"client_id": client} | members)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("said", [{}, {"sub": None, "error": "access_denied"}], ids=["granted", "denied"])
@pytest.mark.parametrize(
    "change", [{"status": "disabled"}, {"redirect_uris": ["https://app.example/other"]}], ids=["client", "redirect_uri"]
)
def test_a_client_that_was_disabled_or_lost_its_redirect_uri(
    stored: Platform, change: dict[str, Any], said: dict[str, Any]
) -> None:
    """Nothing goes to an address that is no longer registered, be it a code or an error."""
    client = stored.define()
    browser = Browser()
    interaction = stored.interaction(browser, stored.auth_request(client))
    redefine(stored, client.id, **change)
    check_nowhere(stored.submit_handoff(browser, stored.handoff(interaction, **said)), "no longer")


def test_only_codes_are_returned_even_if_the_stored_client_allows_more(stored: Platform) -> None:
    """Even if the stored client was altered to allow other response types and grants."""
    client = stored.define()
    browser = Browser()
    interaction = stored.interaction(browser, stored.auth_request(client))

    def tamper(tx: Tx) -> None:
        found = client_rows.load(tx, client.id)
        assert found is not None
        grants = [*found.grants, *(msgspec.structs.replace(found.grants[0], grant_type=each) for each in TAMPERED)]
        types = ["code", "token", "id_token token"]
        client_rows.update(
            tx,
            msgspec.structs.replace(
                found, response_types=types, grant_types=[*found.grant_types, *TAMPERED], grants=grants
            ),
        )

    stored.gatepost.opened.store.run_now(tamper)
    for kind in ("token", "id_token token", "code token"):
        answer = stored.authorize(browser, stored.auth_request(client, response_type=kind))
        check_back(answer, stored, "unsupported_response_type")
    _, query = redirect_target(stored.submit_handoff(browser, stored.handoff(interaction)))
    assert set(query) == {"code", "state", "iss"}
    for kind in TAMPERED:
        answer = stored.ask(client, grant_type=kind, username="ada", password="x", scope="openid")
        check_refusal(answer, "/oauth/tokens", "unsupported_grant_type")


TAMPERED = ("password", "implicit")


def test_a_scope_that_the_client_lost(stored: Platform) -> None:
    client = stored.define()
    browser = Browser()
    interaction = stored.interaction(browser, stored.auth_request(client))
    other_one = stored.interaction(browser, stored.auth_request(client))
    redefine(stored, client.id, scope=SCOPES.replace(" things:read", ""))
    check_back(stored.submit_handoff(browser, stored.handoff(interaction)), stored, "invalid_scope", "things:read")
    less = stored.handoff(other_one, scope="openid")
    assert "code" in redirect_target(stored.submit_handoff(browser, less))[1], "what was granted is what counts"


def test_a_grant_that_was_disabled(stored: Platform) -> None:
    client = stored.define(grant_types=["authorization_code"])
    browser = Browser()
    interaction = stored.interaction(browser, stored.auth_request(client))
    grant = {"grant_type": "authorization_code", "scopes": SCOPES.split(" "), "status": "disabled"}
    redefine(stored, client.id, grants=[grant])
    check_back(stored.submit_handoff(browser, stored.handoff(interaction)), stored, "unauthorized_client")


def test_a_scope_that_was_retired(gatepost: Service) -> None:
    mine = Platform(gatepost, "handoff-retired")
    browser, interaction = start_interaction(mine)
    mine.define_scope(name="things:read", status="retired", redefine=True)
    check_back(mine.submit_handoff(browser, mine.handoff(interaction)), mine, "invalid_scope", "things:read")


def test_an_account_that_was_suspended(sqlite_gatepost: Service) -> None:
    mine = Platform(sqlite_gatepost, "handoff-suspended")
    browser, interaction = start_interaction(mine)
    sqlite_gatepost.cli("account", "suspend", mine.name)
    check_nowhere(mine.submit_handoff(browser, mine.handoff(interaction)), "interaction")
    sqlite_gatepost.cli("account", "resume", mine.name)
    assert "code" in redirect_target(mine.submit_handoff(browser, mine.handoff(interaction)))[1]


def test_a_login_key_that_was_removed(sqlite_gatepost: Service) -> None:
    mine = Platform(sqlite_gatepost, "handoff-rekeyed")
    browser, interaction = start_interaction(mine)
    sqlite_gatepost.cli("account", "set", mine.name, f"login_jwks={key_set(KEY)}")
    check_nowhere(mine.submit_handoff(browser, mine.handoff(interaction)), UNVERIFIED)
    assert "code" in redirect_target(mine.submit_handoff(browser, mine.handoff(interaction, KEY)))[1]
    browser, interaction = start_interaction(mine)
    sqlite_gatepost.cli("account", "set", mine.name, "login_jwks=")
    check_nowhere(mine.submit_handoff(browser, mine.handoff(interaction, KEY)), UNVERIFIED)


# --- keys that are published


def test_login_keys_that_are_fetched_from_a_url(gatepost: Service) -> None:
    published: Answer = (200, {"Content-Type": "application/json"}, key_set(KEY, KEYS["RS256"]).encode())
    with receiver(published) as keys:
        mine = Platform(gatepost, "handoff-published", f"login_jwks={keys.url}", key=KEY)
        for key in (KEY, KEYS["RS256"]):
            browser, interaction = start_interaction(mine)
            check_nowhere(mine.submit_handoff(browser, mine.handoff(interaction, ATTACKER)), UNVERIFIED)
            assert "code" in redirect_target(mine.submit_handoff(browser, mine.handoff(interaction, key)))[1]
        assert {each.headers[":method"] for each in keys.requests} == {"GET"}
        assert not [each for each in keys.requests if "cookie" in each.headers or "authorization" in each.headers]
        assert len(keys.requests) <= len(gatepost.web_processes()), "they are remembered"


NOT_KEYS: dict[str, Answer] = {
    "an error": (500, {}, key_set(KEY).encode()),
    "a redirect": (302, {"Location": "http://127.0.0.1:1/jwks"}, key_set(KEY).encode()),
    "no JSON": (200, {}, b"<html>"),
    "no key set": (200, {}, b'["keys"]'),
    "no keys": (200, {}, b'{"keys": []}'),
    "a secret": (200, {}, json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "ec"}]}).encode()),
    "keys to encrypt with": (
        200, {}, json.dumps({"keys": [KEY.as_dict(private=False) | {"use": "enc"}]}).encode(),
    ),
    "too much": (200, {}, key_set(KEY).encode() + b" " * 200_000),
    "deep": (200, {}, b"[" * 100_000),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_KEYS)
def test_a_key_set_url_without_keys(sqlite_gatepost: Service, account_name: str, name: str) -> None:
    with receiver(NOT_KEYS[name]) as keys:
        mine = Platform(sqlite_gatepost, f"no-keys-{account_name}", f"login_jwks={keys.url}", key=KEY)
        browser, interaction = start_interaction(mine)
        check_nowhere(mine.submit_handoff(browser, mine.handoff(interaction)), UNVERIFIED)
        assert len(keys.requests) == 1


def test_a_key_set_url_that_is_unreachable(sqlite_gatepost: Service) -> None:
    with receiver() as keys:
        address = keys.url
    mine = Platform(sqlite_gatepost, "handoff-nobody", f"login_jwks={address}", key=KEY)
    browser, interaction = start_interaction(mine)
    check_nowhere(mine.submit_handoff(browser, mine.handoff(interaction)), UNVERIFIED)
