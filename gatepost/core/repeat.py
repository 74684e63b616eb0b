"""Chores: work that a process repeats for as long as it runs. When each runs again, and which of them are stuck."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from gatepost.core.errors import Unavailable
from gatepost.core.logging import log
from gatepost.core.metrics import CHORE_FAILURES, CHORE_IDLE

AGAIN = 1.0  # seconds: no chore waits longer after a failure
SOONEST = 0.5  # nor less, however often it runs otherwise
LONGEST_PAUSE = 10.0  # after a run that succeeded and took long, unless the chore is rarer than that
STUCK = 15.0  # seconds without progress beyond its interval
REPORT_EVERY = 1.0

_current: ContextVar["Chore | None"] = ContextVar("chore", default=None)


def pause(every: float, took: float, *, failed: bool, share: float) -> float:
    """Seconds until the next run, which takes at most one part in `share` of the time; 0 if it may take all of it.

    How long a failed run took says nothing about the next: the store stalled, and may be back.
    """
    if failed:
        return min(AGAIN, max(every, SOONEST))
    return max(every, min(share * took, LONGEST_PAUSE))


def progress() -> None:
    """Say that the chore that runs is not stuck, though it takes long."""
    chore = _current.get()
    if chore is not None:
        chore.progress_at = asyncio.get_running_loop().time()


class Chore:
    """One chore: `share` as for `pause`."""

    def __init__(self, name: str, every: float, work: Callable[[], Awaitable[None]], *, share: float = 0.0) -> None:
        self.name = name
        self.progress_at = asyncio.get_running_loop().time()
        self._every = every
        self._work = work
        self._share = share
        self._failing = False

    async def repeat(self) -> None:
        """Until cancelled. A failure is logged when it begins and when it is over."""
        loop = asyncio.get_running_loop()
        _current.set(self)
        while True:
            began = loop.time()
            failed = not await self._run()
            await asyncio.sleep(pause(self._every, loop.time() - began, failed=failed, share=self._share))

    async def _run(self) -> bool:
        try:
            await self._work()
        except Unavailable as error:
            if not self._failing:
                log.warning("chore postponed", chore=self.name, error=str(error))
        except Exception:  # noqa: BLE001 (whatever it was, it is tried again and the others go on)
            if not self._failing:
                log.exception("chore failed", chore=self.name)
        else:
            progress()
            if self._failing:
                log.info("chore works again", chore=self.name)
            self._failing = False
            return True
        self._failing = True
        CHORE_FAILURES.labels(self.name).inc()
        return False

    def idle(self, now: float) -> float:
        """Seconds since it last finished or made progress."""
        return now - self.progress_at

    def stuck(self, now: float) -> bool:
        return self.idle(now) > self._every + STUCK


class Chores:
    """All chores of one process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._chores: list[Chore] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, chore: Chore) -> None:
        self._chores.append(chore)
        self._tasks.append(asyncio.create_task(chore.repeat(), name=chore.name))

    async def run(self) -> None:
        """Until cancelled: then all of them are."""
        try:
            while True:
                now = self._loop.time()
                for each in self._chores:
                    CHORE_IDLE.labels(each.name).set(each.idle(now))
                await asyncio.sleep(REPORT_EVERY)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def stuck(self) -> list[str]:
        now = self._loop.time()
        return [each.name for each in self._chores if each.stuck(now)]
