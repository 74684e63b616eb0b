"""Reads one page of deliveries: chooses an index, and composes the SQL from fixed parts. Values are always parameters.

A page reads a range of one index in its order, and no columns that the index does not have, so that both stores use
this index whatever their statistics say. Filters that the index does not cover are applied to the rows that it returns,
up to a limit; the page says how far it got. A new filter is a member of `DeliveryFilter` and a line in `CONDITIONS`.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from gatepost.core import ids
from gatepost.store.transaction import Tx
from gatepost.webhooks import queue_rows

EXAMINED = 10_000  # rows that one page examines at most
LOOKED_UP = 2_500  # the same if the index does not have the filtered columns, so that each row is read too
COUNTED = 10_000  # counts are exact up to this number

UNFINISHED = ("pending", "held", "in_flight")

Position = tuple[Any, ...]  # where the next page starts: after an id, or after a due time and an id


class DeliveryFilter(NamedTuple):
    """The filters of a page. Times are milliseconds; `code` is a range without its end."""

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


class DeliveryRow(NamedTuple):
    position: Position
    event_at: int | None  # None if the event is no longer retained
    size: int | None  # of the data of the event, in bytes

    @property
    def id(self) -> bytes:
        raw_id: bytes = self.position[-1]
        return raw_id


class Page(NamedTuple):
    """Deliveries in order; `next` is None on the last page."""

    rows: list[DeliveryRow]
    next: Position | None


class PageRequest(NamedTuple):
    """A page of an account: filtered, in one of two orders, after a position."""

    account: bytes
    filters: DeliveryFilter
    newest: bool
    limit: int
    after: Position | None = None
    suspended: bool = False


class Source(NamedTuple):
    """An index: its columns up to the id, and the condition of a partial index in its exact words, for SQLite."""

    table: str
    key: tuple[str, ...]
    only: str = ""

    @property
    def place(self) -> tuple[str, ...]:
        """The columns that order its rows if the others have fixed values."""
        return self.key[-2:] if "due" in self.key else self.key[-1:]

    def holds(self, condition: "Condition") -> bool:
        """Whether the condition needs no read of the row. The primary keys have all columns of their tables."""
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
    """A condition on a row of a table, called `it` in the text, and the columns that it uses."""

    table: str  # `both` if both have the columns
    columns: tuple[str, ...]
    text: str


_INACTIVE = "({it}.endpoint IN (SELECT e.id FROM endpoints e WHERE e.account = :account AND e.status <> 'active'))"
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
    "held": Condition("queue", ("worker", "endpoint"), "{it}.worker IS NULL AND " + _INACTIVE + " IS TRUE"),
    "pending": Condition("queue", ("worker", "endpoint"), "{it}.worker IS NULL AND " + _INACTIVE + " IS NOT TRUE"),
}


class Stream(NamedTuple):
    """A part of an index: the values of its first columns, and the conditions to apply to its rows."""

    source: Source
    given: dict[str, Any]
    conditions: tuple[str, ...]


def page(tx: Tx, request: PageRequest) -> Page:
    """A page, merged from several parts of an index if necessary."""
    if _contradicts(request):
        return Page([], None)
    parts = _streams(tx, request)
    read = [_read(tx, request, part, len(parts)) for part in parts]
    stops = [stop for _, stop in read if stop is not None]
    stop = (max if request.newest else min)(stops, default=None)
    rows = sorted((row for rows, _ in read for row in rows), key=lambda row: row.position, reverse=request.newest)
    if stop is not None:
        rows = [row for row in rows if (row.position >= stop if request.newest else row.position <= stop)]
    if len(rows) > request.limit:
        return Page(rows[: request.limit], rows[request.limit - 1].position)
    return Page(rows, stop)


def _contradicts(request: PageRequest) -> bool:
    """Whether no delivery can match."""
    filters = request.filters
    ended_and_due = filters.due_before is not None and filters.status not in (None, *UNFINISHED)
    low, high = _created(filters)
    return ended_and_due or low >= high or (filters.status == "pending" and request.suspended)


def _streams(tx: Tx, request: PageRequest) -> list[Stream]:
    """The parts of the most selective index for these filters, or of the one with the requested order."""
    filters, account = request.filters, request.account
    if filters.due_before is not None:
        if filters.endpoint is None:
            return [_stream(request, BY_DUE, {"account": account})]
        lanes = [{"account": account, "endpoint": filters.endpoint, "lane": lane} for lane in (0, 1)]
        return [_stream(request, BY_LANE, lane, "endpoint") for lane in lanes]
    if filters.id is not None:
        return [_stream(request, CREATED, {"account": account})]
    if filters.event is not None:
        return [_stream(request, BY_EVENT, {"account": account, "event": filters.event}, "event")]
    if filters.status in UNFINISHED:
        return [_stream(request, QUEUED, {"account": account})]
    if filters.failure is not None:
        return [_stream(request, BY_FAILURE, {"account": account, "last_failure": filters.failure}, "failure")]
    if filters.code is not None and filters.code[0] >= 300:
        codes = _codes(tx, account, filters.code)
        return [_stream(request, BY_CODE, {"account": account, "bad_code": code}, "code") for code in codes]
    if filters.status in ("failed", "cancelled"):
        return [_stream(request, BY_STATUS, {"account": account, "bad_status": filters.status}, "ended")]
    if filters.endpoint is not None:
        return [_stream(request, BY_ENDPOINT, {"account": account, "endpoint": filters.endpoint}, "endpoint")]
    return [_stream(request, CREATED, {"account": account})]


def _stream(request: PageRequest, source: Source, given: dict[str, Any], answered: str = "") -> Stream:
    """With the conditions that the index does not cover."""
    filters = request.filters
    left = [name for name in ("endpoint", "event", "subscription", "event_type", "failure", "code")
            if getattr(filters, name) is not None]  # fmt: skip
    if source.place != ("id",) and (filters.id, filters.created_after, filters.created_before) != (None, None, None):
        left.append("created")
    match filters.status:
        case "pending" | "in_flight":
            left.append(filters.status)
        case "held":
            left.append("waiting" if request.suspended else "held")
        case str():
            left.append("ended")
    return Stream(source, given, tuple(name for name in left if name != answered))


def _codes(tx: Tx, account: bytes, code: tuple[int, int]) -> list[int]:
    """The codes of a class that occur: the index orders deliveries by id only within one code."""
    if code[1] - code[0] == 1:
        return [code[0]]
    return [row[0] for row in tx.select(_CODES, {"account": account, "code_from": code[0], "code_until": code[1]})]


# Each step is one index lookup, however many rows have the same code.
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


def _read(tx: Tx, request: PageRequest, part: Stream, parts: int) -> tuple[list[DeliveryRow], Position | None]:
    """Some rows, and the position up to which they are complete; None if that is the end."""
    by_looking = any(not part.source.holds(CONDITIONS[name]) for name in part.conditions)
    examined = (LOOKED_UP if by_looking else EXAMINED) // min(parts, LOOKED_UP)
    values = _parameters(request, part) | {"examined": examined, "before": examined - 1, "count": request.limit + 1}
    rows = [DeliveryRow(row[:-2], *row[-2:]) for row in tx.select(_page_text(part, newest=request.newest), values)]
    if len(rows) > request.limit:
        return rows, rows[-1].position
    last = tx.select(_last_text(part, newest=request.newest), values) if part.conditions else []
    return rows, last[0] if last else None


def _parameters(request: PageRequest, part: Stream) -> dict[str, Any]:
    filters = request.filters
    low, high = _bounds(request, part.source)
    created_from, created_until = _created(filters)
    code_from, code_until = filters.code or (0, 0)
    return {
        "account": request.account, "endpoint": filters.endpoint, "event": filters.event, "status": filters.status,
        "subscription": filters.subscription, "event_type": filters.event_type, "failure": filters.failure,
        "code_from": code_from, "code_until": code_until,
        "created_from": created_from, "created_until": created_until,
        **{f"low_{column}": value for column, value in zip(part.source.place, low, strict=True)},
        **{f"high_{column}": value for column, value in zip(part.source.place, high, strict=True)},
        **part.given,
    }  # fmt: skip


_ALL = (b"", b"\xff" * 17)  # from the first id to after the last


def _created(filters: DeliveryFilter) -> tuple[bytes, bytes]:
    """The range of ids, without its end. An id starts with the millisecond in which it was created."""
    low, high = _ALL
    if filters.created_after is not None:
        low = ids.lowest_at(filters.created_after + 1)
    if filters.created_before is not None:
        high = ids.lowest_at(filters.created_before)
    if filters.id is not None:
        low, high = max(low, filters.id), min(high, filters.id + b"\0")
    return low, high


def _bounds(request: PageRequest, source: Source) -> tuple[Position, Position]:
    """The range of positions to read, without its end."""
    low: Position
    high: Position
    if source.place == ("id",):
        first, last = _created(request.filters)
        low, high = (first,), (last,)
    else:
        low, high = (-1, b""), (request.filters.due_before, b"")
    if request.after is None:
        return low, high
    if request.newest:
        return low, min(high, request.after)
    return max(low, (*request.after[:-1], request.after[-1] + b"\0")), high


def _page_text(part: Stream, *, newest: bool) -> str:
    """The SELECT of a page: positions, and the time and the size of the data of each event."""
    event = f"(SELECT d.event FROM deliveries d WHERE {_row('d')})"
    about = [f"(SELECT {what} FROM entries e WHERE e.account = :account AND e.id = {event} LIMIT 1)" for what in _ABOUT]
    selected = ", ".join([*_columns(part.source.place), *about])
    covered = f"SELECT {_covered(part)} FROM {_range(part.source, newest=newest)}"
    if not part.conditions:
        return f"SELECT {selected} FROM ({covered} LIMIT :count) it"
    return (
        f"SELECT {selected} FROM ({covered} LIMIT :examined) it"
        f" WHERE {' AND '.join(_conditions(part))} ORDER BY {_order(part.source, newest=newest)} LIMIT :count"
    )


_ABOUT = ("e.at", "octet_length(e.data)")


def _last_text(part: Stream, *, newest: bool) -> str:
    """The SELECT of the last position that a page examines, if there are as many."""
    place = ", ".join(_columns(part.source.place))
    return f"SELECT {place} FROM {_range(part.source, newest=newest)} LIMIT 1 OFFSET :before"


def _range(source: Source, *, newest: bool) -> str:
    given = [f"it.{column} = :{column}" for column in source.key if column not in source.place]
    place = ", ".join(_columns(source.place))
    low, high = (", ".join(f":{end}_{column}" for column in source.place) for end in ("low", "high"))
    conditions = [*given, f"({place}) >= ({low})", f"({place}) < ({high})"]
    if source == BY_DUE:  # redundant, but lets PostgreSQL estimate few rows while it has no statistics
        conditions += ["it.due >= :low_due", "it.due <= :high_due"]
    if source.only:
        conditions.append(f"it.{source.only}")
    return f"{source.table} it WHERE {' AND '.join(conditions)} ORDER BY {_order(source, newest=newest)}"


def _order(source: Source, *, newest: bool) -> str:
    return ", ".join(f"{column} {'DESC' if newest else 'ASC'}" for column in _columns(source.place))


def _covered(part: Stream) -> str:
    """The columns to read from the index: its own, and those of conditions on a primary key."""
    columns = set(part.source.key)
    for name in part.conditions:
        if part.source.holds(CONDITIONS[name]):
            columns.update(CONDITIONS[name].columns)
    return ", ".join(_columns(sorted(columns)))


def _conditions(part: Stream) -> Iterable[str]:
    """The conditions. A row is read with a scalar subquery by its key, which no planner turns into a join."""
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
    return f"{name}.account = :account AND {name}.id = it.id LIMIT 1"  # LIMIT: an index lookup, not a bitmap scan


def _columns(names: Iterable[str]) -> list[str]:
    return [f"it.{name}" for name in names]


# --- counts


class Waiting(NamedTuple):
    """Unfinished deliveries, counted among the oldest `COUNTED` of them, and the oldest one."""

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
    """The counts, summed by intervals of `size` seconds: start of the interval, what was counted, and the sum."""
    rows = tx.select(_TALLIED, {"account": ids.raw(account), "since": start, "until": end, "size": size})
    return [(since, what, int(count)) for since, what, count in rows]
