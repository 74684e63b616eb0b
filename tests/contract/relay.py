"""A relay between a store and its PostgreSQL server, which can stop to read or end one direction of a connection."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests import postgres
from tests.waiting import LIMIT


class Relay:
    """Listens in a directory, like the server does in its own."""

    def __init__(self, server: postgres.Server, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.reads = threading.Event()  # whether it takes what the store sends
        self.reads.set()
        self._name = f".s.PGSQL.{server.port}"
        self._clients: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / self._name))
        self._listener.listen()
        self._start(self._accept)

    def end_answers(self) -> None:
        """Those who are connected get no more answers."""
        for client in self._clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End all connections."""
        for each in (self._listener, *self._clients):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(LIMIT)
        self._listener.close()

    def _start(self, function: Callable[..., None], *about: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=function, args=about, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._clients.append(client)
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(str(self.server.directory / self._name))
            back = self._start(self._pass_on, server, client)
            self._pass_on(client, server)
            back.join(LIMIT)

    def _pass_on(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if source in self._clients:
                    self.reads.wait(LIMIT)
                to.sendall(data)
        for each in (source, to):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
