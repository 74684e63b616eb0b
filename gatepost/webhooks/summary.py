"""Summaries of the deliveries of an account or of an endpoint, from counts.

Durations are those of attempts with a response. They are counted in buckets, accurate to 10 %.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

from gatepost.core import clock
from gatepost.webhooks.deliveries import ENDS

_RATIO = 1.2  # between the bounds of a bucket: its middle is within 10 % of every value in it
_PERCENTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
_FIRST = 0.1  # milliseconds


@lru_cache(4096)
def bucket(duration_ms: float) -> int:
    """The bucket of a duration. Bucket n begins at _FIRST * _RATIO^n; bucket 0 also has all shorter durations."""
    return max(0, math.floor(math.log(max(duration_ms, _FIRST) / _FIRST, _RATIO)))


def middle(number: int) -> float:
    """The duration in milliseconds that stands for all durations in a bucket."""
    return float(_FIRST * _RATIO ** (number + 0.5))


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """The duration in milliseconds that a share of all durations does not exceed."""
    rank = math.ceil(sum(counts.values()) * share)
    for number in sorted(counts):
        rank -= counts[number]
        if rank <= 0:
            return round(middle(number), 2)
    return None


# --- summaries

Interval = Literal["minute", "hour", "day"]
Row = tuple[int, str, int]  # start in seconds, what was counted, and the count

SECONDS: dict[Interval, int] = {"minute": 60, "hour": 3600, "day": 86_400}
MAX_INTERVALS = 1000  # in one summary
CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx", "none", "interrupted", "not_sent")
_KNOWN_RESULTS = ("1xx", "2xx", "3xx", "4xx", "5xx", "none")


def span(interval: Interval, start: int, end: int) -> tuple[int, int]:
    """The start and end of the whole intervals that cover these seconds."""
    size = SECONDS[interval]
    return start // size * size, -(-end // size) * size


def summarize(rows: Iterable[Row], interval: Interval, start: int, end: int) -> list[dict[str, Any]]:
    """One summary for each interval, including empty ones. Rows may be finer than intervals."""
    size = SECONDS[interval]
    first, last = span(interval, start, end)
    counts: dict[int, Counter[str]] = {since: Counter() for since in range(first, last, size)}
    for since, what, count in rows:
        interval_start = since // size * size
        if interval_start in counts:
            counts[interval_start][what] += count
    return [
        {"start": clock.rfc3339(clock.from_milliseconds(since * 1000))} | _render(count)
        for since, count in counts.items()
    ]


def total(rows: Iterable[Row]) -> dict[str, Any]:
    """One summary of all rows."""
    counts: Counter[str] = Counter()
    for _, what, count in rows:
        counts[what] += count
    return _render(counts)


def _render(counts: Mapping[str, int]) -> dict[str, Any]:
    ended = dict.fromkeys(ENDS, 0) | _with_prefix(counts, "ended ")
    buckets = {int(number): count for number, count in _with_prefix(counts, "ms ").items()}
    attempts = dict.fromkeys(CLASSES, 0)
    for name, count in _with_prefix(counts, "attempt ").items():
        attempts[name if name in attempts else "5xx"] += count  # earlier releases have counted 6xx to 9xx
    return {
        "deliveries": {"made": counts.get("made", 0), "ended": ended},
        "attempts": attempts,
        "success_ratio": _ratio(ended["delivered"], sum(ended.values())),
        "attempt_success_ratio": _ratio(attempts["2xx"], sum(attempts[name] for name in _KNOWN_RESULTS)),
        "duration_ms": {name: percentile(buckets, share) for name, share in _PERCENTILES},
    }


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def _with_prefix(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {what.removeprefix(prefix): count for what, count in counts.items() if what.startswith(prefix)}
