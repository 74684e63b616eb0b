"""Serves an ASGI application on a port, in the running event loop."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

# For the header fields of a request, and for the next request of a connection that is kept open.
HEADER_TIMEOUT = timedelta(seconds=30)
MAX_CONNECTIONS = 8192  # further connections wait until one is closed


@asynccontextmanager
async def listening(application: Any, host: str, port: int) -> AsyncIterator[None]:
    """Serve the application until the context ends. Requests in progress are answered first."""
    server = Server(
        application, address=host, port=port, interface=Interfaces.ASGINL, http=HTTPModes.http1, websockets=False,
        backlog=1024, backpressure=connections(), log_enabled=False,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_TIMEOUT // timedelta(milliseconds=1)),
    )  # fmt: skip
    running = asyncio.create_task(server.serve())
    await _wait_until_listening(running, host, port)
    try:
        yield
    finally:
        server.stop()  # type: ignore[no-untyped-call]
        await running


def connections() -> int:
    """How many connections may be open at once: half of the files that the process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, 4 * MAX_CONNECTIONS)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return min(MAX_CONNECTIONS, soft // 2)


async def _wait_until_listening(running: asyncio.Task[None], host: str, port: int) -> None:
    """Wait until the server listens. It starts in a thread and does not report it."""
    while not running.done():
        try:
            _, writer = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.002)
        else:
            writer.close()
            return
    await running
