"""Kill, cut and take away under load: who has a token finds it in the ledger, and the service mends by itself."""

import fcntl
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import apsw
import pytest
import requests

from gatepost.accounts import account_rows
from gatepost.core import clock
from gatepost.ledger import seal_rows
from gatepost.store.sqlite import SqliteStore
from gatepost.store.transaction import Tx
from gatepost.webhooks.fanout import create_deliveries
from tests import postgres, service
from tests.chaos.load import LONG, SCOPE, Load, check_ledger
from tests.contract import make
from tests.service import Client, Service
from tests.waiting import LIMIT_MS, wait_until

pytestmark = pytest.mark.xdist_group("chaos")


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    """One of our own, since it will not have an easy life."""
    with postgres.running() as found:
        yield found


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return ""
    found: postgres.Server = request.getfixturevalue("server")
    return found.create_database(f"chaos_{abs(hash(request.node.name)):x}")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a service puts everything, also what it cannot take away when it is killed."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    return tmp_path / "data"


def load_on(running: Service, threads: int = 6) -> Load:
    assert running.first is not None
    return Load(running, running.first, threads)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


# --- kill -9


def test_web_processes_killed_under_load(directory: Path, database: str) -> None:
    """`make soak` kills two hundred on each store."""
    times = int(os.environ.get("GATEPOST_TEST_KILLS", "4"))
    with service.running(directory, database, workers="2", only="web") as running:
        killed: set[int] = set()

        def alive() -> list[int]:
            return sorted(set(running.web_processes()) - killed)

        with load_on(running) as load:
            for _ in range(times):
                load.wait_for_tokens(20)
                wait_until(lambda: bool(alive()), "a web process to be started again")
                victim = alive()[0]
                os.kill(victim, signal.SIGKILL)
                killed.add(victim)
            load.wait_for_tokens(20)
        assert len(killed) == times
        assert load.broken
        check_ledger(running, load)


def test_the_supervisor_killed_under_load(directory: Path, database: str) -> None:
    with service.running(directory, database, workers="2") as running:
        children = running.web_processes()
        assert len(children) == 2
        with load_on(running) as load:
            load.wait_for_tokens(100)
            running.process.kill()
            wait_until(lambda: not any(map(is_alive, children)), "the children to end by themselves")
        client = running.first
    assert client is not None
    with service.running(directory, database, only="web") as again:
        assert again.first is None
        assert again.token_answer(client, SCOPE).status_code == 200
        check_ledger(again, load)


# --- SIGTERM


def test_a_request_under_way_is_answered_before_the_end(directory: Path) -> None:
    """The store is kept busy, so that the requests are under way for as long as we want."""
    with service.running(directory) as running:
        client = running.first
        assert client is not None
        wait_until(lambda: running.opened.store.read_now(seal_rows.unsealed_accounts) == [], "everything sealed")
        port = int(running.url.rpartition(":")[2])
        with closing(apsw.Connection(str(directory / "gatepost.db"))) as somebody:
            somebody.set_busy_timeout(LIMIT_MS)
            somebody.execute("BEGIN EXCLUSIVE")
            connections = [_ask(port, client) for _ in range(8)]
            wait_until(lambda: _connections_read_to_the_end(port) == 8, "the requests to be read")
            wait_until(lambda: _is_locked(directory / "write.lock"), "a request to reach the store")
            running.process.terminate()
            wait_until(lambda: not _listens(port), "the listener to close")
            somebody.execute("ROLLBACK")
        answers = [connection.getresponse() for connection in connections]
        assert [answer.status for answer in answers] == [200] * 8
        assert running.process.wait(LONG) == 0
        events = {answer.headers["Gatepost-Event"] for answer in answers}
        for connection in connections:
            connection.close()
        account = running.opened.store.read_now(lambda tx: account_rows.load_named(tx, "default"))
        assert account is not None
        assert events <= {entry["id"] for entry in running.entries(account.id)}
        assert running.opened.store.read_now(seal_rows.unsealed_accounts) == []


def _ask(port: int, client: Client) -> HTTPConnection:
    """A request that was sent, and of which the answer is still to be read."""
    connection = HTTPConnection("127.0.0.1", port, timeout=LONG)
    headers = {"Authorization": client.basic, "Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/oauth/tokens", f"grant_type=client_credentials&scope={SCOPE}", headers)
    return connection


def _connections_read_to_the_end(port: int) -> int:
    """Connections to the port of which the server has read everything that came. proc(5), /proc/net/tcp."""
    count = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        queue = int(fields[4].partition(":")[2], 16)
        if fields[1].endswith(f":{port:04X}") and fields[3] == "01" and queue == 0:
            count += 1
    return count


def _is_locked(path: Path) -> bool:
    with path.open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_it_ends_under_load_with_nothing_lost(directory: Path, database: str) -> None:
    with service.running(directory, database) as running:
        with load_on(running) as load:
            load.wait_for_tokens(100)
            assert running.stop() == 0
        check_ledger(running, load)


# --- the store taken away


def _ready(running: Service) -> int:
    return requests.get(f"{running.ops}/readyz", timeout=LONG).status_code


def _while_away(running: Service, load: Load, take: Callable[[], Any], give_back: Callable[[], Any]) -> None:
    """Take the store away under load: 503 to everybody, then everything goes on in the same processes."""
    processes = running.web_processes()
    load.wait_for_tokens(50)
    take()
    try:
        before = load.unavailable
        wait_until(lambda: load.unavailable >= before + 20, "some answers of 503")
        wait_until(lambda: _ready(running) == 503, "readyz to say so")
    finally:
        give_back()
    load.wait_for_tokens(50)
    wait_until(lambda: _ready(running) == 200, "readyz to say so")
    assert running.web_processes() == processes
    assert load.broken == 0


def test_postgres_stopped_under_load(directory: Path, server: postgres.Server) -> None:
    with service.running(directory, server.create_database("chaos_stopped")) as running:
        with load_on(running) as load:
            _while_away(running, load, lambda: server.stop("fast"), server.start)
        check_ledger(running, load)


def test_postgres_restarted_under_load(directory: Path, server: postgres.Server) -> None:
    with service.running(directory, server.create_database("chaos_restarted")) as running:
        with load_on(running) as load:
            for _ in range(2):
                load.wait_for_tokens(50)
                server.restart("immediate")
            load.wait_for_tokens(50)
        assert load.broken == 0
        check_ledger(running, load)


def test_the_file_taken_away_under_load(directory: Path) -> None:
    with service.running(directory) as running:
        file, away = directory / "gatepost.db", directory / "away.db"
        with load_on(running) as load:
            for _ in range(3):
                _while_away(running, load, lambda: file.rename(away), lambda: away.rename(file))
        check_ledger(running, load)


# --- a neighbour


def _write_at_full_speed(path: Path, account: str, stop: Any, count: Any) -> None:
    store = SqliteStore(path, clock.now, create_deliveries)

    def unit(tx: Tx) -> None:
        for number in range(50):
            make.record(tx, account, str(number), text="x" * 500)

    while not stop.is_set():
        store.run_now(unit)
        count.value += 50
    store.close()


def test_a_neighbour_that_writes_at_full_speed(directory: Path) -> None:
    """Writers take turns: a process that writes all the time does not block other processes."""
    context = multiprocessing.get_context("spawn")
    with service.running(directory, only="web") as running:
        stop, count = context.Event(), context.Value("q", 0)
        account, _ = running.account("neighbour")
        neighbour = context.Process(
            target=_write_at_full_speed, args=(directory / "gatepost.db", account, stop, count)
        )  # fmt: skip
        neighbour.start()
        try:
            wait_until(lambda: count.value > 0, "the neighbour to write")
            with load_on(running) as load:
                load.wait_for_tokens(300)
                written = count.value
                load.wait_for_tokens(300)
                wait_until(lambda: count.value > written, "the neighbour to write on")
        finally:
            stop.set()
            neighbour.join(LONG)
        assert neighbour.exitcode == 0
        assert (load.unavailable, load.broken) == (0, 0)
        check_ledger(running, load)
