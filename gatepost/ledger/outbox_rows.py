"""The rows of the outbox, which programs write in their own transactions."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from gatepost.store.transaction import Tx

_HIGHEST = 2**63 - 1


class OutboxRow(NamedTuple):
    """A row. Texts that are too long for an event are cut after 1,000 characters."""

    number: int
    account: str
    type: str
    data: str | None  # None if it is too long
    id: str | None


def lock_page(
    tx: Tx, limit: int, max_data: int, max_bytes: int,
    *, numbers: tuple[int, int] = (0, _HIGHEST), without: Collection[int] = (), without_accounts: Collection[str] = (),
) -> list[OutboxRow]:  # fmt: skip
    """The oldest rows between two numbers. They are locked until the commit.

    Data of more than `max_data` bytes is not read. The page has at most `max_bytes` bytes of data, or a single row. No
    more than that and the data of the next row is decompressed.
    """
    found = tx.rows(
        "outbox", limit=limit, max_data=max_data, max_bytes=max_bytes, first=numbers[0], last=numbers[1],
        without=list(without), without_accounts=list(without_accounts),
    )  # fmt: skip
    return [OutboxRow(*row) for row in found]


def waiting(tx: Tx, limit: int, without: Collection[int]) -> list[int]:
    """The numbers of the oldest rows. They are not locked."""
    return [number for (number,) in tx.rows("waiting_outbox", limit=limit, without=list(without))]


def finish(tx: Tx, numbers: Iterable[int], refused: Iterable[tuple[int, str]]) -> None:
    """Delete the rows with these numbers, and mark the refused ones with the reason."""
    tx.write_given("leave_outbox", [(number,) for number in numbers])
    tx.write_given("refuse_outbox", list(refused))


def count_refused(tx: Tx, limit: int) -> int:
    """The number of refused rows, up to the limit."""
    return len(tx.rows("refused_outbox", limit=limit))


def own_roles(tx: Tx) -> set[str]:
    """The roles with which Gatepost publishes the rows: the owner of the table, and the role of this connection."""
    return {name for row in tx.rows("outbox_roles") for name in row}
