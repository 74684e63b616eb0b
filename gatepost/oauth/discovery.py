"""Discovery documents, generated from the tables of the code: RFC 8414, OIDC Discovery 1.0, RFC 9728."""

from typing import Any, Literal

from gatepost.core.jwk_sets import ASSERTION_ALGORITHMS
from gatepost.ledger.operations import OPERATIONS
from gatepost.oauth import client_grants
from gatepost.oauth.authorize.request import DISPLAYS, PROMPTS, RESPONSE_MODES
from gatepost.oauth.clients import SECRET_METHODS
from gatepost.oauth.scopes import BUILT_IN, STANDARD_CLAIMS
from gatepost.oauth.signing_keys import ALGORITHMS

_TOKEN_CLAIMS = ("sub", "iss", "aud", "exp", "iat", "auth_time", "nonce", "acr", "amr", "at_hash")
AUTHENTICATION = (*SECRET_METHODS, "private_key_jwt")


def authorization_server(base_url: str, protocol: Literal["full", "six"] = "full") -> dict[str, Any]:
    """RFC 8414, section 2. With the protocol `six`, the document names only the endpoints that it serves."""
    full = protocol == "full"
    document: dict[str, Any] = {
        "issuer": base_url,
        "token_endpoint": f"{base_url}/oauth/tokens",
        "jwks_uri": f"{base_url}/oauth/jwks",
        "registration_endpoint": f"{base_url}/oauth/clients",
        "scopes_supported": list(BUILT_IN if full else OPERATIONS),
        "response_types_supported": ["code"] if full else [],
        "grant_types_supported": client_grants.offered(protocol),
        **_authentication("token_endpoint", public=True),
        "dpop_signing_alg_values_supported": list(ASSERTION_ALGORITHMS),
        "protected_resources": [base_url],
    }
    return document | (_flows(base_url) if full else {})


def _flows(base_url: str) -> dict[str, Any]:
    """The endpoints of the protocol `full`, and where they differ from the defaults of the standards."""
    return {
        "authorization_endpoint": f"{base_url}/oauth/authorize",
        "pushed_authorization_request_endpoint": f"{base_url}/oauth/par",
        "introspection_endpoint": f"{base_url}/oauth/introspect",
        "revocation_endpoint": f"{base_url}/oauth/revoke",
        **_authentication("introspection_endpoint", public=False),
        **_authentication("revocation_endpoint", public=True),
        "response_modes_supported": list(RESPONSE_MODES),
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
        "require_pushed_authorization_requests": False,
        "prompt_values_supported": list(PROMPTS),
        "request_parameter_supported": False,
        "request_uri_parameter_supported": False,
    }


def _authentication(endpoint: str, *, public: bool) -> dict[str, Any]:
    return {
        f"{endpoint}_auth_methods_supported": [*AUTHENTICATION, *(["none"] if public else [])],
        f"{endpoint}_auth_signing_alg_values_supported": list(ASSERTION_ALGORITHMS),
    }


def openid_configuration(base_url: str) -> dict[str, Any]:
    """OIDC Discovery 1.0, section 3. An account's own scopes may release more claims than are listed here."""
    return authorization_server(base_url) | {
        "userinfo_endpoint": f"{base_url}/oauth/userinfo",
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": sorted(ALGORITHMS, key=lambda alg: alg != "RS256"),
        "claims_supported": [*_TOKEN_CLAIMS, *(name for names in STANDARD_CLAIMS.values() for name in names)],
        "claim_types_supported": ["normal"],
        "claims_parameter_supported": True,
        "display_values_supported": list(DISPLAYS),
        "require_request_uri_registration": False,
    }


def protected_resource(base_url: str) -> dict[str, Any]:
    """RFC 9728, section 2: the operations are a protected resource of the service itself."""
    return {
        "resource": base_url,
        "authorization_servers": [base_url],
        "jwks_uri": f"{base_url}/oauth/jwks",
        "scopes_supported": list(OPERATIONS),
        "bearer_methods_supported": ["header"],
        "dpop_signing_alg_values_supported": list(ASSERTION_ALGORITHMS),
        "resource_name": "Gatepost operations",
    }
