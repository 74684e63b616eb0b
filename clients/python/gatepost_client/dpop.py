"""DPoP, RFC 9449: proofs that a client makes, and the checks of a proof that an API receives."""

import hashlib
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from cryptography.hazmat.primitives.asymmetric import ec

from gatepost_client import after_fork, jose
from gatepost_client.jose import PrivateKey

MAX_AGE = 60.0  # seconds by which the time of a proof may differ from the time of this machine, either way
MAX_REMEMBERED = 1_000_000  # proofs that have not expired
MAX_OF_ONE_KEY = 100_000  # of them
_SKEW = 10.0  # seconds by which the clock of this machine may be set back
_PERIOD = 10.0  # seconds; proofs that expire in the same period are forgotten together
_MAX_JTI = 256
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")


class ProofKey:
    """A private key with which a client proves that a token is its own.

    `key` is PEM text, a JWK or a key of `cryptography`. Without one, an EC P-256 key is generated.
    """

    def __init__(self, key: str | bytes | Mapping[str, Any] | PrivateKey | None = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1()) if key is None else jose.import_private(key)
        self._jwk = jose.export_public(self._key)
        self._alg = jose.algorithm_for(self._key)
        self.thumbprint = jose.thumbprint(self._jwk)

    def proof(
        self,
        method: str,
        url: str,
        *,
        token: str | None = None,
        nonce: str | None = None,
        now: float | None = None,
    ) -> str:
        """A proof for one request: RFC 9449, section 4.2."""
        claims: dict[str, Any] = {"jti": secrets.token_urlsafe(16), "htm": method, "htu": re.split(r"[?#]", url)[0]}
        claims["iat"] = int(time.time() if now is None else now)
        if nonce is not None:
            claims["nonce"] = nonce
        if token is not None:
            claims["ath"] = token_hash(token)
        return jose.encode(self._key, {"typ": "dpop+jwt", "alg": self._alg, "jwk": self._jwk}, claims)


class UsedProofs:
    """The used proofs that have not expired: each can be used once in this process. RFC 9449, section 11.1.

    None is forgotten before it expires. At the limits, new proofs are refused. That of one key keeps a client from
    using up the memory for the others.
    """

    def __init__(self, limit: int = MAX_REMEMBERED, limit_per_key: int = MAX_OF_ONE_KEY) -> None:
        self._limit, self._limit_per_key = limit, limit_per_key
        self.reset_after_fork()
        after_fork.register(self)
        self._periods: dict[int, dict[bytes, str]] = {}  # by when they expire: hashes of proofs, and their keys
        self._of_key: dict[str, int] = {}  # how many proofs of a key there are

    def reset_after_fork(self) -> None:
        """Replace the lock. The proofs stay: a child must not accept them again."""
        self._lock = threading.Lock()

    def use(self, thumbprint: str, jti: str, issued: float, now: float) -> bool:
        """Record a proof. Return False if it was used before, or if there are too many."""
        name = hashlib.sha256(f"{thumbprint} {jti}".encode("utf-8", "surrogatepass")).digest()[:16]
        with self._lock:
            self._forget_expired(now)
            if any(name in proofs for proofs in self._periods.values()):
                return False
            of_key = self._of_key.get(thumbprint, 0)
            if of_key >= self._limit_per_key or sum(map(len, self._periods.values())) >= self._limit:
                return False
            self._of_key[thumbprint] = of_key + 1
            self._periods.setdefault(int((issued + MAX_AGE + _SKEW) // _PERIOD), {})[name] = thumbprint
            return True

    def _forget_expired(self, now: float) -> None:
        """There are about fifteen periods, because the times of accepted proofs are within MAX_AGE of `now`."""
        for period in [period for period in self._periods if (period + 1) * _PERIOD <= now]:
            for thumbprint in self._periods.pop(period).values():
                self._of_key[thumbprint] -= 1
                if not self._of_key[thumbprint]:
                    del self._of_key[thumbprint]


class ProofError(ValueError):
    """The proof is not accepted. `check` names the check that failed."""

    def __init__(self, check: str) -> None:
        super().__init__(check)
        self.check = check


def check(
    proofs: Sequence[str], *, method: str, url: str, token: str, thumbprint: Any, now: float, used: UsedProofs
) -> None:
    """Check the proof of a request as specified by RFC 9449, section 4.3. Raises ProofError."""
    claims = _verified(proofs, thumbprint)
    jti, issued, htu = claims.get("jti"), jose.numeric_date(claims.get("iat")), claims.get("htu")
    if claims.get("htm") != method:
        raise ProofError("dpop_htm")
    if not isinstance(htu, str) or normalized(htu) is None or normalized(htu) != normalized(url):
        raise ProofError("dpop_htu")
    if claims.get("ath") != token_hash(token):
        raise ProofError("dpop_ath")
    if issued is None or abs(now - issued) > MAX_AGE:
        raise ProofError("dpop_iat")
    if not isinstance(jti, str) or not 0 < len(jti) <= _MAX_JTI or not used.use(thumbprint, jti, issued, now):
        raise ProofError("dpop_jti")


def _verified(proofs: Sequence[str], thumbprint: Any) -> dict[str, Any]:
    """The claims of the only proof, which the public key in its header signed. It must be the key of the token.

    Anyone can send a key that is expensive to verify with, so the keys are compared before that.
    """
    try:
        [text] = proofs
        proof = jose.parse(text)
        claims, jwk = proof.claims(), proof.header.get("jwk")
        if proof.header.get("typ") != "dpop+jwt" or proof.header.get("alg") not in jose.ALGORITHMS:
            raise ProofError("dpop_proof")
        if not isinstance(jwk, dict) or any(name in jwk for name in jose.PRIVATE_MEMBERS):
            raise ProofError("dpop_proof")
        if not isinstance(thumbprint, str) or _thumbprint(jwk) != thumbprint:
            raise ProofError("dpop_key")
        if not proof.is_signed_by(jose.import_public(jwk)):
            raise ProofError("dpop_proof")
    except ProofError:
        raise
    except ValueError:
        raise ProofError("dpop_proof") from None
    return claims


def _thumbprint(jwk: Mapping[str, Any]) -> str | None:
    """The thumbprint of a key, or None if the key is malformed."""
    try:
        return jose.thumbprint(jwk)
    except (KeyError, TypeError):
        return None


def token_hash(token: str) -> str:
    """The claim `ath` for an access token: RFC 9449, section 4.2."""
    return jose.b64url(hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest())


def request_url(origin: str, path: str) -> str:
    """The URL of a request whose path a web framework has decoded."""
    return origin.rstrip("/") + quote(path, safe="/!$&'()*+,;=:@")


def normalized(url: str) -> str | None:
    """The URL without query and fragment, normalized by RFC 3986, sections 6.2.2 and 6.2.3. None if it is not http."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), (parts.hostname or "").lower(), parts.port
    except ValueError:
        return None
    if scheme not in ("http", "https") or not host or "@" in parts.netloc or not url.isascii():
        return None
    suffix = "" if port in (None, {"http": 80, "https": 443}[scheme]) else f":{port}"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}{suffix}/{_normalized_path(parts.path)}"


def _normalized_path(path: str) -> str:
    """The path without its first slash, with its dot segments removed: RFC 3986, section 5.2.4."""
    kept: list[str] = []
    segments = re.sub(r"%([0-9A-Fa-f]{2})", _percent, path).split("/")[1:]
    for segment in segments:
        if segment == "..":
            kept = kept[:-1]
        elif segment != ".":
            kept.append(segment)
    if segments and segments[-1] in (".", ".."):
        kept.append("")
    return "/".join(kept)


def _percent(escaped: re.Match[str]) -> str:
    """An unreserved character without its escape; other escapes in upper case."""
    character = chr(int(escaped[1], 16))
    return character if _UNRESERVED.fullmatch(character) else escaped[0].upper()
