"""Concurrent work with a fair share for each owner. No I/O; belongs to one thread.

An owner whose work takes long uses up only its own share: what it adds beyond that waits for its own work.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable

_MAX_EXAMINED = 2000  # pieces of work of one owner, to find one that may start


class Work:
    """Work to start when its turn comes. `limits` are further names that it counts towards, with their maximum."""

    __slots__ = ("limits", "owner", "running", "start")

    def __init__(self, owner: str, start: Callable[[], None], *limits: tuple[Hashable, int]) -> None:
        self.owner = owner
        self.start = start
        self.limits = limits
        self.running = False


class FairQueue:
    """Runs at most `total` pieces of work at a time, and at most `per_owner` for each owner.

    An owner gets at most a quarter of the places that are free at that moment, but at least one. So a few owners
    together do not fill the queue, and the next owner finds a free place.
    """

    def __init__(self, *, total: int, per_owner: int) -> None:
        self._total = total
        self._per_owner = per_owner
        self._running = 0
        self._by_owner: Counter[str] = Counter()
        self._by_limit: Counter[Hashable] = Counter()
        self._waiting: dict[str, deque[Work]] = {}  # in the order in which owners take turns

    def add(self, work: Work) -> None:
        """Start the work now, or when its turn comes."""
        self._waiting.setdefault(work.owner, deque()).append(work)
        self._start_next()

    def done(self, work: Work) -> None:
        """The work is finished, or it was never started and is not needed any more."""
        if work.running:
            work.running = False
            self._count(work, -1)
        elif work in self._waiting.get(work.owner, ()):
            self._waiting[work.owner].remove(work)
            self._tidy(work.owner)
        self._start_next()

    def _start_next(self) -> None:
        started = True
        while started and self._running < self._total:
            started = False
            for owner in list(self._waiting):
                work = self._next(owner)
                if work is None:
                    continue
                self._waiting[owner].remove(work)
                self._waiting[owner] = self._waiting.pop(owner)  # to the end of the order
                self._tidy(owner)
                work.running = True
                self._count(work, 1)
                work.start()
                started = True

    def _next(self, owner: str) -> Work | None:
        free = self._total - self._running
        if not free or self._by_owner[owner] >= min(self._per_owner, max(1, free // 4)):
            return None
        waiting = self._waiting.get(owner, ())
        for _, work in zip(range(_MAX_EXAMINED), waiting, strict=False):
            if all(self._by_limit[name] < maximum for name, maximum in work.limits):
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
