"""The rows of the outbox, which programs write in their own transactions."""

from collections.abc import Iterable

from gatepost.store.transaction import Tx


def lock_some(tx: Tx, limit: int) -> list[tuple[int, str, str, str, str | None]]:
    """Rows of the outbox: number, account, type, data, id. They are locked until the commit."""
    return [(row[0], row[1], row[2], row[3], row[4]) for row in tx.rows("outbox", limit=limit)]


def finish(tx: Tx, numbers: Iterable[int], refused: Iterable[tuple[int, str]]) -> None:
    tx.write_given("leave_outbox", [(number,) for number in numbers])
    tx.write_given("refuse_outbox", list(refused))
