"""Pages of deliveries on every store: what a plain filter finds, each once, by the right index, from few rows."""

import itertools
import random
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from string import ascii_letters
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from gatepost import accounts
from gatepost.accounts import Account
from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.core.secrets import ServerKeys
from gatepost.ledger.service import Answer, Service
from gatepost.oauth.signing_keys import Ring
from gatepost.store import listing
from gatepost.store.effects import Birth
from gatepost.store.interface import Store
from gatepost.store.listing import Asked, Page, Position, Wanted
from gatepost.store.tx import Tx
from gatepost.webhooks import listing as units
from gatepost.webhooks.deliveries import Attempt, AttemptDocument, Delivery, Ending, Opened, Queued
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.listing import Query
from gatepost.webhooks.subscriptions import Subscription
from tests.contract import things
from tests.contract.backends import Backend, Watch

KEYS = ServerKeys({"hash": b"h" * 32, "seal": b"s" * 32, "data": b"d" * 32})
SERVICE = Service("https://gatepost.example", KEYS, Ring(KEYS.data))
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
TRIED = ((None, None), (503, None), (429, None), (None, "connect"))  # of those that are not ended
OPENED = msgspec.json.encode(Opened(START, "https://receiver.example", ["sk_1"], "plan", 0)).decode()


class Made(NamedTuple):
    delivery: Delivery
    queued: Queued
    status: str  # as it is shown

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
    """An account with endpoints, one of which stands still, and deliveries in every state."""

    def __init__(self, store: Store, account: str, seed: int = 1) -> None:
        self.store, self.account = store, account
        self.raw = ids.raw(account)
        self.dice = random.Random(seed)
        self.endpoints = [self.endpoint(status) for status in ("active", "active", "disabled")]
        self.subscriptions = [self._subscription(endpoint) for endpoint in self.endpoints for _ in range(2)]
        self.worker = ids.fresh()
        self.events = [ids.fresh() for _ in range(12)]
        self.made: list[Made] = []

    def endpoint(self, status: Any) -> Endpoint:
        made = Endpoint(ids.new("ep"), self.account, "https://receiver.example/hooks", AT, AT, status=status)
        self.store.run_now(lambda tx: tx.webhooks.add_endpoint(made))
        return made

    def _subscription(self, endpoint: Endpoint) -> Subscription:
        made = Subscription(ids.new("sub"), self.account, endpoint.id, ["never.sent"], AT, AT)
        self.store.run_now(lambda tx: tx.webhooks.add_subscription(made))
        return made

    def deliver(self, count: int, *, since: int = START, ended: float = 0.5) -> None:
        """Some more, made at different times from then on, not all of which are apart by a millisecond."""
        new = [self._one(since + self.dice.randrange(count * 4), ended) for _ in range(count)]

        def bear(tx: Tx) -> None:
            tx.effects.births += [Birth(each.delivery, each.queued) for each in new]

        def end(tx: Tx) -> None:
            known = [each.delivery._asdict() for each in new]
            tx.webhooks.write_records(Ending(**{name: each[name] for name in Ending._fields}) for each in known)
            tx.webhooks.drop_queued((self.raw, each.id, 1) for each in new if not each.unfinished)

        self.store.run_now(bear)
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

    def page(self, wanted: Wanted, limit: int = 50, *, newest: bool = True, after: Position | None = None) -> Page:
        return self.store.read_now(lambda tx: listing.page(tx, Asked(self.raw, wanted, newest, limit, after)))

    def pages(self, wanted: Wanted, limit: int = 50, *, newest: bool = True) -> Iterator[list[bytes]]:
        """To the end."""
        after = None
        while True:
            found = self.page(wanted, limit, newest=newest, after=after)
            yield [row.id for row in found.rows]
            assert found.next is None or after is None or (found.next < after if newest else found.next > after)
            after = found.next
            if after is None:
                return

    def all(self, wanted: Wanted, limit: int = 50, *, newest: bool = True) -> list[bytes]:
        return [each for page in self.pages(wanted, limit, newest=newest) for each in page]


@pytest.fixture
def world(store: Store, account: str) -> World:
    return World(store, account)


def plainly(made: list[Made], wanted: Wanted, *, newest: bool) -> list[bytes]:
    """The same, by looking at every one."""
    found = [each for each in made if _fits(each, wanted)]
    if wanted.due_before is not None:
        return [each.id for each in sorted(found, key=lambda each: (each.queued.due, each.id), reverse=newest)]
    return [each.id for each in sorted(found, key=lambda each: each.id, reverse=newest)]


def _fits(made: Made, wanted: Wanted) -> bool:
    delivery = made.delivery
    same = ((wanted.id, delivery.id), (wanted.endpoint, delivery.endpoint), (wanted.event, delivery.event),
            (wanted.subscription, delivery.subscription), (wanted.event_type, delivery.event_type),
            (wanted.status, made.status), (wanted.failure, delivery.last_failure))  # fmt: skip
    first, until = wanted.code or (0, 0)
    return (
        all(asked in (None, value) for asked, value in same)
        and (wanted.code is None or first <= (delivery.last_code or 0) < until)
        and (wanted.created_after is None or made.made_at > wanted.created_after)
        and (wanted.created_before is None or made.made_at < wanted.created_before)
        and (wanted.due_before is None or (made.unfinished and made.queued.due < wanted.due_before))
    )


def choices(world: World) -> dict[str, list[Any]]:
    one = world.dice.choice(world.made)
    middle = one.made_at
    return {
        "id": [one.id, ids.fresh()],
        "endpoint": [ids.raw(each.id) for each in world.endpoints] + [ids.fresh()],
        "subscription": [ids.raw(each.id) for each in world.subscriptions],
        "event": [*world.events[:3], ids.fresh()],
        "event_type": list(TYPES),
        "status": ["pending", "held", "in_flight", "succeeded", "failed", "cancelled"],
        "code": [(503, 504), (500, 600), (400, 500), (200, 300), (200, 201), (300, 400), (100, 200), (410, 411)],
        "failure": ["timeout", "connect", "redirect", "body", "dns"],
        "created_after": [middle, 0, middle - 200],
        "created_before": [middle, middle + 200, 1 << 47],
        "due_before": [middle, middle + 100, 1 << 47],
    }


BOUNDS = [(10_000, 2_500), (40, 9), (1, 1)]


@pytest.mark.parametrize("bounds", BOUNDS, ids=["roomy", "tight", "one"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_filter_finds_what_a_plain_one_finds(
    store: Store, account: str, seed: int, bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone and together, in both orders, to the end; however early a page has to stop."""
    monkeypatch.setattr(listing, "EXAMINED", bounds[0])
    monkeypatch.setattr(listing, "LOOKED_UP", bounds[1])
    world = World(store, account, seed)
    world.deliver(400 if bounds[0] > 1 else 60)
    filters = choices(world)
    asked: list[dict[str, Any]] = [{}]
    asked += [{name: value} for name, values in filters.items() for value in values]
    for _ in range(120):
        names = world.dice.sample(list(filters), world.dice.randint(2, 4))
        asked.append({name: world.dice.choice(filters[name]) for name in names})
    for each in asked[:: 1 if bounds[0] > 1 else 4]:
        wanted, newest = Wanted(**each), world.dice.random() < 0.5
        expected = plainly(world.made, wanted, newest=newest)
        assert world.all(wanted, world.dice.choice((1, 7, 50, 200)), newest=newest) == expected, (each, newest)


def test_a_suspended_account_holds_everything(world: World) -> None:
    world.deliver(100)

    for status, shown in (("pending", ()), ("held", ("pending", "held")), ("in_flight", ("in_flight",))):
        asked = Asked(world.raw, Wanted(status=status), False, 200, suspended=True)
        found = world.store.read_now(partial(listing.page, asked=asked))
        assert [row.id for row in found.rows] == [each.id for each in world.made if each.status in shown]


def test_nothing_of_another_account(world: World, store: Store, watch: Watch) -> None:
    """Not by any filter, though its ids are known."""
    world.deliver(60)
    other = accounts.new("other", watch())
    assert store.run_now(lambda tx: tx.add_account(other))
    stranger = World(store, other.id, 3)
    stranger.deliver(5)
    for wanted in (Wanted(**{name: value}) for name, values in choices(world).items() for value in values):
        assert stranger.all(wanted) == plainly(stranger.made, wanted, newest=True)


@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize("wanted", [Wanted(), Wanted(event_type="invoice.paid"), Wanted(status="pending")])
def test_each_exactly_once_while_others_are_made(world: World, wanted: Wanted, newest: bool) -> None:
    world.deliver(150, ended=0.2)
    before = plainly(world.made, wanted, newest=newest)
    found: list[bytes] = []
    for page in world.pages(wanted, 10, newest=newest):
        found += page
        if len(world.made) < 400:
            world.deliver(20, since=START + world.dice.randrange(2000))
    assert len(found) == len(set(found))
    assert [each for each in found if each in set(before)] == before


@pytest.mark.parametrize("newest", [True, False])
def test_a_page_looks_at_so_many_and_says_how_far_it_came(
    world: World, newest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "EXAMINED", 30)
    monkeypatch.setattr(listing, "LOOKED_UP", 10)
    world.deliver(100, ended=1.0)
    every = plainly(world.made, Wanted(), newest=newest)
    pages = list(world.pages(Wanted(event_type="no.such"), newest=newest))
    assert pages == [[]] * 4
    assert world.page(Wanted(event_type="no.such"), newest=newest).next == (every[29],)
    wanted = Wanted(endpoint=ids.raw(world.endpoints[0].id), event_type="no.such")
    own = plainly(world.made, wanted._replace(event_type=None), newest=newest)
    assert world.page(wanted, newest=newest) == Page([], (own[9],))
    for each, examined in ((Wanted(event_type="no.such"), 30), (wanted, 10)):
        text, values = selected(world, each, newest=newest)[0]
        assert " LIMIT :examined) it WHERE " in text
        assert values["examined"] == examined


def test_a_full_page_ends_where_the_records_end(world: World) -> None:
    world.deliver(20)
    assert [len(page) for page in world.pages(Wanted(), 10)] == [10, 10]
    assert world.page(Wanted(), 20).next is None
    assert world.page(Wanted(), 19).next is not None


def test_the_time_and_size_of_the_event(world: World, account: str) -> None:
    entry = world.store.run_now(lambda tx: things.record(tx, account, amount="ü" * 100))
    world.events = [entry.id, ids.fresh()]
    world.deliver(20)
    for wanted in (Wanted(), Wanted(event_type="invoice.paid"), Wanted(status="failed"), Wanted(due_before=1 << 47)):
        for row in world.page(wanted).rows:
            kept = next(each for each in world.made if each.id == row.id).delivery.event == entry.id
            size = len((entry.data or "").encode())
            assert (row.event_at, row.size) == ((entry.at, size) if kept else (None, None))


# --- plans

PLANS: list[tuple[dict[str, Any], str]] = [
    ({}, "deliveries_pkey"),
    ({"created_after": START, "created_before": START + 100}, "deliveries_pkey"),
    ({"event_type": "invoice.paid"}, "deliveries_pkey"),
    ({"status": "succeeded"}, "deliveries_pkey"),
    ({"endpoint": b"e" * 16}, "deliveries_by_endpoint"),
    ({"endpoint": b"e" * 16, "event_type": "invoice.paid"}, "deliveries_by_endpoint"),
    ({"event": b"v" * 16}, "deliveries_by_event"),
    ({"event": b"v" * 16, "status": "held"}, "deliveries_by_event"),
    ({"status": "failed"}, "deliveries_by_status"),
    ({"status": "cancelled", "endpoint": b"e" * 16, "created_after": START}, "deliveries_by_status"),
    ({"code": (503, 504)}, "deliveries_by_code"),
    ({"code": (500, 600), "event_type": "invoice.paid"}, "deliveries_by_code"),
    ({"failure": "timeout"}, "deliveries_by_failure"),
    ({"failure": "timeout", "subscription": b"s" * 16}, "deliveries_by_failure"),
    ({"status": "pending"}, "queue_pkey"),
    ({"status": "held", "endpoint": b"e" * 16, "event_type": "invoice.paid"}, "queue_pkey"),
    ({"status": "in_flight"}, "queue_pkey"),
    ({"status": "in_flight", "endpoint": b"e" * 16}, "queue_pkey"),
    ({"due_before": START + 100}, "queue_by_due"),
    ({"due_before": START + 100, "status": "held", "event_type": "invoice.paid"}, "queue_by_due"),
    ({"due_before": START + 100, "endpoint": b"e" * 16}, "queue_by_endpoint"),
]


MANY = [
    ("deliveries", "account, id, endpoint, subscription, event, event_type, origin, status, keep_days",
     "?, int8send(n) || int8send(n), 'e', 's', int8send(n), 'invoice.sent', 'event', 'pending', 30"),
    ("queue", "account, id, endpoint, event, lane, due, planned_at, because, number, used, interrupted",
     f"?, int8send(n) || int8send(n), 'e', int8send(n), mod(n, 2), {START} + mod(n, 500), n, 'event', 0, 0, 0"),
]  # fmt: skip


class Spy:
    """A transaction that remembers what was selected."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.selected: list[tuple[str, dict[str, Any]]] = []

    def select(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        self.selected.append((text, parameters))
        return self._tx.select(text, parameters)


def selected(world: World, wanted: Wanted, *, newest: bool) -> list[tuple[str, dict[str, Any]]]:
    def unit(tx: Tx) -> list[tuple[str, dict[str, Any]]]:
        spy = Spy(tx)
        listing.page(cast(Tx, spy), Asked(world.raw, wanted, newest, 50))
        return spy.selected

    return world.store.read_now(unit)


def plans(world: World, wanted: Wanted, *, newest: bool) -> list[str]:
    explain = "EXPLAIN QUERY PLAN " if world.store.dialect == "sqlite" else "EXPLAIN "
    asked = selected(world, wanted, newest=newest)
    return world.store.read_now(
        lambda tx: [str(row[-1]) for text, values in asked for row in tx.select(explain + text, values)]
    )


@pytest.mark.parametrize("analysed", [False, True], ids=["not analysed", "analysed"])
def test_every_page_is_read_from_its_index_in_order(world: World, backend: Backend, analysed: bool) -> None:
    """Whether PostgreSQL knows nothing about the tables yet, or that there are millions of records."""
    world.deliver(2000)
    postgres = world.store.dialect == "postgres"
    for table, named, values in MANY if postgres else []:
        backend.execute(f"INSERT INTO {table} ({named}) SELECT {values} FROM generate_series(1, 60000) n", world.raw)
    for table in ("deliveries", "queue") if postgres and analysed else []:
        backend.execute(f"VACUUM ANALYZE {table}")
        backend.execute(f"UPDATE pg_class SET reltuples = 5000000 WHERE oid = '{table}'::regclass")
    for (each, index), newest in itertools.product(PLANS, (True, False)):
        plan = plans(world, Wanted(**each), newest=newest)
        said = "\n".join(plan)
        if not postgres:
            table, _, name = index.partition("_pkey")
            assert ("PRIMARY KEY" if "_pkey" in index else f"COVERING INDEX {name or table}") in said, (each, said)
            assert "TEMP B-TREE" not in said, (each, said)
            assert not [line for line in plan if line.startswith("SCAN ") and line not in ON_OUR_OWN], (each, said)
        else:
            assert f" using {index} " in said or not analysed, (each, said)  # of a new table it cannot tell
            assert "Sort" not in said, (each, said)
            assert "Seq Scan on deliveries" not in said, (each, said)
            assert "Seq Scan on queue" not in said, (each, said)


ON_OUR_OWN = ("SCAN it", "SCAN found", "SCAN CONSTANT ROW")  # what the query itself gives


# --- counts


def test_what_waits_is_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(*, suspended: bool = False) -> tuple[int, int, int]:
        found = world.store.read_now(lambda tx: listing.waiting(tx, world.account, suspended=suspended))
        assert found.oldest == next((each.id for each in world.made if each.unfinished), None)
        return found.pending, found.held, found.in_flight

    def expected(among: list[Made]) -> tuple[int, ...]:
        return tuple(sum(each.status == name for each in among) for name in listing.UNFINISHED)

    assert counted() == (0, 0, 0)
    world.deliver(300)
    pending, held, in_flight = expected(world.made)
    assert min(pending, held, in_flight) > 10
    assert counted() == (pending, held, in_flight)
    assert counted(suspended=True) == (0, pending + held, in_flight)
    monkeypatch.setattr(listing, "COUNTED", 20)
    assert counted() == expected([each for each in world.made if each.unfinished][:20])


def test_counts_are_summed_by_the_interval(world: World, watch: Watch) -> None:
    first = clock.seconds(watch()) // 3600 * 3600
    for minutes in (0, 1, 59, 60):
        watch.at = clock.from_milliseconds((first + minutes * 60) * 1000)
        for _ in range(2):
            world.store.run_now(lambda tx: tx.tally(world.account, "made", 5))
    watch.forward(timedelta(days=3))
    world.store.run_now(lambda tx: tx.webhooks.roll_up(first + 60, 100))
    rows = world.store.read_now(lambda tx: listing.tallied(tx, world.account, first, first + 7200, 3600))
    assert sorted(rows) == [(first, "made", 30), (first + 3600, "made", 10)]
    day = first // 86_400 * 86_400
    found = world.store.read_now(lambda tx: listing.tallied(tx, world.account, day, day + 2 * 86_400, 86_400))
    assert sum(count for _, _, count in found) == 40
    assert all(since % 86_400 == 0 for since, _, _ in found)


# --- the operation


def ask(store: Store, account: str, **asked: Any) -> dict[str, Any]:
    found = store.read_now(lambda tx: units.answer(tx, SERVICE, whole(tx, account), Query(**asked)))
    assert isinstance(found, Answer), found
    return found.body


def ask_all(store: Store, account: str, **asked: Any) -> list[list[dict[str, Any]]]:
    """The data of every page, to the end."""
    pages = []
    cursor: str | None = ""
    while cursor is not None:
        body = ask(store, account, cursor=cursor, **asked)
        pages.append(body["data"])
        cursor = body["next_cursor"]
    return pages


def ask_badly(store: Store, account: str, query: Query) -> str:
    """The parameter that is named as wrong."""
    found = store.read_now(lambda tx: units.answer(tx, SERVICE, whole(tx, account), query))
    assert isinstance(found, Refusal), query
    assert found.code == "invalid_request"
    return found.detail.partition(":")[0]


def whole(tx: Tx, account: str) -> Account:
    found = tx.account(account)
    assert found is not None
    return found


def test_records_are_whole(world: World, account: str) -> None:
    entry = world.store.run_now(lambda tx: things.record(tx, account, amount=5))
    world.events = [entry.id]
    world.deliver(30)
    done = next(each for each in world.made if each.status == "failed")
    document = AttemptDocument(
        START, START, START + 9, "https://receiver.example", ["sk_1"], "plan", 0, "wrk_1", response="no"
    )
    attempt = Attempt(world.raw, done.id, 1, "failed", msgspec.json.encode(document).decode())
    world.store.run_now(lambda tx: tx.webhooks.write_attempts([attempt]))
    found = {each["id"]: each for each in ask(world.store, account)["data"]}
    assert list(found) == [ids.text("dlv", each.id) for each in reversed(world.made)]
    assert [each["status"] for each in found.values()] == [each.status for each in reversed(world.made)]
    assert {each["event"]["at"] for each in found.values()} == {clock.rfc3339(clock.from_milliseconds(entry.at))}
    record = found[ids.text("dlv", done.id)]
    assert [each["number"] for each in record["attempts"]] == [1]
    assert "response" not in record["attempts"][0]
    assert "payload" not in record
    both = frozenset({"payload", "responses"})
    [record] = ask(world.store, account, wanted=Wanted(id=done.id), include=both)["data"]
    assert record["attempts"][0]["response"] == "no"
    assert record["payload"]["data"] == {"amount": 5}


def test_a_retry_after_of_the_endpoint_shows(world: World, account: str, watch: Watch) -> None:
    world.deliver(60, ended=0.0)
    key = (world.raw, ids.raw(world.endpoints[0].id))
    later = START + 10 * 86_400_000
    world.store.run_now(lambda tx: tx.webhooks.worsen(key, 1, START, later))
    told = ask(world.store, account, wanted=Wanted(status="pending"), limit=200)["data"]
    for each in told:
        waits = each["endpoint"]["id"] == world.endpoints[0].id
        assert (each["retries"]["plan"][0]["because"] == "retry_after") == waits
        assert (each["retries"]["next_at"] == clock.rfc3339(clock.from_milliseconds(later))) == waits


def test_a_subscription_is_found_by_its_endpoint(world: World, account: str) -> None:
    world.deliver(60)
    wanted = Wanted(subscription=ids.raw(world.subscriptions[0].id))
    expected = [ids.text("dlv", each) for each in plainly(world.made, wanted, newest=True)]
    assert expected
    assert [each["id"] for each in ask(world.store, account, wanted=wanted)["data"]] == expected
    for other in (wanted._replace(endpoint=ids.raw(world.endpoints[1].id)), Wanted(subscription=ids.fresh())):
        assert ask(world.store, account, wanted=other) == {"data": [], "next_cursor": None}


def test_payloads_fill_a_page_early(world: World, account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = world.store.run_now(lambda tx: things.record(tx, account, text="x" * 1000))
    world.events = [entry.id]
    world.deliver(10)
    monkeypatch.setattr(units, "MOST_PAYLOAD", 2500)
    pages = ask_all(world.store, account, include=frozenset({"payload"}))
    assert [len(page) for page in pages] == [2] * 5
    found = [each["id"] for page in pages for each in page]
    assert found == [ids.text("dlv", each.id) for each in reversed(world.made)]
    monkeypatch.setattr(units, "MOST_PAYLOAD", 10)
    assert len(ask(world.store, account, include=frozenset({"payload"}))["data"]) == 1


def test_a_cursor_is_for_one_account_one_view_and_the_same_filters(
    world: World, store: Store, account: str, watch: Watch
) -> None:
    world.deliver(40)
    other = accounts.new("other", watch())
    assert store.run_now(lambda tx: tx.add_account(other))
    World(store, other.id, 2).deliver(40)
    wanted = Wanted(event_type="invoice.paid")
    cursor = ask(store, account, wanted=wanted, limit=3)["next_cursor"]
    assert ask(store, account, wanted=wanted, limit=5, cursor=cursor)["data"]
    assert ask(store, account, wanted=wanted, include=frozenset({"payload"}), cursor=cursor)["data"]

    def refused(account: str, **asked: Any) -> None:
        assert ask_badly(store, account, Query(**asked)) == "cursor"

    refused(other.id, wanted=wanted, cursor=cursor)
    refused(account, cursor=cursor)
    refused(account, wanted=wanted, newest=False, cursor=cursor)
    refused(account, wanted=wanted, view="endpoints", cursor=cursor)
    for name, values in choices(world).items():
        if name != "event_type":
            refused(account, wanted=wanted._replace(**{name: values[0]}), cursor=cursor)
    for place in range(len(cursor)):
        changed = "A" if cursor[place] != "A" else "B"
        refused(account, wanted=wanted, cursor=cursor[:place] + changed + cursor[place + 1 :])
    alike = [cursor[:-1] + char for char in ascii_letters if char != cursor[-1]]
    alike = [each for each in alike if urlsafe_b64decode(each + "=") == urlsafe_b64decode(cursor + "=")]
    for bad in (alike[0], cursor[:-1], cursor + "A", cursor + "=", " ", "ü", "A", "A" * 129, cursor.upper()):
        refused(account, wanted=wanted, cursor=bad)


def test_a_cursor_by_due_time(world: World, account: str) -> None:
    world.deliver(60)
    wanted = Wanted(due_before=1 << 47)
    for newest in (True, False):
        pages = ask_all(world.store, account, wanted=wanted, newest=newest, limit=7)
        assert [ids.parse("dlv", each["id"]) for page in pages for each in page] == plainly(
            world.made, wanted, newest=newest
        )


def test_the_summary_of_an_account(world: World, account: str, watch: Watch) -> None:
    world.deliver(50)
    hour = clock.seconds(watch()) // 3600 * 3600
    world.store.run_now(lambda tx: tx.tally(account, "ended delivered", 3))
    body = ask(world.store, account, view="summary")
    assert len(body["data"]) == 25 if clock.seconds(watch()) % 3600 else 24
    last = body["data"][-1]
    assert last["start"] == clock.rfc3339(clock.from_milliseconds(hour * 1000))
    assert last["deliveries"]["ended"]["delivered"] == body["total"]["deliveries"]["ended"]["delivered"] == 3
    for name in listing.UNFINISHED:
        assert body["now"][name] == sum(each.status == name for each in world.made)
    assert body["now"]["counted_to"] == 10_000
    oldest = next(each for each in world.made if each.unfinished)
    assert body["now"]["oldest_pending_at"] == clock.rfc3339(ids.made_at(oldest.id))
    assert len(ask(world.store, account, view="summary", interval="day")["data"]) in (30, 31)


NO_RANGES = [
    Wanted(created_after=START, created_before=START), Wanted(created_after=1 << 47), Wanted(created_after=0),
    Wanted(created_before=-(10**13)), Wanted(created_after=START, created_before=START + 3_600_000 * 1001),
]  # fmt: skip


@pytest.mark.parametrize("wanted", NO_RANGES)
def test_ranges_that_no_summary_has(world: World, account: str, wanted: Wanted) -> None:
    assert ask_badly(world.store, account, Query(wanted, "summary")) == "created_after"


def test_the_endpoints_of_an_account(world: World, account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which they were made, without those that were removed."""
    world.deliver(60)
    gone = world.endpoint("removed")
    monkeypatch.setattr(units, "_BATCH", 2)
    more = [world.endpoint("active") for _ in range(3)]
    expected = [each.id for each in (*world.endpoints, *more)]
    assert gone.id not in expected
    for limit in (1, 2, 5, 6, 200):
        pages = ask_all(world.store, account, view="endpoints", limit=limit)
        assert max(len(page) for page in pages) <= limit
        found = [each for page in pages for each in page]
        assert [each["id"] for each in found] == expected
    first = found[0]
    assert [each["id"] for each in first["subscriptions"]] == [each.id for each in world.subscriptions[:2]]
    held = [each for each in world.made if each.delivery.endpoint == ids.raw(world.endpoints[2].id) and each.unfinished]
    assert (first["held"], found[2]["held"]) == (0, len(held))
