"""Dropping the partitions on PostgreSQL whose retention has ended. Rows that must stay are moved to the rest.

A drop locks a table that everything uses, so it moves few rows. Rows in other tables that belong to the partition are
deleted before it, in slices: short transactions that block nothing. If more rows must stay than a drop may move, the
others are deleted in slices as well, and the partition is dropped when enough rows have gone.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import psycopg

from gatepost.core import clock
from gatepost.store import partitions
from gatepost.store.partitions import (
    ATTEMPTS,
    DELIVERIES,
    ENTRIES,
    TABLES,
    Database,
    NotYet,
    Partition,
    Table,
    begin,
    existing,
    exists,
    has_rows,
    in_use,
    run,
)
from gatepost.store.pending import Key
from gatepost.store.schema_check import Maintenance
from gatepost.store.transaction import LOWEST

MAX_MOVED = 5_000  # rows, while others wait
SLICE = 2_000  # rows of the partition that a transaction examines
MAX_SECONDS = 20.0  # for a run; the next one continues


class Deletion(NamedTuple):
    """Rows to delete: those of a table whose column has the id of a row of the partition that does not stay."""

    table: str
    column: str


class _Crowded(Exception):
    """More rows must stay than a drop may move."""


class Slices:
    """The slices of a partition so far: the last row examined, and the rows that stay, up to the limit of a drop."""

    def __init__(self, deletions: list[Deletion]) -> None:
        self.deletions = deletions
        self.after: Key = (b"", b"")
        self.kept: list[Key] = []
        self.ended = False


class Progress:
    """What a process remembers between runs. Another process, or the next one, starts from the beginning."""

    def __init__(self) -> None:
        self.slices: dict[str, Slices] = {}
        self.crowded: dict[str, None] = {}  # partitions with more rows that stay than a drop may move, in turn
        self.cancelled_classes: set[str] = set()  # tables of retention classes that took too long to make
        self._until = 0.0

    def begin(self) -> None:
        self._until = time.monotonic() + MAX_SECONDS

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._until

    def set_crowded(self, name: str) -> None:
        """Start again with the first slice. Other crowded partitions are next."""
        self.slices.pop(name, None)
        self.crowded.pop(name, None)
        self.crowded[name] = None

    def forget_except(self, names: set[str]) -> None:
        self.slices = {name: slices for name, slices in self.slices.items() if name in names}
        self.crowded = {name: None for name in self.crowded if name in names}


def maintain(database: Database, now: int, progress: Progress) -> Maintenance:
    """Make the partitions of the next days, and drop those whose retention has ended."""
    done = partitions.make(database, now, progress.cancelled_classes)
    expired = [each for table in TABLES for each in existing(database, table) if each.is_expired(now)]
    progress.forget_except({partition.name for partition in expired})
    progress.begin()
    turns = {name: turn for turn, name in enumerate(progress.crowded, 1)}
    for partition in sorted(expired, key=lambda each: turns.get(each.name, 0)):
        partitions.step(done.dropped, done, partition.name, partial(_drop, database, partition, now, progress))
        if progress.is_over:
            break
    return done


def _drop(database: Database, partition: Partition, now: int, progress: Progress) -> bool:
    """Drop a partition. False if another process did. Raises `NotYet`."""
    try:
        kept = _kept(database, partition, now, progress)
        with database.transaction():
            if not begin(database) or not exists(database, partition.name):
                return False
            if not _move_and_drop(database, partition, kept):
                raise _Crowded
    except _Crowded:
        progress.set_crowded(partition.name)
        raise NotYet(f"more than {MAX_MOVED} of its rows must stay; the others are deleted in slices") from None
    except psycopg.errors.UndefinedTable as error:  # another process dropped or renamed it
        raise NotYet(str(error)) from None
    return True


def _kept(database: Database, partition: Partition, now: int, progress: Progress) -> set[Key]:
    """Delete what belongs to the partition, and return the rows that stay. Later, no row is added to them.

    A row that stayed at its slice may no longer have to. It is moved all the same, since pruning by row then deletes
    what belongs to it.
    """
    name, rules = partition.name, _RULES[partition.table]
    deletions = rules.deletions(database, partition, now, name in progress.crowded)
    if name in progress.crowded:
        deletions.append(Deletion(name, partition.table.key))
    kept = set(_delete_in_slices(database, partition, deletions, progress) if deletions else ())
    kept.update(run(database, f"{rules.staying.format(name=name)} LIMIT {MAX_MOVED + 1}", partition.range))
    if len(kept) > MAX_MOVED or rules.is_crowded(database, partition):
        raise _Crowded
    rules.check(database, partition, kept)
    return kept


def _move_and_drop(database: Database, partition: Partition, kept: set[Key]) -> bool:
    """Drop the partition in a transaction that has begun. False if there are too many rows to move."""
    table, name, rules = partition.table, partition.name, _RULES[partition.table]
    run(database, f"ALTER TABLE {table.parent(partition.days)} DETACH PARTITION {name}")
    [(count, accounts)] = run(
        database,
        f"WITH kept (account, id) AS ({_KEYS}{rules.more}), "
        f"moved AS (INSERT INTO {table.name} SELECT it.* FROM kept JOIN {name} it "  # to the rest
        f"ON it.account = kept.account AND it.{table.key} = kept.id LIMIT {MAX_MOVED + 1} RETURNING account) "
        "SELECT count(*), array_agg(DISTINCT account) FROM moved",
        _keys(kept) | partition.range,
    )
    if count > MAX_MOVED:
        return False
    rules.finish(database, partition, accounts or [])
    run(database, f"DROP TABLE {name}")
    return True


_KEYS = "SELECT * FROM unnest(%(accounts)s::bytea[], %(ids)s::bytea[])"


def _keys(keys: set[Key]) -> dict[str, Any]:
    """The parameters of `_KEYS`."""
    ordered = sorted(keys)
    return {"accounts": [account for account, _ in ordered], "ids": [raw_id for _, raw_id in ordered]}


def _delete_in_slices(
    database: Database, partition: Partition, deletions: list[Deletion], progress: Progress
) -> list[Key]:
    """Delete what belongs to rows that do not stay. Returns the rows that stay. Goes on where the last run stopped."""
    slices = progress.slices.get(partition.name)
    if slices is None or slices.deletions != deletions:
        slices = progress.slices[partition.name] = Slices(deletions)
    text = _slice_text(partition, deletions)
    while not slices.ended:
        account, raw_id = slices.after
        page = run(database, text, {"account": account, "id": raw_id, **partition.range})
        slices.kept += [(account, raw_id) for account, raw_id, stays in page if stays]
        del slices.kept[MAX_MOVED + 1 :]
        slices.after = page[-1][:2] if page else slices.after
        slices.ended = len(page) < SLICE
        if progress.is_over and not slices.ended:
            raise NotYet("rows that belong to it are being deleted; the next run continues")
    return slices.kept


def _slice_text(partition: Partition, deletions: list[Deletion]) -> str:
    """The statement of a slice. It returns the rows that it examined."""
    rules, key = _RULES[partition.table], partition.table.key
    following = f"WHERE (account, {key}) > (%(account)s, %(id)s) ORDER BY account, {key} LIMIT {SLICE}"
    parts = [
        f"page AS MATERIALIZED (SELECT {rules.columns} FROM {partition.name} {following})",
        f"slice AS MATERIALIZED (SELECT it.account, it.id, {rules.stays} AS stays FROM page it)",
    ]
    for number, (table, column) in enumerate(deletions):
        condition = f"NOT slice.stays AND {table}.account = slice.account AND {table}.{column} = slice.id"
        parts.append(f"deleted{number} AS (DELETE FROM {table} USING slice WHERE {condition})")
    return f"WITH {', '.join(parts)} SELECT account, id, stays FROM slice ORDER BY account, id"


# --- the rules of each table


class Rules(NamedTuple):
    """What the drop of a partition depends on."""

    columns: str  # that a slice reads
    stays: str  # whether the row `it` of a slice stays
    staying: str  # selects all rows that stay, by their ids
    # What belongs to its rows, given the time and whether the partition is crowded. Raises `NotYet`.
    deletions: Callable[[Database, Partition, int, bool], list[Deletion]]
    more: str = ""  # rows that may have to stay since
    is_crowded: Callable[[Database, Partition], bool] = lambda _database, _partition: False
    check: Callable[[Database, Partition, set[Key]], None] = lambda _database, _partition, _kept: None
    # Called when rows of these accounts were moved, before the drop.
    finish: Callable[[Database, Partition, list[bytes]], None] = lambda _database, _partition, _accounts: None


def _attempts_elsewhere(database: Database, partition: Partition, _now: int, crowded: bool) -> list[Deletion]:
    """The attempts of these deliveries in tables that are kept for longer. If deliveries are deleted, all of them."""
    tables = []
    for attempts in _overlapping(database, ATTEMPTS, partition):
        kept = _keep_for_longer(database, attempts, partition.days)
        if crowded or kept.days > partition.days:
            tables.append(kept.name)
    if has_rows(database, f"{ATTEMPTS.name}_rest", partition._replace(table=ATTEMPTS)):
        tables.append(f"{ATTEMPTS.name}_rest")
    return [Deletion(table, ATTEMPTS.key) for table in tables]


def _keep_for_longer(database: Database, attempts: Partition, days: int) -> Partition:
    """Keep a partition of attempts for the longest class if a drop could not move those that are kept for longer.

    That is the case if an account got a longer retention than any other after the partition was made.
    """
    longest = max(in_use(database, DELIVERIES))
    longer = (
        f"SELECT 1 FROM {DELIVERIES.name} d LEFT JOIN {attempts.name} a ON a.account = d.account AND a.delivery = d.id "
        f"WHERE d.id >= %(low)s AND d.id < %(high)s AND d.keep_days > {days}"
    )
    counted = f"SELECT count(*) FROM ({longer} LIMIT {MAX_MOVED + 1}) longer"
    if attempts.days > days or run(database, counted, attempts.range)[0][0] <= MAX_MOVED:
        return attempts
    name = f"{ATTEMPTS.name}_{longest}_{clock.from_milliseconds(attempts.since):%Y%m%d}"
    with database.transaction():
        if not begin(database):
            raise NotYet("another process changes partitions")
        run(database, f"ALTER TABLE {attempts.name} RENAME TO {name}")
    return attempts._replace(days=longest, name=name)


def _check_queue(database: Database, partition: Partition, kept: set[Key]) -> None:
    """Raise `NotYet` if a pending delivery is not in the queue, which is a defect."""
    [(lost,)] = run(
        database,
        f"WITH kept (account, id) AS ({_KEYS}) SELECT count(*) FROM kept JOIN {partition.name} d "
        "ON d.account = kept.account AND d.id = kept.id AND d.status = 'pending' "
        "WHERE NOT EXISTS (SELECT 1 FROM queue q WHERE q.account = d.account AND q.id = d.id)",
        _keys(kept),
    )
    if lost:
        raise NotYet(f"{lost} pending deliveries are not in the queue")


def _after_deliveries(database: Database, partition: Partition, now: int, _crowded: bool) -> list[Deletion]:
    """Attempts are dropped after their deliveries, since those of deliveries that exist stay."""
    for deliveries in _overlapping(database, DELIVERIES, partition):
        if deliveries.is_expired(now):
            raise NotYet(f"{deliveries.name} is dropped first")
    return []


def _ids_of_entries(database: Database, _partition: Partition, _now: int, crowded: bool) -> list[Deletion]:
    """The ids that publishers gave to these events. If rows are deleted in slices, also what waits for a seal."""
    published = run(database, "SELECT 1 FROM published LIMIT 1")
    return [Deletion("published", "event")] * bool(published) + [Deletion("unsealed", "id")] * crowded


def _has_many_unsealed(database: Database, partition: Partition) -> bool:
    text = f"SELECT 1 FROM unsealed WHERE id >= %(low)s AND id < %(high)s LIMIT {MAX_MOVED + 1}"
    return len(run(database, text, partition.range)) > MAX_MOVED


def _finish_entries(database: Database, partition: Partition, accounts: list[bytes]) -> None:
    """Entries that are dropped no longer wait for a seal."""
    rest, same = f"{ENTRIES.parent(partition.days)}_rest", "e.account = u.account AND e.id = u.id"
    run(
        database,
        "DELETE FROM unsealed u WHERE u.id >= %(low)s AND u.id < %(high)s "
        f"AND EXISTS (SELECT 1 FROM {partition.name} e WHERE {same}) "
        f"AND NOT EXISTS (SELECT 1 FROM {rest} e WHERE {same})",
        partition.range,
    )
    _examine_again(database, partition, accounts, marks="prunings")


def _examine_again(database: Database, partition: Partition, accounts: list[bytes], *, marks: str) -> None:
    """Pruning by row may have passed the place of the rows that were moved. A unit that prunes then keeps its mark."""
    run(
        database,
        f"UPDATE {marks} SET id = %(lowest)s WHERE keep_days = {partition.days} AND account = ANY(%(accounts)s)",
        {"lowest": LOWEST, "accounts": accounts},
    )


def _overlapping(database: Database, table: Table, partition: Partition) -> list[Partition]:
    others = existing(database, table)
    return [other for other in others if other.since < partition.until and partition.since < other.until]


_RULES = {
    DELIVERIES: Rules(
        "account, id, status",
        "it.status = 'pending'",
        "SELECT account, id FROM {name} WHERE status = 'pending'",
        _attempts_elsewhere,
        check=_check_queue,
        finish=partial(_examine_again, marks="delivery_prunings"),
    ),
    ATTEMPTS: Rules(
        "DISTINCT account, delivery AS id",
        f"EXISTS (SELECT 1 FROM {DELIVERIES.name} d WHERE d.account = it.account AND d.id = it.id "
        "AND d.id >= %(low)s AND d.id < %(high)s)",
        f"SELECT account, id FROM {DELIVERIES.name} WHERE id >= %(low)s AND id < %(high)s",
        _after_deliveries,
    ),
    ENTRIES: Rules(
        "account, id",
        "EXISTS (SELECT 1 FROM queue q WHERE q.account = it.account AND q.event = it.id)",
        "SELECT DISTINCT account, event FROM queue WHERE event >= %(low)s AND event < %(high)s",
        _ids_of_entries,
        more=" UNION SELECT account, event FROM queue WHERE event >= %(low)s AND event < %(high)s",
        is_crowded=_has_many_unsealed,
        finish=_finish_entries,
    ),
}
