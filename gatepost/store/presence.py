"""Whether a service runs on a data directory: it holds a shared lock there, which the kernel releases when it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gatepost.core import files
from gatepost.core.errors import Refused

_NAME = "service.lock"


@contextmanager
def shared(directory: Path) -> Iterator[None]:
    """The lock that a service holds while it runs."""
    with _held(directory, fcntl.LOCK_SH, "the store in {} is being restored or moved; start the service afterwards"):
        yield


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """The lock for work during which no service may run."""
    with _held(directory, fcntl.LOCK_EX, "a service runs on {}; stop it first, and start it again afterwards"):
        yield


@contextmanager
def _held(directory: Path, how: int, refusal: str) -> Iterator[None]:
    descriptor = files.open_lock(directory / _NAME)
    try:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(refusal.format(directory)) from None
        yield
    finally:
        os.close(descriptor)
