"""`gatepost scope`: define and show the scopes that an account's clients may request."""

import click

from gatepost.cli import define, show
from gatepost.cli.kinds import SCOPE
from gatepost.cli.options import account_named, account_option, with_store
from gatepost.oauth import reports, scope_rows, scopes
from gatepost.run.app import Runtime


@click.group()
def scope() -> None:
    """Define and show the scopes of an account."""


define.add_commands(scope, SCOPE)


@scope.command("list")
@account_option
@with_store
def list_scopes(runtime: Runtime, name: str, as_json: bool) -> None:
    """List the scopes that an account defined, by name.

    Every account also has openid, offline_access, profile, email, address, phone and the gatepost: scopes.
    """
    defined = scope_rows.every(runtime.store, account_named(runtime, name).id)
    columns = show.headings("name", "status", "resource", "max_lifetime", "description")
    show.listing([scopes.render(scope) for scope in defined], columns, as_json=as_json)


@scope.command()
@account_option
@click.option("--days", type=click.IntRange(1, 400), default=30, show_default=True, help="Unused for this long.")
@with_store
def report(runtime: Runtime, name: str, days: int, as_json: bool) -> None:
    """List scopes that clients have but obtained no token with, and that could be removed."""
    unused = list(reports.unused_scopes(runtime.store, account_named(runtime, name), days))
    if as_json:
        show.document([row._asdict() for row in unused])
    elif unused:
        show.table(("client", "name", "grant", "scope"), unused)
    else:
        print(f"Every granted scope was used in the last {days} days.")
