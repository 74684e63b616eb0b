"""How units of one event loop are gathered into batches."""

import asyncio

from gatepost.store.pending import PendingWrites
from gatepost.store.transaction import Hints, Precomputed
from gatepost.store.work import Gathering, Work, resolve


class Store:
    """Keeps the batches that were handed over, in the order of their units' names."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.batches: list[list[Work]] = []
        self.gathering = Gathering(self.batches.append, self.loop)

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            self.gathering.add(Work(lambda tx: tx, self.loop.create_future()))

    def settle(self) -> None:
        resolve(self.batches[-1])

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def gather_in_turn() -> None:
    store = Store()
    store.add()
    assert store.sizes == []
    await asyncio.sleep(0)
    store.add(2)
    await turns()
    assert store.sizes == [3]
    store.add(4)
    await turns()
    assert store.sizes == [3], "a batch is under way"
    store.settle()
    await turns()
    assert store.sizes == [3, 4]


def test_units_that_come_in_the_same_turns_share_a_batch() -> None:
    asyncio.run(gather_in_turn())


async def one_after_the_other() -> None:
    store = Store()
    store.add()
    await turns()
    store.settle()
    store.add()
    assert store.sizes == [1, 1], "the second one did not wait for a turn of the loop"
    store.add(5)
    await turns()
    store.settle()
    await turns()
    assert store.sizes == [1, 1, 5], "units that came meanwhile share the next batch"
    store.settle()
    store.add()
    assert store.sizes == [1, 1, 5], "after a batch of several, a unit waits for others"
    await turns()
    assert store.sizes == [1, 1, 5, 1]


def test_a_unit_after_a_single_one_is_handed_over_at_once() -> None:
    asyncio.run(one_after_the_other())


async def use_early() -> None:
    store, used = Store(), list[str]()

    def add(name: str) -> None:
        work = Work(lambda tx: tx, store.loop.create_future(), Hints(on_early_result=used.append))
        work.precomputed = Precomputed(object(), name, PendingWrites())
        store.gathering.add(work)

    add("first")
    await turns()
    assert used == ["first"], "its commit is under way"
    add("second")
    add("third")
    assert used == ["first"], "others may come in this turn of the loop"
    await asyncio.sleep(0)
    assert used == ["first", "second", "third"], "while they wait for their commit"
    store.settle()
    await turns()
    assert store.sizes == [1, 2]
    assert used == ["first", "second", "third"], "each result is used once"


def test_early_results_are_used_together_at_the_end_of_a_turn() -> None:
    asyncio.run(use_early())
