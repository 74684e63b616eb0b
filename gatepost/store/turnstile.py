"""The turnstile: two file locks that make the writers of all processes take turns, however quick one of them is."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class NotNow(Exception):
    """Somebody else is writing, and we are not to wait."""


class Turnstile:
    """Gate, then write: who waits for the second holds the first, so who just wrote queues behind."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._gate = -1
        self._write = -1

    @contextmanager
    def passed(self, *, at_once: bool = False) -> Iterator[None]:
        if self._gate < 0:
            self._gate = os.open(self._directory / "gate.lock", os.O_RDWR | os.O_CREAT, 0o600)
        if self._write < 0:
            self._write = os.open(self._directory / "write.lock", os.O_RDWR | os.O_CREAT, 0o600)
        how = fcntl.LOCK_EX | (fcntl.LOCK_NB if at_once else 0)
        try:
            fcntl.flock(self._gate, how)
            try:
                fcntl.flock(self._write, how)
            finally:
                fcntl.flock(self._gate, fcntl.LOCK_UN)
        except BlockingIOError:
            raise NotNow from None
        try:
            yield
        finally:
            fcntl.flock(self._write, fcntl.LOCK_UN)

    def close(self) -> None:
        for descriptor in (self._gate, self._write):
            if descriptor >= 0:
                os.close(descriptor)
        self._gate = self._write = -1
