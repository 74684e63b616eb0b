"""DPoP proofs, RFC 9449: a caller proves with every request that it holds a key.

Nonces are not stored: a nonce contains its time and a MAC.
"""

import hashlib
import re
from base64 import urlsafe_b64encode
from datetime import datetime, timedelta
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
from gatepost.oauth import used_assertions
from gatepost.store.transaction import Tx

NONCE_LIFE = 300  # seconds
OLDEST = 300  # seconds since a proof was made
AHEAD = 60  # allows for the clocks of clients; the nonce is what limits the life of a proof
KEPT = OLDEST + AHEAD + 60  # seconds for which the id of a used proof is stored
_THUMBPRINT = re.compile(r"[A-Za-z0-9_-]{43}")


class Proof(msgspec.Struct, frozen=True):
    """The key that the caller proved to hold, and the `jti` by which the proof is used once."""

    thumbprint: str
    id: str
    alg: str = "ES256"


def check(
    text: str, *, method: str, url: str, key: bytes, at: datetime, access_token: str | None = None
) -> Proof | Refusal:
    """RFC 9449, section 4.3, in the order given there."""
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
    if not isinstance(claims.get("htu"), str) or _comparable(claims["htu"]) != _comparable(url):
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
    """Under fapi2 no endpoint accepts a proof that is signed with RS256."""
    if proof is None or proof.alg in STRICT_ALGORITHMS:
        return None
    return _bad(f"alg must be one of {', '.join(STRICT_ALGORITHMS)}")


REPLAYED = Refusal("invalid_dpop_proof", "DPoP: this proof was used before", "DPoP")


def use(tx: Tx, client: str, proof: Proof) -> Refusal | None:
    """Mark a proof as used: RFC 9449, section 11.1. The first request that does so gets None."""
    expires_at = tx.at + timedelta(seconds=KEPT)
    first = used_assertions.use(tx, client, f"dpop {proof.thumbprint}", proof.id, expires_at)
    return None if first else REPLAYED


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
    """Whether the service issued this nonce, and it has not expired."""
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


def _comparable(url: str) -> str:
    """The URL without query and fragment, normalized as in RFC 3986, sections 6.2.2 and 6.2.3."""
    if len(url) > MAX_BYTES:
        return ""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    suffix = "" if port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f":{port}"
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{suffix}{parts.path or '/'}"


def _bad(detail: str) -> Refusal:
    return Refusal("invalid_dpop_proof", f"DPoP: {detail}", "DPoP")
