"""Secrets: generation, hashing and encryption. With `ids`, the only file that uses randomness.

There are two layers of keys. The *master keys* come from a file or the environment and are never stored. They wrap the
*server keys*, a few rows whose keys hash client secrets, seal the ledger and encrypt everything else at rest. So
changing the master key rewrites only a few rows, whatever the size of the store.
"""

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from gatepost.core.errors import BadSetting

_KEY_BYTES: Final = 32
_KEY_ID_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_FORMAT: Final = b"\x01"

SERVER_KEYS: Final = ("hash", "seal", "data")


class Secret:
    """A text that is never printed by accident. Only `reveal()` returns the value."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __str__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return "***"


_SECRETS = re.compile(r"(gps_|gpr_|gpo_|whsec_|eyJ)[A-Za-z0-9+/=._-]{20,}")  # eyJ: any JWT


def mask_secrets(text: str) -> str:
    """Return text from a caller, for the ledger, with all secrets and tokens in it replaced."""
    return _SECRETS.sub(r"\1***", text)


def random_bytes(count: int) -> bytes:
    """Return this many random bytes."""
    return secrets.token_bytes(count)


def random_text() -> str:
    """Return 256 random bits for a URL or a cookie."""
    return secrets.token_urlsafe(_KEY_BYTES)


def new_client_secret() -> Secret:
    """Generate a client secret."""
    return Secret("gps_" + secrets.token_urlsafe(_KEY_BYTES))


def mac(key: bytes, message: bytes) -> bytes:
    """Return the HMAC-SHA256. `hmac.digest` releases the interpreter lock, and under load waits long to get it back."""
    code = _keyed(key).copy()
    code.update(message)
    return code.finalize()


@lru_cache(maxsize=1024)
def _keyed(key: bytes) -> HMAC:
    return HMAC(key, SHA256())


def digest(key: bytes, value: str) -> bytes:
    """Return the stored form of a secret: its HMAC-SHA256, which is useless without the server key."""
    return mac(key, value.encode("utf-8", "surrogatepass"))


class Box:
    """Encrypts values with AES-256-GCM. A ciphertext names its key, and the name of its row is associated data.

    A ciphertext that is altered or moved to another row cannot be decrypted.
    """

    __slots__ = ("_ciphers", "current_key_id")

    def __init__(self, keys: list[bytes]) -> None:
        self._ciphers = {key_id(key): AESGCM(key) for key in keys}
        self.current_key_id = key_id(keys[0])  # of the key that encrypts new values

    def encrypt(self, value: bytes, row: str) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        head = _FORMAT + self.current_key_id
        return head + nonce + self._ciphers[self.current_key_id].encrypt(nonce, value, head + row.encode())

    def decrypt(self, ciphertext: bytes, row: str) -> bytes:
        head, nonce = ciphertext[:5], ciphertext[5:17]
        cipher = self._ciphers.get(head[1:])
        if head[:1] != _FORMAT or cipher is None:
            raise WrongKey(f"{row} is encrypted under key {head[1:].hex()}, which is not among the keys given")
        try:
            return cipher.decrypt(nonce, ciphertext[17:], head + row.encode())
        except (InvalidTag, ValueError):  # ValueError: truncated inside the nonce
            raise WrongKey(f"{row} does not decrypt: it was altered or moved") from None

    def key_id_of(self, ciphertext: bytes) -> bytes:
        """Return the id of the key that a value is encrypted with."""
        return ciphertext[1 : 1 + _KEY_ID_BYTES]


class WrongKey(BadSetting):
    """None of the given keys decrypts a stored secret."""


def key_id(key: bytes) -> bytes:
    """Return the id of a key, which reveals nothing about it."""
    return hashlib.sha256(b"gatepost key id" + key).digest()[:_KEY_ID_BYTES]


def new_master_key() -> str:
    """Generate a master key, as base64."""
    return base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def parse_master_keys(text: str) -> list[bytes]:
    """Parse one key, or several separated by commas or lines. The first key encrypts; all of them decrypt."""
    words = text.replace(",", "\n").split()
    if not words:
        raise BadSetting("the master key is empty; create one with: openssl rand -base64 32")
    return [_parse_master_key(word) for word in words]


def _parse_master_key(word: str) -> bytes:
    try:
        key = base64.b64decode(word, validate=True)
    except (binascii.Error, ValueError):
        raise BadSetting("the master key is not base64; create one with: openssl rand -base64 32") from None
    if len(key) != _KEY_BYTES:
        raise BadSetting(f"the master key has {len(key)} bytes, not 32; create one with: openssl rand -base64 32")
    if len(set(key)) < 8:
        raise BadSetting("the master key is not random; create one with: openssl rand -base64 32")
    return key


class ServerKeys:
    """The unwrapped server keys, which every process of the service holds."""

    __slots__ = ("checkpoint", "data", "hash", "instance", "nonce", "operator", "refresh", "seal")

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self.hash = keys["hash"]
        self.refresh = mac(self.hash, b"gatepost refresh tokens")
        self.nonce = mac(self.hash, b"gatepost dpop nonces")
        self.operator = mac(self.hash, b"gatepost operator tokens")
        self.seal = keys["seal"]
        self.instance = mac(self.hash, b"gatepost instance")[:16].hex()  # public: identifies the store
        self.checkpoint = mac(self.seal, b"gatepost checkpoints")  # the seed of an Ed25519 key
        self.data = Box([keys["data"]])

    def __repr__(self) -> str:
        return "ServerKeys(***)"
