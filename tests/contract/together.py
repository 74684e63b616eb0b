"""Many units at once, from one event loop or several threads, with an end to the waiting."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from gatepost.ledger import seal_rows
from gatepost.store.interface import Store
from gatepost.store.transaction import NO_HINTS, Hints, Tx, Unit
from tests.waiting import LIMIT

T = TypeVar("T")
LONG = LIMIT


def run(stores: Store | Sequence[Store], units: Iterable[Unit[T]], hints: Hints = NO_HINTS) -> list[Any]:
    """The outcome of each unit, all given to the stores (in turn) at once: its result, or what it raised."""
    those = stores if isinstance(stores, Sequence) else [stores]

    async def all_of_them() -> list[Any]:
        async with asyncio.timeout(LONG):
            running = [
                asyncio.ensure_future(those[number % len(those)].run(unit, hints)) for number, unit in enumerate(units)
            ]
            return await asyncio.gather(*running, return_exceptions=True)

    return asyncio.run(all_of_them())


def run_in_one_batch(store: Store, units: Sequence[Unit[T]], hints: Hints = NO_HINTS) -> list[Any]:
    """The same, but the units reach the store while it is busy: they share a commit wherever units may."""

    async def all_of_them() -> list[Any]:
        async with asyncio.timeout(LONG):
            first = Busy()
            busy = asyncio.ensure_future(store.run(first, hints))
            await asyncio.to_thread(first.begun.wait, LONG)
            running = [asyncio.ensure_future(store.run(unit, hints)) for unit in units]
            await asyncio.sleep(0)
            first.over.set()
            await busy
            return await asyncio.gather(*running, return_exceptions=True)

    return asyncio.run(all_of_them())


class Busy:
    """A unit that keeps its thread of the store until it is told that it is over."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.over = threading.Event()

    def __call__(self, tx: Tx) -> None:
        seal_rows.unsealed_accounts(tx)  # something no cache knows, so that no store answers ahead of the transaction
        self.begun.set()
        self.over.wait(LONG)


def in_threads(calls: Sequence[Callable[[], T]]) -> list[T]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result(LONG) for each in [pool.submit(call) for call in calls]]


def failures(outcomes: Iterable[Any]) -> list[BaseException]:
    return [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
