"""The rules of the jwt-bearer grant (RFC 7523, section 3): what a foreign token must say, and what it amounts to."""

from typing import Any

import msgspec
import pytest

from gatepost.core.errors import Refusal
from gatepost.core.jose import InvalidJwt
from gatepost.oauth.client_grants import JWT_BEARER, Grant
from gatepost.oauth.clients import Client
from gatepost.oauth.grants import GRANTS, jwt_bearer
from gatepost.oauth.grants.jwt_bearer import MAX_LIFETIME, check_claims
from gatepost.oauth.issuers import Issuer
from gatepost.oauth.signing_keys import SigningKey
from gatepost.oauth.token_rules import Draft, GrantContext, TokenRequest, decide, mint
from tests.unit.drafts import ACCOUNT, ALL, BASE_URL, NOW, SCOPES

SECOND = int(NOW.timestamp())
THEIRS = "https://ci.example"
SUBJECT = "repo:acme/shop:ref:refs/heads/main"
ISSUER = Issuer(
    ACCOUNT.id, "ci", THEIRS, f"{THEIRS}/jwks", {"sub": SUBJECT, "repository": "acme/shop"}, "cli_1",
    ["read", "write"], NOW,
)  # fmt: skip


def claims(**changes: Any) -> dict[str, Any]:
    right = {
        "iss": THEIRS, "aud": BASE_URL, "sub": SUBJECT, "repository": "acme/shop", "iat": SECOND, "exp": SECOND + 300,
    }  # fmt: skip
    return {name: value for name, value in (right | changes).items() if value is not None}


def rest(**changes: Any) -> GrantContext | Refusal:
    return check_claims(ISSUER, claims(**changes), BASE_URL, NOW)


RIGHT: dict[str, dict[str, Any]] = {
    "plain": {},
    "aud is a list of one": {"aud": [BASE_URL]},
    "no iat": {"iat": None},
    "no iat, and an hour left": {"iat": None, "exp": SECOND + MAX_LIFETIME},
    "an hour long": {"exp": SECOND + MAX_LIFETIME},
    "an hour long, nearly over": {"iat": SECOND - MAX_LIFETIME + 1, "exp": SECOND + 1},
    "iat a little ahead": {"iat": SECOND + 10},
    "nbf a little ahead": {"nbf": SECOND + 10},
    "times with a fraction": {"iat": SECOND + 0.5, "exp": SECOND + 60.5},
    "more claims": {"scope": "everything", "act": {"sub": "x"}, "actor": "octocat", "run_attempt": 2},
}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another issuer": ({"iss": "https://evil.example"}, "iss"),
    "issuer with a slash": ({"iss": THEIRS + "/"}, "iss"),
    "no issuer": ({"iss": None}, "iss"),
    "issuers": ({"iss": [THEIRS]}, "iss"),
    "another audience": ({"aud": "https://other.example"}, "aud"),
    "audience with a slash": ({"aud": BASE_URL + "/"}, "aud"),
    "the token endpoint": ({"aud": BASE_URL + "/oauth/tokens"}, "aud"),
    "no audience": ({"aud": None}, "aud"),
    "audiences": ({"aud": [BASE_URL, "https://other.example"]}, "aud"),
    "audience twice": ({"aud": [BASE_URL, BASE_URL]}, "aud"),
    "no exp": ({"exp": None}, "exp"),
    "expired": ({"exp": SECOND}, "expired"),
    "expired long ago": ({"iat": SECOND - 900, "exp": SECOND - 600}, "expired"),
    "nbf ahead": ({"nbf": SECOND + 61}, "not yet valid"),
    "iat ahead": ({"iat": SECOND + 61}, "not yet valid"),
    "longer than an hour": ({"exp": SECOND + MAX_LIFETIME + 1}, "hour"),
    "longer than an hour, nearly over": ({"iat": SECOND - MAX_LIFETIME, "exp": SECOND + 1}, "hour"),
    "no iat, and more than an hour left": ({"iat": None, "exp": SECOND + MAX_LIFETIME + 1}, "hour"),
    "no sub": ({"sub": None}, "sub"),
    "empty sub": ({"sub": ""}, "sub"),
    "sub is a number": ({"sub": 5}, "sub"),
    "sub is too long": ({"sub": "s" * 513}, "sub"),
    "sub with a line end": ({"sub": "a\nb"}, "sub"),
    "another branch": ({"sub": "repo:acme/shop:ref:refs/heads/other"}, "claims"),
    "another repository": ({"sub": "repo:evil/shop:ref:refs/heads/main", "repository": "evil/shop"}, "claims"),
    "sub that begins so": ({"sub": SUBJECT + "-2"}, "claims"),
    "sub in other letters": ({"sub": SUBJECT.upper()}, "claims"),
    "one claim of the two": ({"repository": None}, "claims"),
    "a claim that is a list": ({"repository": ["acme/shop"]}, "claims"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_assertion(name: str) -> None:
    found = rest(**RIGHT[name])
    entry_data = {"issuer": "ci", "issuer_entry": ISSUER.identity}
    assert found == GrantContext(f"{ACCOUNT.id}:ci:{SUBJECT}", ("read", "write"), entry_data=entry_data)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_assertion(name: str) -> None:
    changes, word = WRONG[name]
    found = rest(**changes)
    assert isinstance(found, Refusal)
    assert (found.code, found.pointer) == ("invalid_grant", "assertion")
    assert word in found.detail


@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
@pytest.mark.parametrize("value", ["soon", True, [SECOND], -1, 10**30])
def test_what_is_no_time(name: str, value: Any) -> None:
    with pytest.raises(InvalidJwt, match=f"^{name} is not a time$"):
        rest(**{name: value})


def test_an_entry_without_a_match_matches_nothing() -> None:
    found = check_claims(msgspec.structs.replace(ISSUER, match={}), claims(), BASE_URL, NOW)
    assert isinstance(found, Refusal)
    assert "claims" in found.detail


def decided(*scope: str, by: Client | None = None) -> Draft | Refusal:
    basis = rest()
    assert isinstance(basis, GrantContext)
    by = by or Client("cli_1", ACCOUNT.id, NOW, NOW, grants=[Grant("grt_1", JWT_BEARER, ALL)])
    return decide(Draft(TokenRequest(JWT_BEARER, scope), ACCOUNT, by, BASE_URL, basis), SCOPES, jwt_bearer.RULES)


NARROW = Client("cli_1", ACCOUNT.id, NOW, NOW, grants=[Grant("grt_1", JWT_BEARER, ["read"])])
NOT_ALLOWED: list[tuple[tuple[str, ...], Client | None, str, str]] = [
    ((), None, "invalid_scope", "scopes_are_named"),
    (("other",), None, "invalid_scope", "scopes_are_agreed"),
    (("read", "other"), None, "invalid_scope", "scopes_are_agreed"),
    (("write",), NARROW, "invalid_scope", "scopes_are_granted"),
    (("read",), Client("cli_1", ACCOUNT.id, NOW, NOW), "unauthorized_client", "grant_is_configured"),
    (("read",), msgspec.structs.replace(NARROW, dpop_bound_access_tokens=True), "invalid_dpop_proof", "key_is_shown"),
]


@pytest.mark.parametrize(("scope", "by", "code", "rule"), NOT_ALLOWED)
def test_what_may_not_be_obtained(scope: tuple[str, ...], by: Client | None, code: str, rule: str) -> None:
    found = decided(*scope, by=by)
    assert isinstance(found, Refusal)
    assert (found.code, found.rule) == (code, rule)


def test_a_client_without_a_secret() -> None:
    """The issuer's token is what proves it: that is what workload identity is for."""
    found = decided("read", by=msgspec.structs.replace(NARROW, token_endpoint_auth_method="none"))
    assert isinstance(found, Draft)


def test_the_claims() -> None:
    draft = decided("read")
    assert isinstance(draft, Draft)
    way = GRANTS[JWT_BEARER]
    key = SigningKey("key_1", "ES256", "active", {}, NOW)
    token = mint(draft, key, token=bytes(16), subject=way.subject(draft), extra=way.claims(draft), at=NOW)
    assert token.claims["sub"] == f"{ACCOUNT.id}:ci:{SUBJECT}"
    assert (token.claims["client_id"], token.claims["scope"]) == ("cli_1", "read")
    assert token.claims["exp"] == SECOND + 3600  # of the account; the assertion only began it
    assert not {"auth_time", "act", "repository"} & set(token.claims)
