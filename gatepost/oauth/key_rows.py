"""The rows of signing keys."""

import msgspec

from gatepost.core import ids
from gatepost.oauth.signing_keys import PUBLISHED, SigningKey, StoredKey
from gatepost.store.transaction import Tx

_key = msgspec.json.Decoder(SigningKey)
_encode = msgspec.json.Encoder().encode


def lock(tx: Tx) -> None:
    """Wait until no other unit changes the keys."""
    tx.rows("lock_keys")


def load(tx: Tx) -> list[StoredKey]:
    """All keys, oldest first."""
    return tx.cached("keys", lambda: load_uncached(tx)) or []


def load_published(tx: Tx) -> list[SigningKey]:
    """The keys in the JWKS: those that verify tokens."""
    return [stored.key for stored in load(tx) if stored.key.status in PUBLISHED]


def load_uncached(tx: Tx) -> list[StoredKey]:
    """All keys, for a unit that is about to change them."""
    return [StoredKey(_key.decode(document), private) for document, private in tx.rows("signing_keys")]


def add(tx: Tx, key: SigningKey, private: bytes) -> None:
    """Store a new key with its encrypted private part."""
    document = _encode(key).decode()
    tx.write("insert_signing_key", id=ids.raw(key.id), document=document, private=private)
    tx.change("keys")


def update(tx: Tx, key: SigningKey, *, wipe: bool) -> None:
    """Store a changed key. With `wipe`, its private part is deleted."""
    statement = "wipe_signing_key" if wipe else "update_signing_key"
    tx.write(statement, id=ids.raw(key.id), document=_encode(key).decode())
    tx.change("keys")
