"""Sealing the entries that wait for a seal, a batch at a time."""

from typing import NamedTuple

from gatepost.ledger import (
    chain,
    chain_rows,
    chains,
    seal,
    seal_rows,
    tree_rows,
)
from gatepost.ledger.chain import Chain, Next
from gatepost.ledger.entries import Entry
from gatepost.store.pending import Again
from gatepost.store.transaction import Tx


class PreparedSeal(NamedTuple):
    """A seal that was computed from a snapshot. It is added if the chain still ends where it did."""

    key: bytes
    stored: Chain
    next: Next
    entries: list[Entry]


def prepare(tx: Tx, key: bytes, account: str) -> PreparedSeal | None:
    """Compute the next seal in a unit that only reads, so that writers do not wait for the hashing.

    The chain is read before the entries. In the other order, a process could take entries that another process sealed
    in between, and find the next number free.
    """
    stored = chain_rows.load(tx, key, account)
    now = chains.current(tx, key, account)
    entries = seal_rows.unsealed(tx, account, seal.BATCH)
    if not entries or stored is None:
        return None
    operator = chains.operator_head(tx, key, account)
    return PreparedSeal(key, stored, chain.follow(key, account, now, entries, tx.now, operator), entries)


def add(tx: Tx, account: str, prepared: PreparedSeal) -> int:
    """Returns the number of sealed entries: 0 if another process was first. The update of the chain decides."""
    new = prepared.next
    if not chain_rows.move(tx, prepared.key, account, prepared.stored, new.chain):
        return 0
    if not seal_rows.add(tx, account, new.seal, prepared.entries):
        raise Again("another process sealed these entries")
    if new.first is not None:
        tree_rows.add_seal(tx, account, new.seal.number, new.first, new.nodes)
    return len(prepared.entries)


def seal_some(tx: Tx, key: bytes, account: str) -> int:
    """Prepare and add a seal in one unit."""
    prepared = prepare(tx, key, account)
    return add(tx, account, prepared) if prepared else 0
