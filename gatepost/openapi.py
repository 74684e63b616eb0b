"""The OpenAPI 3.1 document of the six operations, built from the tables that the service itself runs on.

`python -m gatepost.openapi` prints it; `gatepost/openapi.json` is that output, and a test keeps the two equal.
"""

import json
import sys
from typing import Any, NamedTuple

from gatepost import clients, scopes
from gatepost.clients import ASSERTION_ALGORITHMS, GRANT_TYPES, HOST, SECRET_METHODS, WEB_PAGE
from gatepost.errors import ERRORS
from gatepost.grants import GRANTS
from gatepost.web import definitions
from gatepost.web.answers import VERSION
from gatepost.web.app import ROUTES
from gatepost.web.requests import FORM
from gatepost.web.tokens import ASSERTION_TYPE

Json = dict[str, Any]


class Operation(NamedTuple):
    """One of the six: what it is, what it takes, what it answers, and the codes of errors.ERRORS it refuses with."""

    summary: str
    codes: tuple[str, ...]
    scope: str = ""  # of the bearer token; without one, the client authenticates
    description: str = ""
    takes: tuple[str, str] | None = None  # media type and the name of a schema
    answers: tuple[tuple[int, str, str], ...] = ()  # status, the name of a schema, in words
    headers: tuple[str, ...] = ("Gatepost-Version",)


# --- the parts of client and scope, one line for each member of their tables


def _text(longest: int, **more: Any) -> Json:
    return {"type": "string", "minLength": 1, "maxLength": longest} | more


def _seconds(low: int, high: int, description: str) -> Json:
    return {"type": "integer", "minimum": low, "maximum": high, "description": description}


def _flag(description: str) -> Json:
    return {"type": "boolean", "description": description}


def _several(choices: list[str], description: str) -> Json:
    items = {"type": "string", "enum": choices}
    return {"type": "array", "minItems": 1, "uniqueItems": True, "items": items, "description": description}


_REST = r"(?:[/?][!-\"$-\[\]-~]*)?$"  # path and query of printable ASCII, no fragment, no backslash
_WEB_REDIRECT = rf"^https://{HOST}{_REST}|^http://(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{{1,5}})?{_REST}"
_NATIVE_REDIRECT = r"^[a-z][a-z0-9+-]*\.[a-z0-9+.-]*:/?(?:[!-\"$-.0-\[\]-~][!-\"$-\[\]-~]*)?$"
_SCOPE_LIST = rf"^(?:{scopes.SCOPE_TOKEN.pattern}(?: {scopes.SCOPE_TOKEN.pattern})*)?$"
_PAGE = _text(2048, pattern=f"^{WEB_PAGE}$", description="A page for people.")
_RESOURCE = _text(512, pattern=r"^[a-z][a-z0-9+.-]*:[!-\"$-~]+$", examples=["https://api.example.com"])
_ACTIVE = {"type": "string", "enum": ["active", "disabled"]}
_ACCESS_LIFETIME = _seconds(60, 86_400, "Of access tokens. The shortest of account, client, grant and scopes wins.")
_REFRESH_LIFETIME = _seconds(3600, 365 * 86_400, "Of refresh tokens that are not used.")
_INSTANT = {"type": "string", "format": "date-time"}


def _id(prefix: str) -> Json:
    return {"type": "string", "pattern": f"^{prefix}_[0-9a-v]{{26}}$"}


CLIENT: dict[str, Json] = {
    "client_name": _text(200, description="For people."),
    "redirect_uris": {
        "type": "array",
        "maxItems": 50,
        "uniqueItems": True,
        "items": _text(2048, pattern=f"{_WEB_REDIRECT}|{_NATIVE_REDIRECT}"),
        "description": "https, http on loopback, or for native clients a private-use scheme with a dot.",
        "examples": [["https://app.example.com/callback"]],
    },
    "grant_types": _several(list(GRANT_TYPES), "The default is authorization_code."),
    "response_types": _several(["code"], "Nothing but code."),
    "scope": {
        "type": "string",
        "maxLength": 16_000,
        "pattern": _SCOPE_LIST,
        "description": "Names of scopes of the account, separated by single spaces, each once.",
        "examples": ["gatepost:clients"],
    },
    "token_endpoint_auth_method": {
        "type": "string",
        "enum": [*SECRET_METHODS, "private_key_jwt", "none"],
        "description": "The only way in which this client authenticates. The default is client_secret_basic.",
    },
    "jwks": {"$ref": "#/components/schemas/KeySet"},
    "contacts": {"type": "array", "maxItems": 20, "items": _text(320)},
    "client_uri": _PAGE,
    "logo_uri": _PAGE,
    "tos_uri": _PAGE,
    "policy_uri": _PAGE,
    "software_id": _text(200),
    "software_version": _text(200),
    "application_type": {"type": "string", "enum": ["web", "native"], "description": "The default is web."},
    "id_token_signed_response_alg": {"type": "string", "enum": ["RS256", "ES256", "EdDSA"]},
    "dpop_bound_access_tokens": _flag("Not in this release.") | {"enum": [False]},
    "access_token_lifetime": _ACCESS_LIFETIME,
    "refresh_token_lifetime": _REFRESH_LIFETIME,
    "serves": {
        "type": "array",
        "maxItems": 50,
        "items": _RESOURCE,
        "description": "Resources of the account that this client is.",
    },
    "claims": {
        "type": "object",
        "maxProperties": 20,
        "propertyNames": _text(128, **{"not": {"enum": sorted(scopes.PROTOCOL_CLAIMS)}}),
        "description": "Fixed claims of its machine tokens, at most 4 KiB.",
    },
    "require_pkce": _flag("The default is true; false only for a client that authenticates."),
    "status": _ACTIVE | {"description": "A disabled client gets no tokens, and its tokens stop working here."},
    "metadata": {
        "type": "object",
        "maxProperties": 50,
        "propertyNames": _text(64),
        "additionalProperties": {"type": "string", "maxLength": 512},
        "description": "Pairs of text that mean something to you.",
    },
}
GRANT: dict[str, Json] = {
    "id": _id("grt"),
    "grant_type": {"type": "string", "enum": list(GRANT_TYPES)},
    "scopes": {"type": "array", "items": {"type": "string", "pattern": f"^{scopes.SCOPE_TOKEN.pattern}$"}},
    "access_token_lifetime": _ACCESS_LIFETIME,
    "refresh_token_lifetime": _REFRESH_LIFETIME,
    "status": _ACTIVE,
}
SCOPE: dict[str, Json] = {
    "name": {
        "type": "string",
        "pattern": f"^{scopes.SCOPE_TOKEN.pattern}$",
        "not": {"anyOf": [{"pattern": f"^{scopes.RESERVED}"}, {"enum": list(scopes.BY_CODE)}]},
        "description": "What clients ask for. It identifies the scope within the account.",
        "examples": ["invoices:read"],
    },
    "description": {"type": "string", "maxLength": 500, "description": "For people who are asked to consent."},
    "resource": _RESOURCE | {"description": "The audience of its tokens; the default is the account's own."},
    "claims": {
        "type": "array",
        "maxItems": 50,
        "items": _text(128, **{"not": {"enum": sorted(scopes.PROTOCOL_CLAIMS)}}),
        "description": "Names released in ID token and userinfo.",
    },
    "max_lifetime": _seconds(60, 86_400, "No access token with this scope lives longer."),
    "status": {"type": "string", "enum": ["active", "retired"], "description": "A retired scope is not granted."},
    "redefine": _flag("Needed to replace the definition of a name that exists."),
}
ROTATE_SECRET: Json = {
    "description": "Make another secret. The one before lives on for the overlap, 24 hours unless said.",
    "anyOf": [
        {"type": "boolean"},
        {
            "type": "object",
            "properties": {"overlap": _seconds(0, int(clients.MAX_OVERLAP.total_seconds()), "In seconds.")},
            "required": ["overlap"],
            "additionalProperties": False,
        },
    ],
}


def _or_null(schema: Json) -> Json:
    """In a definition null means the default, or removes a member."""
    if "type" not in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema | {"type": [schema["type"], "null"]} | ({"enum": [*schema["enum"], None]} if "enum" in schema else {})


# --- schemas of bodies

_PRIVATE = ("d", "k", "p", "q", "dp", "dq", "qi", "oth")


def _key(description: str, required: list[str], **members: Json) -> Json:
    return {"description": description, "required": required, "properties": members}


def _key_set() -> Json:
    part = {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"}
    kinds = [
        _key("P-256", ["crv", "x", "y"], kty={"const": "EC"}, crv={"const": "P-256"}, x=part, y=part),
        _key("Ed25519", ["crv", "x"], kty={"const": "OKP"}, crv={"const": "Ed25519"}, x=part),
        _key("RSA, 2048 bits or more", ["n", "e"], kty={"const": "RSA"}, n=part | {"minLength": 342}, e=part),
    ]
    key: Json = {
        "type": "object",
        "required": ["kty"],
        "properties": {"kid": {"type": "string"}, "alg": {"enum": [None, *ASSERTION_ALGORITHMS]}},
        "anyOf": kinds,
        "not": {"anyOf": [{"required": [member]} for member in _PRIVATE]},
    }
    keys = {"type": "array", "minItems": 1, "maxItems": 20, "items": key}
    described = "A JWK set of public keys; several keys need a kid each."
    return {"type": "object", "required": ["keys"], "properties": {"keys": keys}, "description": described}


def _when(member: str, value: str, then: Json) -> Json:
    return {"if": {"required": [member], "properties": {member: {"const": value}}}, "then": {"properties": then}}


def _registration() -> Json:
    """A body without `client_id`: RFC 7591, where unknown members are ignored."""
    grants = {"type": "array", "minItems": 1, "maxItems": len(GRANT_TYPES), "items": _sent_grant()}
    no_redirect = [name for name, rules in GRANT_TYPES.items() if not rules.redirects]
    by_no_redirect = {"type": "array", "items": {"properties": {"grant_type": {"enum": no_redirect}}}}
    public = {"enum": [name for name, rules in GRANT_TYPES.items() if not rules.confidential]}
    no_secret = {"rotate_secret": {"enum": [False, None]}}
    for_public = {
        "grant_types": {"items": public},
        "grants": {"items": {"properties": {"grant_type": public}}},
        "require_pkce": {"enum": [True, None]},
    }
    web = {"if": {"required": ["application_type"], "properties": {"application_type": {"const": "native"}}}}
    web |= {"else": {"properties": {"redirect_uris": {"items": {"pattern": _WEB_REDIRECT}}}}}
    with_key = _when("token_endpoint_auth_method", "private_key_jwt", no_secret | {"jwks": {"type": "object"}})
    with_key["then"]["required"] = ["jwks"]
    return {
        "type": "object",
        "description": "A new client. Unknown members are ignored.",
        "properties": {name: _or_null(schema) for name, schema in CLIENT.items()}
        | {
            "grants": _or_null(grants),
            "rotate_secret": _or_null(ROTATE_SECRET),
            "jwks_uri": {"type": "null", "description": "Not in this release; send jwks."},
        },
        "not": {"required": ["client_id"]},
        "anyOf": [
            {"required": ["redirect_uris"], "properties": {"redirect_uris": {"type": "array", "minItems": 1}}},
            {
                "required": ["grant_types"],
                "properties": {"grant_types": {"type": "array", "items": {"enum": no_redirect}}},
            },
            {"required": ["grants"], "properties": {"grants": by_no_redirect, "grant_types": {"type": "null"}}},
        ],
        "allOf": [web, with_key, _when("token_endpoint_auth_method", "none", no_secret | for_public)],
    }


def _sent_grant() -> Json:
    optional = ("id", "access_token_lifetime", "refresh_token_lifetime")
    members = {name: _or_null(schema) if name in optional else schema for name, schema in GRANT.items()}
    required = ["grant_type", "scopes"]
    return {"type": "object", "required": required, "properties": members, "additionalProperties": False}


def _redefinition() -> Json:
    shared = [*CLIENT, "grants", "rotate_secret"]
    members = {name: {"$ref": f"#/components/schemas/ClientRegistration/properties/{name}"} for name in shared}
    return {
        "type": "object",
        "description": "Change the members sent of a client of the account; with client_id alone, read it.",
        "required": ["client_id"],
        "properties": members | {"client_id": _id("cli")},
        "additionalProperties": False,
    }


def _client() -> Json:
    secret = {
        "id": _id("sec"),
        "created_at": _INSTANT,
        "expires_at": _or_null(_INSTANT),
        "last_used_at": _or_null(_INSTANT),
    }
    grant = {name: _or_null(schema) if "lifetime" in name else schema for name, schema in GRANT.items()}
    return {
        "type": "object",
        "required": ["client_id", "client_id_issued_at", "account", "grant_types", "redirect_uris", "grants", "status"],
        "properties": CLIENT
        | {
            "client_id": _id("cli"),
            "client_id_issued_at": {"type": "integer"},
            "client_secret": _text(100, description="Shown in the answer that made it, and never again."),
            "client_secret_expires_at": {"type": "integer", "enum": [0]},
            "account": _id("acc"),
            "grants": {"type": "array", "items": {"type": "object", "required": list(grant), "properties": grant}},
            "secrets": {"type": "array", "items": {"type": "object", "required": list(secret), "properties": secret}},
        },
    }


def _scope() -> Json:
    shown = {name: schema for name, schema in SCOPE.items() if name != "redefine"}
    shown |= {"resource": _text(512), "max_lifetime": _or_null(SCOPE["max_lifetime"])}
    shown |= {"account": _id("acc"), "created_at": _INSTANT, "updated_at": _INSTANT}
    return {"type": "object", "required": list(shown), "properties": shown}


def _token_request() -> Json:
    return {
        "type": "object",
        "description": "None may be sent twice; unknown ones are ignored.",
        "required": ["grant_type", "scope"],
        "properties": {
            "grant_type": {"type": "string", "enum": list(GRANTS)},
            "scope": CLIENT["scope"] | {"minLength": 1, "description": "Every scope wanted: there is no default."},
            "resource": {"type": "string", "description": "Which, when the scopes are of several (RFC 8707)."},
            "client_id": {"type": "string"},
            "client_secret": {"type": "string", "description": "For client_secret_post."},
            "client_assertion": {"type": "string", "description": "For private_key_jwt (RFC 7523)."},
            "client_assertion_type": {"type": "string"},
        },
        "if": {"required": ["client_assertion"]},
        "then": {
            "required": ["client_assertion_type"],
            "properties": {"client_assertion_type": {"enum": [ASSERTION_TYPE]}},
        },
        "example": {"grant_type": "client_credentials", "scope": "gatepost:clients"},
    }


def _schemas() -> dict[str, Json]:
    nullable = {name: schema if name in ("name", "redefine") else _or_null(schema) for name, schema in SCOPE.items()}
    plain = {"type": "string", "pattern": r"^[ !#-\[\]-~]*$"}
    pointer = {"type": "string", "pattern": "^/"}
    fault = {
        "type": "object",
        "required": ["pointer", "detail"],
        "properties": {"pointer": pointer, "detail": _text(4096)},
    }
    problem = {"type": _text(200), "title": _text(200), "detail": _text(4096), "code": _text(64)}
    token = {
        "access_token": _text(16_384, description="A JWT as RFC 9068 has it."),
        "token_type": {"type": "string", "enum": ["Bearer"]},
        "expires_in": {"type": "integer", "minimum": 1},
        "scope": {"type": "string", "pattern": _SCOPE_LIST},
    }
    return {
        "KeySet": _key_set(),
        "ClientDefinition": {"anyOf": [_ref("ClientRegistration"), _ref("ClientRedefinition")]},
        "ClientRegistration": _registration(),
        "ClientRedefinition": _redefinition(),
        "Client": _client(),
        "ScopeDefinition": {
            "type": "object", "required": ["name"], "properties": nullable, "additionalProperties": False,
        },
        "Scope": _scope(),
        "TokenRequest": _token_request(),
        "Token": {"type": "object", "required": list(token), "properties": token},
        "OAuthError": {
            "type": "object",
            "required": ["error", "error_description", "error_uri"],
            "properties": {"error": _text(64), "error_description": plain, "error_uri": _text(200)},
        },
        "Problem": {
            "type": "object",
            "required": [*problem, "status"],
            "properties": problem | {"status": {"type": "integer"}, "errors": {"type": "array", "items": fault}},
        },
    }  # fmt: skip


# --- operations

_ANY = ("invalid_request", "unsupported_version", "temporarily_unavailable")
_BEARER = ("invalid_token", "insufficient_scope")
_BODY = ("request_too_large", "unsupported_media_type")
_DEFINING = (*_ANY, *_BEARER, *_BODY, "limit_reached", "idempotency_key_reused")
_TO_COME = (*_ANY, *_BEARER, "not_built")
_KEYED = ("Gatepost-Version", "Idempotency-Key")
_NOT_BUILT = "Part of the interface, but not of this release: it answers 501."

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", "/oauth/clients"): Operation(
        "Define a client",
        (*_DEFINING, "invalid_client_metadata", "invalid_redirect_uri", "not_found"),
        definitions.CLIENTS.scope,
        "Without client_id it creates; with the id of a client of the account it changes what is sent.",
        ("application/json", "ClientDefinition"),
        ((201, "Client", "Created."), (200, "Client", "The client as it now is.")),
        _KEYED,
    ),
    ("POST", "/oauth/scopes"): Operation(
        "Define a scope",
        (*_DEFINING, "conflict"),
        definitions.SCOPES.scope,
        "The name identifies it. Another definition of a name that exists needs redefine.",
        ("application/json", "ScopeDefinition"),
        ((201, "Scope", "Created."), (200, "Scope", "The scope as it now is.")),
        _KEYED,
    ),
    ("POST", "/oauth/tokens"): Operation(
        "Obtain a token",
        (
            *_ANY, "invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope", "invalid_target",
            "request_too_large", "too_many_failures",
        ),
        "",
        "The client authenticates as it is registered: HTTP Basic, client_secret in the body, or an assertion.",
        (FORM, "TokenRequest"),
        ((200, "Token", "Issued."),),
    ),
    ("POST", "/webhooks/endpoints"): Operation(
        "Define a webhook endpoint", (*_TO_COME, "request_too_large"), definitions.ENDPOINTS.scope, _NOT_BUILT
    ),
    ("POST", "/webhooks/subscriptions"): Operation(
        "Define a webhook subscription", (*_TO_COME, "request_too_large"), definitions.SUBSCRIPTIONS.scope, _NOT_BUILT
    ),
    ("GET", "/webhooks/deliveries"): Operation(
        "Read webhook deliveries", _TO_COME, definitions.DELIVERIES.scope, _NOT_BUILT
    ),
}  # fmt: skip

_HEADERS: dict[str, Json] = {
    "X-Request-Id": {"required": True, "schema": _id("req"), "description": "Finds this request in log and ledger."},
    "Gatepost-Version": {"required": True, "schema": {"type": "string", "enum": [VERSION]}},
    "Gatepost-Event": {"schema": _id("evt"), "description": "The ledger entry that records this answer."},
    "WWW-Authenticate": {"required": True, "schema": {"type": "string"}},
    "Retry-After": {"required": True, "schema": {"type": "integer", "minimum": 1}},
}
_PARAMETERS: dict[str, Json] = {
    "Gatepost-Version": {"schema": {"type": "string", "enum": [VERSION]}},
    "Idempotency-Key": {
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
        "description": "The same key and body within 24 hours get the same answer, a secret only in the first.",
    },
}


def document() -> Json:
    paths: dict[str, Json] = {}
    for path, route in ROUTES.items():
        if route.surface == "six":
            paths[path] = {method.lower(): _operation(path, OPERATIONS[(method, path)]) for method in route.methods}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Gatepost",
            "version": VERSION,
            "summary": "Issues and audits tokens, delivers and explains webhooks, from one ledger.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:8080", "description": "The default; the base URL of your service."}],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "headers": _HEADERS,
            "parameters": {name: {"name": name, "in": "header"} | about for name, about in _PARAMETERS.items()},
            "securitySchemes": {
                "client": {"type": "http", "scheme": "basic", "description": "client_id and client_secret."},
                "token": {
                    "type": "oauth2",
                    "description": "An access token of Gatepost itself, sent as Authorization: Bearer.",
                    "flows": {"clientCredentials": {"tokenUrl": "/oauth/tokens", "scopes": scopes.OPERATIONS}},
                },
            },
        },
    }


def _operation(path: str, operation: Operation) -> Json:
    found: Json = {
        "operationId": operation.summary.lower().replace(" a ", " ").replace(" ", "_"),
        "summary": operation.summary,
        "tags": [path.split("/")[1]],
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in operation.headers],
        "security": [{"token": [operation.scope]}] if operation.scope else [{"client": []}, {}],
        "responses": {str(status): _answer(*rest) for status, *rest in operation.answers} | _refusals(path, operation),
    }
    if operation.description:
        found["description"] = operation.description
    if operation.takes:
        media_type, schema = operation.takes
        found["requestBody"] = {"required": True, "content": {media_type: {"schema": _ref(schema)}}}
    return found


def _answer(schema: str, description: str) -> Json:
    return {
        "description": description,
        "headers": _shown_headers("Gatepost-Event"),
        "content": {"application/json": {"schema": _ref(schema)}},
    }


def _refusals(path: str, operation: Operation) -> dict[str, Json]:
    """One answer for each status, with the codes that come with it; in the form of the area the path belongs to."""
    oauth = path.startswith("/oauth/")
    media_type, schema, member = (
        ("application/json", "OAuthError", "error") if oauth else ("application/problem+json", "Problem", "code")
    )
    found: dict[str, Json] = {}
    for status in sorted({ERRORS[code].status for code in operation.codes}):
        codes = [code for code in operation.codes if ERRORS[code].status == status]
        more = {401: ["WWW-Authenticate"], 403: ["WWW-Authenticate"], 429: ["Retry-After"], 503: ["Retry-After"]}
        found[str(status)] = {
            "description": "\n".join(f"- `{code}`: {ERRORS[code].meaning}" for code in codes),
            "headers": _shown_headers("Gatepost-Event", *more.get(status, [])),
            "content": {media_type: {"schema": {"allOf": [_ref(schema), {"properties": {member: {"enum": codes}}}]}}},
        }
    return found


def _shown_headers(*more: str) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in ("X-Request-Id", "Gatepost-Version", *more)}


def _ref(schema: str) -> Json:
    return {"$ref": f"#/components/schemas/{schema}"}


def text() -> str:
    return json.dumps(document(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
