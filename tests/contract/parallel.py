"""Functions that run units of work concurrently, in one event loop or in several threads, with a time limit."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import uvloop

from gatepost.ledger import seal_rows
from gatepost.store.interface import Store
from gatepost.store.transaction import NO_HINTS, Hints, Tx, Unit
from tests.waiting import LIMIT

T = TypeVar("T")
LONG = LIMIT


def run(stores: Store | Sequence[Store], units: Iterable[Unit[T]], hints: Hints = NO_HINTS) -> list[Any]:
    """Submit all units at once, to the stores in turn. Returns the result of each unit or its exception."""
    used = stores if isinstance(stores, Sequence) else [stores]

    async def run_all() -> list[Any]:
        async with asyncio.timeout(LONG):
            running = [
                asyncio.ensure_future(used[number % len(used)].run(unit, hints)) for number, unit in enumerate(units)
            ]
            return await asyncio.gather(*running, return_exceptions=True)

    return uvloop.run(run_all())


def run_in_one_batch(store: Store, units: Sequence[Unit[T]], hints: Hints = NO_HINTS) -> list[Any]:
    """Like `run`, but the store is busy while the units are submitted, so that they share a commit if they can."""

    async def run_all() -> list[Any]:
        async with asyncio.timeout(LONG):
            first = Busy()
            busy = asyncio.ensure_future(store.run(first, hints))
            await asyncio.to_thread(first.started.wait, LONG)
            running = [asyncio.ensure_future(store.run(unit, hints)) for unit in units]
            await asyncio.sleep(0)
            first.release.set()
            await busy
            return await asyncio.gather(*running, return_exceptions=True)

    return uvloop.run(run_all())


class Busy:
    """A unit that occupies its thread of the store until `release` is set."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.release = threading.Event()

    def __call__(self, tx: Tx) -> None:
        seal_rows.unsealed_accounts(tx)  # is never cached, so no store executes the unit speculatively
        self.started.set()
        self.release.wait(LONG)


def in_threads(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Call all functions at once, each in its own thread, and return their results."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result(LONG) for each in [pool.submit(call) for call in calls]]


def failures(outcomes: Iterable[Any]) -> list[BaseException]:
    """Return the exceptions among the outcomes."""
    return [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
