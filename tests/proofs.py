"""DPoP proofs (RFC 9449) for tests: right ones, and ones that are wrong in the way a test says.

Nothing here knows the service's code: what a proof says, and what a thumbprint is, is written out.
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
    """RFC 7638: the hash of the members that matter, in their order, without a space."""
    kept = {name: jwk[name] for name in NEEDED[jwk["kty"]]}
    return hash_of(json.dumps(kept, separators=(",", ":")))


def hash_of(text: str) -> str:
    """Of an access token, for `ath`."""
    return b64(hashlib.sha256(text.encode()).digest())


def proof(key: Key, method: str, url: str, *, token: str = "", header: Any = None, **changes: Any) -> str:
    """Right but for the changes to its claims and header; a change to None leaves one out."""
    right = {"jti": ids.new("jti"), "htm": method, "htu": url, "iat": int(time.time())}
    right |= {"ath": hash_of(token)} if token else {}
    claims = {name: value for name, value in (right | changes).items() if value is not None}
    shown = {"typ": "dpop+jwt", "jwk": public(key), "kid": None} | (header or {})
    return signed(key, claims, **shown)


class Prover:
    """A key, and a nonce of the service to prove it with."""

    def __init__(self, url: str, key: Key | None = None) -> None:
        self.url = url
        self.key = key or ECKey.generate_key("P-256")
        self.thumbprint = thumbprint(public(self.key))
        self.nonce = fresh_nonce(url)

    def proof(self, method: str, path: str, token: str = "", **changes: Any) -> str:
        """For a path of the service, or a URL."""
        url = path if "://" in path else self.url + path
        return proof(self.key, method, url, token=token, **({"nonce": self.nonce} | changes))

    def headers(self, method: str = "POST", path: str = "/oauth/tokens", token: str = "", **changes: Any) -> Any:
        """A proof; and with a token, the token as one that is bound to the key."""
        shown = {"Authorization": f"DPoP {token}"} if token else {}
        return {"DPoP": self.proof(method, path, token, **changes)} | shown


def fresh_nonce(url: str) -> str:
    """Whoever sends the header, with whatever in it, gets one."""
    answer = requests.get(f"{url}/oauth/jwks", headers={"DPoP": "a nonce, please"})
    return str(answer.headers["DPoP-Nonce"])
