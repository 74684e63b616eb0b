"""Fan-out: which subscriptions an entry matches. Its deliveries are created in the commit of the entry."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from gatepost.accounts import account_rows
from gatepost.core import ids
from gatepost.ledger.entries import Entry
from gatepost.store.transaction import Tx
from gatepost.webhooks import deliveries, delivery_rows, subscription_rows, tallies
from gatepost.webhooks.deliveries import Delivery
from gatepost.webhooks.subscriptions import Subscription, matches_data, matches_type

OWN = "webhook."


class Subscriber(NamedTuple):
    """The part of a subscription that fan-out needs."""

    subscription: bytes
    endpoint: bytes
    endpoint_name: str
    filter: dict[str, Any]


class Subscribers(NamedTuple):
    """The subscriptions of one account that match one type of event."""

    matching: tuple[Subscriber, ...]
    keep_days: int = 0


NO_SUBSCRIBERS = Subscribers(())


def subscriber(subscription: Subscription) -> Subscriber:
    """The part of a subscription that fan-out needs."""
    endpoint = subscription.endpoint
    return Subscriber(ids.raw(subscription.id), ids.raw(endpoint), endpoint, dict(subscription.filter))


def subscribers(subscriptions: Iterable[Subscription], type_: str) -> tuple[Subscriber, ...]:
    """The active subscriptions that match a type of event."""
    return tuple(
        subscriber(subscription)
        for subscription in subscriptions
        if subscription.status == "active" and matches_type(subscription.events, type_)
    )


def create_deliveries(tx: Tx, entry: Entry) -> list[bytes]:
    """Create the deliveries of a new entry. Returns their ids."""
    to = tx.derived(("subscribers", entry.account, entry.type), lambda: _subscribers(tx, entry))
    if not to.matching:
        return []
    created = fan_out(entry, to, ids.new_raw)
    for delivery in created:
        tallies.add(tx, (delivery.account, delivery.endpoint), "made")
    return delivery_rows.create(tx, created)


def _subscribers(tx: Tx, entry: Entry) -> Subscribers:
    matching = subscribers(subscription_rows.matching(tx, entry.account), entry.type)
    account = account_rows.load(tx, entry.account) if matching else None
    return Subscribers(matching, account.seconds("retention") // 86400) if account else NO_SUBSCRIBERS


def fan_out(entry: Entry, to: Subscribers, new_raw_id: Callable[[], bytes], origin: str = "event") -> list[Delivery]:
    """Return one delivery for each subscription whose filter matches.

    An event about an endpoint is never sent to that endpoint, and an event about the delivery of such an event is not
    sent at all, so that no loop can form.
    """
    own = entry.type.startswith(OWN)
    data: Any = None
    if entry.data is not None and (own or any(match.filter for match in to.matching)):
        data = msgspec.json.decode(entry.data)
    about: tuple[Any, ...] = ()
    if own:
        if data is None or str(data.get("event_type", "")).startswith(OWN):  # None if it was erased
            return []
        about = (entry.subject, data.get("endpoint"))
    account = ids.raw(entry.account)
    return [
        deliveries.new_delivery(
            account, new_raw_id(), match.subscription, match.endpoint, entry.id, entry.type, to.keep_days, origin
        )
        for match in to.matching
        if match.endpoint_name not in about and (not match.filter or matches_data(match.filter, data))
    ]
