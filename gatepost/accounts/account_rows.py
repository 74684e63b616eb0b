"""The rows of accounts."""

from typing import Any

import msgspec

from gatepost.accounts import Account
from gatepost.core import ids
from gatepost.store.transaction import Tx

_account = msgspec.json.Decoder(Account)
_encode = msgspec.json.Encoder().encode


def load(tx: Tx, account: str) -> Account | None:
    """The account with this id, from the cache if it is there."""
    return tx.cached(f"account {account}", lambda: _load(tx, "account_by_id", id=ids.raw(account)))


def load_named(tx: Tx, name: str) -> Account | None:
    """The account with this name."""
    return _load(tx, "account_by_name", name=name)


def lock(tx: Tx, account: str) -> Account | None:
    """Lock the account, so that what is counted against its limits does not change until the commit."""
    return _load(tx, "lock_account", id=ids.raw(account))


def page(tx: Tx, after: str, limit: int) -> list[Account]:
    """Accounts in the order of their names, after this name."""
    return [_account.decode(row[0]) for row in tx.rows("list_accounts", after=after, limit=limit)]


def retention_classes(tx: Tx) -> set[int]:
    """The days for which accounts keep their rows, as far as their settings say."""
    return {int(seconds) // 86400 for row in tx.rows("retention_classes") for seconds in row if seconds is not None}


def add(tx: Tx, account: Account) -> bool:
    """Insert an account. False if the name is taken."""
    document = _encode(account).decode()
    return bool(tx.write("insert_account", id=ids.raw(account.id), name=account.name, document=document))


def update(tx: Tx, account: Account) -> None:
    """Replace the account in the store, and drop it from all caches."""
    tx.write("update_account", id=ids.raw(account.id), document=_encode(account).decode())
    tx.change(f"account {account.id}")


def _load(tx: Tx, statement: str, **parameters: Any) -> Account | None:
    row = tx.one(statement, **parameters)
    return _account.decode(row[0]) if row else None
