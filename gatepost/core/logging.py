"""Logs on standard error. Frequent events are counted and written in batches, once per event loop iteration."""

import asyncio
import logging
import os
import select
import sys
from collections import Counter as CountOf
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec

from gatepost.core import clock
from gatepost.core.metrics import REQUEST_SECONDS, attempt_counter, request_counter, token_counter

T = TypeVar("T")


class _Log:
    """A structlog logger. structlog is imported when the first line is logged: most commands log nothing."""

    def __getattr__(self, level: str) -> Any:
        import structlog  # noqa: PLC0415

        if not structlog.is_configured():  # in a command, whose standard output is its result
            *processors, _ = structlog.get_config()["processors"]  # the last one has colours if that is a terminal
            structlog.configure(
                processors=[*processors, structlog.dev.ConsoleRenderer(colors=_has_colours())],
                logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
            )
        return getattr(structlog.get_logger("gatepost"), level)


def _has_colours() -> bool:
    """Whether lines on standard error, which the caller may have closed, have colours."""
    return sys.stderr is not None and sys.stderr.isatty() and not os.environ.get("NO_COLOR")


log: Any = _Log()
_encode_lines = msgspec.json.Encoder().encode_lines
_PIPE_BUF = select.PIPE_BUF  # bytes that a pipe accepts atomically, even if other processes write to it


def configure_logs() -> None:
    """Write JSON lines, or formatted lines if standard error is a terminal."""
    import structlog  # noqa: PLC0415

    global _write  # noqa: PLW0603 (global, like structlog's own configuration)
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
    _write = _write_readable if readable else _write_json


class Line(msgspec.Struct, omit_defaults=True, tag_field="event"):
    """The members of every wide log line. No member holds text that a caller chose."""

    level: str
    timestamp: str | None


def _discard(_lines: Sequence[Line]) -> None:
    """Used until logs are configured."""


def _write_readable(lines: Sequence[Line]) -> None:
    for line in lines:
        members = msgspec.to_builtins(line)
        del members["timestamp"]
        getattr(log, members.pop("level"))(members.pop("event"), **members)


def _write_json(lines: Sequence[Line]) -> None:
    """Write lines in structlog's format, many times as fast. A line that cannot be written is dropped.

    Each write ends with a whole line, so that lines of several processes are not mixed.
    """
    timestamp = clock.rfc3339(clock.now())
    for line in lines:
        line.timestamp = timestamp
    encoded = _encode_lines(lines)
    start = 0
    with suppress(OSError):
        while start < len(encoded):
            end = encoded.rfind(b"\n", start, start + _PIPE_BUF) + 1 or encoded.index(b"\n", start) + 1
            os.write(sys.stderr.fileno(), encoded[start:end])
            start = end


_write: Callable[[Sequence[Line]], None] = _discard


def is_configured() -> bool:
    """Whether this process writes logs: the service does, commands do not."""
    return _write is not _discard


# --- frequent events


class RequestLine(Line, tag="request.answered"):
    """A request and its response. `path` and `method` are known ones, or empty."""

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


def _log_requests(lines: list[RequestLine]) -> None:
    durations: dict[tuple[str, int], list[float]] = {}
    for line in lines:
        durations.setdefault((line.path, line.status), []).append(line.ms / 1000)
    for (path, status), seconds in durations.items():
        request_counter(path, status).inc(len(seconds))
        REQUEST_SECONDS.observe_all(path, seconds)
    _write(lines)


def _count_token_requests(outcomes: list[tuple[str, str]]) -> None:
    for (grant_type, outcome), count in CountOf(outcomes).items():
        token_counter(grant_type, outcome).inc(count)


class _Batched(Generic[T]):
    """Collects the events of one event loop iteration and handles them together at its end.

    Incrementing a counter takes about five microseconds, and a busy service handles many events in one iteration.
    """

    def __init__(self, handle: Callable[[list[T]], None]) -> None:
        self._handle = handle
        self._waiting: list[T] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, event: T) -> None:
        loop = asyncio.get_running_loop()
        if not self._waiting or loop is not self._loop:
            self._loop = loop
            loop.call_soon(self._flush)
        self._waiting.append(event)

    def _flush(self) -> None:
        events, self._waiting = self._waiting, []
        self._handle(events)


log_request = _Batched(_log_requests).add
count_token_request = _Batched(_count_token_requests).add  # takes a known grant type, or "", and the outcome


class AttemptLine(Line, tag="delivery.attempted"):
    """A finished attempt. The endpoint's URL is left out: it may be the only secret that protects the receiver."""

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


def log_attempts(lines: Sequence[AttemptLine]) -> None:
    """Count finished attempts, and write a line for each."""
    for (outcome, failure), count in CountOf((line.outcome, line.failure or "") for line in lines).items():
        attempt_counter(outcome, failure).inc(count)
    if lines:
        _write(lines)
