"""SQLite: one writer thread puts the units that wait into one durable commit.

The event loop never touches the file, which may be slow or frozen: writes and reads have their own threads.

Several processes may use one file. Before it writes, a process passes a turnstile of two locks; the process that wrote
last queues last, so that none starves, and a process that is killed leaves both locks free.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Never, TypeVar, cast

import apsw

from gatepost.core import ids
from gatepost.core.clock import Clock
from gatepost.core.errors import Unavailable
from gatepost.store import sql_loader
from gatepost.store.cache import Cache
from gatepost.store.lost import end_process
from gatepost.store.pending import Again, Key, PendingWrites
from gatepost.store.schema_check import Maintenance, StoreInfo
from gatepost.store.sqlite_connection import WAL_LIMIT, SqliteConnection, unavailable
from gatepost.store.sqlite_file import SqliteFile
from gatepost.store.sqlite_log import WriteAheadLog
from gatepost.store.sqlite_readers import Reader, Readers
from gatepost.store.transaction import NO_HINTS, Engine, FanOut, Group, Hints, Tx, Unit, precompute, prefetch
from gatepost.store.turns import Turns
from gatepost.store.turnstile import Turnstile
from gatepost.store.wakeup import OnWakeup, WakeupListener, WakeupSender
from gatepost.store.work import Gathering, OnCommit, Work, ignore_commit, settle, use_early, wait_for, wait_in_thread

T = TypeVar("T")

MOST_UNITS = 200
LONGEST = 0.010  # seconds for which one batch holds the write lock, about
BUSY = timedelta(seconds=5)  # how long to wait for a program that locks the file without passing the turnstile
_TRIES = 5
_MOST_ROWS = 1500  # rows inserted by one commit, unless a single unit inserts more
_OWN = (apsw.ConstraintError, apsw.MismatchError, apsw.RangeError, apsw.TooBigError)  # the fault of a unit


class SqliteStore:
    """A store on an SQLite file."""

    dialect: sql_loader.Dialect = "sqlite"
    shards = None

    def __init__(
        self, path: Path, clock: Clock, fan_out: FanOut, *, busy: timedelta = BUSY, on_commit: OnCommit = ignore_commit,
        wal_limit: int = WAL_LIMIT, lost: Callable[[BaseException], Never] = end_process,
    ) -> None:  # fmt: skip
        """`lost` is called when the disk failed to keep what was written. It ends the process."""
        self._on_commit = on_commit
        self._clock = clock
        self._file = SqliteFile(path, clock, busy, wal_limit)
        self._statements = sql_loader.statements("sqlite")
        self._engine = Engine(fan_out, ids.slot())
        self._queue: SimpleQueue[list[Work] | None] = SimpleQueue()
        self._gathering = Gathering(self._queue.put)
        self._turns = Turns()
        self._cache = Cache()
        self._turnstile = Turnstile(path.parent)
        self._wakeup_sender = WakeupSender(path.parent)
        self._connection: SqliteConnection | None = None
        self._inode = 0  # of the file that it is connected to
        self._log = WriteAheadLog(path, lost)
        self._began = 0.0  # of the commit under way, like the next two
        self._labels: list[str] = []
        self._wakeups: set[Key] = set()
        self._readers = Readers(self._new_reader, clock, self._engine)
        self._writer = threading.Thread(target=self._write_forever, name="gatepost-write", daemon=True)
        self._writer.start()

    # --- the interface of a store

    def now(self) -> datetime:
        return self._clock()

    async def run(self, unit: Unit[T], hints: Hints = NO_HINTS) -> T:
        """Run the unit. Returns when its commit is on the disk."""
        loop = asyncio.get_running_loop()
        turns = self._turns = self._turns.of(loop)
        if not turns.enter(hints.turn, loop.time()):
            await turns.wait(hints.turn)
        try:
            work = Work(unit, loop.create_future(), hints)
            if hints.append_only and hints.prefetch is None:
                work.precomputed = precompute(unit, self._cache, self._clock(), self._engine)
            gathering = self._gathering = self._gathering.of(loop)
            gathering.add(work)
            return cast(T, await wait_for(work))
        finally:
            turns.leave(hints.turn)

    def run_now(self, unit: Unit[T]) -> T:
        work = Work(unit)
        self._queue.put([work])
        return cast(T, wait_in_thread(work))

    async def read(self, unit: Unit[T], hints: Hints = NO_HINTS) -> T:
        """Run a unit that only reads."""
        return await self._readers.read(unit, hints)

    def read_now(self, unit: Unit[T]) -> T:
        return self._readers.read_now(unit)

    def migrate(self) -> list[str]:
        return self._file.migrate()

    def applied(self) -> dict[int, str]:
        return self._file.applied()

    def info(self) -> StoreInfo:
        return self._file.info()

    def integrity(self) -> list[str]:
        return self._file.integrity()

    def checkpoint(self) -> None:
        self._file.checkpoint(self._log.check)

    def maintain_partitions(self, _classes: Collection[int] = ()) -> Maintenance:
        return Maintenance([], [], {})  # there are none

    def remove_dead_rows(self) -> list[str]:
        return []  # there are none

    def listen(self, on_wakeup: OnWakeup) -> WakeupListener:
        """Call `on_wakeup`, in a thread, when a process creates deliveries."""
        return WakeupListener(self._file.path.parent, on_wakeup)

    def close(self) -> None:
        self._queue.put(None)
        self._writer.join()
        self._readers.close()
        self._file.close()
        self._turnstile.close()
        self._wakeup_sender.close()

    # --- the writer

    def _write_forever(self) -> None:
        waiting: list[Work] = []
        while True:
            if not waiting:
                first = self._queue.get()
                if first is None:
                    break
                waiting += first
            closing = _take(self._queue, waiting)
            settle(work for work in waiting if work.left)
            waiting = [work for work in waiting if not work.left]
            batch, later = waiting[:MOST_UNITS], waiting[MOST_UNITS:]
            done = self._commit(batch) if batch else 0
            settle(batch[:done])
            waiting = batch[done:] + later
            if closing and not waiting:
                break
            if closing:
                self._queue.put(None)
        self._disconnect()

    def _commit(self, batch: list[Work], *, separately: bool = False) -> int:
        """Run units in one commit. Returns how many were reached in the time that a batch may take.

        If the database refuses what a unit left to be written, the batch runs again with the writes of each unit made
        separately, to find the unit.
        """
        try:
            with self._turnstile.locked():
                done = self._transact(batch, separately=separately)
            self._log.sync()  # while other processes write
            self._turns.committed(took := time.monotonic() - self._began)
            self._on_commit(done, took, self._labels)
            if self._wakeups:
                self._wakeup_sender.send(self._wakeups)
                self._wakeups.clear()
        except BaseException as error:  # noqa: BLE001 (whatever it was, every caller must get it)
            self._log.check(error)
            self._cache.clear()
            self._wakeups.clear()
            if not separately and _is_own(error):
                return self._commit(batch, separately=True)
            self._disconnect()
            for work in batch:
                work.fail(unavailable(error))
            return len(batch)
        return done

    def _transact(self, batch: list[Work], *, separately: bool) -> int:
        connection = self._connected()
        connection.database.execute("BEGIN IMMEDIATE")
        self._began, self._labels = time.monotonic(), []
        try:
            done = self._run_all(connection, batch, separately=separately)
            connection.database.execute("COMMIT")
        except BaseException:
            if connection.database.in_transaction:
                connection.database.execute("ROLLBACK")
            connection.saved = False
            raise
        return done

    def _run_all(self, connection: SqliteConnection, batch: list[Work], *, separately: bool) -> int:
        ends = time.monotonic() + LONGEST
        self._cache.refresh(connection)
        pending, done = PendingWrites(), 0
        hints = [work.hints for work in batch]
        group = None if separately else prefetch(connection, self._cache, self._clock(), self._engine, hints)
        for work in batch:
            if done and (time.monotonic() > ends or pending.size > _MOST_ROWS):
                break
            if not work.left:  # while we waited for the lock
                self._run_one(connection, work, pending, group, separately=separately)
            done += 1
        use_early(batch[:done])
        self._write_pending(connection, pending)
        return done

    def _write_pending(self, connection: SqliteConnection, pending: PendingWrites) -> None:
        """Write what units left, and clear it, so that nothing is written twice."""
        if not pending.write(connection.rows_given):
            raise Again("a row was written earlier")
        self._labels += pending.labels
        self._wakeups |= pending.wakeups
        pending.clear()

    def _run_one(
        self, connection: SqliteConnection, work: Work, pending: PendingWrites, group: Group | None, *, separately: bool
    ) -> None:
        """Run one unit. Its savepoint makes it atomic, whatever happens to the other units of the commit."""
        if work.precomputed is not None and work.precomputed.mark is self._cache.mark:
            work.result = work.precomputed.result
            pending.add(work.precomputed.pending)
            return
        for attempt in range(_TRIES):
            shared = group if work.hints.append_only else None
            tx = Tx(connection, self._cache, self._clock(), self._engine, shared, retried=attempt > 0)
            work.error = None
            try:
                if separately:
                    connection.save()
                work.result = work.unit(tx)
                tx.finish()
                if separately:
                    self._write_pending(connection, tx.pending)
                connection.release()
            except BaseException as error:
                if isinstance(error, apsw.Error) and not isinstance(error, _OWN):
                    raise
                connection.undo()
                self._cache.clear()  # it may hold what was undone
                work.fail(error)
                if not isinstance(error, (Again, apsw.ConstraintError)):
                    break
                self._write_pending(connection, pending)  # the unit may depend on one before it in this commit
                group = None  # what was read for the group is out of date
            else:
                if not separately:
                    pending.add(tx.pending)
                return

    # --- connections

    def _connected(self) -> SqliteConnection:
        """The writer's connection. It is opened again if the file was replaced."""
        inode = self._file.inode
        if self._connection is None or inode != self._inode:
            self._disconnect()
            self._connection = SqliteConnection(self._file.open(), self._statements, writing=True)
            self._cache.clear()  # another file may have the same version after other changes
            self._inode = inode
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(apsw.Error):
                self._connection.database.close(force=True)
            self._connection = None
        self._log.close()

    def _new_reader(self) -> Reader:
        return Reader(self._file, self._statements)


def _take(queue: SimpleQueue[list[Work] | None], waiting: list[Work]) -> bool:
    """Add everything in the queue to `waiting`. True if the store is to be closed."""
    while len(waiting) < MOST_UNITS:
        try:
            works = queue.get_nowait()
        except Empty:
            return False
        if works is None:
            return True
        waiting += works
    return False


def _is_own(error: BaseException) -> bool:
    """Whether the error is the fault of a unit, and not of the file, the disk or the machine."""
    return isinstance(error, _OWN) or not isinstance(error, (apsw.Error, OSError, MemoryError, Unavailable))
