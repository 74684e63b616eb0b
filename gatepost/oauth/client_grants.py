"""Grants of a client: the scopes that it may obtain by each grant type. Model and rules, no I/O."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from gatepost.core import ids
from gatepost.core import json_schema as schema
from gatepost.core.members import Member, request_schemas, table
from gatepost.ledger import operations
from gatepost.oauth import scopes

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 (a name, not a secret)
EXCHANGES = ("delegation", "impersonation")


class GrantRequirements(NamedTuple):
    """What a grant type requires of every client that is configured for it."""

    confidential: bool = False  # the client authenticates
    redirects: bool = False  # the client has redirect URIs
    consent: bool = False  # a person consents, so the scopes of the protocol can be granted


GRANT_TYPES: dict[str, GrantRequirements] = {
    "client_credentials": GrantRequirements(confidential=True),
    "authorization_code": GrantRequirements(redirects=True, consent=True),
    "refresh_token": GrantRequirements(consent=True),
    JWT_BEARER: GrantRequirements(),
    TOKEN_EXCHANGE: GrantRequirements(confidential=True),
}


def offered(protocol: Literal["full", "six"]) -> list[str]:
    """The grant types that the service offers. With the protocol `six`, there are none that need consent."""
    return [name for name, grant in GRANT_TYPES.items() if protocol == "full" or not grant.consent]


class Grant(msgspec.Struct, frozen=True):
    """The scopes that a client may obtain by one grant type, and the lifetimes of its tokens."""

    id: str
    grant_type: str
    scopes: list[str]
    access_token_lifetime: int | None = None
    refresh_token_lifetime: int | None = None
    status: Literal["active", "disabled"] = "active"
    exchange: Literal["delegation", "impersonation"] | None = None  # only for a token exchange


ACCESS_TOKEN_LIFETIME = schema.integer(60, 86_400, unit="seconds")
REFRESH_TOKEN_LIFETIME = schema.integer(3600, 365 * 86_400, unit="seconds")
GRANT_MEMBERS = table(
    "a grant",
    Grant,
    Member("id", schema.identifier("grt"), "Leave it out, or send the id that the grant of this type has."),
    Member("grant_type", schema.one_of(GRANT_TYPES), "One grant per grant type.", required=True, null=False),
    Member(
        "scopes",
        schema.array(scopes.SCOPE_NAME, expects="a list of scope names"),
        "Names from the client's `scope`.",
        required=True,
        null=False,
    ),
    Member(
        "access_token_lifetime",
        ACCESS_TOKEN_LIFETIME,
        "Limits the lifetime of access tokens. The shortest limit of account, client, grant and scopes applies.",
    ),
    Member("refresh_token_lifetime", REFRESH_TOKEN_LIFETIME, "How long a refresh token may stay unused."),
    Member("status", schema.one_of(["active", "disabled"]), "A disabled grant issues no tokens.", null=False),
    Member(
        "exchange",
        schema.one_of(EXCHANGES),
        "For token exchange only. With `delegation`, issued tokens name this client in `act`.",
        default_text="`delegation`",
    ),
)
GRANTS = schema.array(
    schema.request_object(request_schemas(GRANT_MEMBERS), "grant_type", "scopes")
    | {
        "if": {"properties": {"grant_type": {"const": TOKEN_EXCHANGE}}},
        "else": {"properties": {"exchange": {"type": "null"}}},
    },
    expects=f"a list of 1 to {len(GRANT_TYPES)} grants, one per grant type",
    minItems=1,
    maxItems=len(GRANT_TYPES),
)


def can_obtain(grant_type: str, scope: str) -> bool:
    """Whether any client can obtain the scope by this grant type."""
    if scope in operations.OPERATIONS:
        return grant_type == "client_credentials"
    return scope not in scopes.PROTOCOL_SCOPES or GRANT_TYPES[grant_type].consent


def parse(given: list[dict[str, Any]], current: Mapping[str, Grant]) -> list[Grant] | str:
    """The grants that a validated member `grants` defines, or what is wrong. `current` maps grant types to grants."""
    parsed: dict[str, Grant] = {}
    for entry in given:
        grant_type, names, exchange = entry["grant_type"], entry["scopes"], entry.get("exchange")
        if grant_type in parsed:
            return "must have each grant_type at most once"
        impossible = [name for name in names if not can_obtain(grant_type, name)]
        if impossible:
            return f"{impossible[0]} cannot be obtained by {grant_type}"
        if exchange is not None and grant_type != TOKEN_EXCHANGE:
            return f"exchange must be left out: it is only for {TOKEN_EXCHANGE}"
        existing = current.get(grant_type)
        if entry.get("id") is not None and (existing is None or entry["id"] != existing.id):
            return f"id must be left out, or the id that the {grant_type} grant has"
        parsed[grant_type] = Grant(
            existing.id if existing else ids.new("grt"),
            grant_type,
            list(dict.fromkeys(names)),
            entry.get("access_token_lifetime"),
            entry.get("refresh_token_lifetime"),
            entry.get("status", "active"),
            None if exchange == EXCHANGES[0] else exchange,  # the default is stored as None
        )
    return list(parsed.values())


def build(grant_types: Iterable[str], scope: str, current: Mapping[str, Grant], *, reset: bool) -> list[Grant]:
    """One grant per grant type, with the scopes that it can obtain. With `reset`, only the ids are kept."""
    built = []
    for grant_type in grant_types:
        grant = current.get(grant_type) or Grant(ids.new("grt"), grant_type, [])
        if reset:
            grant = Grant(grant.id, grant_type, [])
        names = [name for name in scopes.split(scope) if can_obtain(grant_type, name)]
        built.append(msgspec.structs.replace(grant, scopes=names))
    return built


def render(grant: Grant) -> dict[str, Any]:
    """The grant in a response."""
    rendered: dict[str, Any] = msgspec.to_builtins(grant)
    if grant.grant_type == TOKEN_EXCHANGE:
        rendered["exchange"] = grant.exchange or EXCHANGES[0]
    else:
        del rendered["exchange"]
    return rendered
