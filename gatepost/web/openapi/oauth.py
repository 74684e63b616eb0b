"""Schemas of the authorization area: clients, scopes and tokens. The members come from the tables of the resources."""

from gatepost.core.json_schema import Json, array, matching, one_of, ref, request_object, response_object, string
from gatepost.core.jwk_sets import jwks_schema
from gatepost.core.members import request_schemas, response_schemas
from gatepost.oauth import client_grants, clients, redirect_uris, scopes
from gatepost.oauth.client_grants import GRANT_TYPES, JWT_BEARER, TOKEN_EXCHANGE
from gatepost.oauth.clients import SECRET_METHODS
from gatepost.oauth.grants import GRANTS
from gatepost.oauth.grants.token_exchange import ACCESS_TOKEN, JWT
from gatepost.oauth.pkce import VERIFIER
from gatepost.oauth.refresh_tokens import PREFIX
from gatepost.web.tokens import ASSERTION_TYPE


def _registration() -> Json:
    """A body without `client_id`: RFC 7591, where unknown members are ignored. The conditions are client_rules."""
    members = request_schemas(clients.MEMBERS, "create")
    any_redirect = {"pattern": f"{redirect_uris.WEB_PATTERN}|{redirect_uris.NATIVE_PATTERN}"}
    members["redirect_uris"] |= {"items": members["redirect_uris"]["items"] | any_redirect}
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
    web = {"properties": {"redirect_uris": {"items": {"pattern": redirect_uris.WEB_PATTERN}}}}
    none, given, published = {"type": "null"}, {"type": "object"}, {"type": "string"}
    return {
        "type": "object",
        "description": "A new client. Unknown members are ignored.",
        "properties": members,
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


def _redefinition() -> Json:
    shared = request_schemas(clients.MEMBERS, "create")
    members = {name: {"$ref": f"#/components/schemas/ClientRegistration/properties/{name}"} for name in shared}
    described = "Changes the members sent of a client of the account. With client_id alone, reads the client."
    members |= {"client_id": request_schemas(clients.MEMBERS, "change")["client_id"]}
    return request_object(members, "client_id", description=described)


def _client() -> Json:
    grant = response_object(response_schemas(client_grants.GRANT_MEMBERS), "exchange")
    grant["properties"]["exchange"] = client_grants.GRANT_MEMBERS.response["exchange"].schema
    members = response_schemas(clients.MEMBERS, omits_none=True) | {"grants": array(grant)}
    return response_object(members, *clients.SOMETIMES_RENDERED)


_JWT = string(1, 16_384)
_TOKEN_TYPE = one_of([ACCESS_TOKEN, JWT])
# grant type → its own parameters, and the parameters that it requires.
FORMS: dict[str, tuple[dict[str, Json], tuple[str, ...]]] = {
    "client_credentials": ({}, ("scope",)),
    "authorization_code": (
        {
            "code": string(1, 512),
            "redirect_uri": string(1, 2048, description="The same as in the authorization request."),
            "code_verifier": matching(VERIFIER.pattern, expects="a code verifier", description="RFC 7636."),
        },
        ("code", "redirect_uri"),
    ),
    "refresh_token": ({"refresh_token": string(1, 512)}, ("refresh_token",)),
    JWT_BEARER: (
        {"assertion": _JWT | {"description": "An assertion of an issuer that the account trusts."}},
        ("assertion", "scope"),
    ),
    TOKEN_EXCHANGE: (
        {
            "subject_token": _JWT,
            "subject_token_type": _TOKEN_TYPE,
            "requested_token_type": _TOKEN_TYPE,
            "audience": {"type": "string", "description": "A resource, like `resource`."},
        },
        ("subject_token", "subject_token_type", "scope"),
    ),
}


def _token_request() -> Json:
    """One form for each grant type."""
    scope = clients.MEMBERS.request["scope"].schema | {"minLength": 1}
    shared = {
        "scope": scope | {"description": "All scopes requested. There is no default."},
        "resource": {"type": "string", "description": "Required if the scopes are for several resources (RFC 8707)."},
        "client_id": {"type": "string"},
        "client_secret": {"type": "string", "description": "For client_secret_post."},
        "client_assertion": {"type": "string", "description": "For private_key_jwt (RFC 7523)."},
        "client_assertion_type": {"type": "string"},
    }
    consented = {"scope": scope | {"description": "Some of the scopes consented to. Default: all of them."}}
    forms = []
    for grant_type in GRANTS:
        own, required = FORMS[grant_type]
        members = {"grant_type": {"type": "string", "const": grant_type}} | shared | own
        if "scope" not in required:
            members |= consented
        forms.append({"title": grant_type, "required": ["grant_type", *required], "properties": members})
    return {
        "type": "object",
        "description": "Only resource and audience may be repeated. Unknown parameters are ignored.",
        "anyOf": forms,
        "if": {"required": ["client_assertion"]},
        "then": {
            "required": ["client_assertion_type"],
            "properties": {"client_assertion_type": {"enum": [ASSERTION_TYPE]}},
        },
        "example": {"grant_type": "client_credentials", "scope": "gatepost:clients"},
    }


def _token() -> Json:
    scope = {name: clients.MEMBERS.request["scope"].schema[name] for name in ("type", "pattern")}
    members = {
        "access_token": string(1, 16_384, description="A JWT as specified by RFC 9068."),
        "token_type": one_of(["Bearer", "DPoP"], description="DPoP if the token is bound to a key (RFC 9449)."),
        "expires_in": {"type": "integer", "minimum": 1},
        "scope": scope,
        "refresh_token": string(
            1, 512, pattern=f"^{PREFIX}", description="If offline_access was granted. It can be used once."
        ),
        "id_token": string(1, 65_536, description="If openid was granted: a JWT as specified by OpenID Connect Core."),
        "issued_token_type": _TOKEN_TYPE | {"description": "In the response to a token exchange (RFC 8693)."},
    }
    return response_object(members, "refresh_token", "id_token", "issued_token_type")


def schemas() -> dict[str, Json]:
    """The components of the area."""
    plain = {"type": "string", "pattern": r"^[ !#-\[\]-~]*$"}
    error = {"error": string(1, 64), "error_description": plain, "error_uri": string(1, 500)}
    return {
        "KeySet": jwks_schema(),
        "ClientDefinition": {"anyOf": [ref("ClientRegistration"), ref("ClientRedefinition")]},
        "ClientRegistration": _registration(),
        "ClientRedefinition": _redefinition(),
        "Client": _client(),
        "ScopeDefinition": request_object(request_schemas(scopes.MEMBERS), "name"),
        "Scope": response_object(response_schemas(scopes.MEMBERS)),
        "TokenRequest": _token_request(),
        "Token": _token(),
        "OAuthError": response_object(error, "error_uri"),
    }
