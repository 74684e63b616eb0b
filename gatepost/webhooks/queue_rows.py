"""The rows of the queue: deliveries that have not ended, and the attempts that are open.

The number of attempts is the fence: a statement about an attempt does nothing if a later attempt has begun.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from gatepost.core import ids
from gatepost.ledger import entry_rows
from gatepost.store.pending import Key
from gatepost.store.transaction import Tx
from gatepost.webhooks.deliveries import Queued, queue_condition

# Used in queue_rows.sql.
MAY_BE_CLAIMED = queue_condition("in_flight")
MAY_BE_REQUEUED = queue_condition("pending")
MAY_END_AFTER_ATTEMPT = queue_condition("succeeded", "failed", "cancelled")
MAY_END = queue_condition("failed", "cancelled")


class Lane(NamedTuple):
    """The waiting deliveries of one endpoint, first attempts or retries, and when the first of them is due."""

    account: bytes
    endpoint: bytes
    lane: int
    due: int


class Due(NamedTuple):
    """A delivery that is due, with its event, and the last Retry-After of its endpoint.

    `type` is None if the event is not in the ledger, which the service does not let happen.
    """

    queued: Queued
    type: str | None
    at: int
    data: str | None
    not_before: int


class NextDue(NamedTuple):
    """When the first delivery of a lane is due by its plan, and until when its endpoint asked for no attempts."""

    due: int | None
    not_before: int


def count_by_endpoint(tx: Tx, limit: int) -> dict[Key, tuple[int, int]]:
    """For each endpoint the number of unfinished deliveries, and of those in flight. Counts up to the limit."""
    rows = tx.rows("count_queue", limit=limit)
    return {(account, endpoint): (count, in_flight) for account, endpoint, count, in_flight in rows}


def open_attempts(tx: Tx, worker: bytes, limit: int) -> list[Queued]:
    """Deliveries with an open attempt of this worker. Reads the whole queue."""
    return [Queued(*row) for row in tx.rows("open_attempts", worker=worker, limit=limit)]


def lanes(tx: Tx, after: Lane, limit: int) -> list[Lane]:
    """Lanes with something to claim. A page may have fewer than `limit`; an empty one is the last."""
    account, endpoint, lane, _ = after
    rows = tx.rows("lanes", account=account, endpoint=endpoint, lane=lane, limit=limit, now=tx.now)
    return [Lane(*row) for row in rows]


def next_due(tx: Tx, lanes: Iterable[tuple[Lane, tuple[int, bytes]]]) -> list[NextDue]:
    """For each lane, when the first delivery after a position that can be claimed is due."""
    now = tx.now
    parameters = [
        {
            "account": lane.account, "endpoint": lane.endpoint, "lane": lane.lane, "now": now,
            "after_due": after[0], "after_id": after[1],
        }
        for lane, after in lanes
    ]  # fmt: skip
    results = tx.rows_each("next_due", parameters)
    return [NextDue(rows[0][0], rows[0][1] or 0) if rows else NextDue(None, 0) for rows in results]


def due(tx: Tx, turns: Iterable[tuple[Lane, tuple[int, bytes], int]]) -> list[list[Due]]:
    """For each lane, up to a limit, the deliveries after a position that are due, locked until the commit.

    An endpoint that asked for no attempts for now has none.
    """
    now = tx.now
    parameters = [
        {
            "account": lane.account, "endpoint": lane.endpoint, "lane": lane.lane, "now": now,
            "after_due": after[0], "after_id": after[1], "most": limit,
        }
        for lane, after, limit in turns
    ]  # fmt: skip
    lanes = [
        [
            Due(Queued._make(queued), type_, at or 0, data, not_before or 0)
            for *queued, not_before, type_, at, data in rows
        ]
        for rows in tx.rows_each("due", parameters)
    ]
    without = {(due.queued.account, due.queued.event) for rows in lanes for due in rows if due.type is None}
    if not without:
        return lanes
    events = entry_rows.events(tx, without)
    if missing := without - events.keys():
        events |= entry_rows.events(tx, missing)  # again, in case they were moved meanwhile to another partition
    return [_with_events(rows, events) for rows in lanes]


def _with_events(rows: list[Due], events: dict[Key, tuple[str, int, str | None]]) -> list[Due]:
    """On PostgreSQL, events are read separately, from the partitions of their days."""
    keyed = [(due, events.get((due.queued.account, due.queued.event))) for due in rows]
    return [due if event is None else Due(due.queued, *event, due.not_before) for due, event in keyed]


def claim(tx: Tx, claims: list[tuple[bytes, bytes, int, bytes, str]]) -> None:
    """Claim deliveries that `due` returned in this unit. Rows of account, id, lease, worker and open attempt."""
    tx.write_given("claim", sorted(claims))


def end_attempted(tx: Tx, fenced: Iterable[tuple[bytes, bytes, int]]) -> set[Key]:
    """End deliveries with an open attempt, or with an interrupted one that was not repeated. Returns those it ended."""
    return _write(tx, "end_queued", fenced)


def end_unclaimed(tx: Tx, fenced: Iterable[tuple[bytes, bytes, int]]) -> set[Key]:
    """End deliveries that no worker has claimed since they were read. Returns those it ended."""
    return _write(tx, "drop_queued", fenced)


def set_due(tx: Tx, queued: Queued, due: int) -> bool:
    """Set when the next attempt is due. False if an attempt has begun meanwhile."""
    return bool(tx.write("set_due", account=queued.account, id=queued.id, number=queued.number, due=due))


def requeue(tx: Tx, rows: Iterable[tuple[bytes, bytes, int, int, int, str, int, int]]) -> set[Key]:
    """Plan the next attempts. Rows of account, id, number, due, planned_at, because, used, interrupted.

    `due` is the time by the schedule. `planned_at` is for the record, and includes the Retry-After of the response.
    """
    return _write(tx, "requeue", rows)


def _write(tx: Tx, statement: str, rows: Iterable[tuple[Any, ...]]) -> set[Key]:
    """Write rows, and return the keys of those that were changed. All units lock rows in the same order."""
    return cast(set[Key], set(tx.write_given(statement, sorted(rows))))


def load_many(tx: Tx, keys: Iterable[Key]) -> dict[Key, Queued]:
    """Load the rows of deliveries that have not ended."""
    return {(row[0], row[1]): Queued(*row) for row in tx.rows_given("queued_given", list(keys))}


def lock(tx: Tx, account: str, raw_id: bytes) -> Queued | None:
    """Lock a delivery that has not ended until the commit."""
    row = tx.one("lock_queued", account=ids.raw(account), id=raw_id)
    return Queued(*row) if row else None


def of_endpoint(tx: Tx, key: Key, before: bytes, limit: int) -> list[Queued]:
    """Deliveries of an endpoint that were created before this id and have no attempt with a valid lease."""
    now = tx.now
    rows = tx.rows("queued_of_endpoint", account=key[0], endpoint=key[1], before=before, limit=limit, now=now)
    return [Queued(*row) for row in rows]


def has_older(tx: Tx, key: Key, before: bytes) -> bool:
    """Whether the endpoint has an unfinished delivery that was created before this id."""
    return tx.one("waits_for_endpoint", account=key[0], endpoint=key[1], before=before) is not None


def count_waiting(tx: Tx, account: str, endpoint: str, limit: int) -> int:
    """The number of deliveries of an endpoint that wait for an attempt, counted up to the limit."""
    [(count,)] = tx.rows("count_waiting_of_endpoint", account=ids.raw(account), endpoint=ids.raw(endpoint), limit=limit)
    return int(count)


def oldest(tx: Tx, account: str) -> bytes | None:
    """The id of the oldest unfinished delivery of an account."""
    row = tx.one("oldest_queued", account=ids.raw(account))
    return row[0] if row else None
