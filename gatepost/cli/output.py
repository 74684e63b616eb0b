"""Standard output that cannot be written, for example because the disk is full."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gatepost.core.errors import GatepostError


def flush() -> OSError | None:
    """Write what is buffered, and return the error if that fails. The rest is discarded: Python would try again."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


@contextmanager
def showing_secret(advice: str) -> Iterator[None]:
    """Print a secret, which cannot be shown again. If that fails, the error says how to get a new one."""
    try:
        yield
        failure = flush()
    except OSError as error:
        failure = flush() or error
    if failure:
        raise GatepostError(f"the secret cannot be shown: {failure.strerror}; {advice}")
