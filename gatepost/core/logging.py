"""Logs on standard error. What happens thousands of times a second is counted and logged once in a turn of the loop."""

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


def is_configured() -> bool:
    """Whether this process writes logs, as a service does and a command does not."""
    return _tell is not _tell_nobody


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
        request_counter(path, status).inc(len(seconds))
        observe_all(request_seconds(path), seconds)
    _tell(some)


def _tell_tokens(some: list[tuple[str, str]]) -> None:
    for (grant_type, outcome), count in CountOf(some).items():
        token_counter(grant_type, outcome).inc(count)


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
