"""The parent of a child process: how the child learns that it is to end, by a signal or by the end of its input."""

import asyncio
import signal
import sys


def stopping(descriptor: int | None = None) -> asyncio.Event:
    """Set when SIGTERM arrives or the parent is gone. The parent sends nothing more on standard input: readable is end.

    The end of the input stays readable, so the event loop must stop watching it: it would be busy with that alone
    until the last request has been answered.
    """
    found, loop = asyncio.Event(), asyncio.get_running_loop()
    watched = sys.stdin.fileno() if descriptor is None else descriptor

    def parent_gone() -> None:
        loop.remove_reader(watched)
        found.set()

    loop.add_reader(watched, parent_gone)
    loop.add_signal_handler(signal.SIGTERM, found.set)
    return found
