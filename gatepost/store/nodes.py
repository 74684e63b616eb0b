"""The nodes of a deployment: each `gatepost serve` writes a heartbeat, so that operators see which ones run."""

import socket
from typing import NamedTuple

from gatepost import __version__
from gatepost.core import ids
from gatepost.store.transaction import Tx

BEAT_EVERY = 5.0  # seconds
SILENT_AFTER = 20_000  # milliseconds without a heartbeat
_FORGET_AFTER = 24 * 3600 * 1000  # milliseconds


class Node(NamedTuple):
    """A running `gatepost serve`: the name of its machine, what it runs, and the times in milliseconds."""

    id: bytes
    host: str
    kind: str  # all, web or deliver
    version: str
    started_at: int
    beat_at: int

    def is_silent(self, now: int) -> bool:
        """Whether it stopped without notice, or cannot reach the store."""
        return now - self.beat_at > SILENT_AFTER


def this_node(kind: str, now: int) -> Node:
    """Return a node for this process."""
    return Node(ids.new_raw(), socket.gethostname(), kind, __version__, now, now)


def beat(tx: Tx, node: Node) -> None:
    """Write the heartbeat of a node, and delete nodes that have been silent for a day."""
    tx.write("beat_node", **(node._asdict() | {"beat_at": tx.now}))
    tx.write("forget_nodes", before=tx.now - _FORGET_AFTER)


def load(tx: Tx) -> list[Node]:
    """Load all nodes, in the order of their start."""
    return [Node(*row) for row in tx.rows("nodes")]


def delete(tx: Tx, node: Node) -> None:
    """Delete a node that stops."""
    tx.write("delete_node", id=node.id)
