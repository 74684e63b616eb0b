"""The rows of accounts."""

import msgspec

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx

DAY = 86_400


def test_the_retention_classes_of_accounts(store: Store) -> None:
    """Those of settings, without the defaults."""

    def add(tx: Tx, name: str, **settings: int) -> None:
        made = accounts.new(name, tx.at)
        account_rows.add(tx, msgspec.structs.replace(made, settings=settings))

    assert store.read_now(account_rows.retention_classes) == set()
    store.run_now(lambda tx: add(tx, "default"))
    store.run_now(lambda tx: add(tx, "short", retention=7 * DAY))
    store.run_now(lambda tx: add(tx, "long", retention=90 * DAY, audit_retention=2555 * DAY))
    assert store.read_now(account_rows.retention_classes) == {7, 90, 2555}
