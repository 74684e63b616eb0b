"""Client assertions (RFC 7523) for tests: valid ones, and ones with the defects that a test asks for."""

import json
import time
from base64 import urlsafe_b64encode
from typing import Any

from joserfc.jwk import Key
from joserfc.jws import JWSRegistry

from gatepost.core import ids
from gatepost.web.tokens import ASSERTION_TYPE

ALG = {"EC": "ES256", "RSA": "RS256", "OKP": "EdDSA", "oct": "HS256"}


def assertion(key: Key, client: str, audience: str, **changes: Any) -> str:
    return signed(key, right_claims(client, audience, **changes))


def right_claims(client: str, audience: str, **changes: Any) -> dict[str, Any]:
    """Return valid claims with these changes. A change to None omits the claim."""
    now = int(time.time())
    right = {"iss": client, "sub": client, "aud": audience, "iat": now, "exp": now + 60, "jti": ids.new("jti")}
    return {name: value for name, value in (right | changes).items() if value is not None}


def signed(key: Key, claims: Any, **header: Any) -> str:
    """Sign a compact JWS with any header, without the library's checks of headers."""
    head = {"alg": ALG[key.key_type], "typ": "JWT", "kid": key.kid} | header
    head = {name: value for name, value in head.items() if value is not None}
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    message = f"{b64(json.dumps(head).encode())}.{b64(payload)}"
    algorithm = JWSRegistry.algorithms[head["alg"]]
    return f"{message}.{b64(algorithm.sign(message.encode(), key))}"


def form(scope: str, signed_assertion: str, **more: str) -> dict[str, str]:
    return {
        "grant_type": "client_credentials",
        "scope": scope,
        "client_assertion_type": ASSERTION_TYPE,
        "client_assertion": signed_assertion,
    } | more


def b64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
