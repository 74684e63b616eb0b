"""Deliveries: one event for one subscription. Their states and ends as tables, and the rows that are kept of them."""

from typing import Literal, NamedTuple

import msgspec

Status = Literal["pending", "held", "in_flight", "succeeded", "failed", "cancelled"]
Outcome = Literal["succeeded", "failed", "interrupted", "not_sent"]
Lane = Literal[0, 1]  # first attempts, and the others

# state → where it goes. `held` is shown for a pending delivery whose endpoint or account stands still; no row says it.
# An attempt that was taken for interrupted may still be answered: then its delivery goes on as from `in_flight`.
TRANSITIONS: dict[Status, frozenset[Status]] = {
    "pending": frozenset({"in_flight", "failed", "cancelled"}),
    "held": frozenset({"in_flight", "failed", "cancelled"}),
    "in_flight": frozenset({"pending", "succeeded", "failed", "cancelled"}),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}

# ended_reason → the state it ends in, and what it means.
ENDS: dict[str, tuple[Status, str]] = {
    "delivered": ("succeeded", "The receiver answered with 2xx."),
    "attempts_exhausted": ("failed", "Every attempt of the schedule was made and failed."),
    "endpoint_gone": ("failed", "The receiver answered 410: it wants no more."),
    "held_too_long": ("failed", "The endpoint or the account stood still for longer than hold_limit."),
    "endpoint_removed": ("cancelled", "The endpoint was removed."),
    "cancelled_by_operator": ("cancelled", "An operator cancelled it."),
}

# Why an attempt is planned for when it is.
BECAUSE = {
    "event": "the first attempt, at once",
    "schedule": "the next delay of the schedule",
    "retry_after": "the receiver asked for it with Retry-After",
    "interrupted": "the attempt before was interrupted: it is made again at once, or after three in a row as scheduled",
    "connection_closed": "the receiver closed a kept connection without answering: made again at once on a new one",
    "released": "the attempt before was never sent",
    "shortage": "the attempt before was not sent, because the service ran out of a resource: made again after a pause",
    "operator": "an operator asked for it",
}

# The phases in which an attempt fails.
FAILURES = ("dns", "connect", "tls", "send", "first_byte", "body", "timeout", "blocked_target", "redirect")


class Delivery(NamedTuple):
    """The record, as stored. Ids are bytes; instants are milliseconds."""

    account: bytes
    id: bytes
    endpoint: bytes
    subscription: bytes
    event: bytes
    event_type: str
    origin: str
    status: str
    ended_at: int | None
    ended_reason: str | None
    last_code: int | None
    last_failure: str | None
    keep_days: int


class Queued(NamedTuple):
    """What is still to be done about a delivery that is not ended. `number` counts attempts, and is the fence."""

    account: bytes
    id: bytes
    endpoint: bytes
    event: bytes
    lane: int
    due: int
    planned_at: int
    because: str
    number: int
    used: int
    interrupted: int
    worker: bytes | None = None
    opened: str | None = None
    lease: int | None = None


class Opened(msgspec.Struct, frozen=True):
    """An attempt, as written before its socket is opened."""

    started_at: int
    url: str
    signed_with: list[str]
    waited_for: str
    waited_ms: int


class Attempt(NamedTuple):
    """An attempt that is over: a row, with the rest of what is known of it as JSON."""

    account: bytes
    delivery: bytes
    number: int
    outcome: str
    document: str


class AttemptDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of an attempt beside its outcome."""

    planned_at: int
    started_at: int
    ended_at: int
    url: str
    signed_with: list[str]
    waited_for: str
    waited_ms: int
    worker: str
    duration_ms: float | None = None
    response_code: int | None = None
    failure: str | None = None
    detail: str = ""
    retry_after: str | None = None
    timings: dict[str, float] = {}
    remote_ip: str | None = None
    response: str = ""
    because: str = ""  # of `BECAUSE`; empty for the first attempt of an event, and in records of earlier releases


def born(entry_account: bytes, raw_id: bytes, subscription: bytes, endpoint: bytes, event: bytes, event_type: str,
         keep_days: int, origin: str = "event") -> Delivery:  # fmt: skip
    return Delivery(
        entry_account, raw_id, endpoint, subscription, event, event_type, origin,
        "pending", None, None, None, None, keep_days,
    )  # fmt: skip


def queued(delivery: Delivery, at: int, because: str = "event") -> Queued:
    return Queued(delivery.account, delivery.id, delivery.endpoint, delivery.event, 0, at, at, because, 0, 0, 0)


class Ending(NamedTuple):
    """How a record ends, or, with `pending`, what its last attempt was."""

    account: bytes
    id: bytes
    status: str
    ended_at: int | None
    ended_reason: str | None
    last_code: int | None
    last_failure: str | None


def ending(account: bytes, raw_id: bytes, reason: str, at: int, code: int | None, failure: str | None) -> Ending:
    return Ending(account, raw_id, ENDS[reason][0], at, reason, code, failure)


def shown_status(queue: Queued, *, still: bool) -> Status:
    """Of a delivery that is not ended; `still` when its endpoint is not active or its account suspended."""
    if queue.worker is not None:
        return "in_flight"
    return "held" if still else "pending"
