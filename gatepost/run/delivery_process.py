"""A delivery process: the worker and the event consumer. It reads its settings from standard input."""

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

_SWITCH_INTERVAL = 0.0005  # seconds: the store's thread should not wait long for the interpreter lock


class Configuration(msgspec.Struct):
    """What the supervisor sends to this process."""

    settings: Settings
    place: str = ""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the supervisor decides
    configure_logs()
    configuration = msgspec.json.decode(sys.stdin.buffer.readline(), type=Configuration)
    runtime = app.open_for_use(configuration.settings)
    traces = app.traces()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    collect_rarely()
    try:
        uvloop.run(_work(configuration, runtime, traces))
    finally:
        runtime.store.close()
        if traces:
            traces.close()


async def _work(configuration: Configuration, runtime: app.Runtime, traces: "Traces | None" = None) -> None:
    stopping = parent.stopping()
    settings = configuration.settings
    worker = Worker(
        runtime.store,
        runtime.service,
        configuration.place,
        proxy=settings.egress_proxy,
        ca=settings.egress_ca,
        traces=traces,
    )
    os.write(sys.stdout.fileno(), b"ready\n")
    reporting = asyncio.create_task(_report(worker.chores))
    try:
        await asyncio.gather(worker.run(stopping), _consume_events(configuration.settings, runtime, stopping, traces))
    finally:
        reporting.cancel()


async def _report(chores: Chores) -> None:
    """Report the stuck chores to the supervisor once a second. A report that it does not read is dropped."""
    output = sys.stdout.fileno()
    os.set_blocking(output, False)
    while True:
        with contextlib.suppress(OSError):
            os.write(output, ", ".join(chores.stuck()).encode() + b"\n")
        await asyncio.sleep(REPORT_EVERY)


async def _consume_events(
    settings: Settings, runtime: app.Runtime, stopping: asyncio.Event, traces: "Traces | None"
) -> None:  # fmt: skip
    if settings.nats:
        from gatepost.ingest import nats  # noqa: PLC0415 (an extra that may not be installed)

        await nats.consume(runtime.store, settings.nats, settings.nats_stream, stopping, traces)


if __name__ == "__main__":
    main()
