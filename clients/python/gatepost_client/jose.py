"""Compact JWS and JWK with `cryptography`: RFC 7515, RFC 7517, RFC 7518, RFC 7638 and RFC 8037.

Only what Gatepost uses: ES256, RS256, PS256, and EdDSA (also under its new name Ed25519, RFC 9864).
"""

import hashlib
import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | Ed25519PublicKey
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | Ed25519PrivateKey

MAX_BYTES = 16 * 1024  # of a token
RSA_BITS = (2048, 8192)  # shorter keys are weak, longer ones cost too much to verify with
PRIVATE_MEMBERS = ("d", "k", "p", "q", "dp", "dq", "qi", "oth")
_KEY_TYPES: dict[str, tuple[type, ...]] = {
    "ES256": (ec.EllipticCurvePublicKey, ec.EllipticCurvePrivateKey),
    "RS256": (rsa.RSAPublicKey, rsa.RSAPrivateKey),
    "PS256": (rsa.RSAPublicKey, rsa.RSAPrivateKey),
    "EdDSA": (Ed25519PublicKey, Ed25519PrivateKey),
    "Ed25519": (Ed25519PublicKey, Ed25519PrivateKey),
}
ALGORITHMS = tuple(_KEY_TYPES)
_REQUIRED = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}


class Jws(NamedTuple):
    """A parsed compact JWS. Its signature is not verified yet."""

    header: dict[str, Any]
    payload: bytes
    signing_input: str
    signature: bytes

    def is_signed_by(self, key: PublicKey) -> bool:
        """Whether the key made the signature, with the algorithm of the header."""
        return _verify(str(self.header.get("alg")), key, self.signature, self.signing_input.encode())

    def claims(self) -> dict[str, Any]:
        """The claims. Raises ValueError if the payload is not a JSON object."""
        return _json_object(self.payload)


def parse(token: str) -> Jws:
    """Parse a compact JWS (RFC 7515, section 5.2). Raises ValueError."""
    if len(token) > MAX_BYTES or token.count(".") != 2 or not token.isascii():
        raise ValueError("not a compact JWS")
    head, payload, signature = map(b64url_decode, token.split("."))
    header = _json_object(head)
    if "crit" in header or "b64" in header:  # RFC 7515, section 4.1.11: no extension is understood
        raise ValueError("crit is not supported")
    return Jws(header, payload, token.rpartition(".")[0], signature)


def encode(key: PrivateKey, header: Mapping[str, Any], claims: Mapping[str, Any]) -> str:
    """A signed JWT. The algorithm is that of the header."""
    parts = (json.dumps(part, separators=(",", ":")).encode() for part in (header, claims))
    signing_input = ".".join(b64url(part) for part in parts)
    return f"{signing_input}.{b64url(_sign(header['alg'], key, signing_input.encode()))}"


def b64url(raw: bytes) -> str:
    """Base64url without padding."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def b64url_decode(text: str) -> bytes:
    """Decode canonical base64url without padding. Raises ValueError."""
    raw = b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    if b64url(raw) != text:
        raise ValueError("not base64url")
    return raw


def numeric_date(value: Any) -> float | None:
    """A NumericDate (RFC 7519, section 2) before the year 6326, or None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 37:
        return None
    return float(value)


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 (the value is at fault)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is repeated")
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# --- keys


def import_public(jwk: Any) -> PublicKey:
    """The public key of a JWK: EC P-256, OKP Ed25519 or RSA of 2048 to 8192 bits. Raises ValueError."""
    try:
        match jwk:
            case {"kty": "EC", "crv": "P-256", "x": str(x), "y": str(y)}:
                numbers = ec.EllipticCurvePublicNumbers(_number(x), _number(y), ec.SECP256R1())
                return numbers.public_key()
            case {"kty": "OKP", "crv": "Ed25519", "x": str(x)}:
                return Ed25519PublicKey.from_public_bytes(b64url_decode(x))
            case {"kty": "RSA", "n": str(n), "e": str(e)}:
                modulus, exponent = _number(n), _number(e)
                if RSA_BITS[0] <= modulus.bit_length() <= RSA_BITS[1] and 3 <= exponent <= 2**32:
                    return rsa.RSAPublicNumbers(exponent, modulus).public_key()
    except TypeError as error:
        raise ValueError(str(error)) from None
    raise ValueError("a key must be EC P-256, OKP Ed25519 or RSA of 2048 to 8192 bits")


def import_private(key: str | bytes | Mapping[str, Any] | PrivateKey) -> PrivateKey:
    """A private key from PEM text, a JWK, or `cryptography`. Raises ValueError."""
    if isinstance(key, str | bytes):
        key = serialization.load_pem_private_key(key.encode() if isinstance(key, str) else key, None)  # type: ignore[assignment]
    elif isinstance(key, Mapping):
        key = _private_from_jwk(key)
    if isinstance(key, ec.EllipticCurvePrivateKey) and not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("an EC key must be P-256")  # noqa: TRY004 (the value is at fault)
    if not isinstance(key, PrivateKey):
        raise ValueError("the key must be EC P-256, Ed25519 or RSA")  # noqa: TRY004 (the value is at fault)
    return key


def _private_from_jwk(jwk: Mapping[str, Any]) -> PrivateKey:
    public, kind = import_public(dict(jwk)), jwk.get("kty")
    missing = [name for name in (("d", "p", "q", "dp", "dq", "qi") if kind == "RSA" else ("d",)) if name not in jwk]
    if missing:
        raise ValueError(f"the JWK is not a private key: {', '.join(missing)} missing")
    if isinstance(public, rsa.RSAPublicKey):
        p, q, d, dp, dq, qi = (_number(jwk[name]) for name in ("p", "q", "d", "dp", "dq", "qi"))
        return rsa.RSAPrivateNumbers(p, q, d, dp, dq, qi, public.public_numbers()).private_key()
    if isinstance(public, ec.EllipticCurvePublicKey):
        return ec.EllipticCurvePrivateNumbers(_number(jwk["d"]), public.public_numbers()).private_key()
    return Ed25519PrivateKey.from_private_bytes(b64url_decode(jwk["d"]))


def export_public(key: PrivateKey) -> dict[str, str]:
    """The public JWK of a private key, with its required members only."""
    public = key.public_key()
    if isinstance(public, ec.EllipticCurvePublicKey):
        point = public.public_numbers()
        x, y = (b64url(number.to_bytes(32, "big")) for number in (point.x, point.y))
        return {"kty": "EC", "crv": "P-256", "x": x, "y": y}
    if isinstance(public, rsa.RSAPublicKey):
        numbers = public.public_numbers()
        n, e = (b64url(number.to_bytes((number.bit_length() + 7) // 8, "big")) for number in (numbers.n, numbers.e))
        return {"kty": "RSA", "n": n, "e": e}
    return {"kty": "OKP", "crv": "Ed25519", "x": b64url(public.public_bytes_raw())}


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """The SHA-256 thumbprint of a key: RFC 7638, section 3."""
    members = {name: jwk[name] for name in _REQUIRED[jwk["kty"]]}
    return b64url(hashlib.sha256(json.dumps(members, separators=(",", ":")).encode()).digest())


def algorithm_for(key: PrivateKey) -> str:
    """The algorithm that a key signs with, unless another one is chosen."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return "ES256"
    return "PS256" if isinstance(key, rsa.RSAPrivateKey) else "EdDSA"


def fits(alg: Any, key: PublicKey | PrivateKey) -> bool:
    """Whether the key is of the type that the algorithm needs."""
    return isinstance(alg, str) and isinstance(key, _KEY_TYPES.get(alg, ()))


def _number(text: str) -> int:
    if len(text) > RSA_BITS[1] // 4:
        raise ValueError("a number of the key is too long")
    return int.from_bytes(b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True), "big")


# --- signatures

_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
_ECDSA = ec.ECDSA(hashes.SHA256())


def _verify(alg: str, key: PublicKey, signature: bytes, content: bytes) -> bool:
    if not fits(alg, key):
        return False
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            if len(signature) != 64:
                return False
            r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
            key.verify(encode_dss_signature(r, s), content, _ECDSA)
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, content, _PSS if alg == "PS256" else padding.PKCS1v15(), hashes.SHA256())
        else:
            key.verify(signature, content)
    except InvalidSignature:
        return False
    return True


def _sign(alg: str, key: PrivateKey, content: bytes) -> bytes:
    if not fits(alg, key):
        raise ValueError(f"the key cannot sign with {alg}")
    if isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = decode_dss_signature(key.sign(content, _ECDSA))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, _PSS if alg == "PS256" else padding.PKCS1v15(), hashes.SHA256())
    return key.sign(content)
