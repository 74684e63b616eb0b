"""A store that Citus distributes: where statements go, what commits in two phases, and what works without a node.

Most of these tests need a real cluster, see `tests/citus.py`.
"""

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gatepost import accounts
from gatepost.core import ids
from gatepost.core.errors import BadSetting, Unavailable
from gatepost.ledger import entry_rows, seal_rows
from gatepost.store import distribute
from gatepost.store.citus_connection import CitusConnection
from gatepost.store.node_watch import load_shards
from gatepost.store.pending import PendingWrites
from gatepost.store.postgres import PostgresStore
from gatepost.store.postgres_connection import PostgresConnection
from gatepost.store.postgres_server import PostgresServer
from gatepost.store.shards import BY_ACCOUNT, Shards, hash_bytes
from tests import citus
from tests.contract import make
from tests.contract.backends import FakeClock, Postgres
from tests.unit.test_routing import REACHABLE, TEXTS, WHOLE

needs_citus = pytest.mark.skipif(not citus.URL, reason="GATEPOST_TEST_CITUS is not set")


def test_the_hash_is_that_of_the_server(schema_url: str) -> None:
    texts = ["", "a", "acme", *("x" * length for length in range(5, 40)), "Übermut"]
    with psycopg.connect(schema_url) as database:
        rows = database.execute("SELECT text, hashtext(text) FROM unnest(%s::text[]) text", [texts]).fetchall()
    assert {text: hash_bytes(text.encode()) for text in texts} == dict(rows)


def test_a_store_without_citus_is_not_distributed(schema_url: str, watch: FakeClock) -> None:
    with psycopg.connect(schema_url) as database:
        assert load_shards(database) is None
        with pytest.raises(BadSetting, match="CREATE EXTENSION citus"):
            distribute.plan(database)


@pytest.fixture
def backend(citus_url: str, watch: FakeClock) -> Iterator[Postgres]:
    opened = Postgres(citus_url, watch)
    yield opened
    for store in opened.opened:
        store.close()


@pytest.fixture
def connection(store: PostgresStore, backend: Postgres) -> Iterator[CitusConnection]:
    plain = PostgresServer(backend.url, store.now).connect("write")
    assert isinstance(plain, PostgresConnection)
    found = load_shards(plain.database)
    assert found is not None
    yield CitusConnection(plain, found)
    plain.database.close()


def shards(store: PostgresStore) -> Shards:
    store.read_now(lambda tx: None)
    assert store.shards is not None
    return store.shards


def account_on_each_node(store: PostgresStore, watch: FakeClock) -> list[str]:
    """Create accounts until every node has one."""
    found: dict[Any, str] = {}
    for number in itertools.count():
        made = accounts.new(f"acme-{number}", watch())
        assert store.run_now(lambda tx, made=made: make.account(tx, made))  # type: ignore[misc]
        found.setdefault(shards(store).node(ids.raw(made.id)), made.id)
        if len(found) == len(shards(store).nodes):
            return list(found.values())
    raise AssertionError


VALUES = {"account": b"a" * 16, "limit": 1, "after": b"", "before": 1, "now": 1, "endpoint": b"e" * 16, "worker": b"w"}


@needs_citus
def test_citus_routes_every_statement_as_the_parser_says(connection: CitusConnection) -> None:
    """One task is one shard. Statements on the coordinator have none."""
    for name, text in TEXTS.items():
        if name in ("bump_version", "bump_ends", "outbox"):
            continue  # they do not use shards
        across = name in REACHABLE or name in WHOLE
        values: Any = {
            each: VALUES.get(each) if across or each == "account" else None for each in re.findall(r"%\((\w+)\)", text)
        }
        if "%b" in text:
            values = [VALUES["account"] if kind == "bytea" else None for kind in re.findall(r"%b::(\w+)", text)]
        plan = connection.database.execute(f"EXPLAIN {text}".encode(), values).fetchall()
        tasks = [int(found[1]) for (line,) in plan if (found := re.search(r"Task Count: (\d+)", line))]
        if across:
            assert max(tasks) == citus.SHARDS, (name, plan)
        else:
            assert set(tasks) <= {1}, (name, plan)


@contextmanager
def commands_to_nodes(connection: CitusConnection) -> Iterator[list[str]]:
    """What Citus sends to the nodes."""
    commands: list[str] = []
    connection.database.add_notice_handler(lambda notice: commands.append(notice.message_primary or ""))
    connection.database.execute("SET citus.log_remote_commands TO on")
    connection.database.execute("SET client_min_messages TO notice")
    yield commands


def pending(*rows: tuple[bytes, bytes]) -> PendingWrites:
    writes = PendingWrites()
    writes.append("insert_unsealed", rows)
    return writes


def accounts_by_node(found: Shards) -> list[list[bytes]]:
    """Three accounts of each node, of different shards if it has several."""
    by_node: dict[Any, dict[int, bytes]] = {}
    for _ in range(1000):
        account = ids.new_raw()
        by_node.setdefault(found.node(account), {})[found.shard(account)] = account
    return [list(of_node.values()) for of_node in by_node.values()]


@needs_citus
def test_a_commit_on_one_node_has_one_phase(connection: CitusConnection) -> None:
    for of_node in accounts_by_node(connection.shards):
        with commands_to_nodes(connection) as commands, connection.transaction():
            assert connection.write_pending(pending(*((account, ids.new_raw()) for account in of_node)))
        assert len([each for each in commands if "INSERT INTO" in each]) == len(of_node)
        assert not [each for each in commands if "PREPARE TRANSACTION" in each]


@needs_citus
def test_a_commit_on_the_coordinator_and_a_node_has_two_phases(connection: CitusConnection) -> None:
    """Otherwise the node would commit first, and a crash could then undo what is on the coordinator."""
    account = ids.new_raw()
    with commands_to_nodes(connection) as commands, connection.transaction():
        connection.write_pending(pending((account, ids.new_raw())))
        connection.write("probe_write", {"value": 1})
    assert [each for each in commands if "PREPARE TRANSACTION" in each]


@needs_citus
def test_accounts_of_a_node_that_is_down_are_left_out(store: PostgresStore, watch: FakeClock) -> None:
    up, down = account_on_each_node(store, watch)[:2]
    for account in (up, down):
        store.run_now(lambda tx, account=account: make.record(tx, account, "before"))  # type: ignore[misc]
    found = shards(store)
    store.node_watch.close()  # it would find that no node is down
    found.down = frozenset({found.node(ids.raw(down))})
    store.run_now(lambda tx: make.record(tx, up, "while it is down"))
    assert store.read_now(lambda tx: make.subjects(tx, up)) == ["before", "while it is down"]
    assert up in store.read_now(seal_rows.unsealed_accounts)
    assert down not in store.read_now(seal_rows.unsealed_accounts)
    name = found.node(ids.raw(down)).name
    with pytest.raises(Unavailable, match=f"database node {name}"):
        store.run_now(lambda tx: make.record(tx, down, "while it is down"))
    with pytest.raises(Unavailable, match=f"database node {name}"):
        store.read_now(lambda tx: entry_rows.count(tx, down))
    assert found.unreachable() == [name]
    found.down = frozenset()
    assert store.read_now(lambda tx: make.subjects(tx, down)) == ["before"]


@needs_citus
def test_a_store_with_rows_is_distributed(citus_schemas: Any, tmp_path: Path, watch: FakeClock) -> None:
    """Its partitions become one table again."""
    name = citus_schemas.create()
    url = citus_schemas.url(name)
    store = PostgresStore(url, watch, lambda _tx, _entry: [])
    store.migrate()
    made = accounts.new("acme", watch())
    store.run_now(lambda tx: make.account(tx, made))
    store.maintain_partitions()
    store.run_now(lambda tx: make.record(tx, made.id, "before"))
    with psycopg.connect(url, autocommit=True) as database:
        plan = distribute.plan(database)
        assert plan.tables == list(BY_ACCOUNT)
        assert set(plan.partitioned) == {"entries", "deliveries", "attempts"}
        with citus.changing(database):
            distribute.apply(database, plan)
        assert distribute.plan(database).tables == []
        for table, index in (("entries", "entries_pkey"), ("deliveries", "deliveries_by_event")):
            rows = database.execute("SELECT indexname FROM pg_indexes WHERE tablename = %s", [table]).fetchall()
            assert (index,) in rows
        assert database.execute("SELECT count(*) FROM entries_pruned_by_row").fetchall() != [(0,)]
        keys = database.execute(
            "SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint WHERE contype = 'f' "
            "AND connamespace = %s::regnamespace AND conrelid = 'subscriptions'::regclass",
            [name],
        ).fetchall()
        assert keys == [("subscriptions", "endpoints")]
    store.close()
    again = PostgresStore(url, watch, lambda _tx, _entry: [])
    again.run_now(lambda tx: make.record(tx, made.id, "after"))
    assert again.read_now(lambda tx: make.subjects(tx, made.id)) == ["before", "after"]
    assert len(shards(again).nodes) >= 1
    assert again.maintain_partitions() == ([], [], {})
    again.close()
