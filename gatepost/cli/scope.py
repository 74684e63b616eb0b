"""`gatepost scope`: what an account's clients may ask for."""

import click

from gatepost.accounts import administration
from gatepost.cli import show
from gatepost.cli.options import account_option, json_option, with_store
from gatepost.oauth import reports, scopes
from gatepost.run.app import Opened


@click.group()
def scope() -> None:
    """See the scopes of an account."""


@scope.command("list")
@account_option
@with_store
@json_option
def list_scopes(opened: Opened, name: str, as_json: bool) -> None:
    """The scopes that an account defined, by name.

    Every account also has openid, offline_access, profile, email, address, phone and the gatepost: scopes.
    """
    account = opened.store.read_now(lambda tx: administration.named(tx, name))
    found = list(administration.scopes_of(opened.store, account.id))
    if as_json:
        show.document([scopes.render(each) for each in found])
        return
    rows = [(each.name, each.status, each.resource, each.max_lifetime, each.description) for each in found]
    show.table(("name", "status", "resource", "max lifetime", "description"), rows)


@scope.command()
@account_option
@click.option("--days", type=click.IntRange(1, 400), default=30, show_default=True, help="Unused for so long.")
@with_store
@json_option
def report(opened: Opened, name: str, days: int, as_json: bool) -> None:
    """Scopes that clients were granted and obtained no token with: what could be taken away."""
    account = opened.store.read_now(lambda tx: administration.named(tx, name))
    found = list(reports.unused(opened.store, account, days))
    if as_json:
        show.document([each._asdict() for each in found])
    elif found:
        show.table(("client", "name", "grant", "scope"), found)
    else:
        print(f"Every scope that was granted was used in the last {days} days.")
