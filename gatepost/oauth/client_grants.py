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


class GrantType(NamedTuple):
    """What holds for every client that is configured for this grant type."""

    confidential: bool
    redirects: bool
    by_code: bool  # a person consented: openid and offline_access make sense, gatepost: scopes do not


GRANT_TYPES: dict[str, GrantType] = {
    "client_credentials": GrantType(confidential=True, redirects=False, by_code=False),
    "authorization_code": GrantType(confidential=False, redirects=True, by_code=True),
    "refresh_token": GrantType(confidential=False, redirects=False, by_code=True),
    JWT_BEARER: GrantType(confidential=False, redirects=False, by_code=False),
    TOKEN_EXCHANGE: GrantType(confidential=True, redirects=False, by_code=False),
}


class Grant(msgspec.Struct, frozen=True):
    """This client may obtain these scopes, by this grant type, with these lifetimes."""

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


def fits(grant_type: str, scope: str) -> bool:
    """Whether a scope can be obtained by this grant type at all."""
    if scope in operations.OPERATIONS:
        return grant_type == "client_credentials"
    return scope not in scopes.PROTOCOL_SCOPES or GRANT_TYPES[grant_type].by_code


def parse(given: list[dict[str, Any]], current: Mapping[str, Grant]) -> list[Grant] | str:
    """The grants that a checked member `grants` defines, or what is wrong. `current` has grants by grant type."""
    parsed: dict[str, Grant] = {}
    for entry in given:
        grant_type, names, exchange = entry["grant_type"], entry["scopes"], entry.get("exchange")
        if grant_type in parsed:
            return "must have each grant_type at most once"
        misfit = [name for name in names if not fits(grant_type, name)]
        if misfit:
            return f"{misfit[0]} cannot be obtained by {grant_type}"
        if exchange is not None and grant_type != TOKEN_EXCHANGE:
            return f"exchange must be left out: it is only for {TOKEN_EXCHANGE}"
        before = current.get(grant_type)
        if entry.get("id") is not None and (before is None or entry["id"] != before.id):
            return f"id must be left out, or the id that the {grant_type} grant has"
        parsed[grant_type] = Grant(
            before.id if before else ids.new("grt"),
            grant_type,
            list(dict.fromkeys(names)),
            entry.get("access_token_lifetime"),
            entry.get("refresh_token_lifetime"),
            entry.get("status", "active"),
            None if exchange == EXCHANGES[0] else exchange,  # whether the default is sent or not, the grant is the same
        )
    return list(parsed.values())


def build(grant_types: Iterable[str], scope: str, current: Mapping[str, Grant], *, reset: bool) -> list[Grant]:
    """One grant per grant type, with those scopes that the grant type fits. With `reset` only the ids are kept."""
    built = []
    for grant_type in grant_types:
        before = current.get(grant_type) or Grant(ids.new("grt"), grant_type, [])
        if reset:
            before = Grant(before.id, grant_type, [])
        names = [name for name in scopes.split(scope) if fits(grant_type, name)]
        built.append(msgspec.structs.replace(before, scopes=names))
    return built


def render(grant: Grant) -> dict[str, Any]:
    """The grant in a response."""
    rendered: dict[str, Any] = msgspec.to_builtins(grant)
    if grant.grant_type == TOKEN_EXCHANGE:
        rendered["exchange"] = grant.exchange or EXCHANGES[0]
    else:
        del rendered["exchange"]
    return rendered
