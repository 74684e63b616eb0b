"""Concurrent work with a fair share for each owner. No I/O; belongs to one thread.

An owner whose work takes long uses up its own share and no other's: what it adds beyond that waits for its own work.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable

_EXAMINED = 2000  # works of one owner, to find one that may start


class Work:
    """Something to be started when its turn comes. `limits` are further names that it counts under, with the most."""

    __slots__ = ("limits", "owner", "running", "start")

    def __init__(self, owner: str, start: Callable[[], None], *limits: tuple[Hashable, int]) -> None:
        self.owner = owner
        self.start = start
        self.limits = limits
        self.running = False


class FairQueue:
    """At most `in_all` at a time, and `for_one` for each owner.

    An owner gets at most a quarter of the places that are free at that moment, but at least one. So a few owners
    together do not fill the queue, and whoever comes next finds a place.
    """

    def __init__(self, *, in_all: int, for_one: int) -> None:
        self._in_all = in_all
        self._for_one = for_one
        self._running = 0
        self._by_owner: Counter[str] = Counter()
        self._by_limit: Counter[Hashable] = Counter()
        self._waiting: dict[str, deque[Work]] = {}  # in the order in which owners take turns

    def add(self, work: Work) -> None:
        """Start it now, or when its turn comes."""
        self._waiting.setdefault(work.owner, deque()).append(work)
        self._start_some()

    def done(self, work: Work) -> None:
        """It is over, or was never started and is not needed any more."""
        if work.running:
            work.running = False
            self._count(work, -1)
        elif work in self._waiting.get(work.owner, ()):
            self._waiting[work.owner].remove(work)
            self._tidy(work.owner)
        self._start_some()

    def _start_some(self) -> None:
        started = True
        while started and self._running < self._in_all:
            started = False
            for owner in list(self._waiting):
                work = self._next(owner)
                if work is None:
                    continue
                self._waiting[owner].remove(work)
                self._waiting[owner] = self._waiting.pop(owner)  # its next turn comes after the others'
                self._tidy(owner)
                work.running = True
                self._count(work, 1)
                work.start()
                started = True

    def _next(self, owner: str) -> Work | None:
        free = self._in_all - self._running
        if not free or self._by_owner[owner] >= min(self._for_one, max(1, free // 4)):
            return None
        waiting = self._waiting.get(owner, ())
        for _, work in zip(range(_EXAMINED), waiting, strict=False):
            if all(self._by_limit[name] < most for name, most in work.limits):
                return work
        return None

    def _tidy(self, owner: str) -> None:
        if not self._waiting[owner]:
            del self._waiting[owner]

    def _count(self, work: Work, step: int) -> None:
        self._running += step
        self._by_owner[work.owner] += step
        if not self._by_owner[work.owner]:
            del self._by_owner[work.owner]
        for name, _ in work.limits:
            self._by_limit[name] += step
            if not self._by_limit[name]:
                del self._by_limit[name]
