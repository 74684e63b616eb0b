"""Database nodes of a distributed store: where the shards are, and which nodes can be reached from the coordinator."""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import Event, Lock, Thread
from typing import Any, Protocol

import psycopg

from gatepost.core.errors import GatepostError
from gatepost.core.logging import log
from gatepost.store import threads
from gatepost.store.shards import BY_ACCOUNT, Node, Shards

CONNECT_TIMEOUT = "2s"  # from the coordinator to a node
CHECK_EVERY = 1.0  # seconds
LONG = 2.0  # seconds after which a statement may wait for a node that is down

_HAS_CITUS = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"
_SHARDS = """
SELECT s.shardminvalue::bigint, p.groupid, n.nodename, n.nodeport
  FROM pg_dist_shard s JOIN pg_dist_placement p USING (shardid) JOIN pg_dist_node n USING (groupid)
  WHERE s.logicalrelid = to_regclass('entries') AND n.noderole = 'primary' ORDER BY 1
"""
_NOT_DISTRIBUTED = """
SELECT name FROM unnest(%s::text[]) name WHERE to_regclass(name) NOT IN (SELECT logicalrelid FROM pg_dist_partition)
"""
_CHECK = "SELECT citus_check_connection_to_node(%s, %s)"


def load_shards(database: psycopg.Connection[Any]) -> Shards | None:
    """The shards of the store. None if it is not distributed."""
    [(citus,)] = database.execute(_HAS_CITUS).fetchall()
    rows = database.execute(_SHARDS).fetchall() if citus else []
    return Shards(rows) if rows else None


def not_distributed(database: psycopg.Connection[Any]) -> tuple[str, ...]:
    """The tables that a distributed store should have distributed, but has not: those of a later release."""
    if load_shards(database) is None:
        return ()
    return tuple(name for (name,) in database.execute(_NOT_DISTRIBUTED, [list(BY_ACCOUNT)]))


class Line(Protocol):
    """The connection of a thread."""

    busy_since: float  # by the monotonic clock; 0 while it is idle

    def leave(self) -> None: ...


class NodeWatch:
    """Finds out which nodes are down, when a statement failed or takes long, and checks them until all are up again.

    A node that does not answer would hold up the threads, and so the other accounts. Once it is known to be down, no
    statements are sent to it, and connections that wait for long are left: the coordinator cannot cancel a statement
    there either.
    """

    def __init__(self, open_: Callable[[], psycopg.Connection[Any]], lines: Iterable[Line]) -> None:
        self._open = open_
        self._lines = lines
        self._checking = Lock()
        self._checked_at = -math.inf
        self._closed = Event()
        self._thread: Thread | None = None

    def check(self, shards: Shards) -> None:
        """Check the nodes, unless that was done just now."""
        with self._checking:
            if time.monotonic() - self._checked_at < CHECK_EVERY or self._closed.is_set():
                return
            before = shards.down
            with suppress(GatepostError, psycopg.Error, OSError), self._open() as database:
                _check(database, shards)
            self._checked_at = time.monotonic()
            for node in shards.down - before:
                log.warning("database node cannot be reached", node=node.name)
            for node in before - shards.down:
                log.info("database node can be reached again", node=node.name)

    def start(self, shards: Shards) -> None:
        """Start the thread, unless it runs."""
        with self._checking:
            if self._thread is None:
                shards.check = partial(self.check, shards)
                self._thread = Thread(target=self._run, args=(shards,), name="gatepost-nodes", daemon=True)
                self._thread.start()

    def _run(self, shards: Shards) -> None:
        while not self._closed.wait(CHECK_EVERY):
            before = time.monotonic() - LONG
            slow = [line for line in self._lines if 0.0 < line.busy_since < before]
            if slow or shards.down:
                self.check(shards)
            for line in slow if shards.down else []:
                line.leave()

    def close(self) -> None:
        self._closed.set()
        if self._thread:
            threads.join([self._thread])


def _check(database: psycopg.Connection[Any], shards: Shards) -> None:
    """Connect to every node from the coordinator, and read again where the shards are."""
    database.execute("SELECT set_config('citus.node_connection_timeout', %s, false)", [CONNECT_TIMEOUT])
    rows = database.execute(_SHARDS).fetchall()
    nodes = {Node(*row[1:]) for row in rows}
    down = [node for node in nodes if not database.execute(_CHECK, node[1:]).fetchall()[0][0]]
    shards.update(rows, down)
