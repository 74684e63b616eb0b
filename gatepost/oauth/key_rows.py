"""The rows of signing keys."""

import msgspec

from gatepost.core import ids
from gatepost.oauth.signing_keys import PUBLISHED, SigningKey, Wrapped
from gatepost.store.transaction import Tx

_key = msgspec.json.Decoder(SigningKey)
_encode = msgspec.json.Encoder().encode


def lock(tx: Tx) -> None:
    tx.rows("lock_keys")


def load(tx: Tx) -> list[Wrapped]:
    return tx.cached("keys", lambda: load_uncached(tx)) or []


def load_published(tx: Tx) -> list[SigningKey]:
    """The keys in the JWKS: those that verify tokens."""
    return [wrapped.key for wrapped in load(tx) if wrapped.key.status in PUBLISHED]


def load_uncached(tx: Tx) -> list[Wrapped]:
    return [Wrapped(_key.decode(document), private) for document, private in tx.rows("signing_keys")]


def add(tx: Tx, key: SigningKey, private: bytes) -> None:
    document = _encode(key).decode()
    tx.write("insert_signing_key", id=ids.raw(key.id), document=document, private=private)
    tx.change("keys")


def update(tx: Tx, key: SigningKey, *, wipe: bool) -> None:
    statement = "wipe_signing_key" if wipe else "update_signing_key"
    tx.write(statement, id=ids.raw(key.id), document=_encode(key).decode())
    tx.change("keys")
