"""What a unit of work gets of the store: statements to run, writes to leave for the commit, and the cache.

A unit is a plain function of a `Tx`. It may run more than once, and it never commits: the store commits everything that
it wrote, or nothing. What is asked of clients, entries or deliveries are functions beside those nouns.
"""

from collections.abc import Callable, Hashable, Iterable
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from gatepost.core import clock
from gatepost.store.cache import Cache
from gatepost.store.pending import Again, PendingWrites, Row
from gatepost.store.shards import Shards

T = TypeVar("T")
Unit = Callable[["Tx"], T]
FanOut = Callable[["Tx", Any], list[bytes]]  # writes the deliveries of a new ledger entry, and returns their ids

LOWEST = b"\0" * 16
HIGHEST = b"\xff" * 16
READ_ONLY = "a unit that was started with read() must not write"


class Prefetch(NamedTuple):
    """A row that a unit will read, by the first columns of a statement that is given many of them."""

    statement: str
    key: Row


class Hints(msgspec.Struct, frozen=True):
    """How a unit may run faster, and beside others. A wrong hint costs time, and nothing else."""

    append_only: bool = False  # its writes can wait for the end of a commit that it shares with others
    prefetch: Callable[["Tx"], Prefetch | None] | None = None  # a row to read together with those of other units
    on_early_result: Callable[[Any], None] | None = None  # called with its result, if that is known before the commit
    short: bool = False  # it reads little, so it can share a snapshot with others
    turn: str | None = None  # whose unit it is, if owners take turns; "" if that is not known yet


NO_HINTS = Hints()
APPEND_ONLY = Hints(append_only=True)
SHORT = Hints(short=True)


class Connection(Protocol):
    """A connection of either database. Statements have names; their texts are in the `.sql` files."""

    @property
    def shards(self) -> Shards | None: ...
    def rows(self, statement: str, parameters: dict[str, Any]) -> list[Row]: ...
    def write(self, statement: str, parameters: dict[str, Any]) -> list[Row]: ...
    def select(self, text: str, parameters: dict[str, Any]) -> list[Row]: ...
    def rows_each(self, statement: str, parameters: list[dict[str, Any]]) -> list[list[Row]]: ...
    def rows_given(self, statement: str, rows: list[Row]) -> list[Row]: ...
    def write_given(self, statement: str, rows: list[Row]) -> list[Row]: ...
    def check_snapshot(self) -> None: ...


class Group:
    """What the units of one commit share: rows that were read for all of them, and the keys that one of them writes."""

    __slots__ = ("rows", "taken")

    def __init__(self, rows: dict[Prefetch, Row] | None = None) -> None:
        self.rows = rows or {}
        self.taken: set[Row] = set()


class Engine(NamedTuple):
    """What all transactions of a store share."""

    fan_out: FanOut
    slot: int  # spreads counters over several rows, so that processes do not wait for each other


class Tx:
    """The transaction of one unit."""

    __slots__ = (
        "_cache", "_changed", "_connection", "_ended", "at", "engine", "group", "may_be_done", "now", "pending",
        "retried",
    )  # fmt: skip

    def __init__(
        self, connection: Connection, cache: Cache, at: datetime, engine: Engine, group: Group | None = None,
        *, retried: bool = False, may_be_done: bool = False,
    ) -> None:  # fmt: skip
        self._connection = connection
        self._cache = cache
        self._changed: list[str] = []
        self._ended = False
        self.at = at
        self.now = clock.milliseconds(at)
        self.engine = engine
        self.group = group  # None: the unit has the commit for itself
        self.retried = retried  # the unit ran before; all that other units left for the commit is written now
        self.may_be_done = may_be_done  # the unit ran before, and the outcome of its commit is not known
        self.pending = PendingWrites()

    @property
    def shards(self) -> Shards | None:
        """Where the accounts are, if the store is distributed."""
        return self._connection.shards

    # --- statements

    def rows(self, statement: str, **parameters: Any) -> list[Row]:
        return self._connection.rows(statement, parameters)

    def one(self, statement: str, **parameters: Any) -> Row | None:
        rows = self._connection.rows(statement, parameters)
        return rows[0] if rows else None

    def write(self, statement: str, **parameters: Any) -> list[Row]:
        """Run a statement that writes, now. Returns what its RETURNING clause names."""
        return self._connection.write(statement, parameters)

    def select(self, text: str, parameters: dict[str, Any]) -> list[Row]:
        """Run a SELECT that was composed from fixed parts. Values are always parameters."""
        return self._connection.select(text, parameters)

    def rows_each(self, statement: str, parameters: list[dict[str, Any]]) -> list[list[Row]]:
        """Run one statement for several sets of parameters."""
        return self._connection.rows_each(statement, parameters)

    def rows_given(self, statement: str, rows: Iterable[Row]) -> list[Row]:
        """Run a statement whose text uses these rows as the table `given`."""
        return self._connection.rows_given(statement, list(rows))

    def write_given(self, statement: str, rows: Iterable[Row]) -> list[Row]:
        return self._connection.write_given(statement, list(rows))

    def check_snapshot(self) -> None:
        """Call this in a unit that reads entries, deliveries or attempts, when it has read some of each that it needs.

        On PostgreSQL, rows that were moved when a partition was dropped are not in a snapshot of before. Raises `Again`
        if that can be the case: then the unit runs again with a new snapshot.
        """
        self._connection.check_snapshot()

    def prefetched(self, wanted: Prefetch) -> Row | None:
        """A row that was read for all units of the commit. Raises `Again` if another unit writes it."""
        if self.group is None:
            return None
        if wanted.key in self.group.taken:
            raise Again("another unit of this commit writes the row")
        return self.group.rows.get(wanted)

    def write_later(self, statement: str, check: str, row: Row) -> bool:
        """Leave a conditional write to the end of a shared commit. False if the unit has the commit for itself."""
        if self.group is None:
            return False
        key = row[:2]
        if key in self.group.taken:
            raise Again("another unit of this commit writes the row")
        self.group.taken.add(key)
        self.pending.write_if(statement, check, row)
        return True

    # --- the cache. None is never cached, so that callers without credentials cannot fill the memory.

    def cached(self, name: str, load: Callable[[], T | None]) -> T | None:
        """A definition, until it changes."""
        if name in self._changed:
            return load()
        return _remembered(self._cache.definitions, name, load, Cache.LIMIT)

    def derived(self, key: Hashable, compute: Callable[[], T]) -> T:
        """A value that follows from definitions and the key alone, until any definition changes."""
        return compute() if self._changed else _remembered(self._cache.derived, key, compute, Cache.LIMIT)

    def valid(self, key: Hashable, compute: Callable[[], T | None]) -> T | None:
        """A value that also depends on what was ended, until anything is ended or any definition changes."""
        if self._changed or self._ended:
            return compute()
        return _remembered(self._cache.valid, key, compute, Cache.LIMIT // 4)

    def change(self, name: str) -> None:
        """Drop a definition from the caches of all processes."""
        self._changed.append(name)
        self._cache.definitions.pop(name, None)

    def end(self) -> None:
        """Drop what depends on tokens, consents and families from the caches of all processes."""
        self._ended = True

    def finish(self) -> None:
        """Called by the store before it commits."""
        for name in dict.fromkeys(self._changed) if self._changed else ():
            [(version,)] = self.write("bump_version")
            self.write("insert_change", version=version, at=self.now, thing=name)
        if self._ended:
            self.write("bump_ends")

    # --- upkeep

    def probe(self, value: int) -> None:
        """Write to a row that nothing reads, to learn whether the store can write."""
        self.write("probe_write", value=value)

    def delete_old_changes(self) -> int:
        """Delete some changes that every cache has seen."""
        return len(self.write("forget_changes", before=self.now - 3600 * 1000))


def _remembered(values: dict[Any, Any], key: Hashable, compute: Callable[[], T], limit: int) -> T:
    value: T | None = values.get(key)
    if value is None:
        value = compute()
        if value is not None:
            if len(values) >= limit:
                values.clear()
            values[key] = value
    return value


# --- units that run before their transaction


class Precomputed(msgspec.Struct):
    """The result of a unit that ran ahead. It counts if the cache has the same mark when the unit is to commit."""

    mark: object
    result: Any
    pending: PendingWrites


class _NotCached(Exception):
    """The unit needs a row that is not in the cache."""


class _CacheOnly:
    """A connection that fails every statement, so that a unit succeeds only if the cache has everything it reads."""

    shards = None

    def rows(self, _statement: str, _parameters: Any) -> list[Any]:
        raise _NotCached

    write = select = rows_each = rows_given = write_given = rows

    def check_snapshot(self) -> None:
        raise _NotCached


def precompute(unit: Unit[Any], cache: Cache, at: datetime, engine: Engine) -> Precomputed | None:
    """Run a unit with the cache alone. None if that is not enough, or the unit fails: the cache may be out of date.

    The mark is read first: if another thread refreshes the cache meanwhile, the result does not count.
    """
    mark = cache.mark
    tx = Tx(_CacheOnly(), cache, at, engine, Group())
    try:
        result = unit(tx)
    except Exception:  # noqa: BLE001 (the unit runs again in its transaction, and what it raises there counts)
        return None
    return Precomputed(mark, result, tx.pending)


def prefetch(connection: Connection, cache: Cache, at: datetime, engine: Engine, hints: Iterable[Hints]) -> Group:
    """Read what the units of a commit will read, with one statement of each kind."""
    asked = [each.prefetch for each in hints if each.prefetch is not None]
    if not asked:
        return Group()
    tx = Tx(connection, cache, at, engine)
    keys: dict[str, set[Row]] = {}
    for ask in asked:
        if (wanted := ask(tx)) is not None:
            keys.setdefault(wanted.statement, set()).add(wanted.key)
    return Group(
        {
            Prefetch(statement, row[: len(next(iter(some)))]): row
            for statement, some in keys.items()
            for row in connection.rows_given(statement, sorted(some))
        }
    )
