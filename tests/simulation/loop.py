"""An event loop in virtual time, and simulated processes that can crash or freeze at any await.

No real time passes: if no callback is ready, the clock moves to the next timer. Callbacks run in the order
in which they were scheduled, so a history depends on the seed alone.
"""

import asyncio
import heapq
import itertools
from asyncio import futures
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
MOMENT = 0.02  # seconds: longer than a read or a commit takes
PHASE = 2.0  # seconds after a skipped period, over which sleeping tasks are resumed


class Process:
    """A simulated process. The tasks in its context end when it crashes, and wait while it is frozen."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen_until = 0.0

    def __repr__(self) -> str:
        return f"Process({self.name})"


_current: ContextVar[Process | None] = ContextVar("process", default=None)


def current_process() -> Process | None:
    """Return the process of the current context."""
    return _current.get()


def context_of(process: Process | None) -> Context:
    """Return a context whose tasks belong to the process; with `None`, to no process."""
    context = copy_context()
    context.run(_current.set, process)
    return context


class Handle:
    """A scheduled callback."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "process")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None) -> None:
        self._callback = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self.process = self._context.get(_current)

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled or (self.process is not None and not self.process.alive)

    @property
    def is_sleep(self) -> bool:
        return self._callback is futures._set_result_unless_cancelled  # type: ignore[attr-defined]

    def run(self) -> None:
        self._context.run(self._callback, *self._args)


class VirtualTimeLoop:
    """An event loop with the methods that the primitives of asyncio need: callbacks, timers, futures and tasks."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._numbers = itertools.count()
        self.tasks: list[asyncio.Task[Any]] = []  # referenced, so that tasks of crashed processes are never finalized
        self.errors: list[str] = []
        self._as_loop: Any = self  # asyncio expects its abstract class, which also has sockets

    # --- the interface of an event loop

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        handle = Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        handle = Handle(callback, args, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_loop)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self._as_loop, name=name, context=context)
        self.tasks.append(task)
        if len(self.tasks) > 10_000:
            self.tasks = [each for each in self.tasks if not each.done()]
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Call the function immediately, because there are no threads."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 (the caller handles it)
            future.set_exception(error)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "destroyed" not in context.get("message", ""):
            self.errors.append(f"{context.get('message')}: {error!r}")

    # --- running

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine, outside of all processes, until it is done."""
        asyncio.events._set_running_loop(self._as_loop)
        try:
            task = self.create_task(main, context=context_of(None))
            while not task.done():
                self._step()
            result: T = task.result()
            return result
        finally:
            asyncio.events._set_running_loop(None)

    def _step(self) -> None:
        if not self._ready:
            self._next_timers()
        handle = self._ready.popleft()
        if handle.cancelled():
            return
        process = handle.process
        if process is not None and process.frozen_until > self._now:
            heapq.heappush(self._timers, (process.frozen_until, next(self._numbers), handle))
            return
        handle.run()

    def _next_timers(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise RuntimeError("the simulation is deadlocked: nothing is ready and no timer is set")
        self._now = max(self._now, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(self._timers)[2])

    @property
    def idle(self) -> bool:
        """Return whether all processes sleep or wait for the next moment."""
        soon = self._now + MOMENT
        return not self._ready and not any(
            at < soon and handle.process is not None and not handle.cancelled() for at, _, handle in self._timers
        )

    def skip_to(self, when: float) -> None:
        """Move the clock over a period without events. Timers of this period fire once, late."""
        self._now = max(self._now, when)

    def skip_sleeping_to(self, when: float) -> None:
        """Like `skip_to`, but the sleeping tasks of processes resume at different times after the period."""
        began = self._now
        if when <= began:
            return
        for place, (at, number, handle) in enumerate(self._timers):
            if at < when and handle.is_sleep and handle.process is not None:
                self._timers[place] = (when + min(at - began, PHASE), number, handle)
        heapq.heapify(self._timers)
        self._now = when

    # --- processes

    def start(self, process: Process, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return self.create_task(coroutine, context=context_of(process))
