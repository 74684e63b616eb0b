"""Defining endpoints: POST /webhooks/endpoints."""

from base64 import b64decode, b64encode
from functools import partial
from typing import Any, NamedTuple

import msgspec

from gatepost.accounts import Account
from gatepost.core import ids, webhook_signature
from gatepost.core.errors import NotFound, Refusal
from gatepost.core.secrets import Box
from gatepost.egress import address_guard
from gatepost.ledger.entries import OPERATOR, Entry
from gatepost.ledger.operations import Answer, Call, changed_members, refused
from gatepost.ledger.record import record
from gatepost.store.transaction import Tx
from gatepost.webhooks import endpoint_headers, endpoint_rows, endpoint_rules, endpoints, health_rows, queue_rows
from gatepost.webhooks.endpoints import MAX_HELD, Endpoint, SigningSecret
from gatepost.webhooks.service import Service

_STATUS_MEMBERS = {"status", "disabled_reason", "disabled_at", "resumed_at"}


class EndpointChange(NamedTuple):
    """An endpoint before and after a change, with hidden header values in plaintext, and as it is stored."""

    before: Endpoint | None
    after: Endpoint
    stored: Endpoint
    dropped_headers: list[str]


def define(tx: Tx, service: Service, account: Account, call: Call) -> Answer:
    """Create, change or read an endpoint."""
    stored: Endpoint | None = None
    if "id" in call.body:
        name = call.body["id"]
        stored = endpoint_rows.load_uncached(tx, account.id, name) if isinstance(name, str) else None
        if stored is None:
            return _refuse(tx, account, call, Refusal("not_found", "id: no such endpoint", "/id"))
        if len(call.body) == 1:
            return Answer(200, render(tx, account, stored), None)
    elif endpoint_rows.count(tx, account.id) >= account["max_endpoints"]:
        limit = f"the account has reached its limit of {account['max_endpoints']} endpoints (max_endpoints)"
        return _refuse(tx, account, call, Refusal("limit_reached", limit))
    box = service.keys.data
    before, unreadable = endpoint_headers.decrypted(box, stored) if stored else (None, [])
    url_problem = partial(address_guard.url_problem, service.policy_for(account.name))
    defined = endpoint_rules.define(call.body, before, account=account.id, at=tx.at, url_problem=url_problem)
    if isinstance(defined, Refusal):
        return _refuse(tx, account, call, defined)
    after, secret = defined.endpoint, None
    if call.caller.client == OPERATOR and after.disabled_reason == "requested" and after.disabled_at == tx.at:
        after = msgspec.structs.replace(after, disabled_reason="operator")
    if defined.needs_secret:
        given = defined.given_secret
        secret = _given_secret(given.reveal()) if given else webhook_signature.new_secret(after.signing)
        after = endpoints.with_secret(after, _encrypt_secret(box, after, secret, tx), defined.overlap, tx.at)
    dropped = sorted([*defined.dropped_headers, *unreadable])
    change = EndpointChange(before, after, endpoint_headers.encrypted(box, after), dropped)
    answer = _write(tx, account, call, change)
    if dropped and answer.event is not None:
        answer = answer._replace(body=answer.body | {"dropped_headers": dropped})
    if secret is not None:
        answer = answer._replace(body=answer.body | {"secret": secret.shown}, secret=True)
    return answer


def _refuse(tx: Tx, account: Account, call: Call, refusal: Refusal) -> Answer:
    return refused(tx, account, "webhook.endpoint.refused", call.origin, refusal)


def _given_secret(secret: str) -> webhook_signature.NewSecret:
    return webhook_signature.NewSecret(webhook_signature.parse_secret(secret), secret, "")


def _encrypt_secret(box: Box, endpoint: Endpoint, secret: webhook_signature.NewSecret, tx: Tx) -> SigningSecret:
    name = ids.new("sk")
    sealed = b64encode(box.encrypt(secret.raw, f"{endpoint.id} {name}")).decode()
    return SigningSecret(name, tx.at, sealed, endpoint.signing, secret.public)


def signer(box: Box, endpoint: Endpoint, secret: SigningSecret) -> webhook_signature.Signer:
    """Decrypt a secret of an endpoint, and return the function that signs with it."""
    raw = box.decrypt(b64decode(secret.sealed), f"{endpoint.id} {secret.id}")
    return webhook_signature.signer(secret.kind, raw)


def _write(tx: Tx, account: Account, call: Call, change: EndpointChange) -> Answer:
    before, after = change.before, change.after
    if before is None:
        endpoint_rows.add(tx, change.stored)
        data = {"url": after.url, "status": after.status}
        entry = record(tx, account, "webhook.endpoint.created", call.origin, after.id, data)
        return Answer(201, render(tx, account, after), entry.name)
    changed = changed_members(before, after)
    if changed:
        endpoint_rows.update(tx, change.stored)
    if "status" in call.body and before.status == after.status and _lift_retry_after(tx, after):
        changed.append("retry_after_until")
    if not changed:
        return Answer(200, render(tx, account, before), None)
    entry = _record_change(tx, account, call, change, before.status, changed)
    return Answer(200, render(tx, account, after), entry.name)


def _lift_retry_after(tx: Tx, endpoint: Endpoint) -> bool:
    """Defining an endpoint as active, even if it is active, ends the wait that its receiver asked for."""
    if endpoint.status != "active":
        return False
    key = (ids.raw(endpoint.account), ids.raw(endpoint.id))
    lifted = health_rows.lift_retry_after(tx, key)
    if lifted:
        tx.pending.wakeups.add(key)
    return lifted


def _record_change(
    tx: Tx, account: Account, call: Call, change: EndpointChange, status: str, changed: list[str]
) -> Entry:
    """Record the changed members, and the change of the status, as events of different types. Returns the last one."""
    endpoint = change.after
    data: dict[str, Any] = {"url": endpoint.url}
    members = [name for name in changed if name not in _STATUS_MEMBERS]
    if status == endpoint.status or (members and endpoint.status != "removed"):
        details = data | {"changed": members, "status": endpoint.status}
        if change.dropped_headers:
            details["dropped_headers"] = change.dropped_headers
        entry = record(tx, account, "webhook.endpoint.changed", call.origin, endpoint.id, details)
        if status == endpoint.status:
            return entry
    match endpoint.status:
        case "active":
            key = (ids.raw(account.id), ids.raw(endpoint.id))
            health_rows.reset(tx, key)
            tx.pending.wakeups.add(key)
            return record(tx, account, "webhook.endpoint.enabled", call.origin, endpoint.id, data)
        case "disabled":
            data |= {"reason": endpoint.disabled_reason}
            return record(tx, account, "webhook.endpoint.disabled", call.origin, endpoint.id, data)
        case "removed":
            return record(tx, account, "webhook.endpoint.removed", call.origin, endpoint.id, data)


def render(tx: Tx, account: Account, endpoint: Endpoint) -> dict[str, Any]:
    """The endpoint as the API returns it, with its health and the number of its held deliveries."""
    held = 0
    if endpoint.status != "active" or not account.active:
        held = queue_rows.count_waiting(tx, account.id, endpoint.id, MAX_HELD)
    return endpoints.render(endpoint, health_rows.load(tx, account.id, endpoint.id), held, tx.at)


def load_named(tx: Tx, account: Account, name: str) -> Endpoint:
    """Load the endpoint that an operator named, or raise."""
    endpoint = endpoint_rows.load_uncached(tx, account.id, name)
    if endpoint is None:
        raise NotFound(f"there is no endpoint {name} in {account.name}; `gatepost endpoint list` lists the endpoints")
    return endpoint
