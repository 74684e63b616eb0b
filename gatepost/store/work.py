"""Work: one unit on its way to a commit, and how its caller learns the outcome. Shared by both stores."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from gatepost.core.errors import Unavailable
from gatepost.store.tx import Ahead, Unit, Wants

T = TypeVar("T")
Watch = Callable[[int, float, list[str]], None]  # told of each commit: its units, its seconds, its entries' types


def not_watched(_units: int, _seconds: float, _types: list[str]) -> None: ...


PATIENCE = 10.0  # seconds a caller waits for its commit
ENOUGH = 200  # units: no more are waited for


class Work:
    """A unit, and either the future of an event loop or a lock that a plain thread waits on."""

    __slots__ = ("ahead", "done", "error", "future", "last_of", "left", "loop", "result", "unit", "wants")

    def __init__(self, unit: Unit[Any], future: asyncio.Future[Any] | None = None) -> None:
        self.unit = unit
        self.future = future
        self.loop = future.get_loop() if future else None
        self.done = None if future else threading.Event()
        self.left = False  # the caller went away: a unit not yet begun is not run
        self.ahead: Ahead | None = None
        self.wants: Wants | None = None  # what it will ask for, to be read for many at once
        self.last_of: Gathering | None = None
        self.result: Any = None
        self.error: Exception | None = None

    def fail(self, error: BaseException) -> None:
        """What the caller will see raised. No future takes a StopIteration, and no unit ends the caller's process."""
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            self.error = error
        else:
            self.error = RuntimeError(f"a unit raised {error!r}")
            self.error.__cause__ = error


def settle(works: Iterable[Work]) -> None:
    """Tell every caller. One call into each event loop, however many of its units were in the commit."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Work]] = {}
    for work in works:
        if work.done is not None:
            work.done.set()
        elif work.loop is not None:
            by_loop.setdefault(work.loop, []).append(work)
    for loop, settled in by_loop.items():
        with suppress(RuntimeError):  # a loop that was closed: nobody waits there any more
            loop.call_soon_threadsafe(resolve, settled)


def resolve(works: list[Work]) -> None:
    """In the event loop itself."""
    for work in works:
        future = work.future
        if future is not None and not future.done():
            if work.error is None:
                future.set_result(work.result)
            else:
                future.set_exception(work.error)
        if work.last_of is not None:
            work.last_of.ended()
            work.last_of = None


class Gathering:
    """Collects the units of one event loop while the batch before is being committed, and hands them over together.

    Threads of one process share one interpreter lock: a commit of many units costs it little more than one of few.
    Whatever becomes of a batch, its last unit must be settled: nothing more is handed over before.
    """

    def __init__(self, hand_over: Callable[[list[Work]], None], loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._hand_over = hand_over
        self._loop = loop
        self._waiting: list[Work] = []
        self._waiting_timer: asyncio.TimerHandle | None = None
        self._under_way: list[Work] = []
        self._timer: asyncio.TimerHandle | None = None

    def of(self, loop: asyncio.AbstractEventLoop) -> "Gathering":
        """This one, or a new one for another loop: one that ended with units under way will not hear of their end."""
        return self if loop is self._loop else Gathering(self._hand_over, loop)

    def add(self, work: Work) -> None:
        self._waiting.append(work)
        if len(self._waiting) == 1 and self._loop is not None:
            self._waiting_timer = self._loop.call_later(PATIENCE, self._give_up, self._waiting)
            if not self._under_way:
                self._loop.call_soon(self._wait_for_more, self._loop, 0)

    def _wait_for_more(self, loop: asyncio.AbstractEventLoop, before: int) -> None:
        """As long as each turn of the loop brings some: nobody who is alone waits for more than one turn."""
        if before < len(self._waiting) < ENOUGH:
            loop.call_soon(self._wait_for_more, loop, len(self._waiting))
        else:
            self._begin()

    def _begin(self) -> None:
        if self._waiting and not self._under_way:
            self._under_way, self._waiting = self._waiting, []
            self._timer = self._waiting_timer
            self._under_way[-1].last_of = self
            self._hand_over(self._under_way)

    def ended(self) -> None:
        """Called in the event loop when the last unit of the batch is settled, and nearly always all of them."""
        if self._timer is not None and all(work.future is None or work.future.done() for work in self._under_way):
            self._timer.cancel()
        self._under_way = []
        if self._waiting and self._loop is not None:
            self._loop.call_soon(self._wait_for_more, self._loop, 0)

    def _give_up(self, works: list[Work]) -> None:
        """These waited long enough. If they were not even handed over, who comes next waits anew."""
        if works is self._waiting:
            self._waiting = []
        _expire(works)


def _expire(works: Iterable[Work]) -> None:
    for work in works:
        if work.future is not None and not work.future.done():
            work.future.set_exception(Unavailable("the store did not answer in time"))


async def waited(work: Work) -> Any:
    """The result of a gathered unit, or `Unavailable` when the commit takes too long."""
    if work.future is None:
        raise TypeError("this work has no event loop")
    try:
        return await work.future
    finally:
        work.left = True


async def waited_alone(work: Work) -> Any:
    """The same for a unit that was not gathered."""
    timer = asyncio.get_running_loop().call_later(PATIENCE, _expire, [work])
    try:
        return await waited(work)
    finally:
        timer.cancel()


def waited_here(work: Work) -> Any:
    """The same for a plain thread."""
    if work.done is None:
        raise TypeError("this work has an event loop")
    if not work.done.wait(PATIENCE):
        work.left = True
        raise Unavailable("the store did not answer in time")
    if work.error is not None:
        raise work.error
    return work.result
