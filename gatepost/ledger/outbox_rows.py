"""The rows of the outbox, which programs write in their own transactions."""

from collections.abc import Iterable
from typing import NamedTuple

from gatepost.store.transaction import Tx


class OutboxRow(NamedTuple):
    """A row. Texts that are too long for an event are cut after 1,000 characters."""

    number: int
    account: str
    type: str
    data: str | None  # None if it is too long
    id: str | None


def lock_page(tx: Tx, limit: int, without: list[str], max_data: int, max_stored: int) -> list[OutboxRow]:
    """The oldest rows. They are locked until the commit.

    Data of more than `max_data` bytes is not read. The page ends once its data takes `max_stored` bytes in the table:
    to decompress data takes time, and the stored size limits the size of the text, to about 250 times as much.
    Rows of the accounts in `without` are left out, if the store is distributed.
    """
    found = tx.rows("outbox", limit=limit, without=without, max_data=max_data, max_stored=max_stored)
    return [OutboxRow(*row) for row in found]


def finish(tx: Tx, numbers: Iterable[int], refused: Iterable[tuple[int, str]]) -> None:
    """Delete the rows with these numbers, and mark the refused ones with the reason."""
    tx.write_given("leave_outbox", [(number,) for number in numbers])
    tx.write_given("refuse_outbox", list(refused))


def count_refused(tx: Tx, limit: int) -> int:
    """The number of refused rows, up to the limit."""
    return len(tx.rows("refused_outbox", limit=limit))
