"""Partitions on PostgreSQL: rows are found wherever they are, retention drops whole tables, and loses nothing else."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import psycopg
import pytest

from gatepost import accounts
from gatepost.core import clock, ids
from gatepost.ledger import entry_rows, published_ids, retention, seal_rows, verification
from gatepost.store import partition_drops, partitions, sql_loader
from gatepost.store.interface import Store
from gatepost.store.partitions import Database, Table
from gatepost.store.transaction import Tx
from gatepost.webhooks import delivery_rows, listing_query, queue_rows
from gatepost.webhooks.deliveries import Attempt
from gatepost.webhooks.listing_query import DeliveryFilter, PageRequest
from gatepost.webhooks.subscriptions import Subscription
from tests.contract import make
from tests.contract.backends import FakeClock, Postgres, closing_stores
from tests.contract.schemas import Schemas
from tests.contract.test_pruning import KEY, attempts, deliver, end, made_at, prune, seal_all, subscribe

DAY = timedelta(days=1)


@pytest.fixture
def backend(schemas: Schemas, watch: FakeClock) -> Iterator[Postgres]:
    """A database whose tables a test changes."""
    name = schemas.create()
    found = Postgres(schemas.url(name), watch)
    with closing_stores(found):
        yield found
    schemas.drop(name)


@pytest.fixture
def subscription(store: Store, account: str) -> Subscription:
    return store.run_now(lambda tx: subscribe(tx, account))


def publish(store: Store, account: str, watch: FakeClock, *, days: int = 30, name: bytes = b"") -> bytes:
    """An entry of a retention class, with the id of the clock's time."""
    raw_id = made_at(watch.at)

    def unit(tx: Tx) -> None:
        row = (
            ids.raw(account),
            raw_id,
            "invoice.paid",
            clock.milliseconds(watch.at),
            "op",
            "",
            "{}",
            None,
            0,
            days,
            "",
            "",
        )
        tx.pending.append("insert_entries", [row])
        tx.pending.append("insert_unsealed", [row[:2]])
        if name:
            assert published_ids.add(tx, account, name, raw_id, b"")

    store.run_now(unit)
    return raw_id


def table_of(backend: Postgres, table: str, raw_id: bytes) -> str:
    key = "delivery" if table == "attempts" else "id"
    [(name,)] = set(backend.execute(f"SELECT tableoid::regclass::text FROM {table} WHERE {key} = ?", raw_id))
    return str(name)


def names(backend: Postgres) -> set[str]:
    rows = backend.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relispartition "
        "AND relnamespace = current_schema::regnamespace"
    )
    return {name for (name,) in rows}


def storage(backend: Postgres, suffix: str = "") -> list[int]:
    """The files of the three tables."""
    return [
        backend.execute("SELECT relfilenode FROM pg_class WHERE oid = to_regclass(?)", f"{table}{suffix}")[0][0]
        for table in ("entries", "deliveries", "attempts")
    ]


def exists(store: Store, account: str, raw_ids: list[bytes]) -> list[bool]:
    keys = [(ids.raw(account), raw_id) for raw_id in raw_ids]
    found = store.read_now(lambda tx: delivery_rows.load_many(tx, keys))
    return [key in found for key in keys]


def test_partitions_are_made_for_the_next_days(store: Store, backend: Postgres, watch: FakeClock) -> None:
    """The migration makes the first ones, so that no entry is written before."""
    made = names(backend)
    expected = {
        f"{table}_30_{watch.at + ahead * DAY:%Y%m%d}"
        for table in ("entries", "deliveries", "attempts")
        for ahead in range(3)
    }
    assert expected <= made
    assert [name for name in made if name.startswith("entries_400_2")]
    assert store.maintain_partitions() == ([], [], {})
    watch.forward(DAY)
    assert f"entries_30_{watch.at + 3 * DAY:%Y%m%d}" in store.maintain_partitions().made or (
        watch.at.hour,
        watch.at.minute,
    ) == (0, 0)


def test_rows_are_in_the_partition_of_their_class_and_day(
    store: Store, backend: Postgres, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    store.maintain_partitions()
    watch.forward(DAY)
    event = publish(store, account, watch)
    audit = publish(store, account, watch, days=400)
    [delivery] = deliver(store, subscription, watch.at, event=event)
    end(store, account, [delivery])
    day = f"{watch.at:%Y%m%d}"
    assert table_of(backend, "entries", event) == f"entries_30_{day}"
    assert table_of(backend, "entries", audit).startswith("entries_400_2")
    assert table_of(backend, "deliveries", delivery) == f"deliveries_30_{day}"
    assert table_of(backend, "attempts", delivery) == f"attempts_30_{day}"
    assert store.read_now(lambda tx: entry_rows.load(tx, account, audit)) is not None
    assert exists(store, account, [delivery]) == [True]
    for filters in (
        DeliveryFilter(),
        DeliveryFilter(event=event),
        DeliveryFilter(endpoint=ids.raw(subscription.endpoint)),
    ):
        request = PageRequest(ids.raw(account), filters, newest=True, limit=10)
        page = store.read_now(partial(listing_query.page, request=request))
        assert page.positions == [(delivery,)]


def test_retention_drops_partitions(
    store: Store, backend: Postgres, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    store.maintain_partitions()
    watch.forward(DAY)
    start = watch.at
    event = publish(store, account, watch, name=b"order-1")
    seal_all(store, account)
    made = deliver(store, subscription, watch.at, count=5, event=event)
    end(store, account, made)
    watch.at = start + 30 * DAY
    assert f"deliveries_30_{start:%Y%m%d}" not in store.maintain_partitions().dropped
    assert exists(store, account, made) == [True] * 5
    watch.at = start + 31 * DAY
    prune(store, account)
    assert exists(store, account, made) == [True] * 5, "rows of a partition are not deleted one by one"
    dropped = store.maintain_partitions().dropped
    assert {f"{table}_30_{start:%Y%m%d}" for table in ("entries", "deliveries", "attempts")} <= set(dropped)
    assert exists(store, account, made) == [False] * 5
    assert attempts(store, account, made) == 0
    assert store.read_now(lambda tx: published_ids.load(tx, account, b"order-1")) is None
    prune(store, account)
    assert verification.verify(store, KEY, account).problem == ""


def test_unfinished_deliveries_and_their_events_outlive_their_partition(
    store: Store, backend: Postgres, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    store.maintain_partitions()
    watch.forward(DAY)
    start = watch.at
    event, gone = publish(store, account, watch, name=b"kept"), publish(store, account, watch, name=b"gone")
    seal_all(store, account)
    unfinished, ended = deliver(store, subscription, watch.at, count=2, event=event)
    end(store, account, [ended])
    key = (ids.raw(account), unfinished)
    store.run_now(lambda tx: delivery_rows.add_attempts(tx, [Attempt(*key, 1, "failed", "{}")]))
    watch.at = start + 32 * DAY
    later = deliver(store, subscription, watch.at)  # pruning by row passes the ids of the first day
    end(store, account, later)
    prune(store, account)
    store.maintain_partitions()
    assert exists(store, account, [unfinished, ended]) == [True, False]
    assert attempts(store, account, [unfinished]) == 1
    assert store.read_now(lambda tx: entry_rows.load(tx, account, event)) is not None
    assert store.read_now(lambda tx: entry_rows.load(tx, account, gone)) is None
    assert store.read_now(lambda tx: published_ids.load(tx, account, b"kept")) is not None
    assert store.read_now(lambda tx: published_ids.load(tx, account, b"gone")) is None
    assert store.read_now(lambda tx: queue_rows.load_many(tx, [key]))
    prune(store, account)
    assert exists(store, account, [unfinished]) == [True]
    assert verification.verify(store, KEY, account).problem == ""

    end(store, account, [unfinished])
    prune(store, account)
    assert exists(store, account, [unfinished]) == [False]
    assert attempts(store, account, [unfinished]) == 0
    assert store.read_now(lambda tx: entry_rows.load(tx, account, event)) is None
    prune(store, account)
    assert verification.verify(store, KEY, account).problem == ""


def test_the_chain_starts_after_the_dropped_entries(store: Store, account: str, watch: FakeClock) -> None:
    """Own entries are kept for 400 days, so the seals are of events alone."""
    store.maintain_partitions()
    seal_all(store, account)
    watch.forward(DAY)
    start = watch.at
    for _ in range(3):
        publish(store, account, watch)
        seal_all(store, account)
    watch.at = start + 450 * DAY
    store.maintain_partitions()
    prune(store, account)
    assert store.read_now(lambda tx: seal_rows.page(tx, account, 0, 10)) == []
    verified = verification.verify(store, KEY, account)
    assert (verified.problem, verified.entries) == ("", 0)


def test_classes_end_at_their_own_time(
    store: Store, backend: Postgres, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    """The attempts of both classes are in one partition, which is kept for the longer one."""
    deliver(store, subscription, watch.at, keep_days=7)
    assert f"deliveries_7_{watch.at + DAY:%Y%m%d}" in store.maintain_partitions().made
    watch.forward(DAY)
    start = watch.at
    short = deliver(store, subscription, watch.at, keep_days=7, count=3)
    long = deliver(store, subscription, watch.at, keep_days=30, count=3)
    end(store, account, short + long)
    watch.at = start + 8 * DAY
    assert f"deliveries_7_{start:%Y%m%d}" in store.maintain_partitions().dropped
    assert exists(store, account, short + long) == [False] * 3 + [True] * 3
    assert [attempts(store, account, those) for those in (short, long)] == [0, 3]
    watch.at = start + 31 * DAY
    store.maintain_partitions()
    assert exists(store, account, long) == [False] * 3
    assert backend.execute("SELECT count(*) FROM attempts") == [(0,)]


def test_a_longer_class_takes_its_attempts_along(
    store: Store, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    """An account gets a longer retention when partitions for attempts were already made."""
    store.maintain_partitions()
    start = watch.at = watch.at + DAY
    long = deliver(store, subscription, watch.at, keep_days=400, count=2)
    end(store, account, long)
    watch.at = start + 40 * DAY
    assert store.maintain_partitions().dropped
    assert exists(store, account, long) == [True] * 2
    assert attempts(store, account, long) == 2
    watch.at = start + 500 * DAY
    store.maintain_partitions()
    prune(store, account)
    assert exists(store, account, long) == [False] * 2
    assert attempts(store, account, long) == 0


def test_a_longer_class_with_many_attempts_keeps_their_partition(
    store: Store, account: str, subscription: Subscription, watch: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_drops, "MAX_MOVED", 1)
    store.maintain_partitions()
    start = watch.at = watch.at + DAY
    long = deliver(store, subscription, watch.at, keep_days=400)
    assert [name for name in store.maintain_partitions().made if name.startswith("deliveries_400_2")]
    long += deliver(store, subscription, watch.at, keep_days=400, count=4)
    short = deliver(store, subscription, watch.at, count=2)
    end(store, account, long + short)
    watch.at = start + 31 * DAY
    dropped = store.maintain_partitions().dropped
    assert f"deliveries_30_{start:%Y%m%d}" in dropped
    assert f"attempts_30_{start:%Y%m%d}" not in dropped
    assert exists(store, account, long + short) == [True] * 5 + [False] * 2
    assert [attempts(store, account, those) for those in (long, short)] == [5, 0]
    watch.at = start + 450 * DAY
    prune(store, account)  # the first ones were in no partition
    assert f"attempts_400_{start:%Y%m%d}" in store.maintain_partitions().dropped


def test_a_class_has_partitions_from_the_day_after_its_first_row(
    store: Store, backend: Postgres, account: str, watch: FakeClock
) -> None:
    """Its table was made when an account got this retention, so that no row has to be moved."""
    store.maintain_partitions({90})
    assert not [name for name in names(backend) if name.startswith("entries_90_2")]
    event = publish(store, account, watch, days=90)
    assert table_of(backend, "entries", event) == "entries_90_rest"
    for _ in range(3):
        store.maintain_partitions()
        watch.forward(DAY)
        assert table_of(backend, "entries", publish(store, account, watch, days=90)).startswith("entries_90_2")
    assert store.read_now(lambda tx: entry_rows.load(tx, account, event)) is not None
    watch.forward(91 * DAY)
    assert store.read_now(lambda tx: retention.is_due(tx, KEY, account))
    prune(store, account)
    assert store.read_now(lambda tx: entry_rows.load(tx, account, event)) is None


def test_attempts_always_have_a_partition(
    store: Store, backend: Postgres, subscription: Subscription, watch: FakeClock
) -> None:
    """An account gets a longer retention than all others, so that their partitions become wider."""
    store.maintain_partitions()
    start = clock.milliseconds(watch.at + DAY)
    deliver(store, subscription, watch.at + DAY, keep_days=400)
    for _ in range(15):
        watch.forward(DAY)
        store.maintain_partitions()
    with psycopg.connect(backend.url) as database:
        ends = [each.until for each in partitions.existing(database, partitions.ATTEMPTS)]
        begins = [each.since for each in partitions.existing(database, partitions.ATTEMPTS)]
    assert begins[0] <= start
    assert begins[1:] == ends[:-1]
    assert ends[-1] >= clock.milliseconds(watch.at + 3 * DAY)


def test_partitions_are_listed_while_another_process_drops_some(
    store: Store, backend: Postgres, watch: FakeClock
) -> None:
    with psycopg.connect(backend.url) as database:
        database.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        before = partitions.existing(database, partitions.ENTRIES)
        watch.forward(40 * DAY)
        dropped = store.maintain_partitions().dropped
        listed = [each.name for each in partitions.existing(database, partitions.ENTRIES)]
    assert listed == [each.name for each in before if each.name not in dropped]
    assert len(listed) < len(before)


# --- stores that have rows of a class without a table


def test_a_store_gets_the_tables_of_the_given_classes(store: Store, backend: Postgres, watch: FakeClock) -> None:
    """Those of the settings of its accounts, so that the first rows find a table."""
    given = {7, 90, 2555}
    assert store.maintain_partitions(given).made == [
        "entries_7", "entries_90", "entries_2555", "deliveries_7", "deliveries_90",
    ]  # fmt: skip
    assert table_of(backend, "entries", publish(store, ids.new("acc"), watch, days=90)) == "entries_90_rest"
    made = store.maintain_partitions(given).made
    assert made
    assert all(name.startswith("entries_90_2") for name in made)


def test_few_rows_are_moved_to_the_table_of_their_class(store: Store, backend: Postgres, watch: FakeClock) -> None:
    account = ids.new("acc")
    event = publish(store, account, watch, days=90)
    assert table_of(backend, "entries", event) == "entries_rest"
    assert "entries_90" in store.maintain_partitions().made
    assert table_of(backend, "entries", event) == "entries_90_rest"
    assert store.read_now(lambda tx: entry_rows.load(tx, account, event)) is not None


@pytest.mark.parametrize("limit", ["MAX_MOVED", "MAX_BYTES"])
def test_many_rows_are_not_moved(
    store: Store, backend: Postgres, watch: FakeClock, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(partitions, limit, 1)
    events = [publish(store, ids.new("acc"), watch, days=90) for _ in range(2)]
    maintained = store.maintain_partitions({90})
    assert "entries_90" not in maintained.made
    assert maintained.waiting["entries_90"].startswith("too many rows would be moved")
    assert {table_of(backend, "entries", event) for event in events} == {"entries_rest"}


def test_a_move_that_took_too_long_is_not_tried_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def cancel(_database: Database, table: Table, days: int) -> None:
        tried.append((table.name, days))
        raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")

    monkeypatch.setattr(partitions, "_move_class", cancel)
    assert "statement timeout" in store.maintain_partitions({90}).waiting["entries_90"]
    assert "took too long" in store.maintain_partitions({90}).waiting["entries_90"]
    assert tried == [("entries", 90), ("deliveries", 90)]


# --- rows without a partition


def test_rows_without_a_partition_are_kept_and_pruned_by_row(
    store: Store, backend: Postgres, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    """No process made partitions for a while."""
    watch.forward(5 * DAY)
    made = deliver(store, subscription, watch.at, count=2)
    end(store, account, made)
    assert table_of(backend, "deliveries", made[0]) == "deliveries_30_rest"
    store.maintain_partitions()
    assert f"deliveries_30_{watch.at:%Y%m%d}" not in names(backend), "there are rows for that day already"
    assert f"deliveries_30_{watch.at + DAY:%Y%m%d}" in names(backend)
    watch.forward(31 * DAY)
    prune(store, account)
    assert exists(store, account, made) == [False, False]
    assert attempts(store, account, made) == 0


def test_a_busy_table_is_changed_later(store: Store, backend: Postgres, watch: FakeClock) -> None:
    """Whoever reads does not wait for the change of a table, and the change waits only for a moment."""
    store.maintain_partitions()
    watch.forward(40 * DAY)
    with psycopg.connect(backend.url) as reader:
        reader.execute("SELECT count(*) FROM deliveries")
        done = store.maintain_partitions()
        assert not [name for name in done.dropped if name.startswith("deliveries")]
        assert [name for name in done.waiting if name.startswith("deliveries_30_")]
    assert [name for name in store.maintain_partitions().dropped if name.startswith("deliveries_30_")]


def test_a_pending_delivery_that_is_not_in_the_queue_is_not_dropped(
    store: Store, backend: Postgres, subscription: Subscription, watch: FakeClock
) -> None:
    store.maintain_partitions()
    watch.forward(DAY)
    [delivery] = deliver(store, subscription, watch.at)
    backend.execute("DELETE FROM queue")
    name = table_of(backend, "deliveries", delivery)
    watch.forward(40 * DAY)
    assert store.maintain_partitions().waiting[name] == "1 pending deliveries are not in the queue"
    assert table_of(backend, "deliveries", delivery) == name


def test_two_processes_make_and_drop_each_partition_once(store: Store, other: Store, watch: FakeClock) -> None:
    async def together() -> list[list[str]]:
        done = await asyncio.gather(*(asyncio.to_thread(each.maintain_partitions) for each in (store, other) * 4))
        return [names for each in done for names in (each.made, each.dropped)]

    for _ in range(3):
        results = [name for names in asyncio.run(together()) for name in names]
        assert len(results) == len(set(results))
        watch.forward(10 * DAY)
    store.maintain_partitions()
    with psycopg.connect(backend_url(store)) as database:
        existing = [each for table in partitions.TABLES for each in partitions.existing(database, table)]
    assert not [each.name for each in existing if each.is_expired(clock.milliseconds(watch.at))]


def backend_url(store: Store) -> str:
    return str(store.server._url)  # type: ignore[attr-defined]


def test_an_existing_store_keeps_its_rows_where_they_are(
    backend: Postgres, watch: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables of before are partitions for the ids of before, and of seven more days. Their rows are not moved."""
    known = sql_loader.migrations("postgres")
    monkeypatch.setattr(sql_loader, "migrations", lambda _dialect: [each for each in known if each.number < 15])
    old = backend.open()
    old.migrate()
    account = accounts.new("acme", watch())
    backend.execute("CREATE VIEW entries_pruned_by_row AS SELECT * FROM entries")  # which this release needs
    backend.execute("CREATE VIEW deliveries_pruned_by_row AS SELECT * FROM deliveries")
    assert old.run_now(lambda tx: make.account(tx, account))
    subscription = old.run_now(lambda tx: subscribe(tx, account.id))
    event = publish(old, account.id, watch)
    [delivery] = deliver(old, subscription, watch.at, event=event)
    end(old, account.id, [delivery])
    files = storage(backend)
    backend.execute("DROP VIEW entries_pruned_by_row, deliveries_pruned_by_row")
    monkeypatch.undo()

    new = backend.open()
    of_partitions = ["before_partitions", "validate_partitions", "partitions"]
    assert new.migrate() == [*of_partitions, "endpoint_counts", "room_in_queue"]
    assert storage(backend, "_before") == files
    assert table_of(backend, "deliveries", delivery) == "deliveries_before"
    new.maintain_partitions()
    soon = publish(new, account.id, watch)
    assert table_of(backend, "entries", soon) == "entries_before"
    watch.forward(8 * DAY)
    new.maintain_partitions()
    late = publish(new, account.id, watch)
    assert table_of(backend, "entries", late).startswith("entries_30_2")
    assert exists(new, account.id, [delivery]) == [True]
    watch.forward(31 * DAY)
    prune(new, account.id)
    assert exists(new, account.id, [delivery]) == [False]
    assert attempts(new, account.id, [delivery]) == 0
