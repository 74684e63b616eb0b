"""Requests that do not arrive, on both listeners: they are given up, and they take nothing from other addresses."""

import asyncio
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from http.client import HTTPConnection
from typing import Any

import pytest
import requests

from gatepost.core import clock
from gatepost.ingest import http as intake
from gatepost.web.app import Application
from gatepost.web.body import MAX_DISCARDED, BodyLimits
from gatepost.web.context import Context
from gatepost.web.listen import connections, listening
from gatepost.web.ops.metrics import Page
from gatepost.web.ops.plane import Plane
from tests import wire
from tests.service import Service, free_ports
from tests.waiting import LIMIT

SHORT = BodyLimits(seconds=0.2, patience=0.1)
LONG = BodyLimits(seconds=600, patience=600)
PUBLIC, PLANE = "/oauth/tokens", "/events"


@asynccontextmanager
async def served(gatepost: Service, path: str, limits: BodyLimits, **options: Any) -> AsyncIterator[str]:
    """One of the listeners, as a process of the service has it, on a port of its own."""
    (port,) = free_ports(1)
    opened = gatepost.opened
    application: Any = Application(Context(opened.store, opened.service, clock.now), limits=limits, **options)
    if path == PLANE:
        application = Plane(
            opened.store, opened.service, "127.0.0.1", port, lambda: "", Page(opened.store, "", lambda: ""),
            post={PLANE: intake.answer}, limits=limits, **options
        )  # fmt: skip
    async with listening(application, "127.0.0.1", port):
        yield f"http://127.0.0.1:{port}"


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def request(url: str, path: str, *fields: str, host: str | None = None, sent: bytes = b"") -> bytes:
    """The beginning of a request whose body never comes whole."""
    own = url.removeprefix("http://") if host is None else host
    lines = [f"POST {path} HTTP/1.1", f"Host: {own}", "Content-Length: 100", *fields, "", ""]
    return "\r\n".join(lines).encode() + sent


@pytest.mark.parametrize("path", [PUBLIC, PLANE])
@pytest.mark.parametrize("sent", [b"", b"grant_type="])
def test_a_body_that_does_not_arrive_is_given_up(sqlite_gatepost: Service, path: str, sent: bytes) -> None:
    async def test() -> None:
        async with served(sqlite_gatepost, path, SHORT) as url:
            answer = await asyncio.to_thread(wire.exchange, url, request(url, path, sent=sent))
            assert answer.headers["connection"] == "close"
            if path == PUBLIC:
                wire.check_refusal(answer, path, "request_timeout", f"{len(sent)} bytes")
            assert answer.status == 408

    run(test)


@pytest.mark.parametrize("path", [PUBLIC, PLANE])
def test_a_body_that_is_too_large_does_not_cost_the_connection(sqlite_gatepost: Service, path: str) -> None:
    """A proxy that is interrupted while it sends the body would answer 502 instead."""
    listener = sqlite_gatepost.url if path == PUBLIC else sqlite_gatepost.ops
    connection = HTTPConnection(listener.removeprefix("http://"), timeout=LIMIT)
    connection.connect()
    connection.auto_open = 0  # a second connection is an error
    with closing(connection):
        for _ in range(3):
            connection.request("POST", path, b"x" * MAX_DISCARDED)
            answer = connection.getresponse()
            assert (answer.status, b"request_too_large" in answer.read()) == (413, True)


@pytest.mark.parametrize("path", [PUBLIC, PLANE])
def test_an_address_with_too_many_requests_does_not_lock_out_another(sqlite_gatepost: Service, path: str) -> None:
    async def test() -> None:
        async with served(sqlite_gatepost, path, LONG, max_requests_per_address=3) as url, AsyncExitStack() as stack:
            held = [connect(stack, url, source="127.0.9.1") for _ in range(5)]
            for each in held:
                each.sendall(request(url, path))
            await asyncio.to_thread(wait_for_refusals, held, 2)
            with wire.session_from_new_address() as victim:
                answer = await asyncio.to_thread(victim.get, f"{url}/{'healthz' if path == PLANE else 'oauth/jwks'}")
            assert answer.status_code == 200

    run(test)


def connect(stack: AsyncExitStack, url: str, *, source: str = "127.0.0.1") -> socket.socket:
    """Connect to a listener. It waits for open requests when it ends, so the connection is closed before."""
    port = int(url.rpartition(":")[2])
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), LIMIT, (source, 0)))


def wait_for_refusals(held: list[socket.socket], count: int) -> None:
    """Wait until so many requests are refused. Then all others are counted, whatever the order of their arrival."""
    waiting = list(held)
    for _ in range(count):
        readable, _, _ = select.select(waiting, [], [], LIMIT)
        assert readable, "no request was refused"
        waiting.remove(readable[0])
        answer = b""
        while b"\r\n\r\n" not in answer:
            received = readable[0].recv(4096)
            assert received, f"the connection was closed after {answer!r}"
            answer += received
        assert answer.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
        assert b"retry-after: 1\r\n" in answer


@pytest.mark.parametrize("path", [PUBLIC, PLANE])
def test_addresses_behind_a_trusted_proxy_count_separately(sqlite_gatepost: Service, path: str) -> None:
    async def test() -> None:
        options: dict[str, Any] = {"max_requests_per_address": 1, "trusted_proxies": ("127.0.0.0/8",)}
        async with served(sqlite_gatepost, path, LONG, **options) as url, AsyncExitStack() as stack:
            for address in ("192.0.2.1", "192.0.2.2"):
                held = [connect(stack, url) for _ in range(2)]
                for each in held:
                    each.sendall(request(url, path, f"X-Forwarded-For: {address}"))
                await asyncio.to_thread(wait_for_refusals, held, 1)
            seen = f"{url}/{'healthz' if path == PLANE else 'oauth/jwks'}"
            for headers, status in (
                ({"X-Forwarded-For": "192.0.2.1"}, 429), ({"X-Forwarded-For": "192.0.2.2"}, 429),
                ({"X-Forwarded-For": "192.0.2.3"}, 200), ({}, 200),
                ({"X-Forwarded-For": "192.0.2.1", "Forwarded": "for=unknown"}, 200),
            ):  # fmt: skip
                answer = await asyncio.to_thread(requests.get, seen, headers=headers)
                assert answer.status_code == status, headers

    run(test)


def test_there_is_room_for_more_connections_than_one_address_needs() -> None:
    assert connections() >= 1024


@pytest.mark.parametrize("path", ["/oauth/jwks", "/webhooks/deliveries", "/nothing"])
@pytest.mark.parametrize("fields", [[], ["Host:"], ["Host: a", "Host: a"], ["Host: a", "Host: b"]])
def test_a_missing_or_repeated_host_is_refused(sqlite_gatepost: Service, path: str, fields: list[str]) -> None:
    sent = "\r\n".join([f"GET {path} HTTP/1.1", *fields, "", ""]).encode()
    answer = wire.exchange(sqlite_gatepost.url, sent)
    wire.check_refusal(answer, path, "invalid_request", "Host")


@pytest.mark.parametrize("path", ["/healthz", "/events", "/nothing"])
@pytest.mark.parametrize("count", [0, 2])
def test_it_is_refused_on_the_operations_plane_too(sqlite_gatepost: Service, path: str, count: int) -> None:
    own = f"Host: {sqlite_gatepost.ops.removeprefix('http://')}"
    sent = "\r\n".join([f"GET {path} HTTP/1.1", *[own] * count, "", ""]).encode()
    assert wire.exchange(sqlite_gatepost.ops, sent).status == 400
