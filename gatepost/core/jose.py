"""Compact JWS: reading foreign ones, and the base64url that both sides need. RFC 7515."""

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

# RFC 9864 renames EdDSA; the name that most verifiers know stays ours, and the library need not say so each time.
warnings.filterwarnings("ignore", "EdDSA is deprecated", SecurityWarning)

MAX_BYTES = 16 * 1024
MOST_BRACKETS = 500  # so that no depth of nesting depends on the interpreter
PRIVATE_PARTS = ("d", "k", "p", "q", "dp", "dq", "qi", "oth")  # members of a JWK that no public one has; RFC 7518
RSA_BITS = (2048, 8192)  # of the modulus: below it is weak, above it a signature costs too much to verify
RSA_EXPONENTS = (3, 2**32)
RSA_KEYS = "RSA of 2048 to 8192 bits with an odd exponent from 3 to 2^32"
AHEAD = timedelta(seconds=10)  # how far `iat` and `nbf` of a foreign token may lie in the future


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def b64(raw: bytes) -> bytes:
    """Base64url without padding. Written out because every token needs it twice."""
    return b2a_base64(raw, newline=False).rstrip(b"=").translate(_URL_SAFE)


def unb64(text: str) -> bytes:
    """The bytes of base64url without padding, in their one spelling."""
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if b64(raw).decode() != text:
        raise ValueError("not base64url")
    return raw


class Unreadable(ValueError):
    """Not a token we accept; the text says why, for the ledger and never for an unauthenticated caller."""


def is_rsa_key(key: Mapping[str, Any]) -> bool:
    """Whether this JWK is an RSA key within the bounds: whoever chooses modulus and exponent chooses our cost."""
    modulus, exponent = _number(key.get("n")), _number(key.get("e"))
    least, most = RSA_EXPONENTS
    sized = RSA_BITS[0] <= modulus.bit_length() <= RSA_BITS[1] and modulus % 2 == 1
    return key.get("kty") == "RSA" and sized and least <= exponent <= most and exponent % 2 == 1


def _number(text: Any) -> int:
    """Of a Base64urlUInt, whatever zeros precede it; 0 where it is none, or longer than any we use."""
    if not isinstance(text, str) or len(text) > _LONGEST_NUMBER:
        return 0
    try:
        return int.from_bytes(urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")
    except ValueError:
        return 0


_LONGEST_NUMBER = RSA_BITS[1] // 4  # characters


class _Registry(JWSRegistry):
    """A header may hold an RSA key, as that of a DPoP proof does."""

    max_header_length = 4 * 1024


def read(
    token: str, keys: dict[str, Any], *, algorithms: tuple[str, ...], typ: tuple[str | None, ...]
) -> dict[str, Any]:
    """The claims of a token signed by one of `keys`, whose `alg` and `typ` are among those given.

    `jwk`, `jku`, `x5u` and `x5c` headers are never looked at; any `crit` is refused (RFC 8725, sections 3.1 to 3.11).
    Header parameters that we do not know are ignored (RFC 7515, section 4). So are RSA keys that are out of bounds:
    they may have been stored before there were bounds.
    """
    if len(token) > MAX_BYTES or token.count(".") != 2 or not token.isascii():
        raise Unreadable("not a compact JWS")
    within = [key for key in keys.get("keys", ()) if key.get("kty") != "RSA" or is_rsa_key(key)]
    try:
        known = KeySet.import_key_set({"keys": within})
        key = known.keys[0] if len(known.keys) == 1 else known  # one key needs no kid to be found
        registry = _Registry(algorithms=algorithms, strict_check_header=False)
        found = jws.deserialize_compact(token, key, registry=registry)
        header = found.headers()
        if "crit" in header or "b64" in header or header.get("typ", None) not in typ:
            raise Unreadable("typ or crit is not acceptable")
        if found.payload.count(b"[") + found.payload.count(b"{") > MOST_BRACKETS:
            raise Unreadable("the claims are nested too deeply")
        claims = msgspec.json.decode(found.payload)
    except Unreadable:
        raise
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise Unreadable(type(error).__name__) from None
    if not isinstance(claims, dict):
        raise Unreadable("the claims are not an object")
    return claims


def peek(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of a token, unverified: only to find the keys that verify it."""
    parts = token.split(".")
    if len(token) > MAX_BYTES or len(parts) != 3 or not token.isascii():
        return {}, {}
    try:
        head, claims = (msgspec.json.decode(unb64(part)) for part in parts[:2])
    except (ValueError, RecursionError):
        return {}, {}
    return (head, claims) if isinstance(head, dict) and isinstance(claims, dict) else ({}, {})


def instant(claims: dict[str, Any], name: str) -> float | None:
    """A NumericDate claim, or None where there is none. RFC 7519, section 2."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise Unreadable(f"{name} is not a time")
    return float(value)


def is_live(claims: dict[str, Any], at: datetime) -> bool:
    """Whether `exp` is there and ahead, and `nbf` and `iat` are not more than a little ahead."""
    expires = instant(claims, "exp")
    latest = (at + AHEAD).timestamp()
    started = [instant(claims, name) or 0.0 for name in ("nbf", "iat")]
    return expires is not None and at.timestamp() < expires and all(each <= latest for each in started)


def audiences(claims: dict[str, Any]) -> list[Any]:
    found = claims.get("aud")
    return found if isinstance(found, list) else [found]
