"""`gatepost key`: the signing keys through their lives, and the master key that everything at rest is under."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click

from gatepost.accounts import account_rows
from gatepost.cli import show
from gatepost.cli.options import json_option, with_settings, with_store
from gatepost.core.errors import BadSetting
from gatepost.core.secrets import Box, new_master_key
from gatepost.ledger.entries import OPERATOR, Origin
from gatepost.oauth import key_lifecycle as key_units
from gatepost.oauth import key_rows, signing_keys
from gatepost.oauth.signing_keys import Change, SigningKey
from gatepost.run import app
from gatepost.run.app import Opened
from gatepost.settings import PREFIX, Settings
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import endpoint_headers

_ORIGIN = Origin(OPERATOR)
_JWKS_AGE = f"{int(signing_keys.JWKS_MAX_AGE.total_seconds()) // 60} minutes"


@click.group()
def key() -> None:
    """See, rotate and revoke signing keys; change the master key."""


@key.command("list")
@with_store
@json_option
def list_keys(opened: Opened, as_json: bool) -> None:
    """All signing keys, oldest first: announced, active, retired, revoked, purged."""
    _tell(_stored(opened), as_json)


@key.command()
@click.option("--alg", "algs", multiple=True, type=click.Choice(signing_keys.ALGORITHMS), help="Only this algorithm.")
@click.option("--now", is_flag=True, help="Even if the next key is announced for less than 24 h.")
@with_store
@json_option
def rotate(opened: Opened, algs: tuple[str, ...], now: bool, as_json: bool) -> None:
    """Let the announced keys sign from now on.

    With --now, verifiers that cached the key set see an unknown kid until they fetch it again (15 minutes at most).
    """
    wanted = frozenset(algs or signing_keys.ALGORITHMS)
    changes = opened.store.run_now(lambda tx: key_units.rotate(tx, opened.service, _ORIGIN, wanted, now=now))
    _tell(_after(changes), as_json)
    if now:
        click.echo(
            f"Verifiers that cached the key set see an unknown kid until they fetch it again ({_JWKS_AGE} at most).",
            err=True,
        )


@key.command()
@click.argument("key_id")
@click.option("--reason", default="", help="Why, for the ledger.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_store
@json_option
def revoke(opened: Opened, key_id: str, reason: str, yes: bool, as_json: bool) -> None:
    """Take a compromised key out of the key set at once. Every token it signed stops verifying."""
    found = next(
        (each for each in _stored(opened) if each.id == key_id and each.status in signing_keys.PUBLISHED), None
    )
    if found is None:
        raise BadSetting(f"there is no key {key_id} in use; `gatepost key list` shows those there are")
    click.echo(
        f"{key_id} ({found.alg}, {found.status}): every token it signed stops verifying, here at once, elsewhere when "
        f"the key set is fetched again ({_JWKS_AGE} at most). Clients must ask for new ones. This cannot be undone.",
        err=True,
    )
    if not yes:
        click.confirm("Revoke it?", abort=True, err=True)
    changes = opened.store.run_now(lambda tx: key_units.revoke(tx, opened.service, key_id, reason, _ORIGIN))
    _tell(_after(changes), as_json)


@key.command()
@click.option("--new", is_flag=True, help="Make a new master key in the data directory's key file first.")
@with_settings
@json_option
def rewrap(settings: Settings, new: bool, as_json: bool) -> None:
    """Encrypt the server keys under the first master key, and what an earlier release stored in clear.

    Either set GATEPOST_MASTER_KEY to "new,old" everywhere and restart, rewrap, then leave out the old; or, with the
    key file in the data directory, rewrap --new does it all. Backups made before still need the old key.
    """
    own_file = not settings.master_key and not settings.master_key_file
    if new and not own_file:
        raise BadSetting(
            "--new is for the key file in the data directory; here, put a new key before the old in "
            f"{settings.master_key_file or PREFIX + 'MASTER_KEY'} (new,old), then rewrap without --new"
        )
    opened = app.open_for_use(settings)
    try:
        with _alone(settings.key_file) if own_file else nullcontext():
            count, left_out = _rewrap(settings, opened, new=new, own_file=own_file)
        encrypted = _encrypt_headers(opened)
    finally:
        opened.store.close()
    if as_json:
        show.document({"rewrapped": count, "keys_left_out": left_out, "endpoints_encrypted": encrypted})
        return
    print(f"{count} server keys rewrapped." if count else "The server keys are under the first master key already.")
    if encrypted:
        print(f"Hidden header values of {encrypted} endpoints, stored by an earlier release, were encrypted.")
    print(_next_step(settings, left_out, own_file=own_file))


def _encrypt_headers(opened: Opened) -> int:
    """What is encrypted rests on the server keys, so only what an earlier release stored in clear is to be done."""
    count, name, box = 0, "", opened.service.keys.data
    while some := opened.store.read_now(lambda tx, name=name: account_rows.page(tx, name, 100)):  # type: ignore[misc]
        name = some[-1].name
        for account in some:
            after: bytes | None = LOWEST
            while after is not None:
                found, after = opened.store.run_now(partial(_encrypt_some, box, account.id, after))
                count += found
    return count


def _encrypt_some(box: Box, account: str, after: bytes, tx: Tx) -> tuple[int, bytes | None]:
    return endpoint_headers.encrypt_slice(tx, box, account, after)


@contextmanager
def _alone(key_file: Path) -> Iterator[None]:
    """Two at once could each leave the other's key out of the file."""
    with key_file.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadSetting("another rewrap is under way here; wait until it has ended") from None
        yield


def _rewrap(settings: Settings, opened: Opened, *, new: bool, own_file: bool) -> tuple[int, int]:
    """In an order such that, wherever it is cut short, the keys in the file open the store."""
    path = settings.key_file
    if new:
        app.write_key_file(path, "\n".join([new_master_key(), *_words(path)]))
    master = app.master_keys(settings, first_start=False)
    count = opened.store.run_now(lambda tx: key_units.rewrap(tx, Box(master)))
    if not own_file or len(master) == 1:
        return count, 0
    opened.store.read_now(lambda tx: key_units.open_server_keys(tx, Box(master[:1]), make=False))
    app.write_key_file(path, _words(path)[0])
    return count, len(master) - 1


def _words(path: Path) -> list[str]:
    return path.read_text("ascii").replace(",", "\n").split()


def _next_step(settings: Settings, left_out: int, *, own_file: bool) -> str:
    if left_out:
        elsewhere = " Copy it to every other machine that uses this database." if settings.database else ""
        return f"{settings.key_file} holds the new key alone; running servers go on.{elsewhere}"
    if own_file:
        return "To change the master key: gatepost key rewrap --new"
    where = settings.master_key_file or f"{PREFIX}MASTER_KEY"
    if len(app.master_keys(settings, first_start=False)) > 1:
        return f"Now leave all but the first key out of {where}, everywhere, and restart the servers."
    return f"To change the master key: put a new one before the old in {where} (new,old), restart, then rewrap."


def _stored(opened: Opened) -> list[SigningKey]:
    return [each.key for each in opened.store.read_now(key_rows.load_uncached)]


def _after(changes: list[Change]) -> list[SigningKey]:
    """The keys that changed, each as it is in the end."""
    return list({change.key.id: change.key for change in changes}.values())


def _tell(found: list[SigningKey], as_json: bool) -> None:
    shown: list[dict[str, Any]] = [key_units.shown(each) for each in found]
    if as_json:
        show.document(shown)
        return
    columns = ("id", "alg", "status", "announced_at", "activated_at", "retired_at", "purge_at")
    show.table([name.replace("_", " ") for name in columns], [[each[name] for name in columns] for each in shown])
