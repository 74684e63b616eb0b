"""Secrets: how they are made, hidden, hashed and encrypted. The only file that throws dice.

Two layers of keys. The *master keys* come from a file or the environment and are never stored. They wrap the
*server keys*, a handful of rows that hash client secrets, seal the ledger and encrypt everything else at rest.
So changing the master key rewrites a handful of rows, whatever the size of the store.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets as dice
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gatepost.core.errors import BadSetting

_KEY_BYTES: Final = 32
_KEY_ID_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_FORMAT: Final = b"\x01"

SERVER_KEYS: Final = ("hash", "seal", "data")


class Secret:
    """A text or some bytes that never print. `reveal()` is the only way to the value, and easy to search for."""

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


_LIKE_OURS = re.compile(r"(gps_|gpr_|whsec_|eyJ)[A-Za-z0-9+/=._-]{20,}")  # and anybody's JWT


def masked(text: str) -> str:
    """What somebody sent, for the record: a secret or token in it, in whatever place, is not repeated."""
    return _LIKE_OURS.sub(r"\1***", text)


def random_bytes(count: int) -> bytes:
    return dice.token_bytes(count)


def random_text() -> str:
    """256 random bits for a URL or a cookie."""
    return dice.token_urlsafe(_KEY_BYTES)


def new_client_secret() -> Secret:
    return Secret("gps_" + dice.token_urlsafe(_KEY_BYTES))


def mac(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA256. `hmac.digest` gives up the interpreter lock, and under load it is long until it has it again."""
    made = _keyed(key).copy()
    made.update(message)
    return made.digest()


@lru_cache(maxsize=1024)
def _keyed(key: bytes) -> hmac.HMAC:
    return hmac.new(key, digestmod="sha256")


def digest(key: bytes, value: str) -> bytes:
    """HMAC-SHA256, the stored form of a secret: useless without the server key."""
    return mac(key, value.encode("utf-8", "surrogatepass"))


def same(one: bytes, other: bytes) -> bool:
    return hmac.compare_digest(one, other)


class Box:
    """Encrypts rows with AES-256-GCM. A sealed value names its key; the row's identity is associated data.

    Moving a sealed value to another row, or cutting a bit, makes it unreadable.
    """

    __slots__ = ("_ciphers", "_first")

    def __init__(self, keys: list[bytes]) -> None:
        self._ciphers = {key_id(key): AESGCM(key) for key in keys}
        self._first = key_id(keys[0])

    @property
    def first(self) -> bytes:
        """The id of the key that new values are encrypted with."""
        return self._first

    def close(self, value: bytes, row: str) -> bytes:
        nonce = dice.token_bytes(_NONCE_BYTES)
        head = _FORMAT + self._first
        return head + nonce + self._ciphers[self._first].encrypt(nonce, value, head + row.encode())

    def open(self, sealed: bytes, row: str) -> bytes:
        head, nonce = sealed[:5], sealed[5:17]
        cipher = self._ciphers.get(head[1:])
        if head[:1] != _FORMAT or cipher is None:
            raise WrongKey(f"{row} is encrypted under key {head[1:].hex()}, which is not among the keys given")
        try:
            return cipher.decrypt(nonce, sealed[17:], head + row.encode())
        except (InvalidTag, ValueError):  # ValueError: cut off inside the nonce
            raise WrongKey(f"{row} does not decrypt: it was altered or moved") from None

    def closed_by(self, sealed: bytes) -> bytes:
        return sealed[1 : 1 + _KEY_ID_BYTES]


class WrongKey(BadSetting):
    """A stored secret that the keys at hand do not open."""


def key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"gatepost key id" + key).digest()[:_KEY_ID_BYTES]


def new_master_key() -> str:
    return base64.b64encode(dice.token_bytes(_KEY_BYTES)).decode()


def parse_master_keys(text: str) -> list[bytes]:
    """One key, or several separated by commas or lines: the first encrypts, all decrypt."""
    words = text.replace(",", "\n").split()
    if not words:
        raise BadSetting("the master key is empty; make one with: openssl rand -base64 32")
    return [_parse_master_key(word) for word in words]


def _parse_master_key(word: str) -> bytes:
    try:
        key = base64.b64decode(word, validate=True)
    except (binascii.Error, ValueError):
        raise BadSetting("the master key is not base64; make one with: openssl rand -base64 32") from None
    if len(key) != _KEY_BYTES:
        raise BadSetting(f"the master key has {len(key)} bytes, not 32; make one with: openssl rand -base64 32")
    if len(set(key)) < 8:
        raise BadSetting("the master key is not random; make one with: openssl rand -base64 32")
    return key


class ServerKeys:
    """The unwrapped server keys, held by every process that runs the service."""

    __slots__ = ("checkpoint", "data", "hash", "instance", "nonce", "refresh", "seal")

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self.hash = keys["hash"]
        self.refresh = mac(self.hash, b"gatepost refresh tokens")
        self.nonce = mac(self.hash, b"gatepost dpop nonces")
        self.seal = keys["seal"]
        self.instance = mac(self.hash, b"gatepost instance")[:16].hex()  # public: tells services on two stores apart
        self.checkpoint = mac(self.seal, b"gatepost checkpoints")  # the seed of an Ed25519 key
        self.data = Box([keys["data"]])

    def __repr__(self) -> str:
        return "ServerKeys(***)"
