"""Dropping the partitions on PostgreSQL whose retention has ended. Rows that must stay are moved to the rest.

A drop locks a table that everything uses, so it moves few rows. Rows in other tables that belong to the partition are
deleted before it, in slices: short transactions that block nothing. If more rows must stay than a drop may move, the
others are deleted in slices as well, and the partition is dropped when enough rows have gone. Before a run deletes
anything for a drop, it checks that the drop could get its locks.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import psycopg

from gatepost.core import clock
from gatepost.store import partitions
from gatepost.store.partitions import (
    ATTEMPTS,
    DELIVERIES,
    ENTRIES,
    MAX_BYTES,
    MAX_MOVED,
    TABLES,
    Database,
    NotYet,
    Partition,
    Table,
    begin,
    existing,
    exists,
    has_rows,
    run,
)
from gatepost.store.pending import Key
from gatepost.store.schema_check import Maintenance
from gatepost.store.transaction import LOWEST

SLICE = 2_000  # rows of the partition that a transaction examines
_MOST_HALVED = 6  # how often cancelled drops halve the rows and bytes that may be moved
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
        self.cancelled: Counter[str] = Counter()  # how often the drop of a partition took too long
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
        self.cancelled = Counter({name: count for name, count in self.cancelled.items() if name in names})


def maintain(database: Database, now: int, progress: Progress, classes: Collection[int] = ()) -> Maintenance:
    """Make the partitions of the next days, and drop those whose retention has ended."""
    done = partitions.make(database, now, progress.cancelled_classes, classes)
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
            _move_and_drop(database, partition, kept, progress)
    except _Crowded:
        progress.set_crowded(partition.name)
        raise NotYet("too many of its rows must stay; the others are deleted in slices") from None
    except psycopg.errors.QueryCanceled as error:  # the next try moves at most half as many rows
        progress.cancelled[partition.name] += 1
        progress.set_crowded(partition.name)
        raise NotYet(str(error).strip()) from None
    except psycopg.errors.UndefinedTable as error:  # another process dropped or renamed it
        raise NotYet(str(error)) from None
    return True


def _kept(database: Database, partition: Partition, now: int, progress: Progress) -> set[Key]:
    """Delete what belongs to the partition, and return the rows that stay. Later, no row is added to them.

    A row that stayed at its slice may no longer have to. It is moved all the same, since pruning by row then deletes
    what belongs to it.
    """
    name, rules = partition.name, _RULES[partition.table]
    crowded = name in progress.crowded
    deletions = rules.deletions(database, partition, now, crowded)
    if crowded:
        deletions.append(Deletion(name, partition.table.key))
    elif deletions:
        _check_size(database, partition, _staying(database, partition), progress)
        _check_locks(database, partition)
    kept = set(_delete_in_slices(database, partition, deletions, progress) if deletions else ())
    kept |= _staying(database, partition)
    _check_size(database, partition, kept, progress)
    rules.check(database, partition, kept)
    return kept


def _staying(database: Database, partition: Partition) -> set[Key]:
    text = _RULES[partition.table].staying.format(name=partition.name)
    return {(account, raw_id) for account, raw_id in run(database, f"{text} LIMIT {MAX_MOVED + 1}", partition.range)}


def _check_size(database: Database, partition: Partition, kept: set[Key], progress: Progress) -> None:
    """Raise `_Crowded` if these are more rows than a drop may move."""
    table, name, rules = partition.table, partition.name, _RULES[partition.table]
    if len(kept) > MAX_MOVED or rules.is_crowded(database, partition):
        raise _Crowded
    moved = f"SELECT {_size(table, 'it')} AS size FROM {_joined(partition)} LIMIT {MAX_MOVED + 1}"
    text = f"WITH kept (account, id) AS ({_KEYS}) SELECT count(*), coalesce(sum(size), 0) FROM ({moved}) moved"
    [(count, size)] = run(database, text, _keys(kept))
    halved = min(progress.cancelled[name], _MOST_HALVED)
    if count > MAX_MOVED >> halved or size > MAX_BYTES >> halved:
        raise _Crowded


def _joined(partition: Partition) -> str:
    """The rows of the partition that stay, as `it`."""
    return f"kept JOIN {partition.name} it ON it.account = kept.account AND it.{partition.table.key} = kept.id"


def _size(table: Table, alias: str) -> str:
    """An expression for the bytes of a row that can be many. TOASTed values are not read for it."""
    return f"pg_column_size({alias}.{table.large})" if table.large else "0"


def _check_locks(database: Database, partition: Partition) -> None:
    """Raise an error if the partition could not be dropped now, because other transactions use its tables."""
    with database.transaction(force_rollback=True):
        if not begin(database):
            raise NotYet("another process changes partitions")
        _detach(database, partition)


def _detach(database: Database, partition: Partition) -> None:
    run(database, f"ALTER TABLE {partition.table.parent(partition.days)} DETACH PARTITION {partition.name}")


def _move_and_drop(database: Database, partition: Partition, kept: set[Key], progress: Progress) -> None:
    """Drop the partition in a transaction that has begun. Raises `_Crowded` if there are too many rows to move."""
    table, name, rules = partition.table, partition.name, _RULES[partition.table]
    _detach(database, partition)
    if rules.may_grow:
        kept = kept | _staying(database, partition)
    _check_size(database, partition, kept, progress)
    [(accounts,)] = run(
        database,
        f"WITH kept (account, id) AS ({_KEYS}), "
        f"moved AS (INSERT INTO {table.name} SELECT it.* FROM {_joined(partition)} RETURNING account) "  # to the rest
        "SELECT array_agg(DISTINCT account) FROM moved",
        _keys(kept),
    )
    rules.finish(database, partition, accounts or [])
    run(database, f"DROP TABLE {name}")


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
        page = _delete_slice(database, partition, text, {"account": account, "id": raw_id})
        slices.kept += [(account, raw_id) for account, raw_id, stays in page if stays]
        del slices.kept[MAX_MOVED + 1 :]
        slices.after = page[-1][:2] if page else slices.after
        slices.ended = len(page) < SLICE
        if progress.is_over and not slices.ended:
            raise NotYet("rows that belong to it are being deleted; the next run continues")
    return slices.kept


def _delete_slice(
    database: Database, partition: Partition, text: str, after: dict[str, bytes]
) -> list[tuple[bytes, bytes, bool]]:  # fmt: skip
    """Run the statement of a slice. Returns the keys of the rows that it examined, and whether each stays.

    It waits for replays that have locked an event to create a delivery of it. It does not see this delivery, but the
    next statement does. Then the slice is rolled back, and the next run repeats it.
    """
    with database.transaction():
        page = run(database, text, after | partition.range)
        deleted = {(account, raw_id) for account, raw_id, stays in page if not stays}
        if partition.table is ENTRIES and run(database, _UNFINISHED, _keys(deleted)):
            raise NotYet("deliveries of its events were created just now")
    return [(account, raw_id, stays) for account, raw_id, stays in page]


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
    may_grow: bool = False  # whether other rows can have to stay before the transaction that drops the partition
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
    if attempts.days > days:
        return attempts
    longer = f"FROM {DELIVERIES.name} d WHERE d.id >= %(low)s AND d.id < %(high)s AND d.keep_days > {days}"
    rows = (
        f"SELECT {_size(ATTEMPTS, 'a')} AS size FROM (SELECT d.account, d.id {longer} LIMIT {MAX_MOVED + 1}) d "
        f"LEFT JOIN {attempts.name} a ON a.account = d.account AND a.delivery = d.id LIMIT {MAX_MOVED + 1}"
    )
    text = f"SELECT count(*), coalesce(sum(size), 0) FROM ({rows}) longer"
    [(count, size)] = run(database, text, attempts.range)
    if count <= MAX_MOVED and size <= MAX_BYTES:
        return attempts
    [(longest,)] = run(database, f"SELECT max(d.keep_days) {longer}", attempts.range)
    if longest is None:  # they were deleted just now
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


_IS_UNFINISHED = "EXISTS (SELECT 1 FROM queue q WHERE q.account = it.account AND q.event = it.id)"
_UNFINISHED = f"SELECT 1 FROM ({_KEYS}) it (account, id) WHERE {_IS_UNFINISHED} LIMIT 1"
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
        _IS_UNFINISHED,
        "SELECT DISTINCT account, event FROM queue WHERE event >= %(low)s AND event < %(high)s",
        _ids_of_entries,
        may_grow=True,
        is_crowded=_has_many_unsealed,
        finish=_finish_entries,
    ),
}
