"""Waiting until a condition holds, with a limit that only a defect reaches."""

import time
from collections.abc import Callable

# Seconds. A busy machine takes several times as long as an idle one, and only a failing test waits until this limit.
LIMIT = 120.0
LIMIT_MS = int(LIMIT * 1000)


def wait_until(condition: Callable[[], bool], what: str = "the condition") -> None:
    """Check the condition at growing intervals, because frequent checks slow down what the test waits for."""
    deadline = time.monotonic() + LIMIT
    pause = 0.005
    while not condition():
        assert time.monotonic() < deadline, f"timed out while waiting for: {what}"
        time.sleep(pause)
        pause = min(1.2 * pause, 0.1)
