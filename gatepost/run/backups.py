"""Backup and restore of a store on SQLite, and the steps that follow a restore by other means."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from gatepost.accounts import server_keys
from gatepost.core import clock
from gatepost.core.errors import BadSetting
from gatepost.core.secrets import Box
from gatepost.run import app
from gatepost.run import restore as units
from gatepost.run.restore import Restored
from gatepost.settings import Settings
from gatepost.store import backup, marker, presence
from gatepost.store.sqlite import SqliteStore
from gatepost.webhooks.fanout import create_deliveries

Passed = Callable[[int, int], None]


class Backup(NamedTuple):
    file: Path
    at: datetime
    bytes: int
    unfinished: int  # deliveries that a restore sends again


class RestoreResult(NamedTuple):
    restored: Restored
    aside: Path | None  # where the replaced store is now
    lost: dict[str, int]  # entries by type that are not in the backup


def create(settings: Settings, file: Path, passed: Passed) -> Backup:
    """Create a verified, consistent copy of the store while the service runs."""
    if settings.database:
        raise BadSetting(
            "this store is on PostgreSQL: back it up with pg_dump or pg_basebackup, and the master key separately; "
            "see docs/how-to/back-up-and-restore.md"
        )
    backup.check_target(file)
    runtime = app.open_for_use(settings)
    try:
        at = runtime.store.now()
        backup.copy(settings.sqlite_file, file, at, passed)
    finally:
        runtime.store.close()
    _verify(file)
    return Backup(file, at, file.stat().st_size, backup.unfinished(file))


def _verify(file: Path) -> None:
    problems = backup.problems(file)
    if problems:
        raise BadSetting(f"{file} cannot be used: {'; '.join(problems)}")


def restore(
    settings: Settings, file: Path, *, keep_tokens: bool, passed: Passed, ended: Callable[[int], None]
) -> RestoreResult:  # fmt: skip
    """Replace the store by a backup. A copy beside the store is prepared, and then takes its place atomically."""
    if settings.database:
        raise BadSetting(
            "this store is on PostgreSQL: restore it with PostgreSQL's own tools, then run: gatepost store restore "
            "--after-pitr"
        )
    if not file.is_file():
        raise BadSetting(f"the file {file} does not exist")
    _verify(file)
    settings.data_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with presence.alone(settings.data_directory):
        fresh = settings.data_directory / "gatepost.restoring.db"
        try:
            _remove(fresh)
            backup.copy(file, fresh, None, passed)
            at = backup.made_at(fresh)
            backup.forget_made_at(fresh)
            lost = backup.entries_since(settings.sqlite_file, at) if at and settings.sqlite_file.exists() else {}
            restored = _finish(settings, fresh, at, keep_tokens=keep_tokens, lost=lost, ended=ended)
            backup.settle(fresh)
            _mark(settings, restoring=True)
            aside = backup.put_in_place(fresh, settings.sqlite_file, clock.now().strftime("%Y%m%dT%H%M%SZ"))
            _mark(settings, restoring=False)
        finally:
            _remove(fresh)
    return RestoreResult(restored, aside, lost)


def _remove(file: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)


def _mark(settings: Settings, *, restoring: bool) -> None:
    with suppress(OSError):  # the key may be on a volume that cannot be written
        marker.put(settings.key_file, settings.sqlite_file, restoring=restoring)


def _finish(
    settings: Settings, fresh: Path, at: datetime | None, *, keep_tokens: bool, lost: dict[str, int],
    ended: Callable[[int], None],
) -> Restored:  # fmt: skip
    master = Box(app.master_keys(settings, first_start=False))
    store = SqliteStore(fresh, clock.now, create_deliveries)
    try:
        store.migrate()
        keys = store.read_now(lambda tx: server_keys.open_keys(tx, master, make=False))
        service = app.service_of(settings, keys)
        return units.finish(store, service, backup_at=at, keep_tokens=keep_tokens, lost=lost, passed=ended)
    finally:
        store.close()


def after_pitr(settings: Settings, ended: Callable[[int], None]) -> Restored:
    """Finish a restore that was done by other means, to an earlier state that is not known."""
    runtime = app.open_for_use(settings)
    try:
        return units.finish(runtime.store, runtime.service, backup_at=None, keep_tokens=False, lost={}, passed=ended)
    finally:
        runtime.store.close()
