"""Authlib, unchanged, completes its flows; its validators find nothing wrong with what we publish and issue."""

import json
import time
from typing import Any

import pytest
import requests
from authlib.common.security import generate_token
from authlib.integrations.base_client import BaseApp, OAuth2Mixin, OAuthError, OpenIDMixin
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc6750 import InsufficientScopeError, InvalidTokenError
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from authlib.oauth2.rfc9068 import JWTBearerTokenValidator
from authlib.oidc.discovery import OpenIDProviderMetadata
from joserfc.errors import InvalidClaimError
from joserfc.jwk import ECKey, Key, KeySet

from tests.interop.person import altered, sign_in
from tests.login import CALLBACK, Platform, decode_jwt
from tests.rsa_keys import rsa_key
from tests.service import Client, Service
from tests.waiting import LIMIT

SCOPE = "openid offline_access things:read"


@pytest.fixture
def platform(sqlite_gatepost: Service, account_name: str) -> Platform:
    return Platform(sqlite_gatepost, account_name)


class App(OAuth2Mixin, OpenIDMixin, BaseApp):
    """What Authlib's integrations of web frameworks are made of, without a framework."""

    client_cls = OAuth2Session


def app(platform: Platform, client: Client, **more: Any) -> Any:  # not all of Authlib has types
    """The client is configured only with the URL of the metadata."""
    return App(
        None, "gatepost", client_id=client.id, client_secret=client.secret or None,
        server_metadata_url=f"{platform.url}/.well-known/openid-configuration",
        client_kwargs={"scope": SCOPE, "code_challenge_method": "S256"} | more,
    )  # fmt: skip


def signed_in(platform: Platform, one: Any, **changes: str | None) -> tuple[dict[str, Any], str]:
    """The tokens, and the nonce that was sent."""
    begun = one.create_authorization_url(CALLBACK)
    back = altered(sign_in(platform, begun["url"]), **changes)
    made = one.fetch_access_token(
        CALLBACK, authorization_response=back["url"], state=begun["state"], code_verifier=begun["code_verifier"]
    )
    return made, begun["nonce"]


def session(platform: Platform, client: Client, **more: Any) -> Any:
    metadata = requests.get(f"{platform.url}/.well-known/oauth-authorization-server", timeout=LIMIT).json()
    return OAuth2Session(client.id, client.secret or None, **(metadata | more))


METHODS = ["client_secret_basic", "client_secret_post", "none"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("alg", ["RS256", "ES256", "EdDSA"])
def test_sign_in_of_a_person(platform: Platform, method: str, alg: str) -> None:
    client = platform.define(token_endpoint_auth_method=method, id_token_signed_response_alg=alg)
    one = app(platform, client, token_endpoint_auth_method=method)
    made, nonce = signed_in(platform, one)
    assert made["scope"] == SCOPE
    assert decode_jwt(made["id_token"])[0]["alg"] == alg
    person = one.parse_id_token(made, nonce)
    assert person["sub"] == f"{platform.account}.ada"
    assert person["at_hash"]
    assert one.userinfo(token=made)["sub"] == person["sub"]
    with pytest.raises(InvalidClaimError):
        one.parse_id_token(made, "another nonce")
    with pytest.raises(InvalidClaimError):
        one.parse_id_token({**made, "access_token": "another"}, nonce)


@pytest.mark.parametrize("method", METHODS)
def test_refresh_introspection_and_revocation(platform: Platform, method: str) -> None:
    client = platform.define(token_endpoint_auth_method=method)
    made, _ = signed_in(platform, app(platform, client, token_endpoint_auth_method=method))
    methods = {"token_endpoint_auth_method": method, "revocation_endpoint_auth_method": method}
    with session(platform, client, token=made, **methods) as one:
        again = dict(one.refresh_token())
        assert again["access_token"] != made["access_token"]
        assert again["refresh_token"] != made["refresh_token"]
        if method != "none":
            assert introspected(one, again["access_token"])["active"] is True
        assert one.revoke_token(one.metadata["revocation_endpoint"], again["refresh_token"]).status_code == 200
        if method != "none":
            assert introspected(one, again["access_token"]) == {"active": False}
        with pytest.raises(OAuthError, match="invalid_grant"):
            one.refresh_token()


def introspected(one: Any, token: str) -> dict[str, Any]:
    answer = one.introspect_token(one.metadata["introspection_endpoint"], token)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_an_expired_token_is_refreshed_by_itself(platform: Platform) -> None:
    made, _ = signed_in(platform, app(platform, platform.client))
    old, result = dict(made) | {"expires_at": time.time() - 60}, []
    with session(
        platform, platform.client, token=old, scope=SCOPE, update_token=lambda new, **_: result.append(new)
    ) as one:
        assert one.get(f"{platform.url}/oauth/userinfo").status_code == 200
        assert one.token["access_token"] != made["access_token"]
    assert [each["refresh_token"] for each in result] == [one.token["refresh_token"]]


KEYS: dict[str, Key] = {"RS256": rsa_key(), "ES256": ECKey.generate_key("P-256")}


@pytest.mark.parametrize("alg", KEYS)
def test_a_key_in_place_of_a_secret(platform: Platform, alg: str) -> None:
    jwks = {"keys": [KEYS[alg].as_dict(private=False)]}
    client = platform.define(
        token_endpoint_auth_method="private_key_jwt", jwks=jwks, scope="things:read",
        grant_types=["client_credentials"], redirect_uris=[],
    )  # fmt: skip
    methods = {"token_endpoint_auth_method": "private_key_jwt", "revocation_endpoint_auth_method": "private_key_jwt"}
    with session(platform, client, **methods) as one:
        one.client_secret = KEYS[alg]
        one.register_client_auth_method(PrivateKeyJWT(one.metadata["token_endpoint"], alg=alg))
        made = dict(one.fetch_token(scope="things:read"))
        assert introspected(one, made["access_token"])["sub"] == client.id
        assert one.revoke_token(one.metadata["revocation_endpoint"], made["access_token"]).status_code == 200
        assert introspected(one, made["access_token"]) == {"active": False}


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_a_machine_gets_a_token(platform: Platform, method: str) -> None:
    client = platform.define(
        token_endpoint_auth_method=method, scope="things:read", grant_types=["client_credentials"], redirect_uris=[]
    )
    with session(platform, client, scope="things:read", token_endpoint_auth_method=method) as one:
        made = one.fetch_token(grant_type="client_credentials")
    assert made["scope"] == "things:read"
    assert made["token_type"] == "Bearer"


class Guard(JWTBearerTokenValidator):
    """An API's check of access tokens, RFC 9068 section 4, as Authlib has it."""

    def get_jwks(self) -> Any:
        metadata = requests.get(f"{self.issuer}/.well-known/oauth-authorization-server", timeout=LIMIT).json()
        return KeySet.import_key_set(requests.get(metadata["jwks_uri"], timeout=LIMIT).json())


def test_an_api_that_it_guards_takes_our_token(platform: Platform) -> None:
    made, _ = signed_in(platform, app(platform, platform.client))
    guard: Any = Guard(platform.url, platform.api)
    claims = guard.authenticate_token(made["access_token"])
    guard.validate_token(claims, ["things:read"], None)
    assert claims["sub"] == f"{platform.account}.ada"
    with pytest.raises(InsufficientScopeError):
        guard.validate_token(claims, ["things:write"], None)
    with pytest.raises(InvalidTokenError):
        guard.validate_token(guard.authenticate_token(made["id_token"]), ["things:read"], None)


def test_a_wrong_code_is_its_own_error(platform: Platform) -> None:
    with pytest.raises(OAuthError) as refused:
        signed_in(platform, app(platform, platform.client), code="not-a-code")
    assert refused.value.error == "invalid_grant"
    assert "code" in refused.value.description


def test_a_used_refresh_token_is_its_own_error(sqlite_gatepost: Service, account_name: str) -> None:
    platform = Platform(sqlite_gatepost, account_name, "refresh_grace=0")
    made, _ = signed_in(platform, app(platform, platform.client))
    with session(platform, platform.client, token=made) as one:
        one.refresh_token()
        with pytest.raises(OAuthError) as refused:
            one.refresh_token(refresh_token=made["refresh_token"])
    assert refused.value.error == "invalid_grant"


def test_a_wrong_secret_is_its_own_error(platform: Platform) -> None:
    stranger = Client(platform.client.id, generate_token())
    with session(platform, stranger, scope="things:read") as one, pytest.raises(OAuthError) as refused:
        one.fetch_token(grant_type="client_credentials")
    assert refused.value.error == "invalid_client"


@pytest.mark.parametrize(
    ("path", "metadata"),
    [
        ("/.well-known/oauth-authorization-server", AuthorizationServerMetadata),
        ("/.well-known/openid-configuration", OpenIDProviderMetadata),
    ],
    ids=["RFC 8414", "OpenID Connect Discovery"],
)
def test_its_checks_of_metadata_find_nothing(sqlite_gatepost: Service, path: str, metadata: Any) -> None:
    """They ask for https, which an issuer on loopback has not: so it is read as if it had."""
    answer = requests.get(f"{sqlite_gatepost.url}{path}", timeout=LIMIT)
    result = answer.text.replace(sqlite_gatepost.url, "https://auth.example")
    metadata(json.loads(result)).validate()
