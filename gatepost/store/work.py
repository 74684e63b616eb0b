"""Work: a unit on its way to a commit, and how its caller learns the outcome. Shared by both stores."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from gatepost.core import clock
from gatepost.core.errors import GatepostError, Unavailable
from gatepost.store.transaction import NO_HINTS, Hints, Precomputed, Unit

T = TypeVar("T")
OnCommit = Callable[[int, float, list[str]], None]  # called after each commit: units, seconds, labels


def ignore_commit(_units: int, _seconds: float, _types: list[str]) -> None:
    """Do nothing after a commit."""


PATIENCE = 10.0  # seconds that a caller waits for its commit
ENOUGH = 200  # units: with so many, a commit starts without waiting for more


class Work:
    """A unit, and either the future of an event loop or a lock that a plain thread waits on."""

    __slots__ = (
        "done", "error", "expires", "future", "hints", "last_of", "left", "loop", "may_be_done", "on_early_result",
        "precomputed", "result", "unit",
    )  # fmt: skip

    def __init__(self, unit: Unit[Any], future: asyncio.Future[Any] | None = None, hints: Hints = NO_HINTS) -> None:
        self.unit = unit
        self.hints = hints
        self.future = future
        self.loop = future.get_loop() if future else None
        self.done = None if future else threading.Event()
        self.left = False  # the caller no longer waits: the unit is not run, or not committed
        self.expires = clock.elapsed() + PATIENCE  # when the caller stops waiting at the latest
        self.may_be_done = False  # a commit of the unit failed with an unknown outcome
        self.precomputed: Precomputed | None = None
        self.on_early_result = hints.on_early_result
        self.last_of: Gathering | None = None
        self.result: Any = None
        self.error: Exception | None = None

    def fail(self, error: BaseException) -> None:
        """Set the error that the caller gets. A future takes no StopIteration, and a unit must not end the process."""
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            self.error = error
        else:
            self.error = RuntimeError(f"a unit raised {error!r}")
            self.error.__cause__ = error

    def use_early(self) -> None:
        """Call `on_early_result` once the result is known. While a commit is under way, the event loop has time."""
        result = self.precomputed.result if self.precomputed is not None else self.result
        if self.on_early_result is not None and result is not None:
            on_early_result, self.on_early_result = self.on_early_result, None
            with suppress(Exception):  # the caller does the same after the commit, and then it counts
                on_early_result(result)


class _Abandoned(GatepostError):
    """The callers of a commit have left, so nothing is written."""


def check_callers(works: Iterable[Work]) -> None:
    """Raise an error if no caller waits for the commit of these units any more.

    Plain threads are not considered, because a command may take longer than it waits. Neither are units that may be
    done: callers who try again profit from what the repetition writes.
    """
    if all(work.left and work.future is not None and not work.may_be_done for work in works):
        raise _Abandoned("no caller waits for this commit any more")


def use_early(works: Iterable[Work]) -> None:
    """Use the results of units that ran in this thread, in their event loops."""
    _call_in_loops(_use_all, [work for work in works if work.on_early_result is not None and work.precomputed is None])


def settle(works: Iterable[Work]) -> None:
    """Wake every caller, with one call for each event loop."""
    waiting = []
    for work in works:
        if work.done is not None:
            work.done.set()
        else:
            waiting.append(work)
    _call_in_loops(resolve, waiting)


def _call_in_loops(function: Callable[[list[Work]], None], works: list[Work]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Work]] = {}
    for work in works:
        if work.loop is not None:
            by_loop.setdefault(work.loop, []).append(work)
    for loop, of_loop in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed, so nothing waits there
            loop.call_soon_threadsafe(function, of_loop)


def _use_all(works: list[Work]) -> None:
    """Use early results one after the other, which is faster than between other work."""
    for work in works:
        work.use_early()


def resolve(works: list[Work]) -> None:
    """Resolve futures. Runs in their event loop."""
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


def leave_batch(works: Iterable[Work]) -> None:
    """Let the next batch start without waiting for these units, which run by themselves and may wait for a lock."""
    for work in works:
        batch, work.last_of = work.last_of, None
        if batch is not None and work.loop is not None:
            with suppress(RuntimeError):  # the loop was closed, so nothing waits there
                work.loop.call_soon_threadsafe(batch.ended)


class Gathering:
    """Collects the units of one event loop while the previous batch commits, and then hands them over together.

    A commit of many units costs little more than one of a few. The next batch starts when the last unit of the previous
    one is settled, so every batch must be settled to its end.
    """

    def __init__(self, hand_over: Callable[[list[Work]], None], loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._hand_over = hand_over
        self._loop = loop
        self._waiting: list[Work] = []
        self._waiting_timer: asyncio.TimerHandle | None = None
        self._under_way: list[Work] = []
        self._early: list[Work] = []  # added in this iteration of the loop, while a batch is under way
        self._timer: asyncio.TimerHandle | None = None
        self._alone = False  # the previous batch was a single unit, so probably no others are about to come

    def of(self, loop: asyncio.AbstractEventLoop) -> "Gathering":
        """This one, or a new one if it belongs to another loop, which may have been closed with units under way."""
        return self if loop is self._loop else Gathering(self._hand_over, loop)

    def add(self, work: Work) -> None:
        self._waiting.append(work)
        if len(self._waiting) == 1 and self._loop is not None:
            self._waiting_timer = self._loop.call_later(PATIENCE, self._give_up, self._waiting)
            if not self._under_way and self._alone:
                self._begin()
            elif not self._under_way:
                self._loop.call_soon(self._wait_for_more, self._loop, 0)
        if self._under_way and self._loop is not None:
            if not self._early:
                self._loop.call_soon(self._use_early)
            self._early.append(work)

    def _use_early(self) -> None:
        early, self._early = self._early, []
        _use_all(early)

    def _wait_for_more(self, loop: asyncio.AbstractEventLoop, before: int) -> None:
        """Wait as long as each turn of the loop brings more units. A single unit waits for one turn."""
        if before < len(self._waiting) < ENOUGH:
            loop.call_soon(self._wait_for_more, loop, len(self._waiting))
        else:
            self._begin()

    def _begin(self) -> None:
        if self._waiting and not self._under_way:
            self._under_way, self._waiting = self._waiting, []
            self._alone = len(self._under_way) == 1
            self._timer = self._waiting_timer
            self._under_way[-1].last_of = self
            self._hand_over(self._under_way)
            _use_all(self._under_way)

    def ended(self) -> None:
        """Called in the event loop when the last unit of the batch is settled, or runs by itself.

        Nearly always all of them are settled then. Otherwise the timer is still needed.
        """
        if self._timer is not None and all(work.future is None or work.future.done() for work in self._under_way):
            self._timer.cancel()
        self._under_way = []
        if self._waiting and self._loop is not None:
            self._loop.call_soon(self._wait_for_more, self._loop, 0)

    def _give_up(self, works: list[Work]) -> None:
        """Fail units that waited for too long, and drop them if they were not handed over yet."""
        if works is self._waiting:
            self._waiting = []
        _expire(works)


def _expire(works: Iterable[Work]) -> None:
    for work in works:
        if work.future is not None and not work.future.done():
            work.future.set_exception(Unavailable("the store did not answer in time"))


async def wait_for(work: Work) -> Any:
    """The result of a unit that was added to a `Gathering`. Raises `Unavailable` if the commit takes too long."""
    if work.future is None:
        raise TypeError("this work was created without an event loop")
    try:
        return await work.future
    finally:
        work.left = True


async def wait_for_single(work: Work) -> Any:
    """The same for a unit that was handed over by itself."""
    timer = asyncio.get_running_loop().call_later(PATIENCE, _expire, [work])
    try:
        return await wait_for(work)
    finally:
        timer.cancel()


def wait_in_thread(work: Work) -> Any:
    """The same for a caller that is a thread."""
    if work.done is None:
        raise TypeError("this work belongs to an event loop")
    if not work.done.wait(PATIENCE):
        work.left = True
        raise Unavailable("the store did not answer in time")
    if work.error is not None:
        raise work.error
    return work.result
