"""`gatepost account`: accounts, which only operators create and change."""

from pathlib import Path
from typing import Any

import click
import msgspec

from gatepost.accounts import SETTINGS, Account, account_rows, lookup
from gatepost.cli import output, profiles, show
from gatepost.cli.define import SECRET_WOULD_BE_LOST, save_option
from gatepost.cli.options import account_named, contents, pairs, quiet_option, with_store
from gatepost.core import ids
from gatepost.core.errors import BadSetting
from gatepost.oauth import account_admin
from gatepost.oauth.account_admin import CreatedAccount
from gatepost.run.app import Runtime
from gatepost.store.transaction import Tx


@click.group()
def account() -> None:
    """Create, change and suspend accounts. NAME is the name or id of an account."""


@account.command()
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--jwks", metavar="@FILE", help="Public keys for the first client, instead of a secret.")
@click.option("--if-missing", is_flag=True, help="Do nothing if there is an account of this name.")
@save_option
@quiet_option
@with_store
def create(
    runtime: Runtime, name: str, settings: tuple[str, ...], jwks: str | None, if_missing: bool, save: Path | None,
    quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Create an account, and print the id and secret of its first client. The secret is shown only once.

    The client has every gatepost: scope of its account.
    """
    changes, keys = pairs(settings), _key_set(jwks)
    if quiet and save is None and keys is None:
        raise BadSetting(SECRET_WOULD_BE_LOST)

    def unit(tx: Tx) -> CreatedAccount:
        existing = lookup.find(tx, name) if if_missing else None
        if existing is not None:
            return CreatedAccount(existing, "", None)
        return account_admin.create(tx, runtime.service, name, changes, keys)

    created = runtime.store.run_now(unit)
    account, secret = created.account, created.secret.reveal() if created.secret else None
    members: dict[str, Any] = {"account": account.render() if as_json else account.id}
    if as_json or created.client:
        members |= {"client_id": created.client or None, "client_secret": secret}
    if save is not None and secret:
        profiles.save(save, {"remote": runtime.service.base_url} | members | {"account": account.id})
        del members["client_secret"]
        members["saved"] = str(save)
    elif save is not None and not created.client:
        rotate = f"`gatepost client list --account {name}` lists its clients, and `gatepost client rotate-secret` helps"
        profiles.check_saved(save, "account", account.id, rotate)
    if quiet:
        print(account.id)
        return
    if not members.get("client_secret"):
        show.record(members, as_json=as_json)
        return
    with output.showing_secret(f"create a new one: gatepost client rotate-secret {created.client}"):
        show.record(members, as_json=as_json)
        if not as_json:
            print("This secret is shown only once.")


def _key_set(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(contents(text), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise BadSetting(f"--jwks: not a JWK set ({error}); name a file with @, for example @keys.json") from None


@account.command("list")
@with_store
def list_accounts(runtime: Runtime, as_json: bool) -> None:
    """List all accounts by name."""
    accounts = [account.render() for account in lookup.every(runtime.store)]
    columns = {"name": "name", "id": "id", "status": "status", "created": "created_at"}
    show.listing(accounts, columns, as_json=as_json)


@account.command("show")
@click.argument("name")
@with_store
def show_account(runtime: Runtime, name: str, as_json: bool) -> None:
    """Show an account, and its settings as `account set` takes them.

    If the store is distributed, the account's database node is shown too.
    """
    account, shards = account_named(runtime, name), runtime.store.shards
    _show(account, as_json, shards.node(ids.raw(account.id)).name if shards else "")


@account.command("set")
@click.argument("name")
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@with_store
def set_settings(runtime: Runtime, name: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Change settings of an account: KEY=VALUE, KEY=@FILE for the content of a file, KEY= for the default."""
    changes = pairs(settings)
    changed = runtime.store.run_now(lambda tx: account_admin.change(tx, runtime.service, name, changes))
    if {"retention", "audit_retention"} & changes.keys():  # the first rows of a new class should find its table
        runtime.store.maintain_partitions(runtime.store.read_now(account_rows.retention_classes))
    _show(changed, as_json)


@account.command()
@click.argument("name")
@click.option("--reason", default="", help="The reason, for the ledger.")
@with_store
def suspend(runtime: Runtime, name: str, reason: str, as_json: bool) -> None:
    """Suspend an account: it gets no tokens, Gatepost refuses its tokens, and its deliveries are held."""
    _show(runtime.store.run_now(lambda tx: account_admin.suspend(tx, name, reason)), as_json)


@account.command()
@click.argument("name")
@with_store
def resume(runtime: Runtime, name: str, as_json: bool) -> None:
    """Resume a suspended account."""
    _show(runtime.store.run_now(lambda tx: account_admin.resume(tx, name)), as_json)


def _show(account: Account, as_json: bool, database_node: str = "") -> None:
    members = account.render() | ({"database_node": database_node} if database_node else {})
    if as_json:
        show.document(members)
        return
    settings = members.pop("settings")
    show.record(members)
    print()
    rows = [
        (name, SETTINGS[name].write(value) if value is not None else "",
         "set" if name in account.settings else "default")
        for name, value in settings.items()
    ]  # fmt: skip
    show.table(("setting", "value", "source"), rows)
