"""SQLite: only the threads of the store access the file, so the event loop never waits for it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import clock
from gatepost.core.errors import Unavailable
from gatepost.ledger import entry_rows
from gatepost.ledger.entries import Entry
from gatepost.store import sqlite_log, work
from gatepost.store.sqlite import SqliteStore
from gatepost.store.transaction import APPEND_ONLY, SHORT, Hints, Tx
from gatepost.store.turnstile import Turnstile
from gatepost.store.work import Work
from gatepost.webhooks import subscription_rows
from gatepost.webhooks.fanout import create_deliveries
from tests.contract import make
from tests.waiting import LIMIT


class Watched(SqliteStore):
    """Notes which thread committed."""

    def __init__(self, path: Path) -> None:
        self.committed_by: list[int] = []
        super().__init__(path, clock.now, create_deliveries)

    def _commit(self, batch: list[Work], *, separately: bool = False) -> int:
        self.committed_by.append(threading.get_ident())
        return super()._commit(batch, separately=separately)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Watched]:
    with closing(Watched(tmp_path / "gatepost.db")) as found:
        found.migrate()
        yield found


@pytest.fixture
def account(store: Watched) -> str:
    """An account whose subscriptions, none, are known to the writer's cache: its entries can be decided ahead."""
    made = accounts.new("acme", clock.now())
    store.run_now(lambda tx: (account_rows.add(tx, made), subscription_rows.matching(tx, made.id)))
    return made.id


def recording(account: str) -> Callable[[Tx], Entry]:
    return lambda tx: make.record(tx, account, "x")


def count(store: Watched, account: str) -> int:
    return store.read_now(lambda tx: entry_rows.count(tx, account))


def test_the_event_loop_never_commits(store: Watched, account: str) -> None:
    store.committed_by.clear()
    asyncio.run(_run(store, account, 50))
    assert count(store, account) == 50
    assert store.committed_by
    assert threading.get_ident() not in store.committed_by


async def _run(store: Watched, account: str, times: int) -> None:
    await asyncio.gather(*[store.run(recording(account), hints=APPEND_ONLY) for _ in range(times)])


def test_a_held_turnstile_delays_only_the_unit(store: Watched, account: str, tmp_path: Path) -> None:
    other = Turnstile(tmp_path)

    async def story() -> None:
        with other.locked():
            waiting = asyncio.create_task(store.run(recording(account), hints=APPEND_ONLY))
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert not waiting.done(), "the loop went on, the unit waits"
        await waiting

    store.committed_by.clear()
    asyncio.run(story())
    assert count(store, account) == 1
    assert threading.get_ident() not in store.committed_by


def test_a_locked_file_delays_only_the_unit(store: Watched, account: str, tmp_path: Path) -> None:
    """Somebody with a tool of their own, who knows nothing of the turnstile."""
    stranger = apsw.Connection(str(tmp_path / "gatepost.db"))

    async def story() -> None:
        stranger.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(store.run(recording(account), hints=APPEND_ONLY))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not waiting.done()
        stranger.execute("ROLLBACK")
        await waiting

    asyncio.run(story())
    stranger.close()
    assert count(store, account) == 1


# --- a file that stands still


class Frozen:
    """Stands still until it is thawed, as a system call on a frozen file system does."""

    def __init__(self) -> None:
        self.thawed = threading.Event()

    def __call__(self, *_: object) -> None:
        assert self.thawed.wait(LIMIT)


@pytest.mark.parametrize("quick", [True, False])
def test_a_stalled_read_blocks_no_other_caller_and_times_out(
    store: Watched, account: str, monkeypatch: pytest.MonkeyPatch, *, quick: bool
) -> None:
    frozen = Frozen()

    async def story() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(work, "PATIENCE", 0.3)
            reading = [asyncio.create_task(store.read(frozen, hints=Hints(short=quick))) for _ in range(5)]
            await asyncio.sleep(0)
        await store.run(recording(account), hints=APPEND_ONLY)  # the loop goes on, and so does the writer
        for each in reading:
            with pytest.raises(Unavailable):
                await each

    try:
        asyncio.run(story())
    finally:
        frozen.thawed.set()
    assert count(store, account) == 1  # readers are back


def test_a_plain_thread_gives_up_a_read_as_well(store: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = Frozen()
    monkeypatch.setattr(work, "PATIENCE", 0.1)
    try:
        with pytest.raises(Unavailable):
            store.read_now(frozen)
    finally:
        frozen.thawed.set()


def test_a_stalled_commit_blocks_no_other_caller_and_times_out(
    store: Watched, account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = Frozen()

    async def story() -> None:
        with monkeypatch.context() as impatient:
            impatient.setattr(work, "PATIENCE", 0.3)
            writing = asyncio.create_task(store.run(recording(account), hints=APPEND_ONLY))
            await asyncio.sleep(0)
        assert await store.read(lambda tx: entry_rows.count(tx, account), hints=SHORT) in (0, 1)
        with pytest.raises(Unavailable):
            await writing

    with monkeypatch.context() as patched:
        patched.setattr(sqlite_log, "_sync", frozen)
        try:
            asyncio.run(story())
        finally:
            frozen.thawed.set()
    asyncio.run(_run(store, account, 1))
    assert count(store, account) == 2  # of which one was never answered


def test_quick_reads_share_a_snapshot_and_fail_alone(store: Watched, account: str) -> None:
    def bad(tx: Tx) -> int:
        tx.select("SELECT nothing FROM nowhere", {})
        return 0

    async def story() -> list[object]:
        good = [store.read(lambda tx: entry_rows.count(tx, account), hints=SHORT) for _ in range(5)]
        return list(await asyncio.gather(store.read(bad, hints=SHORT), *good, return_exceptions=True))

    failed, *others = asyncio.run(story())
    assert isinstance(failed, Unavailable)
    assert others == [0] * 5


def test_units_of_threads_and_of_the_loop_share_the_writer(store: Watched, account: str) -> None:
    """Units of plain threads and of an event loop at the same time: none is lost, none is doubled."""

    def threads() -> None:
        for _ in range(200):
            store.run_now(recording(account))

    running = [threading.Thread(target=threads) for _ in range(2)]
    for each in running:
        each.start()
    for _ in range(40):
        asyncio.run(_run(store, account, 10))
    for each in running:
        each.join()
    assert count(store, account) == 800
