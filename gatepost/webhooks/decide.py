"""Decides what follows from an attempt. Pure: an attempt and the endpoint go in, a decision comes out.

| the attempt | decision |
|---|---|
| was not sent: the worker stops, lost its claim, or lacks a resource | `Released`: uses up nothing of the schedule |
| was answered with 2xx | `Delivered` |
| was answered with 410 by the URL that the endpoint still has | `Gone` |
| failed, and the endpoint is removed | `Removed` |
| failed because the receiver closed a reused connection | `RetryAt` once, at once, on a new connection |
| failed in any other way, also with 429 or 503 | `RetryAt` by the schedule, or `Exhausted` |
| was interrupted: its worker is gone | `RetryAt` at once; the third in a row counts as a failure |

A `Retry-After` in a 429 or 503 postpones every attempt to the endpoint (`asked_not_before`); the schedule stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from gatepost.core import clock
from gatepost.webhooks import plan
from gatepost.webhooks.endpoints import MAX_RETRY_AFTER, Endpoint

SHORTAGE_PAUSE, LONGEST_SHORTAGE_PAUSE = 1_000, 60_000  # milliseconds
INTERRUPTIONS = 3  # the third in a row uses up a planned attempt
_UNREACHABLE = ("dns", "connect", "tls", "send", "first_byte", "timeout")


class Attempted(NamedTuple):
    """An attempt that is over, and the state of its delivery when it was claimed. Times are milliseconds."""

    delivery: bytes
    number: int
    used: int  # planned attempts used up before this one
    interrupted: int
    url: str
    code: int | None
    failure: str | None
    retry_after: str | None
    ended_at: int
    because: str = "event"  # why it was made when it was
    connection_closed: bool = False  # the receiver closed a reused connection before the first byte of a response
    sent: bool = True
    shortage: str = ""  # the resource that the service lacked, if the attempt was not sent for that reason

    @property
    def is_repeated(self) -> bool:
        """Whether it is repeated at once. The repetition uses a new connection, so it is not repeated again."""
        return self.connection_closed and self.because != "connection_closed"


class Receiver(NamedTuple):
    """The endpoint as it is when the attempt is settled."""

    url: str
    status: str
    schedule: Sequence[int]
    max_retry_after: int = MAX_RETRY_AFTER  # seconds


class RetryAt(NamedTuple):
    """The next attempt by the schedule. A Retry-After may postpone it; it is stored in the health of the endpoint."""

    at: int  # milliseconds
    because: str
    used: int
    interrupted: int = 0
    not_before: int = 0  # from the Retry-After of this response

    @property
    def planned_at(self) -> int:
        """The time shown for the next attempt."""
        return max(self.at, self.not_before)


class Released(NamedTuple):
    """The attempt was never sent. The delivery returns to the queue."""

    at: int  # milliseconds
    because: str
    used: int
    interrupted: int

    @property
    def planned_at(self) -> int:
        return self.at


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver accepted the event."""

    reason: ClassVar = "delivered"


@dataclass(frozen=True, slots=True)
class Exhausted:
    """No planned attempt is left."""

    reason: ClassVar = "attempts_exhausted"


@dataclass(frozen=True, slots=True)
class Gone:
    """The receiver responded with 410."""

    reason: ClassVar = "endpoint_gone"


@dataclass(frozen=True, slots=True)
class Removed:
    """The endpoint is removed."""

    reason: ClassVar = "endpoint_removed"


Ended = Delivered | Exhausted | Gone | Removed  # `reason` is the delivery's `ended_reason`
Decision = RetryAt | Released | Ended


def after_attempt(attempted: Attempted, receiver: Receiver) -> Decision:
    """Decide what follows from an attempt. Only what follows from a failure depends on the endpoint."""
    if not attempted.sent:
        return _after_release(attempted)
    if succeeded(attempted.code, attempted.failure):
        return Delivered()
    return _after_failure(attempted, receiver)


def succeeded(code: int | None, failure: str | None) -> bool:
    """Whether the receiver responded with 2xx, and the response was received completely."""
    return failure is None and code is not None and 200 <= code < 300


def _after_failure(attempted: Attempted, receiver: Receiver) -> RetryAt | Exhausted | Gone | Removed:
    if gone(attempted, receiver):
        return Gone()
    if receiver.status == "removed":
        return Removed()
    used, ended = attempted.used + 1, attempted.ended_at
    if attempted.is_repeated:
        return RetryAt(ended, "connection_closed", attempted.used)
    wait = plan.delay(receiver.schedule, used, attempted.delivery, attempted.number + 1)
    if wait is None:
        return Exhausted()
    return RetryAt(ended + wait, "schedule", used, not_before=asked_not_before(attempted, receiver) or 0)


def _after_release(attempted: Attempted) -> Released:
    """The next attempt is made at once, or after a pause if the service lacked a resource.

    The pause doubles with each attempt of this delivery that used up no planned one, so it needs no count of its own.
    """
    if not attempted.shortage:
        return release(attempted.used, attempted.interrupted, attempted.ended_at)
    beyond_plan = max(0, attempted.number - 1 - attempted.used)
    pause = min(SHORTAGE_PAUSE << min(beyond_plan, 16), LONGEST_SHORTAGE_PAUSE)
    return Released(attempted.ended_at + pause, "shortage", attempted.used, attempted.interrupted)


def release(used: int, interrupted: int, now: int) -> Released:
    """The attempt was not sent, and can be made at once."""
    return Released(now, "released", used, interrupted)


def after_interruption(
    delivery: bytes, number: int, used: int, interrupted: int, now: int, receiver: Receiver
) -> RetryAt | Exhausted | Removed:
    """The result of the attempt is unknown, so it is repeated at once, but not for ever: it may kill its workers."""
    if receiver.status == "removed":
        return Removed()
    if interrupted + 1 < INTERRUPTIONS:
        return RetryAt(now, "interrupted", used, interrupted + 1)
    wait = plan.delay(receiver.schedule, used + 1, delivery, number + 1)
    return Exhausted() if wait is None else RetryAt(now + wait, "interrupted", used + 1)


def gone(attempted: Attempted, receiver: Receiver | Endpoint) -> bool:
    """Whether the URL that the endpoint still has responded with 410, which disables the endpoint."""
    return attempted.code == 410 and attempted.failure is None and attempted.url == receiver.url


def asked_not_before(attempted: Attempted, receiver: Receiver | Endpoint) -> int | None:
    """The time before which a 429 or 503 asks for no attempts to the endpoint, in milliseconds.

    A response from a URL that the endpoint no longer has says nothing about its present URL.
    """
    if attempted.code not in (429, 503) or attempted.url != receiver.url:
        return None
    ended_at = clock.from_milliseconds(attempted.ended_at)
    wait = plan.retry_after(attempted.retry_after, ended_at, receiver.max_retry_after)
    return None if wait is None else attempted.ended_at + wait


def waited_for(planned_at: int, not_before: int, resumed_at: int, blocked: str, now: int) -> str:
    """What an attempt made now waited for since it was planned.

    `not_before` is the end of the last Retry-After of the endpoint, and `resumed_at` the time since which it and its
    account are active; both are 0 if there is none. Each is the reason if it accounts for at least half of the time.
    Otherwise it is `blocked`, the last obstacle that the schedule in memory saw.
    """
    if now <= planned_at:
        return "plan"
    if not_before - planned_at >= now - not_before:
        return "retry_after"
    return "plan" if resumed_at - planned_at >= now - resumed_at else blocked


def is_overloaded(code: int | None, failure: str | None) -> bool:
    """Whether to send only one request at a time: the receiver cannot be reached, or it asks for fewer requests."""
    return failure in _UNREACHABLE or code == 429
