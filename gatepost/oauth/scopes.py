"""Scopes: what a client may ask for, and the resource each one is for. Model and rules, no I/O."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from gatepost.core import clock
from gatepost.core.errors import Refusal
from gatepost.oauth import resources

SCOPE_TOKEN = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,128}")  # RFC 6749, section 3.3
RESERVED = "gatepost:"
OPERATIONS = {
    "gatepost:clients": "Create and redefine clients. The admin scope: its holder can obtain every other scope.",
    "gatepost:scopes": "Create and redefine scopes.",
    "gatepost:endpoints": "Create and redefine webhook endpoints.",
    "gatepost:subscriptions": "Create and redefine webhook subscriptions, and replay events.",
    "gatepost:deliveries": "Read webhook deliveries.",
    "gatepost:events": "Publish events through the operations plane.",
}
OPENID = "openid"
OFFLINE = "offline_access"
BY_CODE = {
    OPENID: "Sign in: an ID token and userinfo.",
    OFFLINE: "Stay signed in: a refresh token.",
}
RESERVED_NAMES = BY_CODE | OPERATIONS  # no account defines a scope of its own under these

MEMBERS = ("name", "description", "resource", "claims", "max_lifetime", "status", "redefine")
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
BUILT_IN = BY_CODE | STANDARD | OPERATIONS


class Scope(msgspec.Struct, frozen=True):
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
        """What makes two definitions the same: everything but the times."""
        whole = msgspec.structs.asdict(self)
        return {key: whole[key] for key in ("description", "resource", "claims", "max_lifetime", "status")}


def shown(scope: Scope) -> dict[str, Any]:
    """The answer of POST /oauth/scopes."""
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
    """The names in a `scope` value, each once, in the order given."""
    return list(dict.fromkeys(text.split(" "))) if text else []


def default_resource(account: str) -> str:
    return f"urn:gatepost:{account}"


def define(
    sent: Mapping[str, Any], known: Scope | None, *, account: str, base_url: str, at: datetime
) -> Scope | Refusal:
    """The scope that a body of POST /oauth/scopes defines; `known` is the one with that name."""
    for member in sent:
        if member not in MEMBERS:
            return _bad(member, f"unknown member; a scope has {', '.join(MEMBERS)}")
    name = sent.get("name")
    if not isinstance(name, str) or not SCOPE_TOKEN.fullmatch(name):
        return _bad("name", "must be 1 to 128 printable ASCII characters without space, quote or backslash")
    if name in RESERVED_NAMES or name.startswith(RESERVED):
        return _bad("name", f"{name} is built in; names with the prefix {RESERVED} are reserved")
    base = known or Scope(account, name, default_resource(account), at, at, claims=STANDARD_CLAIMS.get(name, []))
    fields: dict[str, Any] = {}
    for member, check in _CHECKS.items():
        if member not in sent:
            continue
        if sent[member] is None:
            fields[member] = _without(member, account, name)
            continue
        problem = check(sent[member], base_url)
        if problem:
            return _bad(member, problem)
        fields[member] = sent[member]
    redefine = sent.get("redefine", False)
    if not isinstance(redefine, bool):
        return _bad("redefine", "must be true or false")
    wanted = msgspec.structs.replace(base, **fields)
    if known is None or wanted.definition() == known.definition():
        return wanted
    if not redefine:
        return Refusal(
            "conflict", f"scope {name} exists with another definition; send redefine: true to replace it", "/name"
        )
    return msgspec.structs.replace(wanted, updated_at=at)


def _bad(member: str, detail: str) -> Refusal:
    return Refusal("invalid_request", f"{member[:64]}: {detail}", f"/{member[:64]}")


def _without(member: str, account: str, name: str) -> Any:
    return {
        "description": "",
        "resource": default_resource(account),
        "claims": STANDARD_CLAIMS.get(name, []),
        "max_lifetime": None,
        "status": "active",
    }[member]


def _description(value: Any, _base_url: str) -> str:
    return "" if isinstance(value, str) and len(value) <= 500 else "must be a text of at most 500 characters"


def _claims(value: Any, _base_url: str) -> str:
    names = isinstance(value, list) and len(value) <= 50 and all(isinstance(name, str) for name in value)
    if not names or not all(0 < len(name) <= 128 and name.isprintable() for name in value):
        return "must be a list of at most 50 claim names"
    taken = sorted(PROTOCOL_CLAIMS.intersection(value))
    return f"must not name protocol claims ({', '.join(taken)})" if taken else ""


def _max_lifetime(value: Any, _base_url: str) -> str:
    right = isinstance(value, int) and not isinstance(value, bool) and 60 <= value <= 86400
    return "" if right else "must be a whole number of seconds from 60 to 86400"


def _status(value: Any, _base_url: str) -> str:
    return "" if value in ("active", "retired") else "must be active or retired"


_CHECKS = {
    "description": _description,
    "resource": resources.problem,
    "claims": _claims,
    "max_lifetime": _max_lifetime,
    "status": _status,
}

# Claims that only the service itself may set, in any token.
PROTOCOL_CLAIMS = frozenset(
    {
        "iss", "sub", "aud", "exp", "nbf", "iat", "jti", "client_id", "scope", "account", "grant", "auth_time", "acr",
        "amr", "azp", "nonce", "at_hash", "c_hash", "s_hash", "cnf", "act", "may_act", "sid", "events", "typ",
        "token_type", "active", "username",
    }
)  # fmt: skip


def fixed_claims_problem(value: Any) -> str:
    """What is wrong with claims that are the same in every token, in words; empty when nothing is."""
    if not isinstance(value, dict) or len(value) > 20 or len(msgspec.json.encode(value)) > 4096:
        return "must be an object of at most 20 claims and 4 KiB"
    if not all(0 < len(name) <= 128 for name in value):
        return "must have names of 1 to 128 characters"
    taken = sorted(PROTOCOL_CLAIMS.intersection(value))
    return f"must not set protocol claims ({', '.join(taken)})" if taken else ""
