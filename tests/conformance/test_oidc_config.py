"""OpenID Connect, Config OP: a test for each module of that plan, by its name. The plan has one."""

import json
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from joserfc.jwk import KeySet

from gatepost.core.jose import PRIVATE_PARTS
from gatepost.oauth import discovery
from gatepost.oauth.scopes import SCOPE_TOKEN
from tests.login import Browser
from tests.service import Service, running
from tests.waiting import LIMIT

ISSUER = "https://gatepost.example"
REQUIRED = (
    "issuer", "authorization_endpoint", "token_endpoint", "userinfo_endpoint", "registration_endpoint", "jwks_uri",
    "scopes_supported", "response_types_supported", "grant_types_supported", "subject_types_supported",
    "id_token_signing_alg_values_supported", "claims_supported",
)  # fmt: skip
LISTS = ("_supported", "_resources")
SAID = {  # where what the standard assumes of a server that says nothing would be wrong
    "request_parameter_supported": False,
    "request_uri_parameter_supported": False,
    "require_request_uri_registration": False,
    "require_pushed_authorization_requests": False,
    "claims_parameter_supported": True,
    "authorization_response_iss_parameter_supported": True,
}


def document(issuer: str) -> dict[str, Any]:
    answer = requests.get(f"{issuer}/.well-known/openid-configuration", timeout=LIMIT)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    found: dict[str, Any] = answer.json()
    return found


def test_oidcc_discovery_endpoint_verification(sqlite_gatepost: Service) -> None:
    issuer = sqlite_gatepost.url
    result = document(issuer)
    assert set(REQUIRED) <= set(result)
    assert result["issuer"] == issuer
    assert result["response_types_supported"] == ["code"]
    assert result["subject_types_supported"] == ["public"]
    assert result["id_token_signing_alg_values_supported"][0] == "RS256"
    assert {"authorization_code", "refresh_token"} <= set(result["grant_types_supported"])
    assert "openid" in result["scopes_supported"]
    assert all(SCOPE_TOKEN.fullmatch(each) for each in result["scopes_supported"])
    assert {"sub", "iss", "auth_time", "acr"} <= set(result["claims_supported"])
    assert result["code_challenge_methods_supported"] == ["S256"]
    assert {name: result[name] for name in SAID} == SAID
    for name, value in result.items():
        if name.endswith(LISTS) and name not in SAID:
            assert isinstance(value, list), name
            assert value, name
            assert len(value) == len(set(value)), name
    check_keys(result["jwks_uri"])


def check_keys(url: str) -> None:
    """Public keys alone, each with an id of its own, that a verifier can use."""
    answer = requests.get(url, timeout=LIMIT)
    assert answer.headers["Content-Type"] == "application/jwk-set+json"
    keys = answer.json()["keys"]
    assert len({key["kid"] for key in keys}) == len(keys)
    assert {key["alg"] for key in keys} == {"RS256", "ES256", "EdDSA"}
    assert {key["use"] for key in keys} == {"sig"}
    assert not any(part in key for key in keys for part in PRIVATE_PARTS)
    assert len(KeySet.import_key_set(answer.json()).keys) == len(keys)


def test_every_address_is_https_where_the_issuer_is(tmp_path: Any) -> None:
    """A requirement of the module: a service with a public base URL responds on the loopback interface."""
    with running(tmp_path / "data", dev=False, base_url=ISSUER, only="web") as gatepost:
        result = document(f"http://127.0.0.1:{gatepost.environment['GATEPOST_PORT']}")
    assert result == json.loads(json.dumps(discovery.openid_configuration(ISSUER)))
    for name, value in result.items():
        if name.endswith(("_endpoint", "_uri")) or name == "issuer":
            assert value == ISSUER or value.startswith(f"{ISSUER}/"), name
            assert urlsplit(value).scheme == "https"


@pytest.mark.parametrize("name", [each for each in REQUIRED if each.endswith(("_endpoint", "_uri"))])
def test_every_address_leads_somewhere(sqlite_gatepost: Service, name: str) -> None:
    url = document(sqlite_gatepost.url)[name]
    assert url.startswith(f"{sqlite_gatepost.url}/")
    assert Browser().open(url).status_code != 404
