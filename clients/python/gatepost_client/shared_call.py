"""One call of a function for all callers that ask at the same time, from threads and from event loops."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from gatepost_client import after_fork

T = TypeVar("T")


class SharedCall(Generic[T]):
    """Calls a function without arguments. Callers that come while a call is in progress get its result or exception."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.reset_after_fork()
        after_fork.register(self)

    def reset_after_fork(self) -> None:
        """Forget the call that is in progress: a child does not have the thread that makes it."""
        self._lock = threading.Lock()
        self._pending: Future[T] | None = None

    @property
    def in_progress(self) -> bool:
        """Whether a call is in progress."""
        return self._pending is not None

    def __call__(self) -> T:
        """Call the function in this thread, or wait for the call that is in progress."""
        future, is_first = self._join()
        if is_first:
            self._run(future)
        return future.result()

    async def call_async(self) -> T:
        """Call the function in a thread, or wait for the call that is in progress without using a thread."""
        future, is_first = self._join()
        if is_first:
            try:
                asyncio.get_running_loop().run_in_executor(None, self._run, future)
            except BaseException as error:  # no thread can be started: the callers must not wait for it
                self._end()
                future.set_exception(error)
                raise
        return await asyncio.wrap_future(future)

    def _join(self) -> tuple[Future[T], bool]:
        with self._lock:
            if self._pending is not None:
                return self._pending, False
            self._pending = Future()
            self._pending.set_running_or_notify_cancel()  # one caller that is cancelled does not cancel the others
            return self._pending, True

    def _run(self, future: "Future[T]") -> None:
        try:
            result = self._function()
        except BaseException as error:  # noqa: BLE001 (all callers get it, this one too)
            self._end()
            future.set_exception(error)
        else:
            self._end()
            future.set_result(result)

    def _end(self) -> None:
        with self._lock:
            self._pending = None
