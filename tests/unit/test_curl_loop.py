"""The event loop of libcurl, with real sockets: while one is handled, libcurl may close another that is ready too."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pycurl  # type: ignore[import-untyped]
import pytest
import structlog.testing

from gatepost.egress.curl_loop import CurlLoop


class Multi:
    """Stands in for libcurl: calls `on_socket` for the first socket that is handled, and counts the timeouts."""

    def __init__(self) -> None:
        self.callbacks: dict[int, Any] = {}
        self.handled: list[int] = []
        self.timeouts = 0
        self.on_socket: Callable[[int], None] = lambda _fd: None

    def setopt(self, option: int, callback: Any) -> None:
        self.callbacks[option] = callback

    def watch(self, fd: int, events: int) -> None:
        self.callbacks[pycurl.M_SOCKETFUNCTION](events, fd, self, None)

    def socket_action(self, fd: int, _events: int) -> tuple[int, int]:
        if fd == pycurl.SOCKET_TIMEOUT:
            self.timeouts += 1
        else:
            self.handled.append(fd)
            if len(self.handled) == 1:
                self.on_socket(fd)
            self.watch(fd, pycurl.POLL_REMOVE)
        return 0, 0


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    """Two sockets that can be written to, and nothing can be read from."""
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(2)]
        for one in (each for pair in pairs for each in pair):
            stack.enter_context(one)
        yield [pair[0] for pair in pairs]


def run(multi: Multi, begin: Callable[[CurlLoop], None]) -> None:
    """Run the loop until the timer that is set after the sockets were handled has run. No callback may fail."""
    errors: list[Any] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
        curl_loop = CurlLoop(multi, lambda: None, lambda _running: None)
        begin(curl_loop)
        while not multi.handled:
            await asyncio.sleep(0)
        curl_loop.schedule()
        while not multi.timeouts:
            await asyncio.sleep(0)
        curl_loop.close()

    asyncio.run(asyncio.wait_for(story(), 30))
    assert errors == []


def test_a_socket_that_is_removed_and_closed_while_another_is_handled(sockets: list[socket.socket]) -> None:
    multi = Multi()
    lost: list[int] = []

    def close_the_other(fd: int) -> None:
        [other] = [each for each in sockets if each.fileno() != fd]
        multi.watch(other.fileno(), pycurl.POLL_REMOVE)
        other.close()

    def begin(curl_loop: CurlLoop) -> None:
        for each in sockets:
            curl_loop.add_connection(each.fileno(), lambda: lost.append(1))
            multi.watch(each.fileno(), pycurl.POLL_OUT)

    multi.on_socket = close_the_other
    run(multi, begin)
    assert len(multi.handled) == 1
    assert lost == []


def test_an_idle_connection_that_is_closed_while_another_is_handled(sockets: list[socket.socket]) -> None:
    """libcurl does not report it, because it has told the loop before that it does not wait for this socket."""
    multi = Multi()
    busy, idle = sockets

    def begin(curl_loop: CurlLoop) -> None:
        for each in sockets:
            curl_loop.add_connection(each.fileno(), lambda: None)
            multi.watch(each.fileno(), pycurl.POLL_OUT)
        multi.watch(idle.fileno(), pycurl.POLL_REMOVE)

    multi.on_socket = lambda _fd: idle.close()
    run(multi, begin)
    assert multi.handled == [busy.detach()]


def test_a_descriptor_that_a_new_connection_gets_while_another_is_handled(sockets: list[socket.socket]) -> None:
    """The event was one of the connection that is closed. The new one is not watched yet."""
    multi = Multi()
    loops: list[CurlLoop] = []
    opened: list[socket.socket] = []
    fds = [each.fileno() for each in sockets]

    def replace_the_other(fd: int) -> None:
        [other] = [each for each in sockets if each.fileno() != fd]
        multi.watch(other.fileno(), pycurl.POLL_REMOVE)
        other.close()
        opened.extend(socket.socketpair())
        loops[0].add_connection(opened[0].fileno(), lambda: None)

    def begin(curl_loop: CurlLoop) -> None:
        loops.append(curl_loop)
        for fd in fds:
            curl_loop.add_connection(fd, lambda: None)
            multi.watch(fd, pycurl.POLL_OUT)

    multi.on_socket = replace_the_other
    try:
        run(multi, begin)
        assert opened[0].fileno() in fds, "the test needs the lowest free descriptor"
        assert len(multi.handled) == 1
    finally:
        for each in opened:
            each.close()


@pytest.mark.parametrize("error", [pycurl.error(1, "x"), OSError(9, "Bad file descriptor"), KeyError(7)], ids=repr)
def test_an_unexpected_error_ends_the_process_and_is_logged(sockets: list[socket.socket], error: Exception) -> None:
    multi = Multi()

    def fail(_fd: int) -> None:
        raise error

    multi.on_socket = fail
    with structlog.testing.capture_logs() as logged, pytest.raises(RuntimeError, match="stopped before"):
        run(multi, lambda _curl_loop: multi.watch(sockets[0].fileno(), pycurl.POLL_OUT))
    assert [each["event"] for each in logged] == ["requests can no longer be sent: the process ends"]


def test_an_error_in_handling_results_ends_the_process(sockets: list[socket.socket]) -> None:
    multi = Multi()

    async def story() -> None:
        def fail(_running: float) -> None:
            raise LookupError

        CurlLoop(multi, lambda: None, fail)
        multi.watch(sockets[0].fileno(), pycurl.POLL_OUT)
        await asyncio.sleep(5)

    with structlog.testing.capture_logs() as logged, pytest.raises(RuntimeError, match="stopped before"):
        asyncio.run(story())
    assert len(logged) == 1
