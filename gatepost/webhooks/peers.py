"""The live workers of a deployment: heartbeats, the attempts of dead workers, and which worker owns which endpoint.

A worker considers another one dead only by its own observation: while its own heartbeats succeeded, the heartbeat of
the other one did not change. So no worker looks dead because an outage of the store delayed all heartbeats, or because
a clock was set. A worker that drains goes on with its heartbeat until it leaves: it owns no endpoints any more, but its
open attempts are its own until then.
"""

import asyncio
import hashlib
from functools import partial
from typing import NamedTuple

from gatepost.core import ids
from gatepost.core.logging import log
from gatepost.core.metrics import attempt_counter
from gatepost.store.interface import Store
from gatepost.store.pending import Key
from gatepost.store.transaction import Tx
from gatepost.webhooks import queue_rows, recover, worker_rows
from gatepost.webhooks.schedule import SLOTS
from gatepost.webhooks.worker_rows import Worker as Peer

BEAT_EVERY = 2.0  # seconds
DEAD_AFTER = 10_000  # milliseconds without a heartbeat
MAX_GAP = 5.0  # seconds between two heartbeats of a worker after which its observation of the others starts again
RECOVERED_AT_ONCE = 128


class Observed(NamedTuple):
    """The heartbeat of another worker, and the time since which this worker has seen no other."""

    beat_at: int  # as stored
    since: float  # in the time of the event loop


class Peers:
    """The workers as one of them sees them. `place` identifies a worker across restarts; it may be empty."""

    def __init__(self, store: Store, worker: bytes, place: str) -> None:
        self._store = store
        self._id = worker
        self._place = place
        self._draining = False
        self._owners: list[bytes] = [worker]
        self._observed: dict[bytes, Observed] = {}
        self._last_beat = 0.0  # in the time of the event loop

    def drain(self) -> None:
        """From the next heartbeat on, leave all endpoints to the others."""
        self._draining = True

    async def beat(self) -> bool:
        """Write the heartbeat, and recover the attempts of dead workers. True if the owners of endpoints changed."""

        def unit(tx: Tx) -> list[Peer]:
            worker_rows.beat(tx, self._id, self._place, draining=self._draining)
            return worker_rows.load(tx)

        peers = await self._store.run(unit)
        now = asyncio.get_running_loop().time()
        self._observe(peers, now)
        dead = [peer for peer in peers if self._is_dead(peer, now)]
        for peer in dead:
            total = await self.rescue(peer.id)
            await self._store.run(partial(worker_rows.delete, worker=peer))
            log.warning("rescued a dead worker's deliveries", worker=ids.text("wrk", peer.id), attempts=total)
        owners = sorted(peer.id for peer in peers if peer not in dead and not peer.draining)
        changed, self._owners = owners != self._owners, owners
        return changed or bool(dead)

    def _observe(self, peers: list[Peer], now: float) -> None:
        """Note since when each heartbeat is unchanged. After a gap in its own heartbeats, a worker starts again."""
        known = self._observed if now - self._last_beat <= MAX_GAP else {}
        seen = {peer.id: Observed(peer.beat_at, now) for peer in peers}
        self._observed = {
            worker: known[worker] if worker in known and known[worker].beat_at == observed.beat_at else observed
            for worker, observed in seen.items()
        }
        self._last_beat = now

    def _is_dead(self, peer: Peer, now: float) -> bool:
        """Whether its heartbeat has been unchanged for too long, or this worker was started in its place."""
        if peer.id == self._id:
            return False
        unchanged = now - self._observed[peer.id].since
        return unchanged * 1000 >= DEAD_AFTER or (bool(self._place) and peer.place == self._place)

    async def rescue(self, worker: bytes) -> int:
        """Interrupt the open attempts of a worker that is gone. Returns how many there were."""
        open_ = await self._store.read(lambda tx: queue_rows.open_attempts(tx, worker, 2 * SLOTS))
        total = 0
        for start in range(0, len(open_), RECOVERED_AT_ONCE):
            keys = [queued.key for queued in open_[start : start + RECOVERED_AT_ONCE]]
            total += await self._store.run(partial(recover.rescue, worker=worker, keys=keys))
        attempt_counter("interrupted", "").inc(total)
        return total

    async def leave(self) -> None:
        """Interrupt the open attempts of this worker, which stops, and delete it. It must write no other heartbeat."""
        await self.rescue(self._id)

        def unit(tx: Tx) -> None:
            for peer in worker_rows.load(tx):
                if peer.id == self._id:
                    worker_rows.delete(tx, peer)

        await self._store.run(unit)

    def owns(self, key: Key) -> bool:
        """Whether this worker owns the endpoint. Only speed depends on it: the lease is what protects a delivery."""
        if len(self._owners) < 2:
            return self._owners == [self._id]
        return max(self._owners, key=lambda worker: _weight(worker, key)) == self._id


def count_running(tx: Tx) -> int:
    """Count the workers with a recent heartbeat."""
    return sum(is_running(peer, tx.now) for peer in worker_rows.load(tx))


def is_running(worker: Peer, now: int) -> bool:
    """Whether the worker has a recent heartbeat."""
    return now - worker.beat_at <= DEAD_AFTER


def _weight(worker: bytes, key: Key) -> bytes:
    return hashlib.blake2b(worker + key[0] + key[1], digest_size=8).digest()
