"""An operations process: the operations plane, with the intake of events over HTTP.

The supervisor sends a status line once a second, and when it changes: why the service is not ready, and its metrics.
"""

import asyncio
import math
import os
import time
from typing import TYPE_CHECKING

import msgspec

from gatepost.ingest import http as intake
from gatepost.run import app, child
from gatepost.run.child import METRICS_DIRECTORY, SILENCE, Configuration, Status
from gatepost.web.listen import listening
from gatepost.web.ops.metrics import Page
from gatepost.web.ops.plane import Plane

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces


class Supervisor:
    """What is known of the supervisor."""

    def __init__(self) -> None:
        self._status = Status("the service is starting", "")
        self._received_at = math.inf

    def receive(self, line: bytes) -> None:
        self._status = msgspec.json.decode(line, type=Status)
        self._received_at = time.monotonic()

    def not_ready(self) -> str:
        if time.monotonic() - self._received_at > SILENCE:
            return "the supervisor makes no progress"
        return self._status.not_ready

    def metrics(self) -> str:
        return self._status.metrics


async def serve(configuration: Configuration, runtime: app.Runtime, traces: "Traces | None") -> None:
    """Serve the operations plane until the supervisor stops this process."""
    settings, store = configuration.settings, runtime.store
    supervisor = Supervisor()
    page = Page(store, os.environ[METRICS_DIRECTORY], supervisor.metrics)
    plane = Plane(
        store, runtime.service, settings.ops_host, settings.ops_port, supervisor.not_ready, page,
        post={"/events": intake.answer} if settings.takes_events else {}, limits=intake.BODY, traces=traces,
        allowed_hosts=tuple(settings.ops_allowed_hosts), trusted_proxies=tuple(settings.trusted_proxies),
        max_requests_per_address=settings.max_requests_per_address, docs_url=settings.docs_url,
        with_operator=settings.operator_console,
    )  # fmt: skip
    stopping = child.stopping(on_line=supervisor.receive)
    async with listening(plane, settings.ops_host, settings.ops_port):
        child.report_ready()
        reporting = asyncio.create_task(child.report())
        await stopping.wait()
    reporting.cancel()


if __name__ == "__main__":
    child.main(serve)
