"""Reading and changing clients: the operator's commands."""

from typing import Any

from gatepost.accounts import account_rows
from gatepost.core.errors import NotFound, Refused
from gatepost.ledger.operations import Call, operator
from gatepost.oauth import client_rows, define_client
from gatepost.oauth.clients import Client
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx


def named(tx: Tx, client_id: str) -> Client:
    """The client with this id. Raises `BadSetting` if there is none."""
    client = client_rows.load(tx, client_id)
    if client is None:
        raise NotFound(f"there is no client {client_id}; `gatepost client list --account NAME` lists the clients")
    return client


def redefine(tx: Tx, service: Service, client_id: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Change members of a client as the operator, by the same operation that callers use."""
    client = named(tx, client_id)
    account = account_rows.lock(tx, client.account)
    if account is None:
        raise LookupError(client.account)
    body = {"client_id": client_id} | changes
    answer = define_client.define(tx, service, account, Call(operator(account.id), body))
    if answer.refusal is not None:
        raise Refused(f"{answer.refusal.detail}; `gatepost client show {client_id}` shows its definition")
    return answer.body
