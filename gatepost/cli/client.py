"""`gatepost client`: define, show, disable and enable clients, and rotate their secrets."""

import click

from gatepost.cli import define, show
from gatepost.cli.kinds import CLIENT
from gatepost.cli.operations import Operations, change, with_operations
from gatepost.cli.options import account_named, account_option, with_store
from gatepost.oauth import client_rows, define_client
from gatepost.run.app import Runtime


@click.group()
def client() -> None:
    """Define, show, disable and enable clients, and rotate their secrets."""


define.add_commands(client, CLIENT)


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
@with_operations
def show_client(operations: Operations, client_id: str, as_json: bool) -> None:
    """Show the definition of a client. Of its secrets, only the times are shown."""
    show.record(operations.define(CLIENT, {"client_id": client_id}), as_json=as_json)


@client.command()
@click.argument("client_id")
@with_operations
def disable(operations: Operations, client_id: str, as_json: bool) -> None:
    """Disable a client: it gets no tokens, and Gatepost refuses its tokens.

    Verifiers that only check signatures accept access tokens until they expire.
    """
    show.record(change(operations, CLIENT, {"client_id": client_id, "status": "disabled"}), as_json=as_json)


@client.command()
@click.argument("client_id")
@with_operations
def enable(operations: Operations, client_id: str, as_json: bool) -> None:
    """Enable a disabled client."""
    show.record(change(operations, CLIENT, {"client_id": client_id, "status": "active"}), as_json=as_json)
