"""PostgreSQL as its role changes: only a server that can write is used, and a commit counts once standbys have it."""

import shutil
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from threading import Event, Semaphore, Thread
from typing import Any

import psycopg
import pytest

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import ids
from gatepost.core.errors import Refusal, Unavailable
from gatepost.ledger import publishable
from gatepost.ledger.entries import Origin
from gatepost.store import dead_rows, postgres_server, replaced_primary, threads
from gatepost.store.postgres import PostgresStore
from gatepost.store.postgres_connection import open_database
from gatepost.store.transaction import APPEND_ONLY, Hints, Tx, Unit
from gatepost.webhooks import publish
from gatepost.webhooks.fanout import create_deliveries
from gatepost.webhooks.publish import Published
from tests import postgres
from tests.contract import make, parallel
from tests.contract.backends import FakeClock
from tests.service import free_ports
from tests.waiting import LIMIT, wait_until

pytestmark = pytest.mark.xdist_group("failover")


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    [port] = free_ports(1)
    with postgres.running({"listen_addresses": "127.0.0.1", "port": str(port)}) as found:
        yield found


@pytest.fixture
def store(server: postgres.Server, watch: FakeClock) -> Iterator[PostgresStore]:
    """The URL names two hosts. Nothing listens at the first."""
    [dead] = free_ports(1)
    url = f"postgresql://{postgres.OWNER}@127.0.0.1:{dead},127.0.0.1:{server.port}/postgres"
    with closing(PostgresStore(url, watch, create_deliveries)) as opened:
        opened.migrate()
        yield opened


@pytest.fixture
def account(store: PostgresStore) -> str:
    def unit(tx: Tx) -> str:
        made = accounts.new(f"acme-{tx.now}-{len(account_rows.page(tx, '', 100))}", tx.at)
        account_rows.add(tx, made)
        return made.id

    return store.run_now(unit)


def recording(account: str, name: str) -> Unit[str]:
    return lambda tx: make.record(tx, account, name).subject


def _shows(server: postgres.Server, name: str, value: str) -> bool:
    with psycopg.connect(server.url()) as connection:
        return connection.execute(f"SHOW {name}".encode()).fetchall() == [(value,)]


def test_a_server_that_cannot_write_is_not_used(server: postgres.Server, store: PostgresStore, account: str) -> None:
    """Reads would succeed there, but on a standby they may be out of date."""
    with postgres.configured(server, "default_transaction_read_only", "on"):
        wait_until(lambda: _shows(server, "default_transaction_read_only", "on"))
        with pytest.raises(Unavailable, match=r"read-only|ReadOnly"):  # of a connection that was open before
            store.run_now(lambda tx: make.record(tx, account, "lost"))
        with (
            closing(PostgresStore(server.url(), store.now, create_deliveries)) as other,
            pytest.raises(Unavailable, match="read-only"),
        ):
            other.read_now(lambda tx: account_rows.page(tx, "", 1))
    wait_until(lambda: _shows(server, "default_transaction_read_only", "off"))
    store.unreachable_until = 0.0
    store.run_now(lambda tx: make.record(tx, account, "after"))
    assert store.read_now(lambda tx: make.subjects(tx, account)) == ["after"]


def test_the_address_of_a_host_that_can_write_is_used(
    server: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """A name can have the addresses of all servers. The environment can name hosts, too."""
    addresses = {"db.example": ["127.0.0.2", "127.0.0.1"], "gone.example": []}
    resolve = socket.getaddrinfo

    def addresses_of(host: str, port: int | None, *arguments: Any, **options: Any) -> list[Any]:
        if not addresses.get(host, [host]):
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [each for found in addresses.get(host, [host]) for each in resolve(found, port, *arguments, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", addresses_of)
    monkeypatch.setenv("PGHOST", "127.0.0.2,127.0.0.1")
    monkeypatch.setenv("PGPORT", server.port)
    with postgres.running({"listen_addresses": "127.0.0.2", "port": server.port}) as other:
        for read_only, expected in ((other, server), (server, other)):
            with postgres.configured(read_only, "default_transaction_read_only", "on"):
                wait_until(lambda read_only=read_only: _shows(read_only, "default_transaction_read_only", "on"))  # type: ignore[misc]
                for hosts in (f"gone.example,db.example:{server.port}", ""):
                    with open_database(f"postgresql://{postgres.OWNER}@{hosts}/postgres") as database:
                        [(directory,)] = database.execute("SHOW data_directory").fetchall()
                    assert directory == str(expected.directory / "data")


@pytest.mark.parametrize(
    ("query", "environment"),
    [
        ("host=127.0.0.2,127.0.0.1", {"PGPORT": "{port},{port}"}),
        ("host=db.invalid", {"PGHOSTADDR": "127.0.0.1", "PGPORT": "{port}"}),
        ("hostaddr=127.0.0.2,127.0.0.1&port={port}", {}),
        ("host=127.0.0.2,127.0.0.1&port={port}&load_balance_hosts=random", {}),
        ("host=127.0.0.2,127.0.0.1&port={port}&target_session_attrs=any", {}),
    ],
)
def test_the_url_and_the_environment_name_hosts_as_for_the_driver(
    server: postgres.Server, monkeypatch: pytest.MonkeyPatch, query: str, environment: dict[str, str]
) -> None:
    """Nothing listens at 127.0.0.2."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(port=server.port))
    with open_database(f"postgresql://{postgres.OWNER}@/postgres?{query.format(port=server.port)}") as database:
        assert database.info.hostaddr == "127.0.0.1"


@pytest.mark.parametrize("query", ["host=127.0.0.1&hostaddr=127.0.0.2,127.0.0.1", "host=127.0.0.1&port=1,2"])
def test_lists_of_hosts_that_do_not_match(query: str) -> None:
    with pytest.raises(Unavailable, match="could not match"):
        open_database(f"postgresql://{postgres.OWNER}@/postgres?{query}")


@contextmanager
def silent_server() -> Iterator[int]:
    """The port of a server that accepts each login, and then does not respond to any query."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as connections:

        def accept() -> None:
            with suppress(OSError):  # the listener was closed
                while True:
                    connection = connections.enter_context(listener.accept()[0])
                    connection.recv(1000)  # the request for TLS
                    connection.sendall(b"N")
                    connection.recv(1000)  # the startup message
                    connection.sendall(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")  # logged in, and ready

        thread = Thread(target=accept)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(LIMIT)


def test_a_server_that_accepts_connections_and_does_not_respond(server: postgres.Server) -> None:
    """The next one is used. This also covers a PgBouncer whose server was lost."""
    with silent_server() as port:
        hosts = f"127.0.0.1:{port},127.0.0.1:{server.port}"
        with open_database(f"postgresql://{postgres.OWNER}@{hosts}/postgres") as database:
            assert database.info.port == int(server.port)


def test_an_event_whose_commit_was_cancelled_before_a_standby_had_it(
    server: postgres.Server, store: PostgresStore, account: str
) -> None:
    """The event is in the database then. Publishing it again waits for a standby, too."""
    found = store.read_now(lambda tx: account_rows.load(tx, account))
    event = publishable.event("invoice.paid", {}, "once")
    assert found is not None
    assert isinstance(event, publishable.Event)

    def publishing(tx: Tx) -> Published | Refusal:
        return publish.publish_event(tx, found, event, Origin("test"))

    parallel.run(store, [recording(account, "first")], hints=APPEND_ONLY)
    with postgres.configured(server, "synchronous_standby_names", "nobody"), ThreadPoolExecutor() as pool:
        wait_until(lambda: _shows(server, "synchronous_standby_names", "nobody"))
        for hints in (APPEND_ONLY, APPEND_ONLY, Hints()):
            running = pool.submit(parallel.run, store, [publishing], hints)
            while not running.done():
                postgres.cancel_waiting(server)
            [outcome] = running.result()
            assert isinstance(outcome, Unavailable), outcome
    [outcome] = parallel.run(store, [publishing], hints=APPEND_ONLY)
    assert isinstance(outcome, Published)
    assert outcome.again


def test_only_units_of_a_cancelled_commit_may_be_done(
    server: postgres.Server, store: PostgresStore, account: str
) -> None:  # fmt: skip
    """A unit that could not share the commit, such as a refresh with a stolen token, was not part of it."""
    shared: list[bool] = []
    alone: list[bool] = []

    def recording_unit(tx: Tx) -> str:
        shared.append(tx.may_be_done)
        return make.record(tx, account, "shared").subject

    def writing_unit(tx: Tx) -> None:
        alone.append(tx.may_be_done)
        tx.probe(1)

    with postgres.configured(server, "synchronous_standby_names", "nobody"), ThreadPoolExecutor() as pool:
        wait_until(lambda: _shows(server, "synchronous_standby_names", "nobody"))
        running = pool.submit(parallel.run, store, [recording_unit, writing_unit], APPEND_ONLY)
        while not running.done():
            postgres.cancel_waiting(server)
        assert all(isinstance(outcome, Unavailable) for outcome in running.result())
    assert True in shared
    assert True not in alone


def test_standbys_can_be_preferred(server: postgres.Server) -> None:
    url = f"postgresql://{postgres.OWNER}@127.0.0.1:{server.port}/postgres?target_session_attrs=prefer-standby"
    with open_database(url) as database:
        assert database.info.port == int(server.port)


@pytest.mark.parametrize("hints", [Hints(), APPEND_ONLY], ids=["alone", "shared"])
def test_a_commit_cancelled_before_a_standby_has_it(
    server: postgres.Server, store: PostgresStore, account: str, hints: Hints
) -> None:
    """PostgreSQL then reports success, but the commit is lost if a standby becomes the primary."""
    for name in ("first", "second"):  # the second is appended with a single statement
        parallel.run(store, [recording(account, name)], hints=hints)
    with postgres.configured(server, "synchronous_standby_names", "nobody"), ThreadPoolExecutor() as pool:
        wait_until(lambda: _shows(server, "synchronous_standby_names", "nobody"))
        running = pool.submit(parallel.run, store, [recording(account, "lost")], hints)
        while not running.done():
            postgres.cancel_waiting(server)
        [outcome] = running.result()
        assert isinstance(outcome, Unavailable)
        assert "before a standby had it" in str(outcome)
    assert parallel.failures(parallel.run(store, [recording(account, "after")], hints=hints)) == []


def test_a_cancelled_commit_is_noticed_without_warnings(
    server: postgres.Server, store: PostgresStore, account: str, watch: FakeClock
) -> None:
    """Only a warning tells of it, and the role or the database can be configured to send none."""
    store.run_now(recording(account, "first"))
    with postgres.configured(server, "client_min_messages", "error"), ThreadPoolExecutor() as pool:
        wait_until(lambda: _shows(server, "client_min_messages", "error"))
        with (
            closing(PostgresStore(server.url(), watch, create_deliveries)) as other,
            postgres.configured(server, "synchronous_standby_names", "nobody"),
        ):
            wait_until(lambda: _shows(server, "synchronous_standby_names", "nobody"))
            running = pool.submit(parallel.run, other, [recording(account, "lost")], Hints())
            while not running.done():
                postgres.cancel_waiting(server)
            [outcome] = running.result()
    assert isinstance(outcome, Unavailable)
    assert "before a standby had it" in str(outcome)


def test_the_connection_for_appends_is_opened_again(
    server: postgres.Server, store: PostgresStore, account: str
) -> None:
    """Batches that only append have a connection of their own. Without it, each needs a whole transaction."""
    broken = _appending_process(server, store, account)
    with psycopg.connect(server.url(), autocommit=True) as operator:
        operator.execute("SELECT pg_terminate_backend(%s, 5000)", [broken])
    assert _appending_process(server, store, account) != broken


def _appending_process(server: postgres.Server, store: PostgresStore, account: str) -> int:
    """Record some entries. Returns the process of the server that inserted the last one."""
    names = [ids.new("evt") for _ in range(4)]
    for name in names:
        assert parallel.run(store, [recording(account, name)], hints=APPEND_ONLY) == [name]
    connection = store._shared._connection
    assert connection is not None
    process = connection.database.info.backend_pid
    used = "SELECT query FROM pg_stat_activity WHERE pid = %s"
    with psycopg.connect(server.url()) as operator:
        [(query,)] = operator.execute(used, [process]).fetchall()
        assert "INSERT INTO entries" in query, "the entry was inserted by another connection"
    return process


def test_a_primary_that_stands_still(
    server: postgres.Server, watch: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel still acknowledges everything. Once another server is the primary, that one is used."""
    monkeypatch.setattr(replaced_primary, "STUCK_AFTER", 0.5)
    [port] = free_ports(1)
    with postgres.running({"listen_addresses": "127.0.0.1", "port": str(port)}) as old:
        url = f"postgresql://{postgres.OWNER}@127.0.0.1:{port},127.0.0.1:{server.port}/postgres"
        with (
            closing(PostgresStore(server.url(), watch, create_deliveries)) as other,
            closing(PostgresStore(url, watch, create_deliveries)) as store,
        ):
            other.migrate()
            store.migrate()
            before = store.read_now(server_port)
            with old.frozen():
                wait_until(lambda: _port(store) == int(server.port), "the other server")
            assert before == port


def test_a_store_can_be_closed_while_its_server_stands_still(
    server: postgres.Server, watch: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads that wait for the server end: those of units, and the one of maintenance."""
    monkeypatch.setattr(threads, "END_FOR", 0.2)
    begun, hung = Semaphore(0), Event()

    def wait(ask: Callable[[], object]) -> None:
        begun.release()
        hung.wait(LIMIT)
        ask()

    def remove(database: psycopg.Connection[Any]) -> list[str]:
        wait(lambda: database.execute("SELECT 1"))
        return []

    def unit(tx: Tx) -> None:
        wait(lambda: tx.select("SELECT 1", {}))

    monkeypatch.setattr(dead_rows, "remove", remove)
    with postgres.running() as other, ThreadPoolExecutor() as pool:
        store = PostgresStore(other.url(), watch, create_deliveries)
        store.migrate()
        waiting: list[Future[Any]] = [pool.submit(store.run_now, unit), pool.submit(store.read_now, unit)]
        waiting.append(pool.submit(store.remove_dead_rows))
        for _ in waiting:
            begun.acquire(timeout=LIMIT)
        with other.frozen():
            hung.set()
            pool.submit(store.close).result(LIMIT)
            assert all(isinstance(each.exception(LIMIT), Unavailable) for each in waiting)
            assert not any(thread.is_alive() for thread in store._threads)


def server_port(tx: Tx) -> int:
    return int(tx.select("SELECT inet_server_port()", {})[0][0])


def _port(store: PostgresStore) -> int:
    try:
        return store.read_now(server_port)
    except Unavailable:
        return 0


def test_a_standby_is_reported(watch: FakeClock) -> None:
    """It is used only if the URL asks for any server."""
    with postgres.running() as standby:
        with closing(PostgresStore(standby.url(), watch, create_deliveries)) as store:
            assert store.info().read_only == ""
        standby.stop()
        signal_file = standby.directory / "data" / "standby.signal"
        signal_file.touch()
        shutil.chown(signal_file, (standby.directory / "data").stat().st_uid)
        standby.start()
        url = f"{standby.url()}&target_session_attrs=any"
        with closing(PostgresStore(url, watch, create_deliveries)) as store:
            assert store.info().read_only == "the server is a standby"


def test_asynchronous_replication_is_reported(server: postgres.Server, store: PostgresStore) -> None:
    assert store.info().replication == ""
    receiver = server.spawn(
        str(server.programs / "pg_receivewal"), "-D", str(server.directory), "-d", server.url(), "--no-loop"
    )
    with receiver:
        try:
            wait_until(lambda: store.info().replication.startswith("replication is asynchronous: 1 standby"))
        finally:
            receiver.kill()


@pytest.mark.parametrize(
    ("standbys", "names", "commit", "risk"),
    [
        (0, "", "on", ""),
        (0, "", "local", ""),
        (2, "*", "on", ""),
        (2, "", "on", "replication is asynchronous"),
        (2, "*", "local", "synchronous_commit is local"),
    ],
)
def test_the_risk_of_a_failover(standbys: int, names: str, commit: str, risk: str) -> None:
    found = postgres_server._replication_risk(standbys, names, commit)
    assert found.startswith(risk)
    assert bool(found) == bool(risk)
