"""The open attempts of a worker, and the search for claims that it was not told about.

A commit that the store reported as failed may have succeeded, or may succeed later: a transaction that the worker no
longer waits for can still be committed. Its claims were never sent, and would wait until their lease ends.
"""

import asyncio
import math
from collections.abc import Iterable
from functools import partial

from gatepost.core.logging import log
from gatepost.core.metrics import attempt_counter
from gatepost.store.interface import Store
from gatepost.store.pending import Key
from gatepost.webhooks import queue_rows, recover
from gatepost.webhooks.claim import LEASE, Claim
from gatepost.webhooks.schedule import SLOTS

_FIRST_PAUSE = 1.0  # seconds between the first two searches; each further pause is twice as long, up to the lease
_RELEASED_AT_ONCE = 128


class OpenClaims:
    """The open attempts that the worker knows. It sends only these, so it has never sent any other."""

    def __init__(self, store: Store, worker: bytes) -> None:
        self._store = store
        self._worker = worker
        self._numbers: dict[Key, int] = {}  # of the known attempts, by delivery
        self._loop = asyncio.get_running_loop()
        self._search_at = math.inf  # by the loop's clock
        self._pause = 0.0

    def add(self, claims: Iterable[Claim]) -> None:
        """Claims were committed, and are sent now."""
        for claim in claims:
            self._numbers[claim.key] = claim.number

    def remove(self, claims: Iterable[Claim]) -> None:
        """The attempts of these claims are settled."""
        for claim in claims:
            if self._numbers.get(claim.key) == claim.number:
                del self._numbers[claim.key]

    def commit_failed(self) -> None:
        """A commit with claims was reported as failed. Search for them now, and again while they may still appear."""
        self._search_at, self._pause = self._loop.time(), _FIRST_PAUSE

    @property
    def search_due(self) -> bool:
        """Whether to call `release_unknown` before the next claim."""
        return self._loop.time() >= self._search_at

    async def release_unknown(self) -> int:
        """Release the open attempts of this worker that it does not know. Returns how many there were.

        While a commit is under way, the worker does not know its claims yet, but will send them. So none may be.
        """
        open_ = await self._store.read(lambda tx: queue_rows.open_attempts(tx, self._worker, 2 * SLOTS))
        unknown = [
            (queued.key, queued.number) for queued in open_ if self._numbers.get(queued.key) != queued.number
        ]  # fmt: skip
        released = 0
        for start in range(0, len(unknown), _RELEASED_AT_ONCE):
            numbers = dict(unknown[start : start + _RELEASED_AT_ONCE])
            released += await self._store.run(partial(recover.release, worker=self._worker, numbers=numbers))
        if released:
            attempt_counter("not_sent", "").inc(released)
            log.warning("released claims whose commit was reported as failed", deliveries=released)
        self._search_at = self._loop.time() + self._pause if self._pause < LEASE.total_seconds() else math.inf
        self._pause *= 2
        return released
