"""Sealing the entries that wait for a seal, a batch at a time."""

from typing import NamedTuple

from gatepost.ledger import chain, chain_rows, chains, seal, seal_rows, tree_rows
from gatepost.ledger.chain import Chain, NextSeal
from gatepost.ledger.entries import Entry
from gatepost.store.pending import Again
from gatepost.store.transaction import Tx


class PreparedSeal(NamedTuple):
    """A seal that was computed from a snapshot. It is added if the chain still has the same end."""

    key: bytes
    stored: Chain
    next: NextSeal
    entries: list[Entry]


def prepare(tx: Tx, key: bytes, account: str) -> PreparedSeal | None:
    """Compute the next seal in a unit that only reads, so that writers do not wait for the hashing.

    The chain is read before the entries. In the other order, a process could read entries that another process seals
    before the chain is read, and seal them again with the next number.
    """
    stored = chain_rows.load(tx, key, account)
    current = chains.current(tx, key, account)
    entries = seal_rows.unsealed(tx, account, seal.BATCH)
    if not entries or stored is None:
        return None
    operator = chains.operator_head(tx, key, account)
    return PreparedSeal(key, stored, chain.next_seal(key, account, current, entries, tx.now, operator), entries)


def add(tx: Tx, account: str, prepared: PreparedSeal) -> int:
    """Add a prepared seal. Returns the number of sealed entries: 0 if another process updated the chain first."""
    new = prepared.next
    if not chain_rows.update(tx, prepared.key, account, prepared.stored, new.chain):
        return 0
    if not seal_rows.add(tx, account, new.seal, prepared.entries):
        raise Again("another process sealed these entries")
    if new.first_leaf is not None:
        tree_rows.add_seal(tx, account, new.seal.number, new.first_leaf, new.nodes)
    return len(prepared.entries)


def seal_batch(tx: Tx, key: bytes, account: str) -> int:
    """Prepare and add a seal in one unit."""
    prepared = prepare(tx, key, account)
    return add(tx, account, prepared) if prepared else 0
