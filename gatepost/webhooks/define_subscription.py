"""Defining subscriptions: POST /webhooks/subscriptions, which can also start a replay."""

from typing import Any

from gatepost.accounts import Account
from gatepost.core.errors import Refusal
from gatepost.ledger.entries import Entry
from gatepost.ledger.operations import Answer, Call, changed_members, refused
from gatepost.ledger.record import record
from gatepost.store.transaction import Tx
from gatepost.webhooks import endpoint_rows, replay, replay_rows, subscription_rows, subscriptions
from gatepost.webhooks.service import Service
from gatepost.webhooks.subscriptions import Subscription


def define(tx: Tx, _service: Service, account: Account, call: Call) -> Answer:
    """Create, change or read a subscription, and start a replay if one is requested."""
    stored: Subscription | None = None
    if "id" in call.body:
        name = call.body["id"]
        stored = subscription_rows.load(tx, account.id, name) if isinstance(name, str) else None
        if stored is None:
            return _refuse(tx, account, call, Refusal("not_found", "id: no such subscription", "/id"))
        if len(call.body) == 1:
            return Answer(200, render(tx, stored), None)
    elif subscription_rows.count(tx, account.id) >= account["max_subscriptions"]:
        limit = f"the account has reached its limit of {account['max_subscriptions']} subscriptions (max_subscriptions)"
        return _refuse(tx, account, call, Refusal("limit_reached", limit))

    def exists(name: str) -> bool:
        endpoint = endpoint_rows.load_uncached(tx, account.id, name)
        return endpoint is not None and endpoint.status != "removed"

    defined = subscriptions.define(call.body, stored, account=account.id, at=tx.at, endpoint_exists=exists)
    if isinstance(defined, Refusal):
        return _refuse(tx, account, call, defined)
    subscription = defined.subscription
    if defined.replay is not None and not exists(subscription.endpoint):
        removed = Refusal(
            "conflict",
            "replay: the endpoint of the subscription is removed, which is final; create another one",
            "/replay",
        )
        return _refuse(tx, account, call, removed)
    entry = _write(tx, account, call, stored, subscription)
    if defined.replay is not None:
        started = replay.start(tx, account, subscription, defined.replay, call.origin)
        entry = entry or started
    return Answer(200 if stored else 201, render(tx, subscription), entry.name if entry else None)


def _refuse(tx: Tx, account: Account, call: Call, refusal: Refusal) -> Answer:
    return refused(tx, account, "webhook.subscription.refused", call.origin, refusal)


def _write(tx: Tx, account: Account, call: Call, before: Subscription | None, after: Subscription) -> Entry | None:
    data: dict[str, Any] = {"endpoint": after.endpoint, "events": after.events}
    if before is None:
        subscription_rows.add(tx, after)
        data |= {"status": after.status}
        return record(tx, account, "webhook.subscription.created", call.origin, after.id, data)
    if after is before:
        return None
    subscription_rows.update(tx, after)
    if after.status == "removed":
        return record(tx, account, "webhook.subscription.removed", call.origin, after.id, data)
    data |= {"status": after.status, "changed": changed_members(before, after)}
    return record(tx, account, "webhook.subscription.changed", call.origin, after.id, data)


def render(tx: Tx, subscription: Subscription) -> dict[str, Any]:
    """The subscription as the API returns it, with the progress of its latest replay."""
    latest = replay_rows.latest(tx, subscription.account, subscription.id)
    return subscriptions.render(subscription, replay.render(latest) if latest else None)
