"""`gatepost outbox`: which database roles may publish through the outbox, and for which accounts."""

import click

from gatepost.accounts import administration
from gatepost.cli import show
from gatepost.cli.options import json_option, with_settings
from gatepost.core.errors import BadSetting
from gatepost.ledger.outbox import grant_statements, revoke_statements
from gatepost.run import app
from gatepost.run.app import Opened
from gatepost.settings import Settings


@click.group()
def outbox() -> None:
    """Let a PostgreSQL role publish events for certain accounts only."""


@outbox.command()
@click.argument("role")
@click.option("--account", "names", multiple=True, required=True, metavar="NAME", help="Its name or id; repeatable.")
@click.option("--print", "only_print", is_flag=True, help="Print the statements and do not run them.")
@with_settings
@json_option
def grant(settings: Settings, role: str, names: tuple[str, ...], only_print: bool, as_json: bool) -> None:
    """Let ROLE insert into the outbox for these accounts, and do nothing else with it.

    What ROLE was granted on the outbox before is replaced.
    """
    opened = _opened(settings)
    try:
        found = [opened.store.read_now(lambda tx, name=name: administration.named(tx, name)) for name in names]  # type: ignore[misc]
    finally:
        opened.store.close()
    statements = grant_statements(role, [text for each in found for text in (each.name, each.id)])
    _run(settings, statements, only_print=only_print, as_json=as_json)


@outbox.command()
@click.argument("role")
@click.option("--print", "only_print", is_flag=True, help="Print the statements and do not run them.")
@with_settings
@json_option
def revoke(settings: Settings, role: str, only_print: bool, as_json: bool) -> None:
    """Take from ROLE whatever it was granted on the outbox."""
    _opened(settings).store.close()
    _run(settings, revoke_statements(role), only_print=only_print, as_json=as_json)


def _opened(settings: Settings) -> Opened:
    if not settings.database:
        raise BadSetting("the outbox is in PostgreSQL only; set --database or GATEPOST_DATABASE")
    return app.open_for_use(settings)


def _run(settings: Settings, statements: list[str], *, only_print: bool, as_json: bool) -> None:
    if not only_print:
        app.run_statements(settings.database, statements)
    if as_json:
        show.document({"statements": statements, "run": not only_print})
        return
    for statement in statements:
        print(f"{statement};")
