"""Scopes: what a client may request, and the resource that each scope belongs to. Model and rules, no I/O."""

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from gatepost.core import clock
from gatepost.core import json_schema as schema
from gatepost.core.errors import Refusal
from gatepost.core.members import Member, read, table
from gatepost.ledger.operations import OPERATIONS
from gatepost.oauth import resources

SCOPE_TOKEN = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,128}")  # RFC 6749, section 3.3
RESERVED = "gatepost:"
OPENID = "openid"
OFFLINE = "offline_access"
PROTOCOL_SCOPES = {
    OPENID: "Sign in: an ID token and userinfo.",
    OFFLINE: "Stay signed in: a refresh token.",
}
RESERVED_NAMES = PROTOCOL_SCOPES | OPERATIONS  # an account cannot define scopes with these names

STANDARD_CLAIMS = {  # OIDC Core 1.0, section 5.4
    "profile": [
        "name", "family_name", "given_name", "middle_name", "nickname", "preferred_username", "profile", "picture",
        "website", "gender", "birthdate", "zoneinfo", "locale", "updated_at",
    ],
    "email": ["email", "email_verified"],
    "address": ["address"],
    "phone": ["phone_number", "phone_number_verified"],
}  # fmt: skip
STANDARD = {
    "profile": "Your name and profile.",
    "email": "Your email address.",
    "address": "Your postal address.",
    "phone": "Your phone number.",
}
BUILT_IN = PROTOCOL_SCOPES | STANDARD | OPERATIONS
# Claims that only Gatepost itself sets, in any token.
PROTOCOL_CLAIMS = frozenset(
    {
        "iss", "sub", "aud", "exp", "nbf", "iat", "jti", "client_id", "scope", "account", "grant", "auth_time", "acr",
        "amr", "azp", "nonce", "at_hash", "c_hash", "s_hash", "cnf", "act", "may_act", "sid", "events", "typ",
        "token_type", "active", "username",
    }
)  # fmt: skip


class Scope(msgspec.Struct, frozen=True):
    """A scope of an account."""

    account: str
    name: str
    resource: str
    created_at: datetime
    updated_at: datetime
    description: str = ""
    claims: list[str] = []
    max_lifetime: int | None = None
    status: Literal["active", "retired"] = "active"

    def definition(self) -> dict[str, Any]:
        """The members that define the scope: all but its account, its name and the times."""
        return {name: getattr(self, name) for name in ("description", "resource", "claims", "max_lifetime", "status")}


_SCOPE_CHARACTERS = "1 to 128 printable ASCII characters without space, quotation mark or backslash"
SCOPE_NAME = schema.matching(SCOPE_TOKEN.pattern, expects=f"a scope name of {_SCOPE_CHARACTERS}")
CLAIM_NAME = schema.string(
    1,
    128,
    expects="a claim name of 1 to 128 characters that is not a claim of the token itself, such as iss or sub",
    **{"not": {"enum": sorted(PROTOCOL_CLAIMS)}},
)
FIXED_CLAIMS = schema.mapping(CLAIM_NAME, {}, 20, expects="an object of at most 20 claims")
RESOURCE = schema.string(
    1,
    resources.MAX_LENGTH,
    expects="an absolute URI without fragment, such as https://api.example.com",
    pattern=r"^[a-z][a-z0-9+.-]*:[!-\"$-~]+$",
    examples=["https://api.example.com"],
)
MEMBERS = table(
    "a scope",
    Scope,
    Member(
        "name",
        schema.matching(
            SCOPE_TOKEN.pattern,
            expects=f"{_SCOPE_CHARACTERS}; {', '.join(PROTOCOL_SCOPES)} and the prefix {RESERVED} are reserved",
            examples=["invoices:read"],
            **{"not": {"anyOf": [{"pattern": f"^{RESERVED}"}, {"enum": list(PROTOCOL_SCOPES)}]}},
        ),
        "What clients request. It identifies the scope within the account.",
        required=True,
        null=False,
    ),
    Member("description", schema.string(0, 500), "Shown to people who are asked for consent."),
    Member(
        "resource",
        RESOURCE,
        "The audience of tokens with this scope, in normal form.",
        default_text="the account's own resource: `urn:gatepost:` and its id",
    ),
    Member(
        "claims",
        schema.array(CLAIM_NAME, maxItems=50),
        "Names of the claims that the scope releases at userinfo, and in ID tokens of clients with `id_token_claims`.",
        default_text="none; for `profile`, `email`, `address` and `phone` the claims of OpenID Connect",
        rule=lambda value: "" if all(map(str.isprintable, value)) else "must be names of printable characters",
    ),
    Member(
        "max_lifetime",
        schema.integer(60, 86_400, unit="seconds"),
        "The longest lifetime of access tokens with this scope.",
    ),
    Member("status", schema.one_of(["active", "retired"]), "A retired scope is no longer granted."),
    Member(
        "redefine",
        schema.boolean(),
        "Required to change the definition of a scope that exists.",
        default_text="`false`",
        null=False,
        direction="request",
    ),
    Member("account", schema.identifier("acc"), "The account that the scope belongs to.", direction="response"),
    Member("created_at", schema.DATE_TIME, "When the scope was created.", direction="response"),
    Member("updated_at", schema.DATE_TIME, "When the scope was last changed.", direction="response"),
)


def render(scope: Scope) -> dict[str, Any]:
    """The response of POST /oauth/scopes."""
    return {
        "name": scope.name,
        "account": scope.account,
        **scope.definition(),
        "created_at": clock.rfc3339(scope.created_at),
        "updated_at": clock.rfc3339(scope.updated_at),
    }


def standard(account: str, name: str) -> Scope | None:
    """The scope of OIDC Core 1.0, section 5.4, that an account has under this name unless it defines its own."""
    if name not in STANDARD:
        return None
    resource = default_resource(account)
    return Scope(account, name, resource, clock.EPOCH, clock.EPOCH, STANDARD[name], STANDARD_CLAIMS[name])


def split(text: str) -> list[str]:
    """The names in a `scope` value, without duplicates, in the order given."""
    return list(dict.fromkeys(text.split(" "))) if text else []


def first_beyond(names: Collection[str], allowed: Collection[str]) -> str | None:
    """The first of the names that is not allowed. The cost grows linearly with both."""
    beyond = set(names).difference(allowed)
    return next(name for name in names if name in beyond) if beyond else None


def problem_with(name: str, reason: str) -> str:
    """What is wrong with this name in a `scope` value. It is empty if the value has a space too many."""
    return f"{name[:128]} {reason}" if name else "names must be separated by single spaces"


def default_resource(account: str) -> str:
    """The resource of an account's scopes that name no other."""
    return f"urn:gatepost:{account}"


def define(
    body: Mapping[str, Any], current: Scope | None, *, account: str, base_url: str, at: datetime
) -> Scope | Refusal:
    """The scope that a body of POST /oauth/scopes defines; `current` is the account's scope with that name."""
    values = read(MEMBERS, body, creating=True)
    if isinstance(values, Refusal):
        return values
    name, redefine = values.pop("name"), values.pop("redefine", False)
    own_defaults: dict[str, Any] = {"resource": default_resource(account), "claims": STANDARD_CLAIMS.get(name, [])}
    problem = resources.problem(values["resource"], base_url) if values.get("resource") else ""
    if problem:
        return MEMBERS.refusal("resource", problem)
    values |= {member: default for member, default in own_defaults.items() if body.get(member, default) is None}
    base = current or Scope(account=account, name=name, created_at=at, updated_at=at, **own_defaults)
    scope = msgspec.structs.replace(base, **values)
    if current is None or scope.definition() == current.definition():
        return scope
    if not redefine:
        detail = f"scope {name} exists with another definition; send redefine: true to replace it"
        return Refusal("conflict", detail, "/name")
    return msgspec.structs.replace(scope, updated_at=at)


def fixed_claims_size(claims: dict[str, Any]) -> str:
    """What is wrong with the size of claims that have the same value in every token; empty if nothing is."""
    return "" if len(msgspec.json.encode(claims)) <= 4096 else "must have at most 4 KiB as JSON"
