"""Making commits to an SQLite file durable.

SQLite leaves the sync of its write-ahead log to us, so that its lock is not held while we wait for the disk.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Never

import apsw

_sync = getattr(os, "fdatasync", os.fsync)  # not every system has fdatasync
_SYNC_FAILED = (apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC)


class WriteAheadLog:
    """After a failed sync the kernel may have dropped the pages, and does not report it again.

    So the process cannot go on, and `lost` ends it.
    """

    def __init__(self, path: Path, lost: Callable[[BaseException], Never]) -> None:
        self._path = f"{path}-wal"
        self._lost = lost
        self._descriptor = -1

    def sync(self) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDONLY)
        self._sync()

    def _sync(self) -> None:
        try:
            _sync(self._descriptor)
        except OSError as error:
            self._lost(error)

    def check(self, error: BaseException) -> None:
        """End the process if the error is a failed sync of SQLite's own, when it copied the log into the file."""
        if getattr(error, "extendedresult", 0) in _SYNC_FAILED:
            self._lost(error)

    def close(self) -> None:
        """Sync once more: a failure that this descriptor has not reported yet would go unnoticed."""
        if self._descriptor >= 0:
            self._sync()
            os.close(self._descriptor)
            self._descriptor = -1
