"""Defining endpoints and subscriptions: POST /webhooks/endpoints and POST /webhooks/subscriptions."""

from base64 import b64decode, b64encode
from functools import partial
from typing import Any, NamedTuple

import msgspec

from gatepost.accounts import Account, account_rows
from gatepost.core import ids, webhook_signature
from gatepost.core.errors import BadSetting, Refusal
from gatepost.core.secrets import Box
from gatepost.egress import address_guard
from gatepost.ledger.entries import OPERATOR, Entry
from gatepost.ledger.operations import Answer, Call, changed_members, operator, refused
from gatepost.ledger.record import record
from gatepost.store.transaction import Tx
from gatepost.webhooks import (
    endpoint_headers,
    endpoint_rows,
    endpoint_rules,
    endpoints,
    health_rows,
    queue_rows,
    replay,
    replay_rows,
    subscription_rows,
    subscriptions,
)
from gatepost.webhooks.endpoints import HELD, Endpoint, SigningSecret
from gatepost.webhooks.service import Service
from gatepost.webhooks.subscriptions import Subscription


def endpoint(tx: Tx, service: Service, account: Account, call: Call) -> Answer:
    """POST /webhooks/endpoints."""
    known: Endpoint | None = None
    if "id" in call.body:
        wanted = call.body["id"]
        known = endpoint_rows.load_uncached(tx, account.id, wanted) if isinstance(wanted, str) else None
        if known is None:
            return _refuse_endpoint(tx, account, call, Refusal("not_found", "id: no such endpoint", "/id"))
        if len(call.body) == 1:
            return Answer(200, shown_endpoint(tx, account, known), None)
    elif endpoint_rows.count(tx, account.id) >= account["max_endpoints"]:
        limit = Refusal("limit_reached", f"the account has its {account['max_endpoints']} endpoints (max_endpoints)")
        return _refuse_endpoint(tx, account, call, limit)
    box = service.keys.data
    clear, unreadable = endpoint_headers.decrypted(box, known) if known else (None, [])
    defined = endpoint_rules.define(
        call.body,
        clear,
        account=account.id,
        at=tx.at,
        url_problem=partial(address_guard.url_problem, service.policy_for(account.name)),
    )
    if isinstance(defined, Refusal):
        return _refuse_endpoint(tx, account, call, defined)
    made, told = defined.endpoint, ""
    if call.caller.client == OPERATOR and made.disabled_reason == "requested" and made.disabled_at == tx.at:
        made = msgspec.structs.replace(made, disabled_reason="operator")
    if defined.needs_secret:
        new = (
            _given(defined.given_secret.reveal())
            if defined.given_secret
            else webhook_signature.new_secret(made.signing)
        )
        kept = _sealed(box, made, new, tx)
        made, told = endpoints.with_secret(made, kept, defined.overlap, tx.at), new.shown
    dropped = sorted([*defined.dropped_headers, *unreadable])
    answer = _keep_endpoint(tx, account, call, Change(clear, made, endpoint_headers.encrypted(box, made), dropped))
    if dropped and answer.event is not None:
        answer = answer._replace(body=answer.body | {"dropped_headers": dropped})
    if told:
        answer = answer._replace(body=answer.body | {"secret": told}, secret=True)
    return answer


def _given(secret: str) -> webhook_signature.NewSecret:
    return webhook_signature.NewSecret(webhook_signature.parse_secret(secret), secret, "")


def _sealed(box: Box, made: Endpoint, new: webhook_signature.NewSecret, tx: Tx) -> SigningSecret:
    secret = ids.new("sk")
    sealed = b64encode(box.close(new.raw, f"{made.id} {secret}")).decode()
    return SigningSecret(secret, tx.at, sealed, made.signing, new.public)


def opened(box: Box, made: Endpoint, secret: SigningSecret) -> webhook_signature.Signer:
    """What signs with one of the endpoint's secrets."""
    return webhook_signature.signer(secret.kind, box.open(b64decode(secret.sealed), f"{made.id} {secret.id}"))


class Change(NamedTuple):
    """An endpoint before and after, with hidden header values in clear, and as it is stored."""

    known: Endpoint | None
    made: Endpoint
    stored: Endpoint
    dropped_headers: list[str]


def _keep_endpoint(tx: Tx, account: Account, call: Call, change: Change) -> Answer:
    known, made = change.known, change.made
    data: dict[str, Any] = {"url": made.url}
    if known is None:
        endpoint_rows.add(tx, change.stored)
        entry = record(tx, account, "webhook.endpoint.created", call.origin, made.id, data | {"status": made.status})
        return Answer(201, shown_endpoint(tx, account, made), entry.name)
    changed = changed_members(known, made)
    if changed:
        endpoint_rows.update(tx, change.stored)
    if "status" in call.body and known.status == made.status and _lift_retry_after(tx, made):
        changed.append("retry_after_until")
    if not changed:
        return Answer(200, shown_endpoint(tx, account, known), None)
    entry = _tell_endpoint(tx, account, call, change, known, changed)
    return Answer(200, shown_endpoint(tx, account, made), entry.name)


def _lift_retry_after(tx: Tx, endpoint: Endpoint) -> bool:
    """Defining an endpoint as active, even if it is active, ends the wait that its receiver asked for."""
    if endpoint.status != "active":
        return False
    key = (ids.raw(endpoint.account), ids.raw(endpoint.id))
    lifted = health_rows.lift_retry_after(tx, key)
    if lifted:
        tx.pending.wakeups.add(key)
    return lifted


_STATUS_MEMBERS = {"status", "disabled_reason", "disabled_at", "resumed_at"}


def _tell_endpoint(
    tx: Tx, account: Account, call: Call, change: Change, known: Endpoint, changed: list[str]
) -> Entry:  # fmt: skip
    """What changed, and what became of its state, each under its own type."""
    made = change.made
    data: dict[str, Any] = {"url": made.url}
    rest = [name for name in changed if name not in _STATUS_MEMBERS]
    entry = None
    if known.status == made.status or (rest and made.status != "removed"):
        told = data | {"changed": rest, "status": made.status}
        if change.dropped_headers:
            told["dropped_headers"] = change.dropped_headers
        entry = record(tx, account, "webhook.endpoint.changed", call.origin, made.id, told)
    if known.status == made.status and entry is not None:
        return entry
    match made.status:
        case "active":
            key = (ids.raw(account.id), ids.raw(made.id))
            health_rows.reset(tx, key)
            tx.pending.wakeups.add(key)
            return record(tx, account, "webhook.endpoint.enabled", call.origin, made.id, data)
        case "disabled":
            data |= {"reason": made.disabled_reason}
            return record(tx, account, "webhook.endpoint.disabled", call.origin, made.id, data)
        case "removed":
            return record(tx, account, "webhook.endpoint.removed", call.origin, made.id, data)


def shown_endpoint(tx: Tx, account: Account, found: Endpoint) -> dict[str, Any]:
    held = 0
    if found.status != "active" or not account.active:
        held = queue_rows.count_of_endpoint(tx, account.id, found.id, HELD)
    return endpoints.render(found, health_rows.load(tx, account.id, found.id), held, tx.at)


def _refuse_endpoint(tx: Tx, account: Account, call: Call, refusal: Refusal) -> Answer:
    return refused(tx, account, "webhook.endpoint.refused", call.origin, refusal)


def subscription(tx: Tx, _service: Service, account: Account, call: Call) -> Answer:
    """POST /webhooks/subscriptions."""
    known: Subscription | None = None
    if "id" in call.body:
        wanted = call.body["id"]
        known = subscription_rows.load(tx, account.id, wanted) if isinstance(wanted, str) else None
        if known is None:
            return _refuse_subscription(tx, account, call, Refusal("not_found", "id: no such subscription", "/id"))
        if len(call.body) == 1:
            return Answer(200, shown_subscription(tx, known), None)
    elif subscription_rows.count(tx, account.id) >= account["max_subscriptions"]:
        most = account["max_subscriptions"]
        limit = Refusal("limit_reached", f"the account has its {most} subscriptions (max_subscriptions)")
        return _refuse_subscription(tx, account, call, limit)

    def exists(name: str) -> bool:
        found = endpoint_rows.load_uncached(tx, account.id, name)
        return found is not None and found.status != "removed"

    defined = subscriptions.define(call.body, known, account=account.id, at=tx.at, endpoint_exists=exists)
    if isinstance(defined, Refusal):
        return _refuse_subscription(tx, account, call, defined)
    made = defined.subscription
    if defined.replay is not None and not exists(made.endpoint):
        gone = Refusal("conflict", "replay: the endpoint is removed, which is final", "/replay")
        return _refuse_subscription(tx, account, call, gone)
    entry = _keep_subscription(tx, account, call, known, made)
    if defined.replay is not None:
        started = replay.start(tx, account, made, defined.replay, call.origin)
        entry = entry or started
    return Answer(200 if known else 201, shown_subscription(tx, made), entry.name if entry else None)


def _keep_subscription(
    tx: Tx, account: Account, call: Call, known: Subscription | None, made: Subscription
) -> Entry | None:
    data: dict[str, Any] = {"endpoint": made.endpoint, "events": made.events, "status": made.status}
    if known is None:
        subscription_rows.add(tx, made)
        return record(tx, account, "webhook.subscription.created", call.origin, made.id, data)
    if made is known:
        return None
    changed = changed_members(known, made) or ["filter"]  # in Python 1 equals True; in a filter it does not
    subscription_rows.update(tx, made)
    if made.status == "removed":
        told = {"endpoint": made.endpoint, "events": made.events}
        return record(tx, account, "webhook.subscription.removed", call.origin, made.id, told)
    return record(tx, account, "webhook.subscription.changed", call.origin, made.id, data | {"changed": changed})


def shown_subscription(tx: Tx, found: Subscription) -> dict[str, Any]:
    last = replay_rows.last(tx, found.account, found.id)
    return subscriptions.render(found, replay.shown(last) if last else None)


def _refuse_subscription(tx: Tx, account: Account, call: Call, refusal: Refusal) -> Answer:
    return refused(tx, account, "webhook.subscription.refused", call.origin, refusal)


# --- operators


def redefine_endpoint(tx: Tx, service: Service, account: Account, found: str, status: str) -> dict[str, Any]:
    """What the commands `endpoint enable` and `endpoint disable` do: the operation itself, as the operator."""
    locked = account_rows.lock(tx, account.id)
    if locked is None:
        raise LookupError(account.id)
    answer = endpoint(tx, service, locked, Call(operator(account.id), {"id": found, "status": status}))
    if answer.refusal is not None:
        raise BadSetting(f"{answer.refusal.detail}; `gatepost endpoint list` shows those there are")
    return answer.body


def named_endpoint(tx: Tx, account: Account, name: str) -> Endpoint:
    found = endpoint_rows.load_uncached(tx, account.id, name)
    if found is None:
        raise BadSetting(
            f"there is no endpoint {name} in {account.name}; `gatepost endpoint list` shows those there are"
        )
    return found
