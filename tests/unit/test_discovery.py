"""Discovery documents say what the code's own tables say, and what RFC 8414 and RFC 9728 require."""

from typing import Any

import pytest

from gatepost import discovery
from gatepost.clients import ASSERTION_ALGORITHMS, MEMBERS
from gatepost.grants import GRANTS
from gatepost.scopes import BUILT_IN, OPERATIONS
from gatepost.web.app import ROUTES

BASE_URL = "https://gatepost.example"
SERVER = discovery.authorization_server(BASE_URL)
RESOURCE = discovery.protected_resource(BASE_URL)


class TestAuthorizationServer:
    def test_the_document_of_this_release(self) -> None:
        """Client credentials only: nothing authorizes, so nothing that needs a person is offered."""
        assert discovery.authorization_server(BASE_URL) == {
            "issuer": BASE_URL,
            "token_endpoint": f"{BASE_URL}/oauth/tokens",
            "jwks_uri": f"{BASE_URL}/oauth/jwks",
            "registration_endpoint": f"{BASE_URL}/oauth/clients",
            "scopes_supported": [
                "gatepost:clients", "gatepost:scopes", "gatepost:endpoints", "gatepost:subscriptions",
                "gatepost:deliveries", "gatepost:events",
            ],
            "response_types_supported": [],
            "grant_types_supported": ["client_credentials"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "private_key_jwt"],
            "token_endpoint_auth_signing_alg_values_supported": ["ES256", "RS256", "PS256", "EdDSA", "Ed25519"],
            "protected_resources": [BASE_URL],
        }  # fmt: skip

    def test_it_follows_the_tables(self) -> None:
        assert SERVER["grant_types_supported"] == list(GRANTS)
        assert SERVER["token_endpoint_auth_signing_alg_values_supported"] == list(ASSERTION_ALGORITHMS)
        assert set(SERVER["scopes_supported"]) <= set(BUILT_IN)
        for method in [*SERVER["token_endpoint_auth_methods_supported"], "none"]:
            assert MEMBERS["token_endpoint_auth_method"](method) == ""
        assert MEMBERS["token_endpoint_auth_method"]("client_secret_jwt") != ""

    def test_what_a_grant_by_code_adds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(GRANTS, "authorization_code", GRANTS["client_credentials"])
        found = discovery.authorization_server(BASE_URL)
        assert found["response_types_supported"] == ["code"]
        assert found["scopes_supported"] == list(BUILT_IN)
        assert found["token_endpoint_auth_methods_supported"][-1] == "none"
        assert found["grant_types_supported"] == ["client_credentials", "authorization_code"]


class TestProtectedResource:
    def test_the_document(self) -> None:
        assert discovery.protected_resource(BASE_URL) == {
            "resource": BASE_URL,
            "authorization_servers": [BASE_URL],
            "jwks_uri": f"{BASE_URL}/oauth/jwks",
            "scopes_supported": list(OPERATIONS),
            "bearer_methods_supported": ["header"],
            "resource_name": "Gatepost operations",
        }

    def test_both_name_each_other(self) -> None:
        assert RESOURCE["authorization_servers"] == [SERVER["issuer"]]
        assert SERVER["protected_resources"] == [RESOURCE["resource"]]


@pytest.mark.parametrize("document", [SERVER, RESOURCE])
def test_every_url_is_served(document: dict[str, Any]) -> None:
    named = [value for name, value in document.items() if name.endswith(("_endpoint", "_uri"))]
    assert named
    for url in named:
        assert url.startswith(f"{BASE_URL}/")
        assert url.removeprefix(BASE_URL) in ROUTES
