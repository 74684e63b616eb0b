"""How a client authenticates at the token endpoint: with a secret, or with a private key."""

import secrets
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote_plus

from gatepost_client import jose

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_LIFETIME = 60  # seconds


class Authentication(NamedTuple):
    """What a token request contains to authenticate its client."""

    headers: Mapping[str, str]
    parameters: Mapping[str, str]


class Credentials(Protocol):
    """The credentials of a client."""

    def authenticate(self, issuer: str, now: float) -> Authentication:
        """Authenticate one request."""


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """Authenticates with `client_secret_basic`: RFC 6749, section 2.3.1."""

    client_id: str
    client_secret: str = field(repr=False)

    def authenticate(self, issuer: str, now: float) -> Authentication:  # noqa: ARG002 (of the protocol)
        """Authenticate one request."""
        pair = f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}"
        return Authentication({"Authorization": "Basic " + b64encode(pair.encode()).decode()}, {})


class ClientKey:
    """Authenticates with `private_key_jwt`: RFC 7523, section 2.2.

    `key` is PEM text, a JWK or a key of `cryptography`. `kid` defaults to that of the JWK; Gatepost needs it if the
    client has several keys. An RSA key signs with PS256 unless `alg` or the JWK says RS256.
    """

    def __init__(
        self,
        client_id: str,
        key: str | bytes | Mapping[str, Any] | jose.PrivateKey,
        *,
        kid: str | None = None,
        alg: str | None = None,
    ) -> None:
        jwk = key if isinstance(key, Mapping) else {}
        self.client_id = client_id
        self._key = jose.import_private(key)
        self._kid = kid or jwk.get("kid")
        self._alg = alg or jwk.get("alg") or jose.algorithm_for(self._key)
        if not jose.fits(self._alg, self._key):
            raise ValueError(f"alg: the key cannot sign with {self._alg}")

    def authenticate(self, issuer: str, now: float) -> Authentication:
        """Authenticate one request, with a new assertion."""
        header = {"typ": "JWT", "alg": self._alg} | ({"kid": self._kid} if self._kid else {})
        claims = {"iss": self.client_id, "sub": self.client_id, "aud": issuer, "jti": secrets.token_urlsafe(16)}
        times = {"iat": int(now), "exp": int(now) + ASSERTION_LIFETIME}
        assertion = jose.encode(self._key, header, claims | times)
        parameters = {"client_id": self.client_id, "client_assertion_type": ASSERTION_TYPE}
        return Authentication({}, parameters | {"client_assertion": assertion})
