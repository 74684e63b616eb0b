"""`gatepost store`: migrate, check, back up, restore, move, archive and prune the store."""

import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from gatepost.accounts import Account, lookup
from gatepost.cli import archives, show
from gatepost.cli.audit import heads_problems, verify_ledger
from gatepost.cli.doctor import check_schema
from gatepost.cli.options import account_named, json_option, with_settings, with_store
from gatepost.cli.show import Check
from gatepost.core import clock
from gatepost.core.errors import BadSetting, GatepostError, NoStore
from gatepost.ledger import entry_rows, seal_rows
from gatepost.ledger.retention import PruningPosition
from gatepost.run import app, backups
from gatepost.run.app import Runtime
from gatepost.run.restore import Restored, finish_restore, restore_backup
from gatepost.settings import Settings
from gatepost.store import marker, presence
from gatepost.store.interface import Store
from gatepost.webhooks import pruning, recount
from gatepost.webhooks.recount import Recount

SEALED_WITHIN = timedelta(minutes=1)


@click.group()
def store() -> None:
    """Migrate, check, back up, restore, archive and prune the store."""


@store.command()
@with_settings
@json_option
def migrate(settings: Settings, as_json: bool) -> None:
    """Migrate the schema without serving. In an empty SQLite store, also create the account `default`.

    The secret of its first client is printed only to a terminal or with GATEPOST_DEV. Otherwise it is written to
    first-client.json in the data directory, which only its owner can read.
    """
    runtime = app.open_for_start(settings)
    runtime.store.close()
    created, applied = runtime.created, list(runtime.migrated)
    file = app.write_first_client(settings, created, terminal=sys.stdout.isatty())
    if as_json:
        first: dict[str, Any] = {}
        if created and created.secret:
            first = {"account": created.account.render(), "client_id": created.client}
            first |= {"client_secret_file": str(file)} if file else {"client_secret": created.secret.reveal()}
        show.document({"applied": applied} | first)
        return
    print("\n".join(f"applied {name}" for name in applied) or "The schema is up to date.")
    print(app.welcome(created, file), end="")


@store.command()
@with_settings
@json_option
def check(settings: Settings, as_json: bool) -> None:
    """Check the schema, the integrity of the database, every ledger, and that no delivery is missing or stuck."""
    if not settings.database and not settings.sqlite_file.exists():
        raise NoStore(f"there is no store in {settings.data_directory}; set --data to the right directory")
    show.checks(_checks(settings), as_json=as_json)


def _checks(settings: Settings) -> Iterator[Check]:
    try:
        with closing(app.open_store(settings)) as store:
            yield from _check_database(store)
        runtime = app.open_for_use(settings)
        with closing(runtime.store):
            yield _check_sealing(runtime.store)
            yield from _check_ledgers(runtime)
            yield from _check_deliveries(runtime)
    except GatepostError as error:
        yield Check("store", "problem", str(error))


def _check_database(store: Store) -> Iterator[Check]:
    yield check_schema(store)
    broken = store.integrity()
    if broken:
        yield Check("integrity", "problem", "; ".join(broken), "restore a backup")
    else:
        yield Check("integrity", "ok", f"{store.info().engine} reports no problem")


def _check_sealing(store: Store) -> Check:
    oldest = store.read_now(seal_rows.oldest_unsealed)
    age = clock.now() - oldest if oldest else timedelta()
    if age > SEALED_WITHIN:
        return Check(
            "sealing", "warning", f"an entry has waited {age} to be sealed", "start the service, which seals the ledger"
        )
    return Check("sealing", "ok", "no entry has waited longer than a minute to be sealed")


def _check_ledgers(runtime: Runtime) -> Iterator[Check]:
    problems = heads_problems(runtime)
    for account in lookup.every(runtime.store):
        name, verdict = f"ledger of {account.name}", verify_ledger(runtime, account)
        problem = verdict.problem or problems.pop(account.id, "")
        if problem:
            yield Check(name, "problem", problem, "keep a copy of this store as evidence")
        else:
            counts = f"entries {verdict.entries}, seals {verdict.seals}, not sealed yet {verdict.unsealed}"
            yield Check(name, "ok", f"intact: {counts}")
    for account_id, problem in problems.items():
        yield Check(f"ledger of {account_id}", "problem", problem, "keep a copy of this store as evidence")


def _check_deliveries(runtime: Runtime) -> Iterator[Check]:
    """Count the deliveries that entries say they created, and match a sample of the entries again."""
    for account in lookup.every(runtime.store):
        name, count = f"deliveries of {account.name}", _recount(runtime, account)
        counts = f"entries {count.entries - count.old}, deliveries expected {count.recorded}, found {count.existing}"
        if count.old:
            counts += f"; older entries, whose deliveries may be pruned, {count.old}"
        if count.problem:
            advice = "keep a copy of this store, and replay the event"
            yield Check(name, "problem", f"{count.problem} ({counts})", advice)
        else:
            yield Check(name, "ok", f"{counts}; entries rechecked {count.sampled}")


def _recount(runtime: Runtime, account: Account) -> Recount:
    total = runtime.store.read_now(lambda tx: entry_rows.count(tx, account.id))
    with show.progress(account.name, total) as advance:
        return recount.recount(runtime.store, account.id, advance)


@store.command()
@click.argument("file", type=click.Path(path_type=Path))
@with_settings
@json_option
def backup(settings: Settings, file: Path, as_json: bool) -> None:
    """Copy the SQLite store to FILE while the service runs, and verify the copy.

    The copy does not contain the master key: store it separately. On PostgreSQL, use pg_dump or pg_basebackup.
    """
    with show.progress("pages") as advance:
        made = backups.create(settings, file.absolute(), advance)
    at = clock.rfc3339(made.at)
    members = {"file": str(made.file), "at": at, "bytes": made.bytes, "unfinished_deliveries": made.unfinished}
    text = (
        f"Backed up to {made.file} ({made.bytes} bytes), as of {at}. The copy was verified.\n"
        f"A restore sends its {made.unfinished} unfinished deliveries again.\n"
        "The backup does not contain the master key. Store the key separately: the backup is useless without it."
    )
    show.message(members, text, as_json=as_json)


@store.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--keep-tokens", is_flag=True, help="Keep the tokens of the backup valid, also those revoked since.")
@click.option("--skip-ledger-check", is_flag=True, help="Restore the backup even if a ledger does not match its seals.")
@click.option("--after-pitr", is_flag=True, help="The database was restored by other means: only revoke tokens.")
@with_settings
@json_option
def restore(
    settings: Settings, file: Path | None, keep_tokens: bool, skip_ledger_check: bool, after_pitr: bool, as_json: bool
) -> None:
    """Replace the SQLite store by the backup FILE. Stop the service first. The previous store is kept under a new name.

    All access tokens, refresh tokens, operator tokens and consents are revoked and the signing keys are replaced,
    because revocations since the backup are lost. Deliveries that were unfinished at the time of the backup are sent
    again.
    """
    if (file is None) != after_pitr or (after_pitr and (keep_tokens or skip_ledger_check)):
        raise BadSetting("pass either the FILE of a backup, with or without other options, or only --after-pitr")
    if file is None:
        restored = finish_restore(settings, show.progress)
    else:
        restored = restore_backup(
            settings, file, show.progress, keep_tokens=keep_tokens, check_ledger=not skip_ledger_check
        )
    _show_restored(restored, as_json)
    if skip_ledger_check and not as_json:
        print("The seals of the ledgers were not verified. Run: gatepost audit verify")


def _show_restored(restored: Restored, as_json: bool) -> None:
    at = clock.rfc3339(restored.backup_at) if restored.backup_at else None
    previous = restored.previous_store
    if as_json:
        members: dict[str, Any] = {"backup_at": at, "aside": str(previous) if previous else None}
        members |= {"tokens": "ended" if restored.tokens_ended else "kept", "consents_ended": restored.consents}
        show.document(members | {"unfinished_deliveries": restored.unfinished, "lost_entries": restored.lost_entries})
        return
    if at:
        print(f"Restored the store as of {at}.")
    if previous:
        print(f"The previous store is now {previous}.")
    if restored.tokens_ended:
        print(
            f"Revoked {restored.consents} consents with their refresh tokens, all operator tokens, and all access\n"
            "tokens: the signing keys were replaced. Verifiers that cached the old key set accept old access tokens\n"
            "for up to 15 minutes."
        )
    else:
        print("Tokens were kept: tokens, refresh tokens and keys that were revoked since the backup are valid again.")
    print(
        f"When the service starts, it sends {restored.unfinished} deliveries that were unfinished at the backup. Some"
    )
    print("of them may be sent twice. Receivers recognise them by their webhook-id.")
    if restored.lost_entries:
        print("These ledger entries are only in the previous store:")
        show.table(("type", "entries"), restored.lost_entries.items())
    print(
        "Definitions are those of the backup. Where needed, disable clients, suspend accounts and rotate secrets again."
    )


@store.command()
@click.option("--to", "target", required=True, metavar="URL", help="An empty PostgreSQL database.")
@with_settings
@json_option
def move(settings: Settings, target: str, as_json: bool) -> None:
    """Move the store from SQLite to PostgreSQL. Stop the service first. The SQLite file is renamed, not deleted.

    If the command was interrupted, run it again with the same URL.

    The master key stays the same: set GATEPOST_MASTER_KEY or master_key_file for the service on PostgreSQL.
    """
    interrupted = settings.sqlite_file.with_name(marker.MOVING).exists()
    if settings.database or not (settings.sqlite_file.exists() or interrupted):
        raise NoStore(f"there is no SQLite store in {settings.data_directory}; set --data to its directory")
    if not target.startswith(("postgresql://", "postgres://")):
        raise BadSetting("--to: must be a postgresql:// URL")
    with presence.exclusive(settings.data_directory):
        if settings.sqlite_file.exists():
            app.open_for_use(settings).store.close()  # checks the schema and the master key
        moved = app.move(settings, target, show.progress)
    text = (
        f"Moved {sum(moved.rows.values())} rows. The SQLite file is now {moved.aside.name}.\n"
        "Start the service with GATEPOST_DATABASE set to that URL, and with the master key of this store."
    )
    show.message({"rows": moved.rows, "aside": moved.aside.name}, text, as_json=as_json)


@store.command()
@click.option("--yes", is_flag=True, help="Distribute the store. Without this, only print what would be done.")
@with_settings
@json_option
def distribute(settings: Settings, yes: bool, as_json: bool) -> None:
    """Distribute the PostgreSQL store by account over the nodes of a Citus cluster. Stop the service first.

    Prints the planned changes first. Run it again after an upgrade that adds tables.
    """
    if not settings.database:
        raise BadSetting("only a store on PostgreSQL can be distributed; see `gatepost store move`")
    app.open_for_use(settings).store.close()  # checks the schema and the master key
    plan = app.distribute(settings.database, dry_run=True)
    if not as_json:
        print(_describe_distribution(plan))
    if yes and plan.tables:
        app.distribute(settings.database, dry_run=False)
    members = {"nodes": plan.nodes, "tables": plan.tables, "local": plan.local, "distributed": yes or not plan.tables}
    text = "Done. Start the service." if yes else "Nothing was changed. To do this, run it again with --yes."
    if as_json:
        show.document(members)
    elif plan.tables:
        print(text)


def _describe_distribution(plan: Any) -> str:
    if not plan.tables:
        return "All tables are distributed already."
    lines = [
        f"Citus {plan.citus} will distribute these tables by account over {', '.join(plan.nodes)}, with their rows:",
        f"  {', '.join(plan.tables)}",
    ]
    if plan.partitioned:
        lines.append(f"These are turned into tables without partitions first: {', '.join(plan.partitioned)}")
    dropped = [key for key in plan.foreign_keys if not key.is_kept]
    if dropped:
        names = ", ".join(f"{key.table} → {key.target}" for key in dropped)
        lines.append(f"These foreign keys are dropped, because Citus cannot enforce them: {names}")
    return "\n".join([*lines, f"These tables stay on the coordinator: {', '.join(plan.local)}"])


@store.command()
@with_store
def prune(runtime: Runtime, as_json: bool) -> None:
    """Delete now what the service would delete later: data older than its account's retention.

    Works in small batches, also beside a running server. Unfinished deliveries and their events are kept.
    On PostgreSQL, partitions are dropped if the retention of all their rows has ended.
    """
    pruned = []
    runtime.store.maintain_partitions()
    for account in lookup.every(runtime.store):
        deliveries, entries = _prune(runtime, account)
        counts = {"deliveries_deleted": deliveries, "entries_examined": entries}
        pruned.append({"account": account.id, "name": account.name} | counts)
    show.listing(pruned, {"account": "name"} | show.headings("deliveries_deleted", "entries_examined"), as_json=as_json)


def _prune(runtime: Runtime, account: Account) -> tuple[int, int]:
    key, deliveries, entries = runtime.service.keys.seal, 0, 0
    position: PruningPosition | None = pruning.START
    with show.progress(account.name) as advance:
        while position is not None:
            done = runtime.store.run_now(pruning.prune_slice(key, account.id, position))
            deliveries, entries, position = deliveries + done.deliveries, entries + done.entries, done.next
            advance(done.deliveries + done.entries)
    return deliveries, entries


@store.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--account", "name", metavar="NAME", help="Name or id of the account. The default is all accounts.")
@click.option("--after", metavar="DAY", help="From this day on, in UTC: 2026-10-01. The default is the oldest row.")
@click.option("--before", metavar="DAY", help="Up to the end of the day before, in UTC. The default is today.")
@with_store
def archive(
    runtime: Runtime, directory: Path, name: str | None, after: str | None, before: str | None, as_json: bool
) -> None:
    """Copy entries, deliveries and attempts of past days to DIRECTORY, as Parquet files with their seals.

    Works beside a running server, and deletes nothing. Unsealed entries and unfinished deliveries are left out. The
    archive is verified before it gets its name. `gatepost audit verify --archive` verifies it later.
    """
    period = archives.parse_period(after, before, runtime.store.now())
    accounts = [account_named(runtime, name)] if name is not None else lookup.every(runtime.store)
    archives.write(runtime, accounts, period, directory, as_json=as_json)
