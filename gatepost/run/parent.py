"""How a child process learns that it must end: by a signal, or by the end of its standard input."""

import asyncio
import signal
import sys


def stopping(descriptor: int | None = None) -> asyncio.Event:
    """An event that is set when SIGTERM arrives or the parent process is gone.

    The parent sends nothing more on standard input, so it becomes readable only at its end. The end stays readable, so
    the event loop must stop watching it: otherwise it would spin until the last request is finished.
    """
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    watched = sys.stdin.fileno() if descriptor is None else descriptor

    def parent_gone() -> None:
        loop.remove_reader(watched)
        event.set()

    loop.add_reader(watched, parent_gone)
    loop.add_signal_handler(signal.SIGTERM, event.set)
    return event
