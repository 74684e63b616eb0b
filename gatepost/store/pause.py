"""A pause of the event loop while a thread of the store works for it.

Two threads that compete for the interpreter lock cost more than the work itself, so the loop stands still while the
thread commits or reads. It never stands still for long: a file system that is frozen or slow must not stop the process.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

LONGEST = 0.05  # seconds


class Pause(Generic[T]):
    """One pause. It ends when the thread has finished, or has to wait for something, or after `LONGEST`."""

    __slots__ = ("_begun", "_end", "_mutex", "_over", "_results", "timed_out")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._end = threading.Lock()
        self._end.acquire()
        self._begun: threading.Event | None = None
        self._over = False
        self._results: list[T] = []
        self.timed_out = False

    def wait(self) -> list[T]:
        """In the event loop: what the thread finished meanwhile."""
        if self._begun is not None:
            self._begun.set()
        self.timed_out = not self._end.acquire(timeout=LONGEST)
        with self._mutex:
            self._over = True
            return self._results

    def end(self, results: list[T]) -> bool:
        """In the thread: let the loop go on with these. False when it already does, and has to be told otherwise."""
        with self._mutex:
            if self._over:
                return False
            self._over = True
            self._results = results
        self._end.release()
        return True

    def request(self, schedule: Callable[[], object]) -> None:
        """In the thread: have the loop begin the pause, and wait until it does, or has something else to do."""
        self._begun = threading.Event()
        schedule()
        self._begun.wait(LONGEST)
