"""Partitions of the large tables on PostgreSQL: which there are, and making them ahead.

Migration 0017 describes the tables. What exists is read from the catalogue, so there is no other record of it. Every
step is a transaction that either happens or does not, and one process at a time takes steps.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import psycopg

from gatepost.core import clock
from gatepost.store.schema_check import Maintenance

Database = psycopg.Connection[tuple[Any, ...]]

_DAY = 86_400_000
_WIDTHS = {7: 1, 30: 1, 90: 3, 400: 14, 2555: 90}  # retention class → days in a partition: about 30 for each class
_AHEAD = 3 * _DAY
MAX_MOVED = 5_000  # rows that are moved in one transaction, while others wait
MAX_BYTES = 16 << 20  # of these rows
_LOCK = 0x70617274  # "part"
# A change of a table waits for transactions that use it, and all others wait for the change. Rather try again later.
# Partitions are created in the schema of the store, even if another one is now the first of the search path.
_BEGIN = f"""
SELECT set_config('search_path', (SELECT quote_ident(nspname) FROM pg_namespace n JOIN pg_class c
    ON c.relnamespace = n.oid WHERE c.oid = to_regclass('migrations')), true),
  set_config('lock_timeout', '100ms', true), set_config('statement_timeout', '8s', true),
  pg_try_advisory_xact_lock({_LOCK})
"""
_END = re.compile(r"TO \('\\x([0-9a-f]*)'\)")
_BOUNDS = re.compile(r"FOR VALUES FROM \('\\x([0-9a-f]*)'\) TO \('\\x([0-9a-f]*)'\)")


_WAITING = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled, psycopg.errors.DeadlockDetected)


class Table(NamedTuple):
    """A partitioned table. Its partitions by time belong to one retention class each, or to the longest one in use."""

    name: str
    key: str  # the column with the id of which the time counts
    classes: tuple[int, ...] = ()  # which can have a table each
    defaults: tuple[int, ...] = ()  # of these, those of new accounts
    options: str = ""
    large: str = ""  # the column with almost all bytes of a row, if rows can be large

    @property
    def by_class(self) -> bool:
        return bool(self.classes)

    def parent(self, days: int) -> str:
        return f"{self.name}_{days}" if self.by_class else self.name

    @property
    def unique(self) -> str:
        return f"PRIMARY KEY (account, {self.key}{'' if self.by_class else ', number'})"


ENTRIES = Table("entries", "id", (7, 30, 90, 400, 2555), (30, 400), large="data")
DELIVERIES = Table("deliveries", "id", (7, 30, 90, 400), (30,), "WITH (fillfactor = 50)")
ATTEMPTS = Table("attempts", "delivery", large="document")
TABLES = (DELIVERIES, ATTEMPTS, ENTRIES)


class NotYet(Exception):
    """Why a partition cannot be changed now."""


class Partition(NamedTuple):
    """The partition of a table for a range of time, without its end, in milliseconds."""

    table: Table
    days: int  # for which its rows are kept
    since: int
    until: int
    name: str

    def is_expired(self, now: int) -> bool:
        return self.until + self.days * _DAY <= now

    @property
    def range(self) -> dict[str, bytes]:
        return {"low": _id(self.since), "high": _id(self.until)}


def make(
    database: Database, now: int, cancelled: set[str] | None = None, given: Collection[int] = ()
) -> Maintenance:  # fmt: skip
    """Make the tables of the given retention classes, and the partitions of the next days for those in use.

    `cancelled` are the tables that took too long to make. They are not tried again.
    """
    done = Maintenance([], [], {})
    if not classes(database, DELIVERIES):
        return done  # the tables are not partitioned
    cancelled = set() if cancelled is None else cancelled
    for table in (ENTRIES, DELIVERIES):
        for days in sorted(_needed(database, table, given) - {*classes(database, table)}):
            step(done.made, done, table.parent(days), partial(_add_class, database, table, days, cancelled))
    longest = max(in_use(database, DELIVERIES))
    for table in TABLES:
        for days in in_use(database, table) if table.by_class else [longest]:
            for partition in _missing(database, table, days, now):
                step(done.made, done, partition.name, partial(_create, database, partition))
    return done


def step(names: list[str], done: Maintenance, name: str, change: Callable[[], bool]) -> None:
    """Try to change a partition, and note its name with the result."""
    try:
        if change():
            names.append(name)
    except (*_WAITING, NotYet) as error:
        done.waiting[name] = str(error).strip()


def existing(database: Database, table: Table) -> list[Partition]:
    """The partitions of a table by time, the oldest first."""
    parents = [table.parent(days) for days in classes(database, table)] if table.by_class else [table.name]
    rows = database.execute(
        "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = ANY(%s::text[]::regclass[])",
        (parents,),
    ).fetchall()
    return sorted(_partitions(table, rows), key=lambda partition: partition.since)


def _partitions(table: Table, rows: Iterable[tuple[str, str | None]]) -> Iterable[Partition]:
    for name, bounds in rows:  # without bounds, if another process dropped it just now
        match, named = _BOUNDS.fullmatch(bounds or ""), re.fullmatch(rf"{table.name}_(\d+)_\d+", name)
        if match and named:
            since, until = (int(bound, 16) for bound in match.groups())
            yield Partition(table, int(named[1]), since, until, name)


def classes(database: Database, table: Table) -> list[int]:
    """The retention classes that have a table."""
    rows = database.execute(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(%s)",
        (f"{table.name}_since",),
    ).fetchall()
    return sorted(int(name.rpartition("_")[2]) for (name,) in rows if name != f"{table.name}_rest")


def in_use(database: Database, table: Table) -> list[int]:
    """The retention classes that need partitions: those of new accounts, and those that have rows."""
    return [
        days
        for days in classes(database, table)
        if days in table.defaults or run(database, f"SELECT 1 FROM {table.parent(days)} LIMIT 1")
    ]


# --- making


def _needed(database: Database, table: Table, given: Collection[int]) -> set[int]:
    """The retention classes of new accounts, the given ones, and those of rows that are outside of all classes."""
    rest = f"{table.name}_rest"
    [(size,)] = run(database, f"SELECT pg_table_size('{rest}')")
    of_rows = run(database, f"SELECT DISTINCT keep_days FROM {rest}") if size <= MAX_BYTES else []
    return {*table.classes} & {*table.defaults, *given, *(days for (days,) in of_rows)}


def _add_class(database: Database, table: Table, days: int, cancelled: set[str]) -> bool:
    """Make the table of a retention class, and move the rows that it already has there. False if it exists by now."""
    name = table.parent(days)
    if name in cancelled:
        raise NotYet(f"it took too long to make it: rows that are kept for {days} days are deleted one by one")
    _check_move(database, table, days)
    try:
        with database.transaction():
            if not begin(database) or days in classes(database, table):
                return False
            _move_class(database, table, days)
    except psycopg.errors.QueryCanceled:
        cancelled.add(name)
        raise
    return True


def _check_move(database: Database, table: Table, days: int) -> None:
    """Raise `NotYet` if a retention class has many rows, or if PostgreSQL would scan many rows of other classes."""
    rest = f"{table.name}_rest"
    counted = f"SELECT count(*) FROM (SELECT 1 FROM {rest} WHERE keep_days = {days} LIMIT {MAX_MOVED + 1}) counted"
    [(size,)] = run(database, f"SELECT pg_table_size('{rest}')")
    if size > MAX_BYTES or run(database, counted)[0][0] > MAX_MOVED:
        raise NotYet(f"too many rows would be moved: rows that are kept for {days} days are deleted one by one")


def _move_class(database: Database, table: Table, days: int) -> None:
    """Make the table of a retention class in a transaction that has begun."""
    name = table.parent(days)
    run(database, f"LOCK TABLE {table.name} IN ACCESS EXCLUSIVE MODE")
    run(database, f"CREATE TABLE {name} (LIKE {table.name} INCLUDING CONSTRAINTS) PARTITION BY RANGE (id)")
    run(database, f"CREATE TABLE {name}_rest PARTITION OF {name} ({table.unique}) DEFAULT {table.options}")
    run(
        database,
        f"WITH moved AS (DELETE FROM {table.name}_rest WHERE keep_days = {days} RETURNING *) "
        f"INSERT INTO {name} SELECT * FROM moved",
    )
    run(database, f"ALTER TABLE {table.name}_since ATTACH PARTITION {name} FOR VALUES IN ({days})")
    rests = [f"{table.name}_before", f"{table.name}_rest"]
    rests += [f"{table.parent(kept)}_rest" for kept in classes(database, table)]
    text = " UNION ALL ".join(f"SELECT * FROM {rest}" for rest in rests)
    run(database, f"CREATE OR REPLACE VIEW {table.name}_pruned_by_row AS {text}")


def _missing(database: Database, table: Table, days: int, now: int) -> Iterable[Partition]:
    """The partitions between now and some days ahead that do not exist.

    They begin at multiples of their width, or later: after partitions of another width, and after today if there are
    rows of today without a partition.
    """
    taken = [other for other in existing(database, table) if other.days == days or not table.by_class]
    start, width = _start(database, table), _WIDTHS[days] * _DAY
    for since in range(now - now % width, now + _AHEAD, width):
        high = since + width
        overlapping = (other.until for other in taken if other.since < high and since < other.until)
        partition = _partition(table, days, max(since, start, *overlapping), high)
        if partition.since < high and has_rows(database, f"{table.parent(days)}_rest", partition):
            partition = _partition(table, days, max(partition.since, now - now % _DAY + _DAY), high)
        if partition.since < high:
            yield partition


def _partition(table: Table, days: int, since: int, until: int) -> Partition:
    return Partition(table, days, since, until, f"{table.name}_{days}_{clock.from_milliseconds(since):%Y%m%d}")


def _start(database: Database, table: Table) -> int:
    """When the table that there was before partitions gets no more rows."""
    name = f"{table.name}_before"
    [(bounds,)] = run(
        database, f"SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = to_regclass('{name}')"
    )
    return int(_END.findall(bounds)[0] or "0", 16)


def _create(database: Database, partition: Partition) -> bool:
    """Make a partition. False if it exists by now, or if there are rows already: they stay where they are."""
    table, name = partition.table, partition.name
    parent = table.parent(partition.days)
    low, high = (bound.hex() for bound in partition.range.values())
    with database.transaction():
        if not begin(database) or exists(database, name) or has_rows(database, f"{parent}_rest", partition):
            return False
        run(database, f"CREATE TABLE {name} (LIKE {parent} INCLUDING CONSTRAINTS, {table.unique}) {table.options}")
        bounds = f"FOR VALUES FROM ('\\x{low}') TO ('\\x{high}')"
        run(database, f"ALTER TABLE {parent} ATTACH PARTITION {name} {bounds}")
    return True


def has_rows(database: Database, name: str, partition: Partition) -> bool:
    """Whether a table has rows in the range of the partition."""
    key = partition.table.key
    text = f"SELECT 1 FROM {name} WHERE {key} >= %(low)s AND {key} < %(high)s LIMIT 1"
    return bool(run(database, text, partition.range))


# --- steps


def begin(database: Database) -> bool:
    """Begin a transaction that changes tables. False if another process is in one."""
    [(*_, locked)] = run(database, _BEGIN)
    return bool(locked)


def exists(database: Database, name: str) -> bool:
    """Whether there is a table with this name."""
    return run(database, f"SELECT to_regclass('{name}')") != [(None,)]


def run(database: Database, text: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """Run a statement that was composed from names of tables and numbers. Values are always parameters."""
    cursor = database.execute(text.encode(), parameters)
    return cursor.fetchall() if cursor.description else []


def _id(at: int) -> bytes:
    """The beginning of all ids of a millisecond, which sorts before all of them."""
    return at.to_bytes(6, "big")
