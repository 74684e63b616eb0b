"""Wake-ups on PostgreSQL arrive, also after the connection that sends them broke while nothing was sent."""

from collections.abc import Iterator
from contextlib import closing
from queue import SimpleQueue

import pytest

from gatepost.core.errors import Unavailable
from gatepost.store.notify import Listener, Notifier
from gatepost.store.pending import Key
from gatepost.store.postgres_connection import Database
from gatepost.store.postgres_server import PostgresServer
from tests.contract.backends import FakeClock
from tests.contract.schemas import Schemas
from tests.waiting import LIMIT, wait_until

FIRST, SECOND, THIRD = ((bytes([number]) * 16, bytes(16)) for number in (1, 2, 3))


class Connections:
    """Opens the connections of a notifier, as long as the server can be reached."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.opened: list[Database] = []
        self.refused = 0
        self.is_reachable = True

    def open(self) -> Database:
        if not self.is_reachable:
            self.refused += 1
            raise Unavailable("the store cannot answer")
        self.opened.append(self._server.open())
        return self.opened[-1]

    def terminate_last(self) -> None:
        """Return when the server has closed the connection that was opened last."""
        with self._server.open() as operator:
            operator.execute("SELECT pg_terminate_backend(%s, 10000)", [self.opened[-1].info.backend_pid])


@pytest.fixture
def server(schemas: Schemas, watch: FakeClock) -> PostgresServer:
    return PostgresServer(schemas.url(schemas.migrated()), watch)


@pytest.fixture
def connections(server: PostgresServer) -> Connections:
    return Connections(server)


@pytest.fixture
def notifier(connections: Connections) -> Iterator[Notifier]:
    with closing(Notifier(connections.open)) as made:
        yield made


@pytest.fixture
def heard(server: PostgresServer) -> Iterator["SimpleQueue[list[Key]]"]:
    """The wake-ups of a listener that listens already."""
    queue: SimpleQueue[list[Key]] = SimpleQueue()
    with closing(Listener(server.open_for_listen, queue.put)):
        assert queue.get(timeout=LIMIT) == []
        yield queue


def test_a_wakeup_is_sent_again_if_the_connection_broke(
    connections: Connections, notifier: Notifier, heard: "SimpleQueue[list[Key]]"
) -> None:
    """Without this, the deliveries start up to a second later."""
    for number, key in enumerate((FIRST, SECOND, THIRD), 1):
        notifier.send({key})
        assert heard.get(timeout=LIMIT) == [key]
        assert len(connections.opened) == number
        connections.terminate_last()
    assert [database.closed for database in connections.opened] == [True, True, False]


def test_a_server_that_cannot_be_reached_is_tried_with_the_next_wakeup(
    connections: Connections, notifier: Notifier, heard: "SimpleQueue[list[Key]]"
) -> None:
    notifier.send({FIRST})
    assert heard.get(timeout=LIMIT) == [FIRST]
    connections.terminate_last()
    connections.is_reachable = False
    notifier.send({SECOND})
    wait_until(lambda: connections.refused > 0)
    connections.is_reachable = True
    notifier.send({THIRD})
    assert heard.get(timeout=LIMIT) == [THIRD]
    assert (connections.refused, len(connections.opened)) == (1, 2)


def test_a_connection_that_works_is_kept(
    connections: Connections, notifier: Notifier, heard: "SimpleQueue[list[Key]]"
) -> None:
    for key in (FIRST, SECOND):
        notifier.send({key})
        assert heard.get(timeout=LIMIT) == [key]
    assert len(connections.opened) == 1
