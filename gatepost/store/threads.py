"""How the threads of a store end: they are daemons, so one that waits for a server need not hold up the process."""

import time
from collections.abc import Iterable
from threading import Thread

END_FOR = 3.0  # seconds that threads have to finish their work


def join(threads: Iterable[Thread]) -> bool:
    """Wait until the threads have ended. False if some of them take too long."""
    until = time.monotonic() + END_FOR
    alive = list(threads)
    for thread in alive:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in alive)
