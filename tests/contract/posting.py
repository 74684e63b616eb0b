"""An account with endpoints and subscriptions, and a worker that sends nothing: tests give the results of attempts."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gatepost import accounts
from gatepost.accounts import Account, account_rows
from gatepost.core import clock, ids
from gatepost.core.secrets import ServerKeys
from gatepost.ledger import entry_rows
from gatepost.ledger import publishable as rules
from gatepost.ledger.entries import Entry, Origin
from gatepost.ledger.operations import Answer, Call, operator
from gatepost.ledger.publishable import Event
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import KeyRing
from gatepost.store.interface import Store
from gatepost.store.pending import Key
from gatepost.store.transaction import HIGHEST, LOWEST, Tx
from gatepost.webhooks import claim as claiming
from gatepost.webhooks import (
    define_endpoint,
    delivery_rows,
    endpoint_rows,
    health_rows,
    operator_actions,
    plan,
    publish,
    queue_rows,
    recover,
    replay,
    replay_rows,
    settle,
    subscription_rows,
    sweep,
    tallies,
)
from gatepost.webhooks.claim import Claim, Claimed
from gatepost.webhooks.deliveries import Attempt, AttemptDocument, Delivery, Queued
from gatepost.webhooks.endpoints import Endpoint, Health
from gatepost.webhooks.publish import Published
from gatepost.webhooks.queue_rows import Lane
from gatepost.webhooks.schedule import Turn
from gatepost.webhooks.settle import Result, Settled
from gatepost.webhooks.subscriptions import Subscription
from tests import endpoint_counts
from tests.contract import make
from tests.contract.backends import FakeClock

KEYS = ServerKeys({"hash": b"h" * 32, "seal": b"s" * 32, "data": b"d" * 32})
SERVICE = Service("https://gatepost.example", KEYS, KeyRing(KEYS.data))
SCHEDULE = [60, 3600]
WORKER, OTHER_WORKER = b"w" * 16, b"x" * 16
START = (-1, b"")
URL = "https://receiver.example/hooks"


def event(type_: str = "invoice.paid", data: Any = None, given_id: str | None = None) -> Event:
    found = rules.event(type_, {} if data is None else data, given_id)
    assert isinstance(found, Event), found
    return found


def raw(delivery: str) -> bytes:
    return ids.raw(delivery)


def wait(used: int, delivery: str, number: int) -> int:
    """Return the milliseconds until attempt `number` according to the plan."""
    found = plan.delay(SCHEDULE, used, raw(delivery), number)
    assert found is not None
    return found


def ids_by(watch: FakeClock) -> Callable[[], None]:
    """Derive new ids from the test's clock, so that they sort by its time. Returns a function that undoes this."""
    numbers = itertools.count()
    monkeypatch = pytest.MonkeyPatch()

    def uuid7() -> Any:
        version_and_variant = b"\x70\x00\x80"
        milliseconds, number = clock.milliseconds(watch()).to_bytes(6, "big"), next(numbers).to_bytes(7, "big")
        return SimpleNamespace(bytes=milliseconds + version_and_variant + number)

    monkeypatch.setattr(ids, "uuid7", uuid7)
    return monkeypatch.undo


class Post:
    """An account on one store, with the operations of its API and of a worker."""

    def __init__(self, store: Store, watch: FakeClock, name: str = "acme", **settings: Any) -> None:
        self.store = store
        self.watch = watch
        watch.at = clock.from_milliseconds(clock.milliseconds(watch()))  # with the precision of the store
        made = msgspec.structs.replace(accounts.new(name, watch()), settings={"retry_schedule": SCHEDULE} | settings)
        self.name = name
        self.id = made.id
        assert store.run_now(lambda tx: make.account(tx, made, KEYS.seal))

    def account(self, tx: Tx) -> Account:
        found = account_rows.lock(tx, self.id)
        assert found is not None
        return found

    @property
    def now(self) -> int:
        return clock.milliseconds(self.watch())

    def forward(self, **duration: float) -> None:
        self.watch.forward(timedelta(**duration))

    def until_due(self, delivery: str) -> None:
        self.watch.at = clock.from_milliseconds(self.waiting(delivery).due)

    # --- defining

    def endpoint(self, *events: str, filter: dict[str, Any] | None = None, **members: Any) -> Endpoint:  # noqa: A002
        """Add an endpoint, and a subscription to these events, if there are any."""
        at = self.watch()
        made = Endpoint(ids.new("ep"), self.id, URL, at, at, **{"resumed_at": at} | members)
        self.store.run_now(lambda tx: endpoint_rows.add(tx, made))
        if events:
            self.subscription(made, *events, filter=filter or {})
        return made

    def subscription(self, endpoint: Endpoint, *events: str, **members: Any) -> Subscription:
        at = self.watch()
        made = Subscription(ids.new("sub"), self.id, endpoint.id, list(events), at, at, **members)
        self.store.run_now(lambda tx: subscription_rows.add(tx, made))
        return made

    def define(self, how: Any, body: dict[str, Any], store: Store | None = None) -> dict[str, Any]:
        def unit(tx: Tx) -> Answer:
            answer: Answer = how(tx, SERVICE, self.account(tx), Call(operator(self.id), body))
            return answer

        answer = (store or self.store).run_now(unit)
        assert answer.refusal is None, answer.refusal
        return answer.body

    def redefine(self, endpoint: Endpoint, store: Store | None = None, **members: Any) -> Endpoint:
        """Change an endpoint with the operation of the API."""
        self.define(define_endpoint.define, {"id": endpoint.id} | members, store)
        return self.stored(endpoint)

    def stored(self, endpoint: Endpoint | str) -> Endpoint:
        name = endpoint if isinstance(endpoint, str) else endpoint.id
        found = self.store.read_now(lambda tx: endpoint_rows.load_uncached(tx, self.id, name))
        assert found is not None
        return found

    # --- publishing

    def publish(self, type_: str = "invoice.paid", data: Any = None, given_id: str | None = None) -> Published:
        made = event(type_, data, given_id)
        found = self.store.run_now(lambda tx: publish.publish_event(tx, self.account(tx), made, Origin("test")))
        assert isinstance(found, Published), found
        return found

    def deliver(self, count: int = 1) -> list[str]:
        """Publish this many events. Returns the ids of their deliveries in the order in which they will be claimed."""
        made = [event(data={"n": number}) for number in range(count)]
        found = self.store.run_now(lambda tx: publish.publish_events(tx, self.account(tx), made, Origin("test")))
        assert isinstance(found, list)
        return [each for published in found for each in published.deliveries]

    # --- working

    def claim(self, limit: int = 1000, worker: bytes = WORKER, store: Store | None = None) -> list[Claim]:
        """Claim due deliveries of all accounts, at most `limit` of each lane."""
        return (store or self.store).run_now(lambda tx: claim_all(tx, worker, limit)).claims

    def settle(
        self,
        *results: Result,
        healthy: frozenset[Key] = frozenset(),
        store: Store | None = None,
        worker: bytes = WORKER,
    ) -> Settled:
        name = ids.text("wrk", worker)
        batch = settle.batch([settle.finish(each, name) for each in results], healthy)
        return (store or self.store).run_now(lambda tx: settle.settle(tx, batch))

    def result(self, claim: Claim, code: int | None = 200, failure: str | None = None, **more: Any) -> Result:
        """Return the result of an attempt that ends now."""
        return Result(claim, clock.milliseconds(self.watch()), code, failure, duration_ms=31.4, **more)

    def not_sent(self, claim: Claim, **more: Any) -> Result:
        return Result(claim, clock.milliseconds(self.watch()), sent=False, **more)

    def attempt(self, code: int | None = 200, failure: str | None = None, **more: Any) -> list[Claim]:
        """Claim all due deliveries, and settle their attempts with this result."""
        claims = self.claim()
        self.settle(*[self.result(each, code, failure, **more) for each in claims])
        return claims

    def rescue(self, worker: bytes = WORKER) -> int:
        found = self.store.read_now(lambda tx: queue_rows.open_attempts(tx, worker, 100))
        return self.store.run_now(lambda tx: recover.rescue(tx, worker, [each.key for each in found]))

    def sweep(self, endpoint: Endpoint) -> int:
        key = self.key(endpoint)
        return self.store.run_now(lambda tx: sweep.sweep(tx, key))

    def cancel(self, delivery: str) -> None:
        self.store.run_now(lambda tx: operator_actions.cancel(tx, self.account(tx), delivery))

    def retry(self, delivery: str) -> str:
        return self.store.run_now(lambda tx: operator_actions.retry(tx, self.account(tx), delivery))

    def replay(self) -> int:
        """Run all replays to their end, and return the number of slices."""
        slices = 0
        for account, each in self.store.read_now(replay_rows.running):
            slices += 1
            while self.store.run_now(lambda tx, account=account, each=each: replay.run_slice(tx, account, each)):  # type: ignore[misc]
                slices += 1
        return slices

    # --- looking

    def key(self, endpoint: Endpoint) -> Key:
        return ids.raw(self.id), ids.raw(endpoint.id)

    def record(self, delivery: str) -> Delivery:
        found = self.store.read_now(lambda tx: delivery_rows.load(tx, self.id, delivery))
        assert found is not None
        return found

    def ends(self, deliveries: Sequence[str]) -> list[str | None]:
        return [self.record(delivery).ended_reason for delivery in deliveries]

    def queued(self, delivery: str) -> Queued | None:
        keys = [(ids.raw(self.id), raw(delivery))]
        return next(iter(self.store.read_now(lambda tx: queue_rows.load_many(tx, keys)).values()), None)

    def waiting(self, delivery: str) -> Queued:
        found = self.queued(delivery)
        assert found is not None
        return found

    def attempts(self, delivery: str) -> list[Attempt]:
        keys = [(ids.raw(self.id), raw(delivery))]
        found = self.store.read_now(lambda tx: delivery_rows.attempts(tx, keys))
        return next(iter(found.values()), [])

    def outcomes(self, delivery: str) -> list[str]:
        found = self.attempts(delivery)
        assert [each.number for each in found] == list(range(1, len(found) + 1))
        return [each.outcome for each in found]

    def documents(self, delivery: str) -> list[AttemptDocument]:
        return [msgspec.json.decode(each.document, type=AttemptDocument) for each in self.attempts(delivery)]

    def health(self, endpoint: Endpoint) -> Health | None:
        return self.store.read_now(lambda tx: health_rows.load(tx, self.id, endpoint.id))

    def entries(self, type_: str) -> list[Entry]:
        found = self.store.read_now(lambda tx: entry_rows.oldest(tx, self.id, LOWEST, HIGHEST, 100_000))
        return [each for each in found if each.type == type_]

    def entry_data(self, type_: str) -> list[Any]:
        """The data of all entries of a type, oldest first."""
        return [msgspec.json.decode(each.data or "null") for each in self.entries(type_)]

    def tallied(self) -> dict[str, int]:
        """All counts of the account, which those of its endpoints add up to."""
        found: Counter[str] = Counter()
        for _, what, count in self.store.read_now(lambda tx: tallies.load(tx, self.id, 0, 1 << 40)):
            found[what] += count
        of_endpoints: Counter[str] = Counter()
        by_endpoint = self.store.read_now(lambda tx: endpoint_counts.read(lambda text: tx.select(text, {})))
        for (account, _, name), count in by_endpoint.items():
            of_endpoints[name] += count if account == raw(self.id) else 0
        assert +of_endpoints == found
        return dict(found)


def lanes(tx: Tx) -> list[Lane]:
    found: list[Lane] = []
    after = Lane(LOWEST, LOWEST, -1, 0)
    while page := queue_rows.lanes(tx, after, 100):
        found += page
        after = page[-1]
    return found


def claim_all(tx: Tx, worker: bytes, limit: int) -> Claimed:
    return claiming.claim(tx, worker, [Turn(lane, limit, START, "turn", "turn") for lane in lanes(tx)])
