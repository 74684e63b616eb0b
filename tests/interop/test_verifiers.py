"""Other people's libraries verify our tokens against our key set, and refuse them when one byte changes."""

import json
import subprocess
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import jwt
import pytest
import requests
from joserfc import jwt as jose_jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from tests.interop import npm
from tests.service import Service
from tests.waiting import LIMIT

ALGORITHMS = ["ES256", "RS256", "EdDSA"]
AUDIENCE = "https://api.interop.example/{alg}"
Verify = Callable[[str, str, str], dict[str, Any] | None]


@pytest.fixture(scope="module", params=ALGORITHMS)
def issued(request: pytest.FixtureRequest, sqlite_gatepost: Service) -> tuple[str, str, str]:
    """The issuer, an audience and a token for it, signed with each algorithm in turn."""
    alg: str = request.param
    _, admin = sqlite_gatepost.account(f"interop-{alg.lower()}", f"signing_alg={alg}")
    token = sqlite_gatepost.token(admin, "gatepost:clients gatepost:scopes")
    audience = AUDIENCE.format(alg=alg)
    assert sqlite_gatepost.post("/oauth/scopes", token, {"name": "read", "resource": audience}).status_code == 201
    client = sqlite_gatepost.define_client(token, scope="read", claims={"team": "blue"})
    return sqlite_gatepost.url, audience, sqlite_gatepost.token(client, "read")


def with_pyjwt(issuer: str, audience: str, token: str) -> dict[str, Any] | None:
    try:
        key = jwt.PyJWKClient(f"{issuer}/oauth/jwks").get_signing_key_from_jwt(token)
        return jwt.decode(token, key, algorithms=ALGORITHMS, audience=audience, issuer=issuer)
    except jwt.PyJWTError:
        return None


def with_joserfc(issuer: str, audience: str, token: str) -> dict[str, Any] | None:
    """What Authlib verifies with since its 1.7."""
    keys = KeySet.import_key_set(requests.get(f"{issuer}/oauth/jwks", timeout=LIMIT).json())
    claims = jose_jwt.JWTClaimsRegistry(
        iss={"essential": True, "value": issuer}, aud={"essential": True, "value": audience}, exp={"essential": True}
    )
    try:
        found = jose_jwt.decode(token, keys, algorithms=ALGORITHMS)
        claims.validate(found.claims)
    except (JoseError, ValueError):
        return None
    return found.claims


def with_node_jose(issuer: str, audience: str, token: str) -> dict[str, Any] | None:
    command = [*npm.node("jose.mjs"), issuer, audience, token]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT)
    result = json.loads(done.stdout)
    return result["payload"] if result["verified"] else None


@pytest.fixture(params=[with_pyjwt, with_joserfc, with_node_jose], ids=["pyjwt", "joserfc", "node jose"])
def verify(request: pytest.FixtureRequest) -> Verify:
    found: Verify = request.param
    return found


def test_a_token_verifies(verify: Verify, issued: tuple[str, str, str]) -> None:
    issuer, audience, token = issued
    claims = verify(issuer, audience, token)
    assert claims is not None
    assert claims["iss"] == issuer
    assert claims["aud"] == audience
    assert claims["sub"] == claims["client_id"]
    assert claims["scope"] == "read"
    assert claims["team"] == "blue"
    assert claims["exp"] - claims["iat"] == 3600
    assert set(claims) == {
        "iss", "sub", "aud", "exp", "iat", "jti", "client_id", "scope", "account", "grant", "team",
    }  # fmt: skip


@pytest.mark.parametrize("part", [0, 1, 2])
def test_one_changed_byte_is_refused(verify: Verify, issued: tuple[str, str, str], part: int) -> None:
    issuer, audience, token = issued
    assert verify(issuer, audience, _with_changed_byte(token, part)) is None


def test_another_audience_is_refused(verify: Verify, issued: tuple[str, str, str]) -> None:
    issuer, _, token = issued
    assert verify(issuer, "https://other.example", token) is None


def _with_changed_byte(token: str, part: int) -> str:
    parts = token.split(".")
    raw = bytearray(urlsafe_b64decode(parts[part] + "=" * (-len(parts[part]) % 4)))
    raw[len(raw) // 2] ^= 1
    parts[part] = urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode()
    return ".".join(parts)
