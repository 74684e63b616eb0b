"""The turnstile: two file locks that make the writers of all processes take turns."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gatepost.core import files


class Turnstile:
    """Two locks: gate, then write. A waiter holds the gate lock, so the process that wrote last queues last."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._gate = -1
        self._write = -1

    @contextmanager
    def locked(self) -> Iterator[None]:
        if self._gate < 0:
            self._gate = files.open_lock(self._directory / "gate.lock")
        if self._write < 0:
            self._write = files.open_lock(self._directory / "write.lock")
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._write, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._write, fcntl.LOCK_UN)

    def close(self) -> None:
        for descriptor in (self._gate, self._write):
            if descriptor >= 0:
                os.close(descriptor)
        self._gate = self._write = -1
