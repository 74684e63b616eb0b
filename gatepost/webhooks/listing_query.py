"""One page of deliveries: which index finds them, and the SQL for it, put together from fixed parts.

A page reads a range of one index in its order, and nothing but what that index holds: so both stores take it, whatever
they know or guess about the rows. Filters that the index does not answer are tried on what it gives, by a look at each
row, up to a bound; the page says how far it came. Values are always parameters.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from gatepost.core import ids
from gatepost.store.transaction import Tx
from gatepost.webhooks import queue_rows

EXAMINED = 10_000  # records that one page tries its filters on, at most
LOOKED_UP = 2_500  # the same where the index does not hold what is tried, and each costs a look at the row
COUNTED = 10_000  # what is counted is exact up to here

UNFINISHED = ("pending", "held", "in_flight")

Position = tuple[Any, ...]  # where a page goes on: after an id, or after a due time and an id


class Wanted(NamedTuple):
    """What a page is filtered by. Instants are milliseconds; `code` is from, and up to but not with."""

    id: bytes | None = None
    endpoint: bytes | None = None
    subscription: bytes | None = None
    event: bytes | None = None
    event_type: str | None = None
    status: str | None = None
    code: tuple[int, int] | None = None
    failure: str | None = None
    created_after: int | None = None
    created_before: int | None = None
    due_before: int | None = None


class Found(NamedTuple):
    position: Position
    event_at: int | None  # None when the event is no longer kept
    size: int | None  # of the event's data, in bytes

    @property
    def id(self) -> bytes:
        found: bytes = self.position[-1]
        return found


class Page(NamedTuple):
    """Some of what was asked for, in order; `next` is None at the end."""

    rows: list[Found]
    next: Position | None


class Asked(NamedTuple):
    """A page to find: of an account, filtered, in one of two orders, after a position."""

    account: bytes
    wanted: Wanted
    newest: bool
    limit: int
    after: Position | None = None
    suspended: bool = False


class Source(NamedTuple):
    """An index: its columns up to the id, and what it is restricted to, in its own words: SQLite compares those."""

    table: str
    key: tuple[str, ...]
    only: str = ""

    @property
    def place(self) -> tuple[str, ...]:
        """The columns that order its rows once the others are given."""
        return self.key[-2:] if "due" in self.key else self.key[-1:]

    def holds(self, condition: "Condition") -> bool:
        """Whether it can be tried without a look at the row: the primary keys are the tables themselves."""
        if self.key == ("account", "id"):
            return condition.table in (self.table, "both")
        return set(condition.columns) <= set(self.key)


CREATED = Source("deliveries", ("account", "id"))
BY_ENDPOINT = Source("deliveries", ("account", "endpoint", "id"))
BY_EVENT = Source("deliveries", ("account", "event", "id"))
BY_STATUS = Source("deliveries", ("account", "bad_status", "id"), "bad_status IS NOT NULL")
BY_CODE = Source("deliveries", ("account", "bad_code", "id"), "bad_code IS NOT NULL")
BY_FAILURE = Source("deliveries", ("account", "last_failure", "id"), "last_failure IS NOT NULL")
QUEUED = Source("queue", ("account", "id"))
BY_DUE = Source("queue", ("account", "due", "id"))
BY_LANE = Source("queue", ("account", "endpoint", "lane", "due", "id"))


class Condition(NamedTuple):
    """Something to try on a row of a table, called `it` in the text, and the columns that this needs."""

    table: str  # `both` when either has the columns
    columns: tuple[str, ...]
    text: str


_STANDS_STILL = "({it}.endpoint IN (SELECT e.id FROM endpoints e WHERE e.account = :account AND e.status <> 'active'))"
CONDITIONS = {
    "endpoint": Condition("both", ("endpoint",), "{it}.endpoint = :endpoint"),
    "event": Condition("both", ("event",), "{it}.event = :event"),
    "subscription": Condition("deliveries", ("subscription",), "{it}.subscription = :subscription"),
    "event_type": Condition("deliveries", ("event_type",), "{it}.event_type = :event_type"),
    "failure": Condition("deliveries", ("last_failure",), "{it}.last_failure = :failure"),
    "code": Condition("deliveries", ("last_code",), "{it}.last_code >= :code_from AND {it}.last_code < :code_until"),
    "created": Condition("both", ("id",), "{it}.id >= :created_from AND {it}.id < :created_until"),
    "ended": Condition("deliveries", ("status",), "{it}.status = :status"),
    "in_flight": Condition("queue", ("worker",), "{it}.worker IS NOT NULL"),
    "waiting": Condition("queue", ("worker",), "{it}.worker IS NULL"),
    "held": Condition("queue", ("worker", "endpoint"), "{it}.worker IS NULL AND " + _STANDS_STILL + " IS TRUE"),
    "pending": Condition("queue", ("worker", "endpoint"), "{it}.worker IS NULL AND " + _STANDS_STILL + " IS NOT TRUE"),
}


class Stream(NamedTuple):
    """A part of an index: what its first columns are, and the conditions that are left to be tried."""

    source: Source
    given: dict[str, Any]
    conditions: tuple[str, ...]


def page(tx: Tx, asked: Asked) -> Page:
    """What was asked for, merged from as many parts of an index as it takes."""
    if _contradicts(asked):
        return Page([], None)
    parts = _streams(tx, asked)
    read = [_read(tx, asked, part, len(parts)) for part in parts]
    stops = [stop for _, stop in read if stop is not None]
    stop = (max if asked.newest else min)(stops, default=None)
    rows = sorted((row for rows, _ in read for row in rows), key=lambda row: row.position, reverse=asked.newest)
    if stop is not None:
        rows = [row for row in rows if (row.position >= stop if asked.newest else row.position <= stop)]
    if len(rows) > asked.limit:
        return Page(rows[: asked.limit], rows[asked.limit - 1].position)
    return Page(rows, stop)


def _contradicts(asked: Asked) -> bool:
    wanted = asked.wanted
    ended_and_due = wanted.due_before is not None and wanted.status not in (None, *UNFINISHED)
    low, high = _created(wanted)
    return ended_and_due or low >= high or (wanted.status == "pending" and asked.suspended)


def _streams(tx: Tx, asked: Asked) -> list[Stream]:
    """The parts of the index that finds most of what is wanted, or has the order that is wanted."""
    wanted, account = asked.wanted, asked.account
    if wanted.due_before is not None:
        if wanted.endpoint is None:
            return [_stream(asked, BY_DUE, {"account": account})]
        lanes = [{"account": account, "endpoint": wanted.endpoint, "lane": lane} for lane in (0, 1)]
        return [_stream(asked, BY_LANE, lane, "endpoint") for lane in lanes]
    if wanted.id is not None:
        return [_stream(asked, CREATED, {"account": account})]
    if wanted.event is not None:
        return [_stream(asked, BY_EVENT, {"account": account, "event": wanted.event}, "event")]
    if wanted.status in UNFINISHED:
        return [_stream(asked, QUEUED, {"account": account})]
    if wanted.failure is not None:
        return [_stream(asked, BY_FAILURE, {"account": account, "last_failure": wanted.failure}, "failure")]
    if wanted.code is not None and wanted.code[0] >= 300:
        codes = _codes(tx, account, wanted.code)
        return [_stream(asked, BY_CODE, {"account": account, "bad_code": code}, "code") for code in codes]
    if wanted.status in ("failed", "cancelled"):
        return [_stream(asked, BY_STATUS, {"account": account, "bad_status": wanted.status}, "ended")]
    if wanted.endpoint is not None:
        return [_stream(asked, BY_ENDPOINT, {"account": account, "endpoint": wanted.endpoint}, "endpoint")]
    return [_stream(asked, CREATED, {"account": account})]


def _stream(asked: Asked, source: Source, given: dict[str, Any], answered: str = "") -> Stream:
    """With the conditions that the index does not answer by itself."""
    wanted = asked.wanted
    left = [name for name in ("endpoint", "event", "subscription", "event_type", "failure", "code")
            if getattr(wanted, name) is not None]  # fmt: skip
    if source.place != ("id",) and (wanted.id, wanted.created_after, wanted.created_before) != (None, None, None):
        left.append("created")
    match wanted.status:
        case "pending" | "in_flight":
            left.append(wanted.status)
        case "held":
            left.append("waiting" if asked.suspended else "held")
        case str():
            left.append("ended")
    return Stream(source, given, tuple(name for name in left if name != answered))


def _codes(tx: Tx, account: bytes, code: tuple[int, int]) -> list[int]:
    """Those of a class that some record has: the index has each of them in the order of ids, not all together."""
    if code[1] - code[0] == 1:
        return [code[0]]
    return [row[0] for row in tx.select(_CODES, {"account": account, "code_from": code[0], "code_until": code[1]})]


# Each step is one look into an index, however many rows are alike.
_CODES = """
WITH RECURSIVE found (code) AS (
  SELECT (SELECT d.bad_code FROM deliveries d WHERE d.account = :account AND d.bad_code IS NOT NULL
      AND d.bad_code >= :code_from AND d.bad_code < :code_until ORDER BY d.bad_code LIMIT 1)
  UNION ALL
  SELECT (SELECT d.bad_code FROM deliveries d WHERE d.account = :account AND d.bad_code IS NOT NULL
      AND d.bad_code > found.code AND d.bad_code < :code_until ORDER BY d.bad_code LIMIT 1)
    FROM found WHERE found.code IS NOT NULL)
SELECT code FROM found WHERE code IS NOT NULL
"""


# --- one part of an index


def _read(tx: Tx, asked: Asked, part: Stream, parts: int) -> tuple[list[Found], Position | None]:
    """Some rows, and the position up to which these are all there are; None when that is the end."""
    by_looking = any(not part.source.holds(CONDITIONS[name]) for name in part.conditions)
    examined = (LOOKED_UP if by_looking else EXAMINED) // min(parts, LOOKED_UP)
    values = _parameters(asked, part) | {"examined": examined, "before": examined - 1, "count": asked.limit + 1}
    rows = [Found(row[:-2], *row[-2:]) for row in tx.select(_page_text(part, newest=asked.newest), values)]
    if len(rows) > asked.limit:
        return rows, rows[-1].position
    last = tx.select(_last_text(part, newest=asked.newest), values) if part.conditions else []
    return rows, last[0] if last else None


def _parameters(asked: Asked, part: Stream) -> dict[str, Any]:
    wanted = asked.wanted
    low, high = _bounds(asked, part.source)
    created_from, created_until = _created(wanted)
    code_from, code_until = wanted.code or (0, 0)
    return {
        "account": asked.account, "endpoint": wanted.endpoint, "event": wanted.event, "status": wanted.status,
        "subscription": wanted.subscription, "event_type": wanted.event_type, "failure": wanted.failure,
        "code_from": code_from, "code_until": code_until,
        "created_from": created_from, "created_until": created_until,
        **{f"low_{column}": value for column, value in zip(part.source.place, low, strict=True)},
        **{f"high_{column}": value for column, value in zip(part.source.place, high, strict=True)},
        **part.given,
    }  # fmt: skip


_ALL = (b"", b"\xff" * 17)  # from before the first id to after the last


def _created(wanted: Wanted) -> tuple[bytes, bytes]:
    """The ids that are wanted, from and up to but not with. An id starts with the millisecond it was made in."""
    low, high = _ALL
    if wanted.created_after is not None:
        low = ids.lowest_at(wanted.created_after + 1)
    if wanted.created_before is not None:
        high = ids.lowest_at(wanted.created_before)
    if wanted.id is not None:
        low, high = max(low, wanted.id), min(high, wanted.id + b"\0")
    return low, high


def _bounds(asked: Asked, source: Source) -> tuple[Position, Position]:
    """The positions that are left to be read, from and up to but not with."""
    low: Position
    high: Position
    if source.place == ("id",):
        first, last = _created(asked.wanted)
        low, high = (first,), (last,)
    else:
        low, high = (-1, b""), (asked.wanted.due_before, b"")
    if asked.after is None:
        return low, high
    if asked.newest:
        return low, min(high, asked.after)
    return max(low, (*asked.after[:-1], asked.after[-1] + b"\0")), high


def _page_text(part: Stream, *, newest: bool) -> str:
    """The SELECT of a page: positions, and of the events their time and the size of their data."""
    event = f"(SELECT d.event FROM deliveries d WHERE {_row('d')})"
    about = [f"(SELECT {what} FROM entries e WHERE e.account = :account AND e.id = {event} LIMIT 1)" for what in _ABOUT]
    told = ", ".join([*_columns(part.source.place), *about])
    if not part.conditions:
        return f"SELECT {told} FROM (SELECT {_held(part)} FROM {_range(part.source, newest=newest)} LIMIT :count) it"
    return (
        f"SELECT {told} FROM (SELECT {_held(part)} FROM {_range(part.source, newest=newest)} LIMIT :examined) it"
        f" WHERE {' AND '.join(_tried(part))} ORDER BY {_order(part.source, newest=newest)} LIMIT :count"
    )


_ABOUT = ("e.at", "octet_length(e.data)")


def _last_text(part: Stream, *, newest: bool) -> str:
    """The SELECT of the last position that was examined, if there are so many."""
    place = ", ".join(_columns(part.source.place))
    return f"SELECT {place} FROM {_range(part.source, newest=newest)} LIMIT 1 OFFSET :before"


def _range(source: Source, *, newest: bool) -> str:
    given = [f"it.{column} = :{column}" for column in source.key if column not in source.place]
    place = ", ".join(_columns(source.place))
    low, high = (", ".join(f":{end}_{column}" for column in source.place) for end in ("low", "high"))
    tried = [*given, f"({place}) >= ({low})", f"({place}) < ({high})"]
    if source == BY_DUE:  # once more, in a way that PostgreSQL takes for few rows while it knows nothing of the table
        tried += ["it.due >= :low_due", "it.due <= :high_due"]
    if source.only:
        tried.append(f"it.{source.only}")
    return f"{source.table} it WHERE {' AND '.join(tried)} ORDER BY {_order(source, newest=newest)}"


def _order(source: Source, *, newest: bool) -> str:
    return ", ".join(f"{column} {'DESC' if newest else 'ASC'}" for column in _columns(source.place))


def _held(part: Stream) -> str:
    """The columns that the index gives: its own, or what is tried of the table."""
    wanted = set(part.source.key)
    for name in part.conditions:
        if part.source.holds(CONDITIONS[name]):
            wanted.update(CONDITIONS[name].columns)
    return ", ".join(_columns(sorted(wanted)))


def _tried(part: Stream) -> Iterable[str]:
    """The conditions. A look at a row is a scalar by its key, which no planner turns into a join."""
    looks: dict[str, list[str]] = {}
    for condition in (CONDITIONS[name] for name in part.conditions):
        if part.source.holds(condition):
            yield condition.text.format(it="it")
        else:
            table = part.source.table if condition.table == "both" else condition.table
            looks.setdefault(table, []).append(condition.text.format(it="other"))
    for table, texts in looks.items():
        yield f"(SELECT {' AND '.join(texts)} FROM {table} other WHERE {_row('other')}) IS TRUE"


def _row(name: str) -> str:
    return f"{name}.account = :account AND {name}.id = it.id LIMIT 1"  # LIMIT: one look, not a bitmap of one


def _columns(names: Iterable[str]) -> list[str]:
    return [f"it.{name}" for name in names]


# --- counts


class Waiting(NamedTuple):
    """How many are not ended, counted over the oldest `COUNTED` of them, and the oldest."""

    pending: int
    held: int
    in_flight: int
    oldest: bytes | None


def waiting(tx: Tx, account: str, *, suspended: bool) -> Waiting:
    counts = {"pending": 0, "held": 0, "in_flight": 0}
    for status, flying, count in tx.select(_WAITING, {"account": ids.raw(account), "most": COUNTED}):
        state = "in_flight" if flying else "held" if suspended or status != "active" else "pending"
        counts[state] += count
    return Waiting(**counts, oldest=queue_rows.oldest(tx, account))


_WAITING = """
SELECT e.status, it.flying, count(*)
  FROM (SELECT q.endpoint, q.worker IS NOT NULL AS flying FROM queue q WHERE q.account = :account
    ORDER BY q.account, q.id LIMIT :most) it
  JOIN endpoints e ON e.account = :account AND e.id = it.endpoint GROUP BY e.status, it.flying
"""
_TALLIED = """
SELECT t.since / :size * :size, t.what, sum(t.count) FROM tallies t
  WHERE t.account = :account AND t.since >= :since AND t.since < :until GROUP BY 1, 2
"""


def tallied(tx: Tx, account: str, start: int, end: int, size: int) -> list[tuple[int, str, int]]:
    """What was counted, summed by intervals of so many seconds: start of the interval, what, how many."""
    rows = tx.select(_TALLIED, {"account": ids.raw(account), "since": start, "until": end, "size": size})
    return [(since, what, int(count)) for since, what, count in rows]
