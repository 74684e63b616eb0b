"""What all child processes have in common: how they start, what they report, and how they learn that they must end.

The supervisor writes the configuration to standard input as one line, and keeps that stream open while it runs. A child
writes to standard output: one line when it serves, and then a report once a second.
"""

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop

from gatepost.core.errors import GatepostError
from gatepost.core.logging import configure_logs, log
from gatepost.core.repeat import REPORT_EVERY, Chores
from gatepost.run import app
from gatepost.settings import Settings

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces


METRICS_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"  # the environment variable of prometheus-client
SILENCE = 10.0  # seconds without a report after which a process makes no progress


class Configuration(msgspec.Struct, frozen=True):
    """What the supervisor sends to a child process. `place` stays the same when the process is restarted."""

    settings: Settings
    place: str = ""


class Status(msgspec.Struct, frozen=True):
    """What the supervisor reports to the operations processes."""

    not_ready: str  # why the service is not ready, or ""
    metrics: str  # of the supervisor


def main(serve: "Callable[[Configuration, app.Runtime, Traces | None], Coroutine[Any, Any, None]]") -> None:
    """Run a child process: read the configuration, open the store, and serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the supervisor decides
    configure_logs()
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as unbuffered:  # leaves what follows the line
        configuration = msgspec.json.decode(unbuffered.readline(), type=Configuration)
    try:
        runtime = app.open_for_use(configuration.settings)
    except GatepostError as error:
        log.error("the process cannot start", error=str(error))
        sys.exit(1)
    traces = app.traces()
    collect_rarely()
    try:
        uvloop.run(serve(configuration, runtime, traces))
    finally:
        runtime.store.close()
        if traces:
            traces.close()


def collect_rarely() -> None:
    """Run the garbage collector rarely: requests leave no cycles, and collecting took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def report_ready() -> None:
    """Tell the supervisor that this process serves."""
    os.write(sys.stdout.fileno(), b"ready\n")


async def report(chores: Chores | None = None) -> None:
    """Report to the supervisor once a second that this process makes progress, and which of its chores are stuck.

    A report that the supervisor does not read is dropped.
    """
    output = sys.stdout.fileno()
    os.set_blocking(output, False)
    while True:
        stuck = chores.stuck() if chores else []
        with contextlib.suppress(OSError):
            os.write(output, ", ".join(stuck).encode() + b"\n")
        await asyncio.sleep(REPORT_EVERY)


def stopping(descriptor: int | None = None, on_line: Callable[[bytes], None] | None = None) -> asyncio.Event:
    """Return an event that is set when SIGTERM arrives or the supervisor is gone, which ends standard input.

    What the supervisor sends before is passed to `on_line`. The end of the stream stays readable, so the event loop
    must stop watching it: otherwise it would spin until the last request is finished.
    """
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    standard_input = sys.stdin.fileno() if descriptor is None else descriptor
    incomplete = b""

    def readable() -> None:
        nonlocal incomplete
        received = os.read(standard_input, 2**20)
        if not received:
            loop.remove_reader(standard_input)
            event.set()
        *lines, incomplete = (incomplete + received).split(b"\n")
        if on_line is not None:
            for line in lines:
                on_line(line)

    loop.add_reader(standard_input, readable)
    loop.add_signal_handler(signal.SIGTERM, event.set)
    return event
