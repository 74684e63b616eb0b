"""Plans of PostgreSQL for statements about given ids: they read few partitions, and each row by its key."""

import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import psycopg
import pytest

from gatepost.core import clock, ids
from gatepost.ledger import seal
from gatepost.store import postgres_connection, sql_loader
from gatepost.store.interface import Store
from gatepost.store.pending import Row
from gatepost.store.postgres_connection import Database, about
from gatepost.store.postgres_server import PostgresServer
from tests.contract.backends import FakeClock, Postgres, closing_stores
from tests.contract.schemas import Schemas
from tests.contract.test_pruning import made_at

DAY = timedelta(days=1)
ROWS, GIVEN = 20_000, 20
TEXTS = sql_loader.statements("postgres")
STATEMENTS = sorted(name for name, text in TEXTS.items() if "%(lowest_id)" in text and "%(id)" in text)
STATUS = ("succeeded", 1, "delivered", 200, None)  # what `write_records` is given besides the key


@pytest.fixture
def backend(schemas: Schemas, watch: FakeClock) -> Iterator[Postgres]:
    """A database whose tables a test changes."""
    name = schemas.create()
    found = Postgres(schemas.url(name), watch)
    with closing_stores(found):
        yield found
    schemas.drop(name)


def explain(backend: Postgres, name: str, rows: list[Row], mode: str = "write") -> list[str]:
    """The plan on a connection of the store."""
    connection = PostgresServer(backend.url, clock.now).connect(mode)
    with connection.database as database:
        prepare(database, name, rows)
        return explain_prepared(database, rows)


def prepare(database: Database, name: str, rows: list[Row]) -> None:
    text, _ = about(TEXTS[name], rows)
    columns = sql_loader.given_columns(text)
    numbered = re.sub(r"%\((\w+)\)b", lambda match: f"${columns.index(match[1]) + 1}", text)
    database.execute(f"PREPARE prepared AS {numbered}".encode())


def explain_prepared(database: Database, rows: list[Row]) -> list[str]:
    arrays = [list(values) for values in zip(*rows, strict=True)]
    with psycopg.ClientCursor(database) as cursor:
        cursor.execute(f"EXPLAIN EXECUTE prepared ({', '.join(['%s'] * len(arrays))})".encode(), arrays)
        return [line for (line,) in cursor]


def given(name: str, *keys: Row) -> list[Row]:
    return [(*key, *(STATUS if name == "write_records" else ())) for key in keys]


def load(backend: Postgres, account: bytes, at: int, rows: int) -> list[bytes]:
    """Add events of different milliseconds, each with a delivery to one of several endpoints and an attempt."""
    raw_ids = [made_at(clock.from_milliseconds(at + number)) for number in range(rows)]
    endpoints = [number.to_bytes(16, "big") for number in range(8)]
    backend.execute(
        "INSERT INTO entries (account, id, type, at, actor, subject, data, matched, keep_days, request, source) "
        "SELECT ?, id, 'invoice.paid', 1, '', '', '{}', 1, 30, '', '' FROM unnest(?::bytea[]) id",
        account, raw_ids,
    )  # fmt: skip
    backend.execute(
        "INSERT INTO deliveries "
        "(account, id, endpoint, subscription, event, event_type, origin, status, keep_days) "
        "SELECT ?, id, endpoint, endpoint, id, 'invoice.paid', 'event', 'pending', 30 "
        "FROM unnest(?::bytea[], ?::bytea[]) AS made (id, endpoint)",
        account, raw_ids, (endpoints * (rows // len(endpoints) + 1))[:rows],
    )  # fmt: skip
    backend.execute(
        "INSERT INTO attempts (account, delivery, number, outcome, document) "
        "SELECT ?, id, 1, 'succeeded', '{}' FROM unnest(?::bytea[]) id",
        account, raw_ids,
    )  # fmt: skip
    return raw_ids


def test_a_statement_about_certain_rows_reads_only_their_partitions(
    store: Store, backend: Postgres, watch: FakeClock
) -> None:
    for _ in range(10):
        store.maintain_partitions()
        watch.forward(DAY)
    raw_id = made_at(watch.at)
    for name in STATEMENTS:
        plan = explain(backend, name, given(name, (raw_id, raw_id)))
        scanned = [line for line in plan if "Scan" in line and "_30_" in line]
        assert len({line.split(" on ")[1].split()[0] for line in scanned}) <= 2, plan


@pytest.fixture(params=["none", "old"])
def keys(request: pytest.FixtureRequest, store: Store, backend: Postgres, watch: FakeClock) -> list[Row]:
    """Keys of some events and deliveries of today, of which PostgreSQL has no statistics, or old ones."""
    store.maintain_partitions()
    watch.forward(DAY)
    for table in ("entries", "deliveries", "attempts"):
        backend.execute(f"ALTER TABLE {table}_30_{watch.at:%Y%m%d} SET (autovacuum_enabled = off)")
    account = ids.new_raw()
    at = clock.milliseconds(watch.at.replace(hour=0, minute=0, second=0, microsecond=0))
    if request.param == "old":
        load(backend, account, at, 10)
        backend.execute("ANALYZE entries, deliveries, attempts")
    return [(account, raw_id) for raw_id in load(backend, account, at + 3_600_000, ROWS)[:: ROWS // GIVEN]]


def scans(plan: list[str], watch: FakeClock) -> list[tuple[str, str]]:
    """The scans of today's partitions, each with the line that follows."""
    pairs = [(line, after) for line, after in pairwise(plan) if "Scan" in line and f"_30_{watch.at:%Y%m%d} " in line]
    assert pairs, plan
    return pairs


@pytest.mark.parametrize("mode", ["read", "write"])
def test_rows_of_today_are_found_by_their_key(
    backend: Postgres, watch: FakeClock, keys: list[Row], mode: str
) -> None:  # fmt: skip
    for name in STATEMENTS:
        plan = explain(backend, name, given(name, *keys), mode)
        for scan, condition in scans(plan, watch):
            assert f"_{watch.at:%Y%m%d}_pkey on " in scan, (name, plan)
            assert condition.strip().startswith("Index Cond: ((account = "), (name, plan)
            assert condition.count(" = ") == 2, (name, plan)


def test_a_plan_for_an_empty_table_is_not_used_for_long(
    store: Store, backend: Postgres, watch: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds rows by another index than that of their keys, which takes the longer the more rows there are."""
    monkeypatch.setattr(postgres_connection, "_PLANS_FOR", 0.0)
    store.maintain_partitions()
    backend.execute(f"ALTER TABLE deliveries_30_{watch.at:%Y%m%d} SET (autovacuum_enabled = off)")
    account, raw_id = ids.new_raw(), made_at(watch.at)
    connection = PostgresServer(backend.url, clock.now).connect("write")
    with connection.database as database:
        prepare(database, "write_records", rows := given("write_records", (account, raw_id)))
        with connection.transaction():
            [(scan, _)] = scans(explain_prepared(database, rows), watch)
        assert "_account_event_id_idx on " in scan, "this test needs another plan that depends on the size"
        load(backend, account, clock.milliseconds(watch.at), ROWS)
        with connection.transaction():
            [(scan, condition)] = scans(explain_prepared(database, rows), watch)
        assert "_pkey on " in scan, condition


def test_a_statement_about_any_partition_is_planned_for_its_values(store: Store, backend: Postgres) -> None:
    """A plan for all values would be about all partitions."""

    def mode() -> str:
        [(found,)] = connection.database.execute("SHOW plan_cache_mode").fetchall()
        return str(found)

    connection = PostgresServer(backend.url, clock.now).connect("write")
    with connection.database:
        with connection.transaction():
            connection.rows_given("write_records", given("write_records", (ids.new_raw(), ids.new_raw())))
            assert mode() == "force_generic_plan"
            connection.rows("delivery", {"account": ids.new_raw(), "id": ids.new_raw()})
            assert mode() == "force_custom_plan"
        assert mode() == "force_generic_plan"
        with connection.transaction():
            connection.select("SELECT id FROM entries WHERE account = :account", {"account": ids.new_raw()})
            assert mode() == "force_custom_plan"


def test_the_entries_of_a_seal_are_found_by_their_key(store: Store, backend: Postgres, watch: FakeClock) -> None:
    """Although PostgreSQL expects that to read all of a day's entries would be cheaper, while they are few."""
    store.maintain_partitions()
    account = ids.new_raw()
    raw_ids = load(backend, account, clock.milliseconds(watch.at), 4 * seal.BATCH)
    backend.execute("ANALYZE entries")
    plan = explain(backend, "entries_given", [(account, raw_id) for raw_id in raw_ids[-seal.BATCH :]], "read")
    for scan, condition in scans(plan, watch):
        assert f"_{watch.at:%Y%m%d}_pkey on " in scan, plan
        assert condition.count(" = ") == 2, plan


def test_deliveries_of_today_are_counted_by_their_event(backend: Postgres, watch: FakeClock, keys: list[Row]) -> None:
    since, until = (ids.lowest_at(clock.milliseconds(watch.at + days)) for days in (-DAY, DAY))
    plan = explain(backend, "count_deliveries_given", [(*key, since, until) for key in keys], "read")
    for scan, condition in scans(plan, watch):
        assert f"_{watch.at:%Y%m%d}_account_event_id_idx on " in scan, plan
        assert "ROW(event, id) >= ROW(" in condition, plan


@pytest.mark.parametrize("raw_id", [b"\0" * 16, b"\xff" * 16, ids.new_raw()], ids=["first", "last", "now"])
def test_an_id_is_within_the_bounds_of_its_day(raw_id: bytes) -> None:
    day = int.from_bytes(raw_id[:6], "big") // 86_400_000
    lowest, highest = sql_loader.bounds(day, day)
    assert lowest <= raw_id <= highest
    text = "%(lowest_id)s %(highest_id)s"
    assert sql_loader.in_days_of(text, [raw_id]) == sql_loader.in_days_of(text, [highest, raw_id, lowest])
