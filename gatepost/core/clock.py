"""Instants and durations. Only this file reads the clock; all other code receives a `Clock` or an instant."""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def now() -> datetime:
    """Return the current time, in UTC."""
    return datetime.now(UTC)


# CLOCK_BOOTTIME, where the system has it, includes the time for which the machine was suspended.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Return the seconds of a clock that is never set. Only differences between two values have a meaning."""
    return time.clock_gettime(_STEADY)


def milliseconds(instant: datetime) -> int:
    """Return the stored form of an instant."""
    return (instant - EPOCH) // _MILLISECOND


def from_milliseconds(stored: int) -> datetime:
    """Return the instant of a stored value."""
    return EPOCH + stored * _MILLISECOND


def seconds(instant: datetime) -> int:
    """Return the NumericDate of an instant (RFC 7519, section 2)."""
    return int(instant.timestamp())


def rfc3339(instant: datetime) -> str:
    """Format an instant as RFC 3339 in UTC with milliseconds, the form of every timestamp in output."""
    return instant.isoformat(timespec="milliseconds")[:23] + "Z"


_LEAP_SECOND = re.compile(r"(.{16}):60(?:\.[0-9]+)?([Zz]|[+-].{5})")  # up to the minute, and the offset


def parse_rfc3339(text: str) -> datetime | None:
    """Return the instant, or None if the text is not a timestamp with an offset.

    Letters may be in lower case, and a leap second is the last millisecond before it (RFC 3339, sections 5.6 and 5.7).
    """
    leap = _LEAP_SECOND.fullmatch(text)
    try:
        instant = datetime.fromisoformat((f"{leap[1]}:59.999{leap[2]}" if leap else text).upper())
        at = instant.astimezone(UTC) if instant.tzinfo else None
    except (ValueError, OverflowError):  # OverflowError: the offset leads beyond the calendar
        return None
    return at if at is None or not leap or (at.hour, at.minute) == (23, 59) else None


def optional_from_milliseconds(stored: int | None) -> datetime | None:
    """Return the instant of a stored value that may be NULL."""
    return None if stored is None else from_milliseconds(stored)
