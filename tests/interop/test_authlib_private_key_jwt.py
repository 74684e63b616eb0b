"""Authlib's `private_key_jwt`, as its own pages show it: no claim, header or setting is changed for us."""

from typing import Any

import pytest
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from joserfc.jwk import ECKey, Key, OKPKey

from tests.fapi2 import Fapi2Platform, key_set
from tests.login import CALLBACK, VERIFIER, Browser, Platform, decode_jwt, redirect_target
from tests.rsa_keys import rsa_key
from tests.service import Client, Service

RSA = rsa_key({"kid": "rsa"})
KEYS: dict[str, Key] = {
    "RS256": RSA,
    "PS256": rsa_key({"kid": "rsa, too"}, number=1),
    "ES256": ECKey.generate_key("P-256", {"kid": "ec"}),
    "EdDSA": OKPKey.generate_key("Ed25519", {"kid": "ed"}),
}
METHOD = "private_key_jwt"


@pytest.fixture(scope="module")
def platform(gatepost: Service) -> Platform:
    return Platform(gatepost, "authlib-key")


def machine(platform: Platform, *keys: Key) -> Client:
    return platform.define(
        token_endpoint_auth_method=METHOD, jwks=key_set(*keys), grant_types=["client_credentials"], redirect_uris=[],
        scope="things:read",
    )  # fmt: skip


def session(client: Client, key: Any, sign: PrivateKeyJWT, **options: Any) -> Any:
    """Each endpoint by the same method: Authlib's own names for that."""
    methods = dict.fromkeys(("token_endpoint_auth_method", "revocation_endpoint_auth_method"), METHOD)
    one = OAuth2Session(client.id, key, **methods, **options)
    one.register_client_auth_method(sign)
    return one


def test_as_its_own_page_shows_it(platform: Platform) -> None:
    """The key as PEM, the token endpoint as the audience, RS256, an assertion that lives for an hour."""
    url = f"{platform.url}/oauth/tokens"
    client = machine(platform, RSA)
    with session(client, RSA.as_pem(private=True), PrivateKeyJWT(url)) as one:
        for _ in range(2):
            made = one.fetch_token(url, scope="things:read")
            assert (made["scope"], made["token_type"]) == ("things:read", "Bearer")


@pytest.mark.parametrize("alg", KEYS)
def test_every_algorithm_at_every_endpoint(platform: Platform, alg: str) -> None:
    """Without an endpoint named, the audience is wherever it is sent."""
    client = machine(platform, KEYS[alg])
    with session(client, KEYS[alg], PrivateKeyJWT(alg=alg)) as one:
        token = one.fetch_token(f"{platform.url}/oauth/tokens", scope="things:read")["access_token"]
        body = one.introspect_token(f"{platform.url}/oauth/introspect", token).json()
        assert (body["active"], body["client_id"]) == (True, client.id)
        assert one.revoke_token(f"{platform.url}/oauth/revoke", token).status_code == 200
        assert one.introspect_token(f"{platform.url}/oauth/introspect", token).json() == {"active": False}


def test_a_person_signs_in(platform: Platform) -> None:
    client = platform.define(token_endpoint_auth_method=METHOD, jwks=key_set(RSA))
    url = f"{platform.url}/oauth/tokens"
    options = {"scope": "openid offline_access things:read", "redirect_uri": CALLBACK, "code_challenge_method": "S256"}
    with session(client, RSA, PrivateKeyJWT(url), **options) as one:
        start, state = one.create_authorization_url(f"{platform.url}/oauth/authorize", code_verifier=VERIFIER)
        browser = Browser()
        query = decode_jwt(redirect_target(browser.open(start))[1]["interaction"])[1]
        answer = platform.submit_handoff(browser, platform.handoff(query))
        assert redirect_target(answer)[1]["state"] == state
        made = dict(one.fetch_token(url, authorization_response=answer.headers["Location"], code_verifier=VERIFIER))
        assert made["refresh_token"]
        again = one.refresh_token(url, made["refresh_token"])
        assert again["access_token"] != made["access_token"]


def test_one_of_two_keys_is_named(platform: Platform) -> None:
    """OIDC Core 1.0, section 10.1: where there are several keys, the header says which."""
    url = f"{platform.url}/oauth/tokens"
    client = machine(platform, RSA, KEYS["PS256"])
    for key in (RSA, KEYS["PS256"]):
        with session(client, key, PrivateKeyJWT(url, headers={"kid": key.kid})) as one:
            assert one.fetch_token(url, scope="things:read")["scope"] == "things:read"


def test_another_key_is_refused(platform: Platform) -> None:
    url = f"{platform.url}/oauth/tokens"
    client = machine(platform, RSA)
    with (
        session(client, KEYS["PS256"], PrivateKeyJWT(url)) as one,
        pytest.raises(OAuthError, match="invalid_client"),
    ):
        one.fetch_token(url, scope="things:read")


def test_under_fapi2_the_audience_is_the_issuer(sqlite_gatepost: Service) -> None:
    """What its page shows is refused there; with the issuer it is only the proof of a key that is missing."""
    strict = Fapi2Platform(sqlite_gatepost, "authlib-fapi2")
    url = f"{strict.url}/oauth/tokens"
    for audience, error in ((url, "invalid_client"), (strict.url, "invalid_dpop_proof")):
        with (
            session(strict.first, strict.keys[strict.first.id], PrivateKeyJWT(audience, alg="ES256")) as one,
            pytest.raises(OAuthError, match=error),
        ):
            one.fetch_token(url, scope="gatepost:clients")
