"""Calls that are shared: one call for callers at the same time, also if it fails or one of them is cancelled."""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gatepost_client.shared_call import SharedCall
from tests.waiting import LIMIT


class Slow:
    """A function that waits until it may return, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.started, self.may_return = threading.Event(), threading.Event()

    def __call__(self) -> int:
        self.calls += 1
        self.started.set()
        assert self.may_return.wait(LIMIT)
        if self.calls == 1:
            raise LookupError("the first call fails")
        return self.calls


def test_threads_share_a_call_and_its_exception() -> None:
    slow = Slow()
    shared = SharedCall(slow)
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(shared)
        assert slow.started.wait(LIMIT)
        assert shared.in_progress
        others = [pool.submit(shared) for _ in range(4)]
        slow.may_return.set()
        errors = [future.exception(LIMIT) for future in (first, *others)]
    assert isinstance(errors[0], LookupError)
    assert slow.calls == 1 + sum(error is None for error in errors), "a late caller makes a call of its own"
    assert shared() == slow.calls
    assert not shared.in_progress


def test_a_cancelled_caller_does_not_cancel_the_others() -> None:
    async def run() -> int:
        slow = Slow()
        slow.calls = 1
        shared = SharedCall(slow)
        first, second = asyncio.create_task(shared.call_async()), asyncio.create_task(shared.call_async())
        await asyncio.to_thread(slow.started.wait, LIMIT)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        slow.may_return.set()
        return await second

    assert asyncio.run(run()) == 2


def test_callers_do_not_wait_for_a_call_that_could_not_start() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        pool = ThreadPoolExecutor(1)
        pool.shutdown()
        loop.set_default_executor(pool)
        shared = SharedCall(lambda: 1)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="shutdown"):
                await shared.call_async()

    asyncio.run(run())
