"""SQLite: the waiting units go into one durable commit of the writer thread.

The event loop never touches the file, which may be frozen or slow: writing and reading have threads of their own.

Several processes may use one file. Before it begins, a writer passes a turnstile of two locks, gate then write: the
process that wrote last queues last, so nobody starves, and a killed process leaves both free.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Never, TypeVar, cast

import apsw

from gatepost.core import ids
from gatepost.core.clock import Clock, milliseconds
from gatepost.ledger.entries import Entry
from gatepost.store import sql_loader
from gatepost.store.effects import Again, Awaited, Batch, Effects
from gatepost.store.lost import end_process
from gatepost.store.schema_check import Condition
from gatepost.store.sqlite_connection import MOST_ROWS, WAL_LIMIT, SqliteConnection, connect, unavailable
from gatepost.store.sqlite_readers import Reader, Readers
from gatepost.store.turnstile import Turnstile
from gatepost.store.tx import Cache, Tx, Unit, Wants, read_together, run_ahead
from gatepost.store.wakeup import Bell, Heard, Ringer
from gatepost.store.work import Gathering, Watch, Work, not_watched, settle, waited, waited_here

T = TypeVar("T")

MOST_UNITS = 200
LONGEST = 0.010  # seconds the write lock is held by one batch, about
BUSY = timedelta(seconds=5)  # how long to wait for somebody who locks the file and does not take turns
_TRIES = 5
_MOST_BIRTHS = 500  # deliveries made in one commit, unless a single entry makes more
_COLUMNS = {"entries": Entry._fields, "unsealed": ("account", "id")}
_sync = getattr(os, "fdatasync", os.fsync)  # which not every system has
_SYNC_FAILED = (apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC)
_OWN = (apsw.ConstraintError, apsw.MismatchError, apsw.RangeError, apsw.TooBigError)  # a unit's, not the store's


class SqliteStore:
    dialect: sql_loader.Dialect = "sqlite"

    def __init__(
        self, path: Path, clock: Clock, *, busy: timedelta = BUSY, watch: Watch = not_watched,
        wal_limit: int = WAL_LIMIT, lost: Callable[[BaseException], Never] = end_process,
    ) -> None:  # fmt: skip
        """`lost` ends the process. It is called when the disk failed to keep what was written."""
        self._lost = lost
        self._wal_limit = wal_limit
        self._watch = watch
        self._recorded: list[str] = []  # types of what the commit under way records
        self._began = 0.0  # when its units began to run
        self._path = path
        self._clock = clock
        self._busy = busy
        self._statements = sql_loader.statements("sqlite")
        self._queue: SimpleQueue[list[Work] | None] = SimpleQueue()
        self._gathering = Gathering(self._queue.put)
        self._cache = Cache()
        self._turnstile = Turnstile(path.parent)
        self._slot = ids.slot()
        self._awaited: set[Awaited] = set()
        self._ringer = Ringer(path.parent)
        self._connection: SqliteConnection | None = None
        self._log = -1  # the write-ahead log, open to be made durable
        self._inode = 0
        self._readers = Readers(self._new_reader, clock)
        self._checkpointer = self._new_reader()
        self._checkpointing = threading.Lock()
        self._writer = threading.Thread(target=self._write_for_ever, name="gatepost-write", daemon=True)
        self._writer.start()

    # --- the interface of a store

    def now(self) -> datetime:
        return self._clock()

    async def run(self, unit: Unit[T], *, records_only: bool = False, wants: Wants | None = None) -> T:
        """Run the unit and return once its commit is on the disk."""
        loop = asyncio.get_running_loop()
        work = Work(unit, loop.create_future())
        work.wants = wants
        if records_only and wants is None:
            work.ahead = run_ahead(unit, self._cache, self._clock())
        gathering = self._gathering = self._gathering.of(loop)
        gathering.add(work)
        return cast(T, await waited(work))

    def run_now(self, unit: Unit[T]) -> T:
        work = Work(unit)
        self._queue.put([work])
        return cast(T, waited_here(work))

    async def read(self, unit: Unit[T], *, quick: bool = False) -> T:
        """Run a unit that only reads. Quick ones share a snapshot with those that come at the same time."""
        return await self._readers.read(unit, quick=quick)

    def read_now(self, unit: Unit[T]) -> T:
        """Run a unit that only reads, on a snapshot of its own."""
        return self._readers.read_now(unit)

    def migrate(self) -> list[str]:
        """Apply what is missing, under the write lock; say what was applied."""
        turnstile = Turnstile(self._path.parent)  # not the writer's: two threads on one would not wait for each other
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Opened inside: only one at a time can make a new file a write-ahead one, and the others would not wait.
            with turnstile.passed(), closing(self._open(create=True)) as database:
                database.execute("BEGIN IMMEDIATE")
                applied = self._apply(database)
                database.execute("COMMIT")
                return applied
        except (apsw.Error, OSError) as error:
            raise unavailable(error) from error
        finally:
            turnstile.close()

    def _apply(self, database: apsw.Connection) -> list[str]:
        missing = sql_loader.missing("sqlite", _migrations_done(database))
        for migration in missing:
            database.execute(migration.text)
            database.execute(
                "INSERT INTO migrations VALUES (?, ?, ?, ?)",
                (migration.number, migration.name, migration.checksum, milliseconds(self._clock())),
            )
        return [migration.name for migration in missing]

    def applied(self) -> dict[int, str]:
        """The migrations done, by number, with their checksums. Looks without touching."""
        with self._looking() as database:
            if not database.table_exists("main", "migrations"):
                return {}
            rows = database.execute("SELECT number, checksum FROM migrations").fetchall()
        return dict(cast(list[tuple[int, str]], rows))

    def condition(self) -> Condition:
        with self._looking() as database:
            mode = database.pragma("journal_mode")
        dangers = () if mode == "wal" else (f"journal_mode is {mode}, not wal",)
        return Condition(f"SQLite {apsw.sqlite_lib_version()}", None, dangers)

    def integrity(self) -> list[str]:
        """What SQLite's own checks find wrong: nothing, if all is well."""
        found: list[str] = []
        with self._looking() as database:
            try:
                found += [str(row[0]) for row in database.execute("PRAGMA integrity_check(20)")]
                for table, row, other, _ in database.execute("PRAGMA foreign_key_check"):
                    found.append(f"row {row} of {table} names something that is not in {other}")
            except apsw.CorruptError as error:
                found.append(str(error))
        return [each for each in found if each != "ok"]

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file without making writers wait; shorten one that has grown too long.

        A reader that stays keeps the log from being used again from its start, so it grows. When the reader has left
        and everything is in the file, the log is cut: it would otherwise keep its size for ever.
        """
        with self._checkpointing:
            try:
                database = self._checkpointer.connected().database
                frames, moved = database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                if frames == moved and self._wal_size() > self._wal_limit:
                    self._truncate_log(database)
            except apsw.BusyError:  # somebody else does it at this moment
                return
            except (apsw.Error, OSError) as error:
                self._check_sync(error)
                self._checkpointer.close()
                raise unavailable(error) from error

    def _wal_size(self) -> int:
        try:
            return Path(f"{self._path}-wal").stat().st_size
        except FileNotFoundError:
            return 0

    def _truncate_log(self, database: apsw.Connection) -> None:
        """Wait for no reader: while there is one, it is tried again the next time."""
        turnstile = Turnstile(self._path.parent)
        database.set_busy_timeout(0)
        try:
            with turnstile.passed(), suppress(apsw.BusyError):
                database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            database.set_busy_timeout(self._busy // timedelta(milliseconds=1))
            turnstile.close()

    def listen(self, heard: Heard) -> Bell:
        """Call `heard`, in a thread of the bell's, when somebody made deliveries."""
        return Bell(self._path.parent, heard)

    def close(self) -> None:
        self._queue.put(None)
        self._writer.join()
        self._readers.close()
        self._checkpointer.close()
        self._turnstile.close()
        self._ringer.close()

    # --- the writer

    def _write_for_ever(self) -> None:
        waiting: list[Work] = []
        while True:
            if not waiting:
                first = self._queue.get()
                if first is None:
                    break
                waiting += first
            closing = self._take(waiting)
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

    def _take(self, waiting: list[Work]) -> bool:
        """Everything that waits by now; True when the store is closing."""
        while len(waiting) < MOST_UNITS:
            try:
                works = self._queue.get_nowait()
            except Empty:
                return False
            if works is None:
                return True
            waiting += works
        return False

    def _commit(self, batch: list[Work], *, warily: bool = False) -> int:
        """Run the units in one commit and say how many were reached in the time one batch may take.

        When an entry turns out to be one that no database takes, the batch runs again warily, to find whose it was.
        """
        try:
            with self._turnstile.passed():
                done = self._transact(batch, warily=warily)
            self._make_durable()  # while others write
            self._watch(done, time.monotonic() - self._began, self._recorded)
            if self._awaited:
                self._ringer.ring(self._awaited)
                self._awaited.clear()
        except BaseException as error:  # noqa: BLE001 (whatever it was, every caller must hear of it)
            self._check_sync(error)
            self._cache.clear()
            self._awaited.clear()
            self._disconnect()
            if not warily and _is_own(error):
                return self._commit(batch, warily=True)
            for work in batch:
                work.fail(unavailable(error))
            return len(batch)
        return done

    def _make_durable(self) -> None:
        """SQLite left this to us, so as not to wait for the disk while it holds its lock."""
        if self._log < 0:
            self._log = os.open(f"{self._path}-wal", os.O_RDONLY)
        self._sync_log()

    def _sync_log(self) -> None:
        """If it fails, the kernel may have dropped the pages and will not report it again: nothing more is safe."""
        try:
            _sync(self._log)
        except OSError as error:
            self._lost(error)

    def _check_sync(self, error: BaseException) -> None:
        """The same for a sync that SQLite made itself, before or after it moved the log into the file."""
        if getattr(error, "extendedresult", 0) in _SYNC_FAILED:
            self._lost(error)

    def _transact(self, batch: list[Work], *, warily: bool) -> int:
        connection = self._connected()
        connection.database.execute("BEGIN IMMEDIATE")
        self._began, self._recorded = time.monotonic(), []
        try:
            done = self._run_all(connection, batch, warily=warily)
            connection.database.execute("COMMIT")
        except BaseException:
            if connection.database.in_transaction:
                connection.database.execute("ROLLBACK")
            raise
        return done

    def _run_all(self, connection: SqliteConnection, batch: list[Work], *, warily: bool) -> int:
        ends = time.monotonic() + LONGEST
        self._cache.refresh(connection)
        effects = Effects()
        done = 0
        wants = [work.wants for work in batch if work.wants is not None]
        together = read_together(connection, self._cache, self._clock(), wants) if wants and not warily else None
        for work in batch:
            if done and (time.monotonic() > ends or len(effects.births) > _MOST_BIRTHS):
                break
            if not work.left:  # while we waited for our turn
                self._run_one(connection, work, effects, together, warily=warily)
            done += 1
        self._write_effects(connection, effects)
        return done

    def _write_effects(self, connection: SqliteConnection, effects: Effects) -> None:
        """And take them away, so that nothing is written twice. A unit's savepoint stays: they may yet undo it."""
        of_a_unit = connection.saved
        if not effects.rotate(connection):
            raise Again("a family moved on within the commit")
        if effects.entries:
            _insert_entries(connection.database, effects.entries)
            self._recorded += [entry.type for entry in effects.entries]
        if effects.births or effects.tallies:
            effects.write_rest(connection, self._slot)
        if not of_a_unit:
            connection.release()
        self._awaited |= effects.awaited()
        effects.clear()

    def _run_one(
        self, connection: SqliteConnection, work: Work, effects: Effects, together: Batch | None, *, warily: bool
    ) -> None:
        """One unit: its savepoint makes it whole or nothing, whatever becomes of the others.

        Its effects are added to those of the others; warily, they are written here.
        """
        if work.ahead is not None and work.ahead.mark is self._cache.mark:
            work.result = work.ahead.result
            effects.add(work.ahead.effects)
            return
        for _ in range(_TRIES):
            tx = Tx(connection, self._cache, self._clock(), together if work.wants is not None else None)
            work.error = None
            try:
                if warily:
                    connection.save()
                work.result = work.unit(tx)
                tx.finish()
                if warily:
                    self._write_effects(connection, tx.effects)
                connection.release()
            except BaseException as error:
                if isinstance(error, apsw.Error) and not isinstance(error, _OWN):
                    raise
                connection.undo()
                self._cache.clear()  # it may hold what was undone
                work.fail(error)
                if not isinstance(error, (Again, apsw.ConstraintError)):
                    break
                self._write_effects(connection, effects)  # those before it in this commit: perhaps it waits for one
                together = None  # what was read for all is behind now
            else:
                if not warily:
                    effects.add(tx.effects)
                return

    # --- connections

    def _connected(self) -> SqliteConnection:
        """The writer's connection, to the file that has the name now: one that was replaced is opened anew."""
        inode = self._path.stat().st_ino
        if self._connection is None or inode != self._inode:
            self._disconnect()
            self._connection = SqliteConnection(self._open(create=False), self._statements, writing=True)
            self._cache.clear()  # another file may have come to the same version by other changes
            self._inode = inode
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(apsw.Error):
                self._connection.database.close(force=True)
            self._connection = None
        if self._log >= 0:
            self._sync_log()  # a failure that this descriptor has not reported yet would be lost with it
            os.close(self._log)
            self._log = -1

    def _new_reader(self) -> Reader:
        return Reader(self._path, lambda: self._open(create=False), self._statements)

    @contextmanager
    def _looking(self) -> Iterator[apsw.Connection]:
        """A connection that cannot write, for who wants to know what state the file is in."""
        try:
            database = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READONLY)
            try:
                database.set_busy_timeout(self._busy // timedelta(milliseconds=1))
                yield database
            finally:
                database.close()
        except apsw.Error as error:
            raise unavailable(error) from error

    def _open(self, *, create: bool) -> apsw.Connection:
        return connect(self._path, create=create, busy=self._busy, wal_limit=self._wal_limit)


def _insert_entries(database: apsw.Connection, entries: list[Entry]) -> None:
    rows = [(ids.raw(entry.account), *entry[1:]) for entry in entries]
    _insert(database, "entries", rows)
    _insert(database, "unsealed", [row[:2] for row in rows])


def _insert(database: apsw.Connection, table: str, rows: list[tuple[Any, ...]]) -> None:
    """One statement for all rows, prepared once for each number of them: it gives up the interpreter lock just once."""
    for start in range(0, len(rows), MOST_ROWS):
        part = rows[start : start + MOST_ROWS]
        database.execute(_insertion(table, len(part)), list(chain.from_iterable(part)))


@cache
def _insertion(table: str, rows: int) -> str:
    columns = _COLUMNS[table]  # by name: the next release may have added some
    row = f"({', '.join('?' * len(columns))})"
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([row] * rows)}"


def _migrations_done(database: apsw.Connection) -> dict[int, str]:
    database.execute(
        "CREATE TABLE IF NOT EXISTS migrations (number integer PRIMARY KEY, name text, checksum text, at bigint)"
    )
    rows = database.execute("SELECT number, checksum FROM migrations").fetchall()
    return dict(cast(list[tuple[int, str]], rows))


def _is_own(error: BaseException) -> bool:
    """Whether a unit is at fault, and not the file, the disk or the machine."""
    return isinstance(error, _OWN) or not isinstance(error, (apsw.Error, OSError, MemoryError))
