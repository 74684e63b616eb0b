"""`gatepost key`: the life cycle of the signing keys, and the master key that encrypts everything at rest."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import click

from gatepost.accounts import lookup, server_keys
from gatepost.cli import show
from gatepost.cli.options import json_option, with_settings, with_store
from gatepost.core import clock, files
from gatepost.core.errors import BadSetting, NotFound, Refused
from gatepost.core.secrets import Box, new_master_key
from gatepost.ledger.entries import OPERATOR, Origin
from gatepost.oauth import key_rotation, key_rows, signing_keys
from gatepost.oauth.signing_keys import KeyChange, SigningKey
from gatepost.run import app
from gatepost.run.app import Runtime
from gatepost.settings import PREFIX, Settings
from gatepost.store.transaction import LOWEST
from gatepost.webhooks import endpoint_headers

_ORIGIN = Origin(OPERATOR)
_JWKS_AGE = f"{int(signing_keys.JWKS_MAX_AGE.total_seconds()) // 60} minutes"


@click.group()
def key() -> None:
    """Show, rotate and revoke signing keys, and change the master key."""


@key.command("list")
@with_store
def list_keys(runtime: Runtime, as_json: bool) -> None:
    """List all signing keys, oldest first: announced, active, retired, revoked, purged."""
    _show(_load_keys(runtime), as_json)


@key.command()
@click.option("--alg", "algs", multiple=True, type=click.Choice(signing_keys.ALGORITHMS), help="Only this algorithm.")
@click.option("--now", is_flag=True, help="Even if the next key was announced less than 24 h ago.")
@with_store
def rotate(runtime: Runtime, algs: tuple[str, ...], now: bool, as_json: bool) -> None:
    """Activate the announced keys, which sign from now on.

    With --now, verifiers that cached the key set see an unknown kid until they fetch it again (15 minutes at most).
    """
    wanted = frozenset(algs or signing_keys.ALGORITHMS)
    changes = runtime.store.run_now(lambda tx: key_rotation.rotate(tx, runtime.service, _ORIGIN, wanted, now=now))
    _show(_changed_keys(changes), as_json)
    if now:
        click.echo(
            f"Verifiers that cached the key set see an unknown kid until they fetch it again ({_JWKS_AGE} at most).",
            err=True,
        )


@key.command()
@click.argument("key_id")
@click.option("--reason", default="", help="The reason, for the ledger.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_store
def revoke(runtime: Runtime, key_id: str, reason: str, yes: bool, as_json: bool) -> None:
    """Remove a compromised key from the key set at once. Tokens that it signed are no longer valid."""
    published = {key.id: key for key in _load_keys(runtime) if key.status in signing_keys.PUBLISHED}
    if key_id not in published:
        raise NotFound(f"no key {key_id} is in use; see `gatepost key list`")
    key = published[key_id]
    click.echo(
        f"{key_id} ({key.alg}, {key.status}): tokens that it signed become invalid, here at once, elsewhere when the "
        f"key set is fetched again ({_JWKS_AGE} at most). Clients must request new tokens. This cannot be undone.",
        err=True,
    )
    if not yes:
        click.confirm("Revoke it?", abort=True, err=True)
    changes = runtime.store.run_now(lambda tx: key_rotation.revoke(tx, runtime.service, key_id, reason, _ORIGIN))
    _show(_changed_keys(changes), as_json)


@key.command()
@click.option("--new", is_flag=True, help="First create a new master key in the data directory's key file.")
@with_settings
@json_option
def rewrap(settings: Settings, new: bool, as_json: bool) -> None:
    """Encrypt the server keys with the first master key, and values that an earlier release stored unencrypted.

    With the key file in the data directory, run rewrap --new. Otherwise, set GATEPOST_MASTER_KEY to "new,old"
    everywhere and restart, run rewrap, and then remove the old key.

    Backups that were made before still need the old key. With --new, it is kept beside the new one, as
    master.key.replaced-TIME. To restore such a backup, append the old key to master.key first.
    """
    own_file = not settings.master_key and not settings.master_key_file
    if new and not own_file:
        raise BadSetting(
            "--new is for the key file in the data directory; instead, put a new key before the old one in "
            f"{settings.master_key_file or PREFIX + 'MASTER_KEY'} (new,old), and run rewrap without --new"
        )
    runtime = app.open_for_use(settings)
    with closing(runtime.store):
        with _rewrap_lock(settings.key_file) if own_file else nullcontext():
            count, removed, kept = _rewrap(settings, runtime, new=new, own_file=own_file)
        encrypted = _encrypt_headers(runtime)
    if as_json:
        members = {"rewrapped": count, "keys_left_out": removed, "endpoints_encrypted": encrypted}
        show.document(members | {"old_key_file": str(kept) if kept else None})
        return
    rewrapped = f"{count} server keys rewrapped." if count else ""
    print(rewrapped or "The server keys are already encrypted with the first master key.")
    if encrypted:
        values = f"the hidden header values of {encrypted} endpoints"
        print(f"Encrypted {values}, which an earlier release stored unencrypted.")
    print(_next_step(settings, kept, own_file=own_file))


def _encrypt_headers(runtime: Runtime) -> int:
    """Encrypt what an earlier release stored unencrypted. Everything else depends only on the server keys."""
    count, box = 0, runtime.service.keys.data
    for account in lookup.every(runtime.store):
        after: bytes | None = LOWEST
        while after is not None:
            unit = partial(endpoint_headers.encrypt_slice, box=box, account=account.id, after=after)
            encrypted, after = runtime.store.run_now(unit)
            count += encrypted
    return count


@contextmanager
def _rewrap_lock(key_file: Path) -> Iterator[None]:
    """Prevent a second rewrap, which could remove the new key of this one from the file."""
    with os.fdopen(files.open_lock(key_file.with_suffix(".lock")), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused("another rewrap is running; wait until it has finished") from None
        yield


def _rewrap(settings: Settings, runtime: Runtime, *, new: bool, own_file: bool) -> tuple[int, int, Path | None]:
    """Return how many server keys were rewrapped, how many old keys were removed, and the file that has them now.

    The keys in the file open the store at every step, so that an interruption does no harm.
    """
    path = settings.key_file
    if new:
        app.write_key_file(path, "\n".join([new_master_key(), *_keys_in(path)]))
    master = app.master_keys(settings)
    count = runtime.store.run_now(lambda tx: server_keys.rewrap(tx, Box(master)))
    if not own_file or len(master) == 1:
        return count, 0, None
    runtime.store.read_now(lambda tx: server_keys.open_keys(tx, Box(master[:1]), make=False))
    first, *old = _keys_in(path)
    kept = path.with_name(f"{path.name}.replaced-{clock.now():%Y%m%dT%H%M%SZ}")
    same_second = _keys_in(kept) if kept.exists() else []
    app.write_key_file(kept, "\n".join([*old, *same_second]))
    app.write_key_file(path, first)
    return count, len(old), kept


def _keys_in(path: Path) -> list[str]:
    return path.read_text("ascii").replace(",", "\n").split()


def _next_step(settings: Settings, kept: Path | None, *, own_file: bool) -> str:
    if kept:
        elsewhere = " Copy it to every other machine that uses this database." if settings.database else ""
        return (
            f"{settings.key_file} now holds only the new key. Running servers are not affected.{elsewhere}\n"
            f"Existing backups still need the old key, which is now in {kept}. Keep it for as long as these backups."
        )
    if own_file:
        return "To change the master key, run: gatepost key rewrap --new"
    where = settings.master_key_file or f"{PREFIX}MASTER_KEY"
    if len(app.master_keys(settings)) > 1:
        return (
            f"Now remove all but the first key from {where}, everywhere, and restart the servers.\n"
            "Existing backups still need the old key: keep it in another place for as long as these backups."
        )
    return f"To change the master key, put a new one before the old one in {where} (new,old), restart, and rewrap."


def _load_keys(runtime: Runtime) -> list[SigningKey]:
    return [stored.key for stored in runtime.store.read_now(key_rows.load_uncached)]


def _changed_keys(changes: list[KeyChange]) -> list[SigningKey]:
    """Return the keys that changed, in their final state."""
    return list({change.key.id: change.key for change in changes}.values())


def _show(keys: list[SigningKey], as_json: bool) -> None:
    columns = show.headings("id", "alg", "status", "announced_at", "activated_at", "retired_at", "purge_at")
    show.listing([key_rotation.render(key) for key in keys], columns, as_json=as_json)
