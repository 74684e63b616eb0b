"""DPoP proofs, RFC 9449: a caller proves with every request that it holds a key.

Nonces are not stored: a nonce contains its time and a MAC.
"""

import hashlib
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from hmac import compare_digest
from typing import Any
from urllib.parse import urlsplit

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from gatepost.core import clock
from gatepost.core.errors import Refusal
from gatepost.core.jose import MAX_BYTES, InvalidJwt, b64, decode_unverified, numeric_date, unb64, verify_jws
from gatepost.core.jwk_sets import ASSERTION_ALGORITHMS, KEYS, STRICT_ALGORITHMS, jwks_problem
from gatepost.core.secrets import mac
from gatepost.oauth import used_assertions
from gatepost.store.transaction import Tx

NONCE_LIFE = 300  # seconds
MAX_AGE = 300  # seconds since a proof was made
MAX_SKEW = 60  # seconds by which the clock of a client may be ahead; the nonce limits how long a proof can be used
USED_FOR = MAX_AGE + MAX_SKEW + 60  # seconds for which the id of a used proof is stored
_THUMBPRINT = re.compile(r"[A-Za-z0-9_-]{43}")


class Proof(msgspec.Struct, frozen=True):
    """The key that the caller holds, and the `jti` of the proof, which can be used once."""

    thumbprint: str
    id: str
    alg: str = "ES256"


def check(
    text: str, *, method: str, urls: Sequence[str], key: bytes, at: datetime, access_token: str | None = None
) -> Proof | Refusal:
    """Verify a proof by the checks of RFC 9449, section 4.3, in their order. `urls` are those of the request."""
    head, _ = decode_unverified(text)
    jwk = head.get("jwk")
    if "," in text or not head or not isinstance(jwk, dict):
        return _invalid("send one proof: a JWT with the public key in its header")
    if jwks_problem({"keys": [{name: value for name, value in jwk.items() if name not in ("kid", "use", "key_ops")}]}):
        return _invalid(f"its jwk must be a public key: {KEYS}")
    try:
        claims = verify_jws(text, {"keys": [jwk]}, algorithms=ASSERTION_ALGORITHMS, typ=("dpop+jwt",))
        issued = numeric_date(claims, "iat")
    except InvalidJwt as error:
        return _invalid(f"it cannot be verified ({error})")
    proof_id = claims.get("jti")
    if not isinstance(proof_id, str) or not 0 < len(proof_id) <= 256:
        return _invalid("jti is missing")
    if claims.get("htm") != method:
        return _invalid(f"htm must be {method}")
    if not isinstance(claims.get("htu"), str) or _normalized(claims["htu"]) not in map(_normalized, urls):
        return _invalid(f"htu must be {' or '.join(urls)}")
    now = at.timestamp()
    if issued is None or issued > now + MAX_SKEW or issued < now - MAX_AGE:
        return _invalid("iat must be the current time")
    if access_token is not None and claims.get("ath") != b64(hashlib.sha256(access_token.encode()).digest()).decode():
        return _invalid("ath must be the hash of the access token sent")
    if not is_fresh(key, claims.get("nonce"), at):
        return Refusal("use_dpop_nonce", "DPoP: use the nonce of the DPoP-Nonce header", "DPoP")
    return Proof(thumbprint(jwk), proof_id, head["alg"])


def too_weak(proof: Proof | None) -> Refusal | None:
    """The profile fapi2 does not accept proofs that are signed with RS256."""
    if proof is None or proof.alg in STRICT_ALGORITHMS:
        return None
    return _invalid(f"alg must be one of {', '.join(STRICT_ALGORITHMS)}")


REPLAYED = Refusal("invalid_dpop_proof", "DPoP: this proof was used before", "DPoP")


def use(tx: Tx, client: str, proof: Proof) -> Refusal | None:
    """Mark a proof as used: RFC 9449, section 11.1. The first request that does so gets None."""
    expires_at = tx.at + timedelta(seconds=USED_FOR)
    first = used_assertions.use(tx, client, f"dpop {proof.thumbprint}", proof.id, expires_at)
    return None if first else REPLAYED


def thumbprint(jwk: dict[str, Any]) -> str:
    """The SHA-256 thumbprint of a key, RFC 7638; empty if it is not a key."""
    try:
        return str(KeySet.import_key_set({"keys": [jwk]}).keys[0].thumbprint())
    except (JoseError, ValueError, TypeError, KeyError):
        return ""


def is_thumbprint(text: str) -> bool:
    """Whether the text has the form of a SHA-256 thumbprint."""
    return bool(_THUMBPRINT.fullmatch(text))


def nonce(key: bytes, at: datetime) -> str:
    """A nonce that is valid for NONCE_LIFE. RFC 9449, section 8."""
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
    return len(made) == 5 and compare_digest(tag, _tag(key, made)) and -MAX_SKEW <= age <= NONCE_LIFE


def _tag(key: bytes, made: bytes) -> bytes:
    return mac(key, made)[:13]


def _normalized(url: str) -> str:
    """The URL without query and fragment, normalized as in RFC 3986, sections 6.2.2 and 6.2.3; or an empty string."""
    if len(url) > MAX_BYTES or not url.isprintable():  # `urlsplit` removes tabs and line breaks
        return ""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    if "@" in parts.netloc:
        return ""
    suffix = "" if port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f":{port}"
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{suffix}{parts.path or '/'}"


def _invalid(detail: str) -> Refusal:
    return Refusal("invalid_dpop_proof", f"DPoP: {detail}", "DPoP")
