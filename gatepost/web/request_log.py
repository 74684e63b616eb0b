"""The record of the requests of one listener: metrics, a log line for each and, if enabled, a span."""

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from gatepost.core.logging import RequestLine, log_request
from gatepost.web.requests import Scope
from gatepost.web.responses import Reply

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from gatepost.core.tracing import Traces

_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})


class Begun(NamedTuple):
    """A request that has arrived. A path or method that is not served is not recorded: the caller chose it."""

    at: float
    method: str
    path: str
    span: "Span | None"


class Watch:
    def __init__(self, traces: "Traces | None") -> None:
        self._traces = traces

    def begin(self, scope: Scope, path: str) -> Begun:
        """`path` is empty if it is not served."""
        method = scope["method"] if scope["method"] in _METHODS else ""
        span = self._traces.start_request(scope["headers"], method, path) if self._traces is not None else None
        return Begun(perf_counter(), method, path, span)

    def end(self, begun: Begun, reply: Reply, request: str, source: str) -> None:
        ms = int((perf_counter() - begun.at) * 100_000) / 100
        entry, error, account, client, grant_type = reply.said
        if not entry:
            entry = next((value for name, value in reply.headers if name == "gatepost-event"), "")
        trace = ""
        if self._traces is not None and begun.span is not None:
            trace = self._traces.end_request(begun.span, reply.status, request, entry, reply.published)
        level = "info" if reply.status < 500 else "error"
        log_request(
            RequestLine(
                level, None, request, begun.method, begun.path, reply.status, ms, source, entry, error, account,
                client, grant_type, trace,
            )
        )  # fmt: skip
