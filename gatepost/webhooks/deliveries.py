"""Deliveries: one event for one subscription. The tables of their statuses and ends, and the types of their rows."""

from typing import Literal, NamedTuple

import msgspec

Status = Literal["pending", "held", "in_flight", "succeeded", "failed", "cancelled"]
Outcome = Literal["succeeded", "failed", "interrupted", "not_sent"]

# status → the statuses that may follow. Every statement that changes a status names in its WHERE clause the states that
# may lead there; these clauses are generated from this table (`queue_condition`, `record_condition`).
TRANSITIONS: dict[Status, frozenset[Status]] = {
    "pending": frozenset({"in_flight", "failed", "cancelled"}),
    "held": frozenset({"in_flight", "failed", "cancelled"}),
    "in_flight": frozenset({"pending", "succeeded", "failed", "cancelled"}),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}

# The status of a delivery that has not ended, as a condition on its row in the queue. A `held` delivery is pending, and
# its endpoint or account is not active. An attempt that was recorded as interrupted may still get a response, so its
# delivery may end like one in flight.
_IN_QUEUE: dict[Status, str] = {
    "pending": "queue.worker IS NULL",
    "held": "queue.worker IS NULL",
    "in_flight": "queue.worker IS NOT NULL OR queue.because = 'interrupted'",
}


def queue_condition(*to: Status) -> str:
    """The SQL condition for a row of the queue whose delivery may move to any of these statuses.

    Of a CASE, PostgreSQL expects that many rows meet it. If it expected few, it would read all rows of the table
    instead of looking up those that are given.
    """
    states = [status for status, following in TRANSITIONS.items() if following.issuperset(to)]
    return f"CASE WHEN {' OR '.join(dict.fromkeys(_IN_QUEUE[status] for status in states))} THEN true END"


def record_condition() -> str:
    """The SQL condition for a row of `deliveries` that may move to `given.status`. It is pending until it ends."""
    moves: dict[Status, set[Status]] = {}
    for status, following in TRANSITIONS.items():
        moves.setdefault(_recorded(status), set()).update(map(_recorded, following))
    conditions = [
        f"(deliveries.status = '{status}' AND given.status IN ({', '.join(map(repr, sorted(to)))}))"
        for status, to in moves.items()
        if to
    ]
    return f"CASE WHEN {' OR '.join(conditions)} THEN true END"


def _recorded(status: Status) -> Status:
    return "pending" if status in _IN_QUEUE else status


# ended_reason → the status in which the delivery ends, and what the reason means.
ENDS: dict[str, tuple[Status, str]] = {
    "delivered": ("succeeded", "The receiver responded with a 2xx status."),
    "attempts_exhausted": ("failed", "All attempts of the schedule failed."),
    "endpoint_gone": ("failed", "The receiver responded with 410 Gone."),
    "held_too_long": ("failed", "The endpoint or the account was inactive for longer than hold_limit."),
    "endpoint_removed": ("cancelled", "The endpoint was removed."),
    "cancelled_by_operator": ("cancelled", "An operator cancelled it."),
}

# Why an attempt is planned for its time.
BECAUSE = {
    "event": "the first attempt is made immediately",
    "schedule": "the retry schedule plans it for this time",
    "retry_after": "the receiver requested this time with Retry-After",
    "interrupted": "the previous attempt was interrupted: repeated now, or by the schedule after three interruptions",
    "connection_closed": "the receiver closed a reused connection without a response: repeated now on a new one",
    "released": "the previous attempt was not sent",
    "shortage": "the previous attempt was not sent because the service ran out of a resource",
    "operator": "an operator requested it",
}

# The phases in which an attempt fails.
FAILURES = ("dns", "connect", "tls", "send", "first_byte", "body", "timeout", "blocked_target", "redirect")


class Delivery(NamedTuple):
    """The record of a delivery as it is stored. Ids are bytes; instants are milliseconds."""

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
    """The row in the queue of a delivery that has not ended. `number` counts attempts, and fences writes about them."""

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

    @property
    def key(self) -> tuple[bytes, bytes]:
        return self[:2]

    @property
    def planned_because(self) -> str:
        """Why the next attempt is planned for `planned_at`."""
        return "retry_after" if self.planned_at > self.due else self.because

    @property
    def stored_because(self) -> str:
        """The same for an `AttemptDocument`, where it is empty for the first attempt of an event."""
        because = self.planned_because
        return "" if because == "event" else because


class OpenAttempt(msgspec.Struct, frozen=True):
    """An attempt as it is recorded before it is sent."""

    started_at: int
    url: str
    signed_with: list[str]
    waited_for: str
    waited_ms: int


class Attempt(NamedTuple):
    """An attempt that has ended: its row, with the details as JSON."""

    account: bytes
    delivery: bytes
    number: int
    outcome: str
    document: str


class AttemptDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """The details of an attempt that has ended."""

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


def new_delivery(
    account: bytes, raw_id: bytes, subscription: bytes, endpoint: bytes, event: bytes, event_type: str, keep_days: int,
    origin: str = "event",
) -> Delivery:  # fmt: skip
    """A pending delivery of an event."""
    return Delivery(
        account, raw_id, endpoint, subscription, event, event_type, origin,
        "pending", None, None, None, None, keep_days,
    )  # fmt: skip


def enqueue(delivery: Delivery, at: int, because: str = "event") -> Queued:
    """The row in the queue of a new delivery."""
    return Queued(delivery.account, delivery.id, delivery.endpoint, delivery.event, 0, at, at, because, 0, 0, 0)


class StatusChange(NamedTuple):
    """The end of a delivery, or, if it stays `pending`, the result of its last attempt."""

    account: bytes
    id: bytes
    status: str
    ended_at: int | None
    ended_reason: str | None
    last_code: int | None
    last_failure: str | None


def end(account: bytes, raw_id: bytes, reason: str, at: int, code: int | None, failure: str | None) -> StatusChange:
    """The end of a delivery for this reason."""
    return StatusChange(account, raw_id, ENDS[reason][0], at, reason, code, failure)


def unfinished_status(queued: Queued, *, inactive: bool) -> Status:
    """The status of a delivery that has not ended; `inactive` if its endpoint or its account is not active."""
    if queued.worker is not None:
        return "in_flight"
    return "held" if inactive else "pending"
