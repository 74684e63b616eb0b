"""Retention of deliveries. It works in slices."""

from typing import NamedTuple

from gatepost.accounts import RETENTION_DAYS
from gatepost.core import ids
from gatepost.ledger import entry_rows, retention
from gatepost.ledger.retention import PruningPosition
from gatepost.store.transaction import Tx, Unit
from gatepost.webhooks import delivery_rows

_SLICE = 100  # deliveries with their attempts: a commit of a few milliseconds
_PAGE = 500
_SAMPLE = 20  # entries of a page that are matched again


START = PruningPosition("deliveries")


class PrunedSlice(NamedTuple):
    """The result of a slice: deliveries deleted, entries examined, and the next position; None at the end."""

    deliveries: int
    entries: int
    next: PruningPosition | None


def is_due(tx: Tx, key: bytes, account: str) -> bool:
    """Whether there is anything to delete."""
    marks = ((days, delivery_rows.pruned_up_to(tx, account, days)) for days in RETENTION_DAYS)
    return retention.is_due(tx, key, account) or any(_due(tx, account, *mark, 1) for mark in marks)


def prune_slice(key: bytes, account: str, position: PruningPosition) -> Unit[PrunedSlice]:
    """Return the unit that prunes one slice of an account."""

    def unit(tx: Tx) -> PrunedSlice:
        if position.rows == "deliveries":
            return _prune_deliveries(tx, account, position)
        return PrunedSlice(0, *retention.prune_batch(tx, key, account, position))

    return unit


def _prune_deliveries(tx: Tx, account: str, position: PruningPosition) -> PrunedSlice:
    """Delete a slice of the deliveries whose retention has ended, but never an unfinished one."""
    mark = delivery_rows.pruned_up_to(tx, account, position.days)
    page = _due(tx, account, position.days, position.after or mark, _SLICE)
    own = [(raw_id, status) for raw_id, keep_days, status in page if keep_days == position.days]
    ended = [raw_id for raw_id, status in own if status != "pending"]
    unfinished = next((raw_id for raw_id, status in own if status == "pending"), None)
    _delete(tx, account, ended)
    examined = [raw_id for raw_id, _, _ in page]
    passed = [raw_id for raw_id in examined if unfinished is None or raw_id < unfinished]
    if passed and not position.after:
        delivery_rows.set_pruned_up_to(tx, account, position.days, mark, passed[-1])
    following = position.following(examined, full=len(page) == _SLICE, unfinished=unfinished is not None)
    return PrunedSlice(len(ended), 0, following or retention.START)


def _due(tx: Tx, account: str, days: int, after: bytes, limit: int) -> list[tuple[bytes, int, str]]:
    return delivery_rows.retention_page(tx, account, after, retention.oldest_kept(tx, days), limit)


def _delete(tx: Tx, account: str, ended: list[bytes]) -> None:
    """Delete deliveries, and their entries if they have no other deliveries and their own retention has ended."""
    raw_account = ids.raw(account)
    deleted = delivery_rows.load_many(tx, ((raw_account, raw_id) for raw_id in ended))
    delivery_rows.delete(tx, account, ended)
    kept = entry_rows.keep_days(tx, account, sorted({delivery.event for delivery in deleted.values()}))
    retention.delete_delivered(tx, account, [event for event in kept if event < retention.oldest_kept(tx, kept[event])])
