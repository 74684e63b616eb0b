"""Inserts millions of rows into the tables of a store, as busy weeks would leave them.

The entries are not sealed, so the ledger does not verify afterwards.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg

from gatepost.core import clock, ids
from gatepost.ledger.entries import Entry
from gatepost.webhooks.deliveries import Delivery, Queued

_DATA = '{"padding":"0123456789"}'
_ATTEMPT = (
    '{"planned_at":1794720603581,"started_at":1794720603583,"ended_at":1794720603587,'
    '"url":"http://localhost:40699/good","signed_with":["sk_06gtrboro9pt51hj3dh0eb3v7s"],"waited_for":"plan",'
    '"waited_ms":2,"worker":"wrk_06gtrboroprk52teh5t3v050qo","duration_ms":2.1,"response_code":200,'
    '"timings":{"connect_ms":0.4,"first_byte_ms":2.0},"remote_ip":"127.0.0.1","response":"ok"}'
)
_AT_ONCE = 50_000
_DAY = 86_400_000
Rows = dict[str, list[tuple[Any, ...]]]
Target = tuple[bytes, bytes, bytes, str]  # account, endpoint, subscription, type

COLUMNS = {
    "entries": Entry._fields,
    "deliveries": (*Delivery._fields, "bad_status", "bad_code"),
    "attempts": ("account", "delivery", "number", "outcome", "document"),
    "queue": Queued._fields,
}


def history(targets: list[Target], start: int, count: int, total: int, days: int) -> Iterator[Rows]:
    """Generate deliveries from `start` on, out of `total` that are spread over the past days, oldest first.

    Of 100 deliveries, 95 succeeded at once, 3 succeeded at the second attempt, and 2 failed.
    """
    now = clock.milliseconds(clock.now())
    first, step = now - days * _DAY, days * _DAY / total
    for begin in range(start, start + count, _AT_ONCE):
        rows: Rows = {name: [] for name in COLUMNS}
        end = min(start + count, begin + _AT_ONCE)
        noise = os.urandom(20 * (end - begin))
        for number in range(begin, end):
            account, endpoint, subscription, kind = targets[number % len(targets)]
            at = int(first + number * step)
            place = 20 * (number - begin)
            prefix = at.to_bytes(6, "big")
            event, delivery = prefix + noise[place : place + 10], prefix + noise[place + 10 : place + 20]
            rows["entries"].append((account, event, kind, at, "bench", "", _DATA, None, 1, 30, "", ""))
            luck = number * 7919 % 100
            row = (account, delivery, endpoint, subscription, event, kind, "event")
            if luck < 98:
                rows["deliveries"].append((*row, "succeeded", at, "delivered", 200, None, 30, None, None))
            else:
                code, failure = (503, None) if luck == 98 else (None, "timeout")
                ended = ("failed", at, "attempts_exhausted", code, failure, 30, "failed", code)
                rows["deliveries"].append((*row, *ended))
            if luck >= 95:
                rows["attempts"].append((account, delivery, 1, "failed", _ATTEMPT))
            rows["attempts"].append((account, delivery, 2 if luck >= 95 else 1, "succeeded", _ATTEMPT))
        yield rows


def waiting(targets: list[Target], count: int) -> Iterator[Rows]:
    """Generate deliveries that are due and have no attempts."""
    for start in range(0, count, _AT_ONCE):
        rows: Rows = {name: [] for name in COLUMNS}
        for number in range(start, min(count, start + _AT_ONCE)):
            account, endpoint, subscription, kind = targets[number % len(targets)]
            at = clock.milliseconds(clock.now())
            event, delivery = ids.new_raw(), ids.new_raw()
            rows["entries"].append((account, event, kind, at, "bench", "", _DATA, None, 1, 30, "", ""))
            end = ("event", "pending", None, None, None, None, 30, None, None)
            rows["deliveries"].append((account, delivery, endpoint, subscription, event, kind, *end))
            rows["queue"].append((account, delivery, endpoint, event, 0, at, at, "event", 0, 0, 0, None, None, None))
        yield rows


def put(directory: Path, database: str, parts: Iterator[Rows]) -> None:
    (_copy if database else _insert)(database or str(directory / "gatepost.db"), parts)


def _insert(path: str, parts: Iterator[Rows]) -> None:
    connection = apsw.Connection(path)
    connection.set_busy_timeout(60_000)
    connection.execute("PRAGMA synchronous=OFF")
    for rows in parts:
        with connection:
            for table, found in rows.items():
                columns = COLUMNS[table]
                places = ", ".join("?" * len(columns))
                connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", found)
    connection.close()


def _copy(url: str, parts: Iterator[Rows]) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("SET synchronous_commit = off")
        for rows in parts:
            for table, found in rows.items():
                columns = ", ".join(COLUMNS[table])
                with connection.cursor().copy(f"COPY {table} ({columns}) FROM STDIN".encode()) as copy:
                    copy.write("".join(map(_line, found)))
            connection.commit()


def _line(row: tuple[Any, ...]) -> str:
    """A row in the text format of COPY. Its values have no characters that must be escaped."""
    return "\t".join(map(_value, row)) + "\n"


def _value(value: Any) -> str:
    if value is None:
        return "\\N"
    return f"\\\\x{value.hex()}" if isinstance(value, bytes) else str(value)
