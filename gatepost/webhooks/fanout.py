"""Fan-out: which subscriptions an entry is for. Pure; the deliveries are written in the entry's own transaction."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from gatepost.core import ids
from gatepost.ledger.entries import Entry
from gatepost.webhooks import deliveries
from gatepost.webhooks.deliveries import Delivery
from gatepost.webhooks.subscriptions import Subscription, matches_data, matches_type

OWN = "webhook."


class Subscriber(NamedTuple):
    """A subscription as fan-out needs it."""

    subscription: bytes
    endpoint: bytes
    endpoint_name: str
    filter: dict[str, Any]


class Subscribers(NamedTuple):
    """Of one account, for one type of event."""

    each: tuple[Subscriber, ...]
    keep_days: int = 0


NOBODY = Subscribers(())


def subscriber(subscription: Subscription) -> Subscriber:
    endpoint = subscription.endpoint
    return Subscriber(ids.raw(subscription.id), ids.raw(endpoint), endpoint, dict(subscription.filter))


def subscribers(found: Iterable[Subscription], type_: str) -> tuple[Subscriber, ...]:
    return tuple(subscriber(each) for each in found if each.status == "active" and matches_type(each.events, type_))


def fan_out(entry: Entry, to: Subscribers, fresh: Callable[[], bytes], origin: str = "event") -> list[Delivery]:
    """One delivery for each subscriber whose filter fits.

    What is about an endpoint is never sent to it, and what happened while delivering an event about deliveries is sent
    to nobody: so no loop can form.
    """
    own = entry.type.startswith(OWN)
    data: Any = None
    if entry.data is not None and (own or any(each.filter for each in to.each)):
        data = msgspec.json.decode(entry.data)
    about: tuple[Any, ...] = ()
    if own:
        if data is None or str(data.get("event_type", "")).startswith(OWN):  # None: erased, and so whom it was about
            return []
        about = (entry.subject, data.get("endpoint"))
    account = ids.raw(entry.account)
    return [
        deliveries.born(account, fresh(), each.subscription, each.endpoint, entry.id, entry.type, to.keep_days, origin)
        for each in to.each
        if each.endpoint_name not in about and (not each.filter or matches_data(each.filter, data))
    ]
