"""Pages of deliveries on every store: what a plain filter finds, each once, by the right index, from few rows."""

import itertools
import re
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import clock, ids
from gatepost.ledger import entry_rows
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx
from gatepost.webhooks import listing_query as listing
from gatepost.webhooks import tallies
from gatepost.webhooks.listing_query import DeliveryFilter, Page, PageRequest
from tests.contract import make
from tests.contract.backends import Backend, FakeClock
from tests.contract.listed import START, Made, World, choices, expected_ids


@pytest.fixture
def world(store: Store, account: str) -> World:
    return World(store, account)


BOUNDS = [(10_000, 2_500), (40, 9), (1, 1)]


@pytest.mark.parametrize("bounds", BOUNDS, ids=["roomy", "tight", "one"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_filter_finds_what_a_plain_one_finds(
    store: Store, account: str, seed: int, bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone and together, in both orders, to the end; however early a page has to stop."""
    monkeypatch.setattr(listing, "MAX_EXAMINED", bounds[0])
    monkeypatch.setattr(listing, "MAX_LOOKED_UP", bounds[1])
    world = World(store, account, seed)
    world.deliver(400 if bounds[0] > 1 else 60)
    filters = choices(world)
    asked: list[dict[str, Any]] = [{}]
    asked += [{name: value} for name, values in filters.items() for value in values]
    for _ in range(120):
        names = world.dice.sample(list(filters), world.dice.randint(2, 4))
        asked.append({name: world.dice.choice(filters[name]) for name in names})
    for each in asked[:: 1 if bounds[0] > 1 else 4]:
        chosen, newest = DeliveryFilter(**each), world.dice.random() < 0.5
        expected = expected_ids(world.made, chosen, newest=newest)
        assert world.all(chosen, world.dice.choice((1, 7, 50, 200)), newest=newest) == expected, (each, newest)


def test_a_suspended_account_holds_everything(world: World) -> None:
    world.deliver(100)

    for status, shown in (("pending", ()), ("held", ("pending", "held")), ("in_flight", ("in_flight",))):
        asked = PageRequest(world.raw, DeliveryFilter(status=status), False, 200, suspended=True)
        found = world.store.read_now(partial(listing.page, request=asked))
        assert [position[-1] for position in found.positions] == [
            each.id for each in world.made if each.status in shown
        ]


def test_nothing_of_another_account(world: World, store: Store, watch: FakeClock) -> None:
    """Not by any filter, though its ids are known."""
    world.deliver(60)
    other = accounts.new("other", watch())
    assert store.run_now(lambda tx: account_rows.add(tx, other))
    stranger = World(store, other.id, 3)
    stranger.deliver(5)
    for filters in (DeliveryFilter(**{name: value}) for name, values in choices(world).items() for value in values):
        assert stranger.all(filters) == expected_ids(stranger.made, filters, newest=True)


@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize(
    "filters", [DeliveryFilter(), DeliveryFilter(event_type="invoice.paid"), DeliveryFilter(status="pending")]
)
def test_each_exactly_once_while_others_are_made(world: World, filters: DeliveryFilter, newest: bool) -> None:
    world.deliver(150, ended=0.2)
    before = expected_ids(world.made, filters, newest=newest)
    found: list[bytes] = []
    for page in world.pages(filters, 10, newest=newest):
        found += page
        if len(world.made) < 400:
            world.deliver(20, since=START + world.dice.randrange(2000))
    assert len(found) == len(set(found))
    assert [each for each in found if each in set(before)] == before


@pytest.mark.parametrize("newest", [True, False])
def test_a_page_looks_at_so_many_and_says_how_far_it_came(
    world: World, newest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_EXAMINED", 30)
    monkeypatch.setattr(listing, "MAX_LOOKED_UP", 10)
    world.deliver(100, ended=1.0)
    every = expected_ids(world.made, DeliveryFilter(), newest=newest)
    pages = list(world.pages(DeliveryFilter(event_type="no.such"), newest=newest))
    assert pages == [[]] * 4
    assert world.page(DeliveryFilter(event_type="no.such"), newest=newest).next == (every[29],)
    filters = DeliveryFilter(endpoint=ids.raw(world.endpoints[0].id), event_type="no.such")
    own = expected_ids(world.made, filters._replace(event_type=None), newest=newest)
    assert world.page(filters, newest=newest) == Page([], (own[9],))
    for each, examined in ((DeliveryFilter(event_type="no.such"), 30), (filters, 10)):
        text, values = selected(world, each, newest=newest)[0]
        assert " LIMIT :examined) it WHERE " in text
        assert values["examined"] == examined


def test_a_full_page_ends_where_the_records_end(world: World) -> None:
    world.deliver(20)
    assert [len(page) for page in world.pages(DeliveryFilter(), 10)] == [10, 10]
    assert world.page(DeliveryFilter(), 20).next is None
    assert world.page(DeliveryFilter(), 19).next is not None


def test_the_time_and_size_of_an_event(world: World, account: str) -> None:
    entry = world.store.run_now(lambda tx: make.record(tx, account, amount="ü" * 100))
    keys = [(world.raw, entry.id), (world.raw, ids.new_raw())]
    sizes = world.store.read_now(lambda tx: entry_rows.sizes(tx, keys))
    assert sizes == {keys[0]: (entry.at, len((entry.data or "").encode()))}


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


# The names of indexes of partitions that PostgreSQL chooses.
PARTITION_INDEXES = {
    "deliveries_pkey": "pkey"
} | {
    f"deliveries_by_{name}": f"account_{column}_id_idx"
    for name, column in (
        ("endpoint", "endpoint"), ("event", "event"), ("status", "bad_status"), ("code", "bad_code"),
        ("failure", "last_failure"),
    )
}  # fmt: skip


class Spy:
    """A transaction that remembers what was selected."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.selected: list[tuple[str, dict[str, Any]]] = []

    def select(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        self.selected.append((text, parameters))
        return self._tx.select(text, parameters)


def selected(world: World, filters: DeliveryFilter, *, newest: bool) -> list[tuple[str, dict[str, Any]]]:
    def unit(tx: Tx) -> list[tuple[str, dict[str, Any]]]:
        spy = Spy(tx)
        listing.page(cast(Tx, spy), PageRequest(world.raw, filters, newest, 50))
        return spy.selected

    return world.store.read_now(unit)


def plans(world: World, filters: DeliveryFilter, *, newest: bool) -> list[str]:
    explain = "EXPLAIN QUERY PLAN " if world.store.dialect == "sqlite" else "EXPLAIN "
    asked = selected(world, filters, newest=newest)
    return world.store.read_now(
        lambda tx: [str(row[-1]) for text, values in asked for row in tx.select(explain + text, values)]
    )


@pytest.mark.parametrize("analysed", [False, True], ids=["not analysed", "analysed"])
def test_every_page_is_read_from_its_index_in_order(world: World, backend: Backend, analysed: bool) -> None:
    """Whether PostgreSQL knows nothing about the tables yet, or that there are millions of records."""
    if world.store.shards is not None and not analysed:
        pytest.skip("without statistics, the nodes settle so many deliveries of one account slowly: see the page Scale")
    world.deliver(2000)
    postgres = world.store.dialect == "postgres"
    for table, named, values in MANY if postgres else []:
        backend.execute(f"INSERT INTO {table} ({named}) SELECT {values} FROM generate_series(1, 60000) n", world.raw)
    for table in ("deliveries", "queue") if postgres and analysed else []:
        backend.execute(f"VACUUM ANALYZE {table}")
        backend.execute(f"UPDATE pg_class SET reltuples = 5000000 WHERE oid = '{table}'::regclass")
    for (each, index), newest in itertools.product(PLANS, (True, False)):
        plan = plans(world, DeliveryFilter(**each), newest=newest)
        output = "\n".join(plan)
        if not postgres:
            table, _, name = index.partition("_pkey")
            assert ("PRIMARY KEY" if "_pkey" in index else f"COVERING INDEX {name or table}") in output, (each, output)
            assert "TEMP B-TREE" not in output, (each, output)
            assert not [line for line in plan if line.startswith("SCAN ") and line not in ON_OUR_OWN], (each, output)
        else:
            # Of a new table it cannot tell. On Citus, the name of an index has the number of the shard.
            name = f"deliveries_30_rest_{PARTITION_INDEXES[index]}" if index in PARTITION_INDEXES else index
            used = re.search(rf" using ({name}|{index}_\d+) ", output)
            assert used or not analysed, (each, output)
            assert not re.search("-> +Sort ", output), (each, output)
            assert "Seq Scan on deliveries_30_rest" not in output, (each, output)  # the others are empty
            assert "Seq Scan on queue" not in output, (each, output)


ON_OUR_OWN = ("SCAN it", "SCAN codes", "SCAN CONSTANT ROW")  # what the query itself gives


# --- counts


def test_what_waits_is_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(*, suspended: bool = False) -> tuple[int, int, int]:
        found = world.store.read_now(lambda tx: listing.count_unfinished(tx, world.account, suspended=suspended))
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
    monkeypatch.setattr(listing, "MAX_COUNTED", 20)
    assert counted() == expected([each for each in world.made if each.unfinished][:20])


def test_counts_are_summed_by_the_interval(world: World, watch: FakeClock) -> None:
    first, key = clock.seconds(watch()) // 3600 * 3600, (world.raw, ids.raw(world.endpoints[0].id))
    for minutes in (0, 1, 59, 60):
        watch.at = clock.from_milliseconds((first + minutes * 60) * 1000)
        for _ in range(2):
            world.store.run_now(lambda tx: tallies.add(tx, key, "made", count=5))
    watch.forward(timedelta(days=3))
    world.store.run_now(lambda tx: tallies.roll_up(tx, first + 60, 100))
    rows = world.store.read_now(lambda tx: tallies.load(tx, world.account, first, first + 7200, 3600))
    assert sorted(rows) == [(first, "made", 30), (first + 3600, "made", 10)]
    day = first // 86_400 * 86_400
    found = world.store.read_now(lambda tx: tallies.load(tx, world.account, day, day + 2 * 86_400, 86_400))
    assert sum(count for _, _, count in found) == 40
    assert all(since % 86_400 == 0 for since, _, _ in found)
