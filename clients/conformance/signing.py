"""JWTs for the conformance table, signed with the fixed keys of keys.json. The same input gives the same signature."""

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

KEYS: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "keys.json").read_text("utf-8"))
_PRIVATE = {"d", "p", "q", "dp", "dq", "qi"}


def public(name: str) -> dict[str, str]:
    """The public JWK of a key."""
    return {member: value for member, value in KEYS[name].items() if member not in _PRIVATE}


def jwt(header: Any, claims: Any, key: str) -> str:
    """A JWT, signed with the algorithm that the header names. `none` has an empty signature.

    A header or claims that are bytes are taken as they are. The algorithm is then that of the key.
    """
    algorithm = KEYS[key]["alg"] if isinstance(header, bytes) else header["alg"]
    content = ".".join(encode(part if isinstance(part, bytes) else _json(part)) for part in (header, claims))
    return f"{content}.{encode(_signature(algorithm, key, content.encode()))}"


def thumbprint(name: str) -> str:
    """The thumbprint of a key of keys.json."""
    return jwk_thumbprint(KEYS[name])


def jwk_thumbprint(jwk: dict[str, Any]) -> str:
    """RFC 7638."""
    members = {"EC": "crv kty x y", "OKP": "crv kty x", "RSA": "e kty n"}[jwk["kty"]].split()
    return hashed(json.dumps({member: jwk[member] for member in members}, separators=(",", ":"), sort_keys=True))


def hashed(text: str) -> str:
    """The SHA-256 hash of a text in base64url."""
    return encode(hashlib.sha256(text.encode()).digest())


def encode(raw: bytes) -> str:
    """Encode in base64url without padding."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Decode base64url without padding."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def ed25519_key(name: str) -> ed25519.Ed25519PrivateKey:
    """An Ed25519 key of keys.json."""
    return ed25519.Ed25519PrivateKey.from_private_bytes(decode(KEYS[name]["d"]))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _signature(algorithm: str, key: str, content: bytes) -> bytes:
    match algorithm:
        case "none":
            return b""
        case "HS256":  # with the public key as the secret, as in attacks that confuse algorithms
            return hmac.digest(_json(public(key)), content, "sha256")
        case "EdDSA" | "Ed25519":
            return ed25519_key(key).sign(content)
        case "RS256":
            return _rsa(key).private_key().sign(content, padding.PKCS1v15(), hashes.SHA256())
        case "PS256":
            return _pss(KEYS[key], content)
    number = int.from_bytes(decode(KEYS[key]["d"]))
    private = ec.derive_private_key(number, ec.SECP256R1())
    signed = private.sign(content, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))
    r, s = utils.decode_dss_signature(signed)
    return r.to_bytes(32) + s.to_bytes(32)


def _rsa(key: str) -> rsa.RSAPrivateNumbers:
    part = {name: int.from_bytes(decode(KEYS[key][name])) for name in ("n", "e", "d", "p", "q", "dp", "dq", "qi")}
    numbers = rsa.RSAPublicNumbers(part["e"], part["n"])
    return rsa.RSAPrivateNumbers(part["p"], part["q"], part["d"], part["dp"], part["dq"], part["qi"], numbers)


def _pss(jwk: dict[str, str], content: bytes) -> bytes:
    """RFC 8017, sections 8.1.1 and 9.1.1, with a fixed salt, because a random one would change the table."""
    modulus = int.from_bytes(decode(jwk["n"]))
    size = (modulus.bit_length() + 7) // 8
    salt = bytes(32)
    digest = hashlib.sha256(bytes(8) + hashlib.sha256(content).digest() + salt).digest()
    block = bytes(size - 32 - 1 - 32 - 1) + b"\x01" + salt
    counters = (counter.to_bytes(4) for counter in range(len(block) // 32 + 1))
    mask = b"".join(hashlib.sha256(digest + counter).digest() for counter in counters)[: len(block)]
    masked = bytearray(left ^ right for left, right in zip(block, mask, strict=True))
    masked[0] &= 0x7F  # the bits of the modulus are a multiple of 8
    encoded = int.from_bytes(bytes(masked) + digest + b"\xbc")
    return pow(encoded, int.from_bytes(decode(jwk["d"])), modulus).to_bytes(size)
