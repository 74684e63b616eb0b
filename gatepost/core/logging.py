"""Logs on standard error. Frequent events are counted and written in batches, once per turn of the event loop."""

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
from gatepost.core.metrics import attempt_counter, observe_all, request_counter, request_seconds, token_counter

T = TypeVar("T")


class _Log:
    """A structlog logger. structlog is imported when the first line is logged: most commands log nothing."""

    def __getattr__(self, level: str) -> Any:
        import structlog  # noqa: PLC0415

        return getattr(structlog.get_logger("gatepost"), level)


log: Any = _Log()
_encode = msgspec.json.Encoder().encode
_AT_ONCE = select.PIPE_BUF  # bytes that a pipe accepts in one piece, even if other processes write to it


def configure_logs() -> None:
    """Write JSON lines, or readable ones if standard error is a terminal."""
    import structlog  # noqa: PLC0415

    global _write  # noqa: PLW0603 (as structlog's own configuration is)
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
    """The members of every wide log line. None holds text that a caller chose."""

    level: str
    timestamp: str | None


def _discard(_lines: Sequence[Line]) -> None:
    """Used until logs are configured."""


def _write_readable(lines: Sequence[Line]) -> None:
    for each in lines:
        line = msgspec.to_builtins(each)
        del line["timestamp"]
        getattr(log, line.pop("level"))(line.pop("event"), **line)


def _write_json(lines: Sequence[Line]) -> None:
    """Write lines as structlog does, many times as fast. A line that cannot be written is dropped.

    Each write ends with a whole line, so that lines of several processes are not mixed.
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


_write: Callable[[Sequence[Line]], None] = _discard


def is_configured() -> bool:
    """Whether this process writes logs: the service does, commands do not."""
    return _write is not _discard


# --- frequent events


class Answered(Line, tag="request.answered"):
    """A request and its answer. `path` and `method` are known ones, or empty."""

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


def _count_answers(some: list[Answered]) -> None:
    alike: dict[tuple[str, int], list[float]] = {}
    for each in some:
        alike.setdefault((each.path, each.status), []).append(each.ms / 1000)
    for (path, status), seconds in alike.items():
        request_counter(path, status).inc(len(seconds))
        observe_all(request_seconds(path), seconds)
    _write(some)


def _count_token_requests(some: list[tuple[str, str]]) -> None:
    for (grant_type, outcome), count in CountOf(some).items():
        token_counter(grant_type, outcome).inc(count)


class _Batched(Generic[T]):
    """Collects the events of one turn of the event loop and handles them together at its end.

    Incrementing a counter costs about five microseconds by itself, and a busy service handles many events in one turn.
    """

    def __init__(self, handle: Callable[[list[T]], None]) -> None:
        self._handle = handle
        self._waiting: list[T] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, one: T) -> None:
        loop = asyncio.get_running_loop()
        if not self._waiting or loop is not self._loop:
            self._loop = loop
            loop.call_soon(self._flush)
        self._waiting.append(one)

    def _flush(self) -> None:
        some, self._waiting = self._waiting, []
        self._handle(some)


answered = _Batched(_count_answers).add
token_asked = _Batched(_count_token_requests).add  # a known grant type, or empty, and the outcome


class Attempted(Line, tag="delivery.attempted"):
    """An attempt that ended. The endpoint's URL is left out: it may be all that is needed to write to the receiver."""

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
    """Count attempts that ended, and write a line for each."""
    for (outcome, failure), count in CountOf((each.outcome, each.failure or "") for each in some).items():
        attempt_counter(outcome, failure).inc(count)
    if some:
        _write(some)
