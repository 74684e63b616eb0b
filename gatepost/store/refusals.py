"""Counts of refusals that are not ledgered one by one: failed client authentications, and refusals of public clients.

A count covers one client, one address and one window. Whoever deletes it at the end of its window writes the entry
that sums it up.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gatepost.core import clock, ids

Write = Callable[..., list[tuple[Any, ...]]]


class RefusalCount(NamedTuple):
    """Refusals of one client from one address in one window. `pair` is the key: a hash of both."""

    pair: bytes
    account: str | None  # None: no such client
    client: str
    source: str
    type: str = "oauth.token.refused"
    error: str = "too_many_failures"  # of the entry that sums up; for a public client that of the latest refusal
    count: int = 0  # type: ignore[assignment]  # hides tuple.count
    since: datetime = clock.EPOCH


class Counted(NamedTuple):
    """The current window with what was just counted, and a window that ended and was not yet summed up."""

    number: int
    since: datetime
    ended: list[RefusalCount]


class Refusals:
    """One unit's view of these tables."""

    def __init__(self, write: Write, at: datetime) -> None:
        self._write = write
        self._at = at

    def count_failure(self, counted: RefusalCount, window: timedelta) -> Counted:
        """Count one more failed authentication, in a new window if the last one has ended."""
        ended = self._write("end_failure", pair=counted.pair, before=clock.milliseconds(self._at - window))
        return self._counted(self._write("count_failure", **self._row(counted)), ended)

    def count_refusal(self, counted: RefusalCount, window: timedelta) -> Counted:
        """The same for a refusal of a client that does not authenticate."""
        ended = self._write("end_refusal", pair=counted.pair, before=clock.milliseconds(self._at - window))
        row = self._row(counted) | {"type": counted.type, "error": counted.error}
        return self._counted(self._write("count_refusal", **row), ended)

    def end(self, before: datetime) -> list[RefusalCount]:
        """Delete a slice of the windows that began before this instant, and return them."""
        at = clock.milliseconds(before)
        rows = self._write("end_failures", before=at) + self._write("end_refusals", before=at)
        return [_refusal_count(row) for row in rows]

    def _row(self, counted: RefusalCount) -> dict[str, Any]:
        return {
            "pair": counted.pair,
            "since": clock.milliseconds(self._at),
            "account": ids.raw(counted.account) if counted.account else None,
            "client": counted.client,
            "source": counted.source,
        }

    def _counted(self, counted: list[tuple[Any, ...]], ended: list[tuple[Any, ...]]) -> Counted:
        [(count, since)] = counted
        return Counted(int(count), clock.from_milliseconds(since), [_refusal_count(row) for row in ended])


def _refusal_count(row: tuple[Any, ...]) -> RefusalCount:
    pair, account, client, source, type_, error, count, since = row
    whose = ids.text("acc", account) if account else None
    return RefusalCount(pair, whose, client, source, type_, error, count, clock.from_milliseconds(since))
