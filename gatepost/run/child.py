"""What the web process and the delivery process have in common: how they start, and how they learn that they must end.

The supervisor writes the configuration to standard input as one line, and keeps that stream open while it runs.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop

from gatepost.core.logging import configure_logs
from gatepost.run import app
from gatepost.settings import Settings

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces


class Configuration(msgspec.Struct, frozen=True):
    """What the supervisor sends to a child process. `place` is the same for all children of one supervisor."""

    settings: Settings
    place: str = ""


def main(serve: "Callable[[Configuration, app.Runtime, Traces | None], Coroutine[Any, Any, None]]") -> None:
    """Run a child process: read the configuration, open the store, and serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the supervisor decides
    configure_logs()
    configuration = msgspec.json.decode(sys.stdin.buffer.readline(), type=Configuration)
    runtime = app.open_for_use(configuration.settings)
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


def stopping(descriptor: int | None = None) -> asyncio.Event:
    """Return an event that is set when SIGTERM arrives or the supervisor is gone.

    The supervisor sends nothing more on standard input, so it becomes readable only at its end. The end stays readable,
    so the event loop must stop watching it: otherwise it would spin until the last request is finished.
    """
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    standard_input = sys.stdin.fileno() if descriptor is None else descriptor

    def supervisor_gone() -> None:
        loop.remove_reader(standard_input)
        event.set()

    loop.add_reader(standard_input, supervisor_gone)
    loop.add_signal_handler(signal.SIGTERM, event.set)
    return event
