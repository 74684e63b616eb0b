"""`gatepost outbox`: the database roles that may publish through the outbox, and their accounts."""

from contextlib import closing

import click

from gatepost.accounts import lookup
from gatepost.cli import show
from gatepost.cli.options import json_option, with_settings
from gatepost.core.errors import BadSetting
from gatepost.ledger import outbox_rows
from gatepost.ledger.outbox import check_role, grant_statements, revoke_statements
from gatepost.run import app
from gatepost.settings import Settings
from gatepost.store.interface import Store


@click.group()
def outbox() -> None:
    """Allow PostgreSQL roles to publish events for certain accounts."""


@outbox.command()
@click.argument("role")
@click.option(
    "--account", "names", multiple=True, required=True, metavar="NAME", help="Name or id of an account; repeatable."
)
@click.option("--print", "only_print", is_flag=True, help="Print the statements without running them.")
@with_settings
@json_option
def grant(settings: Settings, role: str, names: tuple[str, ...], only_print: bool, as_json: bool) -> None:
    """Allow ROLE to insert into the outbox for these accounts, and nothing else.

    This replaces what ROLE was granted on the outbox before. ROLE is the role of your application, not Gatepost's own.
    """
    with closing(_open(settings)) as store:
        check_role(role, store.read_now(outbox_rows.own_roles))
        accounts = store.read_now(lambda tx: [lookup.named(tx, name) for name in names])
    statements = grant_statements(role, [text for account in accounts for text in (account.name, account.id)])
    _run(settings, statements, only_print=only_print, as_json=as_json)


@outbox.command()
@click.argument("role")
@click.option("--print", "only_print", is_flag=True, help="Print the statements without running them.")
@with_settings
@json_option
def revoke(settings: Settings, role: str, only_print: bool, as_json: bool) -> None:
    """Revoke everything that ROLE was granted on the outbox."""
    with closing(_open(settings)) as store:
        check_role(role, store.read_now(outbox_rows.own_roles))
    _run(settings, revoke_statements(role), only_print=only_print, as_json=as_json)


def _open(settings: Settings) -> Store:
    if not settings.database:
        raise BadSetting("the outbox needs PostgreSQL; set --database or GATEPOST_DATABASE")
    return app.open_for_use(settings).store


def _run(settings: Settings, statements: list[str], *, only_print: bool, as_json: bool) -> None:
    if not only_print:
        app.run_statements(settings.database, statements)
    text = "\n".join(f"{statement};" for statement in statements)
    show.message({"statements": statements, "run": not only_print}, text, as_json=as_json)
