"""`gatepost operator`: tokens for the operator's view."""

from contextlib import closing
from datetime import timedelta

import click

from gatepost.cli import output, show
from gatepost.cli.options import duration, json_option, with_settings, with_store
from gatepost.core import clock
from gatepost.oauth import operator_tokens
from gatepost.run.app import Runtime, open_for_use
from gatepost.settings import Settings
from gatepost.web.ops import pages


@click.group()
def operator() -> None:
    """Create and revoke tokens for the operator's view of all accounts."""


@operator.command()
@click.option("--lifetime", type=duration, default="1h", help="How long the token is valid: 1m to 8h. Default: 1h.")
@click.option("--reason", default="", help="The reason, for the ledger.")
@with_settings
@json_option
def token(settings: Settings, lifetime: timedelta, reason: str, as_json: bool) -> None:
    """Create a token for the operator's view, and print it. It is shown only once.

    The token can read all accounts, and change nothing. The operator's account has a ledger entry about it.
    """
    runtime = open_for_use(settings)
    with closing(runtime.store):
        made = runtime.store.run_now(lambda tx: operator_tokens.create(tx, runtime.service, lifetime, reason))
    expires_at = clock.rfc3339(made.expires_at)
    with output.showing_secret("create another token: gatepost operator token"):
        show.record({"id": made.id, "token": made.token.reveal(), "expires_at": expires_at}, as_json=as_json)
        if not as_json:
            address = pages.address(settings.ops_host, settings.ops_port, pages.OPERATOR)
            print(f"This token is shown only once. Sign in with it at {address}")
    if not settings.operator_console:
        click.echo("The view is off in these settings: set operator_console, and restart the service.", err=True)


@operator.command()
@click.argument("token_id")
@with_store
def revoke(runtime: Runtime, token_id: str, as_json: bool) -> None:
    """Revoke a token by its id. The service refuses it at once."""
    revoked = runtime.store.run_now(lambda tx: operator_tokens.revoke(tx, token_id))
    text = "The token is revoked." if revoked else "The token was revoked before."
    show.message({"id": token_id, "revoked": revoked}, text, as_json=as_json)
