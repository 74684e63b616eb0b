"""The rows of deliveries and of their finished attempts."""

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from gatepost.core import clock, ids
from gatepost.store.pending import Key
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks.deliveries import Attempt, Delivery, StatusChange, enqueue, record_condition

_APART = 86_400_000  # ms; far more than there is between the ids of an event and of its deliveries

MAY_MOVE = record_condition()  # used in delivery_rows.sql


def create(tx: Tx, deliveries: Sequence[Delivery], because: str = "event") -> list[bytes]:
    """Create deliveries and their rows in the queue at the end of the commit. Returns their ids."""
    if not deliveries:
        return []
    tx.pending.append("insert_deliveries", deliveries)
    tx.pending.append("insert_queue", [enqueue(delivery, tx.now, because) for delivery in deliveries])
    tx.pending.wakeups.update([(delivery.account, delivery.endpoint) for delivery in deliveries])
    return [delivery.id for delivery in deliveries]


def write_statuses(tx: Tx, changes: Iterable[StatusChange]) -> None:
    """Write changes of statuses that `TRANSITIONS` allows. All units lock rows in the same order."""
    tx.write_given("write_records", sorted(changes, key=itemgetter(0, 1)))


def add_attempts(tx: Tx, attempts: Iterable[Attempt]) -> None:
    """Write attempts that have ended."""
    tx.write_given("write_attempts", sorted(attempts))


def load(tx: Tx, account: str, delivery: str) -> Delivery | None:
    """Load a delivery by its id."""
    raw = ids.parse("dlv", delivery)
    row = tx.one("delivery", account=ids.raw(account), id=raw) if raw else None
    return Delivery(*row) if row else None


def load_many(tx: Tx, keys: Iterable[Key]) -> dict[Key, Delivery]:
    """Load deliveries by their keys."""
    rows = tx.rows_given("deliveries_given", list(keys))
    return {(row[0], row[1]): Delivery(*row) for row in rows}


def attempts(tx: Tx, keys: Iterable[Key]) -> dict[Key, list[Attempt]]:
    """Load the ended attempts of deliveries, in order."""
    by_delivery: dict[Key, list[Attempt]] = {}
    for row in tx.rows_given("attempts_given", list(keys)):
        by_delivery.setdefault((row[0], row[1]), []).append(Attempt(*row))
    return by_delivery


def of_event(tx: Tx, account: str, event: bytes, limit: int) -> list[bytes]:
    """The deliveries that were created with the event, without those of replays and of operators."""
    rows = tx.rows("deliveries_of_event", account=ids.raw(account), event=event, limit=limit)
    return [raw_id for (raw_id,) in rows]


def has_failed(tx: Tx, account: str, event: bytes, subscription: str) -> bool:
    """Whether a delivery of the event for this subscription failed."""
    row = tx.one("has_failed_delivery", account=ids.raw(account), event=event, subscription=ids.raw(subscription))
    return row is not None


def retention_page(tx: Tx, account: str, after: bytes, before: bytes, limit: int) -> list[tuple[bytes, int, str]]:
    """The oldest deliveries of all retention classes: id, days for which each is kept, and status."""
    rows = tx.rows("prunable_deliveries", account=ids.raw(account), after=after, before=before, limit=limit)
    return [(raw_id, keep_days, status) for raw_id, keep_days, status in rows]


def queue_page(tx: Tx, account: str, after: bytes, limit: int) -> list[tuple[bytes, bool]]:
    """The oldest deliveries, and whether each has not ended although it has no row in the queue."""
    rows = tx.rows("deliveries_unqueued", account=ids.raw(account), after=after, limit=limit)
    return [(raw_id, bool(is_unqueued)) for raw_id, is_unqueued in rows]


def delete(tx: Tx, account: str, raw_ids: Iterable[bytes]) -> None:
    """Delete deliveries and their attempts."""
    keys: list[tuple[Any, ...]] = [(ids.raw(account), raw_id) for raw_id in raw_ids]
    tx.write_given("delete_attempts", keys)
    tx.write_given("delete_deliveries", keys)


def pruned_up_to(tx: Tx, account: str, keep_days: int) -> bytes:
    """The id up to which the deliveries of a retention class were pruned."""
    row = tx.one("deliveries_pruned_up_to", account=ids.raw(account), keep_days=keep_days)
    return row[0] if row else LOWEST


def set_pruned_up_to(tx: Tx, account: str, keep_days: int, previous: bytes, raw_id: bytes) -> None:
    """Advance the mark of `pruned_up_to`, unless it has changed."""
    values = {"account": ids.raw(account), "keep_days": keep_days, "id": raw_id, "previous": previous}
    tx.write("put_deliveries_pruned_up_to", **values)


def count_of_events(tx: Tx, account: str, events: Iterable[bytes]) -> dict[bytes, int]:
    """The number of deliveries that were created with each event, without those of replays and of operators.

    The statement reads them in the order of the index by event, so that PostgreSQL uses it whatever its statistics say.
    """
    return dict(_given(tx, "count_deliveries_given", account, events))


def subscriptions_of_events(tx: Tx, account: str, events: Iterable[bytes]) -> set[tuple[bytes, bytes]]:
    """The event and the subscription of each delivery that was created with these events."""
    return {(event, subscription) for event, subscription in _given(tx, "delivered_given", account, events)}


def _given(tx: Tx, statement: str, account: str, events: Iterable[bytes]) -> list[tuple[Any, ...]]:
    """Run a statement about deliveries that were created with these events, and so at about the same time."""
    raw_account = ids.raw(account)
    return tx.rows_given(statement, [(raw_account, event, *_around(event)) for event in events])


def _around(event: bytes) -> tuple[bytes, bytes]:
    at = clock.milliseconds(ids.made_at(event))
    return ids.lowest_at(at - _APART), ids.lowest_at(at + _APART)
