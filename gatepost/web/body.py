"""Reading the body of a request within limits of size and time, so that a sender cannot keep a request open."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from gatepost.core.errors import Refusal

Receive = Callable[[], Awaitable[dict[str, Any]]]

MAX_BODY = 64 * 1024
MAX_DISCARDED = 1024 * 1024  # bytes of a body that is too large which are read nevertheless


class BodyLimits(NamedTuple):
    """A body has `patience` seconds, plus one for each `rate` bytes received, up to `seconds`."""

    size: int = MAX_BODY
    seconds: float = 30.0
    patience: float = 10.0
    rate: int = 1024

    def time_for(self, received: int) -> float:
        """The seconds from the start within which more must arrive."""
        return min(self.seconds, self.patience + received / self.rate)


BODY = BodyLimits()


class _IncompleteBody:
    """A body that has not arrived completely."""

    __slots__ = ("expired", "received", "started", "task")

    def __init__(self, task: "asyncio.Task[Any] | None", started: float) -> None:
        self.task = task
        self.started = started
        self.received = 0  # bytes
        self.expired = False


class BodyReader:
    """Reads the bodies of one listener.

    Nearly every body arrives together with its header, so a request sets no timer of its own. While bodies are
    incomplete, one timer of the listener looks for those that are late.
    """

    def __init__(self, limits: BodyLimits = BODY) -> None:
        self._limits = limits
        self._too_large = Refusal("request_too_large", f"the body may have at most {limits.size} bytes")
        self._interval = min(1.0, limits.patience / 4)
        self._incomplete: set[_IncompleteBody] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, receive: Receive, headers: Mapping[str, str]) -> bytes | Refusal:
        """The whole body, or a refusal if it is too large or too slow.

        A body of the size in Content-Length is complete, and the server is not asked again. A body that is too large is
        read to its end and discarded, because a sender that is interrupted may not see the response (RFC 9112, section
        9.6). It is not read if it has more than MAX_DISCARDED bytes, or if the sender waits for `100 Continue`.
        """
        limit, declared = self._limits.size, headers.get("content-length")
        length = int(declared[:12]) if declared is not None and declared.isascii() and declared.isdigit() else None
        if length is not None and length > limit and (length > MAX_DISCARDED or "expect" in headers):
            return self._too_large
        loop = asyncio.get_running_loop()
        body = _IncompleteBody(asyncio.current_task(), loop.time())
        self._incomplete.add(body)
        if self._timer is None:
            self._timer = loop.call_later(self._interval, self._expire, loop)
        parts: list[bytes] = []
        more = True
        try:
            while more and body.received < MAX_DISCARDED:
                message = await receive()
                if message["type"] != "http.request":
                    return Refusal("invalid_request", "the connection ended before the body was complete")
                part = message.get("body", b"")
                body.received += len(part)
                if body.received <= limit:
                    parts.append(part)
                else:
                    parts.clear()
                more = body.received != length and message.get("more_body", False)
        except asyncio.CancelledError:
            if not body.expired or body.task is None or body.task.uncancel():
                raise  # the server cancelled the request
            if max(body.received, length or 0) > limit:
                return self._too_large
            return Refusal("request_timeout", f"the body did not arrive in time; {body.received} bytes did")
        finally:
            self._incomplete.discard(body)
        if max(body.received, length or 0) > limit:
            return self._too_large
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._interval, self._expire, loop) if self._incomplete else None
        now = loop.time()
        for body in self._incomplete:
            overdue = now >= body.started + self._limits.time_for(body.received)
            if overdue and not body.expired and body.task is not None:
                body.expired = True
                body.task.cancel()
