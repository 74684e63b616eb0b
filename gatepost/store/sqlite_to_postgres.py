"""Moving a store from SQLite to PostgreSQL: all rows, table by table, while no other process can write.

The commit on PostgreSQL decides whether the store was moved. Just before it, the SQLite file is renamed, and the
turnstile of the writers is held from the first row until the commit has succeeded. A writer that gets its turn later
finds that the file is gone, and fails: it looks for the file inside the turnstile.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import apsw
import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from gatepost.core import files
from gatepost.core.errors import BadSetting, Refused, Unavailable
from gatepost.store.marker import MOVED, MOVING
from gatepost.store.postgres_connection import unavailable
from gatepost.store.turnstile import Turnstile

PAGE = 2000
_BUSY = 5000  # milliseconds to wait for other programs that use the file
_USED = "another program uses {}, for example a backup; wait until it has ended, and run the command again"
_LOCK = "LOCK TABLE accounts IN EXCLUSIVE MODE"  # also waits for an earlier move whose commit is under way
_STAYS = {"migrations", "workers", "nodes"}  # the other store has its own


class Moved(NamedTuple):
    """The rows that were moved, and the new path of the old file."""

    rows: dict[str, int]  # by table
    aside: Path


def to_postgres(
    source: Path, target: psycopg.Connection[Any], on_progress: Callable[[int], None] = lambda _count: None
) -> Moved:
    """Copy everything in one transaction. The other store must have its tables, and no rows.

    Until the commit the store is in use under its own name, and the other store is empty. If the commit is not
    confirmed, the file keeps the name `MOVING`, so that neither store is written to by mistake. The next run finds out
    whether the commit succeeded, and completes the move or starts again.
    """
    moving, moved = source.with_name(MOVING), source.with_name(MOVED)
    for earlier in (moved, *([moving] if source.exists() else [])):
        if earlier.exists():
            raise Refused(f"{earlier} exists already; rename it first, so that it is not overwritten")
    turnstile = Turnstile(source.parent)
    try:
        with turnstile.locked():
            if _is_interrupted(source) and _is_committed(moving, target):
                rows = _count_rows(moving)
            else:
                if _is_interrupted(source):
                    _rename(moving, source)
                rows = _copy_all(source, moving, target, on_progress)
            _rename(moving, moved)
            for suffix in ("-wal", "-shm"):  # empty, and of no use without the file
                Path(f"{source}{suffix}").unlink(missing_ok=True)
    except psycopg.Error as error:
        raise unavailable(error) from error
    finally:
        turnstile.close()
    return Moved(rows, moved)


def count(source: Path) -> int:
    """The approximate number of rows."""
    return sum(_count_rows(source.with_name(MOVING) if _is_interrupted(source) else source).values())


def _count_rows(file: Path) -> dict[str, int]:
    with closing(_open(file)) as database:
        return {name: _value(database, f'SELECT count(*) FROM "{name}"') for name in _tables(database)}


def _is_interrupted(source: Path) -> bool:
    """Whether an earlier run did not learn whether its commit succeeded."""
    return not source.exists() and source.with_name(MOVING).exists()


def _is_committed(moving: Path, target: psycopg.Connection[Any]) -> bool:
    """Whether the accounts of the file are in the other store. Raises `Refused` if it has only other accounts."""
    with closing(_open(moving)) as database:
        accounts = [row[0] for row in cast(list[tuple[bytes]], database.execute("SELECT id FROM accounts").fetchall())]
    with target.transaction():
        target.execute(_LOCK)
        if target.execute("SELECT 1 FROM accounts WHERE id = ANY(%s) LIMIT 1", (accounts,)).fetchall():
            return True
        _check_empty(target)
    return False


def _check_empty(target: psycopg.Connection[Any]) -> None:
    if target.execute("SELECT 1 FROM accounts LIMIT 1").fetchall():
        raise Refused("the PostgreSQL database already has accounts; use an empty database")


def _copy_all(
    source: Path, moving: Path, target: psycopg.Connection[Any], on_progress: Callable[[int], None]
) -> dict[str, int]:
    """Copy every row and commit. The file is then called `moving`, or `source` as before if nothing was committed."""
    with _held(source) as database:
        try:
            with target.transaction():
                rows = _copy_tables(database, target, on_progress)
                _rename(source, moving)
        except psycopg.Error as error:
            if not _is_interrupted(source):
                raise
            if target.info.transaction_status != TransactionStatus.IDLE:  # the server did not say what became of it
                raise Unavailable(
                    f"PostgreSQL did not confirm the commit ({str(error).strip()}), so {source} is now {moving.name}; "
                    "run the same command again to complete the move"
                ) from error
            _rename(moving, source)
            raise
    return rows


def _copy_tables(
    database: apsw.Connection, target: psycopg.Connection[Any], on_progress: Callable[[int], None]
) -> dict[str, int]:
    target.execute(_LOCK)
    _check_empty(target)
    target.execute("DELETE FROM counters")
    rows = {table: _copy(database, target, table, on_progress) for table in _tables(database)}
    for table, count in rows.items():
        name = sql.Identifier(table)
        [(copied,)] = target.execute(sql.SQL("SELECT count(*) FROM {}").format(name)).fetchall()
        if copied != count:
            raise BadSetting(f"{table}: {count} rows were read, but {copied} were written; nothing was moved")
    return rows


@contextmanager
def _held(source: Path) -> Iterator[apsw.Connection]:
    """The write lock of a file that is complete without its log. No program can write until the context is left."""
    with closing(_open(source)) as database:
        try:
            _tables(database)  # without a read before it, a checkpoint does nothing
            database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            database.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            raise Refused(_USED.format(source)) from None
        log = Path(f"{source}-wal")
        if log.exists() and log.stat().st_size:  # a program that does not pass the turnstile wrote to it
            raise Refused(_USED.format(source))
        yield database
        database.execute("ROLLBACK")


def _open(file: Path) -> apsw.Connection:
    database = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
    database.set_busy_timeout(_BUSY)
    return database


def _rename(old: Path, new: Path) -> None:
    old.rename(new)
    files.sync(new.parent)


def _tables(database: apsw.Connection) -> list[str]:
    """The tables to move, in the order of their creation, so that referenced tables come first."""
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid").fetchall()
    names = [name for (name,) in cast(list[tuple[str]], rows)]
    return [name for name in names if not name.startswith("sqlite_") and name not in _STAYS]


def _copy(
    database: apsw.Connection, target: psycopg.Connection[Any], table: str, on_progress: Callable[[int], None]
) -> int:
    described = cast(list[tuple[Any, ...]], database.execute(f'PRAGMA table_info("{table}")').fetchall())
    columns = [row[1] for row in described]
    into = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(table), sql.SQL(", ").join(sql.Identifier(column) for column in columns)
    )
    copied = 0
    names = ", ".join(f'"{column}"' for column in columns)
    with target.cursor() as cursor, cursor.copy(into) as copy:
        for row in database.execute(f'SELECT {names} FROM "{table}"'):
            copy.write_row(row)
            copied += 1
            if not copied % PAGE:
                on_progress(PAGE)
    on_progress(copied % PAGE)
    return copied


def _value(database: apsw.Connection, text: str) -> int:
    [(value,)] = database.execute(text).fetchall()
    return int(cast(int, value))
