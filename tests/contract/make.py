"""Functions that add rows to a store: accounts, clients, scopes and ledger entries with few members."""

from datetime import timedelta
from typing import Any

from gatepost.accounts import Account, account_rows
from gatepost.core import clock, ids
from gatepost.ledger import chains, entries, entry_rows
from gatepost.ledger.entries import Entry, Origin
from gatepost.ledger.record import append_entry
from gatepost.oauth import client_rows, scope_rows
from gatepost.oauth.clients import Client
from gatepost.oauth.scopes import Scope
from gatepost.store.transaction import Tx
from tests.contract.backends import Backend

KEY = b"k" * 32  # the seal key of the ledgers


def account(tx: Tx, made: Account, key: bytes = KEY) -> bool:
    """Add an account with the chain that its ledger needs to be sealed."""
    chains.create(tx, key, made.id)
    return account_rows.add(tx, made)


def record(
    tx: Tx, account: str, subject: str = "", *, keep_days: int = 30, raw_id: bytes | None = None, **data: Any
) -> Entry:
    """Record an entry of a type that the service does not interpret. The id has the time of the store's clock."""
    if raw_id is None and abs(tx.at - clock.now()) > timedelta(minutes=1):
        raw_id = clock.milliseconds(tx.at).to_bytes(6, "big") + ids.new_raw()[6:]
    entry = entries.new(
        "invoice.paid", account=account, origin=Origin("operator", "req_1", "192.0.2.1"), subject=subject,
        data=data or {"subject": subject}, at=tx.at, keep_days=keep_days, raw_id=raw_id,
    )  # fmt: skip
    return append_entry(tx, entry).entry


def client(tx: Tx, account: str, **members: Any) -> Client:
    """Add a client with these members."""
    made = Client(ids.new("cli"), account, tx.at, tx.at, **members)
    client_rows.add(tx, made)
    return made


def scope(tx: Tx, account: str, name: str, **members: Any) -> Scope:
    """Add a scope of the API https://api.example."""
    made = Scope(account, name, "https://api.example", tx.at, tx.at, **members)
    scope_rows.add(tx, made)
    return made


def erase_data(backend: Backend, entry: Entry, data_hash: bytes) -> None:
    """Erase the data of an entry and keep its hash."""
    backend.execute(
        "UPDATE entries SET data = NULL, data_hash = ? WHERE account = ? AND id = ?",
        data_hash, ids.raw(entry.account), entry.id,
    )  # fmt: skip


def subjects(tx: Tx, account: str) -> list[str]:
    """Return the subject of every entry, oldest first."""
    return [entry.subject for entry in entry_rows.oldest(tx, account, b"\0" * 16, b"\xff" * 16, 100_000)]
