"""Moving a store from SQLite to PostgreSQL: all rows, table by table, while no other process can write.

The turnstile of the writers is held from the first row to the last. At the end the old file is renamed, so that a
service that still runs on it gets no answer from its store, and loses nothing that it acknowledged.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import apsw
import psycopg
from psycopg import sql

from gatepost.core.errors import BadSetting, Refused
from gatepost.store.turnstile import Turnstile

PAGE = 2000
MOVED = "gatepost.moved.db"
_STAYS = {"migrations", "workers", "nodes"}  # the other store has its own


class Moved(NamedTuple):
    """The rows that were moved, and the new path of the old file."""

    rows: dict[str, int]  # by table
    aside: Path


def to_postgres(
    source: Path, target: psycopg.Connection[Any], on_progress: Callable[[int], None] = lambda _count: None
) -> Moved:
    """Copy everything in one transaction. The other store must have its tables, and no rows."""
    with _held(source) as database, target.transaction():
        if target.execute("SELECT 1 FROM accounts LIMIT 1").fetchall():
            raise Refused("the PostgreSQL database already has accounts; use an empty database")
        tables = [name for name in _tables(database) if name not in _STAYS]
        target.execute("DELETE FROM counters")
        rows = {table: _copy(database, target, table, on_progress) for table in tables}
        for table, count in rows.items():
            name = sql.Identifier(table)
            [(copied,)] = target.execute(sql.SQL("SELECT count(*) FROM {}").format(name)).fetchall()
            if copied != count:
                raise BadSetting(f"{table}: {count} rows were read, but {copied} were written; nothing was moved")
    return Moved(rows, _put_aside(source))


def count(source: Path) -> int:
    """The approximate number of rows."""
    with closing(apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)) as database:
        names = [name for name in _tables(database) if name not in _STAYS]
        return sum(_value(database, f'SELECT count(*) FROM "{name}"') for name in names)


@contextmanager
def _held(source: Path) -> Iterator[apsw.Connection]:
    """A snapshot. No process writes until the context is left."""
    turnstile = Turnstile(source.parent)
    try:
        with turnstile.locked(), closing(apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)) as database:
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("ROLLBACK")
    finally:
        turnstile.close()


def _tables(database: apsw.Connection) -> list[str]:
    """The tables in the order of their creation, so that referenced tables come first."""
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid").fetchall()
    return [name for (name,) in cast(list[tuple[str]], rows) if not name.startswith("sqlite_")]


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


def _put_aside(source: Path) -> Path:
    """Rename the file and its log. A process that has it open finds that it is gone."""
    aside = source.with_name(MOVED)
    with closing(apsw.Connection(str(source))) as database:
        database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    source.rename(aside)
    return aside
