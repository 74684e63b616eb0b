"""Calls that are shared: one call for callers at the same time, also if it fails or one of them is cancelled."""

import asyncio
import contextlib
import subprocess
import sys
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


# A thread is in a call, and another one holds each of the locks, when the process forks. The child has neither thread.
FORK = """
import os, signal, threading
from gatepost_client.dpop import UsedProofs
from gatepost_client.errors import ApiError
from gatepost_client.shared_call import SharedCall
from gatepost_client.transport import Request, Transport

parent, started, may_return = os.getpid(), threading.Event(), threading.Event()

def function():
    if os.getpid() == parent:
        started.set()
        may_return.wait()
    return os.getpid()

shared, used, transport = SharedCall(function), UsedProofs(), Transport()
thread = threading.Thread(target=shared)
thread.start()
started.wait()
for lock in (shared._lock, used._lock, transport._lock):
    lock.acquire()
child = os.fork()
if child == 0:
    signal.alarm(20)
    assert not shared.in_progress
    assert shared() == os.getpid()
    assert used.use("key", "jti", 0, 0)
    try:
        transport.send(Request("GET", "http://127.0.0.1:1", {}))
    except ApiError:
        os._exit(0)
for lock in (shared._lock, used._lock, transport._lock):
    lock.release()
assert shared.in_progress
may_return.set()
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_child_does_not_wait_for_threads_of_its_parent() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], check=True, timeout=LIMIT)
