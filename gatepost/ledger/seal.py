"""Seals: a chain of HMACs over batches of entries, one chain per account, that shows any later change.

A seal has a *leaf* for each of its entries: the id, the days for which the entry is kept, and a hash of the entry and
of its data. So entries can be pruned without breaking the chain, and early pruning is detected.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import NamedTuple

import msgspec

from gatepost.core import clock, ids
from gatepost.ledger.entries import Entry, data_hash

START = b"\0" * 32
BATCH = 500
LEAF = 50  # bytes


class Leaf(NamedTuple):
    """What a seal contains of one entry."""

    id: bytes
    keep_days: int
    hash: bytes

    def kept_until(self) -> int:
        """The time in milliseconds before which the service does not delete the entry."""
        return clock.milliseconds(ids.made_at(self.id) + timedelta(days=self.keep_days))


class Seal(NamedTuple):
    """One link of a chain: its packed leaves, and an HMAC over them and the previous seal."""

    number: int
    at: int
    leaves: bytes
    mac: bytes


class Anchor(NamedTuple):
    """The last seal that pruning deleted, from which verification starts. It cannot be forged without the key."""

    number: int
    mac: bytes
    proof: bytes


class Head(NamedTuple):
    """The end of a chain. An exported head shows later that nothing was cut off."""

    number: int
    mac: bytes

    def __str__(self) -> str:
        return f"{self.number}:{self.mac.hex()}"


def parse_head(text: str) -> Head | None:
    """Parse an exported head. None if it is malformed."""
    match = re.fullmatch(r"(\d{1,18}):([0-9a-f]{64})", text.strip().lower(), re.ASCII)
    return Head(int(match[1]), bytes.fromhex(match[2])) if match else None


def is_entry_id(raw_id: object) -> bool:
    """Whether this can be the id of an entry, which is always a UUIDv7 (RFC 9562, section 5.7).

    No other id is sealed: leaves have a fixed length, and a leaf whose id starts with zeros has another meaning.
    """
    return ids.is_raw(raw_id) and raw_id[6] >> 4 == 7 and raw_id[8] >> 6 == 2


def leaf(entry: Entry) -> Leaf:
    """The leaf of an entry. Its hash covers every column of the entry, but not the entry's deliveries."""
    fields = (
        entry.account, entry.id.hex(), entry.type, entry.at, entry.actor, entry.subject, entry.matched,
        entry.keep_days, entry.request, entry.source, data_hash(entry).hex(),
    )  # fmt: skip
    return Leaf(entry.id, entry.keep_days, hashlib.sha256(msgspec.json.encode(fields)).digest())


def pack(leaves: Iterable[Leaf]) -> bytes:
    """The leaves as they are stored in a seal."""
    return b"".join(leaf.id + leaf.keep_days.to_bytes(2, "big") + leaf.hash for leaf in leaves)


def unpack(leaves: bytes) -> Iterator[Leaf]:
    """The leaves of a seal."""
    for start in range(0, len(leaves), LEAF):
        part = leaves[start : start + LEAF]
        yield Leaf(part[:16], int.from_bytes(part[16:18], "big"), part[18:])


def mac(key: bytes, account: str, previous: bytes, number: int, at: int, leaves: bytes) -> bytes:
    """The HMAC of a seal, over the HMAC of the previous seal and everything in this one."""
    head = msgspec.json.encode((account, number, at))
    return hmac.digest(key, previous + hashlib.sha256(head).digest() + hashlib.sha256(leaves).digest(), "sha256")


def anchor(key: bytes, account: str, last: Seal | Anchor) -> Anchor:
    """The anchor for the last seal that was pruned."""
    fields = msgspec.json.encode(("anchor", account, last.number, last.mac.hex()))
    return Anchor(last.number, last.mac, hmac.digest(key, fields, "sha256"))


def is_pruned(key: bytes, account: str, stored: Anchor, head: Head) -> bool:
    """Whether the service itself pruned the seal of this head."""
    if stored != anchor(key, account, stored) or head.number > stored.number:
        return False
    return head.number < stored.number or head.mac == stored.mac


def new(key: bytes, account: str, previous: Head, leaves: Iterable[Leaf], at: int) -> Seal:
    """The seal that follows `previous` and has these leaves."""
    number, packed = previous.number + 1, pack(leaves)
    return Seal(number, at, packed, mac(key, account, previous.mac, number, at, packed))


def follows(key: bytes, account: str, previous: Head, seal: Seal) -> bool:
    """Whether the seal is valid and follows `previous`."""
    expected = mac(key, account, previous.mac, seal.number, seal.at, seal.leaves)
    return seal.number == previous.number + 1 and seal.mac == expected
