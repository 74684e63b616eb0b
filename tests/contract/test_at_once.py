"""SQLite's shortcut: the event loop commits by itself what was run ahead, and never waits for anybody while it does."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from gatepost import accounts, clock
from gatepost.ledger.entries import Entry
from gatepost.store import sqlite
from gatepost.store.sqlite import SqliteStore
from gatepost.store.turnstile import Turnstile
from gatepost.store.tx import Tx
from gatepost.store.work import Work
from tests.contract import things


class Watched(SqliteStore):
    """Notes which thread committed."""

    def __init__(self, path: Path) -> None:
        self.committed_by: list[int] = []
        super().__init__(path, clock.now)

    def _commit(self, batch: list[Work], *, warily: bool = False, at_once: bool = False) -> int:
        done = super()._commit(batch, warily=warily, at_once=at_once)
        if done:
            self.committed_by.append(threading.get_ident())
        return done


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Watched]:
    with closing(Watched(tmp_path / "gatepost.db")) as found:
        found.migrate()
        yield found


@pytest.fixture
def account(store: Watched) -> str:
    """An account whose subscriptions, none, are known to the writer's cache: its entries can be decided ahead."""
    made = accounts.new("acme", clock.now())
    store.run_now(lambda tx: (tx.add_account(made), tx.webhooks.matching(made.id)))
    return made.id


def recording(account: str) -> Callable[[Tx], Entry]:
    return lambda tx: things.record(tx, account, "x")


def count(store: Watched, account: str) -> int:
    return store.read_now(lambda tx: tx.count_entries(account))


def test_the_event_loop_commits_when_it_is_alone(store: Watched, account: str) -> None:
    store.committed_by.clear()
    asyncio.run(_run(store, account, 50))
    assert count(store, account) == 50
    assert set(store.committed_by) == {threading.get_ident()}


async def _run(store: Watched, account: str, times: int) -> None:
    await asyncio.gather(*[store.run(recording(account), records_only=True) for _ in range(times)])


def test_a_held_turnstile_keeps_nobody_but_the_unit(store: Watched, account: str, tmp_path: Path) -> None:
    other = Turnstile(tmp_path)

    async def story() -> None:
        with other.passed():
            waiting = asyncio.create_task(store.run(recording(account), records_only=True))
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert not waiting.done(), "the loop went on, the unit waits"
        await waiting

    store.committed_by.clear()
    asyncio.run(story())
    assert count(store, account) == 1
    assert threading.get_ident() not in store.committed_by


def test_a_locked_file_keeps_nobody_but_the_unit(store: Watched, account: str, tmp_path: Path) -> None:
    """Somebody with a tool of their own, who knows nothing of the turnstile."""
    stranger = apsw.Connection(str(tmp_path / "gatepost.db"))

    async def story() -> None:
        stranger.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(store.run(recording(account), records_only=True))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not waiting.done()
        stranger.execute("ROLLBACK")
        await waiting

    asyncio.run(story())
    stranger.close()
    assert count(store, account) == 1


def test_a_slow_disk_is_the_writers(store: Watched, account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "SLOW", 0.0)
    monkeypatch.setattr(sqlite, "SLOW_FOR", 60.0)
    asyncio.run(_run(store, account, 1))
    store.committed_by.clear()
    asyncio.run(_run(store, account, 20))
    assert count(store, account) == 21
    assert threading.get_ident() not in store.committed_by


def test_loop_and_writer_take_turns(store: Watched, account: str) -> None:
    """Units of plain threads go through the writer while the loop commits its own: none is lost, none is doubled."""

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
