"""Deliveries in all states, for the tests of the listing."""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from gatepost.core import clock, ids
from gatepost.core.secrets import ServerKeys
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import KeyRing
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx
from gatepost.webhooks import delivery_rows, endpoint_rows, queue_rows, subscription_rows
from gatepost.webhooks import listing_query as listing
from gatepost.webhooks.deliveries import Delivery, OpenAttempt, Queued, StatusChange
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.listing_query import DeliveryFilter, Page, PageRequest, Position
from gatepost.webhooks.subscriptions import Subscription

KEYS = ServerKeys({"hash": b"h" * 32, "seal": b"s" * 32, "data": b"d" * 32})
SERVICE = Service("https://gatepost.example", KEYS, KeyRing(KEYS.data))
START = 1_794_700_800_000  # milliseconds
AT = clock.from_milliseconds(START)
TYPES = ("invoice.paid", "invoice.sent", "order.shipped")
ENDS = (
    ("succeeded", "delivered", 200, None), ("succeeded", "delivered", 204, None),
    ("failed", "attempts_exhausted", 503, None), ("failed", "attempts_exhausted", 500, None),
    ("failed", "endpoint_gone", 410, None), ("failed", "attempts_exhausted", None, "timeout"),
    ("failed", "attempts_exhausted", 200, "body"), ("failed", "attempts_exhausted", 302, "redirect"),
    ("cancelled", "endpoint_removed", None, None), ("cancelled", "cancelled_by_operator", 404, None),
)  # fmt: skip
TRIED = ((None, None), (503, None), (429, None), (None, "connect"))  # last code and failure of unfinished deliveries
OPENED = msgspec.json.encode(OpenAttempt(START, "https://receiver.example", ["sk_1"], "plan", 0)).decode()


class Made(NamedTuple):
    delivery: Delivery
    queued: Queued
    status: str  # as the API returns it

    @property
    def unfinished(self) -> bool:
        return self.status in listing.UNFINISHED

    @property
    def id(self) -> bytes:
        return self.delivery.id

    @property
    def made_at(self) -> int:
        return clock.milliseconds(ids.made_at(self.id))


class World:
    """An account with endpoints, one of which is disabled, and deliveries in all states."""

    def __init__(self, store: Store, account: str, seed: int = 1) -> None:
        self.store, self.account = store, account
        self.raw = ids.raw(account)
        self.dice = random.Random(seed)
        self.endpoints = [self.endpoint(status) for status in ("active", "active", "disabled")]
        self.subscriptions = [self._subscription(endpoint) for endpoint in self.endpoints for _ in range(2)]
        self.worker = ids.new_raw()
        self.events = [ids.new_raw() for _ in range(12)]
        self.made: list[Made] = []

    def endpoint(self, status: Any) -> Endpoint:
        made = Endpoint(ids.new("ep"), self.account, "https://receiver.example/hooks", AT, AT, status=status)
        self.store.run_now(lambda tx: endpoint_rows.add(tx, made))
        return made

    def _subscription(self, endpoint: Endpoint) -> Subscription:
        made = Subscription(ids.new("sub"), self.account, endpoint.id, ["never.sent"], AT, AT)
        self.store.run_now(lambda tx: subscription_rows.add(tx, made))
        return made

    def deliver(self, count: int, *, since: int = START, ended: float = 0.5) -> None:
        """Add deliveries that were created at or after `since`; some have the same millisecond."""
        new = [self._one(since + self.dice.randrange(count * 4), ended) for _ in range(count)]

        def create(tx: Tx) -> None:
            pending = [each.delivery._replace(status="pending", ended_at=None, ended_reason=None) for each in new]
            tx.pending.append("insert_deliveries", pending)
            tx.pending.append("insert_queue", [each.queued for each in new])

        def end(tx: Tx) -> None:
            known = [each.delivery._asdict() for each in new]
            delivery_rows.write_statuses(
                tx, (StatusChange(**{name: each[name] for name in StatusChange._fields}) for each in known)
            )
            queue_rows.end_unclaimed(tx, ((self.raw, each.id, 1) for each in new if not each.unfinished))

        self.store.run_now(create)
        self.store.run_now(end)
        self.made = sorted(self.made + new)

    def _one(self, at: int, ended: float) -> Made:
        dice = self.dice
        subscription = dice.choice(self.subscriptions)
        raw_id = at.to_bytes(6, "big") + dice.randbytes(10)
        endpoint, event = ids.raw(subscription.endpoint), dice.choice(self.events)
        status, reason, (code, failure) = "pending", None, dice.choice(TRIED)
        if dice.random() < ended:
            status, reason, code, failure = dice.choice(ENDS)
        ended_at = None if reason is None else at + 5
        delivery = Delivery(
            self.raw, raw_id, endpoint, ids.raw(subscription.id), event, dice.choice(TYPES), "event",
            status, ended_at, reason, code, failure, 30,
        )  # fmt: skip
        worker = dice.choice([None, None, self.worker]) if reason is None else None
        due = at + dice.randrange(50)
        queued = Queued(
            self.raw, raw_id, endpoint, event, dice.choice((0, 1)), due, at, "schedule", 1, 1, 0,
            worker, OPENED if worker else None, at + 45_000 if worker else None,
        )  # fmt: skip
        if reason is not None:
            return Made(delivery, queued, status)
        still = subscription.endpoint == self.endpoints[2].id
        return Made(delivery, queued, "in_flight" if worker else "held" if still else "pending")

    def page(
        self, filters: DeliveryFilter, limit: int = 50, *, newest: bool = True, after: Position | None = None
    ) -> Page:
        return self.store.read_now(lambda tx: listing.page(tx, PageRequest(self.raw, filters, newest, limit, after)))

    def pages(self, filters: DeliveryFilter, limit: int = 50, *, newest: bool = True) -> Iterator[list[bytes]]:
        """Yield all pages."""
        after = None
        while True:
            found = self.page(filters, limit, newest=newest, after=after)
            yield [position[-1] for position in found.positions]
            assert found.next is None or after is None or (found.next < after if newest else found.next > after)
            after = found.next
            if after is None:
                return

    def all(self, filters: DeliveryFilter, limit: int = 50, *, newest: bool = True) -> list[bytes]:
        return [each for page in self.pages(filters, limit, newest=newest) for each in page]


def expected_ids(made: list[Made], filters: DeliveryFilter, *, newest: bool) -> list[bytes]:
    """Return the expected result of a listing, computed by filtering all deliveries."""
    found = [each for each in made if _fits(each, filters)]
    if filters.due_before is not None:
        return [each.id for each in sorted(found, key=lambda each: (each.queued.due, each.id), reverse=newest)]
    return [each.id for each in sorted(found, key=lambda each: each.id, reverse=newest)]


def _fits(made: Made, filters: DeliveryFilter) -> bool:
    delivery = made.delivery
    same = ((filters.id, delivery.id), (filters.endpoint, delivery.endpoint), (filters.event, delivery.event),
            (filters.subscription, delivery.subscription), (filters.event_type, delivery.event_type),
            (filters.status, made.status), (filters.failure, delivery.last_failure))  # fmt: skip
    first, until = filters.code or (0, 0)
    return (
        all(asked in (None, value) for asked, value in same)
        and (filters.code is None or first <= (delivery.last_code or 0) < until)
        and (filters.created_after is None or made.made_at >= filters.created_after)
        and (filters.created_before is None or made.made_at < filters.created_before)
        and (filters.due_before is None or (made.unfinished and made.queued.due < filters.due_before))
    )


def choices(world: World) -> dict[str, list[Any]]:
    one = world.dice.choice(world.made)
    middle = one.made_at
    return {
        "id": [one.id, ids.new_raw()],
        "endpoint": [ids.raw(each.id) for each in world.endpoints] + [ids.new_raw()],
        "subscription": [ids.raw(each.id) for each in world.subscriptions],
        "event": [*world.events[:3], ids.new_raw()],
        "event_type": list(TYPES),
        "status": ["pending", "held", "in_flight", "succeeded", "failed", "cancelled"],
        "code": [(503, 504), (500, 1000), (400, 500), (200, 300), (200, 201), (300, 400), (100, 200), (410, 411)],
        "failure": ["timeout", "connect", "redirect", "body", "dns"],
        "created_after": [middle, 0, middle - 200],
        "created_before": [middle, middle + 200, 1 << 47],
        "due_before": [middle, middle + 100, 1 << 47],
    }
