"""What happens after an attempt: this file, top to bottom. Pure: from the attempt and the schedule to a decision."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from gatepost import clock
from gatepost.deliveries import plan

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


class Receiver(NamedTuple):
    """The endpoint as it is now, when the attempt is settled."""

    url: str
    status: str
    schedule: Sequence[int]


class Delivered(NamedTuple):
    pass


class RetryAt(NamedTuple):
    at: int  # milliseconds
    because: str
    used: int
    interrupted: int = 0


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
    wait = plan.delay(receiver.schedule, used, attempted.delivery, attempted.number + 1)
    if wait is None:
        return Ended("attempts_exhausted")
    asked = asked_to_wait(attempted)
    if asked is not None and asked > wait:
        return RetryAt(ended + asked, "retry_after", used)
    return RetryAt(ended + wait, "schedule", used)


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


def gone(attempted: Attempted, receiver: Receiver) -> bool:
    """410 from the address that the endpoint still has: it is disabled."""
    return attempted.code == 410 and attempted.failure is None and attempted.url == receiver.url


def asked_to_wait(attempted: Attempted) -> int | None:
    """Milliseconds that a 429 or 503 asks for, for the whole endpoint."""
    if attempted.code not in (429, 503):
        return None
    return plan.retry_after(attempted.retry_after, attempted.ended_at)


def in_trouble(code: int | None, failure: str | None) -> bool:
    """What makes us send to the endpoint one at a time."""
    return failure in _TROUBLE or code == 429
