"""`gatepost client`: look at clients, disable and enable them, rotate their secrets."""

from datetime import timedelta
from typing import Any

import click

from gatepost.accounts import administration
from gatepost.cli import show
from gatepost.cli.options import account_option, duration, json_option, with_store
from gatepost.core.errors import BadSetting
from gatepost.core.secret_rotation import OVERLAP
from gatepost.oauth.clients import MAX_OVERLAP
from gatepost.run.app import Opened


@click.group()
def client() -> None:
    """See clients, disable and enable them, rotate their secrets."""


@client.command("list")
@account_option
@with_store
@json_option
def list_clients(opened: Opened, name: str, as_json: bool) -> None:
    """The clients of an account, oldest first."""
    account = opened.store.read_now(lambda tx: administration.named(tx, name))
    found = list(administration.clients_of(opened.store, account.id))
    if as_json:
        show.document(opened.store.read_now(lambda tx: [administration.shown_client(tx, each) for each in found]))
        return
    rows = [
        (each.id, each.client_name, each.status, each.token_endpoint_auth_method, " ".join(each.grant_types))
        for each in found
    ]
    show.table(("client_id", "name", "status", "authenticates by", "grant types"), rows)


@client.command("show")
@click.argument("client_id")
@with_store
@json_option
def show_client(opened: Opened, client_id: str, as_json: bool) -> None:
    """One client as it is defined; of its secrets only when they were made, used and end."""
    found = opened.store.read_now(lambda tx: administration.shown_client(tx, administration.client_of(tx, client_id)))
    _tell(found, as_json)


@client.command()
@click.argument("client_id")
@with_store
@json_option
def disable(opened: Opened, client_id: str, as_json: bool) -> None:
    """Stop a client: no tokens, and its tokens refused here. Who only checks signatures sees them until they expire."""
    _tell(_redefine(opened, client_id, status="disabled"), as_json)


@client.command()
@click.argument("client_id")
@with_store
@json_option
def enable(opened: Opened, client_id: str, as_json: bool) -> None:
    """Let a disabled client go on."""
    _tell(_redefine(opened, client_id, status="active"), as_json)


@client.command("rotate-secret")
@click.argument("client_id")
@click.option("--overlap", type=duration, default="24h", help="How long the secret before still works; 0 ends it now.")
@with_store
@json_option
def rotate_secret(opened: Opened, client_id: str, overlap: timedelta, as_json: bool) -> None:
    """Give a client a new secret and print it: it is shown only once."""
    if overlap > MAX_OVERLAP:
        raise BadSetting(f"--overlap: at most {MAX_OVERLAP.days}d; leave it out for {OVERLAP // timedelta(hours=1)}h")
    found = _redefine(opened, client_id, rotate_secret={"overlap": int(overlap.total_seconds())})
    if as_json:
        show.document(found)
        return
    show.record({"client_id": client_id, "client_secret": found["client_secret"]})
    ends = [each["expires_at"] for each in found["secrets"] if each["expires_at"]]
    print(f"This secret is shown only once. The previous one {f'works until {ends[-1]}' if ends else 'has ended'}.")


def _redefine(opened: Opened, client_id: str, **changes: Any) -> dict[str, Any]:
    return opened.store.run_now(lambda tx: administration.redefine_client(tx, opened.service, client_id, changes))


def _tell(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show.document(found)
    else:
        show.record(found)
