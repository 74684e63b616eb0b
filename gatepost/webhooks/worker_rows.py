"""The rows of workers: their heartbeats."""

from typing import NamedTuple

from gatepost.store.transaction import Tx

# Before the place of a worker that drains. A release that does not know the prefix takes it for a part of the place:
# to such a release the worker is alive, and still owns endpoints.
_DRAINING = "draining "


class Worker(NamedTuple):
    """A worker and the time of its last heartbeat. See `peers` for its place. One that drains claims nothing more."""

    id: bytes
    place: str
    beat_at: int
    draining: bool = False


def beat(tx: Tx, worker: bytes, place: str, *, draining: bool = False) -> None:
    """Write the heartbeat of a worker."""
    tx.write("beat", id=worker, place=f"{_DRAINING}{place}" if draining else place, at=tx.now)


def load(tx: Tx) -> list[Worker]:
    """Load all workers."""
    return [
        Worker(worker, place.removeprefix(_DRAINING), beat_at, place.startswith(_DRAINING))
        for worker, place, beat_at in tx.rows("workers")
    ]


def delete(tx: Tx, worker: Worker) -> None:
    """Delete the worker, unless it has written another heartbeat."""
    tx.write("forget_worker", id=worker.id, beat_at=worker.beat_at)
