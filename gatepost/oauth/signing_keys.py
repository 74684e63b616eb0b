"""Signing keys: their life cycle, and the key ring that signs and verifies with them.

The service has one active and one announced key per algorithm. The plan is a pure function of the keys and the time:
    announced ──24 h at least──▶ active ──90 d──▶ retired ──until its last token has expired──▶ purged
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils
from joserfc.jwk import ECKey, OKPKey, RSAKey
from msgspec.structs import replace

from gatepost.core import ids
from gatepost.core.jose import MAX_BYTES, InvalidJwt, b64, unb64
from gatepost.core.secrets import Box

ALGORITHMS: Final[dict[str, type[ECKey | RSAKey | OKPKey]]] = {"ES256": ECKey, "RS256": RSAKey, "EdDSA": OKPKey}
ANNOUNCE: Final = timedelta(hours=24)
ROTATE: Final = timedelta(days=90)
LONGEST_TOKEN: Final = timedelta(hours=24)
JWKS_MAX_AGE: Final = timedelta(minutes=15)
_SIGNATURE_BYTES: Final = {"ES256": 86, "RS256": 342, "EdDSA": 86}  # in base64url

Status = Literal["announced", "active", "retired", "revoked", "purged"]
PUBLISHED: Final = ("announced", "active", "retired")


class SigningKey(msgspec.Struct, frozen=True):
    """A signing key without its private part."""

    id: str
    alg: str
    status: Status
    public: dict[str, Any]
    announced_at: datetime
    activated_at: datetime | None = None
    retired_at: datetime | None = None
    purge_at: datetime | None = None


class StoredKey(NamedTuple):
    """A key as it is stored: the private part is encrypted, and deleted once the key no longer signs."""

    key: SigningKey
    private: bytes | None


class GeneratedKey(NamedTuple):
    """A new key and its private part, as PKCS#8 in DER."""

    key: SigningKey
    private: bytes


class KeyChange(NamedTuple):
    """A key as it is written, and the type of the ledger entry that records the change."""

    key: SigningKey
    event: str | None
    private: bytes | None = None  # PKCS#8, for a new key only
    wipe: bool = False  # whether the stored private part is deleted


def plan(keys: Sequence[SigningKey], at: datetime, *, rotate: frozenset[str] = frozenset()) -> list[KeyChange]:
    """The changes that are due. `rotate` names algorithms to rotate at once, even if no next key was announced."""
    changes: list[KeyChange] = []
    for alg in ALGORITHMS:
        of_alg = [key for key in keys if key.alg == alg]
        active = next((key for key in of_alg if key.status == "active"), None)
        announced = next((key for key in of_alg if key.status == "announced"), None)
        expired = [key for key in of_alg if key.status == "retired" and key.purge_at and key.purge_at <= at]
        changes += [KeyChange(replace(key, status="purged"), None, wipe=True) for key in expired]
        if active is None or _is_due(active, announced, at) or alg in rotate:
            if announced is None:
                changes.append(_announce(alg, at))
                announced = changes[-1].key
            changes.append(KeyChange(replace(announced, status="active", activated_at=at), "oauth.key.activated"))
            if active is not None:
                purge_at = at + LONGEST_TOKEN + JWKS_MAX_AGE
                retired = replace(active, status="retired", retired_at=at, purge_at=purge_at)
                changes.append(KeyChange(retired, "oauth.key.retired", wipe=True))
            announced = None
        if announced is None:
            changes.append(_announce(alg, at))
    return changes


def revoke(keys: Sequence[SigningKey], compromised: Sequence[SigningKey], at: datetime) -> list[KeyChange]:
    """Remove compromised keys from the JWKS at once, so that their tokens no longer verify, and replace them."""
    revoked = [replace(key, status="revoked", retired_at=key.retired_at or at) for key in compromised]
    changes = [KeyChange(key, "oauth.key.revoked", wipe=True) for key in revoked]
    return changes + plan([key for key in keys if key not in compromised], at)


def _is_due(active: SigningKey, announced: SigningKey | None, at: datetime) -> bool:
    if announced is None or active.activated_at is None:
        return False
    return active.activated_at + ROTATE <= at and announced.announced_at + ANNOUNCE <= at


def _announce(alg: str, at: datetime) -> KeyChange:
    generated = generate(alg, at)
    return KeyChange(generated.key, "oauth.key.announced", generated.private)


def generate(alg: str, at: datetime) -> GeneratedKey:
    """A new key, announced at this instant."""
    private: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
    match alg:
        case "ES256":
            private = ec.generate_private_key(ec.SECP256R1())
        case "RS256":
            private = rsa.generate_private_key(65537, 2048)
        case "EdDSA":
            private = ed25519.Ed25519PrivateKey.generate()
        case _:
            raise ValueError(alg)
    pkcs8 = private.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key_id = ids.new("key")
    public = dict(ALGORITHMS[alg].import_key(pkcs8).as_dict(private=False))
    return GeneratedKey(
        SigningKey(key_id, alg, "announced", public | {"kid": key_id, "alg": alg, "use": "sig"}, at), pkcs8
    )


def jwks(keys: Iterable[SigningKey]) -> dict[str, Any]:
    """The key set that verifiers fetch: RFC 7517, section 5."""
    return {"keys": [key.public for key in keys if key.status in PUBLISHED]}


class KeyRing:
    """Signs and verifies tokens. Private keys are decrypted at first use and stay in memory."""

    __slots__ = ("_box", "_headers", "_public", "_signers")

    def __init__(self, box: Box) -> None:
        self._box = box
        self._signers: dict[str, Callable[[bytes], bytes]] = {}
        self._public: dict[str, Any] = {}
        self._headers: dict[tuple[str, str], bytes] = {}

    def load(self, stored: StoredKey) -> None:
        """Decrypt the private part of a key, unless it was loaded before."""
        if stored.key.id not in self._signers and stored.private is not None:
            der = self._box.decrypt(stored.private, stored.key.id)
            self._signers[stored.key.id] = _signer(serialization.load_der_private_key(der, None))

    def sign(self, key: SigningKey, claims: bytes, typ: str) -> bytes:
        """A compact JWS (RFC 7515, section 7.1) of the claims, which are given as JSON."""
        signed = self._header(key, typ) + b"." + b64(claims)
        return signed + b"." + b64(self._signers[key.id](signed))

    def max_claims(self, key: SigningKey, typ: str, size: int) -> int:
        """How many bytes of claims a compact JWS of at most `size` bytes can have."""
        return (size - len(self._header(key, typ)) - _SIGNATURE_BYTES[key.alg] - len("..")) * 3 // 4

    def _header(self, key: SigningKey, typ: str) -> bytes:
        header = self._headers.get((key.id, typ))
        if header is None:
            header = b64(msgspec.json.encode({"alg": key.alg, "typ": typ, "kid": key.id}))
            self._headers[(key.id, typ)] = header
        return header

    def read(self, token: str, published: Iterable[SigningKey], typ: str) -> dict[str, Any]:
        """The claims of a token that this service signed. Its header must be exactly one that `sign` writes."""
        header, _, rest = token.partition(".")
        payload, _, signature = rest.partition(".")
        key = next((key for key in published if self._header(key, typ).decode() == header), None)
        if key is None or len(token) > MAX_BYTES or not token.isascii():
            raise InvalidJwt("not a token of this service")
        if key.id not in self._public:
            self._public[key.id] = ALGORITHMS[key.alg].import_key(key.public).public_key
        try:
            _verify(self._public[key.id], unb64(signature), f"{header}.{payload}".encode())
            claims = msgspec.json.decode(unb64(payload))
        except (InvalidSignature, ValueError, RecursionError) as error:
            raise InvalidJwt(type(error).__name__) from None
        if not isinstance(claims, dict):
            raise InvalidJwt("the claims are not an object")
        return claims


def _verify(public: Any, signature: bytes, signed: bytes) -> None:
    match public:
        case ec.EllipticCurvePublicKey():
            if len(signature) != 64:
                raise InvalidSignature
            first, second = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
            public.verify(utils.encode_dss_signature(first, second), signed, _ES256)
        case rsa.RSAPublicKey():
            public.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
        case ed25519.Ed25519PublicKey():
            public.verify(signature, signed)
        case _:
            raise TypeError(type(public).__name__)


_ES256 = ec.ECDSA(hashes.SHA256())


def _signer(private: Any) -> Callable[[bytes], bytes]:
    """The function that signs with this key."""
    match private:
        case ec.EllipticCurvePrivateKey():
            return partial(_sign_es256, private)
        case rsa.RSAPrivateKey():
            return lambda signed: private.sign(signed, padding.PKCS1v15(), hashes.SHA256())
        case ed25519.Ed25519PrivateKey():
            return private.sign
        case _:
            raise TypeError(type(private).__name__)


def _sign_es256(private: ec.EllipticCurvePrivateKey, signed: bytes) -> bytes:
    first, second = utils.decode_dss_signature(private.sign(signed, _ES256))
    return first.to_bytes(32, "big") + second.to_bytes(32, "big")
