"""The restore of a backup, and the steps that follow a restore by other means.

The restored store does not know which tokens were revoked, replaced or issued after the backup. So everything ends:
replacing the signing keys ends every access token, also for verifiers that only check signatures, and ending the
consents ends every refresh token. Operator tokens depend on neither, so each of them is revoked.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from gatepost import accounts
from gatepost.accounts import Account, account_rows, lookup, server_keys
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting, NotFound, Refused
from gatepost.core.secrets import Box
from gatepost.ledger import chains, heads, verification
from gatepost.ledger.entries import OPERATOR, Origin
from gatepost.ledger.record import record
from gatepost.oauth import consent_rows, key_rotation, operator_tokens, revocation
from gatepost.oauth.authorize import interactions
from gatepost.oauth.service import Service
from gatepost.run import app, backups
from gatepost.settings import Settings
from gatepost.store import backup, marker, presence
from gatepost.store.interface import Store
from gatepost.store.sqlite import SqliteStore
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import queue_rows
from gatepost.webhooks.fanout import create_deliveries

REASON = "store_restored"
_ORIGIN = Origin(OPERATOR)
_SLICE = 200  # consents in one commit
_NO_LIMIT = 1_000_000_000

Advance = Callable[[int], None]
Progress = Callable[[str], AbstractContextManager[Advance]]  # shows the progress of a step with this description


class Restored(NamedTuple):
    """The result of a restore."""

    backup_at: datetime | None
    tokens_ended: bool
    consents: int  # that were ended
    unfinished: int  # deliveries that are sent again
    lost_entries: dict[str, int]  # by type: entries that are not in the backup
    previous_store: Path | None = None  # where the replaced store is now


def restore_backup(
    settings: Settings, file: Path, progress: Progress, *, keep_tokens: bool, check_ledger: bool = True
) -> Restored:
    """Replace the store by a backup. A copy beside the store is prepared, and then takes its place atomically."""
    if settings.database:
        raise BadSetting(
            "this store is on PostgreSQL: restore it with PostgreSQL's own tools, then run: gatepost store restore "
            "--after-pitr"
        )
    if not file.is_file():
        raise NotFound(f"the file {file} does not exist")
    backups.verify(file)
    settings.data_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with presence.exclusive(settings.data_directory):
        copy = settings.data_directory / "gatepost.restoring.db"
        try:
            _remove(copy)
            with progress("pages") as advance:
                backup.copy(file, copy, None, advance)
            at = backup.made_at(copy)
            backup.forget_made_at(copy)
            lost = backup.entries_since(settings.sqlite_file, at) if at and settings.sqlite_file.exists() else {}
            master = Box(app.master_keys(settings))
            with closing(SqliteStore(copy, clock.now, create_deliveries)) as store:
                store.migrate()
                keys = store.read_now(lambda tx: server_keys.open_keys(tx, master, make=False))
                service = app.service_of(settings, keys)
                if check_ledger:
                    _check_ledgers(store, keys.seal, file, progress)
                restored = _finish(store, service, at, lost, progress, keep_tokens=keep_tokens)
            backup.settle(copy)
            _mark(settings, restoring=True)
            previous = backup.put_in_place(copy, settings.sqlite_file, clock.now().strftime("%Y%m%dT%H%M%SZ"))
            _mark(settings, restoring=False)
        finally:
            _remove(copy)
    return restored._replace(previous_store=previous)


def _check_ledgers(store: Store, key: bytes, file: Path, progress: Progress) -> None:
    """Raise `Refused` if a ledger differs from its seals."""
    store.run_now(lambda tx: chains.create_missing(tx, key))  # as the first start of this release does
    problems = heads.check_heads(store, key)
    with progress("ledger entries") as advance:
        for account in lookup.every(store):
            problem = verification.verify(store, key, account.id, on_progress=advance).problem
            if problem:
                problems[account.name] = problem
                break
    for name, problem in problems.items():
        raise Refused(
            f"the ledger of {name} in {file} does not match its seals: {problem}. The store was not replaced. Use "
            "another backup, or pass --skip-ledger-check to restore this one nevertheless"
        )


def _remove(file: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)


def _mark(settings: Settings, *, restoring: bool) -> None:
    with suppress(OSError):  # the key may be on a volume that cannot be written
        marker.put(settings.key_file, settings.sqlite_file, restoring=restoring)


def finish_restore(settings: Settings, progress: Progress) -> Restored:
    """Finish a restore that was done by other means, to an earlier state that is not known."""
    runtime = app.open_for_use(settings)
    with closing(runtime.store):
        return _finish(runtime.store, runtime.service, None, {}, progress, keep_tokens=False)


def _finish(
    store: Store, service: Service, backup_at: datetime | None, lost: dict[str, int], progress: Progress,
    *, keep_tokens: bool,
) -> Restored:  # fmt: skip
    """Record the restore, and end all tokens unless they are kept. Safe to run again after an interruption."""
    at, unfinished = store.read_now(lambda tx: (tx.at, _count_unfinished(tx)))
    data = {
        "backup_at": clock.rfc3339(backup_at) if backup_at else None,
        "tokens": "kept" if keep_tokens else "ended",
        "unfinished_deliveries": unfinished,
        "lost_entries": lost,
    }
    store.run_now(lambda tx: _record(tx, service, data, keep_tokens=keep_tokens))
    consents = 0
    if not keep_tokens:
        with progress("consents") as advance:
            consents = sum(_end_consents(store, account, at, advance) for account in list(lookup.every(store)))
    return Restored(backup_at, not keep_tokens, consents, unfinished, lost)


def _count_unfinished(tx: Tx) -> int:
    return sum(int(number) for number, _ in queue_rows.count_by_endpoint(tx, _NO_LIMIT).values())


def _record(tx: Tx, service: Service, data: dict[str, Any], *, keep_tokens: bool) -> None:
    """In one commit: record the restore, replace the signing keys, and end operator tokens and open authorizations."""
    account = account_rows.load_named(tx, accounts.OPERATOR)
    if account is None:
        raise LookupError(accounts.OPERATOR)
    record(tx, account, "account.store.restored", _ORIGIN, account.id, data)
    if not keep_tokens:
        key_rotation.revoke_all(tx, service, REASON, _ORIGIN)
        operator_tokens.revoke_all(tx, REASON, _ORIGIN)
        interactions.delete_all(tx)


def _end_consents(store: Store, account: Account, before: datetime, advance: Advance) -> int:
    count, after = 0, LOWEST
    while page := store.run_now(partial(_end_page, account=account, after=after, before=before)):
        count += len(page)
        after = page[-1]
        advance(len(page))
    return count


def _end_page(tx: Tx, account: Account, after: bytes, before: datetime) -> list[bytes]:
    page = consent_rows.active_given_before(tx, account.id, after, before, _SLICE)
    for raw_id in page:
        revocation.end_consent(tx, account, ids.text("con", raw_id), REASON, _ORIGIN)
    return page
