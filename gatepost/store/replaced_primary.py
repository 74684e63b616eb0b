"""Leaves a server that stands still, for example because its disk does, once another one is the primary.

The kernel of such a server still acknowledges what it gets, so neither TCP nor PostgreSQL ends the connection. A commit
that waits for its standbys looks the same, and is left alone: it would keep its session, and the next one wait too.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from threading import Event, Thread
from typing import Protocol

import psycopg

from gatepost.core.errors import GatepostError
from gatepost.store import threads

STUCK_AFTER = 10.0  # seconds: longer than any statement of a unit that writes


class Line(Protocol):
    """The connection of a thread."""

    busy_since: float  # by the monotonic clock; 0 while it is idle

    def leave_unless(self, server_start: datetime) -> None: ...


class Watch:
    """A thread that asks which server is the primary while connections are busy for long."""

    def __init__(self, primary_start: Callable[[], datetime], lines: Iterable[Line]) -> None:
        self._primary_start = primary_start
        self._lines = lines
        self._closed = Event()
        self._thread = Thread(target=self._run, name="gatepost-primary", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed.wait(STUCK_AFTER / 5):
            before = time.monotonic() - STUCK_AFTER
            stuck = [line for line in self._lines if 0.0 < line.busy_since < before]
            if stuck:
                with suppress(GatepostError, psycopg.Error, OSError):
                    start = self._primary_start()
                    for line in stuck:
                        line.leave_unless(start)

    def close(self) -> None:
        self._closed.set()
        threads.join([self._thread])
