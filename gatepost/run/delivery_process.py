"""A delivery process: the worker, and the consumers of events from NATS and Kafka."""

import asyncio
import sys
from typing import TYPE_CHECKING

from gatepost.run import app, child
from gatepost.run.child import Configuration
from gatepost.webhooks.worker import Worker

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

_SWITCH_INTERVAL = 0.0005  # seconds: the store's thread should not wait long for the interpreter lock


async def serve(configuration: Configuration, runtime: app.Runtime, traces: "Traces | None" = None) -> None:
    """Deliver webhooks until the supervisor stops this process."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    stopping = child.stopping()
    settings, store = configuration.settings, runtime.store
    worker = Worker(
        store, runtime.service, configuration.place, proxy=settings.egress_proxy, ca=settings.egress_ca, traces=traces
    )
    child.report_ready()
    work = [worker.run(stopping)]
    if settings.nats:
        from gatepost.ingest import nats  # noqa: PLC0415 (an extra that may not be installed)

        work.append(nats.consume(store, settings.nats, settings.nats_stream, stopping, traces))
    if settings.kafka:
        from gatepost.ingest import kafka  # noqa: PLC0415 (an extra that may not be installed)

        work.append(kafka.consume(store, settings.kafka, settings.bus_config, stopping, traces))
    reporting = asyncio.create_task(child.report(worker.chores))
    try:
        await asyncio.gather(*work)
    finally:
        reporting.cancel()


if __name__ == "__main__":
    child.main(serve)
