"""One connection to an SQLite file: how it is opened, and how it runs the statements of the `.sql` files."""

from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any, cast

import apsw

from gatepost.core.errors import Unavailable
from gatepost.store import sql_loader
from gatepost.store.transaction import READ_ONLY

MOST_ROWS = 208
WAL_LIMIT = 64 * 1024 * 1024  # bytes that the write-ahead log may keep when they are not needed: two checkpoints
_STEP = 16  # a statement is prepared for a multiple of so many rows, or for fewer
_MOST_EACH = 32  # sets of parameters of one statement
# Statements that stay prepared: the two most frequent inserts for each number of rows, and others.
_STATEMENTS = 2 * MOST_ROWS + 500
_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "wal_autocheckpoint=8000", "temp_store=MEMORY")

# SQLite must not count its memory: that takes a lock for each allocation. This has to be set before it is used.
apsw.shutdown()
apsw.config(apsw.SQLITE_CONFIG_MEMSTATUS, 0)
apsw.initialize()


def connect(path: Path, *, busy: timedelta, wal_limit: int = WAL_LIMIT) -> apsw.Connection:
    """Open the file, which must exist, with the settings that the store needs."""
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=_STATEMENTS)
    database.set_busy_timeout(busy // timedelta(milliseconds=1))
    # Plans must not depend on values: otherwise many statements would be prepared again for each set of values.
    database.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    for pragma in (*_PRAGMAS, f"journal_size_limit={wal_limit}"):
        database.execute(f"PRAGMA {pragma}")
    return database


def unavailable(error: BaseException) -> Unavailable:
    """The error that callers get when the file fails."""
    if isinstance(error, FileNotFoundError):
        return Unavailable("the file of the store does not exist")
    if isinstance(error, Unavailable):
        return Unavailable(str(error))
    return Unavailable(f"the store cannot answer: {type(error).__name__}: {error}")


class SqliteConnection:
    """A connection as `Tx` uses it. The first write of a unit opens its savepoint; pending writes need none."""

    shards = None

    def __init__(self, database: apsw.Connection, statements: dict[str, str], *, writing: bool) -> None:
        self.database = database
        self._statements = statements
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
        text = self._statements[statement]
        results: list[list[tuple[Any, ...]]] = [[] for _ in parameters]
        for start in range(0, len(parameters), _MOST_EACH):
            part = parameters[start : start + _MOST_EACH]
            values = list(chain.from_iterable(named.values() for named in part))
            for row in self.database.execute(sql_loader.for_each(text, tuple(part[0]), len(part)), values):
                results[start + row[0]].append(row[1:])
        return results

    def rows_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Run a statement in parts of a few sizes, so that some dozens of prepared texts serve every number of rows."""
        found: list[tuple[Any, ...]] = []
        text, start = self._statements[statement], 0
        while start < len(rows):
            left = len(rows) - start
            size = min(left if sql_loader.is_insert(text) else left // _STEP * _STEP or left, MOST_ROWS)
            values = list(chain.from_iterable(rows[start : start + size]))
            found += self.database.execute(sql_loader.for_rows(text, size), values).fetchall()
            start += size
        return found

    def write_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        self.save()
        return self.rows_given(statement, rows)

    def check_snapshot(self) -> None:
        """SQLite has no partitions."""

    def save(self) -> None:
        if not self._writing:
            raise TypeError(READ_ONLY)
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
