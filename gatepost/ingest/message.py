"""A message of NATS or Kafka: how an event is read from it, and how it is published or refused."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from gatepost.accounts import OPERATOR, lookup
from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.core.strict_json import read_json
from gatepost.ledger import entries, published_ids
from gatepost.ledger import publishable as rules
from gatepost.ledger.entries import Origin
from gatepost.ledger.publishable import Event
from gatepost.ledger.record import append_entry
from gatepost.store.transaction import Tx
from gatepost.webhooks import publish
from gatepost.webhooks.publish import INTERNAL_ERROR, MAX_BODY, MAX_BYTES, MAX_NEW_DELIVERIES, Earlier, Published

T = TypeVar("T")

MEMBERS = ("account", "type", "data", "id")


class Position(NamedTuple):
    """The position of a message. It has the time, because a stream that is created again counts from one again."""

    bus: str  # nats or kafka
    place: str  # the stream, or the topic and the partition
    number: int  # the sequence number or the offset
    stored_at: int
    details: dict[str, Any]  # how refusals name the position
    offset_in_store: bool = False  # advanced by the commit, so each message of the place is read once, and in order


class Message(NamedTuple):
    """A message that was read: the event to publish for an account, or why it is refused."""

    position: Position
    account: str
    event: Event | Refusal


class Unreachable(NamedTuple):
    """The message waits, because the database node of this account is down."""

    account: str


Outcome = Refusal | Published | Unreachable
Unit = Callable[[Tx, list[Message]], list[Outcome]]


def parts(messages: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Split messages into parts of at most MAX_BYTES, or one message."""
    part: list[T] = []
    total = 0
    for message in messages:
        if part and total + size(message) > MAX_BYTES:
            yield part
            part, total = [], 0
        part.append(message)
        total += size(message)
    if part:
        yield part


def read(position: Position, body: bytes, header_id: str | None = None) -> Message:
    """Read {"account", "type", "data", "id"}. The id defaults to that of a header.

    Without one, a message that may be redelivered is identified by its position.
    """
    members = _members(body)
    if isinstance(members, Refusal):
        return Message(position, "", members)
    event_id, source = members.get("id"), ""
    if event_id is None:
        event_id = header_id
    if event_id is None and not position.offset_in_store:
        event_id, source = f"{position.number} {position.stored_at}", f"{position.bus}:{position.place}"
    return Message(position, members["account"], rules.event(members["type"], members["data"], event_id, source=source))


def read_body(body: bytes) -> Any | Refusal:
    """The JSON value of a body."""
    if len(body) > MAX_BODY:
        return Refusal("request_too_large", f"a message may have at most {MAX_BODY} bytes")
    parsed = read_json(body)
    return parsed if isinstance(parsed, Refusal) else parsed.value


def _members(body: bytes) -> dict[str, Any] | Refusal:
    members = read_body(body)
    if isinstance(members, Refusal):
        return members
    if not isinstance(members, dict):
        return Refusal("invalid_request", "must be a JSON object with account, type, data, and optionally id")
    for member in (*members, "account", "type", "data"):
        if member not in MEMBERS or member not in members:
            problem = "required" if member in MEMBERS else f"unknown member; the members are {', '.join(MEMBERS)}"
            return Refusal("invalid_request", f"{member[:64]}: {problem}", f"/{member[:64]}")
    return members if isinstance(members["account"], str) else INVALID_ACCOUNT


INVALID_ACCOUNT = Refusal("invalid_request", "account: must be the name or the id of an account", "/account")


def publish_some(tx: Tx, messages: list[Message]) -> list[Outcome]:
    """Publish each message, or record why it is refused. Stops early when there is enough for one commit.

    Messages for accounts whose database node is down wait, and do not keep those for other accounts waiting.
    """
    outcomes: list[Outcome] = []
    waiting: dict[str, Unreachable] = {}  # by place
    earlier: Earlier = {}
    deliveries = 0
    for message in messages:
        outcome = waiting.get(message.position.place) or _publish(tx, message, earlier)
        if isinstance(outcome, Refusal):
            outcome = record_refusal(tx, message.position, outcome)
        elif isinstance(outcome, Published):
            deliveries += outcome.created_count
        if isinstance(outcome, Unreachable) and message.position.offset_in_store:
            waiting[message.position.place] = outcome
        outcomes.append(outcome)
        if deliveries >= MAX_NEW_DELIVERIES:
            break
    return outcomes


def refuse_all(tx: Tx, messages: list[Message]) -> list[Outcome]:
    """Record that these messages are given up after MAX_TRIES internal errors."""
    return [record_refusal(tx, message.position, INTERNAL_ERROR) for message in messages]


def is_reachable(tx: Tx, account: str) -> bool:
    """Whether the database node of an account is up. True unless the store is distributed."""
    return tx.shards is None or tx.shards.is_reachable(ids.raw(account))


def _publish(tx: Tx, message: Message, earlier: Earlier) -> Outcome:
    if isinstance(message.event, Refusal):
        return message.event
    account = lookup.find(tx, message.account)
    if account is None:
        return Refusal("not_found", f"account: the account {message.account[:64]} does not exist", "/account")
    if not is_reachable(tx, account.id):
        return Unreachable(account.id)
    return publish.publish_event(tx, account, message.event, Origin(message.position.bus), earlier)


def record_refusal(tx: Tx, position: Position, refusal: Refusal) -> Refusal | Unreachable:
    """Record a refusal in the operator's ledger. For a message that may be redelivered, the insert decides."""
    operator, raw = lookup.named(tx, OPERATOR), ids.new_raw()
    if not is_reachable(tx, operator.id):
        return Unreachable(operator.id)
    name = hashlib.sha256(f"refused\0{position.place}\0{position.number}\0{position.stored_at}".encode()).digest()
    if not position.offset_in_store and not published_ids.add(tx, operator.id, name, raw, name):
        return refusal
    data = {"error": refusal.code, "error_description": refusal.detail, **position.details}
    if refusal.pointer:
        data["member"] = refusal.pointer.lstrip("/")
    append_entry(
        tx,
        entries.new(
            "webhook.event.refused",
            account=operator.id,
            origin=Origin(position.bus),
            subject=f"{position.place}:{position.number}",
            data=data,
            at=tx.at,
            keep_days=operator.seconds("audit_retention") // 86400,
            raw_id=raw,
        ),
    )
    return refusal
