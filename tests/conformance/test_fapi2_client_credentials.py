"""FAPI 2.0 Security Profile, client credentials with private_key_jwt and DPoP: a test for each module, by its name.

The protected resource is an operation of ours, which is what the plan asks for: one that takes the tokens.
"""

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import requests
from joserfc.jwk import ECKey, Key, RSAKey

from gatepost.oauth import discovery
from gatepost.oauth.scopes import SCOPE_TOKEN
from gatepost.web.tokens import ASSERTION_TYPE
from tests.fapi2 import Fapi2Platform, KeyHolder, proof
from tests.login import b64, decode_jwt
from tests.service import Client, Service
from tests.waiting import LIMIT
from tests.wire import Answer, check_refusal, exchange, request, session_from_new_address

RESOURCE = "/webhooks/deliveries"
SCOPE = "gatepost:deliveries"
ALLOWED = {"PS256", "ES256", "EdDSA", "Ed25519"}  # FAPI 2.0 Security Profile, section 5.4
KEYS: dict[str, Callable[[], Key]] = {
    "EC": lambda: ECKey.generate_key("P-256", {"kid": "first"}),
    "RSA": lambda: RSAKey.generate_key(2048, {"kid": "first"}),
}


class Plan(Fapi2Platform):
    """Two clients that differ in their keys, and a holder of a key."""

    def __init__(self, gatepost: Service, name: str, key: Key | None = None) -> None:
        super().__init__(gatepost, name)
        machine: dict[str, Any] = {"grant_types": ["client_credentials"], "redirect_uris": None, "scope": SCOPE}
        self.client = self.define(key, **machine)
        self.second = self.define(**machine)
        self.holder = KeyHolder(gatepost.url, key)

    def ask_token(self, client: Client | None = None, headers: Any = None, **form: Any) -> requests.Response:
        """From an address of its own: failures are counted."""
        right = {"grant_type": "client_credentials", "scope": SCOPE, "client_assertion_type": ASSERTION_TYPE}
        right["client_assertion"] = self.assertion(client)
        sent = {name: value for name, value in (right | form).items() if value is not None}
        url = f"{self.url}/oauth/tokens"
        with session_from_new_address() as session:
            return session.post(url, data=sent, headers={"DPoP": self.holder.proof("POST", url)} | (headers or {}))

    def resource_proof(self, token: str, **changes: Any) -> str:
        return self.holder.proof("GET", f"{self.url}{RESOURCE}", token, **changes)

    def resource(self, token: str, sent: str | None = None, **options: Any) -> requests.Response:
        headers = {"DPoP": self.resource_proof(token) if sent is None else sent} | options.pop("headers", {})
        return self.call("GET", RESOURCE, token, headers=headers, **options)


@pytest.fixture(scope="module", params=list(KEYS))
def plan(request: pytest.FixtureRequest, sqlite_gatepost: Service) -> Plan:
    return Plan(sqlite_gatepost, f"plan-{request.param.lower()}", KEYS[request.param]())


def test_discovery_end_point_verification(sqlite_gatepost: Service) -> None:
    issuer = sqlite_gatepost.url
    answer = requests.get(f"{issuer}/.well-known/oauth-authorization-server", timeout=LIMIT)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    body = answer.json()
    assert body["issuer"] == issuer
    assert "client_credentials" in body["grant_types_supported"]
    assert "private_key_jwt" in body["token_endpoint_auth_methods_supported"]
    for member in ("dpop_signing_alg_values_supported", "token_endpoint_auth_signing_alg_values_supported"):
        assert set(body[member]) >= ALLOWED
        assert "none" not in body[member]
    assert all(SCOPE_TOKEN.fullmatch(each) for each in body["scopes_supported"])
    for name, url in discovery.authorization_server("https://gatepost.example").items():
        if name.endswith(("_endpoint", "_uri")) or name == "issuer":
            assert urlsplit(url).scheme == "https", name
            assert (url.removeprefix("https://gatepost.example")) == body[name].removeprefix(issuer)


def check_issued(answer: requests.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "no-store"
    body: dict[str, Any] = answer.json()
    assert set(body) == {"access_token", "token_type", "expires_in", "scope"}  # no refresh token, no ID token
    assert body["token_type"] == "DPoP"
    assert isinstance(body["expires_in"], int)
    assert len(body["access_token"]) > 128
    return body


def test_happy_flow(plan: Plan) -> None:
    """Two clients; the token works at the resource in the header and never in the query."""
    first, second = (check_issued(plan.ask_token(client))["access_token"] for client in (plan.client, plan.second))
    assert first != second
    claims = decode_jwt(first)[1]
    assert (claims["client_id"], claims["cnf"]) == (plan.client.id, {"jkt": plan.holder.key.thumbprint()})
    accepts = [
        {},
        {"Accept": "application/json;charset=UTF-8"},
        {"Accept": "application/json, application/*+json, */*"},
    ]
    for token in (first, second):
        for accept in accepts:
            answer = plan.resource(token, headers=accept | {"x-fapi-customer-ip-address": "2001:db8::1893:25c8:1946"})
            assert answer.status_code == 200, answer.text
            assert answer.headers["Content-Type"] == "application/json"
            assert answer.headers["Date"].endswith("GMT")
    url = f"{plan.url}{RESOURCE}"
    for headers in ({}, {"DPoP": plan.resource_proof(first)}):
        answer = plan.gatepost.session.get(url, params={"access_token": first}, headers=headers)
        check_refusal(answer, RESOURCE, "invalid_token")


def test_the_nonce_is_asked_for_and_then_taken(plan: Plan) -> None:
    """What every module does first: without a nonce, then with the one of the answer."""
    url = f"{plan.url}/oauth/tokens"
    bare = plan.ask_token(headers={"DPoP": plan.holder.proof("POST", url, nonce=None)})
    check_refusal(bare, "/oauth/tokens", "use_dpop_nonce")
    again = plan.holder.proof("POST", url, nonce=bare.headers["DPoP-Nonce"])
    token = check_issued(plan.ask_token(headers={"DPoP": again}))["access_token"]
    answer = plan.resource(token, plan.resource_proof(token, nonce=None))
    assert (answer.status_code, answer.json()["code"]) == (401, "use_dpop_nonce")
    assert 'error="use_dpop_nonce"' in answer.headers["WWW-Authenticate"]
    assert plan.resource(token, plan.resource_proof(token, nonce=answer.headers["DPoP-Nonce"])).status_code == 200


def test_access_token_type_header_case_sensitivity(plan: Plan) -> None:
    token = check_issued(plan.ask_token())["access_token"]
    for kind in ("dpOp", "dpop", "DPOP"):
        assert plan.resource(token, headers={"Authorization": f"{kind} {token}"}).status_code == 200


def check_accepted_everywhere(plan: Plan, **claims: Any) -> None:
    url = f"{plan.url}/oauth/tokens"
    token = check_issued(plan.ask_token(headers={"DPoP": plan.holder.proof("POST", url, **claims)}))["access_token"]
    assert plan.resource(token, plan.resource_proof(token, **claims)).status_code == 200


def test_check_dpop_proof_nbf_exp(plan: Plan) -> None:
    check_accepted_everywhere(plan, nbf=now(), exp=now() + 300)


def now() -> int:
    return int(time.time())


def test_ensure_dpopproof_with_iat_10seconds_before_succeeds(plan: Plan) -> None:
    check_accepted_everywhere(plan, iat=now() - 10)


def test_ensure_dpopproof_with_iat_10seconds_after_succeeds(plan: Plan) -> None:
    check_accepted_everywhere(plan, iat=now() + 10)


def test_ensure_client_id_in_token_endpoint(plan: Plan) -> None:
    """Named as the second client, signed by the first."""
    claims = {"iss": plan.second.id, "sub": plan.second.id}
    answer = plan.ask_token(client_id=plan.second.id, client_assertion=plan.assertion(plan.client, **claims))
    check_refusal(answer, "/oauth/tokens", "invalid_client")


def test_ensure_holder_of_key_required(plan: Plan) -> None:
    answer = plan.ask_token(headers={"DPoP": None})
    check_refusal(answer, "/oauth/tokens", "invalid_dpop_proof", "bound to a key")


def test_ensure_signed_client_assertion_with_rs256_fails(sqlite_gatepost: Service, account_name: str) -> None:
    plan = Plan(sqlite_gatepost, account_name, KEYS["RSA"]())
    check_issued(plan.ask_token(client_assertion=plan.assertion()))
    answer = plan.ask_token(client_assertion=plan.assertion(header={"alg": "RS256"}))
    check_refusal(answer, "/oauth/tokens", "invalid_client")


def test_ensure_client_assertion_in_token_endpoint(plan: Plan) -> None:
    answer = plan.ask_token(client_assertion=None, client_assertion_type=None, client_id=plan.client.id)
    check_refusal(answer, "/oauth/tokens", "invalid_client")


def test_ensure_client_assertion_with_exp_is_5_minutes_in_past_fails(plan: Plan) -> None:
    answer = plan.ask_token(client_assertion=plan.assertion(exp=now() - 300))
    check_refusal(answer, "/oauth/tokens", "invalid_client")


def test_ensure_client_assertion_with_wrong_aud_fails(plan: Plan) -> None:
    for audience in ("https://other.example/api/userinfo", f"{plan.url}/oauth/tokens", [plan.url]):
        answer = plan.ask_token(client_assertion=plan.assertion(aud=audience))
        check_refusal(answer, "/oauth/tokens", "invalid_client")


def test_ensure_client_assertion_with_no_sub_fails(plan: Plan) -> None:
    answer = plan.ask_token(client_assertion=plan.assertion(sub=None))
    check_refusal(answer, "/oauth/tokens", "invalid_client")


# --- fapi2-security-profile-final-dpop-negative-tests


class Try(NamedTuple):
    """A proof that differs in one thing, and what is answered to it; empty where it must work all the same."""

    make: Callable[[Plan, str], str]
    error: str = "invalid_dpop_proof"


def headed(**header: Any) -> Try:
    return Try(lambda plan, token: plan.resource_proof(token, header=header))


def claiming(**claims: Any) -> Try:
    return Try(lambda plan, token: plan.resource_proof(token, **claims))


def of_its_url(change: Callable[[str], str], error: str = "invalid_dpop_proof") -> Try:
    return Try(lambda plan, token: plan.resource_proof(token, htu=change(f"{plan.url}{RESOURCE}")), error)


def broken(proof: str) -> str:
    """With one bit of the signature turned over."""
    return proof[:-5] + ("A" if proof[-5] != "A" else "B") + proof[-4:]


def without_signature(plan: Plan, token: str) -> str:
    head = b64(b'{"alg": "none", "typ": "dpop+jwt"}')
    return f"{head}.{plan.resource_proof(token).split('.')[1]}."


def without_alg(plan: Plan, token: str) -> str:
    sent = plan.resource_proof(token)
    head = json.dumps(decode_jwt(sent)[0]).replace('"alg"', '"alg2"')
    return f"{b64(head.encode())}.{sent.partition('.')[2]}"


def by_another_key(plan: Plan, token: str) -> str:
    url = f"{plan.url}{RESOURCE}"
    return proof(ECKey.generate_key("P-256"), "GET", url, nonce=plan.holder.nonce(), token=token)


def of_an_origin_in_capitals(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme.upper()}://{parts.netloc.upper()}{parts.path}"


TRIES: dict[str, Try] = {
    "not well formed": Try(lambda plan, token: plan.resource_proof(token).rpartition(".")[0]),
    "no typ": headed(typ=None),
    "another typ": headed(typ="dpop+jwt+wrong"),
    "no alg": Try(without_alg),
    "no jwk": headed(jwk=None),
    "no jti": claiming(jti=None),
    "no htm": claiming(htm=None),
    "no htu": claiming(htu=None),
    "no iat": claiming(iat=None),
    "no ath": claiming(ath=None),
    "wrong ath": claiming(ath=b64(b"another token")),
    "alg none": Try(without_signature),
    "wrong signature": Try(lambda plan, token: broken(plan.resource_proof(token))),
    "private key in the header": Try(
        lambda plan, token: plan.resource_proof(token, header={"jwk": plan.holder.key.as_dict(private=True)})
    ),
    "another htm": claiming(htm="PUT"),
    "htu with a query and a fragment": of_its_url(lambda url: f"{url}?a=b#c", ""),
    "htu of an origin in capitals": of_its_url(of_an_origin_in_capitals, ""),
    "another htu": of_its_url(lambda url: f"{url}-not"),
    "iat an hour ahead": Try(lambda plan, token: plan.resource_proof(token, iat=now() + 3600)),
    "iat an hour ago": Try(lambda plan, token: plan.resource_proof(token, iat=now() - 3600)),
    "another key": Try(by_another_key, "invalid_token"),
    "more in header and claims": Try(
        lambda plan, token: plan.resource_proof(token, header={"tx_id": 1}, tx_id_key=2), ""
    ),
}


@pytest.fixture(scope="module")
def token(plan: Plan) -> str:
    return str(check_issued(plan.ask_token())["access_token"])


@pytest.mark.parametrize("name", TRIES)
def test_dpop_negative_tests(plan: Plan, token: str, name: str) -> None:
    check_answer(plan.resource(token, TRIES[name].make(plan, token)), TRIES[name].error)
    assert plan.resource(token).status_code == 200


def check_answer(answer: requests.Response, error: str = "invalid_dpop_proof") -> None:
    if not error:
        assert answer.status_code == 200, answer.text
        return
    assert (answer.status_code, answer.json()["code"]) == (401, error)
    assert answer.headers["WWW-Authenticate"].startswith(f'DPoP error="{error}"')


def test_dpop_negative_tests_with_rs256(sqlite_gatepost: Service, account_name: str) -> None:
    """The same key, PS256 or RS256: at the resource and at the token endpoint."""
    plan = Plan(sqlite_gatepost, account_name, KEYS["RSA"]())
    token = check_issued(plan.ask_token())["access_token"]
    check_answer(plan.resource(token, plan.resource_proof(token, header={"alg": "RS256"})))
    url = f"{plan.url}/oauth/tokens"
    weak = plan.ask_token(headers={"DPoP": plan.holder.proof("POST", url, header={"alg": "RS256"})})
    check_refusal(weak, "/oauth/tokens", "invalid_dpop_proof", "PS256")


def test_dpop_negative_tests_of_reuse(plan: Plan, token: str) -> None:
    """Also a second proof with the id of the first."""
    sent = plan.resource_proof(token, jti=f"the same {plan.account}")
    assert plan.resource(token, sent).status_code == 200
    for again in (sent, plan.resource_proof(token, jti=f"the same {plan.account}")):
        check_answer(plan.resource(token, again))


def test_dpop_negative_tests_of_headers(plan: Plan, token: str) -> None:
    """Two proofs, a header in capitals, no proof, and no proof with the token sent as Bearer."""

    def send(*fields: str) -> Answer:
        return exchange(plan.url, request(f"GET {RESOURCE} HTTP/1.1", f"Authorization: DPoP {token}", *fields))

    two = send(f"DPoP: {plan.resource_proof(token)}", f"DPoP: {plan.resource_proof(token)}")
    assert two.status == 401
    assert send(f"DPoP: {plan.resource_proof(token)}, {plan.resource_proof(token)}").status == 401
    assert send(f"DPOP: {plan.resource_proof(token)}").status == 200
    check_answer(plan.resource(token, headers={"DPoP": None}))
    as_bearer = plan.resource(token, headers={"DPoP": None, "Authorization": f"Bearer {token}"})
    check_refusal(as_bearer, RESOURCE, "invalid_token", "bound to a key")
