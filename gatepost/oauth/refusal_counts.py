"""The rows that count refusals without an entry of their own: failed authentications, public clients, and quotas.

A count covers one client, one address and one window; for a quota, all addresses. The unit that deletes it afterwards
writes an entry for it.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gatepost.core import clock, ids
from gatepost.store.transaction import Tx


class RefusalCount(NamedTuple):
    """Refusals of one client from one address in one window. `pair` is the key: a hash of both."""

    pair: bytes
    account: str | None  # None: no such client
    client: str
    source: str
    type: str = "oauth.token.refused"
    error: str = "too_many_failures"  # in the entry, of the latest refusal; for a quota, a space and its rule follow
    count: int = 0  # type: ignore[assignment]  # hides tuple.count
    since: datetime = clock.EPOCH


class Counted(NamedTuple):
    """The count of the current window, and the windows that ended and have no entry yet."""

    number: int
    since: datetime
    ended: list[RefusalCount]


def count_failure(tx: Tx, counted: RefusalCount, window: timedelta) -> Counted:
    """Count one more failed authentication, in a new window if the last one has ended."""
    ended = tx.write("end_failure", pair=counted.pair, before=clock.milliseconds(tx.at - window))
    return _counted(tx.write("count_failure", **_row(tx, counted)), ended)


def count_refusal(tx: Tx, counted: RefusalCount, window: timedelta) -> Counted:
    """The same for a refusal of a client that does not authenticate, or for several because of a quota."""
    ended = tx.write("end_refusal", pair=counted.pair, before=clock.milliseconds(tx.at - window))
    row = _row(tx, counted) | {"type": counted.type, "error": counted.error, "count": max(1, counted.count)}
    return _counted(tx.write("count_refusal", **row), ended)


def end(tx: Tx, before: datetime) -> list[RefusalCount]:
    """Delete some of the windows that began before this instant, and return them."""
    at = clock.milliseconds(before)
    rows = tx.write("end_failures", before=at) + tx.write("end_refusals", before=at)
    return [_refusal_count(row) for row in rows]


def _row(tx: Tx, counted: RefusalCount) -> dict[str, Any]:
    return {
        "pair": counted.pair,
        "since": tx.now,
        "account": ids.raw(counted.account) if counted.account else None,
        "client": counted.client,
        "source": counted.source,
    }


def _counted(counted: list[tuple[Any, ...]], ended: list[tuple[Any, ...]]) -> Counted:
    [(count, since)] = counted
    return Counted(int(count), clock.from_milliseconds(since), [_refusal_count(row) for row in ended])


def _refusal_count(row: tuple[Any, ...]) -> RefusalCount:
    pair, account, client, source, type_, error, count, since = row
    account_id = ids.text("acc", account) if account else None
    return RefusalCount(pair, account_id, client, source, type_, error, count, clock.from_milliseconds(since))
