"""PostgreSQL: the event loop sends commits of units that ran ahead. A commit that fails there is made by the thread."""

import asyncio
import select
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import msgspec
import psycopg
import pytest
import uvloop

from gatepost import accounts
from gatepost.accounts import Account, account_rows
from gatepost.core import ids
from gatepost.core.errors import Unavailable
from gatepost.ledger import publishable
from gatepost.ledger.entries import Origin
from gatepost.ledger.publishable import Event
from gatepost.store import commit_groups, threads, work
from gatepost.store.loop_commits import LoopCommits
from gatepost.store.postgres import PostgresStore
from gatepost.store.postgres_connection import PostgresConnection
from gatepost.store.transaction import APPEND_ONLY, Hints, Tx, Unit
from gatepost.store.work import Work
from gatepost.webhooks import publish, subscription_rows
from gatepost.webhooks.fanout import create_deliveries
from gatepost.webhooks.publish import Published
from tests import postgres
from tests.contract import make, parallel
from tests.contract.backends import FakeClock
from tests.contract.relay import Relay
from tests.waiting import wait_until

MEGABYTE = 1_000_000


@pytest.fixture
def store(schema_url: str, watch: FakeClock) -> Iterator[PostgresStore]:
    with closing(PostgresStore(schema_url, watch, create_deliveries, follow=True)) as opened:
        opened.migrate()
        yield opened


@pytest.fixture
def operator(schema_url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(schema_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def relay(postgres_server: postgres.Server) -> Iterator[Relay]:
    with tempfile.TemporaryDirectory() as directory, closing(Relay(postgres_server, Path(directory))) as found:
        yield found


@pytest.fixture
def account(store: PostgresStore) -> str:
    """An account that can append: the thread has committed, and its cache has what entries need."""
    made = accounts.new("acme", store.now())
    store.run_now(lambda tx: (account_rows.add(tx, made), subscription_rows.matching(tx, made.id)))
    append(store, made.id, 3)
    return made.id


@pytest.fixture
def passed_on(store: PostgresStore, account: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many units each batch had that the thread got."""
    counts: list[int] = []

    def count(works: list[Work]) -> None:
        counts.append(len(works))
        store._appends.put(works)

    monkeypatch.setattr(store._loop_commits, "_to_thread", count)
    return counts


def recording(account: str, name: str = "x", text: str = "") -> Unit[str]:
    return lambda tx: make.record(tx, account, name, text=text).subject


def append(store: PostgresStore, account: str, times: int = 1) -> list[str]:
    """Record entries in one commit after the other. Returns their subjects."""
    names = [ids.new("evt") for _ in range(times)]

    async def run_all() -> list[str]:
        return [await store.run(recording(account, name), APPEND_ONLY) for name in names]

    assert uvloop.run(asyncio.wait_for(run_all(), parallel.LONG)) == names
    return names


def recorded(store: PostgresStore, account: str) -> list[str]:
    return store.read_now(lambda tx: make.subjects(tx, account))


def process(store: PostgresStore) -> int:
    """The process of the server for commits of units that only append. 0 if the thread is just disconnecting."""
    connection = store._shared._connection
    try:
        return connection.database.info.backend_pid if connection is not None else 0
    except psycopg.OperationalError:
        return 0


@contextmanager
def locked(url: str) -> Iterator[None]:
    """No entry can be inserted."""
    with psycopg.connect(url) as holder:
        holder.execute("LOCK TABLE entries IN SHARE MODE")
        yield


def is_waiting(operator: psycopg.Connection[tuple[object, ...]], backend: int) -> bool:
    """Whether this process of the server waits for a lock."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
    return operator.execute(waiting, [backend]).fetchall() != []


async def until_it_waits(operator: psycopg.Connection[tuple[object, ...]], backend: int) -> None:
    while not is_waiting(operator, backend):
        await asyncio.sleep(0.01)


def prepared(store: PostgresStore) -> dict[str, bytes]:
    """The statements that the event loop has prepared, with their names."""
    connection = store._shared.direct
    assert connection is not None
    return dict(connection.prepared)


async def commit_under_way(
    store: PostgresStore, account: str, name: str, operator: psycopg.Connection[tuple[object, ...]]
) -> "asyncio.Task[str]":
    """Begin a commit while nothing can be inserted. Returns when the server waits."""
    backend = process(store)
    running = asyncio.create_task(store.run(recording(account, name), APPEND_ONLY))
    await until_it_waits(operator, backend)
    return running


def test_the_thread_gets_nothing_while_all_is_well(store: PostgresStore, account: str, passed_on: list[int]) -> None:
    before = recorded(store, account)
    names = append(store, account, 30)
    assert parallel.failures(parallel.run(store, [recording(account)] * 50, APPEND_ONLY)) == []
    assert recorded(store, account) == [*before, *names, *["x"] * 50]
    assert passed_on == []


def test_changed_definitions(store: PostgresStore, account: str, passed_on: list[int], schema_url: str) -> None:
    """What ran ahead is not valid any more. The thread runs it again, and refreshes the cache."""

    def status(tx: Tx) -> str:
        make.record(tx, account)
        return found(tx).status

    def suspend(tx: Tx) -> None:
        account_rows.update(tx, msgspec.structs.replace(found(tx), status="suspended"))

    def found(tx: Tx) -> Account:
        loaded = account_rows.load(tx, account)
        assert loaded is not None
        return loaded

    assert parallel.run(store, [status] * 2, APPEND_ONLY) == ["active", "active"]
    passed_on.clear()
    with closing(PostgresStore(schema_url, store.now, create_deliveries)) as other:
        other.run_now(suspend)
    for _ in range(2):
        assert parallel.run(store, [status] * 2, APPEND_ONLY) == ["suspended", "suspended"]
    assert passed_on == [2]


def publishing(account: str, name: str) -> Unit[bool]:
    """Publish an event with an id. Returns whether it was published before."""

    def unit(tx: Tx) -> bool:
        found = account_rows.load(tx, account)
        assert found is not None
        published = publish.publish_event(tx, found, an_event(name), Origin("operator"))
        assert isinstance(published, Published)
        return published.again

    return unit


def an_event(name: str) -> Event:
    made = publishable.event("invoice.paid", {"amount": 1}, name)
    assert isinstance(made, Event)
    return made


def test_events_that_were_published_before(store: PostgresStore, account: str, passed_on: list[int]) -> None:
    """The commit writes nothing at all. The thread finds out which events are new."""
    parallel.run(store, [publishing(account, "first")], APPEND_ONLY)  # loads the account into the cache
    passed_on.clear()
    before = len(recorded(store, account))
    assert parallel.run(store, [publishing(account, f"event {n}") for n in range(20)], APPEND_ONLY) == [False] * 20
    assert passed_on == []
    again = parallel.run(store, [publishing(account, f"event {n}") for n in range(10, 30)], APPEND_ONLY)
    assert again == [True] * 10 + [False] * 10
    assert passed_on == [20]
    assert len(recorded(store, account)) == before + 30


def test_an_event_that_is_sent_twice_at_once(store: PostgresStore, account: str, passed_on: list[int]) -> None:
    """The server gets no statement that violates a constraint, which its log would show as an error."""
    parallel.run(store, [publishing(account, "first")], APPEND_ONLY)  # loads the account into the cache
    parallel.run(store, [publishing(account, "second")], APPEND_ONLY)
    known = prepared(store)
    passed_on.clear()
    outcomes = parallel.run(store, [publishing(account, name) for name in ("a", "b", "a")], APPEND_ONLY)
    assert sorted(outcomes) == [False, False, True]
    assert passed_on == [3]
    assert prepared(store) == known, "a statement failed"
    assert len(recorded(store, account)) == 3 + 4


def test_an_event_that_another_process_publishes(
    store: PostgresStore, account: str, schema_url: str, operator: psycopg.Connection[tuple[object, ...]]
) -> None:
    """The insert fails. The session keeps its prepared statement, which would use memory if it were forgotten."""
    for name in ("first", "second"):
        parallel.run(store, [publishing(account, name)], APPEND_ONLY)
    backend = process(store)
    known = prepared(store)

    async def story(name: str) -> bool:
        with psycopg.connect(schema_url) as other:
            values = (ids.raw(account), an_event(name).name)
            other.execute("INSERT INTO published (account, name, event, body) VALUES (%s, %s, '', '')", values)
            running = asyncio.create_task(store.run(publishing(account, name), APPEND_ONLY))
            await until_it_waits(operator, backend)
            other.rollback() if name == "rolled back" else other.commit()
        return await running

    assert uvloop.run(asyncio.wait_for(story("rolled back"), parallel.LONG)) is False
    with pytest.raises(AssertionError):  # the other process has published no real event
        uvloop.run(asyncio.wait_for(story("committed"), parallel.LONG))
    assert prepared(store) == known


@pytest.mark.parametrize("end", ["pg_terminate_backend", "pg_cancel_backend"])
def test_a_commit_that_fails(
    store: PostgresStore, account: str, passed_on: list[int], schema_url: str,
    operator: psycopg.Connection[tuple[object, ...]], end: str,
) -> None:  # fmt: skip
    """Its connection breaks, or the server refuses it."""

    async def story() -> None:
        with locked(schema_url):
            running = await commit_under_way(store, account, "once", operator)
            operator.execute(f"SELECT {end}(%s)".encode(), [process(store)])
            while not passed_on:
                await asyncio.sleep(0.01)
        assert await running == "once"

    uvloop.run(asyncio.wait_for(story(), parallel.LONG))
    assert recorded(store, account).count("once") == 1
    append(store, account, 3)
    assert passed_on == [1]


def test_an_event_loop_that_ends(
    store: PostgresStore, account: str, passed_on: list[int], schema_url: str,
    operator: psycopg.Connection[tuple[object, ...]],
) -> None:  # fmt: skip
    """Nobody learns the outcome of its commit. Other event loops go on."""
    with locked(schema_url):
        uvloop.run(asyncio.wait_for(commit_under_way(store, account, "unknown", operator), parallel.LONG))
    names = append(store, account, 3)
    assert passed_on[0] == 1
    assert set(names) <= set(recorded(store, account))
    wait_until(lambda: recorded(store, account).count("unknown") == 1)  # the server had begun it


def test_an_event_loop_that_pauses(
    store: PostgresStore, account: str, schema_url: str, operator: psycopg.Connection[tuple[object, ...]]
) -> None:
    """The thread needs the connection meanwhile. Then it makes the commit, and the loop learns the outcome."""
    with closing(uvloop.new_event_loop()) as loop:
        with locked(schema_url):
            running = loop.run_until_complete(commit_under_way(store, account, "paused", operator))
            stuck = process(store)
            thread = threading.Thread(target=append, args=(store, account))
            thread.start()
            wait_until(lambda: process(store) != stuck)
        thread.join(parallel.LONG)
        assert loop.run_until_complete(asyncio.wait_for(running, parallel.LONG)) == "paused"
        assert loop.run_until_complete(store.run(recording(account, "next"), APPEND_ONLY)) == "next"
    assert recorded(store, account).count("next") == 1
    assert recorded(store, account).count("paused") in (1, 2)  # the server had begun it, and an entry may remain


@pytest.mark.parametrize(
    "hints",
    [APPEND_ONLY, Hints(append_only=True, prefetch=lambda _: None), Hints()],
    ids=["event loop", "single statement of the thread", "transaction"],
)
def test_a_server_that_continues_when_the_caller_has_given_up(
    store: PostgresStore, account: str, schema_url: str, monkeypatch: pytest.MonkeyPatch, hints: Hints
) -> None:
    """It writes nothing, because the caller was told so."""
    append(store, account, 3)

    async def story() -> None:
        await store.run(recording(account, "before"), hints)
        with locked(schema_url):
            with monkeypatch.context() as impatient:
                impatient.setattr(work, "PATIENCE", 0.3)
                late = asyncio.create_task(store.run(recording(account, "late"), hints))
                await asyncio.sleep(0)
            with pytest.raises(Unavailable):
                await late
        assert await store.run(recording(account, "after"), hints) == "after"

    uvloop.run(asyncio.wait_for(story(), parallel.LONG))
    names = recorded(store, account)
    assert ("late" in names, "after" in names) == (False, True)


def test_a_unit_that_waits_for_a_lock_delays_no_others(store: PostgresStore, account: str, schema_url: str) -> None:
    """It could not share the commit, and runs by itself. It was the last one of its batch."""

    async def story() -> None:
        await store.run(lambda tx: tx.probe(0))
        with psycopg.connect(schema_url) as holder:
            holder.execute("SELECT 1 FROM counters WHERE name = 'write probe' FOR UPDATE")
            waiting = asyncio.create_task(store.run(lambda tx: tx.probe(1), APPEND_ONLY))
            await store.run(recording(account, "first"), APPEND_ONLY)
            assert await store.run(recording(account, "second"), APPEND_ONLY) == "second"
            assert not waiting.done()
        await waiting

    uvloop.run(asyncio.wait_for(story(), parallel.LONG))


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_unit_knows_that_an_earlier_commit_may_have_succeeded(
    store: PostgresStore, account: str, monkeypatch: pytest.MonkeyPatch, *, is_sent: bool
) -> None:
    runs: list[bool] = []

    def unit(tx: Tx) -> str:
        runs.append(tx.may_be_done)
        return make.record(tx, account, "unknown").subject

    def lose(connection: PostgresConnection, *arguments: Any, **options: Any) -> bool:
        if options.get("unless_changed") is None:
            return write_pending(connection, *arguments, **options)
        assert write_pending(connection, *arguments, **options)
        raise psycopg.OperationalError("the connection was lost")

    def fail(*_: object) -> None:
        raise psycopg.OperationalError("the connection was lost")

    write_pending = PostgresConnection.write_pending
    if is_sent:
        monkeypatch.setattr(PostgresConnection, "write_pending", lose)
    else:
        monkeypatch.setattr(commit_groups, "precompute_prefetched", fail)
    hints = Hints(append_only=True, prefetch=lambda _: None)
    assert parallel.run(store, [unit], hints) == ["unknown"]
    assert runs == ([False, True] if is_sent else [False])
    assert recorded(store, account).count("unknown") == len(runs)


@pytest.mark.parametrize("runs", [True, False])
def test_a_store_that_closes_with_a_commit_under_way(
    store: PostgresStore, account: str, schema_url: str, operator: psycopg.Connection[tuple[object, ...]],
    monkeypatch: pytest.MonkeyPatch, *, runs: bool,
) -> None:  # fmt: skip
    """Its event loop has ended, or is the one that closes the store and so cannot see the outcome."""
    monkeypatch.setattr(threads, "END_FOR", 0.5)

    async def story() -> None:
        running = await commit_under_way(store, account, "unknown", operator)
        if runs:
            store.close()
            assert not any(thread.is_alive() for thread in store._threads)
        running.cancel()

    with locked(schema_url):
        uvloop.run(asyncio.wait_for(story(), parallel.LONG))
        store.close()
    assert not any(thread.is_alive() for thread in store._threads)


def test_an_outcome_that_comes_while_the_thread_looks(store: PostgresStore, account: str) -> None:
    """Either the event loop or the thread takes the connection, and the units are passed on once."""
    got: list[list[Work]] = []
    commits = LoopCommits(store._shared, got.append, lambda *_: None)

    class Loop:
        """Gets the outcome at the moment when the thread looks whether it runs."""

        def is_running(self) -> bool:
            commits._end(commit, written=False)
            return False

    commit: Any = SimpleNamespace(
        works=[Work(lambda tx: None)], loop=Loop(), has_ended=False, stop_watching=lambda: None
    )
    assert commits._connection_is_free.acquire(blocking=False)
    commits._under_way = commit
    with commits.paused():
        assert got == [commit.works]
        assert not commits._connection_is_free.acquire(blocking=False)
    assert commits._connection_is_free.acquire(blocking=False)
    commits._end(commit, written=False)  # too late
    assert got == [commit.works]
    assert not commits._connection_is_free.acquire(blocking=False)


def test_an_outcome_that_the_event_loop_misses(
    store: PostgresStore, account: str, passed_on: list[int], schema_url: str,
    operator: psycopg.Connection[tuple[object, ...]],
) -> None:  # fmt: skip
    async def story() -> str:
        with locked(schema_url):
            running = await commit_under_way(store, account, "missed", operator)
            commit = store._loop_commits._under_way
            assert commit is not None
            commit.loop.remove_reader(commit._socket)
        return await running

    assert uvloop.run(asyncio.wait_for(story(), parallel.LONG)) == "missed"
    assert passed_on == []


def test_a_connection_that_ends_while_a_large_commit_is_sent(relay: "Relay", schema_url: str, watch: FakeClock) -> None:
    """libpq finds that when it cannot write, and closes the socket, which the event loop must not watch any more."""
    through = schema_url.replace(quote(str(relay.server.directory), safe=""), quote(str(relay.directory), safe=""))
    with closing(PostgresStore(through, watch, create_deliveries)) as store:
        store.migrate()
        made = accounts.new("acme", store.now())
        store.run_now(lambda tx: (account_rows.add(tx, made), subscription_rows.matching(tx, made.id)))
        append(store, made.id, 3)

        async def story() -> str:
            relay.reads.clear()
            running = asyncio.create_task(store.run(recording(made.id, "large", "x" * 8 * MEGABYTE), APPEND_ONLY))
            while (commit := store._loop_commits._under_way) is None or commit._steps or takes_more(commit._socket):
                await asyncio.sleep(0.01)
            relay.end_answers()
            commit._flush()  # as if the socket took more before the loop sees the end
            relay.reads.set()
            return await running

        assert uvloop.run(asyncio.wait_for(story(), parallel.LONG)) == "large"
        assert recorded(store, made.id).count("large") == 1


def takes_more(descriptor: int) -> bool:
    """Whether an event loop that watches this socket would write to it."""
    return select.select([], [descriptor], [], 0)[1] != []


class CheckedLoop:
    """An event loop, and how often the thread has checked whether it runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.times = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def is_running(self) -> bool:
        self.times += 1
        return self._loop.is_running()


def test_two_event_loops(
    store: PostgresStore, account: str, passed_on: list[int], schema_url: str,
    operator: psycopg.Connection[tuple[object, ...]],
) -> None:  # fmt: skip
    """While a commit of one is under way, the thread gets the units of the other, and waits for the connection."""
    before, backend = recorded(store, account), process(store)
    with ThreadPoolExecutor(2) as loops:
        with locked(schema_url):
            first = loops.submit(append, store, account)
            wait_until(lambda: is_waiting(operator, backend))
            commit: Any = store._loop_commits._under_way
            commit.loop = checked = CheckedLoop(commit.loop)
            second = loops.submit(append, store, account)
            wait_until(lambda: checked.times > 1, "the thread to check whether the loop of the commit runs")
        names = [*first.result(parallel.LONG), *second.result(parallel.LONG)]
    assert passed_on == [1]
    assert recorded(store, account) == [*before, *names]
    assert process(store) == backend


def test_two_event_loops_that_commit_all_the_time(store: PostgresStore, account: str) -> None:
    """No commit fails, so each is made once, and on the same connection."""
    before, backend = len(recorded(store, account)), process(store)
    parallel.in_threads([lambda: append(store, account, 200)] * 2)
    assert len(recorded(store, account)) - before == 400
    assert process(store) == backend


def test_a_commit_that_the_socket_takes_in_parts(store: PostgresStore, account: str, passed_on: list[int]) -> None:
    units = [recording(account, str(number), text=str(number) * MEGABYTE) for number in range(8)]
    assert parallel.failures(parallel.run(store, units, APPEND_ONLY)) == []
    assert recorded(store, account)[-8:] == [str(number) for number in range(8)]
    assert passed_on == []


def test_a_statement_that_the_server_has_forgotten(
    store: PostgresStore, account: str, passed_on: list[int], operator: psycopg.Connection[tuple[object, ...]]
) -> None:
    connection = store._shared.direct
    assert connection is not None
    [name] = connection.prepared.values()
    connection.database.execute(b"DEALLOCATE " + name)
    append(store, account, 3)
    assert passed_on == [1]


def test_a_transaction_that_was_rolled_back(store: PostgresStore, account: str, passed_on: list[int]) -> None:
    """The driver then has the server forget all statements. No commit of the event loop fails because of that."""

    def fail(tx: Tx) -> None:
        tx.select("SELECT 1 / 0", {})

    append(store, account, 10)  # the driver has prepared statements, too
    assert len(parallel.failures(parallel.run(store, [fail], APPEND_ONLY))) == 1
    assert passed_on == [1]
    append(store, account, 5)
    assert passed_on == [1, 1]  # the second one because the cache was cleared


def test_the_time_of_the_server_is_measured(
    store: PostgresStore, account: str, passed_on: list[int], monkeypatch: pytest.MonkeyPatch, watch: FakeClock
) -> None:
    """By the thread, because it waits for the answer."""
    elapsed = store.database_clock._elapsed
    monkeypatch.setattr(store.database_clock, "_elapsed", lambda: elapsed() + 61)
    append(store, account, 3)
    assert passed_on == [1]
    assert not store.database_clock.is_due


def test_a_unit_whose_caller_left(store: PostgresStore, account: str, passed_on: list[int]) -> None:
    """It is not run, and the others of its batch are."""

    async def story() -> None:
        first = asyncio.create_task(store.run(recording(account, "first"), APPEND_ONLY))
        await asyncio.sleep(0)
        tasks = [asyncio.create_task(store.run(recording(account, name), APPEND_ONLY)) for name in ("left", "stayed")]
        await asyncio.sleep(0)
        tasks[0].cancel()
        assert await first == "first"
        assert await tasks[1] == "stayed"

    uvloop.run(asyncio.wait_for(story(), parallel.LONG))
    assert "stayed" in recorded(store, account)
    assert "left" not in recorded(store, account)
    assert passed_on == []


def test_the_thread_waits_for_the_connection(store: PostgresStore) -> None:
    """`paused` returns when the connection is free, and then `hand_over` passes everything to the thread."""
    got: list[list[Work]] = []
    commits = LoopCommits(store._shared, got.append, lambda *_: None)
    work = Work(lambda tx: None)
    with commits.paused():
        commits.hand_over([work])
    assert got == [[work]]
    with commits.paused():
        pass
