"""An SQLite file: how it is opened, migrated, examined, and how its write-ahead log is kept short."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import cast

import apsw

from gatepost.core import files
from gatepost.core.clock import Clock, milliseconds
from gatepost.store import sql_loader
from gatepost.store.schema_check import StoreInfo
from gatepost.store.sqlite_connection import connect, unavailable
from gatepost.store.turnstile import Turnstile

_MIGRATIONS = "CREATE TABLE IF NOT EXISTS migrations (number integer PRIMARY KEY, name text, checksum text, at bigint)"


class SqliteFile:
    """The file of a store, and its write-ahead log."""

    def __init__(self, path: Path, clock: Clock, busy: timedelta, wal_limit: int) -> None:
        self.path = path
        self._clock = clock
        self._busy = busy
        self._wal_limit = wal_limit
        self._checkpointer: apsw.Connection | None = None
        self._checkpointed = 0  # the inode of the file that it is connected to
        self._checkpointing = threading.Lock()

    @property
    def inode(self) -> int:
        return self.path.stat().st_ino

    def open(self) -> apsw.Connection:
        return connect(self.path, busy=self._busy, wal_limit=self._wal_limit)

    @contextmanager
    def _examined(self) -> Iterator[apsw.Connection]:
        """A connection that cannot write."""
        try:
            database = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
            try:
                database.set_busy_timeout(self._busy // timedelta(milliseconds=1))
                yield database
            finally:
                database.close()
        except apsw.Error as error:
            raise unavailable(error) from error

    def migrate(self) -> list[str]:
        """Apply the missing migrations under the write lock, and return their names."""
        turnstile = Turnstile(self.path.parent)  # not the writer's: two threads that share one would not wait
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Opened inside: only one process at a time can switch a new file to a write-ahead log.
            with turnstile.locked():
                if not self.path.exists():
                    os.close(files.create(self.path))
                with closing(self.open()) as database:
                    database.execute("BEGIN IMMEDIATE")
                    applied = self._apply(database)
                    database.execute("COMMIT")
                return applied
        except (apsw.Error, OSError) as error:
            raise unavailable(error) from error
        finally:
            turnstile.close()

    def _apply(self, database: apsw.Connection) -> list[str]:
        database.execute(_MIGRATIONS)
        missing = sql_loader.missing("sqlite", _applied(database))
        for migration in missing:
            database.execute(migration.text)
            database.execute(
                "INSERT INTO migrations VALUES (?, ?, ?, ?)",
                (migration.number, migration.name, migration.checksum, milliseconds(self._clock())),
            )
        return [migration.name for migration in missing]

    def applied(self) -> dict[int, str]:
        """The applied migrations: number → checksum. Writes nothing."""
        with self._examined() as database:
            return _applied(database) if database.table_exists("main", "migrations") else {}

    def info(self) -> StoreInfo:
        with self._examined() as database:
            mode = database.pragma("journal_mode")
        dangers = () if mode == "wal" else (f"journal_mode is {mode}, not wal",)
        return StoreInfo(f"SQLite {apsw.sqlite_lib_version()}", None, dangers)

    def integrity(self) -> list[str]:
        """The problems that SQLite's own checks find."""
        problems: list[str] = []
        with self._examined() as database:
            try:
                problems += [str(row[0]) for row in database.execute("PRAGMA integrity_check(20)")]
                for table, row, other, _ in database.execute("PRAGMA foreign_key_check"):
                    problems.append(f"row {row} of {table} refers to a row that is not in {other}")
            except apsw.CorruptError as error:
                problems.append(str(error))
        return [problem for problem in problems if problem != "ok"]

    def checkpoint(self, check_sync: Callable[[BaseException], None]) -> None:
        """Copy the write-ahead log into the file without making writers wait, and truncate one that grew too long.

        A long read keeps SQLite from starting the log again, so it grows. When the read has ended and everything is in
        the file, the log is truncated; SQLite would keep its size.
        """
        with self._checkpointing:
            try:
                database = self._checkpointing_connection()
                frames, moved = database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                if frames == moved and self._wal_size() > self._wal_limit:
                    self._truncate_log(database)
            except apsw.BusyError:  # another process is doing it
                return
            except (apsw.Error, OSError) as error:
                check_sync(error)
                self.close()
                raise unavailable(error) from error

    def _checkpointing_connection(self) -> apsw.Connection:
        if self._checkpointer is None or self._checkpointed != self.inode:
            self.close()
            self._checkpointed = self.inode
            self._checkpointer = self.open()
        return self._checkpointer

    def _wal_size(self) -> int:
        try:
            return Path(f"{self.path}-wal").stat().st_size
        except FileNotFoundError:
            return 0

    def _truncate_log(self, database: apsw.Connection) -> None:
        """Does not wait for readers: if there are any, the next checkpoint tries again."""
        turnstile = Turnstile(self.path.parent)
        database.set_busy_timeout(0)
        try:
            with turnstile.locked(), suppress(apsw.BusyError):
                database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            database.set_busy_timeout(self._busy // timedelta(milliseconds=1))
            turnstile.close()

    def close(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close(force=True)
            self._checkpointer = None


def _applied(database: apsw.Connection) -> dict[int, str]:
    rows = database.execute("SELECT number, checksum FROM migrations").fetchall()
    return dict(cast(list[tuple[int, str]], rows))
