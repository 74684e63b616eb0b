"""A message of a NATS stream: how an event is read from it, and how it is published or refused."""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from gatepost.accounts import OPERATOR, lookup
from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.core.strict_json import read_json
from gatepost.ledger import entries, published_ids
from gatepost.ledger import publishable as rules
from gatepost.ledger.entries import MAX_DATA, Origin
from gatepost.ledger.publishable import Event
from gatepost.ledger.record import append_entry
from gatepost.store.transaction import Tx
from gatepost.webhooks import publish
from gatepost.webhooks.publish import Earlier, Published

MAX_BODY = 2 * MAX_DATA  # data may contain escapes and spaces that are not kept
MAX_NEW_DELIVERIES = 500  # in one commit, unless a single event creates more
MAX_TRIES = 5  # for a message that cannot be published because of an internal error

_ORIGIN = Origin("nats")
_MEMBERS = ("account", "type", "data", "id")


class StreamPosition(NamedTuple):
    """The position of a message. It has the time, because a stream that is created again counts from one again."""

    stream: str
    sequence: int
    stored_at: int


class Message(NamedTuple):
    """A message that was read: the event to publish for an account, or why it is refused."""

    position: StreamPosition
    subject: str
    account: str
    event: Event | Refusal


def read(position: StreamPosition, subject: str, headers: Mapping[str, str], body: bytes) -> Message:
    """Read {"account", "type", "data", "id"}. The id defaults to the header Nats-Msg-Id, or else to the position."""
    members = _members(body)
    if isinstance(members, Refusal):
        return Message(position, subject, "", members)
    event_id, source = members.get("id"), ""
    if event_id is None:
        event_id = headers.get("Nats-Msg-Id")
    if event_id is None:
        event_id, source = f"{position.sequence} {position.stored_at}", f"nats:{position.stream}"
    event = rules.event(members["type"], members["data"], event_id, source=source)
    return Message(position, subject, members["account"], event)


def _members(body: bytes) -> dict[str, Any] | Refusal:
    if len(body) > MAX_BODY:
        return Refusal("request_too_large", f"a message may have at most {MAX_BODY} bytes")
    parsed = read_json(body)
    if isinstance(parsed, Refusal):
        return parsed
    members = parsed.value
    if not isinstance(members, dict):
        return Refusal("invalid_request", "must be a JSON object with account, type, data, and optionally id")
    for member in (*members, "account", "type", "data"):
        if member not in _MEMBERS or member not in members:
            problem = "required" if member in _MEMBERS else f"unknown member; the members are {', '.join(_MEMBERS)}"
            return Refusal("invalid_request", f"{member[:64]}: {problem}", f"/{member[:64]}")
    if not isinstance(members["account"], str):
        return Refusal("invalid_request", "account: must be the name or the id of an account", "/account")
    return members


def publish_some(tx: Tx, messages: list[Message]) -> list[Refusal | Published]:
    """Publish each message, or record why it is refused. Stops early when there is enough for one commit."""
    outcomes: list[Refusal | Published] = []
    earlier: Earlier = {}
    deliveries = 0
    for message in messages:
        outcome = _publish(tx, message, earlier)
        if isinstance(outcome, Refusal):
            _record(tx, message, outcome)
        else:
            deliveries += len(outcome.created)
        outcomes.append(outcome)
        if deliveries >= MAX_NEW_DELIVERIES:
            break
    return outcomes


def refuse_all(tx: Tx, messages: list[Message]) -> list[Refusal | Published]:
    """Record that these messages are given up after MAX_TRIES internal errors."""
    refusal = Refusal("server_error", f"internal error in each of {MAX_TRIES} tries; see the log")
    for message in messages:
        _record(tx, message, refusal)
    return [refusal] * len(messages)


def _publish(tx: Tx, message: Message, earlier: Earlier) -> Refusal | Published:
    if isinstance(message.event, Refusal):
        return message.event
    account = lookup.find(tx, message.account)
    if account is None:
        return Refusal("not_found", f"account: the account {message.account[:64]} does not exist", "/account")
    return publish.publish_event(tx, account, message.event, _ORIGIN, earlier)


def _record(tx: Tx, message: Message, refusal: Refusal) -> None:
    """Record a refusal in the operator's ledger. The insert decides, so a redelivered message is recorded once."""
    operator, raw, position = lookup.named(tx, OPERATOR), ids.new_raw(), message.position
    name = hashlib.sha256(f"refused\0{position.stream}\0{position.sequence}\0{position.stored_at}".encode()).digest()
    if not published_ids.add(tx, operator.id, name, raw, name):
        return
    data = {
        "error": refusal.code,
        "error_description": refusal.detail,
        "stream": position.stream,
        "sequence": position.sequence,
        "subject": message.subject[:256],
    }
    if refusal.pointer:
        data["member"] = refusal.pointer.lstrip("/")
    append_entry(
        tx,
        entries.new(
            "webhook.event.refused",
            account=operator.id,
            origin=_ORIGIN,
            subject=f"{position.stream}:{position.sequence}",
            data=data,
            at=tx.at,
            keep_days=operator.seconds("audit_retention") // 86400,
            raw_id=raw,
        ),
    )
