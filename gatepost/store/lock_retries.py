"""Changes of tables beside a running service.

A change waits for transactions that use its tables, and all others wait behind it. So it waits for a lock only
briefly, and is tried again.
"""

import sys
from collections.abc import Callable
from time import sleep
from typing import Any, TypeVar

import psycopg

from gatepost.core.errors import Unavailable
from gatepost.core.logging import is_configured, log

T = TypeVar("T")
Database = psycopg.Connection[tuple[Any, ...]]

LOCK_TIMEOUT = "1500ms"  # less than the time for which callers wait
TRIES = 60
_PAUSE = 0.5  # seconds between two tries, in which others get their turn


class Locked(Exception):
    """Why a change cannot be made now."""


def set_lock_timeout(database: Database) -> None:
    """Let the statements of this transaction wait only briefly for locks."""
    database.execute("SELECT set_config('lock_timeout', %s, true)", (LOCK_TIMEOUT,))


def retry(change: Callable[[], T], name: str) -> T:
    """Make a change, in a transaction that has the lock timeout. The first time that it must wait is reported.

    Raises `Unavailable` if the tables stay locked.
    """
    reason = ""
    for number in range(TRIES):
        try:
            return change()
        except psycopg.errors.LockNotAvailable as error:
            reason = f"other transactions use its tables ({' '.join(str(error).split())})"
        except Locked as error:
            reason = str(error)
        if number == 0:
            _report(f"{name} has to wait, because {reason}")
        sleep(_PAUSE)
    raise Unavailable(
        f"{name} was tried {TRIES} times, but {reason}; "
        "end long transactions, which pg_stat_activity lists, and try again"
    )


def _report(text: str) -> None:
    if is_configured():
        log.warning(text)
    else:
        sys.stderr.write(f"gatepost: {text}\n")
        sys.stderr.flush()
