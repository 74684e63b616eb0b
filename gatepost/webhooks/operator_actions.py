"""The actions of an operator on a delivery: `gatepost delivery retry` and `gatepost delivery cancel`."""

from gatepost.accounts import Account
from gatepost.core import ids
from gatepost.core.errors import BadSetting
from gatepost.ledger import entry_rows
from gatepost.store.transaction import Tx
from gatepost.webhooks import deliveries, delivery_rows, endings, endpoint_rows, queue_rows, tallies
from gatepost.webhooks.deliveries import Queued


def cancel(tx: Tx, account: Account, delivery: str) -> None:
    """Cancel an unfinished delivery. An attempt in flight is recorded as interrupted."""
    endings.end_unclaimed(tx, [_lock_unfinished(tx, account, delivery)], "cancelled_by_operator")


def retry(tx: Tx, account: Account, delivery: str) -> str:
    """Make the next attempt now. For a delivery that has ended, create a new one. Returns the id of the delivery."""
    stored = delivery_rows.load(tx, account.id, delivery)
    if stored is None:
        raise BadSetting(
            f"there is no delivery {delivery} in {account.name}; `gatepost delivery list` lists deliveries"
        )
    if stored.status == "pending":
        queued = _lock_unfinished(tx, account, delivery)
        if not queue_rows.set_due(tx, queued, tx.now):
            raise BadSetting(f"an attempt of {delivery} is in flight; wait until it has ended")
        tx.pending.wakeups.add((queued.account, queued.endpoint))
        return delivery
    if entry_rows.load(tx, account.id, stored.event) is None:
        raise BadSetting(f"the event of {delivery} is no longer retained, so it cannot be delivered again")
    endpoint = endpoint_rows.load(tx, account.id, ids.text("ep", stored.endpoint))
    if endpoint is None or endpoint.status == "removed":
        raise BadSetting(f"the endpoint of {delivery} is removed, so it cannot be delivered again")
    created = deliveries.new_delivery(
        stored.account, ids.new_raw(), stored.subscription, stored.endpoint, stored.event, stored.event_type,
        account.seconds("retention") // 86400, "retry",
    )  # fmt: skip
    delivery_rows.create(tx, [created], "operator")
    tallies.add(tx, (created.account, created.endpoint), "made")
    return ids.text("dlv", created.id)


def _lock_unfinished(tx: Tx, account: Account, delivery: str) -> Queued:
    raw = ids.parse("dlv", delivery)
    queued = queue_rows.lock(tx, account.id, raw) if raw else None
    if queued is None:
        raise BadSetting(f"{delivery} is not an unfinished delivery of {account.name}")
    return queued
