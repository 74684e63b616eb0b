"""PgBouncer in transaction mode between the service and PostgreSQL: everything works, and nothing is lost with it."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

import psycopg
import pytest

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import clock
from gatepost.core.errors import Unavailable
from gatepost.ledger import entry_rows
from gatepost.store.pending import Key
from gatepost.store.postgres import PostgresStore
from gatepost.store.schema_check import StoreInfo
from gatepost.store.transaction import APPEND_ONLY, Tx, Unit
from gatepost.webhooks.fanout import create_deliveries
from tests import pgbouncer, postgres, service
from tests.chaos.load import Load, check_ledger
from tests.chaos.publishing import Publishing, check_events
from tests.contract import make, parallel
from tests.flows.shop import opening
from tests.login import Platform
from tests.pgbouncer import PgBouncer
from tests.waiting import LIMIT, wait_until

pytestmark = pytest.mark.xdist_group("pgbouncer")

KILLS = int(os.environ.get("GATEPOST_TEST_KILLS", "2"))


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.running() as found:
        yield found


@pytest.fixture(scope="module")
def bouncer(server: postgres.Server) -> Iterator[PgBouncer]:
    with pgbouncer.running(server) as found:
        yield found


def test_the_service_behind_pgbouncer(tmp_path: Path, server: postgres.Server, bouncer: PgBouncer) -> None:
    """Tokens, refreshes, events, deliveries and lists, with two connections to the server, and kill -9 of PgBouncer."""
    server.create_database("served")
    with service.running(tmp_path / "data", bouncer.url("served")) as running, opening(running, "shop") as shop:
        people = Platform(running, "people")
        refresh_token = people.tokens()["refresh_token"]
        _, client = running.account("busy")
        with Load(running, client, threads=3) as load, Publishing(shop) as publishing:
            for _ in range(KILLS):
                load.wait_for_tokens(20)
                publishing.wait_for_events(5)
                refresh_token = people.refresh(refresh_token).json()["refresh_token"]
                bouncer.kill()
                bouncer.start()
            load.wait_for_tokens(20)
            publishing.wait_for_events(5)
        check_ledger(running, load)
        check_events(shop, publishing)
        assert people.refresh(refresh_token).status_code == 200
        bearer = {"Authorization": f"Bearer {running.token(shop.client, 'gatepost:deliveries')}"}
        listed = running.session.get(f"{running.url}/webhooks/deliveries", headers=bearer).json()["data"]
        assert {record["status"] for record in listed} == {"succeeded"}
        assert "no LISTEN through a connection pooler" in (tmp_path / "data.log").read_text()
        found = {(check["check"], check["status"]) for check in running.cli_json("doctor")}
        assert {("pooler", "ok"), ("LISTEN", "ok"), ("node", "ok")} <= found


# --- the store alone


def stored(url: str, listen_url: str = "") -> PostgresStore:
    return PostgresStore(url, clock.now, create_deliveries, listen_url=listen_url)


@pytest.fixture
def database(server: postgres.Server, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    server.create_database(name)
    return name


def test_no_session_state_is_left_in_the_pool(server: postgres.Server, bouncer: PgBouncer, database: str) -> None:
    """Migrations, checks, reads and writes leave neither settings nor locks to the next user of a connection."""
    with closing(stored(bouncer.url(database))) as store:
        assert parallel.in_threads([store.migrate] * 3)
        assert store.integrity() == []
        assert store.info().pooled
        account = new_account(store)
        units = [lambda tx, name=str(number): make.record(tx, account, name) for number in range(40)]
        assert parallel.failures(parallel.run(store, units, hints=APPEND_ONLY)) == []
        assert parallel.failures(parallel.run(store, units)) == []
        assert store.read_now(lambda tx: entry_rows.count(tx, account)) == 80
        with psycopg.connect(bouncer.url(database), autocommit=True, prepare_threshold=None) as other:
            assert other.execute("SELECT count(*) FROM pg_prepared_statements").fetchall() == [(0,)]
            changed = "SELECT name FROM pg_settings WHERE source = 'session' AND name <> 'application_name'"
            assert {name for (name,) in other.execute(changed)} <= {"client_encoding", "DateStyle", "TimeZone"}
            assert other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchall() == [(0,)]


def new_account(store: PostgresStore) -> str:
    def unit(tx: Tx) -> str:
        made = accounts.new("acme", tx.at)
        account_rows.add(tx, made)
        return made.id

    return store.run_now(unit)


def test_only_a_direct_connection_listens(server: postgres.Server, bouncer: PgBouncer, database: str) -> None:
    pooled, direct = bouncer.url(database), server.url(database)
    heard: SimpleQueue[list[Key]] = SimpleQueue()
    key = (b"a" * 16, b"b" * 16)
    with closing(stored(pooled)) as store, closing(stored(pooled, direct)) as listening:
        store.migrate()
        assert [store.info().wakeups, listening.info().wakeups] == ["poll", "listen"]
        assert stored_info(pooled, pooled).wakeups == "pooled"
        assert stored_info(pooled, "postgresql://127.0.0.1:1/x").wakeups == "unreachable"
        with closing(store.listen(heard.put)) as silent, closing(listening.listen(heard.put)):
            assert heard.get(timeout=LIMIT) == []  # what a listener reports when it begins
            store.run_now(lambda tx: tx.pending.wakeups.add(key))
            assert heard.get(timeout=LIMIT) == [key]
            wait_until(lambda: not silent._thread.is_alive(), "the listener without a connection to end")
        assert heard.empty()


def stored_info(url: str, listen_url: str) -> StoreInfo:
    with closing(stored(url, listen_url)) as store:
        return store.info()


def test_another_server_behind_the_pooler(server: postgres.Server, bouncer: PgBouncer, database: str) -> None:
    """What a store has cached of one server does not count on another, although its connection to PgBouncer remains."""
    with closing(stored(bouncer.url(database))) as store:
        store.migrate()
        account = new_account(store)

        def name(tx: Tx) -> str:
            return str(tx.cached("server", lambda: tx.select("SELECT pg_postmaster_start_time()::text", {})))

        before = store.read_now(name)
        assert store.read_now(name) == before
        server.restart("fast")
        wait_until(lambda: _tried(store, name) not in ("", before), "the new server")
        assert store.read_now(lambda tx: account_rows.load(tx, account)) is not None


def _tried(store: PostgresStore, unit: Unit[str]) -> str:
    try:
        return store.read_now(unit)
    except Unavailable:
        return ""


def test_the_first_pooler_whose_server_can_write_is_used(
    tmp_path: Path, server: postgres.Server, bouncer: PgBouncer
) -> None:  # fmt: skip
    """A PgBouncer announces its server as it was when it first reached it, also when that is a standby now, or gone."""
    with postgres.running() as first, pgbouncer.running(first) as before_first:
        for each in (first, server):
            each.create_database("hosts")
        url = before_first.url("hosts").replace("/hosts", f",127.0.0.1:{bouncer.port}/hosts")
        first_directory, second_directory = (str(each.directory / "data") for each in (first, server))
        with closing(stored(bouncer.url("hosts"))) as other, closing(stored(url)) as store:
            other.migrate()
            store.migrate()
            assert store.read_now(data_directory) == first_directory
            _set_read_only(first, "on")
            with closing(stored(url)) as another:
                assert another.read_now(data_directory) == second_directory
            _set_read_only(first, "off")
            assert store.read_now(data_directory) == first_directory
            first.stop()
            wait_until(lambda: _tried(store, data_directory) == second_directory, "the other server")


def _set_read_only(server: postgres.Server, value: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as operator:
        operator.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}".encode())
        operator.execute("SELECT pg_reload_conf()")
    wait_until(lambda: _shows(server, value), f"default_transaction_read_only = {value}")


def _shows(server: postgres.Server, value: str) -> bool:
    with psycopg.connect(server.url()) as connection:
        return connection.execute("SHOW default_transaction_read_only").fetchall() == [(value,)]


def data_directory(tx: Tx) -> str:
    [(found,)] = tx.select("SELECT current_setting('data_directory')", {})
    return str(found)
