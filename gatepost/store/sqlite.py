"""SQLite: the waiting units go into one durable commit, of the event loop when it can, else of a writer thread.

Readers have connections of their own.

Several processes may use one file. Before it begins, a writer passes a turnstile of two locks, gate then write: who
just wrote queues behind who waits, so nobody starves, and a killed process leaves both free.
"""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast
from weakref import WeakSet

import apsw

from gatepost import ids
from gatepost.clock import Clock, milliseconds
from gatepost.errors import Unavailable
from gatepost.ledger.entries import Entry
from gatepost.store import text
from gatepost.store.bell import Bell, Heard, Ringer
from gatepost.store.condition import Condition
from gatepost.store.effects import Again, Awaited, Batch, Effects
from gatepost.store.turnstile import NotNow, Turnstile
from gatepost.store.tx import NO_WRITING, Cache, Tx, Unit, Wants, read_together, run_ahead
from gatepost.store.work import PATIENCE, Gathering, Watch, Work, not_watched, resolve, settle, waited, waited_here

T = TypeVar("T")

MOST_UNITS = 200
LONGEST = 0.010  # seconds the write lock is held by one batch, about
BUSY = timedelta(seconds=5)  # how long to wait for somebody who locks the file and does not take turns
SLOW = 0.005  # seconds: a disk that takes longer for a commit is not for the event loop to wait for
SLOW_FOR = 1.0
_TRIES = 5
_MOST_ROWS = 208
_STEP = 16  # rows: a statement is about so many times this, or about fewer
_MOST_EACH = 32  # things that one statement is asked for
_MOST_BIRTHS = 500  # deliveries made in one commit, unless a single entry makes more
_STATEMENTS = 2 * _MOST_ROWS + 500  # kept prepared: an insertion for each number of rows, and all the others
_COLUMNS = {"entries": Entry._fields, "unsealed": ("account", "id")}
_sync = getattr(os, "fdatasync", os.fsync)  # which not every system has
_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "wal_autocheckpoint=8000", "temp_store=MEMORY")
_OWN = (apsw.ConstraintError, apsw.MismatchError, apsw.RangeError, apsw.TooBigError)  # a unit's, not the store's

# Memory is not counted: that would take a lock for each piece. Said here, before anything is opened.
apsw.shutdown()
apsw.config(apsw.SQLITE_CONFIG_MEMSTATUS, 0)
apsw.initialize()


class _Connection:
    """A connection as `Tx` sees it. Writing opens the unit's savepoint; units that only record need none."""

    def __init__(self, database: apsw.Connection, statements: dict[str, str], *, writing: bool) -> None:
        self.database = database
        self._statements = statements
        self._sized: dict[tuple[str, int], str] = {}
        self._writing = writing
        self.saved = False

    def rows(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        return cast(list[tuple[Any, ...]], self.database.execute(self._statements[statement], parameters).fetchall())

    def select(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        return cast(list[tuple[Any, ...]], self.database.execute(text, parameters).fetchall())

    def write(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        self.save()
        return self.rows(statement, parameters)

    def rows_each(self, statement: str, parameters: list[dict[str, Any]]) -> list[list[tuple[Any, ...]]]:
        found: list[list[tuple[Any, ...]]] = [[] for _ in parameters]
        for start in range(0, len(parameters), _MOST_EACH):
            part = parameters[start : start + _MOST_EACH]
            values = list(chain.from_iterable(each.values() for each in part))
            for row in self.database.execute(self._for_each(statement, tuple(part[0]), len(part)), values):
                found[start + row[0]].append(row[1:])
        return found

    def rows_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """In pieces of few sizes: some dozens of prepared texts serve every number of rows."""
        found: list[tuple[Any, ...]] = []
        start = 0
        while start < len(rows):
            left = len(rows) - start
            size = min(left // _STEP * _STEP or left, _MOST_ROWS)
            values = list(chain.from_iterable(rows[start : start + size]))
            found += self.database.execute(self._for_rows(statement, size), values).fetchall()
            start += size
        return found

    def write_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        self.save()
        return self.rows_given(statement, rows)

    def _for_rows(self, statement: str, size: int) -> str:
        found = self._sized.get((statement, size))
        if found is None:
            found = self._sized[statement, size] = text.for_rows(self._statements[statement], size)
        return found

    def _for_each(self, statement: str, names: tuple[str, ...], count: int) -> str:
        found = self._sized.get((statement, count))
        if found is None:
            found = self._sized[statement, count] = text.for_each(self._statements[statement], names, count)
        return found

    def save(self) -> None:
        if not self._writing:
            raise TypeError(NO_WRITING)
        if not self.saved:
            self.database.execute("SAVEPOINT unit")
            self.saved = True

    def release(self) -> None:
        if self.saved:
            self.saved = False
            self.database.execute("RELEASE unit")

    def undo(self) -> None:
        if self.saved:
            self.saved = False
            self.database.execute("ROLLBACK TO unit")
            self.database.execute("RELEASE unit")


class SqliteStore:
    dialect: text.Dialect = "sqlite"

    def __init__(self, path: Path, clock: Clock, *, busy: timedelta = BUSY, watch: Watch = not_watched) -> None:
        self._watch = watch
        self._recorded: list[str] = []  # types of what the commit under way records
        self._began = self._ran = 0.0  # when its units began to run, and were done
        self._path = path
        self._clock = clock
        self._busy = busy
        self._statements = text.statements("sqlite")
        self._queue: SimpleQueue[list[Work] | None] = SimpleQueue()
        self._gathering = Gathering(self._hand_over)
        self._committing = threading.Lock()
        self._slow_until = 0.0
        self._waited = 0.0  # seconds, for the disk to take the last commit
        self._cache = Cache()
        self._turnstile = Turnstile(path.parent)
        self._slot = ids.slot()
        self._awaited: set[Awaited] = set()
        self._ringer = Ringer(path.parent)
        self._connection: _Connection | None = None
        self._log = -1  # the write-ahead log, open to be made durable
        self._inode = 0
        self._readers = ThreadPoolExecutor(2, "gatepost-read")
        self._local = threading.local()
        self._opened: WeakSet[apsw.Connection] = WeakSet()  # those of readers that are still there
        self._writer = threading.Thread(target=self._write_for_ever, name="gatepost-write", daemon=True)
        self._writer.start()

    # --- the interface of a store

    def now(self) -> datetime:
        return self._clock()

    async def run(
        self, unit: Unit[T], *, records_only: bool = False, wants: Wants | None = None, here: bool = False
    ) -> T:
        """Run the unit and return once its commit is on the disk. With `here`, the event loop commits it if it can."""
        loop = asyncio.get_running_loop()
        work = Work(unit, loop.create_future())
        work.here = here
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
        """Run a unit that only reads. One that is quick is not worth a thread."""
        if quick:
            return self.read_now(unit)
        return await asyncio.get_running_loop().run_in_executor(self._readers, self.read_now, unit)

    def read_now(self, unit: Unit[T]) -> T:
        """Run a unit that only reads, on a snapshot of its own."""
        with self._reading() as (connection, cache), connection.database:
            cache.refresh(connection)
            tx = Tx(connection, cache, self._clock())
            result = unit(tx)
            if tx.effects.entries:
                raise TypeError(NO_WRITING)
        return result

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
            raise _unavailable(error) from error
        finally:
            turnstile.close()

    def _apply(self, database: apsw.Connection) -> list[str]:
        missing = text.missing("sqlite", _migrations_done(database))
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
        """Move the write-ahead log into the file without making writers wait."""
        with self._reading() as (connection, _):
            connection.database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def listen(self, heard: Heard) -> Bell:
        """Call `heard`, in a thread of the bell's, when somebody made deliveries."""
        return Bell(self._path.parent, heard)

    def close(self) -> None:
        self._queue.put(None)
        self._writer.join()
        self._readers.shutdown()
        for database in list(self._opened):
            database.close(force=True)
        self._turnstile.close()
        self._ringer.close()

    # --- the event loop, when it can

    def _hand_over(self, works: list[Work]) -> None:
        """Commit right here what was run ahead, if nobody else is writing and the disk is quick.

        Two threads that take turns at one interpreter lock cost more than they give; but a lock that is held, a disk
        that is slow or a unit that has yet to run must not keep the event loop: those are the writer's.
        """
        here = all(work.here for work in works)
        quick = all(work.ahead is not None or work.wants is not None for work in works)
        ready = len(works) <= MOST_UNITS and (here or quick)
        done = 0
        if ready and (here or time.monotonic() >= self._slow_until) and self._committing.acquire(blocking=False):
            try:
                done = self._commit(works, at_once=True)
                if done and self._waited > SLOW:
                    self._slow_until = time.monotonic() + SLOW_FOR
            finally:
                self._committing.release()
        if done < len(works):
            self._queue.put(works[done:])
        resolve(works[:done])

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
            with self._committing:
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

    def _commit(self, batch: list[Work], *, warily: bool = False, at_once: bool = False) -> int:
        """Run the units in one commit and say how many were reached in the time one batch may take.

        When an entry turns out to be one that no database takes, the batch runs again warily, to find whose it was.
        With `at_once`, waits for nobody: none are reached when another writes.
        """
        try:
            with self._turnstile.passed(at_once=at_once):
                in_loop = not at_once and not warily and all(work.here for work in batch)
                done = self._in_loop(batch) if in_loop else self._transact(batch, warily=warily, at_once=at_once)
            self._make_durable()  # while others write
            self._watch(done, time.monotonic() - self._began, self._recorded)
            if self._awaited:
                self._ringer.ring(self._awaited)
                self._awaited.clear()
        except NotNow:
            return 0
        except BaseException as error:  # noqa: BLE001 (whatever it was, every caller must hear of it)
            self._cache.clear()
            self._awaited.clear()
            self._disconnect()
            if not warily and _is_own(error):
                return 0 if at_once else self._commit(batch, warily=True)
            for work in batch:
                work.fail(_unavailable(error))
            return len(batch)
        return done

    def _make_durable(self) -> None:
        """SQLite left this to us, so as not to wait for the disk while it holds its lock."""
        if self._log < 0:
            self._log = os.open(f"{self._path}-wal", os.O_RDONLY)
        _sync(self._log)
        self._waited = time.monotonic() - self._ran

    def _in_loop(self, batch: list[Work]) -> int:
        """It is our turn: have the event loop do the work, which would else share its interpreter lock with us."""
        ended: Future[int] = Future()

        def transact() -> None:
            if not ended.set_running_or_notify_cancel():
                return
            try:
                ended.set_result(self._transact(batch, warily=False, at_once=True))
            except BaseException as error:  # noqa: BLE001 (who waits for it raises it)
                ended.set_exception(error)

        try:
            batch[0].future.get_loop().call_soon_threadsafe(transact)  # type: ignore[union-attr]
            return ended.result(PATIENCE)
        except (RuntimeError, TimeoutError, NotNow):  # the loop ended or stands still, or a stranger locks the file
            if ended.running():
                return ended.result()
            ended.cancel()
            return self._transact(batch, warily=False, at_once=False)

    def _transact(self, batch: list[Work], *, warily: bool, at_once: bool) -> int:
        connection = self._connected()
        self._begin(connection.database, at_once=at_once)
        self._began, self._recorded = time.monotonic(), []
        try:
            done = self._run_all(connection, batch, warily=warily)
            self._ran = time.monotonic()
            connection.database.execute("COMMIT")
        except BaseException:
            if connection.database.in_transaction:
                connection.database.execute("ROLLBACK")
            raise
        return done

    def _begin(self, database: apsw.Connection, *, at_once: bool) -> None:
        if not at_once:
            database.execute("BEGIN IMMEDIATE")
            return
        database.set_busy_timeout(0)
        try:
            database.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            raise NotNow from None
        finally:
            database.set_busy_timeout(self._busy // timedelta(milliseconds=1))

    def _run_all(self, connection: _Connection, batch: list[Work], *, warily: bool) -> int:
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

    def _write_effects(self, connection: _Connection, effects: Effects) -> None:
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
        self, connection: _Connection, work: Work, effects: Effects, together: Batch | None, *, warily: bool
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

    def _connected(self) -> _Connection:
        """The writer's connection, to the file that has the name now: one that was replaced is opened anew."""
        inode = self._path.stat().st_ino
        if self._connection is None or inode != self._inode:
            self._disconnect()
            self._connection = _Connection(self._open(create=False), self._statements, writing=True)
            self._cache.clear()  # another file may have come to the same version by other changes
            self._inode = inode
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(apsw.Error):
                self._connection.database.close(force=True)
            self._connection = None
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    @contextmanager
    def _reading(self) -> Iterator[tuple[_Connection, Cache]]:
        """This thread's reader; a new one next time if something is wrong with it."""
        try:
            yield self._reader()
        except (apsw.Error, OSError) as error:
            self._local.reader = None
            raise _unavailable(error) from error

    def _reader(self) -> tuple[_Connection, Cache]:
        found: tuple[int, _Connection, Cache] | None = getattr(self._local, "reader", None)
        inode = self._path.stat().st_ino
        if found is None or found[0] != inode:
            database = self._open(create=False)
            self._opened.add(database)
            found = (inode, _Connection(database, self._statements, writing=False), Cache())
            self._local.reader = found
        return found[1], found[2]

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
            raise _unavailable(error) from error

    def _open(self, *, create: bool) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        database = apsw.Connection(str(self._path), flags=flags, statementcachesize=_STATEMENTS)
        database.set_busy_timeout(self._busy // timedelta(milliseconds=1))
        # Plans do not depend on values: else many statements would be prepared anew each time they are given some.
        database.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        for pragma in _PRAGMAS:
            database.execute(f"PRAGMA {pragma}")
        return database


def _insert_entries(database: apsw.Connection, entries: list[Entry]) -> None:
    rows = [(ids.raw(entry.account), *entry[1:]) for entry in entries]
    _insert(database, "entries", rows)
    _insert(database, "unsealed", [row[:2] for row in rows])


def _insert(database: apsw.Connection, table: str, rows: list[tuple[Any, ...]]) -> None:
    """One statement for all rows, prepared once for each number of them: it gives up the interpreter lock just once."""
    for start in range(0, len(rows), _MOST_ROWS):
        part = rows[start : start + _MOST_ROWS]
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


def _unavailable(error: BaseException) -> Unavailable:
    if isinstance(error, FileNotFoundError):
        return Unavailable("the store's file is gone")
    return Unavailable(f"the store cannot answer: {type(error).__name__}: {error}")
