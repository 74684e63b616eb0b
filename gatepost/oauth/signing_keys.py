"""Signing keys: announced before they sign, retired after, and the ring that signs with them.

One active and one announced key per algorithm, service-wide. The plan is a pure function of the keys and the time:
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

from gatepost.core import ids
from gatepost.core.jose import MAX_BYTES, Unreadable, b64, unb64
from gatepost.core.secrets import Box

ALGORITHMS: Final = ("ES256", "RS256", "EdDSA")
ANNOUNCE: Final = timedelta(hours=24)
ROTATE: Final = timedelta(days=90)
LONGEST_TOKEN: Final = timedelta(hours=24)
JWKS_MAX_AGE: Final = timedelta(minutes=15)

Status = Literal["announced", "active", "retired", "revoked", "purged"]
PUBLISHED: Final = ("announced", "active", "retired")


class SigningKey(msgspec.Struct, frozen=True):
    id: str
    alg: str
    status: Status
    public: dict[str, Any]
    announced_at: datetime
    activated_at: datetime | None = None
    retired_at: datetime | None = None
    purge_at: datetime | None = None


class Wrapped(NamedTuple):
    """A key as it is stored: the private part encrypted, and gone once the key no longer signs."""

    key: SigningKey
    private: bytes | None


class Change(NamedTuple):
    """One step of one key: what to write, and the ledger's word for it."""

    key: SigningKey
    event: str | None
    private: bytes | None = None  # PKCS#8, for a new key only
    wipe: bool = False


def plan(keys: Sequence[SigningKey], at: datetime, *, rotate: frozenset[str] = frozenset()) -> list[Change]:
    """What is due now. `rotate` names algorithms to rotate at once, whether or not the next key was announced."""
    changes: list[Change] = []
    for alg in ALGORITHMS:
        mine = [key for key in keys if key.alg == alg]
        active = next((key for key in mine if key.status == "active"), None)
        announced = next((key for key in mine if key.status == "announced"), None)
        changes += [_purge(key) for key in mine if key.status == "retired" and key.purge_at and key.purge_at <= at]
        if active is None or _is_due(active, announced, at) or alg in rotate:
            taking_over = announced or (generated := generate(alg, at)).key
            private = None if announced else generated.private
            if private is not None:
                changes.append(Change(taking_over, "oauth.key.announced", private))
            activated = msgspec.structs.replace(taking_over, status="active", activated_at=at)
            changes.append(Change(activated, "oauth.key.activated"))
            if active is not None:
                changes.append(_retire(active, at))
            announced = None
        if announced is None:
            following = generate(alg, at)
            changes.append(Change(following.key, "oauth.key.announced", following.private))
    return changes


def revoke(keys: Sequence[SigningKey], key: SigningKey, at: datetime) -> list[Change]:
    """A compromised key leaves JWKS at once; what it signed no longer verifies, and another takes its place."""
    revoked = Change(
        msgspec.structs.replace(key, status="revoked", retired_at=key.retired_at or at), "oauth.key.revoked", wipe=True
    )
    return [revoked, *plan([each for each in keys if each.id != key.id], at)]


def revoke_all(keys: Sequence[SigningKey], at: datetime) -> list[Change]:
    """Every key leaves JWKS at once, and new ones take their place."""
    published = [key for key in keys if key.status in PUBLISHED]
    revoked = [msgspec.structs.replace(key, status="revoked", retired_at=key.retired_at or at) for key in published]
    return [*(Change(key, "oauth.key.revoked", wipe=True) for key in revoked), *plan([], at)]


def _is_due(active: SigningKey, announced: SigningKey | None, at: datetime) -> bool:
    if announced is None or active.activated_at is None:
        return False
    return active.activated_at + ROTATE <= at and announced.announced_at + ANNOUNCE <= at


def _retire(key: SigningKey, at: datetime) -> Change:
    retired = msgspec.structs.replace(key, status="retired", retired_at=at, purge_at=at + LONGEST_TOKEN + JWKS_MAX_AGE)
    return Change(retired, "oauth.key.retired", wipe=True)


def _purge(key: SigningKey) -> Change:
    return Change(msgspec.structs.replace(key, status="purged"), None, wipe=True)


class Generated(NamedTuple):
    key: SigningKey
    private: bytes


def generate(alg: str, at: datetime) -> Generated:
    private: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
    public: dict[str, Any]
    match alg:
        case "ES256":
            private = ec.generate_private_key(ec.SECP256R1())
            public = dict(ECKey.import_key(_pem(private)).as_dict(private=False))
        case "RS256":
            private = rsa.generate_private_key(65537, 2048)
            public = dict(RSAKey.import_key(_pem(private)).as_dict(private=False))
        case "EdDSA":
            private = ed25519.Ed25519PrivateKey.generate()
            public = dict(OKPKey.import_key(_pem(private)).as_dict(private=False))
        case _:
            raise ValueError(alg)
    key_id = ids.new("key")
    public |= {"kid": key_id, "alg": alg, "use": "sig"}
    pkcs8 = private.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Generated(SigningKey(key_id, alg, "announced", public, at), pkcs8)


def _pem(private: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def jwks(keys: Iterable[SigningKey]) -> dict[str, Any]:
    """The set that verifiers read: RFC 7517, section 5."""
    return {"keys": [key.public for key in keys if key.status in PUBLISHED]}


class Ring:
    """Signs. Private keys are decrypted at first use and stay in memory."""

    __slots__ = ("_box", "_headers", "_public", "_signers")

    def __init__(self, box: Box) -> None:
        self._box = box
        self._signers: dict[str, Callable[[bytes], bytes]] = {}
        self._public: dict[str, Any] = {}
        self._headers: dict[tuple[str, str], bytes] = {}

    def take(self, wrapped: Wrapped) -> None:
        """Make ready to sign with this key; called while its private part is at hand."""
        if wrapped.key.id not in self._signers and wrapped.private is not None:
            der = self._box.open(wrapped.private, wrapped.key.id)
            self._signers[wrapped.key.id] = _signer(serialization.load_der_private_key(der, None))

    def sign(self, key: SigningKey, claims: bytes, typ: str) -> bytes:
        """A compact JWS (RFC 7515, section 7.1) of the claims given as JSON."""
        signed = self._head(key, typ) + b"." + b64(claims)
        return signed + b"." + b64(self._signers[key.id](signed))

    def _head(self, key: SigningKey, typ: str) -> bytes:
        head = self._headers.get((key.id, typ))
        if head is None:
            head = b64(msgspec.json.encode({"alg": key.alg, "typ": typ, "kid": key.id}))
            self._headers[(key.id, typ)] = head
        return head

    def read(self, token: str, published: Iterable[SigningKey], typ: str) -> dict[str, Any]:
        """The claims of a token of our own. Its header must be one that we write: nothing in it is believed."""
        head, _, rest = token.partition(".")
        payload, _, signature = rest.partition(".")
        key = next((each for each in published if self._head(each, typ).decode() == head), None)
        if key is None or len(token) > MAX_BYTES or not token.isascii():
            raise Unreadable("not a token of ours")
        if key.id not in self._public:
            self._public[key.id] = _public(key)
        try:
            raw = unb64(signature)
            _verify(self._public[key.id], raw, f"{head}.{payload}".encode())
            claims = msgspec.json.decode(unb64(payload))
        except (InvalidSignature, ValueError, RecursionError) as error:
            raise Unreadable(type(error).__name__) from None
        if not isinstance(claims, dict):
            raise Unreadable("the claims are not an object")
        return claims


def _public(key: SigningKey) -> Any:
    kinds: dict[str, type[ECKey | RSAKey | OKPKey]] = {"EC": ECKey, "RSA": RSAKey, "OKP": OKPKey}
    return kinds[key.public["kty"]].import_key(key.public).public_key


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
    """What signs with this key."""
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
