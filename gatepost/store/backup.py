"""Backups of an SQLite store: making one while others write, checking it, and putting it in place.

A backup is a single file without a write-ahead log. Its counter `backed_up_at` has the time at which it was made.
"""

import os
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import apsw

from gatepost.core import clock, files
from gatepost.core.errors import BadSetting, Refused, Unavailable
from gatepost.store.turnstile import Turnstile

_PAGES = 2000  # in one step
_BUSY = 5000  # milliseconds
_MADE_AT = "backed_up_at"


def copy(source: Path, target: Path, at: datetime | None, advance: Callable[[int], None]) -> None:
    """Copy one snapshot of the source, while others may write to it. `at` is stored in the copy.

    The file gets its name when it is complete and on the disk. `advance` gets the pages of each step.
    """
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    os.close(files.create(partial))
    try:
        with closing(_open(source, write=False)) as original, closing(apsw.Connection(str(partial))) as made:
            original.execute("BEGIN")
            original.execute("SELECT count(*) FROM sqlite_master").fetchall()  # from here on this is the snapshot
            with made.backup("main", original, "main") as backup:
                copied = 0
                while not backup.done:
                    backup.step(_PAGES)
                    advance(backup.page_count - backup.remaining - copied)
                    copied = backup.page_count - backup.remaining
            original.execute("ROLLBACK")
            made.execute("PRAGMA journal_mode=DELETE")
            if at is not None:
                row = (_MADE_AT, clock.milliseconds(at))
                made.execute("INSERT OR REPLACE INTO counters (name, value) VALUES (?, ?)", row)
        files.sync(partial)
        partial.replace(target)
        files.sync(target.parent)
    except (apsw.Error, OSError) as error:
        raise Unavailable(f"{source} cannot be copied to {target}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def problems(file: Path) -> list[str]:
    """The problems that SQLite's own checks find in a copy."""
    try:
        with closing(_open(file, write=False)) as database:
            found = [str(row[0]) for row in database.execute("PRAGMA integrity_check(20)")]
            broken = database.execute("PRAGMA foreign_key_check").fetchall()
            if not database.table_exists("main", "server_keys"):
                found.append("it is not a Gatepost store")
    except apsw.Error as error:
        return [str(error)]
    found += [f"row {row[1]} of {row[0]} refers to a row that is not in {row[2]}" for row in broken]
    return [problem for problem in found if problem != "ok"]


def made_at(file: Path) -> datetime | None:
    """When the copy was made. If another tool copied the file, when its newest entry was written."""
    with closing(_open(file)) as database:
        noted = _values(database, "SELECT value FROM counters WHERE name = ?", _MADE_AT)
        newest = [] if noted else _values(database, "SELECT max(at) FROM entries")
    found = (noted or newest)[0]
    return None if found is None else clock.from_milliseconds(cast(int, found))


def unfinished(file: Path) -> int:
    """The number of deliveries that have not ended."""
    with closing(_open(file, write=False)) as database:
        return int(_values(database, "SELECT count(*) FROM queue")[0])


def forget_made_at(file: Path) -> None:
    """Remove the time of the backup: a file that was put in place is no longer a backup."""
    with closing(_open(file)) as database:
        database.execute("DELETE FROM counters WHERE name = ?", (_MADE_AT,))


def entries_since(file: Path, at: datetime) -> dict[str, int]:
    """The number of entries of each type since this instant. Empty if the store is damaged."""
    text = "SELECT type, count(*) FROM entries WHERE at > ? GROUP BY type ORDER BY type"
    with suppress(apsw.Error), closing(_open(file)) as database:
        rows = database.execute(text, (clock.milliseconds(at),)).fetchall()
        return dict(cast(list[tuple[str, int]], rows))
    return {}


def put_in_place(fresh: Path, store: Path, name: str) -> Path | None:
    """Replace the store with the fresh file, and keep the old one, with its log, under another name.

    Writers of other processes wait, and then find the new file. The old log is moved first: SQLite would apply it to
    the new file.
    """
    aside = store.with_name(f"gatepost.replaced-{name}.db")
    turnstile = Turnstile(store.parent)
    try:
        with turnstile.locked():
            existing = [suffix for suffix in ("", "-wal") if Path(f"{store}{suffix}").exists()]
            for suffix in existing:
                os.link(f"{store}{suffix}", f"{aside}{suffix}")
            files.sync(store.parent)
            for suffix in ("-wal", "-shm"):
                Path(f"{store}{suffix}").unlink(missing_ok=True)
            fresh.replace(store)
            files.sync(store.parent)
    finally:
        turnstile.close()
    return aside if existing else None


def settle(file: Path) -> None:
    """Turn it into a single file without a log, on the disk."""
    with closing(_open(file)) as database:
        database.execute("PRAGMA journal_mode=DELETE")
    files.sync(file)


def check_target(target: Path) -> None:
    """Raise `BadSetting` if a backup cannot be written to this path."""
    if target.exists() or target.is_symlink():  # a link to a volume that is not mounted
        raise Refused(f"{target} exists already; choose another name, so that no backup is overwritten")
    if not target.parent.is_dir():
        raise BadSetting(f"{target.parent} is not a directory; make it first")


def _open(file: Path, *, write: bool = True) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY
    database = apsw.Connection(str(file), flags=flags)
    database.set_busy_timeout(_BUSY)
    return database


def _values(database: apsw.Connection, text: str, *parameters: Any) -> list[Any]:
    return [row[0] for row in cast(list[tuple[Any, ...]], database.execute(text, parameters).fetchall())]
