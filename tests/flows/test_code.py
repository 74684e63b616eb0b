"""Codes: what each is bound to, that it is used once, and what it gives: access token, ID token, refresh token."""

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from joserfc import jws
from joserfc.jwk import KeySet

from gatepost.core import clock, ids
from gatepost.oauth.authorize import codes
from gatepost.oauth.authorize.codes import code_id
from gatepost.store.transaction import Tx
from tests.assertions import signed
from tests.login import (
    CALLBACK,
    CLAIMS,
    SCOPES,
    VERIFIER,
    Browser,
    Platform,
    b64,
    challenge,
    decode_jwt,
    redirect_target,
)
from tests.proofs import Prover
from tests.service import Client, Service
from tests.wire import check_every_answer, check_refusal

EXCUSED = {"code_challenge": None, "code_challenge_method": None}


@pytest.fixture(scope="module")
def platform(gatepost: Service) -> Platform:
    return Platform(gatepost, "code")


@pytest.fixture(scope="module")
def other(gatepost: Service) -> Platform:
    return Platform(gatepost, "code-other")


@pytest.fixture(scope="module")
def single(sqlite_gatepost: Service) -> Platform:
    """Where the store does not matter."""
    return Platform(sqlite_gatepost, "code-single")


def refused(answer: requests.Response, *words: str, error: str = "invalid_grant") -> None:
    check_refusal(answer, "/oauth/tokens", error, *words)
    assert answer.headers["Gatepost-Event"].startswith("evt_")


def given(answer: requests.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def redefine(platform: Platform, client: Client, **members: Any) -> None:
    answer = platform.gatepost.post("/oauth/clients", platform.admin, {"client_id": client.id} | members)
    assert answer.status_code == 200, answer.text


# --- what a code gives


def test_a_code_is_redeemed(platform: Platform) -> None:
    before = int(time.time())
    code = platform.code(acr="gold", amr=["pwd", "otp"], auth_time=before - 5)
    answer = platform.redeem(code)
    found = given(answer)
    check_every_answer({name.lower(): value for name, value in answer.headers.items()})
    assert (answer.headers["Cache-Control"], answer.headers["Pragma"]) == ("no-store", "no-cache")
    assert set(found) == {"access_token", "token_type", "expires_in", "scope", "refresh_token", "id_token"}
    assert (found["token_type"], found["expires_in"]) == ("Bearer", 3600)
    assert found["scope"] == "openid offline_access things:read"
    assert found["refresh_token"].startswith("gpr_")
    header, claims = decode_jwt(found["access_token"])
    assert (header["typ"], header["alg"]) == ("at+jwt", "ES256")
    assert before <= claims["iat"] == claims["exp"] - 3600
    assert claims["jti"].startswith("tok_")
    assert claims["grant"].startswith("grt_")
    assert {name: claims[name] for name in set(claims) - {"iat", "exp", "jti", "grant"}} == {
        "iss": platform.url,
        "sub": f"{platform.account}.ada",
        "aud": [platform.api, platform.url],
        "client_id": platform.client.id,
        "scope": found["scope"],
        "account": platform.account,
        "auth_time": before - 5,
        "acr": "gold",
        "amr": ["pwd", "otp"],
    }
    [entry] = [each for each in platform.entries() if each["id"] == answer.headers["Gatepost-Event"]]
    assert (entry["type"], entry["subject"]) == ("oauth.token.issued", claims["jti"])
    assert entry["data"]["consent"].startswith("con_"), "in place of the person"
    assert "sub" not in entry["data"]


def test_the_same_subject_in_two_accounts_gets_two_subs(platform: Platform, other: Platform) -> None:
    subjects = {decode_jwt(each.tokens(sub="ada")["id_token"])[1]["sub"] for each in (platform, other)}
    assert subjects == {f"{platform.account}.ada", f"{other.account}.ada"}


@pytest.mark.parametrize(
    ("scope", "audience"),
    [
        ("openid things:read", ["{api}", "{url}"]),
        ("things:read things:write", "{api}"),
        ("openid", "{url}"),
        ("openid profile", ["urn:gatepost:{account}", "{url}"]),
        ("openid profile things:read", ["{api}", "{url}"]),
    ],
)
def test_the_audience(single: Platform, scope: str, audience: str | list[str]) -> None:
    def named(text: str) -> str:
        return text.format(api=single.api, url=single.url, account=single.account)

    found = single.tokens(single.auth_request(scope=scope))
    wanted = named(audience) if isinstance(audience, str) else [named(each) for each in audience]
    assert decode_jwt(found["access_token"])[1]["aud"] == wanted
    assert ("id_token" in found) == ("openid" in scope)


def test_a_refresh_token_needs_offline_access_and_the_grant(single: Platform) -> None:
    assert "refresh_token" in single.tokens()
    assert "refresh_token" not in single.tokens(single.auth_request(scope="openid things:read"))
    assert "refresh_token" not in single.tokens(scope="openid things:read"), "asked for, and not granted"
    client = single.define(grant_types=["authorization_code"])
    assert "refresh_token" not in single.tokens(single.auth_request(client), client)


def test_the_shortest_lifetime_wins(sqlite_gatepost: Service) -> None:
    mine = Platform(sqlite_gatepost, "code-lifetimes", "access_token_lifetime=600", "id_token_lifetime=90")
    brief = mine.define(access_token_lifetime=500)
    mine.define_scope(name="things:brief", resource=mine.api, max_lifetime=120)
    briefest = mine.define(scope="openid things:read things:brief", access_token_lifetime=500)
    for client, scope, lifetime in (
        (mine.client, "openid things:read", 600),
        (brief, "openid things:read", 500),
        (briefest, "openid things:read", 500),
        (briefest, "openid things:read things:brief", 120),
    ):
        found = mine.tokens(mine.auth_request(client, scope=scope), client)
        assert found["expires_in"] == lifetime
        access, identity = decode_jwt(found["access_token"])[1], decode_jwt(found["id_token"])[1]
        assert access["exp"] - access["iat"] == lifetime
        assert identity["exp"] - identity["iat"] == 90


# --- what it is bound to


def test_a_code_is_bound_to_one_client(platform: Platform, other: Platform) -> None:
    code = platform.code()
    public = platform.define(token_endpoint_auth_method="none")
    for client in (platform.define(), public):
        refused(platform.redeem(code, client), "unknown, or issued to another client")
    refused(other.redeem(code), "unknown, or issued to another client")
    assert given(platform.redeem(code)), "and nobody else can spoil it"


def test_a_public_clients_code(platform: Platform) -> None:
    client = platform.define(token_endpoint_auth_method="none")
    code = platform.code(platform.auth_request(client))
    refused(platform.redeem(code), "issued to another client")
    refused(platform.redeem(code, client, code_verifier=None), "code_verifier")
    assert given(platform.redeem(code, client))


# What the request for a token says otherwise than the authorization, and the word that names it.
MISMATCHED: dict[str, tuple[dict[str, Any], str]] = {
    "no redirect_uri": ({"redirect_uri": None}, "redirect_uri"),
    "another redirect_uri": ({"redirect_uri": "https://app.example/second"}, "redirect_uri"),
    "redirect_uri with a query": ({"redirect_uri": f"{CALLBACK}?a=b"}, "redirect_uri"),
    "no verifier": ({"code_verifier": None}, "code_verifier"),
    "another verifier": ({"code_verifier": "w" * 43}, "code_verifier"),
    "the challenge, as plain has it": ({"code_verifier": challenge()}, "code_verifier"),
    "half a verifier": ({"code_verifier": VERIFIER[:-1]}, "code_verifier"),
    "more than the verifier": ({"code_verifier": VERIFIER + "v"}, "code_verifier"),
    "verifier with a line break": ({"code_verifier": VERIFIER + "\n"}, "code_verifier"),
    "verifier that is not ASCII": ({"code_verifier": "é" * 43}, "code_verifier"),
    "a long verifier": ({"code_verifier": "v" * 129}, "code_verifier"),
}


@pytest.mark.parametrize("name", MISMATCHED)
def test_a_redemption_matches_its_authorization(single: Platform, name: str) -> None:
    client = single.define(redirect_uris=[CALLBACK, "https://app.example/second"])
    changes, word = MISMATCHED[name]
    code = single.code(single.auth_request(client))
    refused(single.redeem(code, client, **changes), word)
    assert given(single.redeem(code, client)), "a wrong try does not use it up"


def test_a_verifier_that_is_too_short_is_refused_although_it_matches(single: Platform) -> None:
    """RFC 7636, section 4.1: 43 to 128 characters."""
    for verifier, status in (
        ("v" * 42, 400),
        ("v" * 128, 200),
        ("v" * 129, 400),
        ("-._~" * 11, 200),
        ("v w" * 20, 400),
    ):
        code = single.code(single.auth_request(code_challenge=challenge(verifier)))
        assert single.redeem(code, code_verifier=verifier).status_code == status, verifier


def test_a_loopback_redirect_uri_is_the_one_that_was_sent(single: Platform) -> None:
    client = single.define(redirect_uris=["http://127.0.0.1/cb"], application_type="native")
    code = single.code(single.auth_request(client, redirect_uri="http://127.0.0.1:4000/cb"))
    for uri in ("http://127.0.0.1/cb", "http://127.0.0.1:4001/cb"):
        refused(single.redeem(code, client, redirect_uri=uri), "redirect_uri")
    assert given(single.redeem(code, client, redirect_uri="http://127.0.0.1:4000/cb"))


def test_a_client_that_is_excused_from_pkce(single: Platform) -> None:
    """Then a nonce replaces it, and a verifier means that the challenge was removed (RFC 9700, section 4.8.2)."""
    client = single.define(require_pkce=False)
    answer = single.authorize(Browser(), single.auth_request(client, nonce=None, **EXCUSED))
    assert redirect_target(answer)[1]["error"] == "invalid_request"
    code = single.code(single.auth_request(client, **EXCUSED))
    refused(single.redeem(code, client), "code_verifier", "no code_challenge")
    found = given(single.redeem(code, client, code_verifier=None))
    assert decode_jwt(found["id_token"])[1]["nonce"] == "a nonce"
    protected = single.code(single.auth_request(client))
    refused(single.redeem(protected, client, code_verifier=None), "code_verifier")
    assert given(single.redeem(protected, client))


@pytest.mark.parametrize("when", ["before the handoff", "before the redemption"])
def test_a_client_that_comes_to_require_pkce(single: Platform, when: str) -> None:
    client = single.define(require_pkce=False)
    if when == "before the handoff":
        browser = Browser()
        interaction = single.interaction(browser, single.auth_request(client, **EXCUSED))
        redefine(single, client, require_pkce=True)
        code = redirect_target(single.submit_handoff(browser, single.handoff(interaction)))[1]["code"]
    else:
        code = single.code(single.auth_request(client, **EXCUSED))
        redefine(single, client, require_pkce=True)
    refused(single.redeem(code, client, code_verifier=None), "requires now")


def test_a_client_that_is_excused_from_pkce_and_nonce(single: Platform) -> None:
    """For relying parties that send neither. What they do send is still checked."""
    client = single.define(require_pkce=False, require_nonce=False)
    code = single.code(single.auth_request(client, nonce=None, **EXCUSED))
    refused(single.redeem(code, client), "code_verifier", "no code_challenge")
    assert "nonce" not in decode_jwt(given(single.redeem(code, client, code_verifier=None))["id_token"])[1]
    protected = single.code(single.auth_request(client, nonce=None))
    refused(single.redeem(protected, client, code_verifier=None), "code_verifier")
    assert given(single.redeem(protected, client))


def test_a_code_is_bound_to_the_key_that_was_named(single: Platform) -> None:
    mine, theirs = Prover(single.url), Prover(single.url)
    code = single.code(single.auth_request(dpop_jkt=mine.thumbprint))
    refused(single.redeem(code), "DPoP")
    refused(single.redeem(code, headers=theirs.headers()), "DPoP")
    found = given(single.redeem(code, headers=mine.headers()))
    assert found["token_type"] == "DPoP"
    assert decode_jwt(found["access_token"])[1]["cnf"] == {"jkt": mine.thumbprint}


def test_a_key_that_was_not_named_may_be_shown_later(single: Platform) -> None:
    prover = Prover(single.url)
    found = given(single.redeem(single.code(), headers=prover.headers()))
    assert decode_jwt(found["access_token"])[1]["cnf"] == {"jkt": prover.thumbprint}


def test_strings_that_are_not_codes(single: Platform) -> None:
    code = single.code()
    flipped = [code[:at] + chr(ord(code[at]) ^ 1) + code[at + 1 :] for at in range(len(code))]
    shorter = [code[:size] for size in range(1, len(code))]
    hashed = code_id(code)
    for sent in (*flipped, *shorter, code + "A", code + " ", code + "\n", hashed.hex(), b64(hashed), "é", "a" * 5000):
        refused(single.redeem(sent), "code")
    refused(single.redeem(""), "code: missing", error="invalid_request")
    assert given(single.redeem(code))


# --- in time


@pytest.mark.parametrize(("settings", "seconds"), [([], 60), (["authorization_code_lifetime=10s"], 10)])
def test_the_lifetime_of_a_code(sqlite_gatepost: Service, account_name: str, settings: list[str], seconds: int) -> None:
    mine = Platform(sqlite_gatepost, f"code-life-{account_name}", *settings)
    code = mine.code()
    found = sqlite_gatepost.opened.store.read_now(lambda tx: codes.load(tx, mine.account, code_id(code)))
    [consent] = mine.entries("oauth.consent.given")
    made_at = clock.parse_rfc3339(consent["at"])
    assert found is not None
    assert made_at is not None
    assert (found.expires_at - made_at).total_seconds() == seconds


def test_an_expired_code(platform: Platform) -> None:
    code = platform.code()

    def expire(tx: Tx) -> int:
        statement = "UPDATE codes SET expires_at = :at WHERE id = :id RETURNING 1"
        return len(tx._connection.select(statement, {"id": code_id(code), "at": int(time.time()) * 1000}))

    assert platform.gatepost.opened.store.run_now(expire) == 1
    refused(platform.redeem(code), "code: expired")


def test_a_code_after_its_client_or_consent_changed(platform: Platform) -> None:
    """The grant of the client, its scope or the consent has ended. A disabled client is treated as unknown."""
    client = platform.define(grant_types=["authorization_code"])
    codes = [platform.code(platform.auth_request(client)) for _ in range(3)]
    redefine(platform, client, scope="openid offline_access")
    refused(platform.redeem(codes[0], client), "things:read", error="invalid_scope")
    grant = {"grant_type": "authorization_code", "scopes": SCOPES.split(" "), "status": "disabled"}
    redefine(platform, client, scope=SCOPES, grants=[grant])
    refused(platform.redeem(codes[1], client), error="unauthorized_client")
    redefine(platform, client, status="disabled")
    check_refusal(platform.redeem(codes[2], client), "/oauth/tokens", "invalid_client")
    redefine(platform, client, status="active", grants=None)
    assert given(platform.redeem(codes[2], client))


def test_a_consent_that_was_revoked_before_the_redemption(platform: Platform) -> None:
    code = platform.code(sub="leaver")
    now = int(time.time())
    claims = {"iss": platform.account, "aud": platform.url, "sub": "leaver", "iat": now, "exp": now + 60, "jti": "once"}
    result = signed(platform.key, claims, typ="gatepost-revoke+jwt")
    assert platform.gatepost.session.post(f"{platform.url}/oauth/revoke", data={"token": result}).status_code == 200
    refused(platform.redeem(code), "consent has ended")


# --- once


def of_consent(platform: Platform, consent: str, *types: str) -> list[dict[str, Any]]:
    return [each for each in platform.entries(*types) if each["subject"] == consent]


def test_reusing_a_code_revokes_its_tokens(platform: Platform) -> None:
    code = platform.code()
    first = platform.redeem(code)
    found = given(first)
    [issued] = [each for each in platform.entries() if each["id"] == first.headers["Gatepost-Event"]]
    consent = issued["data"]["consent"]
    later = given(platform.refresh(found["refresh_token"]))
    tokens = [found["access_token"], later["access_token"], later["refresh_token"]]
    assert [platform.introspect(each)["active"] for each in tokens] == [True, True, True]
    refused(platform.redeem(code), "used before")
    assert [platform.introspect(each) for each in tokens] == [{"active": False}] * 3
    refused(platform.refresh(later["refresh_token"]), "refresh_token")
    shown = {"Authorization": f"Bearer {found['access_token']}"}
    assert platform.gatepost.session.get(f"{platform.url}/oauth/userinfo", headers=shown).status_code == 401
    refused(platform.redeem(code), "used before")
    [reused] = of_consent(platform, consent, "oauth.token.reused")
    assert reused["data"] == {"client": platform.client.id, "what": "authorization_code"}
    [ended] = of_consent(platform, consent, "oauth.consent.ended")
    assert ended["data"] == {"client": platform.client.id, "reason": "code_reused"}


def test_reusing_a_code_revokes_its_tokens_even_if_the_request_does_not_match(platform: Platform) -> None:
    """Whoever has the code and not the verifier stole it; the client cannot tell which of the two was first."""
    code = platform.code()
    found = given(platform.redeem(code))
    refused(platform.redeem(code, code_verifier="w" * 43), "used before")
    assert platform.introspect(found["access_token"]) == {"active": False}


def test_reusing_a_code_of_another_client_revokes_nothing(platform: Platform, other: Platform) -> None:
    code = platform.code()
    found = given(platform.redeem(code))
    refused(platform.redeem(code, platform.define()), "issued to another client")
    refused(other.redeem(code), "issued to another client")
    assert platform.introspect(found["access_token"])["active"]


def test_of_fifty_concurrent_redemptions_one_succeeds_and_is_revoked(platform: Platform) -> None:
    """Whoever does not win comes after the winner: it is a second use, and so nothing of the first lives on."""
    client = platform.define()
    code = platform.code(platform.auth_request(client))

    def redeem(_: int) -> requests.Response:
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK, "code_verifier": VERIFIER,
        }  # fmt: skip
        return requests.post(f"{platform.url}/oauth/tokens", data=form, headers={"Authorization": client.basic})

    with ThreadPoolExecutor(25) as pool:
        answers = list(pool.map(redeem, range(50)))
    [one] = [answer for answer in answers if answer.status_code == 200]
    for each in answers:
        if each is not one:
            refused(each, "used before")
    for name in ("access_token", "refresh_token"):
        assert platform.introspect(one.json()[name], client) == {"active": False}
    reported = [
        each for each in platform.entries() if each["data"].get("client") == client.id or each["actor"] == client.id
    ]
    counted = {kind: sum(each["type"] == kind for each in reported) for kind in {each["type"] for each in reported}}
    assert counted == {
        "oauth.consent.given": 1,
        "oauth.token.issued": 1,
        "oauth.token.refused": 49,
        "oauth.token.reused": 1,
        "oauth.consent.ended": 1,
    }


# --- scopes and resources


def test_the_scope_of_a_redemption_can_only_be_narrower(single: Platform) -> None:
    code = single.code(single.auth_request(scope="openid things:read things:write"), scope="openid things:read")
    for scope in ("things:write", "things:read things:write", "profile", "gatepost:clients", "nothing"):
        refused(single.redeem(code, scope=scope), "exceeds what was agreed to", error="invalid_scope")
    found = given(single.redeem(code, scope="things:read"))
    assert found["scope"] == decode_jwt(found["access_token"])[1]["scope"] == "things:read"
    assert "id_token" not in found


def test_what_was_granted_is_what_is_given(single: Platform) -> None:
    found = single.tokens(single.auth_request(scope="openid things:read things:write"), scope="openid things:write")
    assert found["scope"] == "openid things:write"


@pytest.fixture(scope="module")
def wide(single: Platform) -> tuple[Client, str]:
    """A client whose scopes are of two resources, and the second of these."""
    second = "https://second.code-single.example"
    single.define_scope(name="second:read", resource=second)
    return single.define(scope=f"{SCOPES} second:read"), second


ACROSS = "openid offline_access things:read second:read"


def test_an_authorization_may_span_several_resources(single: Platform, wide: tuple[Client, str]) -> None:
    """Each token is for one of them, with that one's scopes."""
    client, second = wide
    code = single.code(single.auth_request(client, scope=ACROSS, resource=[single.api, second]))
    refused(single.redeem(code, client), "several resources", error="invalid_scope")
    refused(single.redeem(code, client, resource="https://elsewhere.example"), "resource", error="invalid_target")
    refused(single.redeem(code, client, resource=[single.api, second]), "one resource", error="invalid_target")
    found = given(single.redeem(code, client, resource=single.api))
    assert found["scope"] == "openid offline_access things:read"
    assert decode_jwt(found["access_token"])[1]["aud"] == [single.api, single.url]
    later = given(single.refresh(found["refresh_token"], client, resource=second))
    assert later["scope"] == "openid offline_access second:read"
    assert decode_jwt(later["access_token"])[1]["aud"] == [second, single.url]


def test_a_resource_that_was_named_is_the_only_one(single: Platform, wide: tuple[Client, str]) -> None:
    """However it is asked for: by its name, by a scope of it, or since nothing else was granted."""
    client, second = wide
    asked = single.auth_request(client, scope=ACROSS, resource=single.api)
    code = single.code(asked)
    refused(single.redeem(code, client, resource=second), "not for this resource", error="invalid_target")
    refused(single.redeem(code, client, scope="second:read"), "not for this resource", error="invalid_target")
    found = given(single.redeem(code, client))
    assert (found["scope"], decode_jwt(found["access_token"])[1]["aud"][0]) == (
        "openid offline_access things:read",
        single.api,
    )
    only_second = single.code(asked, scope="second:read")
    refused(single.redeem(only_second, client), "not for this resource", error="invalid_target")
    refused(single.refresh(found["refresh_token"], client, resource=second), "resource", error="invalid_target")


def test_a_sign_in_without_the_scopes_of_its_resource(single: Platform) -> None:
    """A scope that only tells about the person goes with any resource, and needs none."""
    own = f"urn:gatepost:{single.account}"
    for resource, audience in ((single.api, single.url), (own, [own, single.url])):
        asked = single.auth_request(scope="openid profile things:read", resource=resource)
        found = single.tokens(asked, scope="openid profile")
        assert found["scope"] == "openid profile"
        assert decode_jwt(found["access_token"])[1]["aud"] == audience


# --- ID tokens


@pytest.mark.parametrize("alg", [None, "RS256", "ES256", "EdDSA"])
def test_an_id_token(single: Platform, alg: str | None) -> None:
    client = single.define(**({"id_token_signed_response_alg": alg} if alg else {}))
    asked = single.auth_request(client, scope="openid profile")
    found = single.tokens(asked, client, auth_time=1_700_000_000, acr="gold", amr=["pwd"])
    keys = KeySet.import_key_set(single.gatepost.session.get(f"{single.url}/oauth/jwks").json())
    read = jws.deserialize_compact(found["id_token"], keys, algorithms=[alg or "RS256"])
    header, claims = read.headers(), json.loads(read.payload)
    assert (header["alg"], header["typ"]) == (alg or "RS256", "JWT")
    hashed = (hashlib.sha512 if alg == "EdDSA" else hashlib.sha256)(found["access_token"].encode()).digest()
    assert claims.pop("at_hash") == b64(hashed[: len(hashed) // 2])
    assert claims.pop("exp") == claims.pop("iat") + 3600
    assert claims == {
        "iss": single.url,
        "sub": f"{single.account}.ada",
        "aud": client.id,
        "nonce": "a nonce",
        "auth_time": 1_700_000_000,
        "acr": "gold",
        "amr": ["pwd"],
    }


def test_scope_claims_are_in_the_id_token_only_of_clients_that_want_them(platform: Platform) -> None:
    """OIDC Core 1.0, sections 5.4 and 5.5; `id_token_claims` for clients that do not call userinfo."""
    of_profile = {"name", "given_name", "picture"}
    wanted = json.dumps({"id_token": {"name": None, "email": None}, "userinfo": {"picture": None}})
    client = platform.define(client_name="ID token claims")

    def in_id_tokens(**asked: Any) -> set[str]:
        found = platform.tokens(platform.auth_request(client, scope="openid offline_access profile", **asked), client)
        again = given(platform.refresh(found["refresh_token"], client))
        first, second = (CLAIMS.keys() & decode_jwt(each["id_token"])[1].keys() for each in (found, again))
        assert first == second
        body = platform.gatepost.session.get(
            f"{platform.url}/oauth/userinfo", headers={"Authorization": f"Bearer {found['access_token']}"}
        ).json()
        assert body.keys() - {"sub"} == of_profile, "whatever the ID token holds"
        return first

    assert in_id_tokens() == set()
    assert in_id_tokens(claims=wanted) == {"name", "email"}
    changes = {"client_id": client.id, "id_token_claims": True}
    answer = platform.gatepost.post("/oauth/clients", platform.admin, changes)
    assert answer.json()["id_token_claims"] is True
    assert in_id_tokens() == of_profile
    assert in_id_tokens(claims=wanted) == of_profile | {"email"}
    answer = platform.gatepost.post("/oauth/clients", platform.admin, changes | {"id_token_claims": None})
    assert answer.json()["id_token_claims"] is False
    assert in_id_tokens() == set()


def test_an_id_token_is_not_accepted_as_access_token(single: Platform) -> None:
    found = single.tokens()
    assert single.introspect(found["id_token"]) == {"active": False}
    shown = {"Authorization": f"Bearer {found['id_token']}"}
    assert single.gatepost.session.get(f"{single.url}/oauth/userinfo", headers=shown).status_code == 401


def test_an_id_token_contains_only_requested_claims(single: Platform) -> None:
    claims = decode_jwt(single.tokens(single.auth_request(nonce=None, scope="openid"))["id_token"])[1]
    assert set(claims) == {"iss", "sub", "aud", "exp", "iat", "auth_time", "at_hash"}
    again = decode_jwt(given(single.refresh(single.tokens()["refresh_token"]))["id_token"])[1]
    assert "nonce" not in again, "OIDC Core 1.0, section 12.2: that of the first was the first's"


def test_claims_that_were_asked_for_by_name(single: Platform) -> None:
    wanted = {"id_token": {"email": {"essential": True}, "unknown": None}, "userinfo": {"name": None}}
    found = single.tokens(single.auth_request(scope="openid", claims=json.dumps(wanted)))
    claims = decode_jwt(found["id_token"])[1]
    assert claims["email"] == CLAIMS["email"]
    assert not {"name", "unknown", "given_name"} & set(claims)


def test_requested_claims_that_the_handoff_lacks(single: Platform) -> None:
    claims = decode_jwt(single.tokens(single.auth_request(scope="openid profile"), claims={"email": "x"})["id_token"])[
        1
    ]
    assert not set(CLAIMS) & set(claims)


# --- what is kept


def test_personal_data_and_tokens_are_not_stored_in_clear(sqlite_gatepost: Service) -> None:
    """Not in the store's files, nor in the log; the ledger names a consent where the person would stand."""
    mine = Platform(sqlite_gatepost, "code-private")
    person = "unmistakable-person"
    output = {"name": "Unmistakable Name", "email": "unmistakable@example.com"}
    browser = Browser()
    asked = mine.auth_request(
        scope="openid offline_access profile", login_hint="unmistakable-hint", state="unmistakable-state"
    )
    interaction = mine.interaction(browser, asked)
    handoff = mine.handoff(interaction, sub=person, claims=output, acr="unmistakable-acr")
    _, query = redirect_target(mine.submit_handoff(browser, handoff))
    found = given(mine.redeem(query["code"]))
    given(mine.refresh(found["refresh_token"]))
    pushed = mine.post("par", **mine.auth_request(login_hint="unmistakable-hint")).json()["request_uri"]
    kept = b"".join(path.read_bytes() for path in sqlite_gatepost.directory.iterdir() if path.is_file())
    kept += sqlite_gatepost.directory.with_name(f"{sqlite_gatepost.directory.name}.log").read_bytes()
    assert mine.api.encode() in kept, "what may be found is found"
    assert ids.raw(mine.account) in kept
    secrets = [
        "unmistakable", "Unmistakable", query["code"], handoff, found["access_token"], found["refresh_token"],
        found["id_token"], pushed.rpartition(":")[2], *browser.session.cookies.get_dict().values(),
        *(token.split(".")[part] for token in (found["access_token"], found["id_token"], handoff) for part in (1, 2)),
    ]  # fmt: skip
    assert [each for each in secrets if each.encode() in kept] == []
    assert not [each for each in mine.entries() if "nmistakable" in json.dumps(each)]
