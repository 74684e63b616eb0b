"""Token exchange (RFC 8693): a service that was called calls on, for the same person and never with more rights."""

import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import requests
from joserfc.jwk import ECKey

from gatepost.core import ids
from gatepost.oauth.client_grants import JWT_BEARER, TOKEN_EXCHANGE
from tests.assertions import signed
from tests.login import Platform, decode_jwt
from tests.proofs import Prover
from tests.service import Client, Service
from tests.web_beside import web_beside
from tests.wire import check_refusal

TOKENS = "/oauth/tokens"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
JWT = "urn:ietf:params:oauth:token-type:jwt"
DEEPEST = 8  # exchanges


class Chain(Platform):
    """A platform whose API calls on: to a store, and from there to an archive."""

    def __init__(self, gatepost: Service, name: str) -> None:
        super().__init__(gatepost, name)
        self.store, self.archive = f"https://store.{name}.example", f"https://archive.{name}.example"
        for scope, resource in (("store:read", self.store), ("store:write", self.store), ("files", self.archive)):
            self.define_scope(name=scope, resource=resource)
        self.service = self.exchanging("things:read things:write store:read", [self.api])

    def exchanging(self, scope: str, serves: list[str], mode: str | None = None, **members: Any) -> Client:
        grant = {"grant_type": TOKEN_EXCHANGE, "scopes": scope.split(" ")} | ({"exchange": mode} if mode else {})
        members = {"grant_types": [TOKEN_EXCHANGE], "redirect_uris": None, "scope": scope} | members
        return self.define(serves=serves, grants=[grant], **members)

    def exchange(
        self, token: str | None, scope: str | None = "store:read", by: Client | None = None, headers: Any = None,
        **changes: Any,
    ) -> requests.Response:  # fmt: skip
        form = {"subject_token": token, "subject_token_type": ACCESS_TOKEN, "scope": scope} | changes
        return self.ask(by or self.service, headers, grant_type=TOKEN_EXCHANGE, **form)

    def exchanged(self, token: str, scope: str = "store:read", by: Client | None = None, **changes: Any) -> str:
        answer = self.exchange(token, scope, by, **changes)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def persons(self, scope: str = "openid offline_access things:read") -> dict[str, Any]:
        return self.tokens(self.auth_request(scope=scope))

    def machines(self, scope: str = "things:read", **members: Any) -> str:
        """A token that another client got for itself."""
        machine = self.define(grant_types=["client_credentials"], redirect_uris=None, scope=scope, **members)
        return self.gatepost.token(machine, scope)


@pytest.fixture(scope="module")
def chain(sqlite_gatepost: Service) -> Chain:
    return Chain(sqlite_gatepost, "exchange")


def test_a_token_of_a_person_is_exchanged(gatepost: Service, account_name: str) -> None:
    chain = Chain(gatepost, account_name)
    token = chain.persons()["access_token"]
    answer = chain.exchange(token)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["issued_token_type"] == ACCESS_TOKEN
    assert (body["token_type"], body["scope"]) == ("Bearer", "store:read")
    assert "refresh_token" not in body
    assert "id_token" not in body
    assert answer.headers["Cache-Control"] == "no-store"
    subject, claims = decode_jwt(token)[1], decode_jwt(body["access_token"])[1]
    assert claims["sub"] == subject["sub"] == f"{chain.account}.ada"
    assert (claims["aud"], claims["scope"]) == (chain.store, "store:read")
    assert (claims["client_id"], claims["act"]) == (chain.service.id, {"sub": chain.service.id})
    assert claims["auth_time"] == subject["auth_time"]
    assert claims["exp"] <= subject["exp"]
    entry = chain.entries("oauth.token.issued")[0]
    assert entry["id"] == answer.headers["Gatepost-Event"]
    assert entry["data"]["subject_token"] == subject["jti"]
    assert (entry["data"]["mode"], entry["data"]["grant_type"]) == ("delegation", TOKEN_EXCHANGE)
    assert "sub" not in entry["data"]
    assert chain.introspect(body["access_token"], chain.service)["act"] == {"sub": chain.service.id}


def test_a_machines_token(chain: Chain) -> None:
    token = chain.machines(claims={"role": "admin"})
    claims = decode_jwt(chain.exchanged(token))[1]
    assert claims["sub"] == decode_jwt(token)[1]["sub"]
    assert claims["act"] == {"sub": chain.service.id}
    assert not {"role", "auth_time"} & set(claims)


# --- who may exchange what


def test_only_the_client_or_a_server_of_the_audience_exchanges_a_token(chain: Chain) -> None:
    token = chain.persons()["access_token"]
    stranger = chain.exchanging("store:read", [chain.store])
    nobody = chain.exchanging("store:read", [])
    for by in (stranger, nobody):
        check_refusal(chain.exchange(token, by=by), TOKENS, "invalid_request", "subject_token", "serves")
    own = chain.exchanging("store:read things:read", [], grant_types=None)
    members = {
        "client_id": own.id, "scope": "things:read store:read",
        "grants": [
            {"grant_type": "client_credentials", "scopes": ["things:read"]},
            {"grant_type": TOKEN_EXCHANGE, "scopes": ["store:read"]},
        ],
    }  # fmt: skip
    assert chain.gatepost.post("/oauth/clients", chain.admin, members).status_code == 200
    claims = decode_jwt(chain.exchanged(chain.gatepost.token(own, "things:read"), by=own))[1]
    assert claims["sub"] == own.id


def test_a_client_without_the_grant(chain: Chain) -> None:
    token = chain.persons()["access_token"]
    check_refusal(chain.exchange(token, by=chain.client), TOKENS, "unauthorized_client", TOKEN_EXCHANGE)
    disabled = chain.define(
        grant_types=[TOKEN_EXCHANGE], redirect_uris=None, serves=[chain.api], scope="store:read",
        grants=[{"grant_type": TOKEN_EXCHANGE, "scopes": ["store:read"], "status": "disabled"}],
    )  # fmt: skip
    check_refusal(chain.exchange(token, by=disabled), TOKENS, "unauthorized_client", TOKEN_EXCHANGE)


def test_a_token_of_another_account(chain: Chain, account_name: str) -> None:
    other = Chain(chain.gatepost, account_name)
    for whose, by in ((other, chain.service), (chain, other.service)):
        answer = chain.exchange(whose.persons()["access_token"], by=by)
        check_refusal(answer, TOKENS, "invalid_request", "subject_token")


def test_a_token_of_another_account_for_a_resource_that_all_share(sqlite_gatepost: Service) -> None:
    """Both serve it, each for its own."""
    shared = "https://platform.example"
    setting = json.dumps({shared: {"scopes": ["use"]}})
    with web_beside(sqlite_gatepost, shared_resources=setting) as gatepost:
        found = {}
        for name in ("one", "two"):
            _, first = gatepost.account(f"exchange-shared-{name}")
            admin = gatepost.token(first, "gatepost:clients gatepost:scopes")
            grant_types = ["client_credentials", TOKEN_EXCHANGE]
            client = gatepost.define_client(admin, grant_types=grant_types, scope="use", serves=[shared])
            found[name] = client, gatepost.token(client, "use")
        for name, whose, status in (("one", "one", 200), ("one", "two", 400), ("two", "one", 400)):
            form = {"grant_type": TOKEN_EXCHANGE, "subject_token": found[whose][1], "subject_token_type": ACCESS_TOKEN}
            answer = gatepost.token_answer(found[name][0], "use", None, **form)
            assert answer.status_code == status, answer.text


# --- what may be obtained


ALLOWED: dict[str, tuple[str, dict[str, Any], str]] = {
    "another resource": ("store:read", {}, "store"),
    "another resource, named": ("store:read", {"resource": "store"}, "store"),
    "another resource, as audience": ("store:read", {"audience": "store"}, "store"),
    "both, the same": ("store:read", {"resource": "store", "audience": "store"}, "store"),
    "named twice": ("store:read", {"resource": ["store", "store"]}, "store"),
    "as audience twice": ("store:read", {"audience": ["store", "store"]}, "store"),
    "the same resource": ("things:read", {}, "api"),
    "of two, the one named": ("things:read store:read", {"audience": "store"}, "store"),
    "of two, the other": ("things:read store:read", {"resource": "api"}, "api"),
}
NOT_ALLOWED: dict[str, tuple[str | None, dict[str, Any], str]] = {
    "no scope": (None, {}, "invalid_scope"),
    "more at the same resource": ("things:write", {}, "invalid_scope"),
    "more beside what it has": ("things:read things:write", {}, "invalid_scope"),
    "what the grant has not": ("store:write", {}, "invalid_scope"),
    "what the grant has not, elsewhere": ("files", {}, "invalid_scope"),
    "a scope of persons": ("openid", {}, "invalid_scope"),
    "a refresh token": ("offline_access", {}, "invalid_scope"),
    "a scope of the service": ("gatepost:clients", {}, "invalid_scope"),
    "no such scope": ("nothing", {}, "invalid_scope"),
    "two resources": ("things:read store:read", {}, "invalid_scope"),
    "two resources, named": ("things:read store:read", {"resource": ["api", "store"]}, "invalid_target"),
    "two resources, as audiences": ("things:read store:read", {"audience": ["api", "store"]}, "invalid_target"),
    "resource and audience differ": ("store:read", {"resource": "store", "audience": "api"}, "invalid_target"),
    "another resource than the scope's": ("store:read", {"resource": "archive"}, "invalid_target"),
    "another audience than the scope's": ("store:read", {"audience": "archive"}, "invalid_target"),
}


def named(chain: Chain, sent: dict[str, Any]) -> dict[str, Any]:
    """With the URLs of the resources."""
    return {
        name: [getattr(chain, each) for each in ([value] if isinstance(value, str) else value)]
        for name, value in sent.items()
    }


@pytest.mark.parametrize("name", ALLOWED)
def test_what_may_be_obtained(chain: Chain, name: str) -> None:
    scope, sent, resource = ALLOWED[name]
    claims = decode_jwt(chain.exchanged(chain.persons()["access_token"], scope, **named(chain, sent)))[1]
    assert claims["aud"] == getattr(chain, resource)
    assert claims["scope"] == ("store:read" if resource == "store" else "things:read")


@pytest.mark.parametrize("name", NOT_ALLOWED)
def test_what_may_not_be_obtained(chain: Chain, name: str) -> None:
    scope, sent, code = NOT_ALLOWED[name]
    check_refusal(chain.exchange(chain.persons()["access_token"], scope, **named(chain, sent)), TOKENS, code)


def test_audience_may_be_repeated_in_an_exchange(chain: Chain) -> None:
    form = {"grant_type": "client_credentials", "scope": "gatepost:scopes"}
    answer = chain.ask(chain.first, **form, audience=[chain.store, chain.store])
    check_refusal(answer, TOKENS, "invalid_request", "audience")
    assert chain.ask(chain.first, **form, audience=[chain.store]).status_code == 200
    twice = chain.exchange(chain.persons()["access_token"], subject_token_type=[ACCESS_TOKEN, ACCESS_TOKEN])
    check_refusal(twice, TOKENS, "invalid_request", "subject_token_type")


# --- parameters


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no subject_token": ({"subject_token": None}, "subject_token"),
    "empty subject_token": ({"subject_token": ""}, "subject_token"),
    "no subject_token_type": ({"subject_token_type": None}, "subject_token_type"),
    "an ID token's type": (
        {"subject_token_type": "urn:ietf:params:oauth:token-type:id_token"}, "subject_token_type",
    ),
    "a refresh token's type": (
        {"subject_token_type": "urn:ietf:params:oauth:token-type:refresh_token"}, "subject_token_type",
    ),
    "a SAML assertion's type": (
        {"subject_token_type": "urn:ietf:params:oauth:token-type:saml2"}, "subject_token_type",
    ),
    "a refresh token wanted": (
        {"requested_token_type": "urn:ietf:params:oauth:token-type:refresh_token"}, "requested_token_type",
    ),
    "an ID token wanted": (
        {"requested_token_type": "urn:ietf:params:oauth:token-type:id_token"}, "requested_token_type",
    ),
    "an actor": ({"actor_token": "a.b.c", "actor_token_type": JWT}, "actor_token"),
    "an actor's type": ({"actor_token_type": JWT}, "actor_token"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_parameters(chain: Chain, name: str) -> None:
    changes, word = WRONG[name]
    answer = chain.exchange(chain.persons()["access_token"], **changes)
    check_refusal(answer, TOKENS, "invalid_request", word)


def test_an_exchange_without_a_subject_token_is_refused(chain: Chain) -> None:
    """Whatever else it may obtain for itself."""
    able = chain.define(
        grant_types=["client_credentials", TOKEN_EXCHANGE], redirect_uris=None, scope="store:read", serves=[chain.api]
    )
    assert chain.gatepost.token_answer(able, "store:read").status_code == 200
    for subject in (None, "", " ", "null"):
        check_refusal(chain.exchange(subject, by=able), TOKENS, "invalid_request", "subject_token")


@pytest.mark.parametrize("kind", [ACCESS_TOKEN, JWT])
def test_the_requested_token_type_is_returned(chain: Chain, kind: str) -> None:
    token = chain.persons()["access_token"]
    answer = chain.exchange(token, requested_token_type=kind, subject_token_type=kind)
    assert answer.json()["issued_token_type"] == kind


# --- subject tokens that are none

FORGER = ECKey.generate_key("P-256", {"kid": "forger"})


def forged(chain: Chain, **header: Any) -> str:
    head, claims = decode_jwt(chain.persons()["access_token"])
    return signed(FORGER, claims, **(head | {"alg": "ES256"} | header))


def revoked(chain: Chain) -> str:
    token = chain.persons()["access_token"]
    assert chain.post("revoke", token=token).status_code == 200
    return str(token)


def of_an_ended_consent(chain: Chain) -> str:
    found = chain.persons()
    consent = chain.entries("oauth.consent.given")[0]["subject"]
    chain.gatepost.cli("consent", "revoke", consent, "--account", chain.name)
    return str(found["access_token"])


def of_a_disabled_client(chain: Chain) -> str:
    client = chain.define()
    found = chain.tokens(chain.auth_request(client, scope="things:read"), client)
    body = {"client_id": client.id, "status": "disabled"}
    assert chain.gatepost.post("/oauth/clients", chain.admin, body).status_code == 200
    return str(found["access_token"])


NO_SUBJECT: dict[str, Callable[[Chain], str]] = {
    "an ID token": lambda c: c.persons()["id_token"],
    "a refresh token": lambda c: c.persons()["refresh_token"],
    "a code": lambda c: c.code(c.auth_request(scope="things:read")),
    "a foreign JWT": lambda c: signed(c.key, {"iss": "https://idp.example", "sub": "ada", "exp": time.time() + 60}),
    "a handoff": lambda c: c.handoff({"jti": ids.new("int"), "scopes": []}),
    "forged": forged,
    "forged, with its key": lambda c: forged(c, kid=None, jwk=FORGER.as_dict(private=False)),
    "one bit off": lambda c: c.persons()["access_token"][:-5] + "AAAAA",
    "cut short": lambda c: c.persons()["access_token"].rpartition(".")[0],
    "something": lambda c: "something",
    "a client's id": lambda c: c.service.id,
    "revoked": revoked,
    "of a consent that ended": of_an_ended_consent,
    "of a disabled client": of_a_disabled_client,
}


@pytest.mark.parametrize("name", NO_SUBJECT)
@pytest.mark.parametrize("kind", [ACCESS_TOKEN, JWT])
def test_tokens_that_are_not_accepted_as_subject_token(chain: Chain, name: str, kind: str) -> None:
    token = NO_SUBJECT[name](chain)
    answer = chain.exchange(token, subject_token_type=kind)
    check_refusal(answer, TOKENS, "invalid_request", "subject_token")
    refused = chain.entries("oauth.token.refused")[0]
    assert refused["id"] == answer.headers["Gatepost-Event"]
    assert token not in str(refused["data"]), "no token is in the ledger"


def test_an_expired_subject_token(chain: Chain) -> None:
    """Made by the service's own key, a minute late."""
    claims = decode_jwt(chain.persons()["access_token"])[1]
    store, own = chain.gatepost.opened.store, chain.gatepost.opened.service

    def made(**changes: Any) -> str:
        key = store.read_now(lambda tx: own.active_key(tx, "ES256"))
        return own.ring.sign(key, msgspec.json.encode(claims | changes), "at+jwt").decode()

    assert chain.exchange(made()).status_code == 200
    late = made(iat=claims["iat"] - 4000, exp=int(time.time()) - 1)
    check_refusal(chain.exchange(late), TOKENS, "invalid_request", "subject_token", "expired")


# --- delegation, impersonation, and how far a chain goes


def test_delegation_nests_the_actors(chain: Chain) -> None:
    second = chain.exchanging("files", [chain.store])
    first = chain.exchanged(chain.persons()["access_token"])
    claims = decode_jwt(chain.exchanged(first, "files", by=second))[1]
    assert claims["act"] == {"sub": second.id, "act": {"sub": chain.service.id}}
    assert claims["sub"] == f"{chain.account}.ada"


def test_impersonation_does_not_name_the_actor(chain: Chain) -> None:
    posing = chain.exchanging("store:read", [chain.api], "impersonation")
    claims = decode_jwt(chain.exchanged(chain.persons()["access_token"], by=posing))[1]
    assert "act" not in claims
    assert claims["client_id"] == posing.id
    assert chain.entries("oauth.token.issued")[0]["data"]["mode"] == "impersonation"


def test_impersonation_keeps_earlier_actors(chain: Chain) -> None:
    posing = chain.exchanging("files", [chain.store], "impersonation")
    first = chain.exchanged(chain.persons()["access_token"])
    assert decode_jwt(chain.exchanged(first, "files", by=posing))[1]["act"] == {"sub": chain.service.id}


def test_a_chain_of_exchanges_has_a_maximum_length(chain: Chain) -> None:
    token = chain.persons()["access_token"]
    for _ in range(DEEPEST):
        token = chain.exchanged(token, "things:read")
    check_refusal(chain.exchange(token, "things:read"), TOKENS, "invalid_request", "subject_token", str(DEEPEST))


def test_a_way_over_another_resource_and_back_adds_no_scope(gatepost: Service, account_name: str) -> None:
    chain = Chain(gatepost, account_name)
    back = chain.exchanging("things:read things:write store:read", [chain.store])
    away = chain.exchanged(chain.persons()["access_token"])
    words = "things:write is not in the subject token, or in a token that it was obtained for"
    for by in (chain.service, back):
        check_refusal(chain.exchange(away, "things:write", by), TOKENS, "invalid_scope", words)
        assert decode_jwt(chain.exchanged(away, "things:read", by))[1]["scope"] == "things:read"
    further = chain.exchanged(away, by=back)
    check_refusal(chain.exchange(further, "things:write", back), TOKENS, "invalid_scope", words)
    key = {"account": ids.raw(chain.account), "id": ids.raw(decode_jwt(away)[1]["jti"])}
    where = "WHERE account = :account AND id = :id"
    [(data,)] = gatepost.opened.store.read_now(lambda tx: tx.select(f"SELECT data FROM entries {where}", key))

    def replace(value: str | None) -> None:
        text = f"UPDATE entries SET data = :data {where} RETURNING 1"
        gatepost.opened.store.run_now(lambda tx: tx.select(text, key | {"data": value}))

    replace(None)
    try:
        check_refusal(chain.exchange(further, "things:read", back), TOKENS, "invalid_request", "was erased")
    finally:
        replace(data)  # other tests verify all ledgers of this service


def test_a_client_obtains_no_scope_for_its_own_token_that_the_person_did_not_grant(chain: Chain) -> None:
    """A token with a part of what was granted, such as `openid`, has another audience."""
    app = chain.define(
        grant_types=["authorization_code", "refresh_token", TOKEN_EXCHANGE],
        scope="openid offline_access things:read things:write store:read",
    )
    asked = chain.auth_request(app, scope="openid offline_access things:read things:write")
    granted = chain.tokens(asked, app, scope="openid offline_access things:read")
    narrow = chain.refresh(granted["refresh_token"], app, scope="openid").json()["access_token"]
    words = "things:write is not in the scopes that the person granted"
    check_refusal(chain.exchange(narrow, "things:write", app), TOKENS, "invalid_scope", words)
    assert decode_jwt(chain.exchanged(narrow, "things:read", app))[1]["scope"] == "things:read"
    assert decode_jwt(chain.exchanged(narrow, "store:read", app))[1]["aud"] == chain.store, "nobody was asked for it"
    away = chain.exchanged(narrow, "store:read", app)
    check_refusal(chain.exchange(away, "things:write", app), TOKENS, "invalid_scope", words)
    refused = chain.tokens(chain.auth_request(app, scope="openid things:write"), app, scope="openid")
    check_refusal(chain.exchange(refused["access_token"], "things:write", app), TOKENS, "invalid_scope", words)


def test_a_subject_token_may_have_any_claims(chain: Chain) -> None:
    nested: Any = {"x": [[]] * 1010}
    client = chain.define(
        grant_types=["client_credentials", TOKEN_EXCHANGE], redirect_uris=None, scope="things:read", claims=nested
    )
    token = chain.gatepost.token(client, "things:read")
    assert decode_jwt(chain.exchanged(token, "things:read", client))[1]["sub"] == client.id


# --- expiry, and what ends an exchanged token


def test_it_never_ends_after_the_subject_token(chain: Chain) -> None:
    short = decode_jwt(token := chain.machines(access_token_lifetime=120))[1]["exp"]
    answer = chain.exchange(token)
    assert decode_jwt(answer.json()["access_token"])[1]["exp"] == short
    assert 0 < answer.json()["expires_in"] <= 120
    hasty = chain.exchanging("store:read", [chain.api], access_token_lifetime=60)
    long = chain.machines(access_token_lifetime=600)
    assert chain.exchange(long, by=hasty).json()["expires_in"] == 60


def end_consent(chain: Chain, _found: dict[str, Any]) -> None:
    consent = chain.entries("oauth.consent.given")[0]["subject"]
    chain.gatepost.cli("consent", "revoke", consent, "--account", chain.name)


def revoke_refresh_token(chain: Chain, found: dict[str, Any]) -> None:
    assert chain.post("revoke", token=found["refresh_token"]).status_code == 200


def off_board(chain: Chain, _found: dict[str, Any]) -> None:
    now = int(time.time())
    claims = {"iss": chain.account, "aud": chain.url, "sub": "ada", "iat": now, "exp": now + 60, "jti": ids.new("jti")}
    sent = signed(chain.key, claims, typ="gatepost-revoke+jwt")
    assert requests.post(f"{chain.url}/oauth/revoke", data={"token": sent}).status_code == 200


def disable_the_exchanging_client(chain: Chain, _found: dict[str, Any]) -> None:
    body = {"client_id": chain.service.id, "status": "disabled"}
    assert chain.gatepost.post("/oauth/clients", chain.admin, body).status_code == 200


ENDINGS = {
    "the consent ends": end_consent,
    "the refresh token is revoked": revoke_refresh_token,
    "the person leaves": off_board,
    "the client is disabled": disable_the_exchanging_client,
}


@pytest.mark.parametrize("name", ENDINGS)
def test_what_ends_an_exchanged_token(gatepost: Service, account_name: str, name: str) -> None:
    chain = Chain(gatepost, account_name)
    second = chain.exchanging("files", [chain.store])
    found = chain.persons()
    first = chain.exchanged(found["access_token"])
    last = chain.exchanged(first, "files", by=second)
    assert chain.introspect(first, second)["active"]
    assert chain.introspect(last, second)["active"]
    ENDINGS[name](chain, found)
    assert chain.introspect(first, second) == {"active": False}
    if name != "the client is disabled":
        assert chain.introspect(last, second) == {"active": False}
    check_refusal(chain.exchange(first, "files", by=second), TOKENS, "invalid_request", "subject_token")


def test_revoking_an_exchanged_token_ends_no_family_of_another_client(gatepost: Service, account_name: str) -> None:
    """The client that exchanged the token cannot end the refresh token or the access tokens of another client."""
    chain = Chain(gatepost, account_name)
    found = chain.persons()
    mine, other = chain.exchanged(found["access_token"]), chain.exchanged(found["access_token"])
    assert chain.post("revoke", chain.service, token=mine).status_code == 200
    assert chain.introspect(mine, chain.service) == {"active": False}
    for token in (other, found["access_token"]):
        assert chain.introspect(token, chain.service)["active"]
    assert chain.post("revoke", chain.service, token=found["access_token"]).status_code == 200
    assert chain.introspect(found["access_token"])["active"], "it serves the token, and does not own it"
    assert chain.refresh(found["refresh_token"]).status_code == 200


# --- proofs, and explaining


def test_a_bound_subject_token_needs_a_proof(chain: Chain) -> None:
    """Otherwise a stolen token could be exchanged for one that is not bound."""
    token = chain.redeem(chain.code(), headers=Prover(chain.url).headers()).json()["access_token"]
    answer = chain.exchange(token)
    check_refusal(answer, TOKENS, "invalid_dpop_proof", "subject token", "proof")
    assert chain.entries("oauth.token.refused")[0]["id"] == answer.headers["Gatepost-Event"]


def test_a_client_that_serves_nothing_proves_the_key_of_its_own_token(chain: Chain) -> None:
    grants = [
        {"grant_type": "client_credentials", "scopes": ["things:read"]},
        {"grant_type": TOKEN_EXCHANGE, "scopes": ["store:read"]},
    ]
    own = chain.define(grants=grants, redirect_uris=None, grant_types=None, scope="things:read store:read")
    right, other = Prover(chain.url), Prover(chain.url)
    token = chain.gatepost.token_answer(own, "things:read", right.headers()).json()["access_token"]
    check_refusal(chain.exchange(token, by=own), TOKENS, "invalid_dpop_proof", "proof")
    refused = chain.exchange(token, by=own, headers=other.headers())
    check_refusal(refused, TOKENS, "invalid_dpop_proof", "another key")
    answer = chain.exchange(token, by=own, headers=right.headers())
    assert decode_jwt(answer.json()["access_token"])[1]["cnf"] == {"jkt": right.thumbprint}


def test_the_new_token_is_bound_to_the_key_of_the_exchanging_client(chain: Chain) -> None:
    """The client serves the resource: it received the token with a proof of the sender's key, and has its own."""
    person, prover = Prover(chain.url), Prover(chain.url)
    token = chain.redeem(chain.code(), headers=person.headers()).json()["access_token"]
    answer = chain.exchange(token, headers=prover.headers())
    assert answer.json()["token_type"] == "DPoP"
    assert decode_jwt(answer.json()["access_token"])[1]["cnf"] == {"jkt": prover.thumbprint}
    headers = prover.headers()
    assert chain.exchange(token, headers=headers).status_code == 200
    check_refusal(chain.exchange(token, headers=headers), TOKENS, "invalid_dpop_proof", "used before")


def test_explaining_what_would_be_issued(chain: Chain) -> None:
    token = chain.persons()["access_token"]
    before = len(chain.entries("oauth.token.issued"))
    answer = chain.exchange(token, headers={"Prefer": "explain"})
    assert answer.headers["Preference-Applied"] == "explain"
    body = answer.json()
    assert (body["decision"], body["rules"][0]["rule"]) == ("issue", "basis_holds")
    assert "stays_within_the_subject" in [each["rule"] for each in body["rules"]]
    assert body["claims"]["act"] == {"sub": chain.service.id}
    assert body["claims"]["exp"] <= decode_jwt(token)[1]["exp"]
    assert "access_token" not in body
    assert len(chain.entries("oauth.token.issued")) == before


def test_explaining_what_would_be_refused(chain: Chain) -> None:
    token = chain.persons()["access_token"]
    beyond = chain.exchange(token, "things:write", headers={"Prefer": "explain"})
    assert beyond.status_code == 200
    assert (beyond.json()["decision"], beyond.json()["rule"]) == ("refuse", "stays_within_the_subject")
    nothing = chain.exchange("something", headers={"Prefer": "explain"}).json()
    assert (nothing["decision"], nothing["rule"], nothing["error"]) == ("refuse", "basis_holds", "invalid_request")
    assert [each["held"] for each in nothing["rules"]] == [False]
    entry = chain.entries("oauth.token.explained")[0]
    assert entry["data"]["decision"] == "refuse"


@pytest.mark.parametrize("grant_type", ["client_credentials", TOKEN_EXCHANGE, JWT_BEARER])
def test_explanations_require_authentication(chain: Chain, grant_type: str) -> None:
    public = chain.define(token_endpoint_auth_method="none")
    form = {"subject_token": chain.persons()["access_token"], "subject_token_type": ACCESS_TOKEN, "assertion": "x"}
    answer = chain.ask(public, {"Prefer": "explain"}, grant_type=grant_type, scope="store:read", **form)
    check_refusal(answer, TOKENS, "unauthorized_client")
    assert "Preference-Applied" not in answer.headers
