"""What the service says about itself: logs on standard error and counters for /metrics; and how processes are tuned.

What happens thousands of times a second is counted and told of together, once in a turn of the event loop.
"""

import asyncio
import gc
import logging
import os
import select
import sys
from bisect import bisect_left
from collections import Counter as CountOf
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Generic, Never, TypeVar

import msgspec
from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

from gatepost.core import clock
from gatepost.ledger.entries import TYPES
from gatepost.store.lost import LOST, LOST_CODE, end_process
from gatepost.webhooks.deliveries import FAILURES

T = TypeVar("T")
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


def start_at_zero() -> None:
    """Have what is known beforehand on the page from the first: who watches for a change must see the first one too."""
    for type_ in (*TYPES, "platform"):
        _entry_counter(type_)
    for outcome in ("succeeded", "failed", "interrupted", "not_sent"):
        attempt_counter(outcome, "")
    for failure in FAILURES:
        attempt_counter("failed", failure)


@cache
def _token_counter(grant_type: str, outcome: str) -> Any:
    """The counter of one outcome, looked up once."""
    return TOKENS.labels(grant_type, outcome)


@cache
def attempt_counter(outcome: str, failure: str) -> Any:
    return ATTEMPTS.labels(outcome, failure)


@cache
def _request_counter(path: str, status: int) -> Any:
    return REQUESTS.labels(path, str(status))


@cache
def _entry_counter(type_: str) -> Any:
    return ENTRIES.labels(type_)


@cache
def _request_seconds(path: str) -> Histogram:
    return REQUEST_SECONDS.labels(path)


@cache
def _lateness(waited_for: str) -> Histogram:
    return LATENESS.labels(waited_for)


def observe_all(histogram: Histogram, amounts: Iterable[float]) -> None:
    """The same as to observe each. Every figure is written to a file that the processes share: few writes are cheap."""
    counts: CountOf[int] = CountOf()
    total = 0.0
    for amount in amounts:
        counts[bisect_left(histogram._upper_bounds, amount)] += 1
        total += amount
    for place, count in counts.items():
        histogram._buckets[place].inc(count)
    histogram._sum.inc(total)


def committed(units: int, seconds: float, types: Iterable[str]) -> None:
    """A store finished a transaction that wrote."""
    COMMIT_SECONDS.observe(seconds)
    COMMIT_UNITS.observe(units)
    for type_, count in CountOf(each if each in TYPES else "platform" for each in types).items():
        _entry_counter(type_).inc(count)


def claimed(waited: Iterable[tuple[str, int]]) -> None:
    """Attempts were begun: what each waited for, and for how many milliseconds beyond its plan."""
    by_reason: dict[str, list[float]] = {}
    for waited_for, milliseconds in waited:
        by_reason.setdefault(waited_for, []).append(milliseconds / 1000)
    for waited_for, seconds in by_reason.items():
        observe_all(_lateness(waited_for), seconds)


# --- logs


class _Log:
    """A logger of structlog, which is loaded when there is something to say: for most commands there never is."""

    def __getattr__(self, level: str) -> Any:
        import structlog  # noqa: PLC0415

        return getattr(structlog.get_logger("gatepost"), level)


log: Any = _Log()
_encode = msgspec.json.Encoder().encode
_AT_ONCE = select.PIPE_BUF  # bytes that a pipe takes whole, though other processes write to it too


def configure_logs() -> None:
    """JSON lines for programs; for a person at a terminal, readable ones."""
    import structlog  # noqa: PLC0415

    global _tell  # noqa: PLW0603 (as structlog's own configuration is)
    readable = sys.stderr.isatty()
    renderer: Any = structlog.dev.ConsoleRenderer() if readable else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    _tell = _tell_person if readable else _tell_program


class Line(msgspec.Struct, omit_defaults=True, tag_field="event"):
    """What a wide line has in common with every other. None of it is a stranger's word."""

    level: str
    timestamp: str | None


def _tell_nobody(_lines: Sequence[Line]) -> None:
    """Until logs are configured."""


def _tell_person(lines: Sequence[Line]) -> None:
    for each in lines:
        line = msgspec.to_builtins(each)
        del line["timestamp"]
        getattr(log, line.pop("level"))(line.pop("event"), **line)


def _tell_program(lines: Sequence[Line]) -> None:
    """Many times as fast as structlog, whose lines look the same. What cannot be written is lost, and nothing else.

    A piece ends with a line, so that the lines of several processes do not run into each other.
    """
    at = clock.rfc3339(clock.now())
    piece = b""
    with suppress(OSError):
        for each in lines:
            each.timestamp = at
            line = _encode(each)
            if piece and len(piece) + len(line) >= _AT_ONCE:
                os.write(sys.stderr.fileno(), piece)
                piece = b""
            piece += line + b"\n"
        os.write(sys.stderr.fileno(), piece)


_tell: Callable[[Sequence[Line]], None] = _tell_nobody


def end_after_lost_write(error: BaseException) -> Never:
    """End the process without answering its callers: the disk did not keep what was written."""
    if _tell is not _tell_nobody:
        with suppress(Exception):  # whatever becomes of the line
            log.critical("disk failed", error=str(error), because=LOST)
        os._exit(LOST_CODE)
    end_process(error)


# --- what happens most


class Answered(Line, tag="request.answered"):
    """A request and its answer; `path` and `method` are among those that we have, or empty."""

    request: str
    method: str
    path: str
    status: int
    ms: float
    source: str
    entry: str = ""
    error: str = ""
    account: str = ""
    client: str = ""
    grant_type: str = ""
    trace: str = ""


def _tell_answers(some: list[Answered]) -> None:
    alike: dict[tuple[str, int], list[float]] = {}
    for each in some:
        alike.setdefault((each.path, each.status), []).append(each.ms / 1000)
    for (path, status), seconds in alike.items():
        _request_counter(path, status).inc(len(seconds))
        observe_all(_request_seconds(path), seconds)
    _tell(some)


def _tell_tokens(some: list[tuple[str, str]]) -> None:
    for (grant_type, outcome), count in CountOf(some).items():
        _token_counter(grant_type, outcome).inc(count)


class _Together(Generic[T]):
    """Gathers what happens in one turn of the event loop, and has it told of at its end.

    To count something costs five microseconds when it is not done over and over; a busy service does much in one turn.
    """

    def __init__(self, tell: Callable[[list[T]], None]) -> None:
        self._tell = tell
        self._waiting: list[T] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, one: T) -> None:
        loop = asyncio.get_running_loop()
        if not self._waiting or loop is not self._loop:
            self._loop = loop
            loop.call_soon(self._tell_all)
        self._waiting.append(one)

    def _tell_all(self) -> None:
        some, self._waiting = self._waiting, []
        self._tell(some)


answered = _Together(_tell_answers).add
token_asked = _Together(_tell_tokens).add  # a grant type that we have, or empty, and what came of it


class Attempted(Line, tag="delivery.attempted"):
    """An attempt that ended. The endpoint's URL is not here: who knows it may be able to write to the receiver."""

    account: str
    endpoint: str
    delivery: str
    entry: str
    type: str
    attempt: int
    outcome: str
    waited_for: str
    waited_ms: int
    worker: str
    response_code: int | None = None
    failure: str | None = None
    ms: float | None = None
    trace: str = ""


def attempted(some: Sequence[Attempted]) -> None:
    """Attempts ended: counted, and a line for each."""
    for (outcome, failure), count in CountOf((each.outcome, each.failure or "") for each in some).items():
        attempt_counter(outcome, failure).inc(count)
    if some:
        _tell(some)


def collect_rarely() -> None:
    """Requests under way are many short-lived objects without cycles; looking for some took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
