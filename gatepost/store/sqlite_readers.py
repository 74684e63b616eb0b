"""Reading units on SQLite: in threads of their own, each with a connection and a cache that only it uses.

The event loop never reads the file itself, and nobody waits for a reader for longer than for a commit.
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar, cast

import apsw

from gatepost.core.clock import Clock
from gatepost.store.sqlite_connection import SqliteConnection, unavailable
from gatepost.store.tx import NO_WRITING, Cache, Tx, Unit
from gatepost.store.work import Gathering, Work, settle, waited, waited_alone, waited_here

T = TypeVar("T")
Queue = SimpleQueue[list[Work] | None]

THREADS = 2  # for reads that may take long; quick ones have a thread of their own


class Reader:
    """One thread's connection to the file that has the name now, opened again if it was replaced or failed."""

    def __init__(self, path: Path, open_: Callable[[], apsw.Connection], statements: dict[str, str]) -> None:
        self._path = path
        self._open = open_
        self._statements = statements
        self._inode = 0
        self._connection: SqliteConnection | None = None
        self.cache = Cache()

    def connected(self) -> SqliteConnection:
        inode = self._path.stat().st_ino
        if self._connection is None or inode != self._inode:
            self.close()
            self._connection = SqliteConnection(self._open(), self._statements, writing=False)
            self._inode = inode
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.database.close(force=True)
        self._connection = None
        self.cache.clear()  # another file may have come to the same version by other changes


class Readers:
    def __init__(self, reader: Callable[[], Reader], clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._quick: Queue = SimpleQueue()
        self._long: Queue = SimpleQueue()
        self._gathering = Gathering(self._quick.put)
        queues = [self._quick, *[self._long] * THREADS]
        self._threads = [
            threading.Thread(target=self._serve, args=(queue,), name="gatepost-read", daemon=True) for queue in queues
        ]
        for thread in self._threads:
            thread.start()

    async def read(self, unit: Unit[T], *, quick: bool) -> T:
        loop = asyncio.get_running_loop()
        work = Work(unit, loop.create_future())
        if quick:
            gathering = self._gathering = self._gathering.of(loop)
            gathering.add(work)
            return cast(T, await waited(work))
        self._long.put([work])
        return cast(T, await waited_alone(work))

    def read_now(self, unit: Unit[T]) -> T:
        work = Work(unit)
        self._long.put([work])
        return cast(T, waited_here(work))

    def close(self) -> None:
        for queue in [self._quick, *[self._long] * THREADS]:
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, queue: Queue) -> None:
        reader = self._reader()
        while (works := queue.get()) is not None:
            batch = [work for work in works if not work.left]
            if batch and not self._read(reader, batch) and len(batch) > 1:
                for work in batch:  # one of them is at fault: the others must not suffer
                    work.error = None
                    self._read(reader, [work])
            settle(works)
        reader.close()

    def _read(self, reader: Reader, batch: list[Work]) -> bool:
        """All of them on one snapshot. False when the file or a statement failed: then nobody has a result."""
        try:
            connection = reader.connected()
            with connection.database:
                reader.cache.refresh(connection)
                for work in batch:
                    _run(connection, reader.cache, self._clock, work)
        except BaseException as error:  # noqa: BLE001 (whatever it was, every caller must hear of it)
            reader.close()
            for work in batch:
                work.fail(unavailable(error) if isinstance(error, (apsw.Error, OSError)) else error)
            return False
        return True


def _run(connection: SqliteConnection, cache: Cache, clock: Clock, work: Work) -> None:
    tx = Tx(connection, cache, clock())
    try:
        work.result = work.unit(tx)
        if tx.effects.entries:
            raise TypeError(NO_WRITING)
    except (apsw.Error, OSError):
        raise
    except BaseException as error:  # noqa: BLE001 (the unit's own)
        work.fail(error)
