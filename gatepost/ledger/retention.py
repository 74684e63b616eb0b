"""Deleting entries and seals whose retention has ended, a batch at a time."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Literal, NamedTuple

from gatepost.accounts import RETENTION_DAYS
from gatepost.core import clock, ids
from gatepost.ledger import chain, chain_rows, entry_rows, published_ids, seal, seal_rows, tree_rows
from gatepost.ledger.chain import BrokenChain, PrunedTree
from gatepost.ledger.seal import Head, Seal
from gatepost.store.pending import Again
from gatepost.store.transaction import Tx

_BATCH = 200  # entries


class PruningPosition(NamedTuple):
    """The position of a run: what it examines, the retention class, and the last row that it examined.

    Each class has a mark up to which it was pruned, where a run starts. The mark stays before the first row that is
    unfinished, while the run continues beyond it. `after` is empty as long as there is none: then the mark counts,
    which a drop of a partition resets when it moves rows.
    """

    rows: Literal["deliveries", "entries", "seals"]
    days: int = RETENTION_DAYS[0]
    after: bytes = b""

    def following(self, page: list[bytes], *, full: bool, unfinished: bool) -> "PruningPosition | None":
        """The position after a page of these rows. After one that was not full, the next class; None after the last."""
        if full:
            return self._replace(after=page[-1] if self.after or unfinished else b"")
        return next((self._replace(days=days, after=b"") for days in RETENTION_DAYS if days > self.days), None)


class PrunedEntries(NamedTuple):
    """The result of a batch: how many entries or seals it examined, and the next position; None at the end."""

    examined: int
    next: PruningPosition | None


START = PruningPosition("entries")
_SEALS = PruningPosition("seals")


def is_due(tx: Tx, key: bytes, account: str) -> bool:
    """Whether the retention of an entry, or of all entries of the oldest seal, has ended."""
    marks = ((days, entry_rows.pruned_up_to(tx, account, days)) for days in RETENTION_DAYS)
    return any(_due(tx, account, *mark, 1) for mark in marks) or _expired_seal(tx, key, account) is not None


def prune_batch(tx: Tx, key: bytes, account: str, position: PruningPosition = START) -> PrunedEntries:
    """Delete a batch of entries whose retention has ended, or else the oldest seal if it has no entry that is kept.

    An entry with unfinished deliveries is not deleted. The last deleted seal becomes the anchor, from which
    verification starts.
    """
    following: PruningPosition | None = position
    while following is not None and following.rows == "entries":
        mark = entry_rows.pruned_up_to(tx, account, following.days)
        page = _due(tx, account, following.days, following.after or mark, _BATCH)
        if page:
            return PrunedEntries(len(page), _prune_page(tx, account, following, mark, page) or _SEALS)
        following = following.following([], full=False, unfinished=False)
    count = _prune_seal(tx, key, account)
    return PrunedEntries(count, _SEALS if count else None)


def _prune_page(
    tx: Tx, account: str, position: PruningPosition, mark: bytes, page: list[tuple[bytes, int]]
) -> PruningPosition | None:  # fmt: skip
    own = [raw_id for raw_id, keep_days in page if keep_days == position.days]
    unfinished = entry_rows.undelivered(tx, account, own)
    _delete(tx, account, [raw_id for raw_id in own if raw_id not in unfinished])
    examined = [raw_id for raw_id, _ in page]
    passed = [raw_id for raw_id in examined if not unfinished or raw_id < min(unfinished)]
    if passed and not position.after:
        entry_rows.set_pruned_up_to(tx, account, position.days, mark, passed[-1])
    return position.following(examined, full=len(page) == _BATCH, unfinished=bool(unfinished))


def _prune_seal(tx: Tx, key: bytes, account: str) -> int:
    expired = _expired_seal(tx, key, account)
    if expired is None:
        return 0
    _delete(tx, account, _entry_ids(expired))  # an entry may have been added with an id before the mark
    pruned = tree_rows.load_pruned(tx, key, account, seal_rows.anchor(tx, account))
    if seal_rows.delete_oldest(tx, account, seal.anchor(key, account, expired)) and pruned is not None:
        tree, _ = chain.grow(key, pruned.tree, expired)
        tree_rows.save_pruned(tx, key, account, PrunedTree(expired.number, tree))
    return 1


def _due(tx: Tx, account: str, days: int, after: bytes, limit: int) -> list[tuple[bytes, int]]:
    """Entries after an id that are old enough for a retention class, of any class."""
    return entry_rows.retention_page(tx, account, after, oldest_kept(tx, days), limit)


def delete_delivered(tx: Tx, account: str, raw_ids: Iterable[bytes]) -> None:
    """Delete these entries, except those with unfinished deliveries."""
    candidates = list(raw_ids)
    unfinished = entry_rows.undelivered(tx, account, candidates)
    _delete(tx, account, [raw_id for raw_id in candidates if raw_id not in unfinished])


def _delete(tx: Tx, account: str, raw_ids: list[bytes]) -> None:
    """Delete entries, and the ids that publishers gave them. An event that is published with such an id is then new.

    Raises `Again` if a replay has created a delivery of one of them since the caller looked. The statement that deletes
    waits for replays that have locked an entry, so the one after it sees their deliveries.
    """
    deleted = entry_rows.delete(tx, account, raw_ids)
    if entry_rows.undelivered(tx, account, deleted):
        raise Again("a replay created deliveries of these events")
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
