"""The rows of clients."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from gatepost.core import clock, ids
from gatepost.oauth.clients import Client
from gatepost.store.interface import Reader
from gatepost.store.transaction import LOWEST, Tx

_PAGE = 200

_client = msgspec.json.Decoder(Client)
_encode = msgspec.json.Encoder().encode


def load(tx: Tx, client: str) -> Client | None:
    """The client with this id."""
    return tx.cached(f"client {client}", lambda: load_uncached(tx, client))


def load_uncached(tx: Tx, client: str) -> Client | None:
    """The same, for a unit that holds the lock of the account and is about to change the client."""
    raw = ids.parse("cli", client)
    row = tx.one("client_by_id", id=raw) if raw else None
    return _client_from(row) if row else None


def page(tx: Tx, account: str, after: bytes, limit: int) -> list[Client]:
    """Some of the account's clients, the oldest first."""
    rows = tx.rows("list_clients", account=ids.raw(account), after=after, limit=limit)
    return [_client_from(row) for row in rows]


def count(tx: Tx, account: str) -> int:
    """How many clients the account has."""
    return int(tx.rows("count_clients", account=ids.raw(account))[0][0])


def add(tx: Tx, client: Client) -> None:
    """Store a new client."""
    tx.write("insert_client", **_row(client))


def update(tx: Tx, client: Client) -> None:
    """Store a changed client."""
    tx.write("update_client", **_row(client))
    tx.change(f"client {client.id}")


def secrets_used(tx: Tx, client: Client) -> dict[str, datetime]:
    """When each secret of the client was last used, without those that were never used."""
    used = {}
    for secret in client.secrets:
        row = tx.one("secret_used", account=ids.raw(client.account), id=ids.raw(secret.id))
        if row:
            used[secret.id] = clock.from_milliseconds(row[0])
    return used


def mark_secret_used(tx: Tx, account: str, secret: str, at: datetime) -> None:
    """Store when a secret was last used, unless a later time is stored."""
    tx.write("use_secret", account=ids.raw(account), id=ids.raw(secret), at=clock.milliseconds(at))


def _row(client: Client) -> dict[str, Any]:
    """`id_token_claims` has its own column and is left out of the document, so that it is stored once."""
    document = _encode(msgspec.structs.replace(client, id_token_claims=False)).decode()
    return {
        "account": ids.raw(client.account),
        "id": ids.raw(client.id),
        "document": document,
        "id_token_claims": int(client.id_token_claims),
    }


def _client_from(row: tuple[Any, ...]) -> Client:
    document, id_token_claims = row
    return msgspec.structs.replace(_client.decode(document), id_token_claims=bool(id_token_claims))


def every(store: Reader, account: str) -> Iterator[Client]:
    """All clients of an account, the oldest first."""
    after = LOWEST
    while clients := store.read_now(lambda tx, after=after: page(tx, account, after, _PAGE)):  # type: ignore[misc]
        yield from clients
        after = ids.raw(clients[-1].id)
