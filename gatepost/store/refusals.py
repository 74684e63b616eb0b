"""Counts of refusals that are not ledgered one by one: failed client authentications, by client and address.

A count covers one window. Whoever deletes it at the end of its window writes the entry that sums it up.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gatepost import clock, ids

Write = Callable[..., list[tuple[Any, ...]]]


class Failure(NamedTuple):
    """Failed authentications of one client from one address. `pair` is the key: a hash of both."""

    pair: bytes
    account: str | None  # None: no such client
    client: str
    source: str
    count: int = 0  # type: ignore[assignment]  # hides tuple.count
    since: datetime = clock.EPOCH


class Counted(NamedTuple):
    """The current window with what was just counted, and windows that ended and were not yet summed up."""

    number: int
    since: datetime
    ended: list[Failure]


class Refusals:
    """One unit's view of these tables."""

    def __init__(self, write: Write, at: datetime) -> None:
        self._write = write
        self._at = at

    def count_failure(self, failure: Failure, window: timedelta) -> Counted:
        """Count one more failure of the pair, in a new window if the last one has ended."""
        ended = self._write("end_failure", pair=failure.pair, before=clock.milliseconds(self._at - window))
        [(count, since)] = self._write(
            "count_failure",
            pair=failure.pair,
            since=clock.milliseconds(self._at),
            account=ids.raw(failure.account) if failure.account else None,
            client=failure.client,
            source=failure.source,
        )
        return Counted(int(count), clock.from_milliseconds(since), [_failure(row) for row in ended])

    def end_failures(self, before: datetime) -> list[Failure]:
        """Delete a slice of the windows that began before this instant, and return them."""
        return [_failure(row) for row in self._write("end_failures", before=clock.milliseconds(before))]


def _failure(row: tuple[Any, ...]) -> Failure:
    pair, account, client, source, count, since = row
    whose = ids.text("acc", account) if account else None
    return Failure(pair, whose, client, source, count, clock.from_milliseconds(since))
