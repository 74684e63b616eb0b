"""Finding accounts by name or id."""

from collections.abc import Callable, Iterator
from typing import cast

from gatepost import accounts
from gatepost.accounts import Account, account_rows
from gatepost.core import ids
from gatepost.core.errors import NotFound
from gatepost.store.interface import Reader
from gatepost.store.transaction import Tx

_PAGE = 200


def named(tx: Tx, name: str) -> Account:
    """The account with this name or id. Raises `BadSetting` if there is none."""
    account = find(tx, name)
    if account is None:
        raise NotFound(f"there is no account {name or repr(name)}; `gatepost account list` lists the accounts")
    return account


def find(tx: Tx, name: str) -> Account | None:
    """The account with this name or id."""
    account = account_rows.load(tx, name) if ids.parse("acc", name) else None
    if account is None and accounts.NAME.fullmatch(name):
        account = account_rows.load_named(tx, name)
    return account


def unreachable(tx: Tx) -> list[Account]:
    """The accounts on database nodes that are down."""
    shards = tx.shards
    if shards is None or not shards.down:
        return []
    found: list[Account] = []
    after = ""
    while page := account_rows.page(tx, after, _PAGE):
        found += [account for account in page if not shards.is_reachable(ids.raw(account.id))]
        after = page[-1].name
    return found


def owner(store: Reader, owns: Callable[[Tx, str], bool]) -> Account | None:
    """The account for whose id `owns` is true, by asking for every account. Each page is a transaction of its own."""
    after = ""
    while page := store.read_now(lambda tx, after=after: account_rows.page(tx, after, _PAGE)):  # type: ignore[misc]
        found = store.read_now(lambda tx, page=page: [account for account in page if owns(tx, account.id)])  # type: ignore[misc]
        if found:
            return cast(Account, found[0])
        after = page[-1].name
    return None


def every(store: Reader) -> Iterator[Account]:
    """All accounts in the order of their names. Each page is a transaction of its own."""
    after = ""
    while page := store.read_now(lambda tx, after=after: account_rows.page(tx, after, _PAGE)):  # type: ignore[misc]
        yield from page
        after = page[-1].name
