"""The rows that an archive contains, by ranges of ids, which are ranges of time."""

from typing import NamedTuple

from gatepost.core import ids
from gatepost.store.transaction import Tx
from gatepost.webhooks import delivery_rows
from gatepost.webhooks.deliveries import Attempt, Delivery


class DeliveryPage(NamedTuple):
    """Deliveries that have ended, with their attempts, and the number of those that have not. None follows at the end.

    All are of one snapshot, so each delivery of a period is either in the archive or counted as left out.
    """

    ended: list[tuple[Delivery, list[Attempt]]]
    unfinished: int
    next: bytes | None


def deliveries(tx: Tx, account: str, after: bytes, before: bytes, limit: int) -> DeliveryPage:
    """The oldest deliveries between two ids."""
    rows = tx.rows("deliveries_between", account=ids.raw(account), after=after, before=before, limit=limit)
    page = [Delivery(*row) for row in rows]
    ended = [delivery for delivery in page if delivery.status != "pending"]
    attempts = delivery_rows.attempts(tx, [delivery[:2] for delivery in ended]) if ended else {}
    tx.check_snapshot()
    return DeliveryPage(
        [(delivery, attempts.get(delivery[:2], [])) for delivery in ended],
        len(page) - len(ended),
        page[-1].id if len(page) == limit else None,
    )


def count_unsealed(tx: Tx, account: str, after: bytes, before: bytes) -> int:
    """Count the entries between two ids that wait for a seal."""
    [(count,)] = tx.rows("count_unsealed_between", account=ids.raw(account), after=after, before=before)
    return int(count)
