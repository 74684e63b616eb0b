"""The actions of an operator on a delivery: `gatepost delivery retry` and `gatepost delivery cancel`.

The ledger has an entry for each of them.
"""

from gatepost.accounts import Account
from gatepost.core import ids
from gatepost.core.errors import NotFound, Refused
from gatepost.ledger import entry_rows
from gatepost.ledger.entries import OPERATOR, Origin
from gatepost.ledger.record import record
from gatepost.store.transaction import Tx
from gatepost.webhooks import deliveries, delivery_rows, endings, endpoint_rows, queue_rows, tallies
from gatepost.webhooks.deliveries import Delivery, Queued

_ORIGIN = Origin(OPERATOR)


def cancel(tx: Tx, account: Account, delivery: str) -> None:
    """Cancel an unfinished delivery. An attempt in flight is recorded as interrupted, and its result is ignored."""
    queued = _lock_unfinished(tx, account, delivery)
    endings.end_unclaimed(tx, [queued], "cancelled_by_operator", endings.CANCELLED)
    _record(tx, account, delivery_rows.load_many(tx, [queued.key])[queued.key], "cancelled")


def retry(tx: Tx, account: Account, delivery: str) -> str:
    """Make the next attempt now. For a delivery that has ended, create a new one. Returns the id of the delivery."""
    stored = delivery_rows.load(tx, account.id, delivery)
    if stored is None:
        raise NotFound(f"there is no delivery {delivery} in {account.name}; `gatepost delivery list` lists deliveries")
    if stored.status == "pending":
        queued = _lock_unfinished(tx, account, delivery)
        if not queue_rows.set_due(tx, queued, tx.now):
            raise Refused(f"an attempt of {delivery} is in flight; wait until it has ended")
        tx.pending.wakeups.add((queued.account, queued.endpoint))
        _record(tx, account, stored, "retried")
        return delivery
    if not entry_rows.lock(tx, account.id, [stored.event]):
        raise Refused(f"the event of {delivery} is no longer retained, so it cannot be delivered again")
    endpoint = endpoint_rows.load(tx, account.id, ids.text("ep", stored.endpoint))
    if endpoint is None or endpoint.status == "removed":
        raise Refused(f"the endpoint of {delivery} is removed, so it cannot be delivered again")
    created = deliveries.new_delivery(
        stored.account, ids.new_raw(), stored.subscription, stored.endpoint, stored.event, stored.event_type,
        account.seconds("retention") // 86400, "retry",
    )  # fmt: skip
    delivery_rows.create(tx, [created], "operator")
    tallies.add(tx, (created.account, created.endpoint), "made")
    new_delivery = ids.text("dlv", created.id)
    _record(tx, account, stored, "retried", new_delivery=new_delivery)
    return new_delivery


def _record(tx: Tx, account: Account, delivery: Delivery, action: str, **more: str) -> None:
    data = {
        "action": action,
        "endpoint": ids.text("ep", delivery.endpoint),
        "event": ids.text("evt", delivery.event),
        "event_type": delivery.event_type,
    }
    record(tx, account, "webhook.delivery.changed", _ORIGIN, ids.text("dlv", delivery.id), data | more)


def _lock_unfinished(tx: Tx, account: Account, delivery: str) -> Queued:
    raw = ids.parse("dlv", delivery)
    queued = queue_rows.lock(tx, account.id, raw) if raw else None
    if queued is None:
        raise Refused(f"{delivery} is not an unfinished delivery of {account.name}")
    return queued
