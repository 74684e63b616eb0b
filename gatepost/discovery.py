"""Discovery documents, computed from the code's own tables and never kept by hand. RFC 8414, RFC 9728."""

from typing import Any

from gatepost.clients import ASSERTION_ALGORITHMS, SECRET_METHODS
from gatepost.grants import GRANTS
from gatepost.scopes import BUILT_IN, OPERATIONS

AUTHENTICATION = (*SECRET_METHODS, "private_key_jwt")


def authorization_server(base_url: str) -> dict[str, Any]:
    """RFC 8414, section 2. `response_types_supported` is required there; it is empty while nothing authorizes."""
    by_code = "authorization_code" in GRANTS
    return {
        "issuer": base_url,
        "token_endpoint": f"{base_url}/oauth/tokens",
        "jwks_uri": f"{base_url}/oauth/jwks",
        "registration_endpoint": f"{base_url}/oauth/clients",
        "scopes_supported": list(BUILT_IN if by_code else OPERATIONS),
        "response_types_supported": ["code"] if by_code else [],
        "grant_types_supported": list(GRANTS),
        "token_endpoint_auth_methods_supported": [*AUTHENTICATION, *(["none"] if by_code else [])],
        "token_endpoint_auth_signing_alg_values_supported": list(ASSERTION_ALGORITHMS),
        "protected_resources": [base_url],
    }


def protected_resource(base_url: str) -> dict[str, Any]:
    """RFC 9728, section 2: the operations themselves are a resource that takes our tokens."""
    return {
        "resource": base_url,
        "authorization_servers": [base_url],
        "jwks_uri": f"{base_url}/oauth/jwks",
        "scopes_supported": list(OPERATIONS),
        "bearer_methods_supported": ["header"],
        "resource_name": "Gatepost operations",
    }
