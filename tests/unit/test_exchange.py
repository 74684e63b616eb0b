"""The rules of token exchange (RFC 8693): what is asked, what a subject token amounts to, and what comes of it."""

from typing import Any

import msgspec
import pytest

from gatepost.core.errors import Refusal
from gatepost.oauth.client_grants import TOKEN_EXCHANGE, Grant
from gatepost.oauth.clients import Client
from gatepost.oauth.grants import GRANTS, token_exchange
from gatepost.oauth.grants.token_exchange import (
    ACCESS_TOKEN,
    JWT,
    check_parameters,
    check_subject_token,
    extend_provenance,
)
from gatepost.oauth.provenance import LONGEST_CHAIN, Provenance, SubjectToken
from gatepost.oauth.signing_keys import SigningKey
from gatepost.oauth.token_rules import Draft, GrantContext, Token, TokenRequest, decide, mint
from tests.unit.drafts import ACCOUNT, ALL, API, BASE_URL, NOW, OTHER, SCOPES

SECOND = int(NOW.timestamp())
RIGHT = {"subject_token": "a.token.here", "subject_token_type": ACCESS_TOKEN}
PERSON: dict[str, Any] = {"auth_time": SECOND - 60, "acr": "2", "amr": ["pwd"]}


def client(*granted: str, serves: tuple[str, ...] = (API,), exchange: Any = None, **members: Any) -> Client:
    grants = [Grant("grt_1", TOKEN_EXCHANGE, list(granted or ALL), exchange=exchange)]
    return Client("cli_1", ACCOUNT.id, NOW, NOW, grants=grants, serves=list(serves), **members)


def claims(**changes: Any) -> dict[str, Any]:
    """Of a live token of ours for the API, given to another client."""
    right = {
        "iss": BASE_URL, "sub": "acc_1.ada", "aud": API, "exp": SECOND + 600, "iat": SECOND - 60, "jti": "tok_1",
        "client_id": "cli_2", "scope": "read write", "account": ACCOUNT.id, "grant": "grt_2",
    }  # fmt: skip
    return {name: value for name, value in (right | changes).items() if value is not None}


def rested(by: Client | None = None, **changes: Any) -> GrantContext:
    found = check_subject_token(claims(**changes), by or client(), ACCOUNT.id, BASE_URL)
    assert isinstance(found, GrantContext), found
    return found


def decided(*scope: str, by: Client | None = None, resources: tuple[str, ...] = (), **changes: Any) -> Draft | Refusal:
    by = by or client(serves=(API, API + "/"))
    request = TokenRequest(TOKEN_EXCHANGE, scope, resources)
    return decide(Draft(request, ACCOUNT, by, BASE_URL, rested(by, **changes)), SCOPES, token_exchange.RULES)


def minted(draft: Draft | Refusal) -> Token:
    assert isinstance(draft, Draft), draft
    way = GRANTS[TOKEN_EXCHANGE]
    key = SigningKey("key_1", "ES256", "active", {}, NOW)
    return mint(draft, key, token=bytes(16), subject=way.subject(draft), extra=way.claims(draft), at=NOW)


# --- parameters

ACCEPTED: list[dict[str, str]] = [
    {},
    {"subject_token_type": JWT},
    {"requested_token_type": ACCESS_TOKEN},
    {"requested_token_type": JWT},
]
TYPES = ["refresh_token", "id_token", "saml1", "saml2"]
REFUSED: list[tuple[dict[str, str], str]] = [
    ({"subject_token": ""}, "subject_token"),
    ({"subject_token_type": ""}, "subject_token_type"),
    ({"subject_token_type": "access_token"}, "subject_token_type"),
    ({"subject_token_type": ACCESS_TOKEN.upper()}, "subject_token_type"),
    *[({"subject_token_type": f"urn:ietf:params:oauth:token-type:{each}"}, "subject_token_type") for each in TYPES],
    *[({"requested_token_type": f"urn:ietf:params:oauth:token-type:{each}"}, "requested_token_type") for each in TYPES],
    ({"actor_token": "a.b.c", "actor_token_type": JWT}, "actor_token"),
    ({"actor_token": "a.b.c"}, "actor_token"),
    ({"actor_token_type": JWT}, "actor_token"),
]


@pytest.mark.parametrize("changes", ACCEPTED)
def test_right_parameters(changes: dict[str, str]) -> None:
    assert check_parameters(RIGHT | changes) is None


@pytest.mark.parametrize(("changes", "name"), REFUSED)
def test_wrong_parameters(changes: dict[str, str], name: str) -> None:
    found = check_parameters(RIGHT | changes)
    assert found is not None
    assert (found.code, found.pointer) == ("invalid_request", name)


@pytest.mark.parametrize("name", RIGHT)
def test_what_must_be_there(name: str) -> None:
    found = check_parameters({other: value for other, value in RIGHT.items() if other != name})
    assert found is not None
    assert found.pointer == name


# --- the subject token

USABLE: dict[str, tuple[Client, dict[str, Any]]] = {
    "for a resource it serves": (client(), {}),
    "for one of those it serves": (client(serves=(OTHER, API)), {}),
    "for that and userinfo": (client(), {"aud": [API, BASE_URL]}),
    "issued to it": (client(serves=()), {"client_id": "cli_1"}),
    "issued to it for another resource": (client(), {"client_id": "cli_1", "aud": OTHER}),
    "issued to it for the service itself": (client(serves=()), {"client_id": "cli_1", "aud": BASE_URL}),
}
UNUSABLE: dict[str, tuple[Client, dict[str, Any]]] = {
    "for a resource that others serve": (client(serves=(OTHER,)), {}),
    "for a resource, with a slash": (client(serves=(API + "/",)), {}),
    "for nothing it serves": (client(serves=()), {}),
    "of another account": (client(), {"account": "acc_2"}),
    "of another account, issued to it": (client(), {"account": "acc_2", "client_id": "cli_1"}),
    "of no account": (client(), {"account": None}),
    "for the service itself, which nobody serves": (client(serves=(BASE_URL,)), {"aud": BASE_URL}),
    "for no resource": (client(), {"aud": []}),
}


@pytest.mark.parametrize("name", USABLE)
def test_a_subject_token_it_may_exchange(name: str) -> None:
    by, changes = USABLE[name]
    found = rested(by, **changes)
    assert (found.subject, found.scope, found.expires_at) == ("acc_1.ada", ("read", "write"), SECOND + 600)
    [limit] = found.limits
    assert limit.scope == found.scope
    assert BASE_URL not in limit.audience


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_subject_token_that_the_client_may_not_exchange(name: str) -> None:
    """The message does not say which check failed. The code is that of RFC 8693, section 2.2.2."""
    by, changes = UNUSABLE[name]
    found = check_subject_token(claims(**changes), by, ACCOUNT.id, BASE_URL)
    assert isinstance(found, Refusal)
    words = "subject_token: must be issued to this client, or for a resource that it serves"
    assert (found.code, found.pointer, found.detail) == ("invalid_request", "subject_token", words)


# --- a subject token that is bound to a key (RFC 9449)

BOUND = {"cnf": {"jkt": "right"}}
PROVEN: dict[str, tuple[Client, dict[str, Any], str]] = {
    "not bound, no proof": (client(), {}, ""),
    "not bound, a proof": (client(), {}, "any"),
    "its own, with the same key": (client(serves=()), BOUND | {"client_id": "cli_1"}, "right"),
    "served, with the same key": (client(), BOUND, "right"),
    "served, with another key": (client(), BOUND, "other"),
    "its own and served, with another key": (client(), BOUND | {"client_id": "cli_1"}, "other"),
}
UNPROVEN: dict[str, tuple[Client, dict[str, Any], str]] = {
    "its own, no proof": (client(serves=()), BOUND | {"client_id": "cli_1"}, ""),
    "served, no proof": (client(), BOUND, ""),
    "its own, with another key": (client(serves=()), BOUND | {"client_id": "cli_1"}, "other"),
    "its own, with another key, serving another resource": (
        client(serves=(OTHER,)), BOUND | {"client_id": "cli_1"}, "other",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVEN)
def test_a_key_that_is_proven_as_it_must_be(name: str) -> None:
    by, changes, thumbprint = PROVEN[name]
    assert isinstance(
        check_subject_token(claims(**changes), by, ACCOUNT.id, BASE_URL, thumbprint=thumbprint), GrantContext
    )


@pytest.mark.parametrize("name", UNPROVEN)
def test_a_key_that_is_not(name: str) -> None:
    by, changes, thumbprint = UNPROVEN[name]
    found = check_subject_token(claims(**changes), by, ACCOUNT.id, BASE_URL, thumbprint=thumbprint)
    assert isinstance(found, Refusal)
    assert (found.code, found.pointer) == ("invalid_dpop_proof", "DPoP")


# --- who acts


def chain(depth: int) -> dict[str, Any] | None:
    act: dict[str, Any] | None = None
    for number in range(depth):
        act = {"sub": f"cli_{number}"} | ({"act": act} if act else {})
    return act


class TestActing:
    @pytest.mark.parametrize("mode", [None, "delegation"])
    def test_delegation_says_who_acts(self, mode: str | None) -> None:
        found = rested(client(exchange=mode))
        assert found.claims["act"] == {"sub": "cli_1"}
        assert found.entry_data == {"subject_token": "tok_1", "mode": "delegation"}

    def test_impersonation_does_not(self) -> None:
        found = rested(client(exchange="impersonation"))
        assert "act" not in found.claims
        assert found.entry_data == {"subject_token": "tok_1", "mode": "impersonation"}

    def test_delegation_puts_the_newest_in_front(self) -> None:
        assert rested(act=chain(2)).claims["act"] == {"sub": "cli_1", "act": chain(2)}

    def test_impersonation_keeps_who_acted_before(self) -> None:
        assert rested(client(exchange="impersonation"), act=chain(2)).claims["act"] == chain(2)

    def test_the_chain_is_bounded(self) -> None:
        before = tuple(SubjectToken(f"tok_{number}", "cli_2", "key_1") for number in range(LONGEST_CHAIN - 1))
        found = extend_provenance(Provenance(before, consent="con_1"), claims(jti="tok_9"), "key_2")
        assert isinstance(found, Provenance)
        assert found == Provenance((SubjectToken("tok_9", "cli_2", "key_2"), *before), consent="con_1")
        refused = extend_provenance(found, claims(), "key_2")
        assert isinstance(refused, Refusal)
        assert (refused.code, refused.pointer) == ("invalid_request", "subject_token")
        assert str(LONGEST_CHAIN) in refused.detail

    def test_how_the_person_was_authenticated_is_passed_on(self) -> None:
        assert rested(**PERSON).claims == PERSON | {"act": {"sub": "cli_1"}}
        assert rested().claims == {"act": {"sub": "cli_1"}}

    def test_nothing_else_is(self) -> None:
        found = rested(role="admin", nonce="n", may_act={"sub": "cli_9"})
        assert set(found.claims) == {"act"}


# --- what comes of it

ALLOWED: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "all of it": (("read", "write"), {}),
    "less": (("read",), {}),
    "the resource said": (("read",), {"resources": (API,)}),
    "another resource": (("other",), {}),
    "another resource, said": (("other",), {"resources": (OTHER,)}),
    "of two resources, one": (("read", "other"), {"resources": (OTHER,)}),
    "said twice": (("read",), {"resources": (API, API)}),
}
NOT_ALLOWED: dict[str, tuple[tuple[str, ...], dict[str, Any], str, str]] = {
    "nothing said": ((), {}, "invalid_scope", "scopes_are_named"),
    "more at the same resource": (("short",), {}, "invalid_scope", "stays_within_the_subject"),
    "more at the same resource, with a slash": (
        ("short",), {"aud": API + "/"}, "invalid_scope", "stays_within_the_subject",
    ),
    "more beside what it has": (("read", "short"), {}, "invalid_scope", "stays_within_the_subject"),
    "a scope beyond the grant": (("read", "write"), {"by": client("read")}, "invalid_scope", "scopes_are_granted"),
    "a scope that is retired": (("retired",), {"scope": "retired"}, "invalid_scope", "scopes_are_active"),
    "a scope of another account": (("theirs",), {"scope": "theirs"}, "invalid_scope", "scopes_are_active"),
    "two resources": (("read", "other"), {}, "invalid_scope", "audience_is_one"),
    "two resources said": (("read", "other"), {"resources": (API, OTHER)}, "invalid_target", "audience_is_one"),
    "a resource of no scope": (("read",), {"resources": (OTHER,)}, "invalid_target", "audience_is_one"),
    "a public client": (
        ("read",), {"by": client(token_endpoint_auth_method="none")}, "unauthorized_client", "client_is_confidential",
    ),
    "no grant": (
        ("read",), {"by": Client("cli_1", ACCOUNT.id, NOW, NOW, serves=[API])}, "unauthorized_client",
        "grant_is_configured",
    ),
    "a key that is not shown": (
        ("read",), {"by": client(dpop_bound_access_tokens=True)}, "invalid_dpop_proof", "key_is_shown",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_what_may_be_obtained(name: str) -> None:
    scope, asked = ALLOWED[name]
    token = minted(decided(*scope, **asked))
    other = "other" in scope
    assert token.claims["aud"] == (OTHER if other else API)
    assert token.claims["scope"] == ("other" if other else " ".join(scope))


@pytest.mark.parametrize("name", NOT_ALLOWED)
def test_what_may_not(name: str) -> None:
    scope, asked, code, rule = NOT_ALLOWED[name]
    found = decided(*scope, **asked)
    assert isinstance(found, Refusal)
    assert (found.code, found.rule) == (code, rule)


def test_the_claims_are_of_the_subject_and_of_this_client() -> None:
    found = minted(decided("other", **PERSON)).claims
    assert found["sub"] == "acc_1.ada"
    assert (found["client_id"], found["grant"], found["account"]) == ("cli_1", "grt_1", ACCOUNT.id)
    assert found["act"] == {"sub": "cli_1"}
    assert {name: found[name] for name in PERSON} == PERSON


@pytest.mark.parametrize(("left", "lifetime"), [(1, 1), (600, 600), (3600, 3600), (3601, 3600), (80_000, 3600)])
def test_it_never_ends_after_the_subject_token(left: int, lifetime: int) -> None:
    token = minted(decided("other", exp=SECOND + left))
    assert (token.lifetime, token.expires_at, token.claims["exp"]) == (lifetime, SECOND + lifetime, SECOND + lifetime)


def test_a_machines_own_claims_are_not_passed_on() -> None:
    by = msgspec.structs.replace(client(), claims={"role": "admin"})
    assert "role" not in minted(decided("other", by=by)).claims


def test_nothing_is_exchanged_without_a_subject() -> None:
    draft = Draft(TokenRequest(TOKEN_EXCHANGE, ("read",)), ACCOUNT, client(), BASE_URL)
    found = decide(draft, SCOPES, token_exchange.RULES)
    assert isinstance(found, Draft)
    with pytest.raises(TypeError, match="needs a context"):
        GRANTS[TOKEN_EXCHANGE].subject(found)
