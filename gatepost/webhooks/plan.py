"""The retry plan: the times of the next attempts, computed from the schedule. Only the next time is stored.

The jitter is derived from the delivery's id and the attempt's number, so the plan that is shown is the one in use.
"""

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from gatepost.accounts import Account
from gatepost.core import clock
from gatepost.webhooks.endpoints import Endpoint

_JITTER = 0.1


class Planned(NamedTuple):
    """A planned attempt: its number, its time in milliseconds, and why it is planned for that time."""

    number: int
    at: int
    because: str


def retry_schedule(account: Account, endpoint: Endpoint) -> Sequence[int]:
    """The schedule of the endpoint, or else of its account."""
    schedule: Sequence[int] = account["retry_schedule"] if endpoint.retry_schedule is None else endpoint.retry_schedule
    return schedule


def delay(schedule: Sequence[int], used: int, delivery: bytes, number: int) -> int | None:
    """Milliseconds from the end of an attempt to attempt `number`. None if `used` attempts use up the schedule."""
    if not 0 < used <= len(schedule):
        return None
    random = int.from_bytes(hashlib.sha256(delivery + number.to_bytes(4, "big")).digest()[:8], "big") / 2**64
    return round(schedule[used - 1] * 1000 * (1 - _JITTER + 2 * _JITTER * random))


def remaining(schedule: Sequence[int], used: int, delivery: bytes, next_: Planned) -> list[Planned]:
    """All planned attempts. The time of the first is exact; the others assume that every attempt fails at once."""
    plan = [next_]
    while (wait := delay(schedule, used + len(plan), delivery, plan[-1].number + 1)) is not None:
        plan.append(Planned(plan[-1].number + 1, plan[-1].at + wait, "schedule"))
    return plan


def postponed(planned: Planned, not_before: int | None) -> Planned:
    """The planned attempt, postponed to the endpoint's Retry-After if that is later."""
    if not_before is None or not_before <= planned.at:
        return planned
    return planned._replace(at=not_before, because="retry_after")


def retry_after(value: str | None, at: datetime, longest: int) -> int | None:
    """Milliseconds to wait for a Retry-After header with seconds or a date (RFC 9110, sections 10.2.3 and 5.6.7).

    At most `longest` seconds. None if the time is in the past or the value cannot be parsed.
    """
    if value is None:
        return None
    text = value.strip()
    if re.fullmatch(r"\d{1,64}", text, re.ASCII):
        wait = int(text) * 1000
    else:
        try:
            date = parsedate_to_datetime(text)
            wait = clock.milliseconds(date if date.tzinfo else date.replace(tzinfo=UTC)) - clock.milliseconds(at)
        except (ValueError, TypeError, OverflowError):
            return None
    return min(wait, longest * 1000) if wait > 0 else None
