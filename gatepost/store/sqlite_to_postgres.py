"""Moving a store from SQLite to PostgreSQL: every row, table by table, while nobody else can write.

The writers' turnstile is held from the first row to the last, and the old file is put aside at the end under another
name: a service that still runs on it gets no answer from its store, and loses nothing that it promised.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import apsw
import psycopg
from psycopg import sql

from gatepost.core.errors import BadSetting
from gatepost.store.turnstile import Turnstile

PAGE = 2000
MOVED = "gatepost.moved.db"
_STAYS = {"migrations", "workers"}  # the other store has its own


class Moved(NamedTuple):
    rows: dict[str, int]  # by table
    aside: Path


def to_postgres(
    source: Path, target: psycopg.Connection[Any], passed: Callable[[int], None] = lambda _count: None
) -> Moved:
    """Copy everything. The other store has its tables, and nothing in them. It commits whole or not at all."""
    with _held(source) as database, target.transaction():
        if target.execute("SELECT 1 FROM accounts LIMIT 1").fetchall():
            raise BadSetting("the PostgreSQL database has accounts already; move into one that is empty")
        tables = [name for name in _tables(database) if name not in _STAYS]
        target.execute("DELETE FROM counters")
        rows = {table: _copy(database, target, table, passed) for table in tables}
        for table, count in rows.items():
            name = sql.Identifier(table)
            [(there,)] = target.execute(sql.SQL("SELECT count(*) FROM {}").format(name)).fetchall()
            if there != count:
                raise BadSetting(f"{table}: {count} rows were read and {there} arrived; nothing was moved")
    return Moved(rows, _put_aside(source))


def count(source: Path) -> int:
    """About how many rows there are."""
    with closing(apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)) as database:
        names = [name for name in _tables(database) if name not in _STAYS]
        return sum(_value(database, f'SELECT count(*) FROM "{name}"') for name in names)


@contextmanager
def _held(source: Path) -> Iterator[apsw.Connection]:
    """One snapshot, and nobody writes until it is left."""
    turnstile = Turnstile(source.parent)
    try:
        with turnstile.passed(), closing(apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)) as database:
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("ROLLBACK")
    finally:
        turnstile.close()


def _tables(database: apsw.Connection) -> list[str]:
    """In the order they were made: what others refer to comes first."""
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid").fetchall()
    return [name for (name,) in cast(list[tuple[str]], rows) if not name.startswith("sqlite_")]


def _copy(database: apsw.Connection, target: psycopg.Connection[Any], table: str, passed: Callable[[int], None]) -> int:
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
                passed(PAGE)
    passed(copied % PAGE)
    return copied


def _value(database: apsw.Connection, text: str) -> int:
    [(found,)] = database.execute(text).fetchall()
    return int(cast(int, found))


def _put_aside(source: Path) -> Path:
    """Under another name, with its log. Who has it open is told that the file is gone."""
    aside = source.with_name(MOVED)
    with closing(apsw.Connection(str(source))) as database:
        database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    source.rename(aside)
    return aside
