"""A delivery process: the worker, and what brings events. Its settings come on standard input; their end is its own."""

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import msgspec
import uvloop

from gatepost.core.logging import configure_logs
from gatepost.core.repeat import REPORT_EVERY, Chores
from gatepost.run import app, parent
from gatepost.run.tuning import collect_rarely
from gatepost.settings import Settings
from gatepost.webhooks.worker import Worker

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

_SWITCH = 0.0005  # seconds: the store's thread should not wait long for the interpreter lock


class Order(msgspec.Struct):
    """What the supervisor tells its child."""

    settings: Settings
    place: str = ""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    configure_logs()
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    opened = app.open_for_use(order.settings)
    traces = app.traces()
    sys.setswitchinterval(_SWITCH)
    collect_rarely()
    try:
        uvloop.run(_work(order, opened, traces))
    finally:
        opened.store.close()
        if traces:
            traces.close()


async def _work(order: Order, opened: app.Opened, traces: "Traces | None" = None) -> None:
    stopping = parent.stopping()
    settings = order.settings
    worker = Worker(
        opened.store, opened.service, order.place, proxy=settings.egress_proxy, ca=settings.egress_ca, traces=traces
    )
    os.write(sys.stdout.fileno(), b"ready\n")
    reporting = asyncio.create_task(_report(worker.chores))
    try:
        await asyncio.gather(worker.run(stopping), _take_events(order.settings, opened, stopping, traces))
    finally:
        reporting.cancel()


async def _report(chores: Chores) -> None:
    """Tell the supervisor once a second which chores are stuck. What it does not read is dropped."""
    output = sys.stdout.fileno()
    os.set_blocking(output, False)
    while True:
        with contextlib.suppress(OSError):
            os.write(output, ", ".join(chores.stuck()).encode() + b"\n")
        await asyncio.sleep(REPORT_EVERY)


async def _take_events(
    settings: Settings, opened: app.Opened, stopping: asyncio.Event, traces: "Traces | None"
) -> None:  # fmt: skip
    if settings.nats:
        from gatepost.ingest import nats  # noqa: PLC0415 (an extra that may not be installed)

        await nats.consume(opened.store, settings.nats, settings.nats_stream, stopping, traces)


if __name__ == "__main__":
    main()
