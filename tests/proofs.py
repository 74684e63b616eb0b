"""DPoP proofs (RFC 9449) for tests: valid ones, and ones with the defects that a test asks for.

Proofs and thumbprints are computed here, without the code of the service.
"""

import hashlib
import json
import time
from typing import Any

import requests
from joserfc.jwk import ECKey, Key

from gatepost.core import ids
from tests.assertions import b64, signed

NEEDED = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}  # RFC 7638, section 3.2


def public(key: Key) -> dict[str, Any]:
    return {name: value for name, value in key.as_dict(private=False).items() if name != "kid"}


def thumbprint(jwk: dict[str, Any]) -> str:
    """Return the JWK thumbprint (RFC 7638): the hash of the required members in order, without whitespace."""
    kept = {name: jwk[name] for name in NEEDED[jwk["kty"]]}
    return hash_of(json.dumps(kept, separators=(",", ":")))


def hash_of(text: str) -> str:
    """Return the hash of an access token, for `ath`."""
    return b64(hashlib.sha256(text.encode()).digest())


def proof(key: Key, method: str, url: str, *, token: str = "", header: Any = None, **changes: Any) -> str:
    """Return a valid proof with these changes of claims and header. A change to None omits a claim."""
    right = {"jti": ids.new("jti"), "htm": method, "htu": url, "iat": int(time.time())}
    right |= {"ath": hash_of(token)} if token else {}
    claims = {name: value for name, value in (right | changes).items() if value is not None}
    return signed(key, claims, **({"typ": "dpop+jwt", "jwk": public(key), "kid": None} | (header or {})))


class Prover:
    """A key, and a nonce of the service for its proofs."""

    def __init__(self, url: str, key: Key | None = None) -> None:
        self.url = url
        self.key = key or ECKey.generate_key("P-256")
        self.thumbprint = thumbprint(public(self.key))
        self.nonce = fresh_nonce(url)

    def proof(self, method: str, path: str, token: str = "", **changes: Any) -> str:
        """Return a proof for a path of the service or for a URL."""
        url = path if "://" in path else self.url + path
        return proof(self.key, method, url, token=token, **({"nonce": self.nonce} | changes))

    def headers(self, method: str = "POST", path: str = "/oauth/tokens", token: str = "", **changes: Any) -> Any:
        """Return the header with a proof and, if there is a token, the token with the DPoP scheme."""
        authorization = {"Authorization": f"DPoP {token}"} if token else {}
        return {"DPoP": self.proof(method, path, token, **changes)} | authorization


def fresh_nonce(url: str) -> str:
    """Return a nonce. The service sends one in response to any DPoP header."""
    answer = requests.get(f"{url}/oauth/jwks", headers={"DPoP": "a nonce, please"})
    return str(answer.headers["DPoP-Nonce"])
