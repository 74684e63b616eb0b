"""Deleting entries and seals that are no longer kept, a slice at a time."""

from collections.abc import Iterable
from datetime import timedelta

from gatepost.accounts import RETENTION_DAYS
from gatepost.core import clock, ids
from gatepost.ledger import (
    chain,
    chain_rows,
    entry_rows,
    published_ids,
    seal,
    seal_rows,
    tree_rows,
)
from gatepost.ledger.chain import BrokenChain, PrunedTree
from gatepost.ledger.seal import Seal
from gatepost.store.transaction import Tx

_SLICE = 200


def is_due(tx: Tx, key: bytes, account: str) -> bool:
    """Whether an entry, or all entries of the oldest seal, are no longer kept."""
    due = any(
        entry_rows.retention_page(tx, account, entry_rows.pruned_up_to(tx, account, days), oldest_kept(tx, days), 1)
        for days in RETENTION_DAYS
    )
    return due or _ended_seal(tx, key, account) is not None


def prune_some(tx: Tx, key: bytes, account: str) -> int:
    """Delete a slice of the entries that are no longer kept, then the oldest seals without entries.

    Each retention class has a mark up to which it was pruned, so an entry is examined once for each class. An entry
    with unfinished deliveries is skipped: it is deleted with the last of its deliveries, or with its seal.
    The last deleted seal becomes the anchor, from which verification starts.
    """
    for days in RETENTION_DAYS:
        page = entry_rows.retention_page(
            tx, account, entry_rows.pruned_up_to(tx, account, days), oldest_kept(tx, days), _SLICE
        )
        if page:
            delete_delivered(tx, account, [raw_id for raw_id, keep_days in page if keep_days == days])
            entry_rows.set_pruned_up_to(tx, account, days, page[-1][0])
            return len(page)
    ended = _ended_seal(tx, key, account)
    if ended is None:
        return 0
    _drop(tx, account, _leaves(ended))  # an entry may have been added with an id before the mark
    pruned = tree_rows.load_pruned(tx, key, account, seal_rows.anchor(tx, account))
    if seal_rows.delete_oldest(tx, account, seal.anchor(key, account, ended)) and pruned is not None:
        tree, _ = chain.grow(key, pruned.tree, ended)
        tree_rows.save_pruned(tx, key, account, PrunedTree(ended.number, tree))
    return 1


def delete_delivered(tx: Tx, account: str, raw_ids: Iterable[bytes]) -> None:
    """Delete these entries, except those with unfinished deliveries."""
    those = list(raw_ids)
    unfinished = entry_rows.undelivered(tx, account, those)
    _drop(tx, account, [raw_id for raw_id in those if raw_id not in unfinished])


def _drop(tx: Tx, account: str, raw_ids: list[bytes]) -> None:
    """Delete entries, and the ids that publishers gave them: an event with such an id is then new."""
    entry_rows.delete(tx, account, raw_ids)
    published_ids.delete(tx, ((ids.raw(account), raw_id) for raw_id in raw_ids))


def oldest_kept(tx: Tx, days: int) -> bytes:
    """The lowest id of an entry that this retention class still keeps."""
    return ids.lowest_at(clock.milliseconds(tx.at - timedelta(days=days)))


def _ended_seal(tx: Tx, key: bytes, account: str) -> Seal | None:
    """The oldest seal, if none of its entries is kept any more and all are in the Merkle tree.

    A seal that was altered is never returned, so that verification can report it.
    """
    now = tx.now
    previous = seal_rows.anchor(tx, account)
    try:
        stored = chain_rows.load(tx, key, account)
    except BrokenChain:
        return None
    grown = stored.grown if stored else 0
    for each in seal_rows.page(tx, account, 0, 1):
        before = previous.mac if previous else seal.START
        genuine = each.mac == seal.mac(key, account, before, each.number, each.at, each.leaves)
        over = genuine and each.number <= grown and all(leaf.kept_until() <= now for leaf in seal.unpack(each.leaves))
        if over and not entry_rows.undelivered(tx, account, _leaves(each)):
            return each
    return None


def _leaves(of: Seal) -> list[bytes]:
    return [leaf.id for leaf in chain.entry_leaves(of.leaves)]
