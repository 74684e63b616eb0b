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
    await asyncio.sleep(0)
    try:
        yield
    finally:
        server.stop()  # type: ignore[no-untyped-call]
        await running
