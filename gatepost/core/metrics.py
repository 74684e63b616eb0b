"""Metrics that every process counts, for the page /metrics. Event types and failures are handed in."""

from bisect import bisect_left
from collections import Counter as CountOf
from collections.abc import Container, Iterable
from functools import cache
from typing import Any

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call]

TOKENS = Counter("gatepost_token_requests_total", "Answers of POST /oauth/tokens.", ["grant_type", "outcome"])
UNKNOWN_CLIENTS = Counter("gatepost_unknown_client_total", "Requests to authenticate that named no known client.")
REQUESTS = Counter(
    "gatepost_requests_total", "Answers of the public listener and of POST /events; no path: one that is not served.",
    ["path", "status"],
)  # fmt: skip
REQUEST_SECONDS = Histogram(
    "gatepost_request_seconds", "From a request's arrival to its answer.", ["path"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)  # fmt: skip
ENTRIES = Counter(
    "gatepost_ledger_entries_total", "Entries written to the ledger, by type; platform: those that are published.",
    ["type"],
)  # fmt: skip
ATTEMPTS = Counter(
    "gatepost_attempts_total", "Attempts to deliver that ended; the failure names the phase.", ["outcome", "failure"]
)  # fmt: skip
IN_FLIGHT = Gauge("gatepost_attempts_in_flight", "Attempts under way.", multiprocess_mode="livesum")
LATENESS = Histogram(
    "gatepost_attempt_lateness_seconds", "From when an attempt was planned to when it was made, by what it waited for.",
    ["waited_for"], buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600),
)  # fmt: skip
COMMIT_SECONDS = Histogram(
    "gatepost_store_commit_seconds", "From the beginning of a transaction that writes to its end.",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)  # fmt: skip
COMMIT_UNITS = Histogram(
    "gatepost_store_commit_units", "Units of work that shared a commit.", buckets=(1, 2, 5, 10, 20, 50, 100, 200)
)  # fmt: skip
SHORTAGES = Counter(
    "gatepost_shortages_total", "Requests to others that were not sent because the service ran out of a resource.",
    ["resource"],
)  # fmt: skip
CHORE_FAILURES = Counter("gatepost_chore_failures_total", "Runs of a chore that failed.", ["chore"])
CHORE_IDLE = Gauge(
    "gatepost_chore_idle_seconds", "Since a chore last finished or made progress.", ["chore"],
    multiprocess_mode="livesum",
)  # fmt: skip
OF_EVERY_PROCESS = (
    CHORE_FAILURES, CHORE_IDLE, SHORTAGES,
    TOKENS, UNKNOWN_CLIENTS, REQUESTS, REQUEST_SECONDS, ENTRIES, ATTEMPTS, IN_FLIGHT, LATENESS, COMMIT_SECONDS,
    COMMIT_UNITS,
)  # fmt: skip


def start_at_zero(types: Iterable[str], failures: Iterable[str]) -> None:
    """Put what is known beforehand on the page from the first: an alert on a change must see the first one too."""
    for type_ in (*types, "platform"):
        _entry_counter(type_)
    for outcome in ("succeeded", "failed", "interrupted", "not_sent"):
        attempt_counter(outcome, "")
    for failure in failures:
        attempt_counter("failed", failure)


@cache
def token_counter(grant_type: str, outcome: str) -> Any:
    """The counter of one outcome, looked up once."""
    return TOKENS.labels(grant_type, outcome)


@cache
def attempt_counter(outcome: str, failure: str) -> Any:
    return ATTEMPTS.labels(outcome, failure)


@cache
def request_counter(path: str, status: int) -> Any:
    return REQUESTS.labels(path, str(status))


@cache
def _entry_counter(type_: str) -> Any:
    return ENTRIES.labels(type_)


@cache
def request_seconds(path: str) -> Histogram:
    return REQUEST_SECONDS.labels(path)


@cache
def _lateness(waited_for: str) -> Histogram:
    return LATENESS.labels(waited_for)


def observe_all(histogram: Histogram, amounts: Iterable[float]) -> None:
    """Observe all amounts at once. Every figure is in a file that the processes share, so fewer writes are cheaper."""
    counts: CountOf[int] = CountOf()
    total = 0.0
    for amount in amounts:
        counts[bisect_left(histogram._upper_bounds, amount)] += 1
        total += amount
    for place, count in counts.items():
        histogram._buckets[place].inc(count)
    histogram._sum.inc(total)


def committed(units: int, seconds: float, types: Iterable[str], *, known: Container[str]) -> None:
    """A store finished a transaction that wrote entries of these types; those not known are the platform's."""
    COMMIT_SECONDS.observe(seconds)
    COMMIT_UNITS.observe(units)
    for type_, count in CountOf(type_ if type_ in known else "platform" for type_ in types).items():
        _entry_counter(type_).inc(count)


def claimed(waited: Iterable[tuple[str, int]]) -> None:
    """Attempts began: the reason each one waited, and for how many milliseconds beyond its plan."""
    by_reason: dict[str, list[float]] = {}
    for waited_for, milliseconds in waited:
        by_reason.setdefault(waited_for, []).append(milliseconds / 1000)
    for waited_for, seconds in by_reason.items():
        observe_all(_lateness(waited_for), seconds)
