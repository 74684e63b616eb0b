"""The rows of the outbox, which programs write in their own transactions."""

from collections.abc import Iterable
from typing import cast

from gatepost.store.transaction import Tx


def lock_page(tx: Tx, limit: int, without: list[str]) -> list[tuple[int, str, str, str, str | None]]:
    """The oldest rows: number, account, type, data and id. They are locked until the commit.

    Rows of the accounts in `without` are left out, if the store is distributed.
    """
    return cast(list[tuple[int, str, str, str, str | None]], tx.rows("outbox", limit=limit, without=without))


def finish(tx: Tx, numbers: Iterable[int], refused: Iterable[tuple[int, str]]) -> None:
    """Delete the rows with these numbers, and mark the refused ones with the reason."""
    tx.write_given("leave_outbox", [(number,) for number in numbers])
    tx.write_given("refuse_outbox", list(refused))
