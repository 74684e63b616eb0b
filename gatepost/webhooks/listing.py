"""GET /webhooks/deliveries: a page of deliveries, a summary of the account, or its endpoints. It only reads.

`listing_query` reads the page from the database, and `render` renders each delivery.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Literal, NamedTuple

import msgspec

from gatepost.accounts import Account
from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.core.secrets import digest, same
from gatepost.ledger import entry_rows
from gatepost.ledger.operations import Answer
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import (
    define_endpoint,
    define_subscription,
    delivery_rows,
    endpoint_rows,
    health_rows,
    listing_query,
    queue_rows,
    subscription_rows,
    summary,
)
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.listing_query import DeliveryFilter, DeliveryRow, PageRequest, Position
from gatepost.webhooks.plan import retry_schedule
from gatepost.webhooks.render import render_delivery
from gatepost.webhooks.service import Service
from gatepost.webhooks.summary import Interval

LIMIT = 50
MOST = 200
MOST_PAYLOAD = 4 * 1024 * 1024  # bytes of events in one page; the rest is on the next page
SINCE: dict[Interval, int] = {"hour": 24 * 3600, "day": 30 * 86_400}  # seconds, if the range has no start

_encode = msgspec.json.Encoder().encode


class Query(NamedTuple):
    """A cursor is valid for the same view, filters and order, with any limit."""

    filters: DeliveryFilter = DeliveryFilter()
    view: Literal["deliveries", "summary", "endpoints"] = "deliveries"
    newest: bool = True
    limit: int = LIMIT
    cursor: str = ""
    include: frozenset[str] = frozenset()
    interval: Interval = "hour"


def answer(tx: Tx, service: Service, account: Account, query: Query) -> Answer | Refusal:
    match query.view:
        case "deliveries":
            return page(tx, service, account, query)
        case "summary":
            return summarize(tx, account, query)
        case "endpoints":
            return endpoints(tx, service, account, query)


# --- deliveries


def page(tx: Tx, service: Service, account: Account, query: Query) -> Answer | Refusal:
    after = _position(service, account, query)
    if isinstance(after, Refusal):
        return after
    filters = _narrowed(tx, account, query.filters)
    if filters is None:
        return Answer(200, {"data": [], "next_cursor": None}, None)
    raw = ids.raw(account.id)
    request = PageRequest(raw, filters, query.newest, query.limit, after, suspended=not account.active)
    found = listing_query.page(tx, request)
    rows, next_ = found.rows, found.next
    if "payload" in query.include:
        rows = _limit_payload(rows)
        next_ = rows[-1].position if len(rows) < len(found.rows) else next_
    return Answer(
        200,
        {"data": render_rows(tx, account, rows, query.include), "next_cursor": _cursor(service, account, query, next_)},
        None,
    )


def _narrowed(tx: Tx, account: Account, filters: DeliveryFilter) -> DeliveryFilter | None:
    """Add the endpoint of the subscription, which has an index. None if no delivery can match."""
    if filters.subscription is None:
        return filters
    subscription = subscription_rows.load(tx, account.id, ids.text("sub", filters.subscription))
    endpoint = ids.raw(subscription.endpoint) if subscription else None
    return filters._replace(endpoint=endpoint) if endpoint and filters.endpoint in (None, endpoint) else None


def _limit_payload(rows: list[DeliveryRow]) -> list[DeliveryRow]:
    """The first rows, up to `MOST_PAYLOAD` bytes, and at least one."""
    size = 0
    for count, row in enumerate(rows):
        size += row.size or 0
        if size > MOST_PAYLOAD and count:
            return rows[:count]
    return rows


def render_rows(tx: Tx, account: Account, rows: list[DeliveryRow], include: frozenset[str]) -> list[dict[str, Any]]:
    """The rendered deliveries."""
    raw, at = ids.raw(account.id), clock.milliseconds(tx.at)
    keys = [(raw, row.id) for row in rows]
    deliveries = delivery_rows.load_many(tx, keys)
    queued, attempts = queue_rows.load_many(tx, keys), delivery_rows.attempts(tx, keys)
    entries = {}
    if "payload" in include:
        entries = entry_rows.load_many(tx, {(raw, each.event) for each in deliveries.values()})
    known: dict[bytes, tuple[Endpoint, int | None]] = {}
    rendered = []
    for key, row in zip(keys, rows, strict=True):
        delivery, waiting = deliveries[key], queued.get(key)
        if delivery.endpoint not in known:
            known[delivery.endpoint] = _endpoint(tx, account, delivery.endpoint)
        endpoint, not_before = known[delivery.endpoint]
        rendered.append(
            render_delivery(
                delivery, waiting, attempts.get(key, []), endpoint=endpoint,
                schedule=retry_schedule(account, endpoint), entry_at=row.event_at, at=at,
                inactive=not account.active or endpoint.status != "active", not_before=not_before,
                include=include, entry=entries.get((raw, delivery.event)),
            )
        )  # fmt: skip
    return rendered


def _endpoint(tx: Tx, account: Account, raw: bytes) -> tuple[Endpoint, int | None]:
    """The endpoint, and until when it request us to wait."""
    name = ids.text("ep", raw)
    found = endpoint_rows.load(tx, account.id, name)
    if found is None:
        raise LookupError(name)
    health = health_rows.load(tx, account.id, name)
    return found, clock.milliseconds(health.not_before) if health and health.not_before else None


# --- health


def summarize(tx: Tx, account: Account, query: Query) -> Answer | Refusal:
    """Whole intervals that cover the range. By default the last day by the hour, or the last thirty days by the day."""
    size, filters = summary.SECONDS[query.interval], query.filters
    until = clock.milliseconds(tx.at) if filters.created_before is None else filters.created_before
    since = until - SINCE[query.interval] * 1000 if filters.created_after is None else filters.created_after
    since = max(since, 0)
    if since >= until:
        return Refusal(
            "invalid_request", "created_after: must be before created_before, or before now", "created_after"
        )
    start, end = summary.span(query.interval, since // 1000, -(-until // 1000))
    if (end - start) // size > summary.MOST:
        words = f"created_after: at most {summary.MOST} intervals of one {query.interval} in one summary"
        return Refusal("invalid_request", words, "created_after")
    rows = listing_query.tallied(tx, account.id, start, end, size)
    waiting = listing_query.waiting(tx, account.id, suspended=not account.active)
    body = {
        "data": summary.summarise(rows, query.interval, start, end),
        "total": summary.total(rows),
        "now": {
            "pending": waiting.pending,
            "held": waiting.held,
            "in_flight": waiting.in_flight,
            "counted_to": listing_query.COUNTED,
            "oldest_pending_at": clock.rfc3339(ids.made_at(waiting.oldest)) if waiting.oldest else None,
        },
    }
    return Answer(200, body, None)


# --- endpoints


_BATCH = 200
_BATCHES = 10  # read for one page at most: removed endpoints are skipped


def endpoints(tx: Tx, service: Service, account: Account, query: Query) -> Answer | Refusal:
    """Endpoints with their subscriptions, in the order of their creation."""
    position = _position(service, account, query)
    if isinstance(position, Refusal):
        return position
    found, next_ = _some_endpoints(tx, account, position[-1] if position else LOWEST, query.limit)
    data = []
    for endpoint in found:
        subscriptions = subscription_rows.of_endpoint(tx, account.id, endpoint.id)
        rendered = [define_subscription.render(tx, subscription) for subscription in subscriptions]
        data.append(define_endpoint.render(tx, account, endpoint) | {"subscriptions": rendered})
    return Answer(200, {"data": data, "next_cursor": _cursor(service, account, query, next_)}, None)


def _some_endpoints(tx: Tx, account: Account, after: bytes, limit: int) -> tuple[list[Endpoint], Position | None]:
    found: list[Endpoint] = []
    for _ in range(_BATCHES):
        batch = endpoint_rows.page(tx, account.id, after, _BATCH)
        found += [each for each in batch if each.status != "removed"]
        if len(found) > limit:
            return found[:limit], (ids.raw(found[limit - 1].id),)
        if len(batch) < _BATCH:
            return found, None
        after = ids.raw(batch[-1].id)
    return found, (after,)


# --- cursors

_CURSOR = re.compile(r"[A-Za-z0-9_-]{1,128}")
_MAC = 16
_BAD = Refusal(
    "invalid_request", "cursor: must be a next_cursor of the same account, view, filters and order", "cursor"
)


def _cursor(service: Service, account: Account, query: Query, position: Position | None) -> str | None:
    """Where the next page starts, with a MAC that binds it to the account, the view, the filters and the order."""
    if position is None:
        return None
    place = b"".join(part if isinstance(part, bytes) else part.to_bytes(8, "big") for part in position)
    return _text(_mac(service, account, query, place) + place)


def _position(service: Service, account: Account, query: Query) -> Position | Refusal | None:
    if not query.cursor:
        return None
    if not _CURSOR.fullmatch(query.cursor) or len(query.cursor) % 4 == 1:
        return _BAD
    sent = urlsafe_b64decode(query.cursor + "=" * (-len(query.cursor) % 4))
    mac, place = sent[:_MAC], sent[_MAC:]
    if _text(sent) != query.cursor or not same(mac, _mac(service, account, query, place)):
        return _BAD
    return (int.from_bytes(place[:-16], "big"), place[-16:]) if query.filters.due_before is not None else (place,)


def _mac(service: Service, account: Account, query: Query, place: bytes) -> bytes:
    of = [account.id, query.view, query.newest, *query.filters]
    return digest(service.keys.hash, f"cursor {_encode(of).decode()} {place.hex()}")[:_MAC]


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
