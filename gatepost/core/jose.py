"""Verification of compact JWS from other parties, and base64url encoding. RFC 7515."""

import warnings
from base64 import urlsafe_b64decode
from binascii import b2a_base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from joserfc import jws
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

# RFC 9864 renames EdDSA. Gatepost keeps the name that most verifiers know, so the library's warning is noise.
warnings.filterwarnings("ignore", "EdDSA is deprecated", SecurityWarning)

MAX_BYTES = 16 * 1024
MAX_BRACKETS = 500  # bounds the nesting depth, independent of the interpreter
_MAX_PEEK_BRACKETS = 1000  # more, so that verification reports claims that are nested too deeply
PRIVATE_PARTS = ("d", "k", "p", "q", "dp", "dq", "qi", "oth")  # members of a JWK that no public key has; RFC 7518
RSA_BITS = (2048, 8192)  # of the modulus: shorter keys are weak, longer keys cost too much to verify with
RSA_KEYS = "RSA of 2048 to 8192 bits with an odd exponent from 3 to 2^32"
CLOCK_SKEW = timedelta(seconds=10)  # how far `iat` and `nbf` of a foreign token may lie in the future


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def b64(raw: bytes) -> bytes:
    """Encode as base64url without padding. Faster than the standard library; every token needs it twice."""
    return b2a_base64(raw, newline=False).rstrip(b"=").translate(_URL_SAFE)


def unb64(text: str) -> bytes:
    """Decode canonical base64url without padding."""
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if b64(raw).decode() != text:
        raise ValueError("not base64url")
    return raw


class InvalidJwt(ValueError):
    """The signature, the header or a claim is invalid. The message is for the ledger, not for the caller."""


def is_rsa_key(key: Mapping[str, Any]) -> bool:
    """Return whether a JWK is an RSA key within the bounds: modulus and exponent determine the cost of verification."""
    modulus, exponent = _number(key.get("n")), _number(key.get("e"))
    sized = RSA_BITS[0] <= modulus.bit_length() <= RSA_BITS[1] and modulus % 2 == 1
    return key.get("kty") == "RSA" and sized and 3 <= exponent <= 2**32 and exponent % 2 == 1


def _number(text: Any) -> int:
    """Return the value of a Base64urlUInt, also with leading zeros; 0 if it is invalid or too long."""
    if not isinstance(text, str) or len(text) > _MAX_NUMBER:
        return 0
    try:
        return int.from_bytes(urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")
    except ValueError:
        return 0


_MAX_NUMBER = RSA_BITS[1] // 4  # characters


class _Registry(JWSRegistry):
    """Leaves the limits to `verify_jws`: of a token of at most MAX_BYTES, no part is too large."""

    max_header_length = MAX_BYTES
    max_signature_length = MAX_BYTES


def verify_jws(
    token: str, keys: dict[str, Any], *, algorithms: tuple[str, ...], typ: tuple[str | None, ...]
) -> dict[str, Any]:
    """Verify a compact JWS and return its claims. One of `keys` must have signed it, with an accepted `alg` and `typ`.

    It does not check the times, the issuer or the audience. `jwk`, `jku`, `x5u` and `x5c` headers are ignored; any
    `crit` is refused (RFC 8725, sections 3.1 to 3.11). Unknown header parameters are ignored (RFC 7515, section 4). So
    are RSA keys out of bounds: they may have been stored before there were bounds.
    """
    if len(token) > MAX_BYTES or token.count(".") != 2 or not token.isascii():
        raise InvalidJwt("not a compact JWS")
    within = [key for key in keys.get("keys", ()) if key.get("kty") != "RSA" or is_rsa_key(key)]
    try:
        key_set = KeySet.import_key_set({"keys": within})
        key = key_set.keys[0] if len(key_set.keys) == 1 else key_set  # a single key is used without a kid
        registry = _Registry(algorithms=algorithms, strict_check_header=False)
        parsed = jws.deserialize_compact(token, key, registry=registry)
        header = parsed.headers()
        if "crit" in header or "b64" in header or header.get("typ", None) not in typ:
            raise InvalidJwt("typ or crit is not acceptable")
        claims = _decode(parsed.payload, MAX_BRACKETS)
    except InvalidJwt:
        raise
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidJwt(type(error).__name__) from None
    if not isinstance(claims, dict):
        raise InvalidJwt("the claims are not an object")
    return claims


def _decode(text: bytes, max_brackets: int) -> Any:
    if text.count(b"[") + text.count(b"{") > max_brackets:
        raise InvalidJwt("the claims are nested too deeply")
    return msgspec.json.decode(text)


def decode_unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the unverified header and claims of a token: only to find the keys that verify it."""
    parts = token.split(".")
    if len(token) > MAX_BYTES or len(parts) != 3 or not token.isascii():
        return {}, {}
    try:
        head, claims = (_decode(unb64(part), _MAX_PEEK_BRACKETS) for part in parts[:2])
    except (ValueError, RecursionError):
        return {}, {}
    return (head, claims) if isinstance(head, dict) and isinstance(claims, dict) else ({}, {})


def unverified_header(token: str) -> dict[str, Any]:
    """Return the header of a token, whatever its claims are; {} if it has none."""
    try:
        head = _decode(unb64(token.partition(".")[0]), _MAX_PEEK_BRACKETS) if len(token) <= MAX_BYTES else {}
    except (ValueError, RecursionError):
        return {}
    return head if isinstance(head, dict) else {}


def numeric_date(claims: dict[str, Any], name: str) -> float | None:
    """Return a NumericDate claim (RFC 7519, section 2), or None if it is missing."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise InvalidJwt(f"{name} is not a time")
    return float(value)


def is_time_valid(claims: dict[str, Any], at: datetime) -> bool:
    """Return whether `exp` is in the future, and `nbf` and `iat` are at most CLOCK_SKEW in the future."""
    expires = numeric_date(claims, "exp")
    latest = (at + CLOCK_SKEW).timestamp()
    started = [numeric_date(claims, name) or 0.0 for name in ("nbf", "iat")]
    return expires is not None and at.timestamp() < expires and all(start <= latest for start in started)


def audiences(claims: dict[str, Any]) -> list[Any]:
    """Return the `aud` claim as a list (RFC 7519, section 4.1.3)."""
    audience = claims.get("aud")
    return audience if isinstance(audience, list) else [audience]
