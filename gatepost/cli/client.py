"""`gatepost client`: show, disable and enable clients, and rotate their secrets."""

from datetime import timedelta
from typing import Any

import click

from gatepost.cli import show
from gatepost.cli.options import account_named, account_option, duration, with_store
from gatepost.core.errors import BadSetting
from gatepost.core.secret_rotation import OVERLAP
from gatepost.oauth import client_admin, client_rows, define_client
from gatepost.oauth.clients import MAX_OVERLAP
from gatepost.run.app import Runtime


@click.group()
def client() -> None:
    """Show, disable and enable clients, and rotate their secrets."""


@client.command("list")
@account_option
@with_store
def list_clients(runtime: Runtime, name: str, as_json: bool) -> None:
    """List the clients of an account, oldest first."""
    clients = list(client_rows.every(runtime.store, account_named(runtime, name).id))
    if as_json:
        show.document(runtime.store.read_now(lambda tx: [define_client.render(tx, client) for client in clients]))
        return
    rows = [
        (client.id, client.client_name, client.status, client.token_endpoint_auth_method, " ".join(client.grant_types))
        for client in clients
    ]
    show.table(("client_id", "name", "status", "authentication", "grant types"), rows)


@client.command("show")
@click.argument("client_id")
@with_store
def show_client(runtime: Runtime, client_id: str, as_json: bool) -> None:
    """Show the definition of a client. Of its secrets, only the times are shown."""
    definition = runtime.store.read_now(lambda tx: define_client.render(tx, client_admin.named(tx, client_id)))
    show.record(definition, as_json=as_json)


@client.command()
@click.argument("client_id")
@with_store
def disable(runtime: Runtime, client_id: str, as_json: bool) -> None:
    """Disable a client: it gets no tokens, and Gatepost refuses its tokens.

    Verifiers that only check signatures accept access tokens until they expire.
    """
    show.record(_redefine(runtime, client_id, status="disabled"), as_json=as_json)


@client.command()
@click.argument("client_id")
@with_store
def enable(runtime: Runtime, client_id: str, as_json: bool) -> None:
    """Enable a disabled client."""
    show.record(_redefine(runtime, client_id, status="active"), as_json=as_json)


@client.command("rotate-secret")
@click.argument("client_id")
@click.option(
    "--overlap", type=duration, default="24h", help="How long the previous secret stays valid; 0 ends it now."
)
@with_store
def rotate_secret(runtime: Runtime, client_id: str, overlap: timedelta, as_json: bool) -> None:
    """Create a new secret for a client and print it. It is shown only once."""
    if overlap > MAX_OVERLAP:
        raise BadSetting(f"--overlap: at most {MAX_OVERLAP.days}d; the default is {OVERLAP // timedelta(hours=1)}h")
    definition = _redefine(runtime, client_id, rotate_secret={"overlap": int(overlap.total_seconds())})
    if as_json:
        show.document(definition)
        return
    show.record({"client_id": client_id, "client_secret": definition["client_secret"]})
    ends = [secret["expires_at"] for secret in definition["secrets"] if secret["expires_at"]]
    validity = f"is valid until {ends[-1]}" if ends else "is not valid any more"
    print(f"This secret is shown only once. The previous one {validity}.")


def _redefine(runtime: Runtime, client_id: str, **changes: Any) -> dict[str, Any]:
    return runtime.store.run_now(lambda tx: client_admin.redefine(tx, runtime.service, client_id, changes))
