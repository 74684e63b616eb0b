"""Finding accounts by name or id."""

from collections.abc import Iterator

from gatepost import accounts
from gatepost.accounts import Account, account_rows
from gatepost.core import ids
from gatepost.core.errors import BadSetting
from gatepost.store.interface import Reader
from gatepost.store.transaction import Tx

_PAGE = 200


def named(tx: Tx, name: str) -> Account:
    """The account with this name or id. Raises `BadSetting` if there is none."""
    found = find(tx, name)
    if found is None:
        raise BadSetting(f"there is no account {name}; `gatepost account list` lists the accounts")
    return found


def find(tx: Tx, name: str) -> Account | None:
    found = account_rows.load(tx, name) if ids.parse("acc", name) else None
    if found is None and accounts.NAME.fullmatch(name):
        found = account_rows.load_named(tx, name)
    return found


def every(store: Reader) -> Iterator[Account]:
    """All accounts by name, page by page."""
    after = ""
    while page := store.read_now(lambda tx, after=after: account_rows.page(tx, after, _PAGE)):  # type: ignore[misc]
        yield from page
        after = page[-1].name
