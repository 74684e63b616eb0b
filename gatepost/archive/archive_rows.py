"""The rows that an archive contains, by ranges of ids, which are ranges of time."""

from typing import NamedTuple

from gatepost.core import ids
from gatepost.store.transaction import Tx
from gatepost.webhooks import delivery_rows
from gatepost.webhooks.deliveries import Attempt, Delivery


class LeftOut(NamedTuple):
    """The entries of a period, and its deliveries that have not ended."""

    entries: int
    unfinished: int


def ended_deliveries(
    tx: Tx, account: str, after: bytes, before: bytes, limit: int
) -> list[tuple[Delivery, list[Attempt]]]:
    """The oldest deliveries between two ids that have ended, with their attempts."""
    rows = tx.rows("ended_deliveries", account=ids.raw(account), after=after, before=before, limit=limit)
    page = [Delivery(*row) for row in rows]
    attempts = delivery_rows.attempts(tx, [delivery[:2] for delivery in page]) if page else {}
    return [(delivery, attempts.get(delivery[:2], [])) for delivery in page]


def count(tx: Tx, account: str, after: bytes, before: bytes) -> LeftOut:
    """Count the entries between two ids, and the unfinished deliveries."""
    bounds = {"account": ids.raw(account), "after": after, "before": before}
    [(entries,)] = tx.rows("count_entries_between", **bounds)
    [(unfinished,)] = tx.rows("count_unfinished_between", **bounds)
    return LeftOut(entries, unfinished)
