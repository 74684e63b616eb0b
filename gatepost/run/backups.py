"""Backups of a store on SQLite."""

from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from gatepost.core.errors import BadSetting
from gatepost.run import app
from gatepost.settings import Settings
from gatepost.store import backup


class Backup(NamedTuple):
    """A backup that was created and verified."""

    file: Path
    at: datetime
    bytes: int
    unfinished: int  # deliveries that a restore sends again


def create(settings: Settings, file: Path, advance: Callable[[int], None]) -> Backup:
    """Create a verified, consistent copy of the store while the service runs. `advance` gets the pages of each step."""
    if settings.database:
        raise BadSetting(
            "this store is on PostgreSQL: back it up with pg_dump or pg_basebackup, and the master key separately; "
            "see docs/how-to/back-up-and-restore.md"
        )
    backup.check_target(file)
    with closing(app.open_for_use(settings).store) as store:
        at = store.now()
        backup.copy(settings.sqlite_file, file, at, advance)
    verify(file)
    return Backup(file, at, file.stat().st_size, backup.unfinished(file))


def verify(file: Path) -> None:
    """Raise `BadSetting` if the file is damaged or is not a store."""
    problems = backup.problems(file)
    if problems:
        raise BadSetting(f"{file} cannot be used: {'; '.join(problems)}")
