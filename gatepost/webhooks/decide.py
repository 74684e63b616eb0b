"""What happens after an attempt: this file, top to bottom. Pure: from the attempt and the schedule to a decision."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from gatepost.core import clock
from gatepost.webhooks import plan
from gatepost.webhooks.endpoints import MAX_RETRY_AFTER

SHORTAGE_PAUSE, LONGEST_SHORTAGE_PAUSE = 1_000, 60_000  # milliseconds
INTERRUPTIONS = 3  # the third in a row uses up a planned attempt
_TROUBLE = ("dns", "connect", "tls", "send", "first_byte", "timeout")


class Attempted(NamedTuple):
    """An attempt that was answered or failed, and what was known when it was claimed."""

    delivery: bytes
    number: int
    used: int  # planned attempts used up before this one
    interrupted: int
    url: str
    code: int | None
    failure: str | None
    retry_after: str | None
    ended_at: datetime
    because: str = "event"  # why it was made when it was
    connection_closed: bool = False  # a kept connection was closed before any byte of an answer

    @property
    def is_made_again(self) -> bool:
        """At once, on a new connection, which is therefore never a kept one."""
        return self.connection_closed and self.because != "connection_closed"


class Receiver(NamedTuple):
    """The endpoint as it is now, when the attempt is settled."""

    url: str
    status: str
    schedule: Sequence[int]
    max_retry_after: int = MAX_RETRY_AFTER  # seconds


class Delivered(NamedTuple):
    pass


class RetryAt(NamedTuple):
    """By the plan. The endpoint may have asked for a later time with Retry-After, which is kept once, in its health."""

    at: int  # milliseconds
    because: str
    used: int
    interrupted: int = 0
    not_before: int = 0  # the Retry-After of this attempt's own answer

    @property
    def planned_at(self) -> int:
        """The time shown for the next attempt."""
        return max(self.at, self.not_before)


class Ended(NamedTuple):
    reason: str


Decision = Delivered | RetryAt | Ended


def succeeded(code: int | None, failure: str | None) -> bool:
    """2xx, wholly answered."""
    return failure is None and code is not None and 200 <= code < 300


def after_attempt(attempted: Attempted, receiver: Receiver) -> Decision:
    if succeeded(attempted.code, attempted.failure):
        return Delivered()
    if gone(attempted, receiver):
        return Ended("endpoint_gone")
    if receiver.status == "removed":
        return Ended("endpoint_removed")
    used, ended = attempted.used + 1, clock.milliseconds(attempted.ended_at)
    if attempted.is_made_again:
        return RetryAt(ended, "connection_closed", attempted.used)
    wait = plan.delay(receiver.schedule, used, attempted.delivery, attempted.number + 1)
    if wait is None:
        return Ended("attempts_exhausted")
    return RetryAt(ended + wait, "schedule", used, not_before=asked_not_before(attempted, receiver) or 0)


def after_interruption(
    delivery: bytes, number: int, used: int, interrupted: int, now: int, receiver: Receiver
) -> Decision:
    """Nobody knows what became of the attempt. It is made again at once, but what kills its worker is not for ever."""
    if receiver.status == "removed":
        return Ended("endpoint_removed")
    if interrupted + 1 < INTERRUPTIONS:
        return RetryAt(now, "interrupted", used, interrupted + 1)
    wait = plan.delay(receiver.schedule, used + 1, delivery, number + 1)
    return Ended("attempts_exhausted") if wait is None else RetryAt(now + wait, "interrupted", used + 1)


def after_shortage(number: int, used: int, interrupted: int, now: int) -> RetryAt:
    """The service lacked a resource, so attempt `number` was not sent. The next is made after a pause.

    The pause doubles with each attempt of this delivery that used up no planned one, so it needs no count of its own.
    """
    beyond_plan = max(0, number - 1 - used)
    pause = min(SHORTAGE_PAUSE << min(beyond_plan, 16), LONGEST_SHORTAGE_PAUSE)
    return RetryAt(now + pause, "shortage", used, interrupted)


def gone(attempted: Attempted, receiver: Receiver) -> bool:
    """410 from the address that the endpoint still has: it is disabled."""
    return attempted.code == 410 and attempted.failure is None and attempted.url == receiver.url


def asked_not_before(attempted: Attempted, receiver: Receiver) -> int | None:
    """Until when a 429 or 503 asks for no attempts to the whole endpoint, in milliseconds.

    An answer from a URL that the endpoint no longer has says nothing about the one it has now.
    """
    if attempted.code not in (429, 503) or attempted.url != receiver.url:
        return None
    asked = plan.retry_after(attempted.retry_after, attempted.ended_at, receiver.max_retry_after)
    return None if asked is None else clock.milliseconds(attempted.ended_at) + asked


def waited_for(planned_at: int, not_before: int, blocked: str, now: int) -> str:
    """What an attempt made now waited for since it was planned.

    `not_before` is the endpoint's Retry-After as stored, 0 if there is none; `blocked` is what the schedule in memory
    saw in its way. If Retry-After accounts for at least half of the time, it is the reason.
    """
    if now <= planned_at:
        return "plan"
    return "retry_after" if not_before - planned_at >= now - not_before else blocked


def in_trouble(code: int | None, failure: str | None) -> bool:
    """What makes us send to the endpoint one at a time."""
    return failure in _TROUBLE or code == 429
