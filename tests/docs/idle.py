"""Waits until every delivery that is due has been attempted and no replay is running.

`python idle.py FILE` waits for the service with that SQLite file.
"""

import sys
import time
from pathlib import Path

import apsw

PATIENCE = 120.0  # seconds
_LEFT = """
SELECT (SELECT count(*) FROM queue q JOIN endpoints e ON e.account = q.account AND e.id = q.endpoint
    WHERE e.status = 'active' AND (q.number = 0 OR q.worker IS NOT NULL OR q.because IN ('operator', 'event')))
  + (SELECT count(*) FROM replays WHERE state = 'running')
"""


def wait_until_idle(file: Path) -> None:
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(5000)
        end = time.monotonic() + PATIENCE
        while left := next(connection.execute(_LEFT))[0]:
            if time.monotonic() > end:
                raise SystemExit(f"{left} deliveries or replays are unfinished after {PATIENCE:g} s")
            time.sleep(0.02)
    finally:
        connection.close()


if __name__ == "__main__":
    wait_until_idle(Path(sys.argv[1]))
