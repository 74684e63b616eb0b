"""`gatepost account`: the tenants, made and changed by operators only."""

from typing import Any

import click
import msgspec

from gatepost.accounts import Account, administration
from gatepost.cli import show
from gatepost.cli.options import contents, json_option, pairs, with_store
from gatepost.core.errors import BadSetting
from gatepost.run.app import Opened


@click.group()
def account() -> None:
    """Make, change and suspend accounts. NAME is an account's name or its id."""


@account.command()
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--jwks", metavar="@FILE", help="Give the first client these public keys in place of a secret.")
@with_store
@json_option
def create(opened: Opened, name: str, settings: tuple[str, ...], jwks: str | None, as_json: bool) -> None:
    """Make an account, and print its first client's id and secret: the secret is shown only once.

    The client holds every gatepost: scope of its account.
    """
    changes, keys = pairs(settings), _key_set(jwks)
    made = opened.store.run_now(lambda tx: administration.create(tx, opened.service, name, changes, keys))
    secret = made.secret.reveal() if made.secret else None
    if as_json:
        show.document({"account": made.account.shown(), "client_id": made.client, "client_secret": secret})
        return
    show.record({"account": made.account.id, "client_id": made.client, "client_secret": secret})
    if secret:
        print("This secret is shown only once.")


def _key_set(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(contents(text), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise BadSetting(f"--jwks: not a JWK set ({error}); name a file with @, as --jwks @keys.json") from None


@account.command("list")
@with_store
@json_option
def list_accounts(opened: Opened, as_json: bool) -> None:
    """All accounts, by name."""
    found = [each.shown() for each in administration.every(opened.store)]
    if as_json:
        show.document(found)
        return
    show.table(("name", "id", "status", "created"), [(a["name"], a["id"], a["status"], a["created_at"]) for a in found])


@account.command("show")
@click.argument("name")
@with_store
@json_option
def show_account(opened: Opened, name: str, as_json: bool) -> None:
    """One account with all its settings."""
    _tell(opened.store.read_now(lambda tx: administration.named(tx, name)), as_json)


@account.command("set")
@click.argument("name")
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@with_store
@json_option
def set_settings(opened: Opened, name: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Change settings of an account: KEY=VALUE, KEY=@FILE for what is in a file, KEY= for the default."""
    changes = pairs(settings)
    _tell(opened.store.run_now(lambda tx: administration.change(tx, opened.service, name, changes)), as_json)


@account.command()
@click.argument("name")
@click.option("--reason", default="", help="Why, for the ledger.")
@with_store
@json_option
def suspend(opened: Opened, name: str, reason: str, as_json: bool) -> None:
    """Stop an account: no tokens, its tokens refused here, its deliveries held. `resume` undoes it."""
    _tell(opened.store.run_now(lambda tx: administration.suspend(tx, name, reason)), as_json)


@account.command()
@click.argument("name")
@with_store
@json_option
def resume(opened: Opened, name: str, as_json: bool) -> None:
    """Let a suspended account go on."""
    _tell(opened.store.run_now(lambda tx: administration.resume(tx, name)), as_json)


def _tell(found: Account, as_json: bool) -> None:
    shown = found.shown()
    if as_json:
        show.document(shown)
        return
    settings = shown.pop("settings")
    show.record(shown)
    print()
    rows = [(name, value, "set" if name in found.settings else "default") for name, value in settings.items()]
    show.table(("setting", "value", "from"), rows)
