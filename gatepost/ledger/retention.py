"""Deleting entries and seals whose retention has ended, a batch at a time."""

from collections.abc import Iterable
from datetime import timedelta

from gatepost.accounts import RETENTION_DAYS
from gatepost.core import clock, ids
from gatepost.ledger import chain, chain_rows, entry_rows, published_ids, seal, seal_rows, tree_rows
from gatepost.ledger.chain import BrokenChain, PrunedTree
from gatepost.ledger.seal import Head, Seal
from gatepost.store.transaction import Tx

_BATCH = 200  # entries


def is_due(tx: Tx, key: bytes, account: str) -> bool:
    """Whether the retention of an entry, or of all entries of the oldest seal, has ended."""
    return any(_due(tx, account, days, 1) for days in RETENTION_DAYS) or _expired_seal(tx, key, account) is not None


def prune_batch(tx: Tx, key: bytes, account: str) -> int:
    """Delete a batch of entries whose retention has ended, or else the oldest seal if it has no entry that is kept.

    Each retention class has a mark up to which it was pruned, so an entry is examined once for each class. An entry
    with unfinished deliveries is skipped: it is deleted with the last of its deliveries, or with its seal.
    The last deleted seal becomes the anchor, from which verification starts.
    """
    for days in RETENTION_DAYS:
        page = _due(tx, account, days, _BATCH)
        if page:
            delete_delivered(tx, account, [raw_id for raw_id, keep_days in page if keep_days == days])
            entry_rows.set_pruned_up_to(tx, account, days, page[-1][0])
            return len(page)
    expired = _expired_seal(tx, key, account)
    if expired is None:
        return 0
    _delete(tx, account, _entry_ids(expired))  # an entry may have been added with an id before the mark
    pruned = tree_rows.load_pruned(tx, key, account, seal_rows.anchor(tx, account))
    if seal_rows.delete_oldest(tx, account, seal.anchor(key, account, expired)) and pruned is not None:
        tree, _ = chain.grow(key, pruned.tree, expired)
        tree_rows.save_pruned(tx, key, account, PrunedTree(expired.number, tree))
    return 1


def _due(tx: Tx, account: str, days: int, limit: int) -> list[tuple[bytes, int]]:
    """Entries after the mark of a retention class that are old enough for it, of any class."""
    return entry_rows.retention_page(
        tx, account, entry_rows.pruned_up_to(tx, account, days), oldest_kept(tx, days), limit
    )


def delete_delivered(tx: Tx, account: str, raw_ids: Iterable[bytes]) -> None:
    """Delete these entries, except those with unfinished deliveries."""
    candidates = list(raw_ids)
    unfinished = entry_rows.undelivered(tx, account, candidates)
    _delete(tx, account, [raw_id for raw_id in candidates if raw_id not in unfinished])


def _delete(tx: Tx, account: str, raw_ids: list[bytes]) -> None:
    """Delete entries, and the ids that publishers gave them. An event that is published with such an id is then new."""
    entry_rows.delete(tx, account, raw_ids)
    published_ids.delete(tx, ((ids.raw(account), raw_id) for raw_id in raw_ids))


def oldest_kept(tx: Tx, days: int) -> bytes:
    """The lowest id of an entry that this retention class still keeps."""
    return ids.lowest_at(clock.milliseconds(tx.at - timedelta(days=days)))


def _expired_seal(tx: Tx, key: bytes, account: str) -> Seal | None:
    """The oldest seal, if the retention of all its entries has ended and all are in the Merkle tree.

    A seal that was altered is never returned, so that verification can report it.
    """
    now, anchor = tx.now, seal_rows.anchor(tx, account)
    try:
        stored = chain_rows.load(tx, key, account)
    except BrokenChain:
        return None
    for oldest in seal_rows.page(tx, account, 0, 1):
        previous = Head(oldest.number - 1, anchor.mac if anchor else seal.START)
        if (
            seal.follows(key, account, previous, oldest)
            and oldest.number <= (stored.grown if stored else 0)
            and all(leaf.kept_until() <= now for leaf in seal.unpack(oldest.leaves))
            and not _is_kept(tx, account, _entry_ids(oldest))
        ):
            return oldest
    return None


def _is_kept(tx: Tx, account: str, raw_ids: list[bytes]) -> bool:
    """Whether one of these entries waits for a delivery to end, or for its partition to be dropped."""
    existing = entry_rows.keep_days(tx, account, raw_ids)
    return bool(entry_rows.undelivered(tx, account, existing) or entry_rows.partitioned(tx, account, existing))


def _entry_ids(sealed: Seal) -> list[bytes]:
    return [leaf.id for leaf in chain.entry_leaves(sealed.leaves)]
