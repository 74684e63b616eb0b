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

MAX_EXAMINED = 10_000  # index entries that one page examines
MAX_LOOKED_UP = 2_500  # the same if the index does not have the filtered columns, so that each row is read too
MAX_COUNTED = 10_000  # counts are exact up to this number

UNFINISHED = ("pending", "held", "in_flight")

Position = tuple[Any, ...]  # where the next page starts: after an id, or after a due time and an id


class DeliveryFilter(NamedTuple):
    """The filters of a page. Times are milliseconds. `code` and the time of creation are ranges without their end."""

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


class Page(NamedTuple):
    """The positions of deliveries, in order. A position ends with the id. `next` is None on the last page."""

    positions: list[Position]
    next: Position | None


class PageRequest(NamedTuple):
    """A page of an account: filtered, in one of two orders, after a position."""

    account: bytes
    filters: DeliveryFilter
    newest: bool
    limit: int
    after: Position | None = None
    suspended: bool = False


class Index(NamedTuple):
    """An index: its columns up to the id, and the filter that it answers.

    `where` is the condition of a partial index, word for word: SQLite uses the index only then.
    """

    table: str
    key: tuple[str, ...]
    answers: str = ""
    where: str = ""

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that order its entries if the others have fixed values."""
        return self.key[-2:] if "due" in self.key else self.key[-1:]

    def covers(self, condition: "Condition") -> bool:
        """Whether the condition needs no read of the row. The primary keys have all columns of their tables."""
        if self.key == ("account", "id"):
            return condition.table in (self.table, "both")
        return set(condition.columns) <= set(self.key)


CREATED = Index("deliveries", ("account", "id"))
BY_ENDPOINT = Index("deliveries", ("account", "endpoint", "id"), "endpoint")
BY_EVENT = Index("deliveries", ("account", "event", "id"), "event")
BY_STATUS = Index("deliveries", ("account", "bad_status", "id"), "ended", "bad_status IS NOT NULL")
BY_CODE = Index("deliveries", ("account", "bad_code", "id"), "code", "bad_code IS NOT NULL")
BY_FAILURE = Index("deliveries", ("account", "last_failure", "id"), "failure", "last_failure IS NOT NULL")
QUEUED = Index("queue", ("account", "id"))
BY_DUE = Index("queue", ("account", "due", "id"))
BY_LANE = Index("queue", ("account", "endpoint", "lane", "due", "id"), "endpoint")


class Condition(NamedTuple):
    """A condition on a row of a table, which the text calls `it`, and the columns that it uses."""

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


class Scan(NamedTuple):
    """A scan of a range of an index, in its order, and the conditions to apply to its entries."""

    source: Index
    newest: bool
    conditions: tuple[str, ...]
    parameters: dict[str, Any]


def page(tx: Tx, request: PageRequest) -> Page:
    """Read a page, merged from several ranges of an index if necessary."""
    if _contradicts(request):
        return Page([], None)
    scans = _scans(tx, request)
    results = [_read(tx, request.limit, scan, len(scans)) for scan in scans]
    stops = [stop for _, stop in results if stop is not None]
    stop = (max if request.newest else min)(stops, default=None)
    positions = sorted((position for positions, _ in results for position in positions), reverse=request.newest)
    if stop is not None:
        positions = [position for position in positions if (position >= stop if request.newest else position <= stop)]
    if len(positions) > request.limit:
        return Page(positions[: request.limit], positions[request.limit - 1])
    return Page(positions, stop)


def _contradicts(request: PageRequest) -> bool:
    """Whether no delivery can match."""
    filters = request.filters
    ended_and_due = filters.due_before is not None and filters.status not in (None, *UNFINISHED)
    low, high = _created(filters)
    return ended_and_due or low >= high or (filters.status == "pending" and request.suspended)


def _scans(tx: Tx, request: PageRequest) -> list[Scan]:
    """Scans of the most selective index for these filters, or of the one with the requested order."""
    filters = request.filters
    if filters.due_before is not None:
        if filters.endpoint is None:
            return [_scan(request, BY_DUE)]
        return [_scan(request, BY_LANE, lane=lane) for lane in (0, 1)]
    if filters.id is not None:
        return [_scan(request, CREATED)]
    if filters.event is not None:
        return [_scan(request, BY_EVENT)]
    if filters.status in UNFINISHED:
        return [_scan(request, QUEUED)]
    if filters.failure is not None:
        return [_scan(request, BY_FAILURE)]
    if filters.code is not None and filters.code[0] >= 300:
        return [_scan(request, BY_CODE, bad_code=code) for code in _codes(tx, request.account, filters.code)]
    if filters.status in ("failed", "cancelled"):
        return [_scan(request, BY_STATUS)]
    return [_scan(request, CREATED if filters.endpoint is None else BY_ENDPOINT)]


def _scan(request: PageRequest, index: Index, **fixed: int) -> Scan:
    """A scan with the conditions that the index does not answer. `fixed` are values of its columns."""
    filters = request.filters
    names = [name for name in ("endpoint", "event", "subscription", "event_type", "failure", "code")
             if getattr(filters, name) is not None]  # fmt: skip
    if index.order != ("id",) and (filters.id, filters.created_after, filters.created_before) != (None, None, None):
        names.append("created")
    match filters.status:
        case "pending" | "in_flight":
            names.append(filters.status)
        case "held":
            names.append("waiting" if request.suspended else "held")
        case str():
            names.append("ended")
    conditions = tuple(name for name in names if name != index.answers)
    return Scan(index, request.newest, conditions, _parameters(request, index) | fixed)


def _parameters(request: PageRequest, index: Index) -> dict[str, Any]:
    filters = request.filters
    low, high = _bounds(request, index)
    created_from, created_until = _created(filters)
    code_from, code_until = filters.code or (0, 0)
    return {
        "account": request.account, "endpoint": filters.endpoint, "event": filters.event, "status": filters.status,
        "bad_status": filters.status, "subscription": filters.subscription, "event_type": filters.event_type,
        "failure": filters.failure, "last_failure": filters.failure, "code_from": code_from, "code_until": code_until,
        "created_from": created_from, "created_until": created_until,
        **{f"low_{column}": value for column, value in zip(index.order, low, strict=True)},
        **{f"high_{column}": value for column, value in zip(index.order, high, strict=True)},
    }  # fmt: skip


def _created(filters: DeliveryFilter) -> tuple[bytes, bytes]:
    """The range of ids, without its end. An id starts with the millisecond in which it was created."""
    low, high = b"", b"\xff" * 17  # from the first id to after the last
    if filters.created_after is not None:
        low = ids.lowest_at(filters.created_after)
    if filters.created_before is not None:
        high = ids.lowest_at(filters.created_before)
    if filters.id is not None:
        low, high = max(low, filters.id), min(high, filters.id + b"\0")
    return low, high


def _bounds(request: PageRequest, index: Index) -> tuple[Position, Position]:
    """The range of positions to read, without its end."""
    low: Position = (-1, b"")
    high: Position = (request.filters.due_before, b"")
    if index.order == ("id",):
        low, high = ((raw_id,) for raw_id in _created(request.filters))
    if request.after is None:
        return low, high
    if request.newest:
        return low, min(high, request.after)
    return max(low, (*request.after[:-1], request.after[-1] + b"\0")), high


def _codes(tx: Tx, account: bytes, code: tuple[int, int]) -> list[int]:
    """The codes of a class that occur: the index orders deliveries by id only within one code."""
    if code[1] - code[0] == 1:
        return [code[0]]
    return [row[0] for row in tx.select(_CODES, {"account": account, "code_from": code[0], "code_until": code[1]})]


# Each step is one index lookup, however many rows have the same code.
_CODES = """
WITH RECURSIVE codes (code) AS (
  SELECT (SELECT d.bad_code FROM deliveries d WHERE d.account = :account AND d.bad_code IS NOT NULL
      AND d.bad_code >= :code_from AND d.bad_code < :code_until ORDER BY d.bad_code LIMIT 1)
  UNION ALL
  SELECT (SELECT d.bad_code FROM deliveries d WHERE d.account = :account AND d.bad_code IS NOT NULL
      AND d.bad_code > codes.code AND d.bad_code < :code_until ORDER BY d.bad_code LIMIT 1)
    FROM codes WHERE codes.code IS NOT NULL)
SELECT code FROM codes WHERE code IS NOT NULL
"""


# --- one scan


def _read(tx: Tx, limit: int, scan: Scan, scans: int) -> tuple[list[Position], Position | None]:
    """Read some positions. Returns also the position up to which they are complete; None if that is the end."""
    is_covered = all(scan.source.covers(CONDITIONS[name]) for name in scan.conditions)
    examined = (MAX_EXAMINED if is_covered else MAX_LOOKED_UP) // min(scans, MAX_LOOKED_UP)
    parameters = scan.parameters | {"examined": examined, "before": examined - 1, "count": limit + 1}
    positions: list[Position] = tx.select(_page_text(scan), parameters)
    if len(positions) > limit:
        return positions, positions[-1]
    last = tx.select(_last_text(scan), parameters) if scan.conditions else []
    return positions, last[0] if last else None


def _page_text(scan: Scan) -> str:
    """The SELECT of the positions of a page."""
    selected = _columns(scan.source.order)
    if not scan.conditions:
        return f"SELECT {selected} FROM {_range(scan)} LIMIT :count"
    return (
        f"SELECT {selected} FROM (SELECT {_covered(scan)} FROM {_range(scan)} LIMIT :examined) it"
        f" WHERE {' AND '.join(_conditions(scan))} ORDER BY {_order(scan)} LIMIT :count"
    )


def _last_text(scan: Scan) -> str:
    """The SELECT of the last position that a page examines, if there are as many."""
    return f"SELECT {_columns(scan.source.order)} FROM {_range(scan)} LIMIT 1 OFFSET :before"


def _range(scan: Scan) -> str:
    index, position = scan.source, _columns(scan.source.order)
    low, high = (", ".join(f":{end}_{column}" for column in index.order) for end in ("low", "high"))
    conditions = [f"it.{column} = :{column}" for column in index.key if column not in index.order]
    conditions += [f"({position}) >= ({low})", f"({position}) < ({high})"]
    if index == BY_DUE:  # redundant, but lets PostgreSQL estimate few rows while it has no statistics
        conditions += ["it.due >= :low_due", "it.due <= :high_due"]
    if index.where:
        conditions.append(f"it.{index.where}")
    return f"{index.table} it WHERE {' AND '.join(conditions)} ORDER BY {_order(scan)}"


def _order(scan: Scan) -> str:
    return ", ".join(f"it.{column} {'DESC' if scan.newest else 'ASC'}" for column in scan.source.order)


def _covered(scan: Scan) -> str:
    """The columns to read from the index: its own, and those of conditions on a primary key."""
    columns = set(scan.source.key)
    for name in scan.conditions:
        if scan.source.covers(CONDITIONS[name]):
            columns.update(CONDITIONS[name].columns)
    return _columns(sorted(columns))


def _conditions(scan: Scan) -> Iterable[str]:
    """The conditions. A row is read with a scalar subquery by its key, which no planner turns into a join."""
    lookups: dict[str, list[str]] = {}
    for condition in (CONDITIONS[name] for name in scan.conditions):
        if scan.source.covers(condition):
            yield condition.text.format(it="it")
        else:
            table = scan.source.table if condition.table == "both" else condition.table
            lookups.setdefault(table, []).append(condition.text.format(it="other"))
    for table, texts in lookups.items():
        yield f"(SELECT {' AND '.join(texts)} FROM {table} other WHERE {_row('other')}) IS TRUE"


def _row(alias: str) -> str:
    return f"{alias}.account = :account AND {alias}.id = it.id LIMIT 1"  # LIMIT: an index lookup, not a bitmap scan


def _columns(names: Iterable[str]) -> str:
    return ", ".join(f"it.{name}" for name in names)


# --- counts


class UnfinishedCounts(NamedTuple):
    """Unfinished deliveries, counted among the first `MAX_COUNTED` of them, and the oldest one."""

    pending: int
    held: int
    in_flight: int
    oldest: bytes | None


def count_unfinished(tx: Tx, account: str, endpoint: bytes | None = None, *, suspended: bool) -> UnfinishedCounts:
    """Count the unfinished deliveries of an account, or of one endpoint, by their status."""
    counts = dict.fromkeys(UNFINISHED, 0)
    parameters = {"account": ids.raw(account), "endpoint": endpoint, "most": MAX_COUNTED}
    some = _OF_ACCOUNT if endpoint is None else _OF_ENDPOINT
    for status, in_flight, count in tx.select(_UNFINISHED.format(some=some), parameters):
        counts["in_flight" if in_flight else "held" if suspended or status != "active" else "pending"] += count
    if endpoint is None:
        return UnfinishedCounts(**counts, oldest=queue_rows.oldest(tx, account))
    oldest = tx.select(_OLDEST.format(some=some), parameters)
    return UnfinishedCounts(**counts, oldest=oldest[0][0] if oldest else None)


_OF_ACCOUNT = "queue q WHERE q.account = :account ORDER BY q.account, q.id LIMIT :most"
# The index of an endpoint is in the order of due times: those that are due first are counted.
_OF_ENDPOINT = (
    "queue q WHERE q.account = :account AND q.endpoint = :endpoint"
    " ORDER BY q.account, q.endpoint, q.lane, q.due, q.id LIMIT :most"
)
_UNFINISHED = """
SELECT e.status, it.in_flight, count(*) FROM (SELECT q.endpoint, q.worker IS NOT NULL AS in_flight FROM {some}) it
  JOIN endpoints e ON e.account = :account AND e.id = it.endpoint GROUP BY e.status, it.in_flight
"""
_OLDEST = "SELECT it.id FROM (SELECT q.id FROM {some}) it ORDER BY it.id LIMIT 1"
