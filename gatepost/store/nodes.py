"""The nodes of a deployment: each `gatepost serve` writes a heartbeat, so that operators see which ones run.

A node that was killed leaves its row. When it is started again, it deletes this row. Nodes with the same host, kind and
operations address have ids that begin with the same bytes, because only one process can listen at an address.
"""

import hashlib
import socket
from typing import NamedTuple

from gatepost import __version__
from gatepost.core import ids
from gatepost.store.transaction import Tx

BEAT_EVERY = 5.0  # seconds
SILENT_AFTER = 20_000  # milliseconds without a heartbeat
_FORGET_AFTER = 24 * 3600 * 1000  # milliseconds
_PLACE = 8  # bytes of an id that the host, the kind and the operations address determine


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


def this_node(kind: str, address: str, now: int) -> Node:
    """Return a node for this process, which listens at this address of the operations plane."""
    host = socket.gethostname()
    place = hashlib.sha256(f"{host}\0{kind}\0{address}".encode()).digest()[:_PLACE]
    return Node(place + ids.new_raw()[_PLACE:], host, kind, __version__, now, now)


def beat(tx: Tx, node: Node) -> None:
    """Write the heartbeat of a node. Delete the nodes that it replaces, and those that have been silent for a day.

    It replaces those without a heartbeat since its start. If one of them runs, for example in another container with
    the same host name, its next heartbeat restores the row.
    """
    tx.write("beat_node", **(node._asdict() | {"beat_at": tx.now}))
    place, rest = node.id[:_PLACE], len(node.id) - _PLACE
    tx.write(
        "replace_nodes",
        lowest=place + b"\0" * rest, highest=place + b"\xff" * rest, id=node.id, started_at=node.started_at,
    )  # fmt: skip
    tx.write("forget_nodes", before=tx.now - _FORGET_AFTER)


def load(tx: Tx) -> list[Node]:
    """Load all nodes, in the order of their start."""
    return [Node(*row) for row in tx.rows("nodes")]


def delete(tx: Tx, node: Node) -> None:
    """Delete a node that stops."""
    tx.write("delete_node", id=node.id)
