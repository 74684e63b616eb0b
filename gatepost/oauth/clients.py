"""Clients: their metadata (RFC 7591), their secrets and their grants. The model and its members, no I/O.

`client_rules` has the rules between members and defines a client from a request.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from gatepost.accounts import MAX_CONCURRENT_TOKEN_REQUESTS, MAX_TOKENS_PER_MINUTE
from gatepost.core import clock, ids
from gatepost.core import json_schema as schema
from gatepost.core.json_schema import EXPECTS, HOST
from gatepost.core.jwk_sets import KEYS, jwks_problem
from gatepost.core.members import METADATA, Member, table
from gatepost.core.secret_rotation import rotate_secret_schema, rotated
from gatepost.egress import address_guard
from gatepost.ledger import operations
from gatepost.oauth import client_grants, resources, scopes
from gatepost.oauth.client_grants import GRANT_TYPES, Grant

SECRET_METHODS = ("client_secret_basic", "client_secret_post")
MAX_OVERLAP = timedelta(days=30)


class StoredSecret(msgspec.Struct, frozen=True):
    """A client secret as it is stored: an HMAC under the server's key, never the secret itself."""

    id: str
    hash: bytes
    created_at: datetime
    expires_at: datetime | None = None

    def is_active(self, at: datetime) -> bool:
        return self.expires_at is None or at < self.expires_at


class Client(msgspec.Struct, frozen=True, omit_defaults=True):
    """A client. The fields after `explicit_grants` have the names and defaults of the members in requests."""

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
    max_tokens_per_minute: int | None = None
    max_concurrent_token_requests: int | None = None
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
        """The `gatepost:` scopes that the client can obtain."""
        return set(operations.OPERATIONS).intersection(scopes.split(self.scope))

    def grant(self, grant_type: str) -> Grant | None:
        """The active grant of this type."""
        for grant in self.grants:
            if grant.grant_type == grant_type and grant.status == "active":
                return grant
        return None


def _page(member: str, description: str) -> Member:
    page = schema.string(
        1,
        2048,
        expects="an http or https URL of at most 2048 characters",
        pattern=rf"^https?://{HOST}(?:[/?#][!-~]*)?$",
    )
    return Member(member, page, description)


def _scope_names_differ(scope: str) -> str:
    names = scope.split(" ")
    return "" if len(set(names)) == len(names) else "must not contain a scope name twice"


def _served_resources(serves: list[str]) -> str:
    """Default resources are left out: whether the client may serve one depends on its account."""
    named = [resource for resource in serves if not resource.startswith(scopes.default_resource(""))]
    return next((wrong for resource in named if (wrong := resources.problem(resource, ""))), "")


_SECRET = {
    "id": schema.identifier("sec"),
    "created_at": schema.DATE_TIME,
    "expires_at": schema.nullable(schema.DATE_TIME),
    "last_used_at": schema.nullable(schema.DATE_TIME),
}
# The members of RFC 7591, section 2, and those of Gatepost.
MEMBERS = table(
    "a client",
    Client,
    Member(
        "client_id",
        schema.identifier("cli"),
        "Identifies the client to change or read. Leave it out to create a client.",
        null=False,
        occasion="change",
        is_reference=True,
    ),
    Member("client_name", schema.string(1, 200), "The name that people see."),
    Member(
        "redirect_uris",
        schema.array(
            schema.string(1, 2048),
            expects="a list of at most 50 different URIs",
            maxItems=50,
            uniqueItems=True,
            examples=[["https://app.example.com/callback"]],
        ),
        "https, http on loopback, or for native clients a private-use scheme with a dot. Required for "
        "`authorization_code`.",
        error="invalid_redirect_uri",
    ),
    Member(
        "grant_types",
        schema.array(
            schema.one_of(GRANT_TYPES), expects="a list of at least one grant type", minItems=1, uniqueItems=True
        ),
        "How the client obtains tokens. Send `client_credentials` for a machine.",
        default_text="`authorization_code`",
    ),
    Member(
        "response_types",
        schema.array(schema.one_of(["code"]), expects='["code"] or []', minItems=0, uniqueItems=True),
        "Always set to what the grant types need.",
        default_text="`code` for `authorization_code`, otherwise none",
    ),
    Member(
        "scope",
        schema.string(
            0,
            16_000,
            expects="scope names separated by single spaces, at most 16,000 characters in all",
            pattern=f"^(?:{scopes.SCOPE_TOKEN.pattern}(?: {scopes.SCOPE_TOKEN.pattern})*)?$",
            examples=["gatepost:clients"],
        ),
        "The scopes of the account that the client may obtain, each once.",
        rule=_scope_names_differ,
    ),
    Member(
        "token_endpoint_auth_method",
        schema.one_of([*SECRET_METHODS, "private_key_jwt", "none"]),
        "The only method by which this client may authenticate.",
    ),
    Member(
        "jwks",
        schema.ref("KeySet") | {EXPECTS: f"a JWK set of 1 to 20 public keys: {KEYS}"},
        "The client's public keys, for verifying: `use`, if it is there, is `sig`, and `key_ops` contains `verify`. "
        "`private_key_jwt` requires this or `jwks_uri`.",
        rule=jwks_problem,
    ),
    Member(
        "jwks_uri",
        address_guard.URL_SCHEMA | {"examples": ["https://app.example.com/jwks"]},
        "Where the client publishes its key set, instead of `jwks`. http is accepted only with `--dev`.",
    ),
    Member(
        "contacts",
        schema.array(schema.string(1, 320), expects="a list of at most 20 strings of 1 to 320 characters", maxItems=20),
        "Email addresses of people who are responsible for the client.",
    ),
    _page("client_uri", "A page about the client."),
    _page("logo_uri", "The client's logo."),
    _page("tos_uri", "The terms of service."),
    _page("policy_uri", "The privacy policy."),
    Member("software_id", schema.string(1, 200), "Identifies the client software."),
    Member("software_version", schema.string(1, 200), "The version of the client software."),
    Member(
        "application_type", schema.one_of(["web", "native"]), "A native client may register private-use redirect URIs."
    ),
    Member(
        "id_token_signed_response_alg",
        schema.one_of(["RS256", "ES256", "EdDSA"]),
        "The algorithm that ID tokens are signed with.",
        default_text="`RS256`; `ES256` if the account's profile is `fapi2`",
    ),
    Member(
        "id_token_claims",
        schema.boolean(),
        "Whether ID tokens contain all claims that the scopes release, or only those that the `claims` parameter "
        "requests.",
        default_text="`false`; `true` for clients created before this member existed",
    ),
    Member(
        "dpop_bound_access_tokens", schema.boolean(), "Whether the client gets only tokens bound to a key (RFC 9449)."
    ),
    Member(
        "access_token_lifetime",
        client_grants.ACCESS_TOKEN_LIFETIME,
        "Limits the lifetime of access tokens. The shortest limit of account, client, grant and scopes applies.",
        default_text="the account's",
    ),
    Member(
        "refresh_token_lifetime",
        client_grants.REFRESH_TOKEN_LIFETIME,
        "How long a refresh token may stay unused.",
        default_text="the account's",
    ),
    Member(
        "max_tokens_per_minute",
        schema.integer(1, MAX_TOKENS_PER_MINUTE),
        "How many tokens the client may obtain in a minute. Further requests are refused with 429 `quota_exceeded`.",
        default_text="no limit but the account's",
    ),
    Member(
        "max_concurrent_token_requests",
        schema.integer(1, MAX_CONCURRENT_TOKEN_REQUESTS),
        "How many token requests of the client may be in progress. Only for a client that authenticates.",
        default_text="no limit but the account's",
    ),
    Member(
        "serves",
        schema.array(scopes.RESOURCE, expects="a list of at most 50 resources", maxItems=50),
        "Resources that this client is, as scopes of the account name them: it may introspect and exchange tokens for "
        "them.",
        rule=_served_resources,
    ),
    Member(
        "claims",
        scopes.FIXED_CLAIMS,
        "Fixed claims in the client's tokens from `client_credentials`, at most 4 KiB as JSON.",
        rule=scopes.fixed_claims_size,
    ),
    Member(
        "require_pkce",
        schema.boolean(),
        "Whether authorization requests need PKCE. May be false only for a client that authenticates.",
    ),
    Member(
        "require_nonce",
        schema.boolean(),
        "Whether an authorization request without PKCE needs a `nonce`. May be false only if `require_pkce` is false.",
    ),
    Member(
        "status",
        schema.one_of(["active", "disabled"]),
        "A disabled client gets no tokens, and Gatepost no longer accepts its tokens.",
    ),
    METADATA,
    Member(
        "grants",
        client_grants.GRANTS,
        "Which scopes the client may obtain by which grant type.",
        default_text="built from `grant_types` and `scope`",
    ),
    Member(
        "rotate_secret",
        rotate_secret_schema(MAX_OVERLAP),
        "Creates another secret. The previous one stays valid for the overlap, 24 hours unless you set it.",
        direction="request",
    ),
    Member(
        "client_id_issued_at",
        {"type": "integer"},
        "When the client was created, in seconds since 1970.",
        direction="response",
    ),
    Member("account", schema.identifier("acc"), "The account that the client belongs to.", direction="response"),
    Member(
        "client_secret",
        schema.string(1, 100),
        "The secret, only in the response that created it.",
        direction="response",
    ),
    Member(
        "client_secret_expires_at",
        {"type": "integer", "enum": [0]},
        "0 if the client has a secret: it does not expire by itself.",
        direction="response",
    ),
    Member(
        "secrets",
        schema.array(schema.response_object(_SECRET)),
        "The valid secrets, with `id`, `created_at`, `expires_at` and `last_used_at`, never with the secret itself.",
        direction="response",
    ),
    error="invalid_client_metadata",
)
_ALWAYS_RENDERED = ("grant_types", "redirect_uris")
_STORED = [name for name in MEMBERS.request if name in MEMBERS.defaults and name != "grants"]
SOMETIMES_RENDERED = [
    *(name for name in _STORED if MEMBERS.defaults[name] in (None, [], {}) and name not in _ALWAYS_RENDERED),
    *("client_secret", "client_secret_expires_at", "secrets"),
]


def render(client: Client, last_used: Mapping[str, datetime]) -> dict[str, Any]:
    """The response of POST /oauth/clients: everything that is registered, never a secret."""
    rendered: dict[str, Any] = {
        "client_id": client.id,
        "client_id_issued_at": clock.seconds(client.created_at),
        "account": client.account,
    }
    for name in _STORED:
        value = getattr(client, name)
        if value not in (None, [], {}) or name in _ALWAYS_RENDERED:
            rendered[name] = value
    rendered["grants"] = [client_grants.render(grant) for grant in client.grants]
    if client.secrets:
        rendered["client_secret_expires_at"] = 0
        rendered["secrets"] = [
            {
                "id": secret.id,
                "created_at": clock.rfc3339(secret.created_at),
                "expires_at": clock.rfc3339(secret.expires_at) if secret.expires_at else None,
                "last_used_at": clock.rfc3339(last_used[secret.id]) if secret.id in last_used else None,
            }
            for secret in client.secrets
        ]
    return rendered


def with_secret(client: Client, digest: bytes, overlap: timedelta, at: datetime) -> Client:
    """The client with another secret. The previous one stays valid for the overlap; any older one ends now."""
    new = StoredSecret(ids.new("sec"), digest, at)
    return msgspec.structs.replace(client, secrets=rotated(client.secrets, new, overlap, at))
