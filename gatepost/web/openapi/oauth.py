"""Schemas of the authorization area: clients, scopes and tokens, one line for each member of their tables."""

from collections.abc import Iterable

from gatepost.core.jose import RSA_KEYS
from gatepost.core.jwk_sets import ASSERTION_ALGORITHMS
from gatepost.core.members import request_schemas, response_schemas
from gatepost.oauth import clients, scopes
from gatepost.oauth.clients import EXCHANGES, GRANT_TYPES, JWT_BEARER, SECRET_METHODS, TOKEN_EXCHANGE, WEB_PAGE
from gatepost.oauth.grants import GRANTS
from gatepost.oauth.grants.authorization_code import VERIFIER
from gatepost.oauth.grants.token_exchange import ACCESS_TOKEN, JWT
from gatepost.oauth.redirect_uris import HOST
from gatepost.oauth.refresh_tokens import PREFIX
from gatepost.web.openapi.parts import (
    INSTANT,
    METADATA,
    Json,
    among,
    flag,
    identifier,
    listed,
    or_null,
    ref,
    rotate_secret,
    sent,
    shown,
    text,
    url,
    whole,
)
from gatepost.web.tokens import ASSERTION_TYPE

_REST = r"(?:[/?][!-\"$-\[\]-~]*)?$"  # path and query of printable ASCII, no fragment, no backslash
_WEB_REDIRECT = rf"^https://{HOST}{_REST}|^http://(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{{1,5}})?{_REST}"
_NATIVE_REDIRECT = r"^[a-z][a-z0-9+-]*\.[a-z0-9+.-]*:/?(?:[!-\"$-.0-\[\]-~][!-\"$-\[\]-~]*)?$"
_SCOPE_LIST = rf"^(?:{scopes.SCOPE_TOKEN.pattern}(?: {scopes.SCOPE_TOKEN.pattern})*)?$"
_PAGE = text(2048, pattern=f"^{WEB_PAGE}$", description="A page for people.")
_RESOURCE = text(512, pattern=r"^[a-z][a-z0-9+.-]*:[!-\"$-~]+$", examples=["https://api.example.com"])
_CLAIM = text(128, **{"not": {"enum": sorted(scopes.PROTOCOL_CLAIMS)}})
_ACTIVE = among(["active", "disabled"])
_ACCESS_LIFETIME = whole(60, 86_400, "Of access tokens. The shortest of account, client, grant and scopes wins.")
_REFRESH_LIFETIME = whole(3600, 365 * 86_400, "Of refresh tokens that are not used.")


def _several(choices: Iterable[str], description: str, least: int = 1) -> Json:
    return listed(among(list(choices)), description, minItems=least, uniqueItems=True)


CLIENT: dict[str, Json] = {
    "client_name": text(200, description="For people."),
    "redirect_uris": {
        "type": "array",
        "maxItems": 50,
        "uniqueItems": True,
        "items": text(2048, pattern=f"{_WEB_REDIRECT}|{_NATIVE_REDIRECT}"),
        "description": "https, http on loopback, or for native clients a private-use scheme with a dot.",
        "examples": [["https://app.example.com/callback"]],
    },
    "grant_types": _several(GRANT_TYPES, "The default is authorization_code."),
    "response_types": _several(["code"], "Nothing but code, or nothing at all for a machine.", 0),
    "scope": {
        "type": "string",
        "maxLength": 16_000,
        "pattern": _SCOPE_LIST,
        "description": "Names of scopes of the account, separated by single spaces, each once.",
        "examples": ["gatepost:clients"],
    },
    "token_endpoint_auth_method": among(
        [*SECRET_METHODS, "private_key_jwt", "none"],
        "The only way in which this client authenticates. The default is client_secret_basic.",
    ),
    "jwks": ref("KeySet"),
    "jwks_uri": url("Where the client publishes its key set, in place of jwks.", "https://app.example.com/jwks"),
    "contacts": listed(text(320), maxItems=20),
    "client_uri": _PAGE,
    "logo_uri": _PAGE,
    "tos_uri": _PAGE,
    "policy_uri": _PAGE,
    "software_id": text(200),
    "software_version": text(200),
    "application_type": among(["web", "native"], "The default is web."),
    "id_token_signed_response_alg": among(["RS256", "ES256", "EdDSA"]),
    "id_token_claims": flag(
        "Its ID tokens hold the claims that its scopes release, not only those that the claims parameter asks for. "
        "The default is false; true for clients that were defined before the member existed."
    ),
    "dpop_bound_access_tokens": flag("Its tokens are bound to a key that it shows (RFC 9449). The default is false."),
    "access_token_lifetime": _ACCESS_LIFETIME,
    "refresh_token_lifetime": _REFRESH_LIFETIME,
    "serves": listed(_RESOURCE, "Resources of the account that this client is.", maxItems=50),
    "claims": {
        "type": "object",
        "maxProperties": 20,
        "propertyNames": _CLAIM,
        "description": "Fixed claims of its machine tokens, at most 4 KiB.",
    },
    "require_pkce": flag("The default is true; false only for a client that authenticates."),
    "require_nonce": flag(
        "Whether an authorization request without PKCE needs a nonce. The default is true; false only beside "
        "require_pkce: false."
    ),
    "status": _ACTIVE | {"description": "A disabled client gets no tokens, and its tokens stop working here."},
    "metadata": METADATA,
}
GRANT: dict[str, Json] = {
    "id": identifier("grt"),
    "grant_type": among(list(GRANT_TYPES)),
    "scopes": listed({"type": "string", "pattern": f"^{scopes.SCOPE_TOKEN.pattern}$"}),
    "access_token_lifetime": _ACCESS_LIFETIME,
    "refresh_token_lifetime": _REFRESH_LIFETIME,
    "status": _ACTIVE,
    "exchange": among(list(EXCHANGES), "Of a token exchange, and of no other. The default is delegation."),
}
_ROTATE_SECRET = rotate_secret(int(clients.MAX_OVERLAP.total_seconds()))


# --- schemas of bodies

_PRIVATE = ("d", "k", "p", "q", "dp", "dq", "qi", "oth")


def _key(description: str, required: list[str], **members: Json) -> Json:
    return {"description": description, "required": required, "properties": members}


def _key_set() -> Json:
    part = {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"}
    kinds = [
        _key("P-256", ["crv", "x", "y"], kty={"const": "EC"}, crv={"const": "P-256"}, x=part, y=part),
        _key("Ed25519", ["crv", "x"], kty={"const": "OKP"}, crv={"const": "Ed25519"}, x=part),
        _key(RSA_KEYS, ["n", "e"], kty={"const": "RSA"}, n=part | {"minLength": 342, "maxLength": 1366}, e=part),
    ]
    key: Json = {
        "type": "object",
        "required": ["kty"],
        "properties": {"kid": {"type": "string"}, "alg": {"enum": [None, *ASSERTION_ALGORITHMS]}},
        "anyOf": kinds,
        "not": {"anyOf": [{"required": [member]} for member in _PRIVATE]},
    }
    keys = listed(key, minItems=1, maxItems=20)
    return shown({"keys": keys}, description="A JWK set of public keys; several keys need a kid each.")


def _registration() -> Json:
    """A body without `client_id`: RFC 7591, where unknown members are ignored."""
    grants = listed(_sent_grant(), minItems=1, maxItems=len(GRANT_TYPES))
    no_redirect = [name for name, rules in GRANT_TYPES.items() if not rules.redirects]
    by_no_redirect = {"type": "array", "items": {"properties": {"grant_type": {"enum": no_redirect}}}}
    public = {"enum": [name for name, rules in GRANT_TYPES.items() if not rules.confidential]}
    no_secret: dict[str, Json] = {"rotate_secret": {"enum": [False, None]}}
    for_public: dict[str, Json] = {
        "grant_types": {"items": public},
        "grants": {"items": {"properties": {"grant_type": public}}},
        "require_pkce": {"enum": [True, None]},
    }
    without_pkce = {"required": ["require_pkce"], "properties": {"require_pkce": {"const": False}}}
    native = {"required": ["application_type"], "properties": {"application_type": {"const": "native"}}}
    web = {"properties": {"redirect_uris": {"items": {"pattern": _WEB_REDIRECT}}}}
    none, given, published = {"type": "null"}, {"type": "object"}, {"type": "string"}
    return {
        "type": "object",
        "description": "A new client. Unknown members are ignored.",
        "properties": {name: or_null(schema) for name, schema in CLIENT.items()}
        | {"grants": or_null(grants), "rotate_secret": or_null(_ROTATE_SECRET)},
        "not": {"required": ["client_id"]},
        "anyOf": [
            {"required": ["redirect_uris"], "properties": {"redirect_uris": {"type": "array", "minItems": 1}}},
            {
                "required": ["grant_types"],
                "properties": {"grant_types": {"type": "array", "items": {"enum": no_redirect}}},
            },
            {"required": ["grants"], "properties": {"grants": by_no_redirect, "grant_types": {"type": "null"}}},
        ],
        "allOf": [
            {"anyOf": [native, web]},
            {"anyOf": [without_pkce, {"properties": {"require_nonce": {"enum": [True, None]}}}]},
            {
                "anyOf": [
                    {"properties": {"token_endpoint_auth_method": {"enum": [*SECRET_METHODS, None]}}},
                    _by("private_key_jwt", "jwks", no_secret | {"jwks": given, "jwks_uri": none}),
                    _by("private_key_jwt", "jwks_uri", no_secret | {"jwks": none, "jwks_uri": published}),
                    _by("none", "token_endpoint_auth_method", no_secret | for_public),
                ]
            },
        ],
    }


def _by(method: str, needed: str, members: dict[str, Json]) -> Json:
    """A client that authenticates by this method, which is not the default."""
    required = list(dict.fromkeys(["token_endpoint_auth_method", needed]))
    return {"required": required, "properties": {"token_endpoint_auth_method": {"const": method}} | members}


def _sent_grant() -> Json:
    optional = ("id", "access_token_lifetime", "refresh_token_lifetime", "exchange")
    members = {name: or_null(schema) if name in optional else schema for name, schema in GRANT.items()}
    exchange: Json = {"if": {"properties": {"grant_type": {"const": TOKEN_EXCHANGE}}}}
    exchange["else"] = {"properties": {"exchange": {"type": "null"}}}
    return sent(members, "grant_type", "scopes") | exchange


def _redefinition() -> Json:
    shared = [*CLIENT, "grants", "rotate_secret"]
    members = {name: {"$ref": f"#/components/schemas/ClientRegistration/properties/{name}"} for name in shared}
    described = "Change the members sent of a client of the account; with client_id alone, read it."
    return sent(members | {"client_id": identifier("cli")}, "client_id", description=described)


def _client() -> Json:
    secret = {
        "id": identifier("sec"),
        "created_at": INSTANT,
        "expires_at": or_null(INSTANT),
        "last_used_at": or_null(INSTANT),
    }
    grant = {name: or_null(schema) if "lifetime" in name else schema for name, schema in GRANT.items()}
    return {
        "type": "object",
        "required": ["client_id", "client_id_issued_at", "account", "grant_types", "redirect_uris", "grants", "status"],
        "properties": CLIENT
        | {
            "client_id": identifier("cli"),
            "client_id_issued_at": {"type": "integer"},
            "client_secret": text(100, description="Shown in the answer that made it, and never again."),
            "client_secret_expires_at": {"type": "integer", "enum": [0]},
            "account": identifier("acc"),
            "grants": listed(shown(grant, "exchange")),
            "secrets": listed(shown(secret)),
        },
    }


_TOKEN = text(16_384)
# grant type → its own parameters, and those of them that must be there.
FORMS: dict[str, tuple[dict[str, Json], tuple[str, ...]]] = {
    "client_credentials": ({}, ("scope",)),
    "authorization_code": (
        {
            "code": text(512),
            "redirect_uri": text(2048, description="As in the authorization request."),
            "code_verifier": {"type": "string", "pattern": f"^{VERIFIER.pattern}$", "description": "RFC 7636."},
        },
        ("code", "redirect_uri"),
    ),
    "refresh_token": ({"refresh_token": text(512)}, ("refresh_token",)),
    JWT_BEARER: (
        {"assertion": _TOKEN | {"description": "Of an issuer that the account trusts."}},
        ("assertion", "scope"),
    ),
    TOKEN_EXCHANGE: (
        {
            "subject_token": _TOKEN,
            "subject_token_type": among([ACCESS_TOKEN, JWT]),
            "requested_token_type": among([ACCESS_TOKEN, JWT]),
            "audience": {"type": "string", "description": "A resource, as `resource` names it."},
        },
        ("subject_token", "subject_token_type", "scope"),
    ),
}


def _token_request() -> Json:
    """One form for each grant type; what they share is described once."""
    shared = {
        "scope": CLIENT["scope"] | {"minLength": 1, "description": "Every scope wanted: there is no default."},
        "resource": {"type": "string", "description": "Which, when the scopes are of several (RFC 8707)."},
        "client_id": {"type": "string"},
        "client_secret": {"type": "string", "description": "For client_secret_post."},
        "client_assertion": {"type": "string", "description": "For private_key_jwt (RFC 7523)."},
        "client_assertion_type": {"type": "string"},
    }
    agreed = {"scope": shared["scope"] | {"description": "Fewer than were agreed to; left out, all of them."}}
    forms = [
        {
            "title": grant_type,
            "required": ["grant_type", *FORMS[grant_type][1]],
            "properties": {"grant_type": {"type": "string", "const": grant_type}}
            | (shared if "scope" in FORMS[grant_type][1] else shared | agreed)
            | FORMS[grant_type][0],
        }
        for grant_type in GRANTS
    ]
    return {
        "type": "object",
        "description": "None may be sent twice but resource and audience; unknown ones are ignored.",
        "anyOf": forms,
        "if": {"required": ["client_assertion"]},
        "then": {
            "required": ["client_assertion_type"],
            "properties": {"client_assertion_type": {"enum": [ASSERTION_TYPE]}},
        },
        "example": {"grant_type": "client_credentials", "scope": "gatepost:clients"},
    }


def schemas() -> dict[str, Json]:
    plain = {"type": "string", "pattern": r"^[ !#-\[\]-~]*$"}
    token = {
        "access_token": text(16_384, description="A JWT as RFC 9068 has it."),
        "token_type": among(["Bearer", "DPoP"], "DPoP where it is bound to the key of the proof (RFC 9449)."),
        "expires_in": {"type": "integer", "minimum": 1},
        "scope": {"type": "string", "pattern": _SCOPE_LIST},
        "refresh_token": text(512, pattern=f"^{PREFIX}", description="Where offline_access was granted. Used once."),
        "id_token": text(65_536, description="Where openid was granted: a JWT as OpenID Connect Core has it."),
        "issued_token_type": among([ACCESS_TOKEN, JWT], "Of a token exchange (RFC 8693)."),
    }
    return {
        "KeySet": _key_set(),
        "ClientDefinition": {"anyOf": [ref("ClientRegistration"), ref("ClientRedefinition")]},
        "ClientRegistration": _registration(),
        "ClientRedefinition": _redefinition(),
        "Client": _client(),
        "ScopeDefinition": sent(request_schemas(scopes.MEMBERS), "name"),
        "Scope": shown(response_schemas(scopes.MEMBERS)),
        "TokenRequest": _token_request(),
        "Token": shown(token, "refresh_token", "id_token", "issued_token_type"),
        "OAuthError": shown({"error": text(64), "error_description": plain, "error_uri": text(500)}, "error_uri"),
    }
