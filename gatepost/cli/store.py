"""`gatepost store`: migrate the schema, check what is stored, back it up and restore it, delete what is too old."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from gatepost.accounts import Account, administration
from gatepost.cli import show
from gatepost.cli.audit import check as verify
from gatepost.cli.audit import heads_problems
from gatepost.cli.options import json_option, with_settings, with_store
from gatepost.cli.show import Check
from gatepost.core import clock
from gatepost.core.errors import BadSetting, GatepostError
from gatepost.ledger import entry_rows, seal_rows
from gatepost.run import app, backups
from gatepost.run.app import Opened
from gatepost.run.backups import PutBack
from gatepost.settings import Settings
from gatepost.store.interface import Store
from gatepost.store.schema_check import schema_problem
from gatepost.webhooks import pruning
from gatepost.webhooks.pruning import Place, Recount

SEALED_WITHIN = timedelta(minutes=1)
_UNKNOWN: Any = None  # a total that only the end will tell


@click.group()
def store() -> None:
    """Migrate, check, back up, restore and prune the store."""


@store.command()
@with_settings
@json_option
def migrate(settings: Settings, as_json: bool) -> None:
    """Bring the schema up to date without serving; on an empty SQLite store also make the account `default`.

    The secret of its first client is printed only to a terminal or with GATEPOST_DEV; otherwise it is written to
    first-client.json in the data directory, readable by its owner alone.
    """
    opened = app.open_for_start(settings)
    opened.store.close()
    created, applied = opened.created, list(opened.migrated)
    kept_in = app.keep_first_client(settings, created, terminal=sys.stdout.isatty())
    if as_json:
        first: dict[str, Any] = {}
        if created and created.secret:
            first = {"account": created.account.shown(), "client_id": created.client}
            first |= {"client_secret_file": str(kept_in)} if kept_in else {"client_secret": created.secret.reveal()}
        show.document({"applied": applied} | first)
        return
    print("\n".join(f"applied {name}" for name in applied) or "The schema is up to date.")
    print(app.welcome(created, kept_in), end="")


@store.command()
@with_settings
@json_option
def check(settings: Settings, as_json: bool) -> None:
    """Check the schema, the database's own integrity, every account's ledger, and that every delivery is there."""
    if not settings.database and not settings.sqlite_file.exists():
        raise BadSetting(f"there is no store in {settings.data_directory}; point --data at the right directory")
    show.checks(_checks(settings), as_json=as_json)


def _checks(settings: Settings) -> Iterator[Check]:
    try:
        with closing(app.open_store(settings)) as looking:
            yield from _check_database(looking)
        opened = app.open_for_use(settings)
        with closing(opened.store):
            yield _check_sealing(opened.store)
            yield from _check_ledgers(opened)
            yield from _check_deliveries(opened)
    except GatepostError as error:
        yield Check("store", "problem", str(error))


def _check_database(looking: Store) -> Iterator[Check]:
    applied = looking.applied()
    problem = schema_problem(looking.dialect, applied)
    yield Check("schema", "problem" if problem else "ok", problem or f"at {max(applied)}, the newest")
    broken = looking.integrity()
    if broken:
        yield Check("integrity", "problem", "; ".join(broken), "restore a backup")
    else:
        yield Check("integrity", "ok", f"{looking.info().engine} finds nothing wrong")


def _check_sealing(opened: Store) -> Check:
    oldest = opened.read_now(seal_rows.oldest_unsealed)
    age = clock.now() - oldest if oldest else timedelta()
    if age > SEALED_WITHIN:
        return Check("sealing", "warning", f"an entry has waited {age} for its seal", "start the service: it seals")
    return Check("sealing", "ok", "no entry has waited longer than a minute for its seal")


def _check_ledgers(opened: Opened) -> Iterator[Check]:
    problems = heads_problems(opened)
    for account in administration.every(opened.store):
        name, verdict = f"ledger of {account.name}", verify(opened, account)
        problem = verdict.problem or problems.pop(account.id, "")
        if problem:
            yield Check(name, "problem", problem, "keep a copy of this store as evidence")
        else:
            counts = f"entries {verdict.entries}, seals {verdict.seals}, not sealed yet {verdict.unsealed}"
            yield Check(name, "ok", f"intact: {counts}")
    for account_id, problem in problems.items():
        yield Check(f"ledger of {account_id}", "problem", problem, "keep a copy of this store as evidence")


def _check_deliveries(opened: Opened) -> Iterator[Check]:
    """What entries say that they made, counted again; and some of them matched again."""
    for account in administration.every(opened.store):
        name, found = f"deliveries of {account.name}", _recount(opened, account)
        counts = f"entries {found.entries - found.old} made {found.said} deliveries, {found.found} are there"
        if found.old:
            counts += f"; those of {found.old} older ones may be pruned"
        if found.problem:
            yield Check(
                name, "problem", f"{found.problem} ({counts})", "keep a copy of this store, and replay the event"
            )
        else:
            yield Check(name, "ok", f"{counts}; {found.sampled} entries matched again")


def _recount(opened: Opened, account: Account) -> Recount:
    total = opened.store.read_now(lambda tx: entry_rows.count(tx, account.id))
    with show.progress(account.name, total) as passed:
        return pruning.recount(opened.store, account.id, passed)


@store.command()
@click.argument("file", type=click.Path(path_type=Path))
@with_settings
@json_option
def backup(settings: Settings, file: Path, as_json: bool) -> None:
    """Copy the SQLite store to FILE while the service runs, and verify the copy.

    The master key is not in it: keep that apart. On PostgreSQL use pg_dump or pg_basebackup.
    """
    with _pages("pages") as passed:
        made = backups.back_up(settings, file.absolute(), passed)
    if as_json:
        told = {"file": str(made.file), "at": clock.rfc3339(made.at), "bytes": made.bytes}
        show.document(told | {"unfinished_deliveries": made.unfinished})
        return
    print(f"Backed up to {made.file} ({made.bytes} bytes), as of {clock.rfc3339(made.at)}. The copy was verified.")
    print(f"A restore sends {made.unfinished} deliveries again that are unfinished in it.")
    print("The master key is not in the backup. Keep it apart: without it the backup cannot be used.")


@store.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--keep-tokens", is_flag=True, help="Let the backup's tokens work, also those revoked since.")
@click.option("--after-pitr", is_flag=True, help="The database was restored by other means: only end tokens.")
@with_settings
@json_option
def restore(settings: Settings, file: Path | None, keep_tokens: bool, after_pitr: bool, as_json: bool) -> None:
    """Replace the SQLite store by the backup FILE. Stop the service first; what was there is put aside.

    Every access token, refresh token and consent ends, and signing keys are replaced: what was revoked since the backup
    is not known any more. Deliveries that were unfinished at the backup are sent again.
    """
    if (file is None) != after_pitr or (after_pitr and keep_tokens):
        raise BadSetting("give either the FILE of a backup, with or without --keep-tokens, or --after-pitr alone")
    if file is None:
        with show.progress("consents", _UNKNOWN) as ended:
            _tell_restored(PutBack(backups.after_pitr(settings, ended), None, {}), as_json)
        return
    with _pages("pages") as passed, show.progress("consents", _UNKNOWN) as ended:
        done = backups.put_back(settings, file, keep_tokens=keep_tokens, passed=passed, ended=ended)
    _tell_restored(done, as_json)


@contextmanager
def _pages(what: str) -> Iterator[Callable[[int, int], None]]:
    with show.progress(what, _UNKNOWN) as advance:
        before = 0

        def passed(done: int, _total: int) -> None:
            nonlocal before
            advance(done - before)
            before = done

        yield passed


def _tell_restored(done: PutBack, as_json: bool) -> None:
    restored = done.restored
    at = clock.rfc3339(restored.backup_at) if restored.backup_at else None
    if as_json:
        told: dict[str, Any] = {"backup_at": at, "aside": str(done.aside) if done.aside else None}
        told |= {"tokens": "ended" if restored.ended else "kept", "consents_ended": restored.consents}
        show.document(told | {"unfinished_deliveries": restored.unfinished, "lost_entries": done.lost})
        return
    if at:
        print(f"Restored the store as of {at}.")
    if done.aside:
        print(f"The store that was there is now {done.aside}.")
    if restored.ended:
        print(f"Ended {restored.consents} consents with their refresh tokens, and every access token: the signing keys")
        print("were replaced. Verifiers that keep the old key set accept old tokens for up to 15 minutes.")
    else:
        print("Tokens were kept: tokens, refresh tokens and keys that were revoked since the backup work again.")
    print(f"When the service starts, it sends {restored.unfinished} deliveries that were unfinished then, some of them")
    print("again. Receivers recognise them by their webhook-id.")
    if done.lost:
        print("These entries of the ledger are only in the store that was put aside:")
        show.table(("type", "entries"), done.lost.items())
    print("Definitions are as they were then: disable clients, suspend accounts and rotate secrets again where needed.")


@store.command()
@click.option("--to", "target", required=True, metavar="URL", help="An empty PostgreSQL database.")
@with_settings
@json_option
def move(settings: Settings, target: str, as_json: bool) -> None:
    """Move everything from SQLite to PostgreSQL. Stop the service first; the old file is put aside, not deleted.

    The master key stays the same: give it to the service on PostgreSQL as GATEPOST_MASTER_KEY or master_key_file.
    """
    if settings.database or not settings.sqlite_file.exists():
        raise BadSetting(f"there is no SQLite store in {settings.data_directory}; point --data at its directory")
    if not target.startswith(("postgresql://", "postgres://")):
        raise BadSetting("--to: must be a postgresql:// URL")
    app.open_for_use(settings).store.close()  # the schema is this release's, and the master key fits
    told = app.move(settings, target, show.progress)
    if as_json:
        show.document({"rows": told.rows, "aside": told.aside.name})
        return
    print(f"Moved {sum(told.rows.values())} rows. The SQLite file is now {told.aside.name}.")
    print("Start the service with GATEPOST_DATABASE set to that URL, and with the master key of this store.")


@store.command()
@with_store
@json_option
def prune(opened: Opened, as_json: bool) -> None:
    """Delete now what the service deletes by itself: what is older than its account's retention.

    In small batches, beside a running server. A delivery that is not ended stays, and its event with it.
    """
    told = []
    for account in administration.every(opened.store):
        deliveries, entries = _prune(opened, account)
        told.append({"account": account.id, "name": account.name, "deliveries": deliveries, "entries": entries})
    if as_json:
        show.document(told)
        return
    columns = ("name", "deliveries", "entries")
    show.table(
        ("account", "deliveries deleted", "entries looked at"), [[each[key] for key in columns] for each in told]
    )


def _prune(opened: Opened, account: Account) -> tuple[int, int]:
    key, deliveries, entries = opened.service.keys.seal, 0, 0
    place: Place | None = pruning.START
    with show.progress(account.name, _UNKNOWN) as passed:
        while place is not None:
            done = opened.store.run_now(pruning.some(key, account.id, place))
            deliveries, entries, place = deliveries + done.deliveries, entries + done.entries, done.next
            passed(done.deliveries + done.entries)
    return deliveries, entries
