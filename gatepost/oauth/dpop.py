"""Proofs of possession: RFC 9449. A proof is read against the request it came with; what it shows is a key.

Nonces are of our own making and need no storage: the minute they were made in, and a tag that only we can make.
"""

import hashlib
import re
from base64 import urlsafe_b64encode
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from gatepost.core import clock
from gatepost.core.errors import Refusal
from gatepost.core.jose import MAX_BYTES, Unreadable, b64, instant, peek, read, unb64
from gatepost.core.jwk_sets import ASSERTION_ALGORITHMS, KEYS, STRICT_ALGORITHMS, jwks_problem
from gatepost.core.secrets import mac, same

NONCE_LIFE = 300  # seconds
OLDEST = 300  # seconds since a proof was made
AHEAD = 60  # RFC 9449 has clients' clocks in mind; the nonce is what really bounds a proof's life
KEPT = OLDEST + AHEAD + 60  # seconds for which an id is remembered
_THUMBPRINT = re.compile(r"[A-Za-z0-9_-]{43}")


class Proof(msgspec.Struct, frozen=True):
    """A key that the caller holds, and the id by which this proof is used once."""

    thumbprint: str
    id: str
    alg: str = "ES256"


def check(
    text: str, *, method: str, url: str, key: bytes, at: datetime, access_token: str | None = None
) -> Proof | Refusal:
    """RFC 9449, section 4.3, in its order."""
    head, _ = peek(text)
    jwk = head.get("jwk")
    if "," in text or not head or not isinstance(jwk, dict):
        return _bad("send one proof: a JWT with the public key in its header")
    if jwks_problem({"keys": [{name: value for name, value in jwk.items() if name not in ("kid", "use", "key_ops")}]}):
        return _bad(f"its jwk must be a public key: {KEYS}")
    try:
        claims = read(text, {"keys": [jwk]}, algorithms=ASSERTION_ALGORITHMS, typ=("dpop+jwt",))
        issued = instant(claims, "iat")
    except Unreadable as error:
        return _bad(f"it cannot be verified ({error})")
    proof_id = claims.get("jti")
    if not isinstance(proof_id, str) or not 0 < len(proof_id) <= 256:
        return _bad("jti is missing")
    if claims.get("htm") != method:
        return _bad(f"htm must be {method}")
    if not isinstance(claims.get("htu"), str) or _address(claims["htu"]) != _address(url):
        return _bad(f"htu must be {url}")
    now = at.timestamp()
    if issued is None or issued > now + AHEAD or issued < now - OLDEST:
        return _bad("iat must be now")
    if access_token is not None and claims.get("ath") != _hash(access_token):
        return _bad("ath must be the hash of the access token sent")
    if not is_fresh(key, claims.get("nonce"), at):
        return Refusal("use_dpop_nonce", "DPoP: use the nonce of the DPoP-Nonce header", "DPoP")
    return Proof(thumbprint(jwk), proof_id, head["alg"])


def too_weak(proof: Proof | None) -> Refusal | None:
    """Under fapi2 no proof is signed with RS256, wherever it is shown."""
    if proof is None or proof.alg in STRICT_ALGORITHMS:
        return None
    return _bad(f"alg must be one of {', '.join(STRICT_ALGORITHMS)}")


def thumbprint(jwk: dict[str, Any]) -> str:
    """RFC 7638."""
    try:
        return str(KeySet.import_key_set({"keys": [jwk]}).keys[0].thumbprint())
    except (JoseError, ValueError, TypeError, KeyError):
        return ""


def is_thumbprint(text: str) -> bool:
    return bool(_THUMBPRINT.fullmatch(text))


def nonce(key: bytes, at: datetime) -> str:
    made = clock.seconds(at).to_bytes(5, "big")
    return b64(made + _tag(key, made)).decode()


def is_fresh(key: bytes, text: Any, at: datetime) -> bool:
    """Whether this is a nonce of ours, not older than its life."""
    if not isinstance(text, str) or len(text) > 64 or not text.isascii():
        return False
    try:
        raw = unb64(text)
    except ValueError:
        return False
    made, tag = raw[:5], raw[5:]
    age = clock.seconds(at) - int.from_bytes(made, "big")
    return len(made) == 5 and same(tag, _tag(key, made)) and -AHEAD <= age <= NONCE_LIFE


def _tag(key: bytes, made: bytes) -> bytes:
    return mac(key, made)[:13]


def _hash(access_token: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(access_token.encode()).digest()).rstrip(b"=").decode()


def _address(url: str) -> str:
    """Without query and fragment, as RFC 3986 section 6.2.2 and 6.2.3 would compare it."""
    if len(url) > MAX_BYTES:
        return ""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    shown = "" if port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f":{port}"
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{shown}{parts.path or '/'}"


def _bad(detail: str) -> Refusal:
    return Refusal("invalid_dpop_proof", f"DPoP: {detail}", "DPoP")
