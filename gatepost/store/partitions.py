"""Partitions of the large tables on PostgreSQL: made ahead, and dropped when the retention of all rows has ended.

Migration 0017 describes the tables. What exists is read from the catalogue, so there is no other record of it. Every
step is a transaction that either happens or does not, and one process at a time takes steps.
"""

import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import psycopg

from gatepost.core import clock
from gatepost.store.schema_check import Maintenance

Database = psycopg.Connection[tuple[Any, ...]]

_DAY = 86_400_000
_WIDTHS = {7: 1, 30: 1, 90: 3, 400: 14, 2555: 90}  # retention class → days in a partition: about 30 for each class
_AHEAD = 3 * _DAY
_MAX_MOVED = 100_000  # rows that are moved in one transaction, while others wait
_SLICE = 5_000
_MAX_SECONDS = 20  # of deleting in slices; the next run goes on
_LOCK = 0x70617274  # "part"
# A change of a table waits for transactions that use it, and all others wait for the change. Rather try again later.
_BEGIN = f"""
SELECT set_config('lock_timeout', '100ms', true), set_config('statement_timeout', '8s', true),
  pg_try_advisory_xact_lock({_LOCK})
"""
_END = re.compile(r"TO \('\\x([0-9a-f]*)'\)")
_BOUNDS = re.compile(r"FOR VALUES FROM \('\\x([0-9a-f]*)'\) TO \('\\x([0-9a-f]*)'\)")


class Table(NamedTuple):
    """A partitioned table. Its partitions by time belong to one retention class each, or to the longest one."""

    name: str
    key: str  # the column with the id of which the time counts
    by_class: bool
    options: str = ""

    def parent(self, days: int) -> str:
        return f"{self.name}_{days}" if self.by_class else self.name

    @property
    def unique(self) -> str:
        return f"PRIMARY KEY (account, {self.key}{'' if self.by_class else ', number'})"


ENTRIES = Table("entries", "id", by_class=True)
DELIVERIES = Table("deliveries", "id", by_class=True, options="WITH (fillfactor = 80)")
ATTEMPTS = Table("attempts", "delivery", by_class=False)
TABLES = (DELIVERIES, ATTEMPTS, ENTRIES)


class NotYet(Exception):
    """Why a partition cannot be dropped now."""


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


def maintain(database: Database, now: int) -> Maintenance:
    """Make the partitions of the next days, and drop those whose retention has ended. Rows that must stay are moved.

    Deliveries are dropped first, so that attempts of deliveries that still exist can be recognized.
    """
    done = Maintenance([], [], {})
    if not _classes(database, DELIVERIES):
        return done  # the tables are not partitioned
    for table in (ENTRIES, DELIVERIES):
        for days in _new_classes(database, table):
            _step(done.made, done, table.parent(days), partial(_add_class, database, table, days))
    longest = max(_classes(database, DELIVERIES))
    for table in TABLES:
        for days in _classes(database, table) if table.by_class else [longest]:
            for partition in _missing(database, table, days, now):
                _step(done.made, done, partition.name, partial(_create, database, partition))
    for table in TABLES:
        for partition in existing(database, table):
            if partition.is_expired(now):
                _step(done.dropped, done, partition.name, partial(_DROP[table], database, partition))
    return done


def _step(names: list[str], done: Maintenance, name: str, step: Callable[[], bool]) -> None:
    try:
        if step():
            names.append(name)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled, NotYet) as error:
        done.waiting[name] = str(error).strip()


def existing(database: Database, table: Table) -> list[Partition]:
    """The partitions of a table by time, the oldest first."""
    parents = [table.parent(days) for days in _classes(database, table)] if table.by_class else [table.name]
    rows = database.execute(
        "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = ANY(%s::text[]::regclass[])",
        (parents,),
    ).fetchall()
    return sorted(_partitions(table, rows), key=lambda partition: partition.since)


def _partitions(table: Table, rows: Iterable[tuple[str, str]]) -> Iterable[Partition]:
    for name, bounds in rows:
        match, named = _BOUNDS.fullmatch(bounds), re.fullmatch(rf"{table.name}_(\d+)_\d+", name)
        if match and named:
            since, until = (int(bound, 16) for bound in match.groups())
            yield Partition(table, int(named[1]), since, until, name)


def _classes(database: Database, table: Table) -> list[int]:
    """The retention classes that have a table."""
    rows = database.execute(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(%s)",
        (f"{table.name}_since",),
    ).fetchall()
    return sorted(int(name.rpartition("_")[2]) for (name,) in rows if name != f"{table.name}_rest")


# --- making


def _new_classes(database: Database, table: Table) -> list[int]:
    """The retention classes that have rows but no table."""
    rows = _run(database, f"SELECT keep_days, count(*) FROM {table.name}_rest GROUP BY keep_days")
    return [days for days, count in rows if days in _WIDTHS and count <= _MAX_MOVED]


def _add_class(database: Database, table: Table, days: int) -> bool:
    """Make the table of a retention class, and move its rows there. False if it exists by now."""
    name = table.parent(days)
    with database.transaction():
        if not _begin(database) or days in _classes(database, table):
            return False
        _run(database, f"LOCK TABLE {table.name} IN ACCESS EXCLUSIVE MODE")
        _run(database, f"CREATE TABLE {name} (LIKE {table.name} INCLUDING CONSTRAINTS) PARTITION BY RANGE (id)")
        _run(database, f"CREATE TABLE {name}_rest PARTITION OF {name} ({table.unique}) DEFAULT {table.options}")
        _run(
            database,
            f"WITH moved AS (DELETE FROM {table.name}_rest WHERE keep_days = {days} RETURNING *) "
            f"INSERT INTO {name} SELECT * FROM moved",
        )
        _run(database, f"ALTER TABLE {table.name}_since ATTACH PARTITION {name} FOR VALUES IN ({days})")
        rests = [f"{table.name}_before", f"{table.name}_rest"]
        rests += [f"{table.parent(kept)}_rest" for kept in _classes(database, table)]
        text = " UNION ALL ".join(f"SELECT * FROM {rest}" for rest in rests)
        _run(database, f"CREATE OR REPLACE VIEW {table.name}_pruned_by_row AS {text}")
    return True


def _missing(database: Database, table: Table, days: int, now: int) -> Iterable[Partition]:
    """The partitions between now and some days ahead that do not exist."""
    taken = [other for other in existing(database, table) if other.days == days or not table.by_class]
    start, width = _start(database, table), _WIDTHS[days] * _DAY
    for since in range(now - now % width, now + _AHEAD, width):
        low, high = max(since, start), since + width
        if low < high and not any(other.since < high and low < other.until for other in taken):
            yield Partition(table, days, low, high, f"{table.name}_{days}_{clock.from_milliseconds(low):%Y%m%d}")


def _start(database: Database, table: Table) -> int:
    """When the table that there was before partitions gets no more rows."""
    name = f"{table.name}_before"
    [(bounds,)] = _run(
        database, f"SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = to_regclass('{name}')"
    )
    return int(_END.findall(bounds)[0] or "0", 16)


def _create(database: Database, partition: Partition) -> bool:
    """Make a partition. False if it exists by now, or if there are rows already: they stay where they are."""
    table, name = partition.table, partition.name
    parent = table.parent(partition.days)
    low, high = (bound.hex() for bound in partition.range.values())
    with database.transaction():
        if not _begin(database) or _exists(database, name) or _has_rows(database, f"{parent}_rest", partition):
            return False
        _run(database, f"CREATE TABLE {name} (LIKE {parent} INCLUDING CONSTRAINTS, {table.unique}) {table.options}")
        bounds = f"FOR VALUES FROM ('\\x{low}') TO ('\\x{high}')"
        _run(database, f"ALTER TABLE {parent} ATTACH PARTITION {name} {bounds}")
    return True


def _has_rows(database: Database, name: str, partition: Partition) -> bool:
    key = partition.table.key
    text = f"SELECT 1 FROM {name} WHERE {key} >= %(low)s AND {key} < %(high)s LIMIT 1"
    return bool(_run(database, text, partition.range))


# --- dropping


def _drop_deliveries(database: Database, partition: Partition) -> bool:
    """Drop deliveries, except unfinished ones. Attempts that are in a partition that is kept for longer are deleted."""
    name = partition.name
    lost = _run(
        database,
        f"SELECT count(*) FROM {name} d WHERE status = 'pending' "
        "AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.account = d.account AND q.id = d.id)",
    )
    if lost != [(0,)]:
        raise NotYet(f"{lost[0][0]} pending deliveries are not in the queue")
    for attempts in existing(database, ATTEMPTS):
        if attempts.since < partition.until and partition.since < attempts.until:
            kept = _keep_for_longer(database, attempts, partition.days)
            if kept.days > partition.days:
                _delete_in_slices(database, kept.name, "delivery", partition, "status <> 'pending'")
    if _has_rows(database, f"{ATTEMPTS.name}_rest", partition._replace(table=ATTEMPTS)):
        _delete_in_slices(database, f"{ATTEMPTS.name}_rest", "delivery", partition, "status <> 'pending'")
    with database.transaction():
        if not _detach(database, partition):
            return False
        unfinished = (
            f"{name} d JOIN queue q ON q.account = d.account AND q.id = d.id WHERE q.id >= %(low)s AND q.id < %(high)s"
        )
        _run(database, f"INSERT INTO {DELIVERIES.name} SELECT d.* FROM {unfinished}", partition.range)
        # Pruning by row may have passed their place.
        passed = f"keep_days = {partition.days} AND account IN (SELECT d.account FROM {unfinished})"
        _run(database, f"DELETE FROM delivery_prunings WHERE {passed}", partition.range)
        _run(database, f"DROP TABLE {name}")
    return True


def _keep_for_longer(database: Database, attempts: Partition, days: int) -> Partition:
    """Keep a partition of attempts for the longest class if it has many of deliveries that are kept for longer.

    That is the case if an account got a longer retention than any other after the partition was made.
    """
    longest = max(_classes(database, DELIVERIES))
    longer = f"SELECT 1 FROM {DELIVERIES.name} WHERE id >= %(low)s AND id < %(high)s AND keep_days > {days}"
    counted = f"SELECT count(*) FROM ({longer} LIMIT {_MAX_MOVED + 1}) longer"
    if attempts.days > days or _run(database, counted, attempts.range)[0][0] <= _MAX_MOVED:
        return attempts
    name = f"{ATTEMPTS.name}_{longest}_{clock.from_milliseconds(attempts.since):%Y%m%d}"
    with database.transaction():
        if not _begin(database):
            raise NotYet("another process changes partitions")
        _run(database, f"ALTER TABLE {attempts.name} RENAME TO {name}")
    return attempts._replace(days=longest, name=name)


def _drop_attempts(database: Database, partition: Partition) -> bool:
    """Drop attempts, except those of deliveries that still exist: unfinished ones, and of a longer retention class."""
    with database.transaction():
        if not _detach(database, partition):
            return False
        _run(
            database,
            f"INSERT INTO {ATTEMPTS.name} SELECT a.* FROM {DELIVERIES.name} d JOIN {partition.name} a "
            "ON a.account = d.account AND a.delivery = d.id WHERE d.id >= %(low)s AND d.id < %(high)s",
            partition.range,
        )
        _run(database, f"DROP TABLE {partition.name}")
    return True


def _drop_entries(database: Database, partition: Partition) -> bool:
    """Drop entries, except those with unfinished deliveries, and delete the ids that publishers gave them."""
    name = partition.name
    waits = "EXISTS (SELECT 1 FROM queue q WHERE q.account = it.account AND q.event = it.id)"
    if _run(database, "SELECT 1 FROM published LIMIT 1"):
        _delete_in_slices(database, "published", "event", partition, f"NOT {waits}")
    with database.transaction():
        if not _detach(database, partition):
            return False
        _run(
            database,
            f"INSERT INTO {ENTRIES.name} SELECT e.* FROM {name} e JOIN (SELECT DISTINCT account, event FROM queue "
            "WHERE event >= %(low)s AND event < %(high)s) q ON q.account = e.account AND q.event = e.id",
            partition.range,
        )
        _run(
            database,
            "DELETE FROM unsealed it WHERE id >= %(low)s AND id < %(high)s "
            f"AND EXISTS (SELECT 1 FROM {name} e WHERE e.account = it.account AND e.id = it.id) AND NOT {waits}",
            partition.range,
        )
        _run(database, f"DROP TABLE {name}")
    return True


_DROP = {DELIVERIES: _drop_deliveries, ATTEMPTS: _drop_attempts, ENTRIES: _drop_entries}


def _detach(database: Database, partition: Partition) -> bool:
    """Begin to drop a partition. Its rows that are inserted again go to the rest. False if it is gone by now."""
    if not _begin(database) or not _exists(database, partition.name):
        return False
    _run(database, f"ALTER TABLE {partition.table.parent(partition.days)} DETACH PARTITION {partition.name}")
    return True


def _delete_in_slices(database: Database, name: str, column: str, partition: Partition, where: str) -> None:
    """Delete rows of another table that refer to rows of the partition, in small transactions that block nobody."""
    text = f"""
WITH slice AS (SELECT account, id FROM {partition.name} it WHERE (account, id) > (%(account)s, %(id)s) AND {where}
    ORDER BY account, id LIMIT {_SLICE}),
  deleted AS (DELETE FROM {name} USING slice WHERE {name}.account = slice.account AND {name}.{column} = slice.id)
SELECT account, id FROM slice ORDER BY account DESC, id DESC LIMIT 1
"""
    last, deadline = [(b"", b"")], time.monotonic() + _MAX_SECONDS
    while last:
        last = _run(database, text, {"account": last[0][0], "id": last[0][1]})
        if time.monotonic() > deadline:
            raise NotYet(f"rows of {name} are being deleted first")


def _begin(database: Database) -> bool:
    """Begin a transaction that changes tables. False if another process is in one."""
    [(*_, locked)] = _run(database, _BEGIN)
    return bool(locked)


def _exists(database: Database, name: str) -> bool:
    return _run(database, f"SELECT to_regclass('{name}')") != [(None,)]


def _run(database: Database, text: str, parameters: dict[str, bytes] | None = None) -> list[tuple[Any, ...]]:
    """Run a statement that was composed from names of tables and numbers. Values are always parameters."""
    cursor = database.execute(text.encode(), parameters)
    return cursor.fetchall() if cursor.description else []


def _id(at: int) -> bytes:
    """The beginning of all ids of a millisecond, which sorts before all of them."""
    return at.to_bytes(6, "big")
