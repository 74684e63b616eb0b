"""PostgreSQL: a unit is a transaction on a small pool; units that only record share one, since they touch no hot row.

PostgreSQL groups the fsyncs of concurrent commits by itself. Units run in threads, on connections of their own.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar, cast

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from gatepost.core import ids
from gatepost.core.clock import Clock, milliseconds
from gatepost.core.errors import BadSetting, Unavailable
from gatepost.ledger.entries import Entry
from gatepost.store import sql_loader
from gatepost.store.database_clock import DatabaseClock
from gatepost.store.effects import Again, Batch, Effects, Rotation
from gatepost.store.notify import Herald, Listener
from gatepost.store.schema_check import Condition
from gatepost.store.tx import NO_WRITING, Ahead, Cache, Tx, Unit, Wants, read_together, run_ahead
from gatepost.store.wakeup import Heard
from gatepost.store.work import Gathering, Watch, Work, not_watched, settle, waited, waited_alone, waited_here

T = TypeVar("T")

POOL = 4
MOST_UNITS = 200
_TRIES = 5
_RECONNECT = 0.5
_MIGRATION_LOCK = 0x67617465  # "gate"
# Unless the URL says otherwise. A server that vanished is noticed while its callers still wait. Between two attempts to
# reach it, of one connection or of the next, at most two seconds pass (TCP repeats a SYN after 1 and 3 s).
_CONNECTION: dict[str, str | int] = {
    "application_name": "gatepost", "connect_timeout": 4,
    "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 2, "tcp_user_timeout": 9000,
}  # fmt: skip
# Nobody's forgotten lock, and none of ours should we be cut off, holds the others up for longer than a caller waits.
_TIMEOUTS = (
    "SET idle_in_transaction_session_timeout = '10s'; SET lock_timeout = '5s'; SET statement_timeout = {}; "
    "SET plan_cache_mode = force_custom_plan; "  # a plan for any endpoint is a bad plan for most
    "SET enable_bitmapscan = off"  # pages are read in the order of an index, whatever the planner knows of the table
)
_FIELDS = ", ".join(Entry._fields)
_ENTRIES = """
  unnest(%(e0)b::bytea[], %(e1)b::bytea[], %(e2)b::text[], %(e3)b::bigint[], %(e4)b::text[], %(e5)b::text[],
    %(e6)b::text[], %(e7)b::bytea[], %(e8)b::integer[], %(e9)b::integer[], %(e10)b::text[], %(e11)b::text[])
"""
_ADDED = "RETURNING account, id) INSERT INTO unsealed (account, id) SELECT account, id FROM added"
_UNCHANGED = """
  ((SELECT value FROM counters WHERE name = 'changes') = %(version)b::bigint
    AND (SELECT value FROM counters WHERE name = 'ends') = %(ends)b::bigint)
"""
_INSERT_ENTRIES = f"WITH added AS (INSERT INTO entries ({_FIELDS}) SELECT * FROM {_ENTRIES} {_ADDED}"
_APPEND = f"WITH added AS (INSERT INTO entries ({_FIELDS}) SELECT * FROM {_ENTRIES} WHERE {_UNCHANGED} {_ADDED}"
# What was updated stays so unless the statement fails: so it does when somebody was first.
_ROTATE_AND_APPEND = f"""
WITH rotated AS ({{}}), sure AS (
  SELECT 1 / CASE WHEN {_UNCHANGED} AND (SELECT count(*) FROM rotated) = %(rotations)b::bigint THEN 1 ELSE 0 END AS it),
added AS (INSERT INTO entries ({_FIELDS}) SELECT * FROM {_ENTRIES} WHERE (SELECT it FROM sure) = 1 {_ADDED}
"""
_INDEXES = """
SELECT i.indexrelid::regclass::text, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
  WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('migrations'))
"""
_RETRIED = (
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UniqueViolation,
)
_OWN = (Again, psycopg.DataError, psycopg.IntegrityError, psycopg.NotSupportedError)  # a unit's, not the store's


class _RecordsOnly(Exception):
    """A unit in the shared transaction wants to write: it gets a transaction of its own."""


class _Connection:
    """A connection as `Tx` sees it."""

    def __init__(self, database: psycopg.Connection[tuple[Any, ...]], statements: dict[str, str], mode: str) -> None:
        self.database = database
        self._statements = statements
        self.mode = mode

    def rows(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        cursor = self.database.execute(self._statements[statement], parameters, binary=True)
        return cursor.fetchall() if cursor.description else []

    def select(self, text_: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self.database.execute(sql_loader.placed(text_), parameters).fetchall()

    def write(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        self._may_write()
        return self.rows(statement, parameters)

    def rows_each(self, statement: str, parameters: list[dict[str, Any]]) -> list[list[tuple[Any, ...]]]:
        """One statement for all, which is planned once."""
        found: list[list[tuple[Any, ...]]] = [[] for _ in parameters]
        if parameters:
            columns = {name: [each[name] for each in parameters] for name in parameters[0]}
            for row in self.database.execute(self._statements[statement], columns, prepare=True, binary=True):
                found[row[0] - 1].append(row[1:])
        return found

    def rows_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """One statement for all rows: a column is an array."""
        if not rows:
            return []
        text_ = self._statements[statement]
        columns = zip(sql_loader.given_columns(text_), zip(*rows, strict=True), strict=True)
        given = {name: list(column) for name, column in columns}
        cursor = self.database.execute(text_, given, prepare=True, binary=True)
        return cursor.fetchall() if cursor.description else []

    def write_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        self._may_write()
        return self.rows_given(statement, rows)

    def add_entries(self, entries: list[Entry]) -> None:
        self.database.execute(_INSERT_ENTRIES, _columns(entries), prepare=True)

    def append(self, effects: Effects, as_of: Cache) -> bool:
        """Rotate and add by one statement. False when the store has moved on: then nothing was done."""
        given = _columns(effects.entries) | {"version": as_of.version, "ends": as_of.ends}
        if not effects.rotations:
            return self.database.execute(_APPEND, given, prepare=True).rowcount > 0
        rotations = zip(Rotation._fields, zip(*sorted(effects.rotations), strict=True), strict=True)
        given |= {name: list(column) for name, column in rotations} | {"rotations": len(effects.rotations)}
        try:
            self.database.execute(_ROTATE_AND_APPEND.format(self._statements["rotate_families"]), given, prepare=True)
        except psycopg.errors.DivisionByZero:
            return False
        return True

    def _may_write(self) -> None:
        match self.mode:
            case "records":
                raise _RecordsOnly
            case "read":
                raise TypeError(NO_WRITING)


class PostgresStore:
    dialect: sql_loader.Dialect = "postgres"

    def __init__(self, url: str, clock: Clock, *, follow: bool = False, watch: Watch = not_watched) -> None:
        """With `follow`, time is the database's: machines whose clocks differ agree on when something is due."""
        self._time = DatabaseClock(clock, follow=follow)
        self._watch = watch
        self._url = url
        self._statements = sql_loader.statements("postgres")
        self.unreachable_until = 0.0  # none of our threads tries before
        self._units: SimpleQueue[list[Work] | None] = SimpleQueue()
        self._records: SimpleQueue[list[Work] | None] = SimpleQueue()
        self._gathering = Gathering(self._records.put)
        self._shared = _Line(self, "records")
        self._herald = Herald(self._open)
        self._reads: SimpleQueue[list[Work] | None] = SimpleQueue()
        self._reading = Gathering(self._reads.put)
        self._threads = [Thread(target=self._run_each, args=(self._units, "write"), daemon=True) for _ in range(POOL)]
        self._threads += [Thread(target=self._run_each, args=(self._reads, "read"), daemon=True) for _ in range(2)]
        self._threads.append(Thread(target=self._run_together, daemon=True))
        for thread in self._threads:
            thread.start()

    # --- the interface of a store

    def now(self) -> datetime:
        return self._time.now()

    async def run(self, unit: Unit[T], *, records_only: bool = False, wants: Wants | None = None) -> T:
        """Run the unit and return once its commit is durable. `records_only` is a hope, not a promise."""
        loop = asyncio.get_running_loop()
        work = Work(unit, loop.create_future())
        if records_only:
            work.wants = wants
            work.ahead = run_ahead(unit, self._shared.cache, self.now()) if wants is None else None
            gathering = self._gathering = self._gathering.of(loop)
            gathering.add(work)
            return cast(T, await waited(work))
        self._units.put([work])
        return cast(T, await waited_alone(work))

    def run_now(self, unit: Unit[T]) -> T:
        work = Work(unit)
        self._units.put([work])
        return cast(T, waited_here(work))

    async def read(self, unit: Unit[T], *, quick: bool = False) -> T:
        """Run a unit that only reads. Quick ones share a snapshot with those that come at the same time."""
        loop = asyncio.get_running_loop()
        work = Work(unit, loop.create_future())
        if quick:
            gathering = self._reading = self._reading.of(loop)
            gathering.add(work)
            return cast(T, await waited(work))
        self._reads.put([work])
        return cast(T, await waited_alone(work))

    def read_now(self, unit: Unit[T]) -> T:
        work = Work(unit)
        self._reads.put([work])
        return cast(T, waited_here(work))

    def migrate(self) -> list[str]:
        """Apply what is missing, one migrator at a time; say what was applied."""
        try:
            with self._open() as database:
                database.execute("SELECT pg_advisory_lock(%s)", (_MIGRATION_LOCK,))
                return self._apply(database)
        except psycopg.Error as error:
            raise _unavailable(error) from error

    def _apply(self, database: psycopg.Connection[tuple[Any, ...]]) -> list[str]:
        """Each migration in a transaction of its own."""
        database.execute(
            "CREATE TABLE IF NOT EXISTS migrations (number integer PRIMARY KEY, name text, checksum text, at bigint)"
        )
        database.commit()
        done = dict(database.execute("SELECT number, checksum FROM migrations").fetchall())
        missing = sql_loader.missing("postgres", done)
        for migration in missing:
            database.execute(sql.SQL(migration.text))
            database.execute(
                "INSERT INTO migrations VALUES (%s, %s, %s, %s)",
                (migration.number, migration.name, migration.checksum, milliseconds(self.now())),
            )
            database.commit()
        return [migration.name for migration in missing]

    def applied(self) -> dict[int, str]:
        """The migrations done, by number, with their checksums."""
        with self._looking() as database:
            if database.execute("SELECT to_regclass('migrations')").fetchall() == [(None,)]:
                return {}
            return dict(database.execute("SELECT number, checksum FROM migrations").fetchall())

    def condition(self) -> Condition:
        with self._looking() as database:
            rows = database.execute(
                "SELECT clock_timestamp(), current_setting('server_version'), current_setting('fsync'), "
                "current_setting('full_page_writes'), current_setting('synchronous_commit')"
            ).fetchall()
        at, version, *switches = rows[0]
        names = ("fsync", "full_page_writes", "synchronous_commit")
        off = tuple(f"{name} is off" for name, switch in zip(names, switches, strict=True) if switch == "off")
        return Condition(f"PostgreSQL {version}", at, off)

    def integrity(self) -> list[str]:
        """What PostgreSQL knows to be wrong; where the extension amcheck is installed, it also reads every index."""
        with self._looking() as database:
            [(corrupt,)] = database.execute(
                "SELECT coalesce(checksum_failures, 0) FROM pg_stat_database WHERE datname = current_database()"
            ).fetchall()
            found = [f"{corrupt} pages failed their checksum"] if corrupt else []
            indexes = database.execute(_INDEXES).fetchall()
            found += [f"index {name} is not valid" for name, valid in indexes if not valid]
            if database.execute("SELECT 1 FROM pg_extension WHERE extname = 'amcheck'").fetchall():
                found += [problem for name, _ in indexes if (problem := _examine(database, name))]
        return found

    def checkpoint(self) -> None:
        """PostgreSQL does this by itself."""

    def close(self) -> None:
        self._records.put(None)
        self._threads[-1].join()  # first, since what it cannot do itself it hands to the others
        for queue in [self._units] * POOL + [self._reads] * 2:
            queue.put(None)
        for thread in self._threads:
            thread.join()
        self._herald.close()

    def listen(self, heard: Heard) -> Listener:
        """Call `heard`, in a thread of the listener's, when somebody made deliveries."""
        return Listener(self._open, heard)

    # --- the threads

    def _run_each(self, queue: SimpleQueue[list[Work] | None], mode: str) -> None:
        """One unit after the other, each in its own transaction; of those that read, several that came together."""
        line = _Line(self, mode)
        while (works := queue.get()) is not None:
            batch = [work for work in works if not work.left]
            if batch:
                self._transact(line, batch)
            settle(works)
        line.hang_up()

    def _run_together(self) -> None:
        """Everything that waits and only records, in one transaction."""
        while (gathered := self._records.get()) is not None:
            batch = [work for work in gathered if not work.left]
            for start in range(0, len(batch), MOST_UNITS):
                self._transact(self._shared, batch[start : start + MOST_UNITS])
            own = [work for work in batch if isinstance(work.error, _RecordsOnly)]
            settle(work for work in gathered if work not in own)
            for work in own:
                work.error = None
                self._units.put([work])
        self._shared.hang_up()

    def _transact(self, line: "_Line", batch: list[Work]) -> None:
        """Run the units in one transaction. Afterwards each has its result or its error."""
        if line.mode == "records" and self._append(line, batch):
            return
        for _ in range(_TRIES):
            try:
                effects = Effects()
                began = time.monotonic()
                with line.transaction() as connection:
                    behind = [work for work in batch if work.ahead is None or work.ahead.mark is not line.cache.mark]
                    wants = [work.wants for work in behind if work.wants is not None and line.mode == "records"]
                    together = read_together(connection, line.cache, self.now(), wants) if wants else None
                    for work in batch:
                        self._run_one(connection, line.cache, work, effects, together)
                    _write(connection, effects, line.slot)
            except BaseException as error:  # noqa: BLE001 (whatever it was, every caller must hear of it)
                line.cache.clear()  # it may hold what was rolled back
                again, own = isinstance(error, (Again, *_RETRIED)), _is_own(error)
                apart = line.mode == "records" and (again or own)
                if not again and not own:
                    line.hang_up()
                for work in batch:
                    work.fail(_RecordsOnly() if apart else error if own else _unavailable(error))
                if apart or not again:
                    return
            else:
                if line.mode != "read":
                    self._watch(len(batch), time.monotonic() - began, [entry.type for entry in effects.entries])
                awaited = effects.awaited()
                if awaited:
                    self._herald.tell(awaited)
                return

    def _append(self, line: "_Line", batch: list[Work]) -> bool:
        """What only adds entries and rotates families is a transaction of one statement, if nothing changed since.

        False when it is not so, or nobody knows: then all of it is still to be done. At worst an entry stays of a token
        that nobody got.
        """
        if any(work.wants is None and work.ahead is None for work in batch) or line.cache.version < 0:
            return False
        effects = Effects()
        began = time.monotonic()
        try:
            connection = line.connected()
            self._time.measure(connection.database)
            self._run_ahead(connection, line.cache, batch)
            for work in batch:
                if work.ahead is None or work.ahead.mark is not line.cache.mark:
                    return False
                effects.add(work.ahead.effects)
            if effects.births or effects.tallies or not effects.entries:
                return False
            if not connection.append(effects, line.cache):
                return False
        except Exception:  # noqa: BLE001 (the transaction will say whose fault it was)
            return False
        for work in batch:
            work.result = work.ahead.result  # type: ignore[union-attr]
        self._watch(len(batch), time.monotonic() - began, [entry.type for entry in effects.entries])
        return True

    def _run_ahead(self, connection: _Connection, cache: Cache, batch: list[Work]) -> None:
        """Those that want a family, with what is read for all of them. Raises, and none is ahead, if one cannot be."""
        wanting = [(work, work.wants) for work in batch if work.wants is not None]
        if not wanting:
            return
        together = read_together(connection, cache, self.now(), [wants for _, wants in wanting])
        made: list[Ahead] = []
        for work, _ in wanting:
            tx = Tx(connection, cache, self.now(), together)
            result = work.unit(tx)
            tx.finish()
            made.append(Ahead(cache.mark, result, tx.effects))
        for (work, _), ahead in zip(wanting, made, strict=True):
            work.ahead = ahead

    def _run_one(
        self, connection: _Connection, cache: Cache, work: Work, effects: Effects, together: Batch | None
    ) -> None:
        if work.ahead is not None and work.ahead.mark is cache.mark:
            work.result = work.ahead.result
            effects.add(work.ahead.effects)
            return
        tx = Tx(connection, cache, self.now(), together if work.wants is not None else None)
        work.error = None
        try:
            work.result = work.unit(tx)
            tx.finish()
        except BaseException as error:
            if connection.mode == "write" or isinstance(error, psycopg.Error):
                raise
            work.fail(_RecordsOnly() if isinstance(error, Again) else error)
            return
        effects.add(tx.effects)

    @contextmanager
    def _looking(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """A connection that cannot write, for who wants to know what state the database is in."""
        with self._open() as database:
            database.autocommit = True
            database.execute("SET default_transaction_read_only = on")
            try:
                yield database
            except psycopg.Error as error:
                raise _unavailable(error) from error

    def _open(self) -> psycopg.Connection[tuple[Any, ...]]:
        try:
            return psycopg.connect(**(_CONNECTION | conninfo_to_dict(self._url)))  # type: ignore[arg-type]
        except psycopg.OperationalError as error:
            raise Unavailable(f"the store cannot answer: {str(error).strip()}") from None
        except psycopg.ProgrammingError:  # whose text may hold the password
            raise BadSetting("database: PostgreSQL does not understand this URL") from None


def _examine(database: psycopg.Connection[tuple[Any, ...]], index: str) -> str:
    try:
        database.execute("SELECT bt_index_check(%s::regclass, true)", (index,))
    except psycopg.errors.InsufficientPrivilege:
        return ""
    except psycopg.DatabaseError as error:
        return f"index {index}: {str(error).strip()}"
    return ""


class _Line:
    """One thread's connection, made again when it broke, and the cache that goes with it."""

    def __init__(self, store: PostgresStore, mode: str) -> None:
        self._store = store
        self.mode = mode
        self.slot = ids.slot()
        self._connection: _Connection | None = None
        self.cache = Cache()

    @contextmanager
    def transaction(self) -> Iterator[_Connection]:
        connection = self.connected()
        with ExitStack() as ends:
            try:
                ends.enter_context(connection.database.transaction())
            except psycopg.OperationalError:  # cut since the last time: nothing was asked of this connection yet
                self.hang_up()
                connection = self._connect()
                ends.enter_context(connection.database.transaction())
            self._store._time.measure(connection.database)
            self.cache.refresh(connection)
            yield connection

    def connected(self) -> _Connection:
        return self._connection or self._connect()

    def _connect(self) -> _Connection:
        store = self._store
        if time.monotonic() < store.unreachable_until:
            raise Unavailable("the store cannot be reached")
        try:
            database = store._open()
        except Unavailable:
            store.unreachable_until = time.monotonic() + _RECONNECT
            raise
        store.unreachable_until = 0.0
        self._connection = _Connection(database, store._statements, self.mode)
        self.cache.clear()  # another database may have come to the same version by other changes
        database.autocommit = True
        if self.mode == "read":  # one snapshot for all that a unit reads
            database.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            database.read_only = True
        database.execute(sql.SQL(_TIMEOUTS).format(0 if self.mode == "read" else "8s"))
        return self._connection

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.database.close()
            self._connection = None


def _write(connection: _Connection, effects: Effects, slot: int) -> None:
    """What the units left to be written, by one statement for each table. No hot row: all may write it."""
    if connection.mode == "read" and effects.entries:
        raise TypeError(NO_WRITING)
    if not effects.rotate(_Appending(connection)):
        raise Again("a family moved on meanwhile")
    if effects.entries:
        connection.add_entries(effects.entries)
    effects.write_rest(_Appending(connection), slot)


def _columns(entries: list[Entry]) -> dict[str, Any]:
    columns = zip(*[(ids.raw(entry.account), *entry[1:]) for entry in entries], strict=True)
    return {f"e{number}": list(column) for number, column in enumerate(columns)}


class _Appending:
    """The same connection for what is only added, also in the shared transaction."""

    def __init__(self, connection: _Connection) -> None:
        self.write_given = connection.rows_given


def _is_own(error: BaseException) -> bool:
    """Whether a unit is at fault, and not the server or the way to it."""
    if isinstance(error, psycopg.ProgrammingError):
        return error.sqlstate is None  # a value that cannot be sent; else a table or a right that is not there
    return isinstance(error, _OWN) or not isinstance(error, (psycopg.Error, Unavailable, MemoryError))


def _unavailable(error: BaseException) -> Unavailable:
    if isinstance(error, Unavailable):
        return Unavailable(str(error))
    return Unavailable(f"the store cannot answer: {type(error).__name__}: {str(error).strip()}")
