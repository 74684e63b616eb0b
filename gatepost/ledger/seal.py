"""Seals: a chain of HMACs over batches of entries, one chain per account, that shows any later change.

A seal keeps for each of its entries a *leaf*: the id, the days it is kept, and a hash of the entry and of its data.
So entries can be pruned and their data erased without breaking the chain, but not early without being noticed.
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
    id: bytes
    keep_days: int
    hash: bytes

    def kept_until(self) -> int:
        """The time in milliseconds before which the service does not delete the entry."""
        return clock.milliseconds(ids.made_at(self.id) + timedelta(days=self.keep_days))


class Seal(NamedTuple):
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
    found = re.fullmatch(r"(\d{1,18}):([0-9a-f]{64})", text.strip().lower(), re.ASCII)
    return Head(int(found[1]), bytes.fromhex(found[2])) if found else None


def leaf(entry: Entry) -> Leaf:
    """The hash covers every column of the entry, but not its deliveries, which have their own records."""
    fields = (
        entry.account, entry.id.hex(), entry.type, entry.at, entry.actor, entry.subject, entry.matched,
        entry.keep_days, entry.request, entry.source, data_hash(entry).hex(),
    )  # fmt: skip
    return Leaf(entry.id, entry.keep_days, hashlib.sha256(msgspec.json.encode(fields)).digest())


def pack(leaves: Iterable[Leaf]) -> bytes:
    return b"".join(each.id + each.keep_days.to_bytes(2, "big") + each.hash for each in leaves)


def unpack(leaves: bytes) -> Iterator[Leaf]:
    for start in range(0, len(leaves), LEAF):
        part = leaves[start : start + LEAF]
        yield Leaf(part[:16], int.from_bytes(part[16:18], "big"), part[18:])


def mac(key: bytes, account: str, previous: bytes, number: int, at: int, leaves: bytes) -> bytes:
    head = msgspec.json.encode((account, number, at))
    return hmac.digest(key, previous + hashlib.sha256(head).digest() + hashlib.sha256(leaves).digest(), "sha256")


def anchor(key: bytes, account: str, last: Seal | Anchor) -> Anchor:
    told = msgspec.json.encode(("anchor", account, last.number, last.mac.hex()))
    return Anchor(last.number, last.mac, hmac.digest(key, told, "sha256"))


def is_pruned(key: bytes, account: str, found: Anchor, head: Head) -> bool:
    """Whether the service itself pruned the seal of this head."""
    if found != anchor(key, account, found) or head.number > found.number:
        return False
    return head.number < found.number or head.mac == found.mac


def follow(key: bytes, account: str, previous: Head, entries: list[Entry], at: int) -> Seal:
    """The seal that comes after `previous` and covers `entries`."""
    leaves = pack(leaf(entry) for entry in entries)
    number = previous.number + 1
    return Seal(number, at, leaves, mac(key, account, previous.mac, number, at, leaves))
