"""The live workers of a deployment: heartbeats, the attempts of dead workers, and which worker owns which endpoint."""

import hashlib
from functools import partial

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
RECOVERED_AT_ONCE = 128


class Peers:
    """The workers as one of them sees them. `place` identifies a worker across restarts; it may be empty."""

    def __init__(self, store: Store, worker: bytes, place: str) -> None:
        self._store = store
        self._id = worker
        self._place = place
        self._owners: list[bytes] = [worker]

    async def beat(self) -> bool:
        """Write the heartbeat, and recover the attempts of dead workers. True if the owners of endpoints changed."""

        def unit(tx: Tx) -> tuple[int, list[Peer]]:
            worker_rows.beat(tx, self._id, self._place)
            return tx.now, worker_rows.load(tx)

        now, peers = await self._store.run(unit)
        dead = [peer for peer in peers if self._is_dead(peer, now)]
        for peer in dead:
            total = await self.rescue(peer.id)
            await self._store.run(partial(worker_rows.delete, worker=peer))
            log.warning("rescued a dead worker's deliveries", worker=ids.text("wrk", peer.id), attempts=total)
        owners = sorted(peer.id for peer in peers if peer not in dead)
        changed, self._owners = owners != self._owners, owners
        return changed or bool(dead)

    def _is_dead(self, peer: Peer, now: int) -> bool:
        """Whether it has no recent heartbeat, or this worker was started in its place."""
        if peer.id == self._id:
            return False
        return now - peer.beat_at > DEAD_AFTER or (bool(self._place) and peer.place == self._place)

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
        """Interrupt the open attempts of this worker, which stops, and delete it."""
        await self.rescue(self._id)

        def unit(tx: Tx) -> None:
            for peer in worker_rows.load(tx):
                if peer.id == self._id:
                    worker_rows.delete(tx, peer)

        await self._store.run(unit)

    def owns(self, key: Key) -> bool:
        """Whether this worker owns the endpoint. Only speed depends on it: the lease is what protects a delivery."""
        if len(self._owners) == 1:
            return True
        return max(self._owners, key=lambda worker: _weight(worker, key)) == self._id


def count_running(tx: Tx) -> int:
    """Count the workers with a recent heartbeat."""
    return sum(1 for peer in worker_rows.load(tx) if tx.now - peer.beat_at <= DEAD_AFTER)


def _weight(worker: bytes, key: Key) -> bytes:
    return hashlib.blake2b(worker + key[0] + key[1], digest_size=8).digest()
