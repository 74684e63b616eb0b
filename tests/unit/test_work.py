"""How units of one event loop are gathered into batches."""

import asyncio

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
