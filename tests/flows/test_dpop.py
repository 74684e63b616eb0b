"""Tokens bound to a key (RFC 9449): at the token endpoint, at the operations, and wherever a proof is sent."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from joserfc.jwk import OKPKey

from gatepost.core import ids
from gatepost.store.transaction import Tx
from tests import wire
from tests.login import CALLBACK, Browser, Platform, decode_jwt
from tests.proofs import Prover, fresh_nonce, hash_of
from tests.rsa_keys import rsa_key
from tests.service import Client, Service
from tests.web_beside import web_beside
from tests.wire import check_refusal, session_from_new_address

TOKENS = "/oauth/tokens"
OPERATIONS = "gatepost:clients gatepost:scopes gatepost:deliveries gatepost:events"
NO_HEADERS: dict[str, str] = {}
RSA = rsa_key()
KEYS: dict[str, Any] = {"RS256": RSA, "PS256": RSA, "EdDSA": OKPKey.generate_key("Ed25519")}


class Holder:
    """An account, its first client, and a key that its tokens are bound to."""

    def __init__(self, gatepost: Service, name: str) -> None:
        self.gatepost, self.url = gatepost, gatepost.url
        self.account, self.client = gatepost.account(name)
        self.prover = Prover(gatepost.url)

    def ask(self, scope: str = OPERATIONS, prover: Prover | None = None, **changes: Any) -> requests.Response:
        return self.gatepost.token_answer(self.client, scope, (prover or self.prover).headers(**changes))

    def bound(self, scope: str = OPERATIONS) -> str:
        answer = self.ask(scope)
        assert answer.status_code == 200, answer.text
        assert answer.json()["token_type"] == "DPoP"
        return str(answer.json()["access_token"])

    def send(self, method: str, path: str, token: str, body: Any = None, **changes: Any) -> requests.Response:
        headers = self.prover.headers(method, path, token, **changes)
        url = path if "://" in path else self.url + path
        return self.gatepost.session.request(method, url, json=body, headers=headers)


@pytest.fixture
def holder(sqlite_gatepost: Service, account_name: str) -> Holder:
    return Holder(sqlite_gatepost, account_name)


@pytest.fixture
def platform(sqlite_gatepost: Service, account_name: str) -> Platform:
    return Platform(sqlite_gatepost, account_name)


# --- the token endpoint


def test_a_proof_binds_the_token_to_its_key(gatepost: Service, account_name: str) -> None:
    holder = Holder(gatepost, account_name)
    answer = holder.ask()
    assert answer.status_code == 200, answer.text
    token = answer.json()["access_token"]
    assert decode_jwt(token)[1]["cnf"] == {"jkt": holder.prover.thumbprint}
    form = {"token": token}
    body = gatepost.session.post(
        f"{gatepost.url}/oauth/introspect", data=form, headers={"Authorization": holder.client.basic}
    ).json()
    assert (body["active"], body["token_type"]) == (True, "DPoP")
    assert body["cnf"] == {"jkt": holder.prover.thumbprint}


def test_without_a_proof_a_token_is_bound_to_nothing(holder: Holder) -> None:
    answer = holder.gatepost.token_answer(holder.client, OPERATIONS)
    assert answer.json()["token_type"] == "Bearer"
    assert "cnf" not in decode_jwt(answer.json()["access_token"])[1]
    assert "DPoP-Nonce" not in answer.headers


@pytest.mark.parametrize("alg", KEYS)
def test_every_algorithm(holder: Holder, alg: str) -> None:
    holder.prover = Prover(holder.url, KEYS[alg])
    answer = holder.ask(header={"alg": alg})
    assert answer.status_code == 200, answer.text
    token = answer.json()["access_token"]
    assert decode_jwt(token)[1]["cnf"]["jkt"] == holder.prover.thumbprint
    assert holder.send("GET", "/webhooks/deliveries", token, header={"alg": alg}).status_code == 200


def test_a_nonce_is_asked_for_and_given(holder: Holder) -> None:
    first = holder.ask(nonce=None)
    check_refusal(first, TOKENS, "use_dpop_nonce", "DPoP-Nonce")
    again = holder.ask(nonce=first.headers["DPoP-Nonce"])
    assert again.status_code == 200, again.text
    following = holder.ask(nonce=again.headers["DPoP-Nonce"])
    assert following.status_code == 200, following.text


WRONG: dict[str, dict[str, Any]] = {
    "htm": {"htm": "GET"},
    "htu": {"htu": "https://evil.example/oauth/tokens"},
    "iat": {"iat": 1},
    "jti": {"jti": None},
    "typ": {"header": {"typ": "JWT"}},
    "jwk": {"header": {"jwk": None}},
    "signature": {"header": {"jwk": KEYS["EdDSA"].as_dict(private=False), "alg": "ES256"}},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_proof_is_refused_and_recorded(holder: Holder, name: str) -> None:
    answer = holder.ask(**WRONG[name])
    check_refusal(answer, TOKENS, "invalid_dpop_proof", "DPoP")
    entry = holder.gatepost.entries(holder.account, 1)[0]
    assert (entry["type"], entry["id"]) == ("oauth.token.refused", answer.headers["Gatepost-Event"])
    assert entry["data"]["error"] == "invalid_dpop_proof"


def test_the_client_is_authenticated_before_its_proof_is_checked(holder: Holder) -> None:
    """A stranger learns nothing about proofs, but gets a nonce."""
    stranger = Client(holder.client.id, "gps_wrong")
    with session_from_new_address() as session:
        answer = session.post(
            holder.url + TOKENS, data={"grant_type": "client_credentials"},
            headers={"Authorization": stranger.basic} | holder.prover.headers(htm="GET"),
        )  # fmt: skip
    check_refusal(answer, TOKENS, "invalid_client")
    assert answer.headers["DPoP-Nonce"]


@pytest.mark.parametrize("name", ["Host", "X-Forwarded-Host", "Forwarded"])
def test_no_header_changes_the_address_that_a_proof_is_for(holder: Holder, name: str) -> None:
    value = "host=evil.example" if name == "Forwarded" else "evil.example"
    for htu, status in (("http://evil.example/oauth/tokens", 400), (holder.url + TOKENS, 200)):
        headers = holder.prover.headers(htu=htu) | {name: value}
        answer = holder.gatepost.token_answer(holder.client, OPERATIONS, headers)
        assert answer.status_code == status, answer.text


def test_two_proofs_are_refused(holder: Holder) -> None:
    fields = [
        f"Authorization: {holder.client.basic}", "Content-Type: application/x-www-form-urlencoded",
        f"DPoP: {holder.prover.proof('POST', TOKENS)}", f"DPoP: {holder.prover.proof('POST', TOKENS)}",
    ]  # fmt: skip
    body = b"grant_type=client_credentials&scope=gatepost:scopes"
    answer = wire.exchange(holder.url, wire.request(f"POST {TOKENS} HTTP/1.1", *fields, body=body))
    check_refusal(answer, TOKENS, "invalid_dpop_proof", "one proof")
    assert answer.headers["dpop-nonce"]
    both = ", ".join(holder.prover.proof("POST", TOKENS) for _ in range(2))
    check_refusal(
        holder.gatepost.token_answer(holder.client, OPERATIONS, {"DPoP": both}), TOKENS, "invalid_dpop_proof", "one"
    )


def test_a_client_with_bound_tokens_must_send_a_proof(platform: Platform) -> None:
    machine = platform.define(
        grant_types=["client_credentials"], redirect_uris=None, scope="things:read", dpop_bound_access_tokens=True
    )
    answer = platform.ask(machine, grant_type="client_credentials", scope="things:read")
    check_refusal(answer, TOKENS, "invalid_dpop_proof", "send a proof")
    client = platform.define(dpop_bound_access_tokens=True)
    code, prover = platform.code(platform.auth_request(client)), Prover(platform.url)
    check_refusal(platform.redeem(code, client), TOKENS, "invalid_dpop_proof", "send a proof")
    answer = platform.redeem(code, client, headers=prover.headers())
    assert answer.json()["token_type"] == "DPoP", answer.text
    again = platform.refresh(answer.json()["refresh_token"], client)
    check_refusal(again, TOKENS, "invalid_dpop_proof", "send a proof")
    assert platform.refresh(answer.json()["refresh_token"], client, headers=prover.headers()).status_code == 200


def test_explaining_shows_the_binding_and_uses_nothing_up(holder: Holder) -> None:
    headers = holder.prover.headers()
    result = holder.gatepost.token_answer(holder.client, OPERATIONS, headers | {"Prefer": "explain"})
    assert result.json()["claims"]["cnf"] == {"jkt": holder.prover.thumbprint}
    assert holder.gatepost.token_answer(holder.client, OPERATIONS, headers).status_code == 200


# --- codes and refresh tokens


def public_client(platform: Platform) -> Client:
    return platform.define(token_endpoint_auth_method="none")


def test_a_public_clients_refresh_token_is_bound_to_the_key(gatepost: Service, account_name: str) -> None:
    platform = Platform(gatepost, account_name)
    client, prover, thief = public_client(platform), Prover(platform.url), Prover(platform.url)
    answer = platform.redeem(platform.code(platform.auth_request(client)), client, headers=prover.headers())
    assert answer.status_code == 200, answer.text
    token = answer.json()["refresh_token"]
    for headers, words in ((thief.headers(), "another key"), (NO_HEADERS, "send a proof")):
        check_refusal(platform.refresh(token, client, headers=headers), TOKENS, "invalid_grant", words)
    again = platform.refresh(token, client, headers=prover.headers())
    assert again.status_code == 200, again.text
    assert decode_jwt(again.json()["access_token"])[1]["cnf"] == {"jkt": prover.thumbprint}
    check_refusal(
        platform.refresh(again.json()["refresh_token"], client, headers=thief.headers()), TOKENS, "invalid_grant"
    )


def test_a_public_client_that_begins_to_show_a_key_is_bound_from_then_on(platform: Platform) -> None:
    client, prover = public_client(platform), Prover(platform.url)
    token = platform.tokens(platform.auth_request(client), client)["refresh_token"]
    token = platform.refresh(token, client, headers=prover.headers()).json()["refresh_token"]
    check_refusal(platform.refresh(token, client), TOKENS, "invalid_grant", "send a proof")
    assert platform.refresh(token, client, headers=prover.headers()).status_code == 200


def test_a_retry_gets_the_same_refresh_token_only_with_the_same_key(platform: Platform) -> None:
    prover, other = Prover(platform.url), Prover(platform.url)
    first = platform.redeem(platform.code(), headers=prover.headers()).json()["refresh_token"]
    second = platform.refresh(first, headers=prover.headers()).json()["refresh_token"]
    retried = platform.refresh(first, headers=prover.headers())
    assert retried.json()["refresh_token"] == second
    check_refusal(platform.refresh(first, headers=other.headers()), TOKENS, "invalid_grant", "used before")
    check_refusal(platform.refresh(second, headers=prover.headers()), TOKENS, "invalid_grant", "revoked")


def test_a_confidential_client_may_change_its_key(platform: Platform) -> None:
    """RFC 9449, section 5: its refresh tokens are bound to its authentication."""
    token = platform.redeem(platform.code(), headers=Prover(platform.url).headers()).json()["refresh_token"]
    new = Prover(platform.url)
    answer = platform.refresh(token, headers=new.headers())
    assert decode_jwt(answer.json()["access_token"])[1]["cnf"] == {"jkt": new.thumbprint}


def pushed(platform: Platform, prover: Prover, **parameters: Any) -> dict[str, Any]:
    answer = platform.post("par", headers=prover.headers(path="/oauth/par"), **platform.auth_request(**parameters))
    assert answer.status_code == 201, answer.text
    assert answer.headers["DPoP-Nonce"]
    return {"client_id": platform.client.id, "request_uri": answer.json()["request_uri"]}


def pushed_by_name(platform: Platform, prover: Prover) -> dict[str, Any]:
    answer = platform.post("par", **platform.auth_request(dpop_jkt=prover.thumbprint))
    return {"client_id": platform.client.id, "request_uri": answer.json()["request_uri"]}


BINDING: dict[str, Callable[[Platform, Prover], dict[str, Any]]] = {
    "dpop_jkt": lambda platform, prover: platform.auth_request(dpop_jkt=prover.thumbprint),
    "a pushed request with dpop_jkt": pushed_by_name,
    "a pushed request with a proof": pushed,
    "a pushed request with both": lambda platform, prover: pushed(platform, prover, dpop_jkt=prover.thumbprint),
}


@pytest.mark.parametrize("how", BINDING)
def test_a_code_is_bound_to_the_key_that_was_named(platform: Platform, how: str) -> None:
    prover, thief = Prover(platform.url), Prover(platform.url)
    code = platform.code(BINDING[how](platform, prover))
    for headers, words in ((NO_HEADERS, "send a proof"), (thief.headers(), "another key")):
        check_refusal(platform.redeem(code, headers=headers), TOKENS, "invalid_grant", words)
    answer = platform.redeem(code, headers=prover.headers())
    assert decode_jwt(answer.json()["access_token"])[1]["cnf"] == {"jkt": prover.thumbprint}


def test_what_is_wrong_with_a_pushed_proof(platform: Platform) -> None:
    prover, other = Prover(platform.url), Prover(platform.url)
    auth_request = platform.auth_request()

    def push(headers: Any, **changes: Any) -> requests.Response:
        return platform.post("par", headers=headers, **(auth_request | changes))

    first = push(prover.headers(path="/oauth/par", nonce=None))
    check_refusal(first, "/oauth/par", "use_dpop_nonce")
    assert first.headers["DPoP-Nonce"]
    check_refusal(push(prover.headers(path=TOKENS)), "/oauth/par", "invalid_dpop_proof", "htu")
    mismatch = push(prover.headers(path="/oauth/par"), dpop_jkt=other.thumbprint)
    check_refusal(mismatch, "/oauth/par", "invalid_dpop_proof", "dpop_jkt")
    headers = prover.headers(path="/oauth/par")
    assert push(headers).status_code == 201
    check_refusal(push(headers), "/oauth/par", "invalid_dpop_proof", "used before")


def test_proofs_that_anybody_can_push_are_not_kept(platform: Platform) -> None:
    client, prover, thief = public_client(platform), Prover(platform.url), Prover(platform.url)

    def kept(tx: Tx) -> int:
        found = tx._connection.select(
            "SELECT id FROM assertions WHERE client = :client", {"client": ids.raw(client.id)}
        )
        return len(found)

    headers = prover.headers(path="/oauth/par")
    for _ in range(2):
        answer = platform.post("par", client, headers=headers, **platform.auth_request(client))
        assert answer.status_code == 201
    assert platform.gatepost.opened.store.read_now(kept) == 0
    code = platform.code({"client_id": client.id, "request_uri": answer.json()["request_uri"]})
    check_refusal(platform.redeem(code, client, headers=thief.headers()), TOKENS, "invalid_grant", "another key")
    assert platform.redeem(code, client, headers=prover.headers()).status_code == 200
    assert platform.gatepost.opened.store.read_now(kept) == 2, "the opened request, and the proof of the token request"


@pytest.mark.parametrize("jkt", ["short", "A" * 44, "A" * 42 + "=", "A" * 42 + " "])
def test_an_invalid_thumbprint_is_an_error_for_the_client(platform: Platform, jkt: str) -> None:
    answer = platform.authorize(Browser(), platform.auth_request(dpop_jkt=jkt))
    assert answer.headers["Location"].startswith(CALLBACK)
    assert "error=invalid_request" in answer.headers["Location"]


# --- the operations


def refused_here(answer: requests.Response, code: str, *words: str, scheme: str = "DPoP") -> None:
    """401 with the challenge of the scheme that was used."""
    assert answer.status_code == 401, answer.text
    body = answer.json()
    assert body.get("error", body.get("code")) == code, body
    output = body.get("error_description", body.get("detail"))
    assert all(word in output for word in words), output
    challenge = answer.headers["WWW-Authenticate"]
    assert challenge.startswith(f"{scheme} ")
    assert f'error="{code}"' in challenge
    assert "resource_metadata=" in challenge
    if scheme == "DPoP":
        assert 'algs="ES256 RS256 PS256 EdDSA' in challenge


CALLS: dict[str, tuple[str, str, Any]] = {
    "an operation": ("POST", "/oauth/scopes", {"name": "a.scope"}),
    "the deliveries": ("GET", "/webhooks/deliveries", None),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_bound_token_is_sent_with_a_proof(holder: Holder, name: str) -> None:
    method, path, body = CALLS[name]
    token, other = holder.bound(), Prover(holder.url)
    plain = {"Authorization": f"Bearer {token}"}
    session, url = holder.gatepost.session, holder.url + path

    def sent(headers: Any) -> requests.Response:
        return session.request(method, url, json=body, headers=headers)

    refused_here(sent(plain), "invalid_token", "bound to a key", scheme="Bearer")
    with_proof = plain | {"DPoP": holder.prover.proof(method, path, token)}
    refused_here(sent(with_proof), "invalid_token", "bound to a key", scheme="Bearer")
    refused_here(sent({"Authorization": f"DPoP {token}"}), "invalid_dpop_proof", "DPoP header")
    refused_here(sent(other.headers(method, path, token)), "invalid_token", "that key")
    first = holder.send(method, path, token, body, nonce=None)
    refused_here(first, "use_dpop_nonce")
    answer = holder.send(method, path, token, body, nonce=first.headers["DPoP-Nonce"])
    assert answer.status_code in (200, 201), answer.text


WRONG_HERE: dict[str, dict[str, Any]] = {
    "no ath": {"ath": None},
    "ath of another token": {"ath": hash_of("another")},
    "htm": {"htm": "PUT"},
    "htu": {"htu": "https://evil.example/webhooks/deliveries"},
    "iat": {"iat": 1},
    "typ": {"header": {"typ": "at+jwt"}},
}


@pytest.mark.parametrize("name", WRONG_HERE)
def test_a_wrong_proof_at_an_operation(holder: Holder, name: str) -> None:
    answer = holder.send("GET", "/webhooks/deliveries", holder.bound(), **WRONG_HERE[name])
    refused_here(answer, "invalid_dpop_proof")
    assert answer.headers["DPoP-Nonce"]


def test_an_unbound_token_is_not_sent_with_a_proof(holder: Holder) -> None:
    token = holder.gatepost.token(holder.client, OPERATIONS)
    answer = holder.send("GET", "/webhooks/deliveries", token)
    refused_here(answer, "invalid_token", "not bound to a key")


def test_the_scheme_has_no_case_and_the_query_does_not_count(holder: Holder) -> None:
    token = holder.bound()
    headers = holder.prover.headers("GET", "/webhooks/deliveries", token) | {"Authorization": f"dpop {token}"}
    answer = holder.gatepost.session.get(f"{holder.url}/webhooks/deliveries?limit=5", headers=headers)
    assert answer.status_code == 200, answer.text
    head = holder.gatepost.session.head(
        f"{holder.url}/webhooks/deliveries", headers=holder.prover.headers("HEAD", "/webhooks/deliveries", token)
    )
    assert head.status_code == 200
    assert head.headers["DPoP-Nonce"]


def test_a_missing_scope_is_said_in_the_same_scheme(holder: Holder) -> None:
    answer = holder.send("GET", "/webhooks/deliveries", holder.bound("gatepost:scopes"))
    assert answer.status_code == 403
    assert answer.headers["WWW-Authenticate"].startswith("DPoP ")
    assert 'scope="gatepost:deliveries"' in answer.headers["WWW-Authenticate"]
    assert answer.headers["DPoP-Nonce"]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_userinfo(platform: Platform, method: str) -> None:
    prover = Prover(platform.url)
    token = platform.redeem(platform.code(), headers=prover.headers()).json()["access_token"]

    def ask(headers: Any) -> requests.Response:
        return requests.request(method, f"{platform.url}/oauth/userinfo", headers=headers)

    headers = prover.headers(method, "/oauth/userinfo", token)
    answer = ask(headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["sub"] == f"{platform.account}.ada"
    refused_here(ask(headers), "invalid_dpop_proof", "used before")
    refused_here(ask({"Authorization": f"Bearer {token}"}), "invalid_token", "bound", scheme="Bearer")
    refused_here(ask(prover.headers(method, "/oauth/userinfo", token, nonce=None)), "use_dpop_nonce")


# --- events, at another address


EVENT = {"specversion": "1.0", "id": "1", "source": "/tests", "type": "thing.made", "data": {}}
BATCH = {"Content-Type": "application/cloudevents-batch+json"}


def test_publishing(holder: Holder) -> None:
    url, token = f"{holder.gatepost.ops}/events", holder.bound()
    assert holder.send("POST", url, token, EVENT).status_code == 200
    refused_here(holder.send("POST", url, token, EVENT, htu=f"{holder.url}/events"), "invalid_dpop_proof", "htu")
    first = holder.send("POST", url, token, EVENT, nonce=None)
    refused_here(first, "use_dpop_nonce")
    assert holder.send("POST", url, token, EVENT, nonce=first.headers["DPoP-Nonce"]).status_code == 200
    headers = holder.prover.headers("POST", url, token)
    for status in (200, 401):
        assert requests.post(url, json=EVENT, headers=headers).status_code == status


def test_a_proof_is_used_up_by_events_that_are_refused(holder: Holder) -> None:
    """A refusal undoes the events, but the proof stays used."""
    url, token = f"{holder.gatepost.ops}/events", holder.bound()
    assert holder.send("POST", url, token, EVENT).status_code == 200
    headers = holder.prover.headers("POST", url, token)
    conflict = json.dumps([EVENT | {"id": "2"}, EVENT | {"data": {"other": True}}])
    answer = requests.post(url, data=conflict, headers=headers | BATCH)
    assert answer.status_code == 409, answer.text
    refused_here(requests.post(url, json=EVENT | {"id": "3"}, headers=headers), "invalid_dpop_proof", "used before")
    published = [each["data"] for each in holder.gatepost.entries(holder.account) if each["type"] == "thing.made"]
    assert published == [{}]


# --- a proof is used once


def test_a_proof_is_used_once(holder: Holder) -> None:
    headers = holder.prover.headers()
    answer = holder.gatepost.token_answer(holder.client, OPERATIONS, headers)
    assert answer.status_code == 200, answer.text
    for scope in (OPERATIONS, "gatepost:scopes"):
        again = holder.gatepost.token_answer(holder.client, scope, headers)
        check_refusal(again, TOKENS, "invalid_dpop_proof", "used before")
    fresh = holder.ask(jti=decode_jwt(headers["DPoP"])[1]["jti"])  # another proof, with an id that was used
    check_refusal(fresh, TOKENS, "invalid_dpop_proof", "used before")


def test_an_id_is_of_one_key(holder: Holder) -> None:
    other = Prover(holder.url)
    for prover in (holder.prover, other):
        assert holder.ask(prover=prover, jti="of both").status_code == 200


def test_of_fifty_at_once_one_gets_a_token(gatepost: Service, account_name: str) -> None:
    holder = Holder(gatepost, account_name)
    headers = holder.prover.headers()

    def ask(_: int) -> int:
        with requests.Session() as session:
            form = {"grant_type": "client_credentials", "scope": OPERATIONS}
            return session.post(
                holder.url + TOKENS, data=form, headers=headers | {"Authorization": holder.client.basic}
            ).status_code

    with ThreadPoolExecutor(25) as pool:
        statuses = list(pool.map(ask, range(50)))
    assert (statuses.count(200), statuses.count(400)) == (1, 49)


@pytest.mark.parametrize("name", CALLS)
def test_of_fifty_at_once_one_is_let_in(gatepost: Service, account_name: str, name: str) -> None:
    holder = Holder(gatepost, account_name)
    method, path, body = CALLS[name]
    headers = holder.prover.headers(method, path, holder.bound())

    def ask(_: int) -> int:
        with requests.Session() as session:
            return session.request(method, holder.url + path, json=body, headers=headers).status_code

    with ThreadPoolExecutor(25) as pool:
        statuses = list(pool.map(ask, range(50)))
    assert (statuses.count(200) + statuses.count(201), statuses.count(401)) == (1, 49)


def test_another_process_knows_the_nonces_and_the_proofs(gatepost: Service, account_name: str) -> None:
    holder = Holder(gatepost, account_name)
    used = holder.prover.headers()
    assert gatepost.token_answer(holder.client, OPERATIONS, used).status_code == 200
    with web_beside(gatepost) as other:
        for headers, status in ((holder.prover.headers(), 200), (used, 400)):
            answer = other.token_answer(holder.client, OPERATIONS, headers)
            assert answer.status_code == status, answer.text


# --- every response to a proof contains a nonce


EVERYWHERE: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "the key set": ("GET", "/oauth/jwks", {}, 200),
    "metadata": ("GET", "/.well-known/oauth-authorization-server", {}, 200),
    "no client": ("POST", TOKENS, {"data": {"grant_type": "client_credentials"}}, 401),
    "no form": ("POST", TOKENS, {"json": {}}, 400),
    "a version that is not": ("POST", TOKENS, {"headers": {"Gatepost-Version": "1999-01-01"}}, 400),
    "another method": ("GET", TOKENS, {}, 405),
    "no such path": ("GET", "/oauth/token", {}, 404),
    "no token": ("GET", "/webhooks/deliveries", {}, 401),
    "no readable token": ("GET", "/oauth/userinfo", {"headers": {"Authorization": "DPoP x"}}, 401),
    "nobody to push": ("POST", "/oauth/par", {"data": {"scope": "x"}}, 401),
    "nobody to introspect": ("POST", "/oauth/introspect", {"data": {"token": "x"}}, 401),
    "nobody to revoke": ("POST", "/oauth/revoke", {"data": {"token": "x"}}, 401),
    "nobody to sign in": ("GET", "/oauth/authorize", {}, 400),
}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_nonce_comes_with_every_answer(holder: Holder, name: str) -> None:
    method, path, options, status = EVERYWHERE[name]
    headers = options.get("headers", {}) | {"DPoP": "x"}
    with session_from_new_address() as session:
        answer = session.request(method, holder.url + path, **(options | {"headers": headers}))
        assert answer.status_code == status, answer.text
        without = session.request(method, holder.url + path, **options)
    assert "DPoP-Nonce" not in without.headers
    assert holder.ask(nonce=answer.headers["DPoP-Nonce"]).status_code == 200


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({}, 401),
        ({"headers": {"Authorization": "DPoP x"}}, 401),
        ({"headers": {"Gatepost-Version": "1999-01-01"}}, 400),
    ],
)
def test_a_nonce_comes_with_every_answer_of_the_intake(holder: Holder, options: Any, status: int) -> None:
    headers = options.get("headers", {}) | {"DPoP": "x"}
    answer = requests.post(f"{holder.gatepost.ops}/events", **(options | {"headers": headers}))
    assert answer.status_code == status, answer.text
    assert holder.ask(nonce=answer.headers["DPoP-Nonce"]).status_code == 200


def test_a_nonce_comes_with_the_refusal_of_what_is_too_large(holder: Holder) -> None:
    """By what is declared: nothing of it is sent."""
    ops = f"Host: {urlsplit(holder.gatepost.ops).netloc}"
    for url, path, fields in ((holder.url, TOKENS, ["Host: gatepost"]), (holder.gatepost.ops, "/events", [ops])):
        lines = [f"POST {path} HTTP/1.1", *fields, "DPoP: x", "Content-Length: 300000", "", ""]
        answer = wire.exchange(url, "\r\n".join(lines).encode())
        assert answer.status == 413, answer
        assert holder.ask(nonce=answer.headers["dpop-nonce"]).status_code == 200


def test_a_nonce_may_be_used_again_and_again(holder: Holder) -> None:
    holder.prover.nonce = fresh_nonce(holder.url)
    assert [holder.ask().status_code for _ in range(3)] == [200] * 3
