"""Chores: when each runs again after a stall of the store, and which count as stuck. The clock is simulated."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from gatepost.core import repeat
from gatepost.core.errors import Unavailable
from gatepost.core.metrics import CHORE_FAILURES, CHORE_IDLE
from gatepost.core.repeat import Chore, Chores, pause

STALLS = (1.0, 10.0, 60.0)
WAITS_FOR_STORE = 10.0  # as long as a caller waits for the store


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Time passes as soon as nothing is left to do."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    made = SimulatedLoop()
    yield made
    made.close()


class Store:
    """Answers at once, but from `start` on not until `end`: a caller waits, and gives up after a while."""

    def __init__(self, start: float, end: float) -> None:
        self.start = start
        self.end = end
        self.answered: list[float] = []

    async def ask(self) -> None:
        now = asyncio.get_running_loop().time()
        if self.start <= now < self.end:
            await asyncio.sleep(min(self.end - now, WAITS_FOR_STORE))
            if asyncio.get_running_loop().time() < self.end:
                raise Unavailable("the store does not answer")
        self.answered.append(asyncio.get_running_loop().time())


async def run_for(seconds: float, *chores: Chore) -> Chores:
    found = Chores()
    for each in chores:
        found.start(each)
    running = asyncio.create_task(found.run())
    await asyncio.sleep(seconds)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return found


@pytest.mark.parametrize("stall", STALLS)
@pytest.mark.parametrize("every", [0.1, 1.0, 2.0, 5.0, 60.0, 300.0])
def test_after_a_stall_a_chore_that_failed_runs_again_within_two_seconds(
    loop: SimulatedLoop, stall: float, every: float
) -> None:
    store = Store(600.5, 600.5 + stall)

    async def story() -> None:
        await run_for(700 + 2 * every, Chore("x", every, store.ask, share=20))

    loop.run_until_complete(story())
    back = min(each for each in store.answered if each >= store.end)
    due = max(each for each in store.answered if each < store.start) + every
    assert back - max(store.end, due) <= 2.0


@pytest.mark.parametrize("stall", [1.0, 5.0, 9.9])
@pytest.mark.parametrize("every", [0.1, 1.0, 2.0, 5.0])
def test_a_chore_that_waited_for_the_store_runs_again_as_usual(
    loop: SimulatedLoop, stall: float, every: float
) -> None:  # fmt: skip
    store = Store(600.5, 600.5 + stall)

    async def story() -> None:
        await run_for(650, Chore("x", every, store.ask, share=20))

    loop.run_until_complete(story())
    after = [each for each in store.answered if each >= store.end]
    assert all(later - earlier <= every + 0.01 for earlier, later in itertools.pairwise(after))


def test_a_chore_that_always_takes_long_pauses(loop: SimulatedLoop) -> None:
    began: list[float] = []

    async def work() -> None:
        began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.25)

    async def story() -> None:
        await run_for(100, Chore("x", 0.1, work, share=20))

    loop.run_until_complete(story())
    pauses = [later - earlier - 0.25 for earlier, later in itertools.pairwise(began)]
    assert pauses[:2] == pytest.approx([0.1, 5.0])
    assert set(map(round, pauses[1:])) == {5}


@pytest.mark.parametrize("stall", STALLS)
def test_the_heartbeat_never_pauses(loop: SimulatedLoop, stall: float) -> None:
    store = Store(60.5, 60.5 + stall)

    async def story() -> None:
        await run_for(200, Chore("heartbeat", 2.0, store.ask))

    loop.run_until_complete(story())
    after = [each for each in store.answered if each >= store.end]
    assert after[0] - store.end <= 2.0
    assert all(later - earlier <= 2.01 for earlier, later in itertools.pairwise(after))


@pytest.mark.parametrize(
    ("every", "took", "failed", "share", "expected"),
    [
        (1.0, 0.01, False, 20.0, 1.0),
        (0.1, 0.2, False, 20.0, 4.0),
        (0.1, 10.0, False, 20.0, 10.0),
        (60.0, 10.0, False, 20.0, 60.0),
        (2.0, 10.0, False, 0.0, 2.0),
        (0.1, 10.0, True, 20.0, 0.5),
        (60.0, 10.0, True, 20.0, 1.0),
        (3600.0, 0.0, True, 0.0, 1.0),
    ],
)
def test_pauses(every: float, took: float, failed: bool, share: float, expected: float) -> None:
    assert pause(every, took, failed=failed, share=share) == pytest.approx(expected)


def test_one_without_progress_is_stuck_and_others_are_not(loop: SimulatedLoop) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    async def long_but_alive() -> None:
        while True:
            await asyncio.sleep(5)
            repeat.progress()

    async def fail() -> None:
        raise RuntimeError("a defect")

    async def work() -> None:
        pass

    works: dict[str, Callable[[], Awaitable[Any]]] = {
        "hangs": hang, "alive": long_but_alive, "fails": fail, "rare": work, "works": work,
    }  # fmt: skip

    async def story() -> tuple[list[str], list[str]]:
        chores = Chores()
        for name, each in works.items():
            chores.start(Chore(name, 3600.0 if name == "rare" else 1.0, each))
        running = asyncio.create_task(chores.run())
        await asyncio.sleep(10)
        early = chores.stuck()
        await asyncio.sleep(90)
        late = chores.stuck()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return early, late

    early, late = loop.run_until_complete(story())
    assert (early, late) == ([], ["hangs", "fails"])
    assert CHORE_IDLE.labels("hangs")._value.get() >= 90
    assert CHORE_IDLE.labels("works")._value.get() <= 1.0
    assert CHORE_FAILURES.labels("fails")._value.get() == 10  # after 1, 2, 4, 8 and then always 16 seconds


class Writes:
    """Notes when each run begins and ends. A run takes a second."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, float]] = []

    async def work(self) -> None:
        self._note("begin")
        await asyncio.sleep(1.0)
        self._note("end")

    def _note(self, what: str) -> None:
        self.noted.append((what, asyncio.get_running_loop().time()))


def test_one_chore_goes_on_when_the_others_are_cancelled(loop: SimulatedLoop) -> None:
    kept, other = Writes(), Writes()

    async def story() -> None:
        chores, chore = Chores(), Chore("kept", 9.0, kept.work)
        chores.start(chore)
        chores.start(Chore("other", 9.0, other.work))
        running = asyncio.create_task(chores.run())
        await asyncio.sleep(5)
        await chores.cancel_except(chore)
        chore.hurry()
        await asyncio.sleep(100.5)
        await chores.finish(5.0)
        await asyncio.sleep(100)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    loop.run_until_complete(story())
    assert other.noted == [("begin", 0), ("end", 1)]
    assert kept.noted[:4] == [("begin", 0), ("end", 1), ("begin", 5), ("end", 6)]
    assert kept.noted[-2:] == [("begin", 105), ("end", 106)]


def test_chores_finish_within_the_given_time(loop: SimulatedLoop) -> None:
    """Those that pause end at once."""
    writes = Writes()

    async def hang() -> None:
        await asyncio.Event().wait()

    async def story() -> tuple[float, float]:
        chores = Chores()
        await chores.finish(5.0)
        chores.start(Chore("writes", 60.0, writes.work))
        await asyncio.sleep(10)
        await chores.finish(5.0)
        at_once = loop.time()
        chores.start(Chore("hangs", 60.0, hang))
        await asyncio.sleep(10)
        await chores.finish(5.0)
        return at_once, loop.time()

    assert loop.run_until_complete(story()) == (10, 25)
    assert len(writes.noted) == 2
