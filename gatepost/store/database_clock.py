"""The time of a PostgreSQL server. Between measurements it is computed from the monotonic clock.

So a step of this machine's wall clock changes nothing.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from gatepost.core import clock
from gatepost.core.clock import Clock

EVERY = 60.0  # seconds between two measurements
LONGEST_ROUND_TRIP = 0.5  # seconds: a slower answer is too inexact to replace a measurement that exists


class _Anchor(NamedTuple):
    at: datetime
    reading: float  # of the monotonic clock, at that instant


class DatabaseClock:
    """The given clock until the first measurement, and always if it does not follow the server."""

    def __init__(self, local: Clock, *, follow: bool, elapsed: Callable[[], float] = clock.elapsed) -> None:
        self._local = local
        self._follow = follow
        self._elapsed = elapsed
        self._anchor: _Anchor | None = None  # replaced as a whole: threads read it without a lock

    def now(self) -> datetime:
        anchor = self._anchor
        if anchor is None:
            return self._local()
        return anchor.at + timedelta(seconds=self._elapsed() - anchor.reading)

    def milliseconds_after(self, seconds: float) -> int | None:
        """The server's time after so many seconds. None before the first measurement."""
        return clock.milliseconds(self.now()) + int(seconds * 1000) if self._anchor is not None else None

    @property
    def is_due(self) -> bool:
        """Whether it is time for a measurement."""
        return self._is_due(self._anchor, self._elapsed())

    def _is_due(self, anchor: _Anchor | None, at: float) -> bool:
        return self._follow and (anchor is None or at - anchor.reading >= EVERY)

    def measure(self, database: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Ask the server, unless it was asked within the last minute."""
        anchor, before = self._anchor, self._elapsed()
        if not self._is_due(anchor, before):
            return
        [(at,)] = database.execute("SELECT clock_timestamp()").fetchall()
        after = self._elapsed()
        if anchor is None or after - before <= LONGEST_ROUND_TRIP:
            self._anchor = _Anchor(at, (before + after) / 2)
