"""A port is announced once it takes connections."""

import socket
from contextlib import AsyncExitStack
from typing import Any

import uvloop

from gatepost.web.listen import listening
from tests.service import free_ports


async def nothing(_scope: Any, _receive: Any, _send: Any) -> None: ...


def test_a_port_takes_connections_as_soon_as_it_is_said_to_listen() -> None:
    async def listen_and_connect() -> None:
        async with AsyncExitStack() as stack:
            for port in free_ports(20):
                await stack.enter_async_context(listening(nothing, "127.0.0.1", port))
                socket.create_connection(("127.0.0.1", port), timeout=5).close()

    uvloop.run(listen_and_connect())
