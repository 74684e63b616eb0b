"""PostgreSQL: a unit is a transaction on a small pool; units that only append share one, since they update no hot row.

PostgreSQL itself groups the fsyncs of concurrent commits. Units run in threads, each with a connection of its own. The
event loop itself sends the commits of units that ran ahead (`loop_commits`).
"""

import asyncio
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar, cast

import psycopg
from psycopg.pq import TransactionStatus

from gatepost.core import clock, ids
from gatepost.core.clock import Clock
from gatepost.core.errors import Unavailable
from gatepost.core.logging import log
from gatepost.store import commit_groups, sql_loader, threads
from gatepost.store.cache import Cache
from gatepost.store.citus_connection import CitusConnection
from gatepost.store.database_clock import DatabaseClock
from gatepost.store.loop_commits import LoopCommits
from gatepost.store.node_watch import NodeWatch, load_shards
from gatepost.store.notify import Listener, Notifier
from gatepost.store.pending import Again, PendingWrites
from gatepost.store.postgres_connection import (
    AppendOnly,
    PostgresConnection,
    Unreplicated,
    has_unknown_outcome,
    unavailable,
)
from gatepost.store.postgres_server import PostgresServer
from gatepost.store.replaced_primary import Watch
from gatepost.store.schema_check import Maintenance, StoreInfo
from gatepost.store.shards import Shards
from gatepost.store.transaction import NO_HINTS, Engine, FanOut, Group, Hints, Tx, Unit, precompute, prefetch
from gatepost.store.turns import Turns
from gatepost.store.wakeup import OnWakeup
from gatepost.store.work import (
    Gathering,
    OnCommit,
    Work,
    check_callers,
    ignore_commit,
    leave_batch,
    settle,
    wait_for,
    wait_for_single,
    wait_in_thread,
)

T = TypeVar("T")
Queue = SimpleQueue[list[Work] | None]
Connected = PostgresConnection | CitusConnection

POOL = 4
_READERS = 2
_TRIES = 5
_RECONNECT = 0.5
_RETRIED = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation)
_OWN = (Again, psycopg.DataError, psycopg.IntegrityError, psycopg.NotSupportedError)  # the fault of a unit


class PostgresStore:
    """A store on a PostgreSQL database."""

    dialect: sql_loader.Dialect = "postgres"

    def __init__(
        self, url: str, clock: Clock, fan_out: FanOut,
        *, listen_url: str = "", follow: bool = False, on_commit: OnCommit = ignore_commit,
    ) -> None:  # fmt: skip
        """With `follow`, the time is the database's, so that machines with different clocks agree on what is due."""
        self.database_clock = DatabaseClock(clock, follow=follow)
        self._on_commit = on_commit
        self.server = PostgresServer(url, self.now, listen_url)
        self._engine = Engine(fan_out, ids.slot())
        self.unreachable_until = 0.0  # before then, no thread tries to connect
        self.is_closing = False  # then none does
        self._units: Queue = SimpleQueue()
        self._appends: Queue = SimpleQueue()
        self._reads: Queue = SimpleQueue()
        self._reading = Gathering(self._reads.put)
        self._turns = Turns()
        self.lines: list[_ThreadConnection] = []
        self.shards: Shards | None = None  # known after the first connection
        self.node_watch = NodeWatch(self.server.open, self.lines)
        self._shared = _ThreadConnection(self, "append")
        self._loop_commits = LoopCommits(self._shared, self._appends.put, partial(self._committed, self._shared))
        self._appending = Gathering(self._loop_commits.hand_over)
        self._wakeup_sender = Notifier(self.server.open)
        self._threads = [Thread(target=self._run_each, args=(self._units, "write"), daemon=True) for _ in range(POOL)]
        self._threads += [
            Thread(target=self._run_each, args=(self._reads, "read"), daemon=True) for _ in range(_READERS)
        ]
        self._threads.append(Thread(target=self._run_together, daemon=True))
        for thread in self._threads:
            thread.start()
        self._watch = Watch(self.server.primary_start, self.lines)

    # --- the interface of a store

    def now(self) -> datetime:
        return self.database_clock.now()

    async def run(self, unit: Unit[T], hints: Hints = NO_HINTS) -> T:
        """Run the unit. Returns when its commit is durable."""
        loop = asyncio.get_running_loop()
        turns = self._turns = self._turns.of(loop)
        if not turns.enter(hints.turn, loop.time()):
            await turns.wait(hints.turn)
        try:
            work = Work(unit, loop.create_future(), hints)
            if hints.append_only:
                if hints.prefetch is None:
                    work.precomputed = precompute(unit, self._shared.cache, self.now(), self._engine)
                gathering = self._appending = self._appending.of(loop)
                gathering.add(work)
                return cast(T, await wait_for(work))
            self._units.put([work])
            return cast(T, await wait_for_single(work))
        finally:
            turns.leave(hints.turn)

    def run_now(self, unit: Unit[T]) -> T:
        work = Work(unit)
        self._units.put([work])
        return cast(T, wait_in_thread(work))

    async def read(self, unit: Unit[T], hints: Hints = NO_HINTS) -> T:
        """Run a unit that only reads."""
        loop = asyncio.get_running_loop()
        work = Work(unit, loop.create_future())
        if hints.short:
            gathering = self._reading = self._reading.of(loop)
            gathering.add(work)
            return cast(T, await wait_for(work))
        self._reads.put([work])
        return cast(T, await wait_for_single(work))

    def read_now(self, unit: Unit[T]) -> T:
        work = Work(unit)
        self._reads.put([work])
        return cast(T, wait_in_thread(work))

    def migrate(self) -> list[str]:
        return self.server.migrate()

    def applied(self) -> dict[int, str]:
        return self.server.applied()

    def info(self) -> StoreInfo:
        return self.server.info()

    def integrity(self) -> list[str]:
        return self.server.integrity()

    def checkpoint(self) -> None:
        """PostgreSQL makes its checkpoints itself."""

    def maintain_partitions(self, classes: Collection[int] = ()) -> Maintenance:
        return self.server.maintain_partitions(classes)

    def remove_dead_rows(self) -> list[str]:
        """Remove dead rows that VACUUM has to leave, unless the tables are distributed. Returns the tables."""
        return self.server.remove_dead_rows() if self.shards is None else []

    def close(self) -> None:
        """Let the threads finish. Connections on which the server does not respond are broken."""
        self._appends.put(None)
        self._end(self._threads[-1:])  # first, since it passes units that it cannot run to the other threads
        for queue in [self._units] * POOL + [self._reads] * _READERS:
            queue.put(None)
        self._end(self._threads)
        self.server.close()
        self._watch.close()
        self.node_watch.close()
        self._wakeup_sender.close()

    def _end(self, ending: list[Thread]) -> None:
        if not threads.join(ending):
            log.warning("the store takes too long to respond, so its connections are closed")
            self.is_closing = self._loop_commits.closing = True
            for line in self.lines:
                line.leave()
            threads.join(ending)

    def listen(self, on_wakeup: OnWakeup) -> Listener:
        """Call `on_wakeup`, in a thread, when a process creates deliveries."""
        return Listener(self.server.open_for_listen, on_wakeup)

    # --- the threads

    def _run_each(self, queue: Queue, mode: str) -> None:
        """Run each unit in its own transaction; units that read and were handed over together share one."""
        line = _ThreadConnection(self, mode)
        while (works := queue.get()) is not None:
            batch = [work for work in works if not work.left]
            if batch:
                self._transact(line, batch)
            settle(works)
        line.disconnect()

    def _run_together(self) -> None:
        """Run all waiting units that only append in as few transactions as possible."""
        while (gathered := self._appends.get()) is not None:
            works = [work for work in gathered if not work.left]
            with self._loop_commits.paused():
                for batch in commit_groups.batches(works, self.shards, self._shared.cache, self._engine, self.now()):
                    self._append(batch)
            own = [work for work in gathered if isinstance(work.error, AppendOnly)]
            settle(work for work in gathered if work not in own)
            leave_batch(own)
            for work in own:
                work.error = None
                self._units.put([work])
        with self._loop_commits.paused():
            self._shared.disconnect()

    def _append(self, batch: list[Work]) -> None:
        if not self._append_at_once(batch):
            self._transact(self._shared, batch)
        self._shared.busy_since = 0.0

    def _transact(self, line: "_ThreadConnection", batch: list[Work]) -> None:
        """Run units in one transaction. Afterwards each has its result or its error."""
        for attempt in range(_TRIES):
            try:
                began = time.monotonic()
                with line.transaction() as connection:
                    group = _prefetch(connection, line, batch, self.now(), self._engine)
                    pending = self._run_all(connection, line.cache, batch, group, retried=attempt > 0)
                    if not connection.write_pending(pending):
                        raise Again("another transaction wrote a row")
                    if line.mode != "read":
                        check_callers(batch)
            except BaseException as error:  # noqa: BLE001 (whatever it was, every caller must get it)
                line.cache.clear()  # it may hold what was rolled back
                again = isinstance(error, (Again, *_RETRIED))
                own = _is_own(error) and not (again and line.mode == "read")
                separately = line.mode == "append" and (again or own)
                line.disconnect_after(error)
                if isinstance(error, Unreplicated) and line.mode == "append" and commit_groups.repeats(batch):
                    continue
                for work in batch:
                    work.fail(AppendOnly() if separately else error if own else unavailable(error))
                if separately or not again:
                    return
            else:
                self._committed(line, batch, began, pending)
                return

    def _append_at_once(self, batch: list[Work]) -> bool:
        """Append with a transaction of one statement, which does nothing if the store has changed.

        False if that is not possible, or its outcome is not known: then everything is still to be done. At worst an
        entry remains of a token that its client did not get. An event is recognized by its id. Through a pooler it is
        not possible, because the session is set up in each transaction.
        """
        line = self._shared
        if any(work.hints.prefetch is None and work.precomputed is None for work in batch) or line.cache.changes < 0:
            return False
        began, is_sent = time.monotonic(), False
        try:
            connection = line.connected()
            if connection.pooled:
                return False
            self.database_clock.measure(connection.database)
            commit_groups.precompute_prefetched(connection, line.cache, self.now(), self._engine, batch)
            pending = commit_groups.merged(batch, line.cache.mark)
            if not pending:
                return False
            is_sent = True
            if not connection.write_pending(pending, unless_changed=line.cache, deadline=line.deadline(batch)):
                return False
        except Exception as error:  # noqa: BLE001 (the transaction that follows reports the error)
            line.disconnect_after(error)
            for work in batch:
                work.may_be_done = is_sent and has_unknown_outcome(error)
            return False
        for work in batch:
            work.result = work.precomputed.result  # type: ignore[union-attr]
        self._committed(line, batch, began, pending)
        return True

    def _committed(self, line: "_ThreadConnection", batch: list[Work], began: float, pending: PendingWrites) -> None:
        if line.mode != "read":
            self._turns.committed(took := time.monotonic() - began)
            self._on_commit(len(batch), took, pending.labels)
        if pending.wakeups:
            self._wakeup_sender.send(pending.wakeups)

    def _run_all(
        self, connection: Connected, cache: Cache, batch: list[Work], group: Group | None, *, retried: bool
    ) -> PendingWrites:
        """Run units. Returns what they leave to be written. In a shared transaction, units that cannot are left out."""
        pending = PendingWrites()
        of_works: list[tuple[Work, PendingWrites]] = []
        for work in batch:
            tx = Tx(connection, cache, self.now(), self._engine, group, retried=retried, may_be_done=work.may_be_done)
            of_work = _run_unit(work, tx, cache, connection.mode)
            if of_work is not None:
                of_works.append((work, of_work))
        possible = connection.possible_keys([of_work for _, of_work in of_works]) if group is not None else None
        for work, of_work in of_works:
            if possible is None or of_work.keys <= possible:
                pending.add(of_work)
            else:
                work.fail(AppendOnly())
        return pending


def _prefetch(
    connection: Connected, line: "_ThreadConnection", batch: list[Work], at: datetime, engine: Engine
) -> Group | None:  # fmt: skip
    if line.mode != "append":
        return None
    late = [work for work in batch if work.precomputed is None or work.precomputed.mark is not line.cache.mark]
    return prefetch(connection, line.cache, at, engine, [work.hints for work in late])


def _run_unit(work: Work, tx: Tx, cache: Cache, mode: str) -> PendingWrites | None:
    """Run one unit, unless it ran ahead. Returns what it leaves to be written, or None if it failed."""
    if work.precomputed is not None and work.precomputed.mark is cache.mark:
        work.result = work.precomputed.result
        return work.precomputed.pending
    work.error = None
    try:
        work.result = work.unit(tx)
        tx.finish()
    except BaseException as error:
        if mode == "write" or isinstance(error, psycopg.Error) or (mode == "read" and isinstance(error, Again)):
            raise
        work.fail(AppendOnly() if isinstance(error, Again) else error)
        return None
    return tx.pending


class _ThreadConnection:
    """The connection of a thread, which is opened again after it broke, and its cache."""

    def __init__(self, store: PostgresStore, mode: str) -> None:
        self._store = store
        self.mode = mode
        self._connection: Connected | None = None
        self.cache = Cache()
        self.busy_since = 0.0
        store.lines.append(self)

    @contextmanager
    def transaction(self) -> Iterator[Connected]:
        connection = self.connected()
        with ExitStack() as ends:
            ends.callback(self._set_idle)
            try:
                ends.enter_context(connection.transaction())
            except psycopg.OperationalError:  # it broke since it was last used, so nothing was lost
                self.disconnect()
                connection = self._connect()
                ends.enter_context(connection.transaction())
            self._store.database_clock.measure(connection.database)
            self.cache.refresh(connection)
            yield connection

    @property
    def direct(self) -> PostgresConnection | None:
        """The connection, if it is open, leads directly to the server, and is not due to measure the server's time."""
        connection = self._connection
        if not isinstance(connection, PostgresConnection) or connection.pooled or self._store.database_clock.is_due:
            return None
        return connection

    def deadline(self, works: list[Work]) -> int | None:
        """The time of the server, in milliseconds, after which a caller no longer waits. None if it is not known."""
        remaining = min(work.expires for work in works) - clock.elapsed()
        return self._store.database_clock.milliseconds_after(remaining)

    def connected(self) -> Connected:
        """The connection, which is busy from now on."""
        connection = self._connection or self._connect()
        self.busy_since = time.monotonic()
        return connection

    def _set_idle(self) -> None:
        self.busy_since = 0.0

    def _connect(self) -> Connected:
        store = self._store
        if store.is_closing or time.monotonic() < store.unreachable_until:
            raise Unavailable("the store cannot be reached")
        try:
            connection = store.server.connect(self.mode)
            store.shards = store.shards or load_shards(connection.database)
            self._connection = connection
            if store.shards is not None:
                self._connection = CitusConnection(connection, store.shards)
                store.node_watch.start(store.shards)
        except Unavailable:
            store.unreachable_until = time.monotonic() + _RECONNECT
            raise
        store.unreachable_until = 0.0
        self.cache.clear()  # another database may have the same version after other changes
        return self._connection

    def leave(self) -> None:
        """Break the connection. Called by another thread."""
        connection = self._connection
        if connection is not None:
            with suppress(psycopg.Error, OSError):
                connection.shut_down()

    def disconnect_after(self, error: BaseException) -> None:
        """Disconnect if the server or the connection failed, so that the connection is opened again."""
        if not isinstance(error, (Again, *_RETRIED)) and not _is_own(error) and not self._works_after(error):
            self.disconnect()

    def _works_after(self, error: BaseException) -> bool:
        """Whether a database node failed, and not the coordinator, to which the connection still works."""
        shards, connection = self._store.shards, self._connection
        if shards is None or connection is None or connection.database.closed:
            return False
        if isinstance(error, psycopg.Error):
            shards.check()
        return connection.database.info.transaction_status == TransactionStatus.IDLE

    def leave_unless(self, server_start: datetime) -> None:
        """Break the connection if it leads to a server that was not started at this time. Called by another thread."""
        connection = self._connection
        if connection is not None and connection.server_start not in (None, server_start):
            connection.shut_down()

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.database.close()
            self._connection = None


def _is_own(error: BaseException) -> bool:
    """Whether the error is the fault of a unit, and not of the server or the connection."""
    if isinstance(error, psycopg.ProgrammingError):
        return error.sqlstate is None  # a value that cannot be sent; otherwise a table or a privilege is missing
    return isinstance(error, _OWN) or not isinstance(error, (psycopg.Error, Unavailable, MemoryError))
