"""The group of all commands, and how errors are said."""

import os
import sys
from typing import Any

import click

from gatepost import __version__
from gatepost.cli.account import account
from gatepost.cli.audit import audit
from gatepost.cli.client import client
from gatepost.cli.completion import completion
from gatepost.cli.consent import consent
from gatepost.cli.delivery import delivery
from gatepost.cli.doctor import doctor
from gatepost.cli.endpoint import endpoint
from gatepost.cli.event import event
from gatepost.cli.issuer import issuer
from gatepost.cli.key import key
from gatepost.cli.options import settings_options
from gatepost.cli.scope import scope
from gatepost.cli.simulate import command as simulate
from gatepost.cli.store import store
from gatepost.cli.token import token
from gatepost.errors import GatepostError
from gatepost.settings import load


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gatepost")
def commands() -> None:
    """Issue and audit tokens, deliver and explain webhooks."""


@commands.command()
@settings_options
@click.option("--host", help="Address of the public listener.")
@click.option("--port", type=int, help="Its port.")
@click.option("--ops-port", type=int, help="Port of the operations plane.")
@click.option("--workers", type=int, help="Number of web processes.")
@click.option("--only", type=click.Choice(["web", "deliver"]), help="Run one half.")
@click.option("--dev", is_flag=True, default=None, help="For one's own machine: http and private receivers.")
def serve(config: str, **flags: Any) -> None:
    """Run the service."""
    from gatepost import serve as supervisor  # noqa: PLC0415 (only this command needs a server)

    supervisor.main(load(flags, config=config))


for noun in (
    account, audit, client, completion, consent, delivery, doctor, endpoint, event, issuer, key, scope, simulate, store,
    token,
):  # fmt: skip
    commands.add_command(noun)


def main() -> None:
    os.umask(0o077)  # what the service writes is its own user's
    try:
        commands()
    except GatepostError as error:
        print(f"gatepost: {error}", file=sys.stderr)
        sys.exit(2)
