"""Userinfo (OIDC Core 1.0, section 5.3): what a token of a person tells about them, by which scope, and until when."""

import json
import time
from typing import Any

import pytest
import requests

from tests.assertions import signed
from tests.login import CLAIMS, SCOPES, Browser, Platform, b64, decode_jwt, redirect_target
from tests.proofs import Prover
from tests.service import Service
from tests.wire import check_every_answer, check_refusal

PROFILE = {name: CLAIMS[name] for name in ("name", "given_name", "picture")}


@pytest.fixture(scope="module")
def platform(gatepost: Service) -> Platform:
    return Platform(gatepost, "userinfo")


@pytest.fixture(scope="module")
def single(sqlite_gatepost: Service) -> Platform:
    """Where the store does not matter."""
    return Platform(sqlite_gatepost, "userinfo-single")


def ask(platform: Platform, token: str, method: str = "GET", **options: Any) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}"} | options.pop("headers", {})
    return requests.request(method, f"{platform.url}/oauth/userinfo", headers=headers, **options)


def userinfo_claims(platform: Platform, scope: str, **changes: Any) -> dict[str, Any]:
    found = platform.tokens(platform.auth_request(scope=scope, **changes))
    answer = ask(platform, found["access_token"])
    assert answer.status_code == 200, answer.text
    claims: dict[str, Any] = answer.json()
    assert claims.pop("sub") == decode_jwt(found["id_token"])[1]["sub"] == f"{platform.account}.ada"
    return claims


def refused(answer: requests.Response, code: str, *words: str) -> None:
    check_refusal(answer, "/oauth/userinfo", code, *words)
    challenge = answer.headers["WWW-Authenticate"]
    assert challenge.startswith("Bearer ")
    assert 'scope="openid"' in challenge
    assert "/.well-known/oauth-protected-resource" in challenge


# --- the claims


STANDARD: dict[str, dict[str, Any]] = {
    "profile": PROFILE,
    "email": {"email": CLAIMS["email"], "email_verified": True},
    "address": {"address": {"country": "UK"}},
    "phone": {"phone_number": "+44 20 7946 0000"},
}


def test_standard_scopes_exist_until_the_account_defines_its_own(gatepost: Service, account_name: str) -> None:
    """OIDC Core 1.0, section 5.4. A client obtains them only if its grants list them."""
    mine = Platform(gatepost, account_name)
    client = mine.define(scope=f"openid {' '.join(STANDARD)}")
    output = {name: value for claims in STANDARD.values() for name, value in claims.items()}

    def released(scope: str) -> dict[str, Any]:
        asked = mine.auth_request(client, scope=f"openid {scope}")
        found = mine.redeem(mine.code(asked, claims=output), client).json()
        answer: dict[str, Any] = ask(mine, found["access_token"]).json()
        return {name: value for name, value in answer.items() if name != "sub"}

    for scope, claims in STANDARD.items():
        assert released(scope) == claims
    interaction = mine.interaction(Browser(), mine.auth_request(client, scope="openid email phone"))
    assert all(each["description"] for each in interaction["scopes"])
    _, refusal = redirect_target(mine.authorize(Browser(), mine.auth_request(scope="openid email")))
    assert refusal["error"] == "invalid_scope", "this client's grant does not list it"
    mine.define_scope(name="email", claims=["email"])
    assert released("email") == {"email": CLAIMS["email"]}
    mine.define_scope(name="email", status="retired", redefine=True)
    _, refusal = redirect_target(mine.authorize(Browser(), mine.auth_request(client, scope="openid email")))
    assert refusal["error"] == "invalid_scope", "a retired scope does not bring the built-in one back"


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
def test_the_answer(platform: Platform, method: str) -> None:
    token = platform.tokens(platform.auth_request(scope="openid profile"))["access_token"]
    answer = ask(platform, token, method)
    assert answer.status_code == 200
    check_every_answer({name.lower(): value for name, value in answer.headers.items()})
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "no-store"
    if method == "HEAD":
        assert answer.content == b""
    else:
        assert answer.json() == {"sub": f"{platform.account}.ada"} | PROFILE


@pytest.mark.parametrize(
    ("scope", "claims"),
    [
        ("openid", {}),
        ("openid things:read", {}),
        ("openid profile", PROFILE),
        ("openid profile offline_access", PROFILE),
        ("openid profile things:read", PROFILE),
    ],
)
def test_a_scope_releases_its_claims_and_no_others(single: Platform, scope: str, claims: dict[str, Any]) -> None:
    assert userinfo_claims(single, scope) == claims


def test_a_scope_of_the_accounts_own(sqlite_gatepost: Service) -> None:
    mine = Platform(sqlite_gatepost, "userinfo-own")
    mine.define_scope(name="roles", claims=["roles", "groups"])
    mine.define_scope(name="email")
    client = mine.define(scope=f"{SCOPES} roles email", id_token_claims=True)
    output = {"roles": ["admin"], "groups": None, "email": "ada@example.com", "secret": "x"}
    for scope, claims in (
        ("openid roles", {"roles": ["admin"], "groups": None}),
        ("openid email", {"email": "ada@example.com"}),
        ("openid email profile roles", {"roles": ["admin"], "groups": None, "email": "ada@example.com"}),
    ):
        found = mine.tokens(mine.auth_request(client, scope=scope), client, claims=output)
        assert ask(mine, found["access_token"]).json() == {"sub": f"{mine.account}.ada"} | claims
        assert claims.items() <= decode_jwt(found["id_token"])[1].items(), "and the ID token says the same"


def test_a_narrower_token_tells_less(single: Platform) -> None:
    """It is the token's scope that counts, and not all that was once agreed to."""
    asked = single.auth_request(scope="openid offline_access profile")
    found = single.tokens(asked)
    assert ask(single, found["access_token"]).json().keys() == {"sub", *PROFILE}
    narrow = single.refresh(found["refresh_token"], scope="openid").json()
    assert ask(single, narrow["access_token"]).json().keys() == {"sub"}


def test_claims_that_the_person_did_not_grant_are_omitted(single: Platform) -> None:
    found = single.tokens(single.auth_request(scope="openid profile"), scope="openid")
    assert ask(single, found["access_token"]).json().keys() == {"sub"}


def test_claims_that_were_asked_for_by_name(single: Platform) -> None:
    wanted = {"userinfo": {"email": None, "unknown": {"essential": True}}, "id_token": {"picture": None}}
    assert userinfo_claims(single, "openid", claims=json.dumps(wanted)) == {"email": CLAIMS["email"]}


def test_each_consent_tells_what_was_said_for_it(single: Platform) -> None:
    """Nobody is looked up: two sign-ins of one person are two consents."""
    asked = single.auth_request(scope="openid profile")
    tokens = [single.tokens(asked, claims={"name": name})["access_token"] for name in ("Ada", "Ada King")]
    assert [ask(single, token).json()["name"] for token in tokens] == ["Ada", "Ada King"]


# --- what is not


def test_no_token(single: Platform) -> None:
    address = f"{single.url}/oauth/userinfo"
    token = single.tokens()["access_token"]
    for answer in (
        requests.get(address),
        requests.get(address, params={"access_token": token}),
        requests.post(address, json={"access_token": token}),
        requests.post(address, data={"access_token": ""}),
        requests.get(address, headers={"Authorization": single.client.basic}),
        requests.get(address, headers={"Authorization": token}),
        requests.get(address, headers={"Authorization": "Bearer"}),
    ):
        refused(answer, "invalid_token")
        assert "error=" not in answer.headers["WWW-Authenticate"], "RFC 6750, section 3.1: nothing was shown"


def test_a_token_in_a_form(single: Platform) -> None:
    address, token = f"{single.url}/oauth/userinfo", single.tokens()["access_token"]
    assert requests.post(address, data={"access_token": token}).json() == {"sub": f"{single.account}.ada"}
    refused(requests.post(address, data={"access_token": "x"}), "invalid_token")
    for headers in ({"Authorization": f"Bearer {token}"}, {"Authorization": single.client.basic}):
        refused(requests.post(address, data={"access_token": token}, headers=headers), "invalid_request", "once")
    refused(requests.post(address, data=[("access_token", token)] * 2), "invalid_request", "access_token")
    bound = single.redeem(single.code(), headers=Prover(single.url).headers()).json()["access_token"]
    refused(requests.post(address, data={"access_token": bound}), "invalid_token", "DPoP")


def test_tokens_that_gatepost_did_not_issue(single: Platform) -> None:
    found = single.tokens()
    head, claims, signature = found["access_token"].split(".")
    now = int(time.time())
    forged = signed(single.key, decode_jwt(found["access_token"])[1] | {"exp": now + 60}, typ="at+jwt")
    wrong = {
        "no JWT": "x",
        "a refresh token": found["refresh_token"],
        "an ID token": found["id_token"],
        "of another key": forged,
        "without its signature": f"{head}.{claims}.",
        "with half of its signature": f"{head}.{claims}.{signature[:43]}",
        "with claims of another": f"{head}.{opened_as(found['access_token'], sub='x')}.{signature}",
        "long": found["access_token"] + "A" * 20_000,
    }
    for name, token in wrong.items():
        answer = ask(single, token)
        assert answer.status_code == 401, name
        refused(answer, "invalid_token")
        assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]


def opened_as(token: str, **changes: Any) -> str:
    return b64(json.dumps(decode_jwt(token)[1] | changes).encode())


def test_a_token_without_openid(single: Platform) -> None:
    token = single.tokens(single.auth_request(scope="things:read profile", resource=single.api))["access_token"]
    assert decode_jwt(token)[1]["aud"] == single.api, "it is not even for us"
    refused(ask(single, token), "insufficient_scope", "openid")
    narrowed = single.redeem(single.code(), scope="things:read").json()["access_token"]
    refused(ask(single, narrowed), "insufficient_scope", "openid")


def test_a_machines_token(single: Platform) -> None:
    answer = ask(single, single.admin)
    refused(answer, "insufficient_scope", "openid")
    [entry] = [each for each in single.entries() if each["id"] == answer.headers["Gatepost-Event"]]
    assert (entry["type"], entry["actor"]) == ("oauth.request.refused", decode_jwt(single.admin)[1]["jti"])
    assert (entry["data"]["at"], entry["data"]["error"]) == ("userinfo", "insufficient_scope")


def test_a_refused_token_that_is_bound_to_a_key(single: Platform) -> None:
    prover = Prover(single.url)
    redeemed = single.redeem(single.code(), scope="things:read", headers=prover.headers()).json()
    shown = prover.headers("GET", "/oauth/userinfo", redeemed["access_token"])
    answer = requests.get(f"{single.url}/oauth/userinfo", headers=shown)
    check_refusal(answer, "/oauth/userinfo", "insufficient_scope", "openid")
    assert answer.headers["WWW-Authenticate"].startswith("DPoP ")
    assert answer.headers["Gatepost-Event"]


def test_a_token_that_is_bound_to_a_key(single: Platform) -> None:
    prover, thief = Prover(single.url), Prover(single.url)
    token = single.redeem(single.code(), headers=prover.headers()).json()["access_token"]
    address = f"{single.url}/oauth/userinfo"
    refused(ask(single, token), "invalid_token", "DPoP")
    shown = prover.headers("GET", "/oauth/userinfo", token)
    assert requests.get(address, headers=shown).json() == {"sub": f"{single.account}.ada"}
    assert requests.get(address, headers=shown).status_code == 401, "a proof is used once"
    assert requests.get(address, headers=thief.headers("GET", "/oauth/userinfo", token)).status_code == 401


# --- until when


@pytest.mark.parametrize("scope", ["openid", "openid offline_access"])
def test_a_consent_that_was_taken_back(platform: Platform, scope: str) -> None:
    asked = platform.auth_request(scope=scope)
    found, stays = platform.tokens(asked, sub="leaver"), platform.tokens(asked, sub="stayer")
    assert ask(platform, found["access_token"]).status_code == 200
    now = int(time.time())
    claims = {"iss": platform.account, "aud": platform.url, "sub": "leaver", "iat": now, "exp": now + 60, "jti": scope}
    result = signed(platform.key, claims, typ="gatepost-revoke+jwt")
    assert requests.post(f"{platform.url}/oauth/revoke", data={"token": result}).status_code == 200
    refused(ask(platform, found["access_token"]), "invalid_token", "no longer works")
    assert ask(platform, stays["access_token"]).status_code == 200


@pytest.mark.parametrize("which", ["access_token", "refresh_token"])
def test_a_token_that_was_given_back(platform: Platform, which: str) -> None:
    found = platform.tokens()
    assert ask(platform, found["access_token"]).status_code == 200
    assert platform.post("revoke", token=found[which]).status_code == 200
    refused(ask(platform, found["access_token"]), "invalid_token", "no longer works")


def test_a_client_that_was_disabled(platform: Platform) -> None:
    client = platform.define()
    found = platform.tokens(platform.auth_request(client), client)
    assert ask(platform, found["access_token"]).status_code == 200
    for status, wanted in (("disabled", 401), ("active", 200)):
        members = {"client_id": client.id, "status": status}
        assert platform.gatepost.post("/oauth/clients", platform.admin, members).status_code == 200
        assert ask(platform, found["access_token"]).status_code == wanted


def test_an_account_that_was_suspended(sqlite_gatepost: Service) -> None:
    mine = Platform(sqlite_gatepost, "userinfo-suspended")
    token = mine.tokens()["access_token"]
    assert ask(mine, token).status_code == 200
    sqlite_gatepost.cli("account", "suspend", mine.name)
    refused(ask(mine, token), "invalid_token")


# --- scripts of other sites


def test_a_script_may_ask(single: Platform) -> None:
    """With the token it holds, and never with what a browser would add by itself."""
    asked = {"Origin": "https://app.example", "Access-Control-Request-Headers": "authorization"}
    preflight = requests.options(
        f"{single.url}/oauth/userinfo", headers=asked | {"Access-Control-Request-Method": "GET"}
    )
    assert preflight.status_code == 204
    assert preflight.headers["Access-Control-Allow-Origin"] == "*"
    assert "Authorization" in preflight.headers["Access-Control-Allow-Headers"]
    assert set(preflight.headers["Access-Control-Allow-Methods"].split(", ")) == {"GET", "POST"}
    for token in (single.tokens()["access_token"], "x"):
        answer = ask(single, token, headers={"Origin": "https://app.example"})
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert "WWW-Authenticate" in answer.headers["Access-Control-Expose-Headers"]
        assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_other_methods(single: Platform, method: str) -> None:
    answer = ask(single, "x", method)
    assert answer.status_code == 405
    assert set(answer.headers["Allow"].split(", ")) == {"GET", "POST", "HEAD", "OPTIONS"}
