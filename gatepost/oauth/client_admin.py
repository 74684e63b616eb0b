"""Finding clients: the operator's commands."""

from gatepost.core.errors import NotFound
from gatepost.oauth import client_rows
from gatepost.oauth.clients import Client
from gatepost.store.transaction import Tx


def named(tx: Tx, client_id: str) -> Client:
    """The client with this id. Raises `NotFound` if there is none."""
    client = client_rows.load(tx, client_id)
    if client is None:
        raise NotFound(f"there is no client {client_id}; `gatepost client list --account NAME` lists the clients")
    return client
