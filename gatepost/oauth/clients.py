"""Clients: their metadata as RFC 7591 has it, their secrets, and their grants. Model and rules, no I/O."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import msgspec

from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.core.jwk_sets import STRICT_ALGORITHMS, jwks_problem
from gatepost.oauth import redirect_uris, resources, scopes
from gatepost.oauth.redirect_uris import HOST

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 (a name, not a secret)
SECRET_METHODS = ("client_secret_basic", "client_secret_post")
OVERLAP = timedelta(hours=24)
MAX_OVERLAP = timedelta(days=30)


class GrantType(NamedTuple):
    """What holds for every client that is configured for this way of obtaining tokens."""

    confidential: bool
    redirects: bool
    by_code: bool  # a person allowed it: openid and offline_access make sense, gatepost: scopes do not


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
    exchange: Literal["delegation", "impersonation"] | None = None  # of a token exchange


class StoredSecret(msgspec.Struct, frozen=True):
    """A client secret as it is kept: an HMAC under the server's key, never the secret."""

    id: str
    hash: bytes
    created_at: datetime
    expires_at: datetime | None = None

    def live(self, at: datetime) -> bool:
        return self.expires_at is None or at < self.expires_at


class Client(msgspec.Struct, frozen=True, omit_defaults=True):
    """One client. Members below `grants` are those of RFC 7591 and ours, with the names they have on the wire."""

    id: str
    account: str
    created_at: datetime
    updated_at: datetime
    secrets: list[StoredSecret] = []
    grants: list[Grant] = []
    explicit_grants: bool = False
    client_name: str | None = None
    redirect_uris: list[str] = []
    grant_types: list[str] = []
    response_types: list[str] = []
    scope: str = ""
    token_endpoint_auth_method: str = "client_secret_basic"  # noqa: S105 (a name, not a secret)
    jwks: dict[str, Any] | None = None
    jwks_uri: str | None = None
    contacts: list[str] = []
    client_uri: str | None = None
    logo_uri: str | None = None
    tos_uri: str | None = None
    policy_uri: str | None = None
    software_id: str | None = None
    software_version: str | None = None
    application_type: str = "web"
    id_token_signed_response_alg: str = "RS256"  # noqa: S105 (a name, not a secret)
    id_token_claims: bool = False  # has a column of its own in the store
    dpop_bound_access_tokens: bool = False
    access_token_lifetime: int | None = None
    refresh_token_lifetime: int | None = None
    serves: list[str] = []
    claims: dict[str, Any] = {}
    require_pkce: bool = True
    require_nonce: bool = True
    status: str = "active"
    metadata: dict[str, str] = {}

    @property
    def active(self) -> bool:
        return self.status == "active"

    @property
    def public(self) -> bool:
        return self.token_endpoint_auth_method == "none"  # noqa: S105 (a name, not a secret)

    def operations(self) -> set[str]:
        """The `gatepost:` scopes it can obtain."""
        return set(scopes.OPERATIONS).intersection(scopes.split(self.scope))

    def grant(self, grant_type: str) -> Grant | None:
        return next((each for each in self.grants if each.grant_type == grant_type and each.status == "active"), None)


class Definition(NamedTuple):
    """What a body of POST /oauth/clients asks for, checked."""

    client: Client
    wants_secret: bool
    overlap: timedelta


def define(
    sent: Mapping[str, Any], known: Client | None, *, account: str, base_url: str, at: datetime, strict: bool = False
) -> Definition | Refusal:
    """The client that the body defines: a new one, or `known` with the members sent changed."""
    fields = _read(sent, known)
    if isinstance(fields, Refusal):
        return fields
    overlap = _overlap(sent.get("rotate_secret"))
    if overlap is None:
        return _bad("rotate_secret", 'must be true or {"overlap": seconds}, at most 30 days')
    base = known or Client(ids.new("cli"), account, at, at)
    if strict and sent.get("id_token_signed_response_alg", None if known is None else "") is None:
        fields["id_token_signed_response_alg"] = STRICT_ALGORITHMS[0]
    client = _with_defaults(msgspec.structs.replace(base, **fields), sent)
    configured = _configure_grants(client, sent)
    if isinstance(configured, Refusal):
        return configured
    problem_with = _whole(configured, base_url) or (unfit(configured) if strict else None)
    if problem_with:
        return _bad(*problem_with)
    uses_secret = configured.token_endpoint_auth_method in SECRET_METHODS
    if not uses_secret:
        if sent.get("rotate_secret"):
            return _bad("rotate_secret", f"a {configured.token_endpoint_auth_method} client has no secret")
        configured = msgspec.structs.replace(configured, secrets=[])
    wants = uses_secret and (bool(sent.get("rotate_secret")) or not any(each.live(at) for each in configured.secrets))
    return Definition(configured, wants, overlap)


def _read(sent: Mapping[str, Any], known: Client | None) -> dict[str, Any] | Refusal:
    """The members sent, each checked by itself; null means the default."""
    fields: dict[str, Any] = {}
    for member, value in sent.items():
        check = MEMBERS.get(member)
        if member in ("client_id", "rotate_secret", "grants"):
            continue
        if check is None:
            if known is None:
                continue  # RFC 7591, section 2: unknown members of a registration are ignored
            return _bad(member, f"unknown member; a client has {', '.join([*MEMBERS, 'rotate_secret', 'grants'])}")
        problem = "" if value is None else check(value)
        if problem:
            return _bad(member, problem)
        fields[member] = _DEFAULTS[member] if value is None else value
    return fields


def with_secret(client: Client, digest: bytes, overlap: timedelta, at: datetime) -> Client:
    """The client with one more secret. The one before lives on for the overlap; any older one ends now."""
    before = [each for each in client.secrets if each.live(at)][-1:] if overlap else []
    ending = [
        msgspec.structs.replace(each, expires_at=min(each.expires_at or at + overlap, at + overlap)) for each in before
    ]
    return msgspec.structs.replace(client, secrets=[*ending, StoredSecret(ids.new("sec"), digest, at)])


def shown(client: Client, last_used: Mapping[str, datetime]) -> dict[str, Any]:
    """The answer of POST /oauth/clients: everything registered, never a secret."""
    answer: dict[str, Any] = {
        "client_id": client.id,
        "client_id_issued_at": clock.seconds(client.created_at),
        "account": client.account,
    }
    for member in MEMBERS:
        value = getattr(client, member)
        if value not in (None, [], {}) or member in ("grant_types", "redirect_uris"):
            answer[member] = value
    answer["grants"] = [_shown_grant(grant) for grant in client.grants]
    if client.secrets:
        answer["client_secret_expires_at"] = 0
        answer["secrets"] = [
            {
                "id": each.id,
                "created_at": clock.rfc3339(each.created_at),
                "expires_at": clock.rfc3339(each.expires_at) if each.expires_at else None,
                "last_used_at": clock.rfc3339(last_used[each.id]) if each.id in last_used else None,
            }
            for each in client.secrets
        ]
    return answer


def _shown_grant(grant: Grant) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(grant)
    if grant.grant_type == TOKEN_EXCHANGE:
        told["exchange"] = grant.exchange or EXCHANGES[0]
    else:
        del told["exchange"]
    return told


# --- the whole client


def _with_defaults(client: Client, sent: Mapping[str, Any]) -> Client:
    """RFC 7591, section 2: what is left out at registration."""
    grant_types, listed = client.grant_types, sent.get("grants")
    if not grant_types or (listed is not None and "grant_types" not in sent):
        entries = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        named = [each.get("grant_type") for each in entries]
        grant_types = [each for each in GRANT_TYPES if each in named] or ["authorization_code"]
    response_types = ["code"] if "authorization_code" in grant_types else []  # section 2.1: never inconsistent
    return msgspec.structs.replace(client, grant_types=grant_types, response_types=response_types)


def _configure_grants(client: Client, sent: Mapping[str, Any]) -> Client | Refusal:
    """Grants as given, else each grant type with the scopes that make sense for it. Ids stay with their type."""
    given = sent.get("grants")
    if client.explicit_grants and "grants" not in sent:
        return _keep_grants(client)
    known = {each.grant_type: each for each in client.grants}
    if given is not None:
        parsed = _parse_grants(given, known)
        if isinstance(parsed, str):
            return _bad("grants", parsed)
        allowed = scopes.split(client.scope) or list(dict.fromkeys(name for each in parsed for name in each.scopes))
        if "grant_types" not in sent:
            client = msgspec.structs.replace(client, grant_types=[each.grant_type for each in parsed])
        if {each.grant_type for each in parsed} != set(client.grant_types):
            return _bad("grants", "must have one entry for each of grant_types")
        beyond = [name for each in parsed for name in each.scopes if name not in allowed]
        if beyond:
            return _bad("grants", f"{beyond[0]} is not in the client's scope")
        return msgspec.structs.replace(client, grants=parsed, explicit_grants=True, scope=" ".join(allowed))
    built = []
    for grant_type in client.grant_types:
        fitting = [name for name in scopes.split(client.scope) if fits(grant_type, name)]
        before = known.get(grant_type) or Grant(ids.new("grt"), grant_type, [])
        if "grants" in sent:  # as null: of what was given only the id stays
            before = Grant(before.id, grant_type, [])
        built.append(msgspec.structs.replace(before, scopes=fitting))
    return msgspec.structs.replace(client, grants=built, explicit_grants=False)


def _keep_grants(client: Client) -> Client | Refusal:
    """Explicit grants stay as they are, less what the client's scope no longer has: nothing is added unasked."""
    if {each.grant_type for each in client.grants} != set(client.grant_types):
        return _bad("grant_types", "this client's grants are explicit; send grants too, or grants: null to build them")
    allowed = scopes.split(client.scope)
    trimmed = [
        msgspec.structs.replace(each, scopes=[name for name in each.scopes if name in allowed])
        for each in client.grants
    ]
    return msgspec.structs.replace(client, grants=trimmed)


def fits(grant_type: str, scope: str) -> bool:
    """Whether a scope can come by this grant type at all."""
    if scope in scopes.OPERATIONS:
        return grant_type == "client_credentials"
    return scope not in scopes.BY_CODE or GRANT_TYPES[grant_type].by_code


GRANT_MEMBERS = ("id", "grant_type", "scopes", "access_token_lifetime", "refresh_token_lifetime", "status", "exchange")
EXCHANGES = ("delegation", "impersonation")


def _parse_grants(given: Any, known: Mapping[str, Grant]) -> list[Grant] | str:
    if not isinstance(given, list) or not 1 <= len(given) <= len(GRANT_TYPES):
        return "must be a list of grants, one for each grant type"
    parsed: dict[str, Grant] = {}
    for each in given:
        unknown = sorted(set(each) - set(GRANT_MEMBERS)) if isinstance(each, dict) else []
        if not isinstance(each, dict) or unknown:
            return f"each grant has {', '.join(GRANT_MEMBERS)}" + (f", not {unknown[0][:64]}" if unknown else "")
        grant_type, names = each.get("grant_type"), each.get("scopes")
        if grant_type not in list(GRANT_TYPES) or grant_type in parsed:
            return "grant_type must be a supported grant type, each at most once"
        if not isinstance(names, list) or not all(
            isinstance(name, str) and scopes.SCOPE_TOKEN.fullmatch(name) for name in names
        ):
            return "scopes must be a list of scope names"
        misfit = [name for name in names if not fits(grant_type, name)]
        if misfit:
            return f"{misfit[0]} cannot be obtained by {grant_type}"
        lifetimes = {key: each.get(key) for key in ("access_token_lifetime", "refresh_token_lifetime")}
        for key, value in lifetimes.items():
            problem = MEMBERS[key](value) if value is not None else ""
            if problem:
                return f"{key} {problem}"
        if each.get("status", "active") not in ("active", "disabled"):
            return "status must be active or disabled"
        exchange = each.get("exchange")
        if exchange is not None and (grant_type != TOKEN_EXCHANGE or exchange not in EXCHANGES):
            return f"exchange must be {' or '.join(EXCHANGES)}, and only for {TOKEN_EXCHANGE}"
        before = known.get(grant_type)
        if each.get("id") is not None and (before is None or each["id"] != before.id):
            return f"id must be left out, or the id that the {grant_type} grant has"
        parsed[grant_type] = Grant(
            before.id if before else ids.new("grt"),
            grant_type,
            list(dict.fromkeys(names)),
            status=each.get("status", "active"),
            exchange=None if exchange == EXCHANGES[0] else exchange,  # said or not, the default is the same grant
            **lifetimes,
        )
    return list(parsed.values())


def _whole(client: Client, base_url: str) -> tuple[str, str] | None:
    """What must hold for the client as a whole, whatever member was sent: the member at fault and why."""
    method = client.token_endpoint_auth_method
    for grant_type in client.grant_types:
        rules = GRANT_TYPES[grant_type]
        if rules.confidential and client.public:
            return "grant_types", f"{grant_type} needs a client that authenticates; token_endpoint_auth_method is none"
        if rules.redirects and not client.redirect_uris:
            return "redirect_uris", f"needed for {grant_type} (the default); for a machine send client_credentials"
    if client.jwks is not None and client.jwks_uri is not None:
        return "jwks_uri", "send jwks or jwks_uri, not both"
    if method == "private_key_jwt" and client.jwks is None and client.jwks_uri is None:
        return "jwks", "needed for private_key_jwt, or jwks_uri"
    for uri in client.redirect_uris:
        problem = redirect_uris.problem(uri, native=client.application_type == "native")
        if problem:
            return "redirect_uris", f"{uri[:200]!r} {problem}"
    if not client.require_pkce and client.public:
        return "require_pkce", "may be false only for a client that authenticates"
    if not client.require_nonce and client.require_pkce:
        return "require_nonce", "may be false only beside require_pkce: false; with PKCE no nonce is needed"
    if any(_is_not_its_to_serve(client, each, base_url) for each in client.serves):
        return "serves", "must not be the service's own base URL, nor the default resource of another account"
    unobtainable = [
        name for name in scopes.split(client.scope) if not any(name in each.scopes for each in client.grants)
    ]
    if unobtainable:
        return "scope", f"{unobtainable[0]} cannot be obtained by {', '.join(client.grant_types)}"
    return None


def unfit(client: Client) -> tuple[str, str] | None:
    """What keeps a client from being used under the FAPI 2.0 security profile: the member at fault and why."""
    if client.token_endpoint_auth_method != "private_key_jwt":  # noqa: S105 (a name, not a secret)
        return "token_endpoint_auth_method", "must be private_key_jwt: the account's profile is fapi2"
    signs_in = "authorization_code" in client.grant_types
    if signs_in and client.id_token_signed_response_alg == "RS256":  # noqa: S105 (a name, not a secret)
        return "id_token_signed_response_alg", "must be ES256 or EdDSA in fapi2"
    if any(key.get("alg") == "RS256" for key in (client.jwks or {}).get("keys", [])):
        return "jwks", "must have no key for RS256 in fapi2: use PS256, ES256 or EdDSA"
    if not client.require_pkce:
        return "require_pkce", "must be true in fapi2"
    if any(uri.startswith("http:") for uri in client.redirect_uris):
        return "redirect_uris", "must be https in fapi2"
    return None


def _is_not_its_to_serve(client: Client, resource: str, base_url: str) -> bool:
    is_default = resource.startswith(scopes.default_resource(""))
    own = resource == scopes.default_resource(client.account)
    return resources.is_base_url(resource, base_url) or (is_default and not own)


# --- single members


def _bad(member: str, detail: str) -> Refusal:
    code = "invalid_redirect_uri" if member == "redirect_uris" else "invalid_client_metadata"
    return Refusal(code, f"{member[:64]}: {detail}", f"/{member[:64]}")


def _overlap(value: Any) -> timedelta | None:
    if value is None or value is True or value is False:
        return OVERLAP
    if isinstance(value, dict) and set(value) == {"overlap"} and _whole_number(value["overlap"]):
        return timedelta(seconds=value["overlap"]) if 0 <= value["overlap"] <= MAX_OVERLAP.total_seconds() else None
    return None


def _whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


Check = Callable[[Any], str]


def _text(limit: int) -> Check:
    return lambda value: (
        "" if isinstance(value, str) and 0 < len(value) <= limit else f"must be a text of 1 to {limit} characters"
    )


def _texts(count: int, limit: int) -> Check:
    def check(value: Any) -> str:
        right = isinstance(value, list) and len(value) <= count
        right = right and all(isinstance(each, str) and 0 < len(each) <= limit for each in value)
        return "" if right else f"must be a list of at most {count} texts of 1 to {limit} characters"

    return check


def _among(choices: Iterable[Any]) -> Check:
    listed = list(choices)
    right = f"must be one of {', '.join(str(each) for each in listed)}"
    # The type too: in Python 0 equals False, and what is stored as 0 does not read back as a truth value.
    return lambda value: "" if value in listed and type(value) is type(listed[0]) else right


def _several(choices: Iterable[str], *, least: int = 1) -> Check:
    listed = list(choices)

    def check(value: Any) -> str:
        right = isinstance(value, list) and len(value) >= least and all(each in listed for each in value)
        right = right and len(set(value)) == len(value)
        return "" if right else f"must be a list, each once, of {', '.join(listed)}"

    return check


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "must be true or false"


def _seconds(low: int, high: int) -> Check:
    return lambda value: (
        ""
        if _whole_number(value) and low <= value <= high
        else f"must be a whole number of seconds from {low} to {high}"
    )


WEB_PAGE = rf"https?://{HOST}(?:[/?#][!-~]*)?"


def _web_page(value: Any) -> str:
    right = isinstance(value, str) and len(value) <= 2048 and re.fullmatch(WEB_PAGE, value)
    return "" if right else "must be a web address"


def _scope(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 16_000:
        return "must be scope names separated by single spaces"
    names = value.split(" ") if value else []
    if not all(scopes.SCOPE_TOKEN.fullmatch(name) for name in names) or len(set(names)) != len(names):
        return "must be scope names separated by single spaces, each once"
    return ""


def _resources(value: Any) -> str:
    """The account's own default resource may be served too: whose it is, the whole client tells."""
    problem = _texts(50, 512)(value)
    named = [] if problem else [each for each in value if not each.startswith(scopes.default_resource(""))]
    return problem or next((found for each in named if (found := resources.problem(each, ""))), "")


def _pairs(value: Any) -> str:
    right = isinstance(value, dict) and len(value) <= 50
    right = right and all(
        0 < len(key) <= 64 and isinstance(text, str) and len(text) <= 512 for key, text in value.items()
    )
    return "" if right else "must be at most 50 pairs of text, names up to 64 and values up to 512 characters"


def _redirect_uris(value: Any) -> str:
    problem = _texts(50, 2048)(value)
    return problem or ("" if len(set(value)) == len(value) else "must be all different")


# member → its check: an empty text, or what would be right. The names are those of RFC 7591 and ours.
MEMBERS: dict[str, Check] = {
    "client_name": _text(200),
    "redirect_uris": _redirect_uris,
    "grant_types": _several(GRANT_TYPES),
    "response_types": _several(["code"], least=0),
    "scope": _scope,
    "token_endpoint_auth_method": _among([*SECRET_METHODS, "private_key_jwt", "none"]),
    "jwks": jwks_problem,
    "jwks_uri": _text(2048),
    "contacts": _texts(20, 320),
    "client_uri": _web_page,
    "logo_uri": _web_page,
    "tos_uri": _web_page,
    "policy_uri": _web_page,
    "software_id": _text(200),
    "software_version": _text(200),
    "application_type": _among(["web", "native"]),
    "id_token_signed_response_alg": _among(["RS256", "ES256", "EdDSA"]),
    "id_token_claims": _flag,
    "dpop_bound_access_tokens": _flag,
    "access_token_lifetime": _seconds(60, 86_400),
    "refresh_token_lifetime": _seconds(3600, 365 * 86_400),
    "serves": _resources,
    "claims": scopes.fixed_claims_problem,
    "require_pkce": _flag,
    "require_nonce": _flag,
    "status": _among(["active", "disabled"]),
    "metadata": _pairs,
}
_NO_CLIENT = Client("", "", clock.EPOCH, clock.EPOCH)
_DEFAULTS: dict[str, Any] = {member: getattr(_NO_CLIENT, member) for member in MEMBERS}
