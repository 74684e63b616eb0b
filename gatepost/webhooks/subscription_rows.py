"""The rows of subscriptions."""

from typing import Any

import msgspec

from gatepost.core import ids
from gatepost.store.transaction import Tx
from gatepost.webhooks.subscriptions import Subscription

_subscription = msgspec.json.Decoder(Subscription)
_encode = msgspec.json.Encoder().encode


def load(tx: Tx, account: str, subscription: str) -> Subscription | None:
    """Load a subscription by its id."""
    raw = ids.parse("sub", subscription)
    row = tx.one("subscription_by_id", account=ids.raw(account), id=raw) if raw else None
    return _subscription.decode(row[0]) if row else None


def page(tx: Tx, account: str, after: bytes, limit: int) -> list[Subscription]:
    """A page of an account's subscriptions, removed ones included, in the order of their creation."""
    rows = tx.rows("list_subscriptions", account=ids.raw(account), after=after, limit=limit)
    return [_subscription.decode(row[0]) for row in rows]


def of_endpoint(tx: Tx, account: str, endpoint: str) -> list[Subscription]:
    """The subscriptions of an endpoint that are not removed."""
    rows = tx.rows("subscriptions_of_endpoint", account=ids.raw(account), endpoint=ids.raw(endpoint))
    return [_subscription.decode(row[0]) for row in rows]


def matching(tx: Tx, account: str) -> tuple[Subscription, ...]:
    """The active subscriptions of endpoints that are not removed: those that new entries are matched with."""

    def load_all() -> tuple[Subscription, ...]:
        rows = tx.rows("matching_subscriptions", account=ids.raw(account))
        return tuple(_subscription.decode(row[0]) for row in rows)

    return tx.cached(f"subscriptions {account}", load_all) or ()


def count(tx: Tx, account: str) -> int:
    """The number of an account's subscriptions that are not removed."""
    return int(tx.rows("count_subscriptions", account=ids.raw(account))[0][0])


def add(tx: Tx, subscription: Subscription) -> None:
    """Insert a subscription."""
    _write(tx, "insert_subscription", subscription, endpoint=ids.raw(subscription.endpoint))


def update(tx: Tx, subscription: Subscription) -> None:
    """Update a subscription."""
    _write(tx, "update_subscription", subscription)


def _write(tx: Tx, statement: str, subscription: Subscription, **more: Any) -> None:
    tx.write(
        statement, account=ids.raw(subscription.account), id=ids.raw(subscription.id),
        status=subscription.status, document=_encode(subscription).decode(), **more,
    )  # fmt: skip
    tx.change(f"subscriptions {subscription.account}")
