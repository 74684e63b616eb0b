"""The rows of workers: their heartbeats."""

from typing import NamedTuple

from gatepost.store.transaction import Tx


class Worker(NamedTuple):
    """A worker and the time of its last heartbeat. See `peers` for its place."""

    id: bytes
    place: str
    beat_at: int


def beat(tx: Tx, worker: bytes, place: str) -> None:
    """Write the heartbeat of a worker."""
    tx.write("beat", id=worker, place=place, at=tx.now)


def load(tx: Tx) -> list[Worker]:
    """Load all workers."""
    return [Worker(*row) for row in tx.rows("workers")]


def delete(tx: Tx, worker: Worker) -> None:
    """Delete the worker, unless it has written another heartbeat."""
    tx.write("forget_worker", id=worker.id, beat_at=worker.beat_at)
