"""How owners take turns in the store."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gatepost.core.errors import Unavailable
from gatepost.store import commit_groups, sqlite, turns, work
from gatepost.store.turns import LEAST, MOST, MOST_PREPARED, RECENT, Turns


class Store:
    """Units enter by turns and stay until `leave` is called. `entered` has their owners in order."""

    def __init__(self) -> None:
        self.turns = Turns(asyncio.get_running_loop())
        self.entered: list[str] = []
        self.now = 0.0
        self.tasks: list[asyncio.Task[None]] = []

    async def add(self, owner: str, count: int = 1) -> list[asyncio.Task[None]]:
        added = [asyncio.create_task(self._unit(owner)) for _ in range(count)]
        self.tasks += added
        await asyncio.sleep(0)
        return added

    async def _unit(self, owner: str) -> None:
        if not self.turns.enter(owner, self.now):
            await self.turns.wait(owner)
        self.entered.append(owner)

    async def leave(self, owner: str, count: int = 1) -> list[str]:
        """Units of the owner leave. Returns the owners of those that entered."""
        before = len(self.entered)
        for _ in range(count):
            self.turns.leave(owner)
        await asyncio.sleep(0)
        return self.entered[before:]


def in_a_loop(story: Callable[[Store], Awaitable[None]]) -> Callable[[], None]:
    async def run() -> None:
        store = Store()
        await story(store)
        for task in store.tasks:
            task.cancel()
        await asyncio.gather(*store.tasks, return_exceptions=True)

    return lambda: asyncio.run(run())


async def alone(store: Store) -> None:
    await store.add("a", MOST + 3)
    assert store.entered == ["a"] * MOST
    assert await store.leave("a", 2) == ["a"] * 2


async def beside(store: Store) -> None:
    await store.add("storm", 1000)
    await store.add("b")
    assert store.entered[MOST:] == ["b"], "another owner's unit enters at once"
    assert await store.leave("storm", MOST - LEAST) == [], "the backlog waits until its owner has its share"
    assert await store.leave("storm", 5) == ["storm"] * 5
    await store.add("b", LEAST - 1)
    assert store.entered.count("b") == LEAST


async def as_many_as_the_others(store: Store) -> None:
    for owner in ("b", "c", "d"):
        await store.add(owner, LEAST)
    await store.add("storm", 1000)
    assert store.entered.count("storm") == 3 * LEAST


async def slow_commits(store: Store) -> None:
    for _ in range(100):
        store.turns.committed(0.01)
    await store.add("b")
    await store.add("storm", 1000)
    assert store.entered.count("storm") == 14, "a long commit has room for more"
    for _ in range(100):
        store.turns.committed(1.0)
    await store.leave("storm")
    assert store.entered.count("storm") == MOST_PREPARED + 1


async def two_busy_ones(store: Store) -> None:
    await store.add("a")
    await store.add("b", MOST)
    await store.add("a", MOST)
    await store.leave("b", 1)
    assert store.entered.count("a") == MOST // 2
    assert store.entered.count("b") == MOST // 2 + 1, "each of two has half a commit, not only the least share"


async def recently(store: Store) -> None:
    await store.add("b")
    await store.leave("b")
    store.now = RECENT
    await store.add("a", MOST)
    assert store.entered.count("a") == LEAST, "an owner that came recently may come again"
    store.now = 4 * RECENT
    await store.add("a")
    assert len(await store.leave("a")) == MOST + 1 - LEAST, "later the owner is alone"


async def unknown(store: Store) -> None:
    await store.add("", 100)
    assert len(store.entered) == LEAST, "unknown owners share"
    await store.add("a", MOST)
    assert store.entered.count("a") == MOST, "and do not take room from those that are known"


async def no_turns(store: Store) -> None:
    assert all(store.turns.enter(None, 0.0) for _ in range(10 * MOST))
    store.turns.leave(None)
    await store.add("a", MOST)
    assert len(store.entered) == MOST


async def in_order(store: Store) -> None:
    await store.add("b")
    added = await store.add("a", LEAST + 3)
    waiting = added[LEAST:]
    waiting[0].cancel()
    await asyncio.sleep(0)
    await store.leave("a")
    assert [task.done() for task in waiting] == [True, True, False], "a caller that left is passed over"
    [late] = await store.add("a")
    await store.leave("a")
    assert waiting[2].done(), "a unit that came later does not overtake"
    assert not late.done()


async def left_at_its_turn(store: Store) -> None:
    await store.add("b")
    waiting = (await store.add("a", LEAST + 2))[LEAST:]
    store.turns.leave("a")  # the turn of the first comes
    waiting[0].cancel()  # and its caller leaves before it runs
    await asyncio.gather(waiting[0], return_exceptions=True)
    await asyncio.sleep(0)
    assert waiting[1].done(), "its place is not lost"


STORIES = (
    alone, beside, as_many_as_the_others, slow_commits,
    two_busy_ones, recently, unknown, no_turns, in_order, left_at_its_turn,
)  # fmt: skip


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_turns(story: Callable[[Store], Awaitable[None]]) -> None:
    in_a_loop(story)()


def test_a_turn_that_does_not_come_in_time_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "PATIENCE", 0.0)

    async def story(store: Store) -> None:
        await store.add("b")
        [late] = (await store.add("a", LEAST + 1))[LEAST:]
        with pytest.raises(Unavailable):
            await late
        assert await store.leave("a", LEAST) == []
        await store.add("a", LEAST)
        assert store.entered.count("a") == 2 * LEAST

    in_a_loop(story)()


def test_another_loop_begins_with_an_empty_store() -> None:
    first = Turns()

    async def of_this_loop() -> Turns:
        mine = first.of(asyncio.get_running_loop())
        assert mine.of(asyncio.get_running_loop()) is mine
        return mine

    assert asyncio.run(of_this_loop()) is not first


def test_a_commit_takes_as_many_units_as_turns_allow() -> None:
    assert turns.MOST == sqlite.MOST_UNITS == commit_groups.MOST_UNITS == work.ENOUGH
