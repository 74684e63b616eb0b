"""GET /webhooks/deliveries: a page of deliveries, a summary of the account or an endpoint, or its endpoints.

It only reads. `listing_query` reads the page from the database, and `render` renders each delivery.
"""

from datetime import timedelta
from hmac import compare_digest
from typing import Any, Literal, NamedTuple

import msgspec

from gatepost.accounts import Account
from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.core.jose import b64, unb64
from gatepost.core.secrets import digest
from gatepost.ledger import entry_rows
from gatepost.ledger.entry_rows import EntrySize
from gatepost.ledger.operations import Answer
from gatepost.store.pending import Key
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import (
    define_endpoint,
    define_subscription,
    delivery_rows,
    endpoint_activity,
    endpoint_rows,
    health_rows,
    listing_query,
    queue_rows,
    subscription_rows,
    summary,
    tallies,
)
from gatepost.webhooks.deliveries import Attempt, Delivery
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.listing_query import DeliveryFilter, PageRequest, Position
from gatepost.webhooks.plan import retry_schedule
from gatepost.webhooks.render import render_delivery
from gatepost.webhooks.service import Service
from gatepost.webhooks.summary import Interval

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
MAX_PAYLOAD = 4 * 1024 * 1024  # bytes of events in one page; the rest is on the next page
DEFAULT_RANGE: dict[Interval, int] = {"minute": 3600, "hour": 24 * 3600, "day": 30 * 86_400}  # seconds

_encode = msgspec.json.Encoder().encode


class Query(NamedTuple):
    """A parsed query. A cursor is valid for the same view, filters and order, with any limit."""

    filters: DeliveryFilter = DeliveryFilter()
    view: Literal["deliveries", "summary", "endpoints"] = "deliveries"
    newest: bool = True
    limit: int = DEFAULT_LIMIT
    cursor: str = ""
    include: frozenset[str] = frozenset()
    interval: Interval = "hour"


def answer(tx: Tx, service: Service, account: Account, query: Query) -> Answer | Refusal:
    """Answer a query with the view that it asks for."""
    match query.view:
        case "deliveries":
            return page(tx, service, account, query)
        case "summary":
            return summarize(tx, account, query)
        case "endpoints":
            return endpoints(tx, service, account, query)


# --- deliveries


def page(tx: Tx, service: Service, account: Account, query: Query) -> Answer | Refusal:
    """Answer with a page of deliveries."""
    after = _position(service, account, query)
    if isinstance(after, Refusal):
        return after
    filters = _with_endpoint(tx, account, query.filters)
    if filters is None:
        return Answer(200, {"data": [], "next_cursor": None}, None)
    request = PageRequest(ids.raw(account.id), filters, query.newest, query.limit, after, suspended=not account.active)
    positions, next_ = listing_query.page(tx, request)
    keys = [(request.account, position[-1]) for position in positions]
    deliveries, attempts = delivery_rows.load_many(tx, keys), delivery_rows.attempts(tx, keys)
    events = entry_rows.sizes(tx, {(request.account, delivery.event) for delivery in deliveries.values()})
    tx.check_snapshot()
    found = [deliveries[key] for key in keys]
    if "payload" in query.include and (count := _count_payloads(found, events)) < len(found):
        found, next_ = found[:count], positions[count - 1]
    data = _render(tx, account, found, attempts, events, query.include)
    return Answer(200, {"data": data, "next_cursor": _cursor(service, account, query, next_)}, None)


def _with_endpoint(tx: Tx, account: Account, filters: DeliveryFilter) -> DeliveryFilter | None:
    """Add the endpoint of the subscription, which has an index. None if no delivery can match."""
    if filters.subscription is None:
        return filters
    subscription = subscription_rows.load(tx, account.id, ids.text("sub", filters.subscription))
    endpoint = ids.raw(subscription.endpoint) if subscription else None
    return filters._replace(endpoint=endpoint) if endpoint and filters.endpoint in (None, endpoint) else None


def _count_payloads(found: list[Delivery], events: dict[Key, EntrySize]) -> int:
    """How many of the first payloads have up to `MAX_PAYLOAD` bytes together. At least one."""
    size = 0
    for count, delivery in enumerate(found):
        event = events.get((delivery.account, delivery.event))
        size += event.size or 0 if event else 0
        if size > MAX_PAYLOAD and count:
            return count
    return len(found)


def _render(
    tx: Tx, account: Account, found: list[Delivery], attempts: dict[Key, list[Attempt]],
    events: dict[Key, EntrySize], include: frozenset[str],
) -> list[dict[str, Any]]:  # fmt: skip
    keys = [(delivery.account, delivery.id) for delivery in found]
    queued = queue_rows.load_many(tx, keys)
    entries = {}
    if "payload" in include:
        entries = entry_rows.load_many(tx, {(delivery.account, delivery.event) for delivery in found})
    receivers = {raw: _receiver(tx, account, raw) for raw in {delivery.endpoint for delivery in found}}
    rendered = []
    for key, delivery in zip(keys, found, strict=True):
        endpoint, not_before = receivers[delivery.endpoint]
        event = events.get((delivery.account, delivery.event))
        rendered.append(
            render_delivery(
                delivery, queued.get(key), attempts.get(key, []), endpoint=endpoint,
                schedule=retry_schedule(account, endpoint), entry_at=event.at if event else None, at=tx.now,
                inactive=not account.active or endpoint.status != "active", not_before=not_before,
                include=include, entry=entries.get((delivery.account, delivery.event)),
            )
        )  # fmt: skip
    return rendered


def _receiver(tx: Tx, account: Account, raw: bytes) -> tuple[Endpoint, int | None]:
    """The endpoint, and the time until which it asked for no attempts."""
    name = ids.text("ep", raw)
    endpoint = endpoint_rows.load(tx, account.id, name)
    if endpoint is None:
        raise LookupError(name)
    health = health_rows.load(tx, account.id, name)
    return endpoint, clock.milliseconds(health.not_before) if health and health.not_before else None


# --- summary


def summarize(tx: Tx, account: Account, query: Query) -> Answer | Refusal:
    """Answer with whole intervals that cover the range: by default the last hour, 24 hours, or 30 days.

    An endpoint that the account does not have has no counts.
    """
    size, filters = summary.SECONDS[query.interval], query.filters
    until = tx.now if filters.created_before is None else filters.created_before
    since = until - DEFAULT_RANGE[query.interval] * 1000 if filters.created_after is None else filters.created_after
    since = max(since, 0)
    start, end = summary.span(query.interval, since // 1000, -(-until // 1000))
    problem = _range_problem(tx, query.interval, since, until)
    if problem:
        return Refusal("invalid_request", f"created_after: {problem}", "created_after")
    if filters.endpoint is None:
        rows = tallies.load(tx, account.id, start, end, size)
    else:
        rows = tallies.load_of_endpoints(tx, account.id, [filters.endpoint], start, end, size)[filters.endpoint]
    unfinished = listing_query.count_unfinished(tx, account.id, filters.endpoint, suspended=not account.active)
    body = {
        "data": summary.summarize(rows, query.interval, start, end),
        "total": summary.total(rows),
        "now": {
            "pending": unfinished.pending,
            "held": unfinished.held,
            "in_flight": unfinished.in_flight,
            "counted_to": listing_query.MAX_COUNTED,
            "oldest_pending_at": clock.rfc3339(ids.made_at(unfinished.oldest)) if unfinished.oldest else None,
        },
    }
    return Answer(200, body, None)


def _range_problem(tx: Tx, interval: Interval, since: int, until: int) -> str:
    """What is wrong with a range in milliseconds; empty if nothing is."""
    if since >= until:
        return "must be before created_before, or before now"
    start, end = summary.span(interval, since // 1000, -(-until // 1000))
    if interval != "minute":
        too_many = (end - start) // summary.SECONDS[interval] > summary.MAX_INTERVALS
        return f"at most {summary.MAX_INTERVALS} intervals of one {interval} in one summary" if too_many else ""
    hours = tallies.MINUTES_KEPT // timedelta(hours=1)
    if until - since > tallies.MINUTES_KEPT // timedelta(milliseconds=1):
        return f"at most {hours} hours before created_before with interval=minute; use interval=hour for longer ranges"
    if start < tallies.oldest_minute(tx.at):
        return f"at most {hours} hours ago with interval=minute; use interval=hour for earlier times"
    return ""


# --- endpoints

_BATCH = 200
_MAX_BATCHES = 10  # read for one page, because removed endpoints are skipped


def endpoints(tx: Tx, service: Service, account: Account, query: Query) -> Answer | Refusal:
    """Answer with endpoints, their subscriptions and what happens there now, in the order of their creation."""
    position = _position(service, account, query)
    if isinstance(position, Refusal):
        return position
    page, next_ = _endpoint_page(tx, account, position[-1] if position else LOWEST, query.limit)
    data = []
    for endpoint in page:
        subscriptions = subscription_rows.of_endpoint(tx, account.id, endpoint.id)
        rendered = [define_subscription.render(tx, subscription) for subscription in subscriptions]
        data.append(define_endpoint.render(tx, account, endpoint) | {"subscriptions": rendered})
    activity = endpoint_activity.load(tx, account, data)
    data = [rendered | added for rendered, added in zip(data, activity, strict=True)]
    return Answer(200, {"data": data, "next_cursor": _cursor(service, account, query, next_)}, None)


def _endpoint_page(tx: Tx, account: Account, after: bytes, limit: int) -> tuple[list[Endpoint], Position | None]:
    page: list[Endpoint] = []
    for _ in range(_MAX_BATCHES):
        batch = endpoint_rows.page(tx, account.id, after, _BATCH)
        page += [endpoint for endpoint in batch if endpoint.status != "removed"]
        if len(page) > limit:
            return page[:limit], (ids.raw(page[limit - 1].id),)
        if len(batch) < _BATCH:
            return page, None
        after = ids.raw(batch[-1].id)
    return page, (after,)


# --- cursors

_MAX_CURSOR = 128  # characters
_MAC_SIZE = 16
_INVALID_CURSOR = Refusal(
    "invalid_request", "cursor: must be a next_cursor of the same account, view, filters and order", "cursor"
)


def _cursor(service: Service, account: Account, query: Query, position: Position | None) -> str | None:
    """Where the next page starts, with a MAC that binds it to the account, the view, the filters and the order."""
    if position is None:
        return None
    encoded = b"".join(part if isinstance(part, bytes) else part.to_bytes(8, "big") for part in position)
    return b64(_mac(service, account, query, encoded) + encoded).decode()


def _position(service: Service, account: Account, query: Query) -> Position | Refusal | None:
    """The position in the cursor of a query, if it has one. The inverse of `_cursor`."""
    if not query.cursor:
        return None
    try:
        sent = unb64(query.cursor) if len(query.cursor) <= _MAX_CURSOR else b""
    except ValueError:
        return _INVALID_CURSOR
    mac, encoded = sent[:_MAC_SIZE], sent[_MAC_SIZE:]
    if not compare_digest(mac, _mac(service, account, query, encoded)):
        return _INVALID_CURSOR
    has_due = query.filters.due_before is not None
    return (int.from_bytes(encoded[:-16], "big"), encoded[-16:]) if has_due else (encoded,)


def _mac(service: Service, account: Account, query: Query, encoded: bytes) -> bytes:
    bound = _encode([account.id, query.view, query.newest, *query.filters]).decode()
    return digest(service.keys.hash, f"cursor {bound} {encoded.hex()}")[:_MAC_SIZE]
