"""Chores: work that a process repeats while it runs. Decides when a chore runs again, and detects stuck chores."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from gatepost.core.errors import Unavailable
from gatepost.core.logging import log
from gatepost.core.metrics import CHORE_FAILURES, CHORE_IDLE

MAX_RETRY_PAUSE = 1.0  # seconds: the longest pause after a failure
MIN_RETRY_PAUSE = 0.5  # seconds: the shortest pause after a failure
MAX_DEFECT_FACTOR = 16.0  # how many times as long the pause becomes if a chore fails for other reasons than the store
MAX_PAUSE = 10.0  # seconds, after a long run that succeeded, unless the chore runs less often than that
STUCK = 15.0  # seconds without progress beyond its interval
REPORT_EVERY = 1.0

_current: ContextVar["Chore | None"] = ContextVar("chore", default=None)


def pause(every: float, took: float, *, failed: bool, share: float, defects: int = 0) -> float:
    """Return the seconds until the next run. With `share`, the pause is that many times as long as the run took.

    The duration of a failed run says nothing about the next one: the store stalled, and may be available again.
    `defects` is how many runs in a row failed otherwise: then the next one probably fails too, and the pause doubles.
    """
    if failed:
        return min(MAX_RETRY_PAUSE, max(every, MIN_RETRY_PAUSE)) * min(2.0 ** max(0, defects - 1), MAX_DEFECT_FACTOR)
    return max(every, min(share * took, MAX_PAUSE))


def progress() -> None:
    """Report that the running chore is not stuck, although it takes long."""
    chore = _current.get()
    if chore is not None:
        chore.progress_at = asyncio.get_running_loop().time()


class Chore:
    """A chore. `share` has the same meaning as for `pause`."""

    def __init__(self, name: str, every: float, work: Callable[[], Awaitable[None]], *, share: float = 0.0) -> None:
        self.name = name
        self.progress_at = asyncio.get_running_loop().time()
        self._every = every
        self._work = work
        self._share = share
        self._hurried = asyncio.Event()
        self._ended = False
        self._failing = False
        self._defects = 0

    async def repeat(self) -> None:
        """Run until `end` is called, or until cancelled. The first failure and the recovery are logged.

        The pause depends on the shorter one of the last two runs: a single long run may have waited for the store.
        """
        loop = asyncio.get_running_loop()
        _current.set(self)
        last = 0.0
        while not self._ended:
            began = loop.time()
            failed = not await self._run()
            took = loop.time() - began
            shorter, last = min(took, last), 0.0 if failed else took
            await self._pause(pause(self._every, shorter, failed=failed, share=self._share, defects=self._defects))

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurried.wait()
        self._hurried.clear()

    def hurry(self) -> None:
        """End the pause: run now, or once more if the chore is running."""
        self._hurried.set()

    def end(self) -> None:
        """End after the present run, or at once during a pause."""
        self._ended = True
        self._hurried.set()

    async def _run(self) -> bool:
        try:
            await self._work()
        except Unavailable as error:
            self._defects = 0
            if not self._failing:
                log.warning("chore postponed", chore=self.name, error=str(error))
        except Exception:  # noqa: BLE001 (it is retried, and the other chores continue)
            self._defects += 1
            if not self._failing:
                log.exception("chore failed", chore=self.name)
        else:
            progress()
            if self._failing:
                log.info("chore works again", chore=self.name)
            self._failing, self._defects = False, 0
            return True
        self._failing = True
        CHORE_FAILURES.labels(self.name).inc()
        return False

    def idle(self, now: float) -> float:
        """Return the seconds since the chore last finished or made progress."""
        return now - self.progress_at

    def stuck(self, now: float) -> bool:
        return self.idle(now) > self._every + STUCK


class Chores:
    """All chores of one process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Chore, asyncio.Task[None]] = {}

    def start(self, chore: Chore) -> None:
        self._tasks[chore] = asyncio.create_task(chore.repeat(), name=chore.name)

    async def cancel_except(self, chore: Chore) -> None:
        """Cancel all other chores."""
        cancelled = [self._tasks.pop(other) for other in list(self._tasks) if other is not chore]
        for task in cancelled:
            task.cancel()
        await asyncio.gather(*cancelled, return_exceptions=True)

    async def finish(self, seconds: float) -> None:
        """Let the present runs finish, for so long at most, and start no others.

        A chore that is cancelled may still commit what it was about to write.
        """
        for chore in self._tasks:
            chore.end()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)

    async def run(self) -> None:
        """Run until cancelled, and then cancel all chores."""
        try:
            while True:
                now = self._loop.time()
                for chore in self._tasks:
                    CHORE_IDLE.labels(chore.name).set(chore.idle(now))
                await asyncio.sleep(REPORT_EVERY)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def stuck(self) -> list[str]:
        now = self._loop.time()
        return [chore.name for chore in self._tasks if chore.stuck(now)]
