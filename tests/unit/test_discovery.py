"""Discovery documents say what the code's own tables say, and what RFC 8414, RFC 9728 and OIDC Discovery require."""

from typing import Any

import pytest

from gatepost.core.jwk_sets import ASSERTION_ALGORITHMS
from gatepost.ledger.operations import OPERATIONS
from gatepost.oauth import discovery
from gatepost.oauth.authorize import request
from gatepost.oauth.client_grants import GRANT_TYPES
from gatepost.oauth.clients import MEMBERS, SECRET_METHODS
from gatepost.oauth.grants import GRANTS
from gatepost.oauth.scopes import BUILT_IN
from gatepost.oauth.signing_keys import ALGORITHMS
from gatepost.web.app import ROUTES

BASE_URL = "https://gatepost.example"
SERVER = discovery.authorization_server(BASE_URL)
SIX = discovery.authorization_server(BASE_URL, "six")
OPENID = discovery.openid_configuration(BASE_URL)
RESOURCE = discovery.protected_resource(BASE_URL)

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
METHODS = ["client_secret_basic", "client_secret_post", "private_key_jwt"]
SIGNATURES = ["ES256", "RS256", "PS256", "EdDSA", "Ed25519"]
OWN_SCOPES = [
    "gatepost:clients", "gatepost:scopes", "gatepost:endpoints", "gatepost:subscriptions", "gatepost:deliveries",
    "gatepost:events",
]  # fmt: skip


class TestAuthorizationServer:
    def test_the_document(self) -> None:
        assert discovery.authorization_server(BASE_URL) == {
            "issuer": BASE_URL,
            "authorization_endpoint": f"{BASE_URL}/oauth/authorize",
            "pushed_authorization_request_endpoint": f"{BASE_URL}/oauth/par",
            "token_endpoint": f"{BASE_URL}/oauth/tokens",
            "introspection_endpoint": f"{BASE_URL}/oauth/introspect",
            "revocation_endpoint": f"{BASE_URL}/oauth/revoke",
            "jwks_uri": f"{BASE_URL}/oauth/jwks",
            "registration_endpoint": f"{BASE_URL}/oauth/clients",
            "scopes_supported": ["openid", "offline_access", "profile", "email", "address", "phone", *OWN_SCOPES],
            "response_types_supported": ["code"],
            "response_modes_supported": ["query", "form_post"],
            "grant_types_supported": [
                "client_credentials", "authorization_code", "refresh_token", JWT_BEARER, TOKEN_EXCHANGE,
            ],
            "token_endpoint_auth_methods_supported": [*METHODS, "none"],
            "token_endpoint_auth_signing_alg_values_supported": SIGNATURES,
            "introspection_endpoint_auth_methods_supported": METHODS,
            "introspection_endpoint_auth_signing_alg_values_supported": SIGNATURES,
            "revocation_endpoint_auth_methods_supported": [*METHODS, "none"],
            "revocation_endpoint_auth_signing_alg_values_supported": SIGNATURES,
            "code_challenge_methods_supported": ["S256"],
            "dpop_signing_alg_values_supported": SIGNATURES,
            "authorization_response_iss_parameter_supported": True,
            "require_pushed_authorization_requests": False,
            "prompt_values_supported": ["none", "login", "consent", "select_account"],
            "request_parameter_supported": False,
            "request_uri_parameter_supported": False,
            "protected_resources": [BASE_URL],
        }  # fmt: skip

    def test_the_document_where_only_the_six_are_served(self) -> None:
        """Nothing authorizes, so nothing that needs a person is offered."""
        assert discovery.authorization_server(BASE_URL, "six") == {
            "issuer": BASE_URL,
            "token_endpoint": f"{BASE_URL}/oauth/tokens",
            "jwks_uri": f"{BASE_URL}/oauth/jwks",
            "registration_endpoint": f"{BASE_URL}/oauth/clients",
            "scopes_supported": OWN_SCOPES,
            "response_types_supported": [],
            "grant_types_supported": ["client_credentials", JWT_BEARER, TOKEN_EXCHANGE],
            "token_endpoint_auth_methods_supported": [*METHODS, "none"],
            "token_endpoint_auth_signing_alg_values_supported": SIGNATURES,
            "dpop_signing_alg_values_supported": SIGNATURES,
            "protected_resources": [BASE_URL],
        }

    def test_it_follows_the_tables(self) -> None:
        assert SERVER["grant_types_supported"] == list(GRANTS)
        assert set(SIX["grant_types_supported"]) == {name for name, rules in GRANT_TYPES.items() if not rules.consent}
        assert SERVER["scopes_supported"] == list(BUILT_IN)
        assert {"openid", "profile", "email", "address", "phone"} <= set(SERVER["scopes_supported"])
        assert SIX["scopes_supported"] == list(OPERATIONS)
        assert SERVER["prompt_values_supported"] == list(request.PROMPTS)
        assert SERVER["response_modes_supported"] == list(request.RESPONSE_MODES)
        for document in (SERVER, SIX, OPENID):
            assert document["token_endpoint_auth_signing_alg_values_supported"] == list(ASSERTION_ALGORITHMS)
            assert document["dpop_signing_alg_values_supported"] == list(ASSERTION_ALGORITHMS)
            assert [*SECRET_METHODS, "private_key_jwt"] == document["token_endpoint_auth_methods_supported"][:3]
        for method in SERVER["token_endpoint_auth_methods_supported"]:
            assert MEMBERS.problem("token_endpoint_auth_method", method) == ""
        for method in ("client_secret_jwt", "tls_client_auth"):
            assert MEMBERS.problem("token_endpoint_auth_method", method) != ""

    def test_who_introspects_authenticates(self) -> None:
        assert "none" not in SERVER["introspection_endpoint_auth_methods_supported"]


class TestOpenidConfiguration:
    def test_the_document(self) -> None:
        """All that the other one says, and what OpenID Connect adds."""
        assert {name: value for name, value in OPENID.items() if name in SERVER} == SERVER
        assert {name: value for name, value in OPENID.items() if name not in SERVER} == {
            "userinfo_endpoint": f"{BASE_URL}/oauth/userinfo",
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256", "ES256", "EdDSA"],
            "claims_supported": [
                "sub", "iss", "aud", "exp", "iat", "auth_time", "nonce", "acr", "amr", "at_hash", "name",
                "family_name", "given_name", "middle_name", "nickname", "preferred_username", "profile", "picture",
                "website", "gender", "birthdate", "zoneinfo", "locale", "updated_at", "email", "email_verified",
                "address", "phone_number", "phone_number_verified",
            ],
            "claim_types_supported": ["normal"],
            "claims_parameter_supported": True,
            "display_values_supported": ["page", "popup", "touch", "wap"],
            "require_request_uri_registration": False,
        }  # fmt: skip

    def test_what_openid_connect_requires_is_there(self) -> None:
        """OIDC Discovery 1.0, section 3."""
        required = {
            "issuer", "authorization_endpoint", "token_endpoint", "jwks_uri", "response_types_supported",
            "subject_types_supported", "id_token_signing_alg_values_supported",
        }  # fmt: skip
        assert required <= set(OPENID)
        assert "RS256" in OPENID["id_token_signing_alg_values_supported"]

    def test_it_follows_the_tables(self) -> None:
        assert set(OPENID["id_token_signing_alg_values_supported"]) == set(ALGORITHMS)
        for alg in OPENID["id_token_signing_alg_values_supported"]:
            assert MEMBERS.problem("id_token_signed_response_alg", alg) == ""
        assert OPENID["display_values_supported"] == list(request.DISPLAYS)


class TestProtectedResource:
    def test_the_document(self) -> None:
        assert discovery.protected_resource(BASE_URL) == {
            "resource": BASE_URL,
            "authorization_servers": [BASE_URL],
            "jwks_uri": f"{BASE_URL}/oauth/jwks",
            "scopes_supported": list(OPERATIONS),
            "bearer_methods_supported": ["header"],
            "dpop_signing_alg_values_supported": SIGNATURES,
            "resource_name": "Gatepost operations",
        }

    def test_both_name_each_other(self) -> None:
        for document in (SERVER, SIX, OPENID):
            assert RESOURCE["authorization_servers"] == [document["issuer"]]
            assert document["protected_resources"] == [RESOURCE["resource"]]


def named(document: dict[str, Any]) -> set[str]:
    """The paths of the URLs in it that are ours to serve."""
    urls = [value for name, value in document.items() if name.endswith(("_endpoint", "_uri"))]
    assert urls
    assert all(url.startswith(f"{BASE_URL}/") for url in urls)
    return {url.removeprefix(BASE_URL) for url in urls}


@pytest.mark.parametrize("document", [SERVER, OPENID, RESOURCE])
def test_every_url_is_served(document: dict[str, Any]) -> None:
    assert named(document) <= set(ROUTES)


@pytest.mark.parametrize("document", [SIX, RESOURCE])
def test_with_six_no_url_is_named_that_is_not_served_then(document: dict[str, Any]) -> None:
    assert named(document) <= {path for path, route in ROUTES.items() if route.kind != "standard"}


def test_every_endpoint_of_the_standards_is_found_by_discovery() -> None:
    documents = {path for path in ROUTES if path.startswith("/.well-known/")}
    standards = {path for path, route in ROUTES.items() if route.kind != "operation"} - documents
    assert standards <= named(OPENID)
