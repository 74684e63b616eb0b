"""Receipts: proofs that an entry is in a ledger. Checking one needs only the public key. No I/O."""

from typing import Any

import msgspec

from gatepost.core import ids
from gatepost.core.errors import Altered, BadSetting
from gatepost.ledger import chain, merkle, seal
from gatepost.ledger.checkpoint import Checkpoint, Verifier, open_note, parse_proof
from gatepost.ledger.entries import Entry


class _Extra(msgspec.Struct, forbid_unknown_fields=True):
    """What the hash of a leaf is computed from."""

    entry: dict[str, Any]
    blinding: str


def extra_data(key: bytes, entry: Entry) -> bytes:
    """The extra data of a proof: everything that the hash of the entry's leaf is computed from."""
    fields = entry._asdict() | {"id": entry.name, "data_hash": entry.data_hash.hex() if entry.data_hash else None}
    return msgspec.json.encode(_Extra(fields, chain.blinding(key, entry.id).hex()))


class Receipt(msgspec.Struct, frozen=True):
    """An entry that was proved to be in a ledger, the index of its leaf, and the checkpoint that proves it."""

    entry: Entry
    number: int
    checkpoint: Checkpoint


def check(text: str, key: Verifier) -> Receipt:
    """The receipt that a proof stands for. Raises `BadSetting` unless the proof is valid."""
    proof = parse_proof(text)
    checkpoint = open_note(proof.note, key)
    entry, blinding = _parse_extra_data(proof.extra)
    if not checkpoint.origin.endswith(f"/accounts/{entry.account}"):
        raise BadSetting(f"the entry belongs to {entry.account}, but the checkpoint to {checkpoint.origin}")
    leaf = merkle.leaf_hash(blinding + seal.leaf(entry).hash)
    if merkle.root_of(proof.leaf, checkpoint.size, leaf, proof.path) != checkpoint.root:
        raise Altered("the proof does not lead to the checkpoint's root: the entry or the proof was altered")
    return Receipt(entry, proof.leaf, checkpoint)


def _parse_extra_data(text: bytes) -> tuple[Entry, bytes]:
    try:
        extra = msgspec.json.decode(text, type=_Extra)
        fields = dict(extra.entry)
        raw_id = ids.parse("evt", fields.pop("id"))
        data_hash = fields.pop("data_hash")
        if raw_id is None or set(fields) != set(Entry._fields) - {"id", "data_hash"}:
            raise ValueError
        entry = Entry(id=raw_id, data_hash=bytes.fromhex(data_hash) if data_hash else None, **fields)
        return entry, bytes.fromhex(extra.blinding)
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError):
        raise BadSetting("this is not a proof of a ledger entry: its description of the entry is malformed") from None
