"""Units that only read, on SQLite: they run in threads, each with a connection and a cache of its own.

The event loop never reads the file, which may be slow. A caller waits for a read at most as long as for a commit.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar, cast

import apsw

from gatepost.core.clock import Clock
from gatepost.store.cache import Cache
from gatepost.store.sqlite_connection import SqliteConnection, unavailable
from gatepost.store.sqlite_file import SqliteFile
from gatepost.store.transaction import READ_ONLY, Engine, Hints, Tx, Unit
from gatepost.store.work import Gathering, Work, settle, wait_for, wait_for_single, wait_in_thread

T = TypeVar("T")
Queue = SimpleQueue[list[Work] | None]

THREADS = 2  # for reads that may take long; short ones share one more


class Reader:
    """A thread's connection to the file. It is opened again if the file was replaced, or a statement failed."""

    def __init__(self, file: SqliteFile, statements: dict[str, str]) -> None:
        self._file = file
        self._statements = statements
        self._inode = 0
        self._connection: SqliteConnection | None = None
        self.cache = Cache()

    def connected(self) -> SqliteConnection:
        inode = self._file.inode
        if self._connection is None or inode != self._inode:
            self.close()
            self._connection = SqliteConnection(self._file.open(), self._statements, writing=False)
            self._inode = inode
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.database.close(force=True)
        self._connection = None
        self.cache.clear()  # another file may have the same version after other changes


class Readers:
    """The threads that run units which only read."""

    def __init__(self, reader: Callable[[], Reader], clock: Clock, engine: Engine) -> None:
        self._reader = reader
        self._engine = engine
        self._clock = clock
        self._short: Queue = SimpleQueue()
        self._long: Queue = SimpleQueue()
        self._gathering = Gathering(self._short.put)
        queues = [self._short, *[self._long] * THREADS]
        self._threads = [
            threading.Thread(target=self._serve, args=(queue,), name="gatepost-read", daemon=True) for queue in queues
        ]
        for thread in self._threads:
            thread.start()

    async def read(self, unit: Unit[T], hints: Hints) -> T:
        loop = asyncio.get_running_loop()
        work = Work(unit, loop.create_future())
        if hints.short:
            gathering = self._gathering = self._gathering.of(loop)
            gathering.add(work)
            return cast(T, await wait_for(work))
        self._long.put([work])
        return cast(T, await wait_for_single(work))

    def read_now(self, unit: Unit[T]) -> T:
        work = Work(unit)
        self._long.put([work])
        return cast(T, wait_in_thread(work))

    def close(self) -> None:
        for queue in [self._short, *[self._long] * THREADS]:
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, queue: Queue) -> None:
        reader = self._reader()
        while (works := queue.get()) is not None:
            batch = [work for work in works if not work.left]
            if batch and not self._read(reader, batch) and len(batch) > 1:
                for work in batch:  # one of them is at fault, so each runs by itself
                    work.error = None
                    self._read(reader, [work])
            settle(works)
        reader.close()

    def _read(self, reader: Reader, batch: list[Work]) -> bool:
        """Run units on one snapshot. False if the file or a statement failed: then none has a result."""
        try:
            connection = reader.connected()
            with connection.database:
                reader.cache.refresh(connection)
                for work in batch:
                    self._run(connection, reader.cache, work)
        except BaseException as error:  # noqa: BLE001 (whatever it was, every caller must get it)
            reader.close()
            for work in batch:
                work.fail(unavailable(error) if isinstance(error, (apsw.Error, OSError)) else error)
            return False
        return True

    def _run(self, connection: SqliteConnection, cache: Cache, work: Work) -> None:
        tx = Tx(connection, cache, self._clock(), self._engine)
        try:
            work.result = work.unit(tx)
            if tx.pending:
                raise TypeError(READ_ONLY)
        except (apsw.Error, OSError):
            raise
        except BaseException as error:  # noqa: BLE001 (the unit's own)
            work.fail(error)
