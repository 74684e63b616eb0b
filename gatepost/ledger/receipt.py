"""Receipts: proofs that an entry is in a ledger, which are checked with a public key alone. No I/O."""

from typing import Any

import msgspec

from gatepost.core import ids
from gatepost.core.errors import BadSetting
from gatepost.ledger import chain, merkle, seal
from gatepost.ledger.checkpoint import Checkpoint, Verifier, open_note, parse_proof
from gatepost.ledger.entries import Entry


class _Extra(msgspec.Struct, forbid_unknown_fields=True):
    """What a leaf is computed from. With `blinding`, nobody can guess the contents of a leaf from its hash."""

    entry: dict[str, Any]
    blinding: str


def describe(key: bytes, entry: Entry) -> bytes:
    fields = entry._asdict() | {"id": entry.name, "data_hash": entry.data_hash.hex() if entry.data_hash else None}
    return msgspec.json.encode(_Extra(fields, chain.blind(key, entry.id).hex()))


class Receipt(msgspec.Struct, frozen=True):
    entry: Entry
    number: int  # of the leaf
    checkpoint: Checkpoint


def check(text: str, key: Verifier) -> Receipt:
    """The entry of a proof. Raises unless the proof is valid."""
    proof = parse_proof(text)
    found = open_note(proof.note, key)
    entry, blinding = _read(proof.extra)
    if not found.origin.endswith(f"/accounts/{entry.account}"):
        raise BadSetting(f"the entry is of {entry.account}, the checkpoint of {found.origin}")
    leaf = chain.tree_leaf(blinding, seal.leaf(entry).hash)
    if merkle.root_of(proof.leaf, found.size, leaf, proof.path) != found.root:
        raise BadSetting("the proof does not lead to the checkpoint's root: the entry or the proof was altered")
    return Receipt(entry, proof.leaf, found)


def _read(text: bytes) -> tuple[Entry, bytes]:
    try:
        found = msgspec.json.decode(text, type=_Extra)
        fields = dict(found.entry)
        raw_id = ids.parse("evt", fields.pop("id"))
        data_hash = fields.pop("data_hash")
        if raw_id is None or set(fields) != set(Entry._fields) - {"id", "data_hash"}:
            raise ValueError
        entry = Entry(id=raw_id, data_hash=bytes.fromhex(data_hash) if data_hash else None, **fields)
        return entry, bytes.fromhex(found.blinding)
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError):
        raise BadSetting("this is no proof of a ledger entry: what it says about the entry is malformed") from None
