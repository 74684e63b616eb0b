"""requests-oauthlib, unchanged, completes its flows."""

import time
from collections.abc import Iterable
from typing import Any

import pytest
import requests
from oauthlib.oauth2 import BackendApplicationClient, MismatchingStateError
from oauthlib.oauth2.rfc6749.errors import AccessDeniedError, InvalidClientError, InvalidGrantError, InvalidScopeError
from requests.auth import HTTPBasicAuth
from requests_oauthlib import OAuth2Session

from tests.interop.person import altered, sign_in
from tests.login import CALLBACK, Platform
from tests.service import Client, Service
from tests.waiting import LIMIT

SCOPE = ["openid", "offline_access", "things:read"]
METHODS = ["client_secret_basic", "client_secret_post", "none"]


@pytest.fixture(autouse=True)
def _http_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The issuer of a test is http on loopback."""
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")


@pytest.fixture
def platform(sqlite_gatepost: Service, account_name: str) -> Platform:
    return Platform(sqlite_gatepost, account_name)


@pytest.fixture
def found(sqlite_gatepost: Service) -> dict[str, str]:
    """What discovery says: the library leaves it to the application to ask."""
    answer = requests.get(f"{sqlite_gatepost.url}/.well-known/openid-configuration", timeout=LIMIT)
    metadata: dict[str, str] = answer.json()
    return metadata


def session(client: Client, scope: Iterable[str] = SCOPE, **more: Any) -> Any:  # its types leave out what is its own
    return OAuth2Session(client.id, redirect_uri=CALLBACK, scope=scope, pkce="S256", **more)


def signed_in(
    platform: Platform, found: dict[str, str], one: Any, said: Any = None, back: Any = None, **how: Any
) -> dict[str, Any]:
    """Through the whole of it. `said` changes what the person says, `back` what the browser brings back."""
    url, _ = one.authorization_url(found["authorization_endpoint"], nonce="a nonce")
    ended = altered(sign_in(platform, url, **(said or {})), **(back or {}))
    made: dict[str, Any] = one.fetch_token(found["token_endpoint"], authorization_response=ended["url"], **how)
    return made


def secret_of(client: Client, method: str) -> dict[str, Any]:
    """How `fetch_token` is told to authenticate: by a header unless the form is to have the client's id."""
    secret = {"client_secret": client.secret} if client.secret else {}
    return secret if method == "client_secret_basic" else secret | {"include_client_id": True}


@pytest.mark.parametrize("method", METHODS)
def test_sign_in_of_a_person(platform: Platform, found: dict[str, str], method: str) -> None:
    """The library raises a warning when the scope of the answer is not the one it asked for."""
    client = platform.define(token_endpoint_auth_method=method)
    with session(client) as one:
        made = signed_in(platform, found, one, **secret_of(client, method))
        assert made["token_type"] == "Bearer"
        assert made["id_token"]
        answer = one.get(found["userinfo_endpoint"])
        assert answer.json() == {"sub": f"{platform.account}.ada"}


@pytest.mark.parametrize("method", METHODS)
def test_an_expired_token_is_refreshed_by_itself(platform: Platform, found: dict[str, str], method: str) -> None:
    client = platform.define(token_endpoint_auth_method=method)
    reported: list[dict[str, Any]] = []
    with session(client, auto_refresh_url=found["token_endpoint"], token_updater=reported.append) as one:
        first = dict(signed_in(platform, found, one, **secret_of(client, method)))
        one.token = first | {"expires_at": time.time() - 60, "expires_in": -60}
        asked = {}
        if method == "client_secret_basic":
            asked = {"client_id": client.id, "client_secret": client.secret}
        else:
            secret = {"client_secret": client.secret} if client.secret else {}
            one.auto_refresh_kwargs = {"client_id": client.id} | secret
        assert one.get(found["userinfo_endpoint"], **asked).status_code == 200
        assert [each["access_token"] for each in reported] == [one.token["access_token"]]
    assert reported[0]["access_token"] != first["access_token"]
    assert reported[0]["refresh_token"] != first["refresh_token"]


def test_introspection_and_revocation(platform: Platform, found: dict[str, str]) -> None:
    client, auth = platform.client, HTTPBasicAuth(platform.client.id, platform.client.secret)
    with session(client) as one:
        made = dict(signed_in(platform, found, one, client_secret=client.secret))

        def active() -> bool:
            form = {"token": made["access_token"]}
            answer = one.post(found["introspection_endpoint"], data=form, auth=auth, withhold_token=True)
            return bool(answer.json()["active"])

        assert active()
        url, headers, body = one._client.prepare_token_revocation_request(
            found["revocation_endpoint"], made["refresh_token"], "refresh_token"
        )
        assert one.post(url, data=body, headers=headers, auth=auth, withhold_token=True).status_code == 200
        assert not active()


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_a_machine_gets_a_token(platform: Platform, found: dict[str, str], method: str) -> None:
    client = platform.define(
        token_endpoint_auth_method=method, scope="things:read", grant_types=["client_credentials"], redirect_uris=[]
    )
    with OAuth2Session(client=BackendApplicationClient(client.id, scope=["things:read"])) as one:
        made = one.fetch_token(found["token_endpoint"], **secret_of(client, method))
    assert made["scope"] == ["things:read"]
    assert made["token_type"] == "Bearer"


# --- refusals are the library's own errors


def test_a_wrong_code(platform: Platform, found: dict[str, str]) -> None:
    with session(platform.client) as one, pytest.raises(InvalidGrantError, match="code"):
        signed_in(platform, found, one, back={"code": "not-a-code"}, client_secret=platform.client.secret)


def test_a_used_refresh_token(sqlite_gatepost: Service, account_name: str, found: dict[str, str]) -> None:
    platform = Platform(sqlite_gatepost, account_name, "refresh_grace=0")
    auth = HTTPBasicAuth(platform.client.id, platform.client.secret)
    with session(platform.client) as one:
        first = dict(signed_in(platform, found, one, client_secret=platform.client.secret))
        one.refresh_token(found["token_endpoint"], auth=auth)
        with pytest.raises(InvalidGrantError, match="refresh_token"):
            one.refresh_token(found["token_endpoint"], first["refresh_token"], auth=auth)


def test_a_wrong_secret(platform: Platform, found: dict[str, str]) -> None:
    with session(platform.client) as one, pytest.raises(InvalidClientError):
        signed_in(platform, found, one, client_secret="not the secret")


def test_a_person_who_denies_the_request(platform: Platform, found: dict[str, str]) -> None:
    output = {"sub": None, "scope": None, "error": "access_denied", "error_description": "They said no"}
    with session(platform.client) as one, pytest.raises(AccessDeniedError, match="They said no"):
        signed_in(platform, found, one, output, client_secret=platform.client.secret)


def test_a_scope_that_is_not_granted(platform: Platform, found: dict[str, str]) -> None:
    with session(platform.client, ["openid", "nothing"]) as one, pytest.raises(InvalidScopeError):
        signed_in(platform, found, one, client_secret=platform.client.secret)


def test_a_response_with_another_state(platform: Platform, found: dict[str, str]) -> None:
    with session(platform.client) as one, pytest.raises(MismatchingStateError):
        signed_in(platform, found, one, back={"state": "of another"}, client_secret=platform.client.secret)
