"""The real stores without threads: each commit and each read happens at a virtual time, and may fail.

The units, caches, transactions and SQL are those of the service. Simulated are the time of a commit, whether its result
arrives, and the wake-ups between processes.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from unittest import mock

import apsw

from gatepost.core.clock import Clock
from gatepost.core.errors import Unavailable
from gatepost.store import postgres as postgres_module
from gatepost.store.cache import Cache
from gatepost.store.pending import Key
from gatepost.store.postgres import PostgresStore, _ThreadConnection
from gatepost.store.postgres_connection import AppendOnly
from gatepost.store.sqlite import MOST_UNITS, SqliteStore
from gatepost.store.sqlite_connection import SqliteConnection
from gatepost.store.transaction import NO_HINTS, READ_ONLY, Hints, Tx, Unit
from gatepost.store.turnstile import Turnstile
from gatepost.store.work import Gathering, Work, resolve, wait_for_single
from gatepost.webhooks.fanout import create_deliveries
from tests.simulation.loop import Process, VirtualTimeLoop, context_of

T = TypeVar("T")
MILLISECOND = 0.001


class Fault(Enum):
    """A fault of one commit or read."""

    NONE = "none"
    REFUSED = "refused"  # nothing is written, and the caller gets an error
    LOST = "lost"  # it is written, but the caller gets an error
    LATE = "late"  # it is written, and the result arrives after the timeout of the caller
    CRASH_BEFORE = "crash before"  # the process ends before the commit
    CRASH_AFTER = "crash after"  # the process ends between the commit and its result


class Disk:
    """The database that all processes share: its latency, its stalls and its planned faults."""

    def __init__(self, loop: VirtualTimeLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.stalled_until = 0.0
        self.planned: list[Fault] = []  # for the next commits, in order
        self.bell_works = True
        self.commits = self.reads = 0
        self.version = 0  # changes with every commit
        self._rows: dict[Any, Any] = {}  # the results of statements in this version
        self.listeners: list[tuple[Process | None, Callable[[list[Key]], None]]] = []
        self.on_crash: Callable[[Process], None] = lambda _process: None
        self.on_fault: Callable[[Fault], None] = lambda _fault: None

    def delay(self) -> float:
        """Wait until the database has executed a request that is sent now."""
        quick = self.random.uniform(0.5, 3) * MILLISECOND
        return max(0.0, self.stalled_until - self.loop.time()) + quick

    def changed(self) -> None:
        """Forget all results after a transaction that was or may have been committed."""
        self.version += 1
        self._rows.clear()

    def remembered(self, statement: str, values: tuple[Any, ...], read: Callable[[], list[T]]) -> list[T]:
        """Return the rows of a statement, read once for each version, because most chores read unchanged rows.

        The same statement with the same values finds the same rows until a commit: no statement reads the clock.
        """
        try:
            found = self._rows.get((statement, values))
        except TypeError:  # a list among the values
            return read()
        if found is None:
            found = self._rows[statement, values] = read()
        return list(found)

    def next_fault(self) -> Fault:
        if not self.planned:
            return Fault.NONE
        fault = self.planned.pop(0)
        self.on_fault(fault)
        return fault

    def send(self, awaited: set[Key]) -> None:
        if not self.bell_works:
            return
        for process, heard in self.listeners:
            if process is None or process.alive:
                self.loop.call_later(MILLISECOND, heard, list(awaited), context=context_of(process))

    def listen(self, process: Process | None, heard: Callable[[list[Key]], None]) -> "WakeupListener":
        self.listeners.append((process, heard))
        return WakeupListener(self, heard)


class WakeupListener:
    def __init__(self, disk: Disk, heard: Callable[[list[Key]], None]) -> None:
        self._disk, self._heard = disk, heard

    def renew(self) -> None: ...

    def close(self) -> None:
        self._disk.listeners = [each for each in self._disk.listeners if each[1] is not self._heard]


class WakeupSender:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def send(self, awaited: set[Key]) -> None:
        self._disk.send(set(awaited))

    send = send

    def close(self) -> None: ...


class Commits:
    """Decides when the work of one store is done, and which results its callers get."""

    def __init__(self, disk: Disk, process: Process | None, transact: Callable[[list[Work]], list[Work]]) -> None:
        self._disk, self._process, self._transact = disk, process, transact

    def put(self, works: list[Work]) -> None:
        fault = self._disk.next_fault() if self._process is not None else Fault.NONE
        self._disk.loop.call_later(self._disk.delay(), self._commit, works, fault)

    def _commit(self, works: list[Work], fault: Fault) -> None:
        disk = self._disk
        if disk.stalled_until > disk.loop.time():  # a stall has begun in the meantime
            disk.loop.call_later(disk.delay(), self._commit, works, fault)
            return
        if fault is Fault.CRASH_BEFORE and self._process is not None:
            disk.on_crash(self._process)
            return
        if fault is Fault.REFUSED:
            for work in works:
                work.fail(Unavailable("simulated: the commit was refused"))
            resolve(works)
            return
        disk.commits += 1
        done = self._transact([work for work in works if not work.left])
        done += [work for work in works if work.left]
        if fault is Fault.CRASH_AFTER and self._process is not None:
            disk.on_crash(self._process)
            return
        if fault is Fault.LOST:
            for work in done:
                work.fail(Unavailable("simulated: the answer was lost"))
        if fault is Fault.LATE:
            disk.loop.call_later(11.0, resolve, done)
        else:
            resolve(done)
        rest = [work for work in works if work not in done]
        if rest:
            self.put(rest)


class NoTurnstile(Turnstile):
    """A lock that is always free, because there is only one thread."""

    @contextmanager
    def locked(self, before_waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        yield


class RememberingConnection(SqliteConnection):
    """A connection for reading. A commit is one step of the simulation, so reads need no snapshot."""

    def __init__(self, disk: Disk, database: apsw.Connection, statements: dict[str, str]) -> None:
        super().__init__(database, statements, writing=False)
        self._disk = disk

    def rows(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        read = super().rows
        return self._disk.remembered(statement, tuple(parameters.values()), lambda: read(statement, parameters))

    def select(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        read = super().select
        return self._disk.remembered(text, tuple(parameters.values()), lambda: read(text, parameters))

    def rows_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        read = super().rows_given
        return self._disk.remembered(statement, tuple(rows), lambda: read(statement, rows))


class SimulatedSqlite(SqliteStore):
    def __init__(self, path: Path, clock: Clock, disk: Disk, process: Process | None) -> None:
        with mock.patch.object(threading, "Thread", mock.MagicMock()):
            super().__init__(path, clock, create_deliveries)
        self._disk, self._process = disk, process
        self._turnstile = NoTurnstile(path.parent)
        self._reader: RememberingConnection | None = None
        self._reader_cache, self._version_read = Cache(), -1
        self._wakeup_sender.close()
        self._wakeup_sender = WakeupSender(disk)  # type: ignore[assignment]
        self._commits = Commits(disk, process, self._transact_all)
        self._gathering = Gathering(self._hand_over)

    def _hand_over(self, works: list[Work]) -> None:
        self._commits.put(works)

    def _transact_all(self, works: list[Work]) -> list[Work]:
        """Return the units that were run, each with its result or its error."""
        batch = works[:MOST_UNITS]
        if not batch:
            return []
        try:
            return batch[: self._commit(batch)]
        finally:
            self._disk.changed()

    def run_now(self, unit: Unit[T]) -> T:
        work = Work(unit)
        self._transact_all([work])
        if work.error is not None:
            raise work.error
        result: T = work.result
        return result

    def read_now(self, unit: Unit[T]) -> T:
        connection = self._reader
        if connection is None:
            connection = self._reader = RememberingConnection(self._disk, self._file.open(), self._statements)
        if self._version_read != self._disk.version:
            self._reader_cache.refresh(connection)
            self._version_read = self._disk.version
        tx = Tx(connection, self._reader_cache, self._clock(), self._engine)
        result = unit(tx)
        if tx.pending:
            raise TypeError(READ_ONLY)
        return result

    async def read(self, unit: Unit[T], _hints: Hints = NO_HINTS) -> T:
        return await _read_later(self._disk, lambda: self.read_now(unit))

    def listen(self, heard: Any) -> Any:
        return self._disk.listen(self._process, heard)

    def close(self) -> None:
        super().close()
        self._disconnect()
        if self._reader is not None:
            self._reader.database.close(force=True)


async def _read_later(disk: Disk, read: Callable[[], T]) -> T:
    disk.reads += 1
    wait = disk.delay()
    if wait > 10:
        await asyncio.sleep(10)
        raise Unavailable("simulated: the store did not answer in time")
    if disk.random.random() < 0.8:
        await asyncio.sleep(wait)
        return read()
    await asyncio.sleep(wait / 2)
    found = read()
    await asyncio.sleep(wait / 2)  # the rows may change before the result arrives
    return found


class SimulatedPostgres(PostgresStore):
    def __init__(self, url: str, clock: Clock, disk: Disk, process: Process | None) -> None:
        with mock.patch.multiple(postgres_module, Thread=mock.MagicMock(), Watch=mock.MagicMock()):
            super().__init__(url, clock, create_deliveries)
        self._disk, self._process = disk, process
        self._writes = _ThreadConnection(self, "write")
        self._snapshots = _ThreadConnection(self, "read")
        self._wakeup_sender = WakeupSender(disk)  # type: ignore[assignment]
        self._units = Commits(disk, process, self._transact_each)  # type: ignore[assignment]
        self._appends = Commits(disk, process, self._transact_together)  # type: ignore[assignment]
        self._appending = Gathering(self._appends.put)

    def _transact_each(self, works: list[Work]) -> list[Work]:
        for work in works:
            self._transact(self._writes, [work])
        return works

    def _transact_together(self, works: list[Work]) -> list[Work]:
        if works:
            self._append(works)
        apart = [work for work in works if isinstance(work.error, AppendOnly)]
        for work in apart:
            work.error = None
        return [work for work in works if work not in apart] + self._transact_each(apart)

    async def run(self, unit: Unit[T], hints: Hints = NO_HINTS) -> T:
        if hints.append_only:
            return await super().run(unit, hints)
        work = Work(unit, asyncio.get_running_loop().create_future())
        self._units.put([work])
        result: T = await wait_for_single(work)
        return result

    def run_now(self, unit: Unit[T]) -> T:
        work = Work(unit)
        self._transact(self._writes, [work])
        if work.error is not None:
            raise work.error
        result: T = work.result
        return result

    def read_now(self, unit: Unit[T]) -> T:
        work = Work(unit)
        self._transact(self._snapshots, [work])
        if work.error is not None:
            raise work.error
        result: T = work.result
        return result

    async def read(self, unit: Unit[T], _hints: Hints = NO_HINTS) -> T:
        return await _read_later(self._disk, lambda: self.read_now(unit))

    def listen(self, heard: Any) -> Any:
        return self._disk.listen(self._process, heard)

    def close(self) -> None:
        for line in self.lines:
            line.disconnect()
