"""An ASGI application on a port, in the running event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server


@asynccontextmanager
async def listening(application: Any, host: str, port: int) -> AsyncIterator[None]:
    """Requests under way when it ends are answered first."""
    server = Server(
        application, address=host, port=port, interface=Interfaces.ASGINL, http=HTTPModes.http1, websockets=False,
        backlog=1024, log_enabled=False,
    )  # fmt: skip
    running = asyncio.create_task(server.serve())
    await _until_it_takes_connections(running, host, port)
    try:
        yield
    finally:
        server.stop()  # type: ignore[no-untyped-call]
        await running


async def _until_it_takes_connections(running: asyncio.Task[None], host: str, port: int) -> None:
    """The server starts to listen in a thread of its own, and does not say when."""
    while not running.done():
        try:
            _, connected = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.002)
        else:
            connected.close()
            return
    await running
