"""Commits that the event loop itself sends to PostgreSQL, without waiting for their outcome.

Threads compete with the event loop for the interpreter lock. To hand a commit to one, and its outcome back, took about
as long as the commit.
"""

import asyncio
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import psycopg
from psycopg.pq import DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGresult

from gatepost.store.cache import Cache
from gatepost.store.combined_statement import CombinedStatement
from gatepost.store.commit_groups import MOST_ROWS, MOST_UNITS, merged
from gatepost.store.pending import PendingWrites
from gatepost.store.postgres_arrays import Array
from gatepost.store.postgres_connection import DISCARD_PLANS, PostgresConnection
from gatepost.store.work import Work, resolve

_UNKNOWN_STATEMENT = b"26000"
_CHECK_LOOP = 0.1  # seconds after which the thread checks whether an event loop still runs
_READ_AGAIN = 1.0  # seconds after which a commit reads without being told that there is something


class Line(Protocol):
    """The connection of the thread that appends. `direct` is None if a commit needs the thread."""

    cache: Cache
    busy_since: float

    def deadline(self, works: list[Work]) -> int | None: ...
    @property
    def direct(self) -> PostgresConnection | None: ...
    def disconnect(self) -> None: ...


OnCommitted = Callable[[list[Work], float, PendingWrites], None]  # with when it began, and what was written


class LoopCommits:
    """Commits over the connection of the thread that appends.

    One commit is under way at a time, and meanwhile the thread does not use the connection. The thread gets all units
    that have to run, that depend on definitions which have changed, or whose commit failed, for example because an
    event was published before. At worst a commit is made twice: after a lost connection, a wait for a standby that was
    cancelled, an event loop that has ended, or in a store that closes.
    """

    def __init__(self, line: Line, to_thread: Callable[[list[Work]], None], on_committed: OnCommitted) -> None:
        self._line = line
        self._to_thread = to_thread
        self._on_committed = on_committed
        self._connection_is_free = threading.Lock()
        self._ending = threading.RLock()
        self._under_way: _Commit | None = None
        self._numbers = itertools.count()
        self.closing = False  # the thread waits for no commit any more

    def hand_over(self, works: list[Work]) -> None:
        """Begin to commit units of the running event loop, or pass them to the thread."""
        if not self._connection_is_free.acquire(blocking=False):
            self._to_thread(works)
            return
        try:
            self._under_way = self._begin(works)
        except Exception:  # noqa: BLE001 (the thread finds the cause, and reports it)
            self._under_way = None
        if self._under_way is None:
            self._release()
            self._to_thread(works)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wait for the commit that is under way, and let none begin. Called by the thread."""
        while not self._connection_is_free.acquire(timeout=_CHECK_LOOP):
            commit = self._under_way
            if commit is not None and (self.closing or not commit.loop.is_running()) and self._take_from(commit):
                self._to_thread(commit.works)
                break
        try:
            yield
        finally:
            self._release()

    def _take_from(self, commit: "_Commit") -> bool:
        """Take the connection from a commit whose event loop does not continue. Called by the thread."""
        with self._ending:
            if not self._take(commit):
                return False
            self._line.disconnect()
            return True

    def _begin(self, works: list[Work]) -> "_Commit | None":
        line = self._line
        connection, cache = line.direct, line.cache
        if connection is None or cache.changes < 0 or len(works) > MOST_UNITS:
            return None
        pending = merged([work for work in works if not work.left], cache.mark)
        if not pending or pending.writes_a_row_twice or pending.size > MOST_ROWS:
            return None
        line.busy_since = time.monotonic()
        statement = connection.combined(pending, cache, line.deadline(works))
        commit = _Commit(works, pending, connection, statement, self._end, self._ending)
        commit.start(b"gatepost_%d" % next(self._numbers))
        return commit

    def _end(self, commit: "_Commit", *, written: bool) -> None:
        """The outcome of a commit is known."""
        if not self._take(commit):
            return
        commit.stop_watching()
        began = self._line.busy_since
        self._release()
        if not written:
            self._to_thread(commit.works)
            return
        for work in commit.works:
            if work.precomputed is not None:
                work.result = work.precomputed.result
        resolve(commit.works)
        self._on_committed(commit.works, began, commit.pending)

    def _take(self, commit: "_Commit") -> bool:
        """Take the connection from a commit. Only the first one can: the event loop or the thread."""
        with self._ending:
            if commit.has_ended:
                return False
            commit.has_ended = True
            self._under_way = None
            return True

    def _release(self) -> None:
        self._line.busy_since = 0.0
        self._connection_is_free.release()


class _Commit:
    """A commit: its statement, and what has to come before it. Each step is sent when the one before has succeeded."""

    def __init__(
        self, works: list[Work], pending: PendingWrites, connection: PostgresConnection, statement: CombinedStatement,
        end: Callable[..., None], ending: threading.RLock,
    ) -> None:  # fmt: skip
        self.works = works
        self.pending = pending
        self.loop = asyncio.get_running_loop()
        self._connection = connection
        self._statement = statement
        self._pgconn = connection.database.pgconn
        self._socket = self._pgconn.socket
        self._steps: deque[Callable[[], None]] = deque()
        self.has_ended = False
        self._end = end
        self._ending = ending  # held while the connection is used or closed
        self._failed = False
        self._written = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self, new_name: bytes) -> None:
        """Begin the commit. The statement gets this name if it has to be prepared."""
        self.stop_watching()  # removes handlers of an earlier socket with the same number
        if self._connection.must_discard_plans():
            self._steps.append(partial(self._pgconn.send_query, DISCARD_PLANS))
        name = self._connection.prepared.get(self._statement.text)
        if name is None:
            name = new_name
            self._steps.append(partial(self._pgconn.send_prepare, name, self._statement.text.encode()))
        self._steps.append(partial(self._send_statement, name))
        self._send()
        self.loop.add_reader(self._socket, self._receive)
        self._timer = self.loop.call_later(_READ_AGAIN, self._read_again)

    def _send_statement(self, name: bytes) -> None:
        self._connection.prepared[self._statement.text] = name
        values = [_encoded(value) for value in self._statement.values]
        self._pgconn.send_query_prepared(name, values, [Format.BINARY] * len(values))

    def _send(self) -> None:
        self._steps.popleft()()
        if self._pgconn.flush():  # the socket did not take all of it
            self.loop.add_writer(self._socket, self._flush)

    def _flush(self) -> None:
        with self._ending:
            if self.has_ended:
                return
            try:
                is_flushed, failed = not self._pgconn.flush(), False
            except psycopg.Error:
                is_flushed = failed = True  # libpq may have closed the socket, and an event loop must not watch that
            if is_flushed:
                self.loop.remove_writer(self._socket)
        if failed:
            self._finish(written=False)

    def _read_again(self) -> None:
        """Read without a notification, so that a missed one delays the commit by a second at most."""
        if not self.has_ended:
            self._timer = self.loop.call_later(_READ_AGAIN, self._read_again)
            self._receive()

    def _receive(self) -> None:
        with self._ending:
            if self.has_ended:
                return
            written = self._read()
        if written is not None:
            self._finish(written=written)

    def _read(self) -> bool | None:
        """Whether the commit has written, or None if it is not known yet.

        Reads until there is nothing left, because the event loop is notified of a reset connection only once.
        """
        try:
            for _ in range(2):
                self._pgconn.consume_input()
                if self._all_steps_ended():
                    self._connection.check_replicated()
                    return self._written and not self._failed
        except Exception:  # noqa: BLE001 (the thread finds the cause, and reports it)
            return False
        return None

    def _all_steps_ended(self) -> bool:
        """Send the next step if the one before has ended."""
        while not self._pgconn.is_busy():
            result = self._pgconn.get_result()
            if result is not None:
                self._note(result)
            elif self._failed or not self._steps:
                return True
            else:
                self._send()
        return False

    def _note(self, result: PGresult) -> None:
        self._failed |= result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
        self._written = result.status == ExecStatus.TUPLES_OK and result.get_value(0, 0) == b"t"
        if self._failed and result.error_field(DiagnosticField.SQLSTATE) == _UNKNOWN_STATEMENT:
            self._connection.prepared.clear()

    def _finish(self, *, written: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._end(self, written=written)

    def stop_watching(self) -> None:
        self.loop.remove_reader(self._socket)
        self.loop.remove_writer(self._socket)


def _encoded(value: Array | int) -> bytes:
    return value.to_bytes(8, "big", signed=True) if isinstance(value, int) else value.encoded
