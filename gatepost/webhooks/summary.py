"""Summaries of an account's deliveries from its counts. Durations are counted in buckets, accurate to a tenth."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

from gatepost.core import clock
from gatepost.webhooks.deliveries import ENDS

_RATIO = 1.2  # of the bounds of a bucket: its middle is within 10 % of every value in it
_FIRST = 0.1  # milliseconds


@lru_cache(4096)
def bucket(duration_ms: float) -> int:
    """Bucket n has the durations from _FIRST * _RATIO^n to the next bound; bucket 0 also shorter ones."""
    return max(0, math.floor(math.log(max(duration_ms, _FIRST) / _FIRST, _RATIO)))


def middle(number: int) -> float:
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

Interval = Literal["hour", "day"]
Row = tuple[int, str, int]  # start in seconds, what was counted, and the count

SECONDS: dict[Interval, int] = {"hour": 3600, "day": 86_400}
MOST = 1000  # intervals in one summary
CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx", "none", "interrupted", "not_sent")


def span(interval: Interval, start: int, end: int) -> tuple[int, int]:
    """The start and end of the whole intervals that cover these seconds."""
    size = SECONDS[interval]
    return start // size * size, -(-end // size) * size


def summarise(rows: Iterable[Row], interval: Interval, start: int, end: int) -> list[dict[str, Any]]:
    """One summary for each interval, including empty ones. Rows may be finer than intervals."""
    size = SECONDS[interval]
    first, last = span(interval, start, end)
    counts: dict[int, Counter[str]] = {since: Counter() for since in range(first, last, size)}
    for since, what, count in rows:
        within = since // size * size
        if within in counts:
            counts[within][what] += count
    return [
        {"start": clock.rfc3339(clock.from_milliseconds(since * 1000))} | _render(counts[since]) for since in counts
    ]


def total(rows: Iterable[Row]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for _, what, count in rows:
        counts[what] += count
    return _render(counts)


def _render(counts: Mapping[str, int]) -> dict[str, Any]:
    ended = dict.fromkeys(ENDS, 0) | _named(counts, "ended ")
    buckets = {int(number): count for number, count in _named(counts, "ms ").items()}
    endings = sum(ended.values())
    return {
        "deliveries": {"made": counts.get("made", 0), "ended": ended},
        "attempts": dict.fromkeys(CLASSES, 0) | _named(counts, "attempt "),
        "success_ratio": round(ended["delivered"] / endings, 6) if endings else None,
        "duration_ms": {name: percentile(buckets, share) for name, share in _PERCENTILES},
    }


_PERCENTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


def _named(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {what.removeprefix(prefix): count for what, count in counts.items() if what.startswith(prefix)}
