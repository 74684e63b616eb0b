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

from gatepost_client import jose
from gatepost_client.jose import PrivateKey

MAX_AGE = 60.0  # seconds by which the time of a proof may differ from the time of this machine, either way
MAX_REMEMBERED = 100_000  # proofs; older ones are forgotten first
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
    """The proofs that were used within MAX_AGE: each can be used once in this process. RFC 9449, section 11.1."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: dict[bytes, float] = {}  # a hash, until when the proof would be accepted; in order of time

    def use(self, thumbprint: str, jti: str, now: float) -> bool:
        """Whether this is the first use of a proof."""
        name = hashlib.sha256(f"{thumbprint} {jti}".encode("utf-8", "surrogatepass")).digest()[:16]
        with self._lock:
            while self._used:
                oldest = next(iter(self._used))
                if self._used[oldest] >= now and len(self._used) < MAX_REMEMBERED:
                    break
                del self._used[oldest]
            if name in self._used:
                return False
            self._used[name] = now + 2 * MAX_AGE
            return True


class ProofError(ValueError):
    """The proof is not accepted. `check` names the check that failed."""

    def __init__(self, check: str) -> None:
        super().__init__(check)
        self.check = check


def check(
    proofs: Sequence[str], *, method: str, url: str, token: str, thumbprint: Any, now: float, used: UsedProofs
) -> None:
    """Check the proof of a request as specified by RFC 9449, section 4.3. Raises ProofError."""
    claims, key_thumbprint = _verified(proofs)
    jti, issued, htu = claims.get("jti"), claims.get("iat"), claims.get("htu")
    if not isinstance(thumbprint, str) or key_thumbprint != thumbprint:
        raise ProofError("dpop_key")
    if claims.get("htm") != method:
        raise ProofError("dpop_htm")
    if not isinstance(htu, str) or normalized(htu) is None or normalized(htu) != normalized(url):
        raise ProofError("dpop_htu")
    if claims.get("ath") != token_hash(token):
        raise ProofError("dpop_ath")
    if isinstance(issued, bool) or not isinstance(issued, int | float) or not abs(now - issued) <= MAX_AGE:
        raise ProofError("dpop_iat")
    if not isinstance(jti, str) or not 0 < len(jti) <= _MAX_JTI or not used.use(key_thumbprint, jti, now):
        raise ProofError("dpop_jti")


def _verified(proofs: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The claims of the only proof, and the thumbprint of the public key in its header, which signed it."""
    try:
        [text] = proofs
        proof = jose.parse(text)
        jwk = proof.header.get("jwk")
        if proof.header.get("typ") != "dpop+jwt" or not isinstance(jwk, dict):
            raise ProofError("dpop_proof")
        if any(name in jwk for name in jose.PRIVATE_MEMBERS) or not proof.is_signed_by(jose.import_public(jwk)):
            raise ProofError("dpop_proof")
        return proof.claims(), jose.thumbprint(jwk)
    except ValueError:
        raise ProofError("dpop_proof") from None


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
