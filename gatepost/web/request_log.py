"""The record of the requests of one listener: metrics, a log line for each and, if enabled, a span; and failures."""

from time import perf_counter
from typing import TYPE_CHECKING

from gatepost.core.errors import Refusal, Unavailable
from gatepost.core.logging import RequestLine, log, log_request
from gatepost.web.requests import Scope
from gatepost.web.responses import Reply

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from gatepost.core.tracing import Traces

_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})


class RequestLog:
    """Records requests. An unknown path or method is recorded as empty, because the caller chose the text."""

    def __init__(self, traces: "Traces | None") -> None:
        self._traces = traces

    def start_span(self, scope: Scope, path: str) -> "Span | None":
        """Start the span of a request, if tracing is enabled. `path` is empty if it is not served."""
        if self._traces is None:
            return None
        method = scope["method"] if scope["method"] in _METHODS else ""
        return self._traces.start_request(scope["headers"], method, path)

    def record(
        self, scope: Scope, path: str, started: float, span: "Span | None", reply: Reply, request: str, source: str
    ) -> None:  # fmt: skip
        """Record a request that was answered. `started` is the value of `perf_counter` when it arrived."""
        method = scope["method"] if scope["method"] in _METHODS else ""
        ms = int((perf_counter() - started) * 100_000) / 100
        entry, error, account, client, grant_type = reply.log_fields
        if not entry:
            entry = next((value for name, value in reply.headers if name == "gatepost-event"), "")
        trace = ""
        if self._traces is not None and span is not None:
            trace = self._traces.end_request(span, reply.status, request, entry, reply.published)
        log_request(
            RequestLine(
                "info" if reply.status < 500 else "error", None, request, method, path, reply.status, ms,
                source, entry, error, account, client, grant_type, trace,
            )
        )  # fmt: skip


def log_failure(error: Exception, request: str, path: str) -> Refusal:
    """Log an exception that is being handled. Returns the refusal to send, which does not reveal the cause."""
    if isinstance(error, Unavailable):
        log.error("store unavailable", request=request, path=path, error=str(error))
        return Refusal("temporarily_unavailable", "the store cannot answer now", retry_after=1)
    log.exception("defect", request=request, path=path)
    return Refusal("server_error", "internal error; quote the request id when you report it")
