"""Turns: how many units of one owner may be in the store at once, so that those of others find room there. No I/O.

An owner that is alone fills whole commits. Beside others, an owner may have as many units in the store as the process
prepares in half the time of a commit, or as all others have there or waiting, if that is more. What it adds beyond that
waits for its own units. So a backlog of one owner at most about doubles the time that a unit of another takes.
"""

import asyncio
from collections import deque

from gatepost.core.errors import Unavailable
from gatepost.store import work

MOST = 200  # units in the store: a commit takes no more
LEAST = 8  # units that each owner may have in the store, however short commits are
PREPARED = 1500  # units for each second of a commit: about half of what a process prepares and answers in that time
MOST_PREPARED = 32  # units, because a commit also takes long if the processor is busy
_WEIGHT = 0.1  # of the last commit in the average duration
RECENT = 1.0  # seconds: an owner that came in this time, or in as much time before it, is beside the others


class Turns:
    """The turns of one event loop. The owner "" stands for all that are not known yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._commit_seconds = 0.0  # on average
        self._units = 0  # in the store or waiting
        self._in_store: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._owners = 0  # that came recently and are known
        self._recent: set[str] = set()
        self._before: set[str] = set()
        self._recent_ends = 0.0

    def of(self, loop: asyncio.AbstractEventLoop) -> "Turns":
        """This one, or a new one if it belongs to another loop, which may have been closed with units in the store."""
        return self if loop is self._loop else Turns(loop)

    def enter(self, owner: str | None, now: float) -> bool:
        """Whether a unit may enter the store now. If not, `wait` must follow. A unit that takes no turns always may."""
        if owner is None:
            return True
        if now >= self._recent_ends or owner not in self._recent:
            self._note(owner, now)
        count = self._in_store.get(owner, 0)
        self._units += 1
        if owner in self._waiting or count >= self._share(owner, count + 1):
            return False
        self._in_store[owner] = count + 1
        return True

    async def wait(self, owner: str | None) -> None:
        """Wait for the turn of a unit. Raises `Unavailable` if it takes too long."""
        if owner is None:
            return
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        timer = loop.call_later(work.PATIENCE, _expire, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # its turn had come meanwhile
                self.leave(owner)
            raise
        finally:
            timer.cancel()

    def leave(self, owner: str | None) -> None:
        """A unit that entered has left the store. The next ones of its owner enter."""
        if owner is None:
            return
        self._units -= 1
        count = self._in_store.pop(owner) - 1
        waiting = self._waiting.get(owner)
        if waiting is not None:
            while waiting and count < self._share(owner, count + len(waiting)):
                turn = waiting.popleft()
                if turn.done():  # its caller no longer waits
                    self._units -= 1
                else:
                    turn.set_result(None)
                    count += 1
            if not waiting:
                del self._waiting[owner]
        if count:
            self._in_store[owner] = count

    def committed(self, seconds: float) -> None:
        """A commit took so long. Called in a thread of the store, or in the event loop."""
        self._commit_seconds += _WEIGHT * (seconds - self._commit_seconds)

    def _share(self, owner: str, of_owner: int) -> int:
        """How many units of the owner may be in the store, if it has so many there or waiting."""
        if owner and self._owners <= 1:
            return MOST
        prepared = min(int(PREPARED * self._commit_seconds), MOST_PREPARED)
        return max(LEAST, min(max(prepared, self._units - of_owner), MOST // max(2, self._owners)))

    def _note(self, owner: str, now: float) -> None:
        """Note that the owner came. Unknown ones do not count, since anyone can send requests."""
        if now >= self._recent_ends:
            self._before, self._recent = self._recent if now < self._recent_ends + RECENT else set(), set()
            self._recent_ends = now + RECENT
            self._owners = len(self._before)
        if owner and owner not in self._recent:
            self._recent.add(owner)
            self._owners += owner not in self._before


def _expire(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_exception(Unavailable("the store did not answer in time"))
