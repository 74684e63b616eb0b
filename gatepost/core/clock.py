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


# The groups are the minute, the second, and the offset.
_HOUR_AND_MINUTE = r"(?:[01]\d|2[0-3]):[0-5]\d"
_DATE_TIME = re.compile(
    rf"(\d\d\d\d-\d\d-\d\d[Tt ]{_HOUR_AND_MINUTE}):([0-5]\d|60)(?:\.\d+)?([Zz]|[+-]{_HOUR_AND_MINUTE})", re.ASCII
)


def parse_rfc3339(text: str) -> datetime | None:
    """Return the instant, or None if the text is not a `date-time` of RFC 3339.

    Letters may be in lower case, and a space may replace the `T`. A leap second is the last millisecond before it (RFC
    3339, sections 5.6 and 5.7).
    """
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        return None
    leap = found[2] == "60"
    try:
        at = datetime.fromisoformat((f"{found[1]}:59.999{found[3]}" if leap else text).upper()).astimezone(UTC)
    except (ValueError, OverflowError):  # a day that the month does not have; the offset leads beyond the calendar
        return None
    return at if not leap or (at.hour, at.minute) == (23, 59) else None


def optional_from_milliseconds(stored: int | None) -> datetime | None:
    """Return the instant of a stored value that may be NULL."""
    return None if stored is None else from_milliseconds(stored)
