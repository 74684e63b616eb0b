"""Instants and durations. The only file that reads the clock; everything else is handed a `Clock` or an instant."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def now() -> datetime:
    return datetime.now(UTC)


# The time that a machine sleeps counts where the system can say it.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds since some moment, by a clock that nobody sets: only differences mean something."""
    return time.clock_gettime(_STEADY)


def milliseconds(instant: datetime) -> int:
    """The stored form of an instant."""
    return (instant - EPOCH) // _MILLISECOND


def from_milliseconds(stored: int) -> datetime:
    return EPOCH + timedelta(milliseconds=stored)


def seconds(instant: datetime) -> int:
    """NumericDate of RFC 7519, section 2."""
    return int(instant.timestamp())


def rfc3339(instant: datetime) -> str:
    """RFC 3339 in UTC with milliseconds, the form of every timestamp we show."""
    return instant.isoformat(timespec="milliseconds")[:23] + "Z"


def parse_rfc3339(text: str) -> datetime | None:
    try:
        instant = datetime.fromisoformat(text)
        return instant.astimezone(UTC) if instant.tzinfo else None
    except (ValueError, OverflowError):  # OverflowError: at either end of the calendar, with an offset beyond it
        return None


def optional_from_milliseconds(stored: int | None) -> datetime | None:
    return None if stored is None else from_milliseconds(stored)
