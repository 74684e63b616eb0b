"""Workload identity (RFC 7523, section 2.1): a token of a trusted issuer is exchanged for an access token.

The issuer is a server of the test with keys of its own, as a CI system or a cluster has them.
"""

import asyncio
import hmac
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
from joserfc.jwk import ECKey, Key, OKPKey

from gatepost.accounts import lookup
from gatepost.core import clock
from gatepost.core.errors import BadSetting
from gatepost.egress.jwks_cache import RETRY_AFTER
from gatepost.egress.remote_jwks import KeyFetcher
from gatepost.oauth import issuer_admin
from gatepost.oauth.client_grants import JWT_BEARER
from gatepost.web import tokens
from gatepost.web.context import Context
from gatepost.web.requests import Request
from tests.assertions import b64, signed
from tests.login import decode_jwt
from tests.proofs import Prover
from tests.receiver import Answer, receiver
from tests.rsa_keys import rsa_key
from tests.service import Client, Service
from tests.wire import check_refusal

TOKENS = "/oauth/tokens"
SUBJECT = "repo:acme/shop:ref:refs/heads/main"
MATCH = (f"sub={SUBJECT}", "repository=acme/shop")
KEY = rsa_key({"kid": "one"})
EC, ED = ECKey.generate_key("P-256", {"kid": "ec"}), OKPKey.generate_key("Ed25519", {"kid": "ed"})
STRANGER = rsa_key({"kid": "one"}, number=1)


def jwks(*keys: Key) -> Answer:
    return 200, {}, json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


class Workload:
    """An account, a client for its workload, and an issuer that publishes keys."""

    def __init__(self, gatepost: Service, name: str, stack: ExitStack, match: tuple[str, ...] = MATCH) -> None:
        self.gatepost, self.url, self.name = gatepost, gatepost.url, name
        self.account, first = gatepost.account(name)
        self.admin = gatepost.token(first, "gatepost:clients gatepost:scopes")
        self.api = f"https://api.{name}.example"
        for scope in ("deploy", "read", "pay"):
            body = {"name": scope, "resource": self.api}
            assert gatepost.post("/oauth/scopes", self.admin, body).status_code == 201
        self.server = stack.enter_context(receiver(jwks(KEY, EC, ED)))
        self.keys = f"{self.server.url}/{name}"  # unique, because another test may have used the port
        self.issuer = f"https://ci.{name}.example"
        self.client = self.define()
        self.trust("ci", match)

    def define(self, **members: Any) -> Client:
        body: dict[str, Any] = {"grant_types": [JWT_BEARER], "scope": "deploy read pay"} | members
        return self.gatepost.define_client(self.admin, **body)

    def trust(self, name: str, match: tuple[str, ...] = MATCH, **changes: Any) -> None:
        """As `issuer add` does, without the price of a process."""
        result: dict[str, Any] = {
            "issuer": self.issuer, "jwks_uri": self.keys, "client": self.client.id, "scope": ["deploy read"],
        }  # fmt: skip
        store, service = self.gatepost.opened.store, self.gatepost.opened.service
        store.run_now(
            lambda tx: issuer_admin.add(
                tx, service, lookup.named(tx, self.name), name, match=list(match), **(result | changes)
            )
        )

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        right = {
            "iss": self.issuer, "aud": self.url, "sub": SUBJECT, "repository": "acme/shop", "iat": now, "nbf": now,
            "exp": now + 300,
        }  # fmt: skip
        return {name: value for name, value in (right | changes).items() if value is not None}

    def sign(self, key: Key = KEY, header: dict[str, Any] | None = None, **changes: Any) -> str:
        return signed(key, self.claims(**changes), **(header or {}))

    def ask(
        self, assertion: str | None, scope: str | None = "deploy", by: Client | None = None, headers: Any = None,
        **more: str,
    ) -> requests.Response:  # fmt: skip
        form = {"grant_type": JWT_BEARER, "assertion": assertion, "scope": scope} | more
        shown = {"Authorization": (by or self.client).basic} | dict(headers or {})
        return self.gatepost.session.post(self.url + TOKENS, data=form, headers=shown)

    def refused(self, assertion: str, *words: str, code: str = "invalid_grant", **asked: Any) -> None:
        check_refusal(self.ask(assertion, **asked), TOKENS, code, *words)

    def newest(self) -> dict[str, Any]:
        return self.gatepost.entries(self.account, 1)[0]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


@pytest.fixture(scope="module")
def workload(sqlite_gatepost: Service) -> Iterator[Workload]:
    with ExitStack() as stack:
        yield Workload(sqlite_gatepost, "workload", stack)


def now() -> int:
    return int(time.time())


def test_a_workload_gets_a_token(gatepost: Service, account_name: str, stack: ExitStack) -> None:
    workload = Workload(gatepost, account_name, stack)
    answer = workload.ask(workload.sign())
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["token_type"], body["scope"]) == ("Bearer", "deploy")
    assert "refresh_token" not in body
    claims = decode_jwt(body["access_token"])[1]
    assert claims["sub"] == f"{workload.account}:ci:{SUBJECT}"
    assert (claims["aud"], claims["client_id"]) == (workload.api, workload.client.id)
    assert not {"repository", "act", "auth_time"} & set(claims)
    entry = workload.newest()
    assert (entry["type"], entry["id"]) == ("oauth.token.issued", answer.headers["Gatepost-Event"])
    assert (entry["data"]["issuer"], entry["data"]["grant_type"]) == ("ci", JWT_BEARER)
    again = workload.ask(workload.sign(), "deploy read")
    assert again.json()["scope"] == "deploy read"
    assert len(workload.server.requests) == 1, "its keys are remembered"


# --- right and wrong assertions

RIGHT: dict[str, Callable[[Workload], str]] = {
    "RS256": lambda w: w.sign(),
    "PS256": lambda w: w.sign(header={"alg": "PS256"}),
    "ES256": lambda w: w.sign(EC),
    "EdDSA": lambda w: w.sign(ED),
    "no typ": lambda w: w.sign(header={"typ": None}),
    "headers that nobody here knows": lambda w: w.sign(header={"x5t": "abc", "pi.atm": "1", "ver": "2.0"}),
    "a long header": lambda w: w.sign(header={"x5c": ["A" * 3000]}),
    "audience as a list": lambda w: w.sign(aud=[w.url]),
    "no iat and no nbf": lambda w: w.sign(iat=None, nbf=None),
    "iat a little ahead": lambda w: w.sign(iat=now() + 8),
    "an hour long": lambda w: w.sign(iat=now(), exp=now() + 3600),
    "more claims": lambda w: w.sign(scope="pay", act={"sub": "x"}, account="acc_x", actor="octocat"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_assertion(workload: Workload, name: str) -> None:
    answer = workload.ask(RIGHT[name](workload))
    assert answer.status_code == 200, answer.text
    claims = decode_jwt(answer.json()["access_token"])[1]
    assert (claims["scope"], claims["account"]) == ("deploy", workload.account)
    assert "act" not in claims


def hs256(w: Workload, secret: bytes) -> str:
    head = b64(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "one"}).encode())
    message = f"{head}.{b64(json.dumps(w.claims()).encode())}"
    return f"{message}.{b64(hmac.digest(secret, message.encode(), 'sha256'))}"


def unsigned(w: Workload, alg: str) -> str:
    head = b64(json.dumps({"alg": alg, "typ": "JWT"}).encode())
    return f"{head}.{b64(json.dumps(w.claims()).encode())}."


WRONG: dict[str, tuple[Callable[[Workload], str], str]] = {
    "another issuer": (lambda w: w.sign(iss="https://evil.example"), "trusted"),
    "issuer with a slash": (lambda w: w.sign(iss=w.issuer + "/"), "trusted"),
    "no issuer": (lambda w: w.sign(iss=None), "trusted"),
    "issuer is a list": (lambda w: w.sign(iss=[w.issuer]), "trusted"),
    "no token": (lambda w: "some.thing.else", "trusted"),
    "another audience": (lambda w: w.sign(aud="https://other.example"), "aud"),
    "the token endpoint": (lambda w: w.sign(aud=w.url + TOKENS), "aud"),
    "several audiences": (lambda w: w.sign(aud=[w.url, "https://other.example"]), "aud"),
    "no audience": (lambda w: w.sign(aud=None), "aud"),
    "no exp": (lambda w: w.sign(exp=None), "exp"),
    "expired": (lambda w: w.sign(exp=now() - 1), "expired"),
    "nbf ahead": (lambda w: w.sign(nbf=now() + 90), "not yet valid"),
    "iat ahead": (lambda w: w.sign(iat=now() + 90), "not yet valid"),
    "longer than an hour": (lambda w: w.sign(exp=now() + 3700), "hour"),
    "longer than an hour, iat long ago": (lambda w: w.sign(iat=now() - 86_400), "hour"),
    "longer than an hour, no iat": (lambda w: w.sign(iat=None, exp=now() + 3700), "hour"),
    "exp is text": (lambda w: w.sign(exp="tomorrow"), "exp is not a time"),
    "no sub": (lambda w: w.sign(sub=None), "sub"),
    "another branch": (lambda w: w.sign(sub="repo:acme/shop:ref:refs/heads/evil"), "claims"),
    "another repository": (lambda w: w.sign(sub="repo:evil/shop:ref:refs/heads/main"), "claims"),
    "another repository, the same sub": (lambda w: w.sign(repository="evil/shop"), "claims"),
    "sub that only begins so": (lambda w: w.sign(sub=SUBJECT + "x"), "claims"),
    "sub in other letters": (lambda w: w.sign(sub=SUBJECT.upper()), "claims"),
    "a claim that is not there": (lambda w: w.sign(repository=None), "claims"),
    "a claim that is a list": (lambda w: w.sign(repository=["acme/shop"]), "claims"),
    "alg none": (lambda w: unsigned(w, "none"), "verified"),
    "alg None": (lambda w: unsigned(w, "None"), "verified"),
    "no signature": (lambda w: w.sign().rpartition(".")[0] + ".", "verified"),
    "HS256 by the public key as PEM": (lambda w: hs256(w, KEY.as_bytes("PEM", private=False)), "verified"),
    "HS256 by the public key as JWK": (
        lambda w: hs256(w, json.dumps(KEY.as_dict(private=False)).encode()), "verified",
    ),
    "HS256 by nothing": (lambda w: hs256(w, b""), "verified"),
    "another key with the same kid": (lambda w: w.sign(STRANGER), "verified"),
    "another key, sent along": (
        lambda w: w.sign(STRANGER, {"jwk": STRANGER.as_dict(private=False), "kid": None}), "verified",
    ),
    "kid of another key": (lambda w: w.sign(header={"kid": "ec"}), "verified"),
    "one bit off": (lambda w: w.sign()[:-6] + "AAAAAA", "verified"),
    "crit": (lambda w: w.sign(header={"crit": ["x"], "x": 1}), "verified"),
    "typ of an access token": (lambda w: w.sign(header={"typ": "at+jwt"}), "verified"),
    "typ of a proof": (lambda w: w.sign(header={"typ": "dpop+jwt"}), "verified"),
    "typ of a handoff": (lambda w: w.sign(header={"typ": "gatepost-handoff+jwt"}), "verified"),
    "too long": (lambda w: w.sign(fill="a" * 20_000), "trusted"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_assertion(workload: Workload, name: str) -> None:
    make, word = WRONG[name]
    answer = workload.ask(assertion := make(workload))
    check_refusal(answer, TOKENS, "invalid_grant", "assertion", word)
    entry = workload.newest()
    assert (entry["type"], entry["id"]) == ("oauth.token.refused", answer.headers["Gatepost-Event"])
    assert assertion not in json.dumps(entry), "no token is in the ledger"


def test_a_key_url_in_an_assertion_is_never_fetched(workload: Workload) -> None:
    with receiver(jwks(STRANGER)) as evil:
        for header in ({"jku": evil.url}, {"x5u": evil.url}, {"jku": evil.url, "kid": "evil"}):
            workload.refused(workload.sign(STRANGER, header), "verified")
        assert evil.connections == 0


def test_access_tokens_are_not_accepted_as_assertions(workload: Workload) -> None:
    token = workload.ask(workload.sign()).json()["access_token"]
    workload.refused(token, "trusted")


@pytest.mark.parametrize("scope", [None, ""])
def test_a_scope_must_be_named(workload: Workload, scope: str | None) -> None:
    workload.refused(workload.sign(), "scope", code="invalid_scope", scope=scope)


@pytest.mark.parametrize("scope", ["pay", "deploy pay", "nothing", "openid", "gatepost:clients", "*"])
def test_no_scope_beyond_the_entry(workload: Workload, scope: str) -> None:
    """`pay` is in the client's own grant, but not in what the issuer is trusted for."""
    workload.refused(workload.sign(), "scope", code="invalid_scope", scope=scope)


def test_an_assertion_is_required(workload: Workload) -> None:
    for assertion in (None, ""):
        check_refusal(workload.ask(assertion), TOKENS, "invalid_request", "assertion")


def test_a_scope_that_the_client_lost_is_not_given(
    sqlite_gatepost: Service, account_name: str, stack: ExitStack
) -> None:
    workload = Workload(sqlite_gatepost, account_name, stack)
    body = {"client_id": workload.client.id, "scope": "read"}
    assert workload.gatepost.post("/oauth/clients", workload.admin, body).status_code == 200
    workload.refused(workload.sign(), "scope", code="invalid_scope")
    assert workload.ask(workload.sign(), "read").status_code == 200


# --- whose entry it is


def test_another_client_of_the_account(workload: Workload) -> None:
    workload.refused(workload.sign(), "trusted for this client", by=workload.define())
    machine = workload.define(grant_types=["client_credentials"])
    answer = workload.ask(workload.sign(), by=machine)
    assert answer.json()["error"] in ("invalid_grant", "unauthorized_client"), answer.text


def test_another_account(workload: Workload, account_name: str, stack: ExitStack) -> None:
    """It trusts an issuer of its own: what the other trusts is nothing to it."""
    other = Workload(workload.gatepost, account_name, stack)
    other.refused(workload.sign(), "trusted")
    workload.refused(other.sign(), "trusted")
    workload.refused(workload.sign(), by=other.client, code="invalid_grant")


def test_two_accounts_trust_one_issuer_for_one_repository_each(
    sqlite_gatepost: Service, account_name: str, stack: ExitStack
) -> None:
    """As with a public CI system: each gets in with its own repository, and not with the other's."""
    one = Workload(sqlite_gatepost, f"{account_name}-one", stack, ("repository=acme/shop",))
    two = Workload(sqlite_gatepost, f"{account_name}-two", stack, ("repository=evil/shop",))
    two.trust("same", ("repository=evil/shop",), issuer=one.issuer, jwks_uri=one.keys)
    for repository, allowed, not_allowed in (("acme/shop", one, two), ("evil/shop", two, one)):
        assertion = one.sign(repository=repository, sub=f"repo:{repository}")
        claims = decode_jwt(allowed.ask(assertion).json()["access_token"])[1]
        assert claims["sub"].startswith(allowed.account)
        assert claims["sub"].endswith(f":repo:{repository}")
        not_allowed.refused(assertion, "claims")


def test_several_entries_of_one_issuer(sqlite_gatepost: Service, account_name: str, stack: ExitStack) -> None:
    """The one that matches counts, with its name and its scopes; even if the keys of another cannot be had."""
    workload = Workload(sqlite_gatepost, account_name, stack)
    workload.trust("a-dead-one", MATCH, jwks_uri=f"http://127.0.0.1:{workload.server.port}/gone", scope=["read"])
    workload.server.behaviour = lambda request: (404, {}, b"") if "gone" in request.headers[":path"] else jwks(KEY)
    workload.trust("staging", ("sub=staging",), scope=["read"])
    claims = decode_jwt(workload.ask(workload.sign(sub="staging"), "read").json()["access_token"])[1]
    assert claims["sub"] == f"{workload.account}:staging:staging"
    workload.refused(workload.sign(sub="staging"), "scope", code="invalid_scope")
    for scope, name in (("deploy", "ci"), ("pay", "payments"), ("deploy read", "ci")):
        if name == "payments":
            workload.refused(workload.sign(), "scope", code="invalid_scope", scope=scope)
            workload.trust(name, MATCH, scope=["pay"])
        claims = decode_jwt(workload.ask(workload.sign(), scope).json()["access_token"])[1]
        assert claims["sub"] == f"{workload.account}:{name}:{SUBJECT}"


def test_a_large_number_of_issuer_entries(sqlite_gatepost: Service, account_name: str, stack: ExitStack) -> None:
    """Each with keys of its own that are not there: never a defect of ours, and in the end a plain refusal."""
    workload = Workload(sqlite_gatepost, account_name, stack)
    workload.server.behaviour = (404, {}, b"")
    for number in range(8):
        workload.trust(f"more-{number}", jwks_uri=f"{workload.keys}/{number}")
    first = workload.ask(workload.sign())
    assert first.status_code in (400, 503), first.text
    workload.refused(workload.sign(), "verified")


# --- the issuer's keys


def test_an_unknown_key_is_fetched_once(sqlite_gatepost: Service, account_name: str, stack: ExitStack) -> None:
    workload = Workload(sqlite_gatepost, account_name, stack)
    new = ECKey.generate_key("P-256", {"kid": "new"})
    for _ in range(5):
        workload.refused(workload.sign(new), "verified")
    assert len(workload.server.requests) == 1
    assert workload.ask(workload.sign()).status_code == 200


def test_the_issuers_keys_are_rotated(sqlite_gatepost: Service, account_name: str, stack: ExitStack) -> None:
    """Inside this process, where a fetch may seem to have been made as long ago as patience lasts."""
    workload, new = Workload(sqlite_gatepost, account_name, stack), ECKey.generate_key("P-256", {"kid": "new"})
    store, own = sqlite_gatepost.opened.store, sqlite_gatepost.opened.service
    ago = [RETRY_AFTER]
    fetcher = KeyFetcher(own.foreign, own.policy_for, lambda: clock.now() - ago[0])
    context = Context(store, own, clock.now, fetcher)

    async def ask(key: Key) -> int:
        form = urlencode({"grant_type": JWT_BEARER, "assertion": workload.sign(key), "scope": "deploy"})
        headers = {"authorization": workload.client.basic, "content-type": "application/x-www-form-urlencoded"}
        return (await tokens.answer(context, Request("POST", TOKENS, "", headers, form.encode(), "", "req"))).status

    async def story() -> list[int]:
        before = [await ask(KEY)]
        workload.server.behaviour = jwks(KEY, new)
        both = [await ask(new), await ask(KEY)]
        workload.server.behaviour, ago[0] = jwks(new), timedelta()
        unknown = [await ask(EC)]
        return [*before, *both, *unknown, await ask(KEY), await ask(new)]

    assert asyncio.run(story()) == [200, 200, 200, 400, 400, 200]
    assert len(workload.server.requests) == 3


@pytest.mark.parametrize("answer", [(404, {}, b""), (200, {}, b"keys"), (302, {"Location": "/other"}, b"")])
def test_keys_that_cannot_be_had(sqlite_gatepost: Service, account_name: str, stack: ExitStack, answer: Answer) -> None:
    workload = Workload(sqlite_gatepost, account_name, stack)
    workload.server.behaviour = answer
    for _ in range(2):
        workload.refused(workload.sign(), "verified")
    assert len(workload.server.requests) == 1


# --- proofs, and explaining


def test_a_token_is_bound_to_the_key_of_the_proof(workload: Workload) -> None:
    prover = Prover(workload.url)
    answer = workload.ask(workload.sign(), headers=prover.headers())
    assert answer.json()["token_type"] == "DPoP"
    assert decode_jwt(answer.json()["access_token"])[1]["cnf"] == {"jkt": prover.thumbprint}


def test_explaining(workload: Workload) -> None:
    result = workload.ask(workload.sign(), headers={"Prefer": "explain"})
    assert result.headers["Preference-Applied"] == "explain"
    assert (result.json()["decision"], result.json()["rules"][0]["rule"]) == ("issue", "basis_holds")
    assert result.json()["claims"]["sub"] == f"{workload.account}:ci:{SUBJECT}"
    assert "access_token" not in result.json()
    assert workload.newest()["type"] == "oauth.token.explained"
    refused = workload.ask(workload.sign(sub="another"), headers={"Prefer": "explain"}).json()
    assert (refused["decision"], refused["rule"], refused["error"]) == ("refuse", "basis_holds", "invalid_grant")
    assert "claims" in refused["error_description"]
    beyond = workload.ask(workload.sign(), "pay", headers={"Prefer": "explain"}).json()
    assert (beyond["decision"], beyond["rule"]) == ("refuse", "scopes_are_agreed")


# --- the operator's commands


def test_the_commands(gatepost: Service, account_name: str, stack: ExitStack) -> None:
    workload = Workload(gatepost, account_name, stack)
    typed = (
        "issuer", "add", "typed", "--account", workload.name, "--issuer", "https://typed.example",
        "--jwks-uri", workload.keys, "--match", "sub=typed", "--match", "tenant=acme",
        "--client", workload.client.id, "--scope", "deploy", "--scope", "read",
    )  # fmt: skip
    assert gatepost.cli_json("issuer", "add", "rare", *typed[3:], "--once")["once"]
    gatepost.cli("issuer", "remove", "rare", "--account", workload.name)
    made = gatepost.cli_json(*typed)
    assert (made["name"], made["account"], made["issuer"]) == ("typed", workload.account, "https://typed.example")
    assert (made["match"], made["scope"]) == ({"sub": "typed", "tenant": "acme"}, ["deploy", "read"])
    assert workload.newest()["type"] == "account.changed"
    assert workload.newest()["data"]["issuer"]["name"] == "typed"
    right = workload.sign(iss="https://typed.example", sub="typed", tenant="acme")
    assert workload.ask(right).status_code == 200
    assert gatepost.cli_json("issuer", "list", "--account", workload.name)[1:] == [made]
    assert gatepost.cli_json("issuer", "show", "typed", "--account", workload.name) == made
    assert made["sub"] == decode_jwt(workload.ask(right).json()["access_token"])[1]["sub"]
    assert made["sub"] == f"{workload.account}:typed:typed"
    taken = gatepost.cli(*typed, check=False)
    assert taken.returncode != 0
    assert "already" in taken.stderr
    assert "Traceback" not in taken.stderr
    gatepost.cli("issuer", "remove", "typed", "--account", workload.name)
    assert workload.newest()["data"] == {"issuer_removed": "typed"}
    workload.refused(right, "trusted")


def test_the_output_of_the_issuer_commands(workload: Workload, account_name: str) -> None:
    _, first = workload.gatepost.account(account_name)
    name, cli = workload.name, workload.gatepost.cli
    assert SUBJECT in cli("issuer", "list", "--account", workload.account).stdout
    assert f"{workload.account}:ci:{SUBJECT}" in cli("issuer", "show", "ci", "--account", name).stdout
    gone = cli("issuer", "remove", "nobody", "--account", name, check=False)
    unknown = cli("issuer", "show", "nobody", "--account", name, check=False)
    assert "no issuer nobody" in gone.stderr
    assert "no issuer nobody" in unknown.stderr
    wrong = cli(
        "issuer", "add", "more", "--account", name, "--issuer", "x", "--jwks-uri", workload.keys,
        "--match", "sub=x", "--client", first.id, "--scope", "deploy", check=False,
    )  # fmt: skip
    assert f"no client {first.id}" in wrong.stderr
    for found in (gone, unknown, wrong):
        assert found.returncode != 0
        assert "Traceback" not in found.stderr


BAD_INPUT: dict[str, tuple[dict[str, Any], str]] = {
    "no match": ({"match": ()}, "--match"),
    "a match without a value": ({"match": ("sub",)}, "CLAIM=VALUE"),
    "a match with a star": ({"match": ("sub=repo:acme/*",)}, "exactly"),
    "a name in capitals": ({"name": "CI"}, "issuer name"),
    "a name that is taken": ({"name": "ci"}, "already"),
    "no such client": ({"client": "cli_" + "0" * 26}, "no client"),
    "no client's id": ({"client": "me"}, "me"),
    "no scope": ({"scope": []}, "--scope"),
    "a scope beyond the client's": ({"scope": ["deploy", "nothing"]}, "nothing"),
    "a scope of the service": ({"scope": ["gatepost:clients"]}, "gatepost:clients"),
    "keys at a private address": ({"jwks_uri": "http://169.254.169.254/"}, "--jwks-uri"),
    "keys in a file": ({"jwks_uri": "file:///etc/passwd"}, "--jwks-uri"),
    "an issuer with a space": ({"issuer": "https://ci.example "}, "--issuer"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input(workload: Workload, name: str) -> None:
    changes, words = BAD_INPUT[name]
    with pytest.raises(BadSetting, match=words):
        workload.trust(**({"name": "bad"} | changes))


def test_a_client_without_the_grant(workload: Workload) -> None:
    machine = workload.define(grant_types=["client_credentials"])
    with pytest.raises(BadSetting, match=JWT_BEARER):
        workload.trust("bad", client=machine.id)


def test_each_token_of_an_issuer_is_accepted_once(gatepost: Service, account_name: str, stack: ExitStack) -> None:
    workload = Workload(gatepost, account_name, stack)
    store, account = gatepost.opened.store, account_name
    store.run_now(lambda tx: issuer_admin.remove(tx, lookup.named(tx, account), "ci"))
    workload.trust("once", once=True)
    workload.refused(workload.sign(), "jti")
    workload.refused(workload.sign(jti=""), "jti")
    shown = workload.sign(jti="one")
    assert workload.ask(shown, headers={"Prefer": "explain"}).json()["decision"] == "issue"
    check_refusal(workload.ask(shown, "pay"), TOKENS, "invalid_scope", "pay")
    assert workload.ask(shown).status_code == 200, "it was not used up by what issued nothing"
    workload.refused(shown, "used before")
    workload.refused(workload.sign(EC, jti="one"), "used before")
    assert workload.ask(workload.sign(jti="two")).status_code == 200
    store.run_now(lambda tx: issuer_admin.remove(tx, lookup.named(tx, account), "once"))
    workload.trust("again", once=True)
    workload.refused(workload.sign(jti="two"), "used before")


def test_of_concurrent_uses_of_an_assertion_one_succeeds(
    gatepost: Service, account_name: str, stack: ExitStack
) -> None:
    workload = Workload(gatepost, account_name, stack)
    store, account = gatepost.opened.store, account_name
    store.run_now(lambda tx: issuer_admin.remove(tx, lookup.named(tx, account), "ci"))
    workload.trust("once", once=True)
    assert workload.ask(workload.sign(jti="first")).status_code == 200  # the keys are fetched
    shown = workload.sign(jti="one")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: workload.ask(shown).status_code, range(16)))
    assert sorted(answers) == [200] + [400] * 15
