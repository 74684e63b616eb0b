"""OpenTelemetry traces (an extra): a span for each request, each message and each delivery attempt.

All attempts for an event are in one trace. Its id is derived from the event's id. So nothing has to be stored for it,
and the span that published the event can link to attempts that another process makes, perhaps days later.
"""

import hashlib
import logging
import math
import threading
import time
from collections.abc import Iterable, Mapping

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gatepost import __version__
from gatepost.core.logging import AttemptLine, log

NewDelivery = tuple[str, str]  # the ids of an event and of a delivery for it
_MAX_LINKS = 100
_SHUTDOWN = 2.0  # seconds to export the last spans
_WARN_EVERY = 60.0  # seconds


def trace_of(event: str) -> int:
    """Return the trace id of all attempts for an event: a hash, as samplers expect every bit of it to be random."""
    return int.from_bytes(hashlib.blake2b(event.encode(), digest_size=16).digest(), "big")


def span_of(delivery: str, attempt: int) -> int:
    """Return the span id of an attempt."""
    return int.from_bytes(hashlib.blake2b(f"{delivery} {attempt}".encode(), digest_size=8).digest(), "big")


def exporting() -> SpanProcessor:
    """Return a processor that exports to the collector named by the OTEL_EXPORTER_… environment variables."""
    logger = logging.getLogger("opentelemetry")
    logger.handlers, logger.propagate = [_Warnings(logging.WARNING)], False
    return BatchSpanProcessor(OTLPSpanExporter())


class _Warnings(logging.Handler):
    """Writes OpenTelemetry's warnings, for example about an unreachable collector, to the log: at most one a minute."""

    _warned_at = -math.inf

    def emit(self, record: logging.LogRecord) -> None:
        if time.monotonic() - self._warned_at > _WARN_EVERY:
            self._warned_at = time.monotonic()
            log.warning("exporting traces failed", error=record.getMessage())


class _Ids(RandomIdGenerator):
    """Random ids, except for the span of an attempt, whose trace id and span id are set here."""

    fixed: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return self.fixed[0] if self.fixed else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.fixed[1] if self.fixed else super().generate_span_id()


class Traces:
    """The spans of one process. Belongs to its event loop."""

    def __init__(self, processor: SpanProcessor) -> None:
        resource = Resource.create({SERVICE_VERSION: __version__})
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "gatepost"}))
        self._ids = _Ids()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("gatepost", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._open: dict[tuple[str, int], Span] = {}

    # --- requests and messages

    def start_request(self, headers: Iterable[tuple[bytes, bytes]], method: str, path: str) -> Span:
        """Start the span of a request. The caller's `traceparent` is its parent."""
        context = ((name, value) for name, value in headers if name in _CONTEXT and len(value) <= _MAX_CONTEXT)
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in context}
        span = self._start(f"{method} {path}".strip() or "HTTP", SpanKind.SERVER, carrier)
        span.set_attributes({"http.request.method": method or "_OTHER", **({"http.route": path} if path else {})})
        return span

    def end_request(
        self, span: Span, status: int, request: str, entry: str, published: Iterable[NewDelivery] = ()
    ) -> str:
        """End the span of a request. Returns its trace id, for the log."""
        span.set_attributes({"http.response.status_code": status, "gatepost.request": request})
        if entry:
            span.set_attribute("gatepost.entry", entry)
        if status >= 500:
            _fail(span, str(status))
        return _end(span, published)

    def record_message(
        self, system: str, headers: Mapping[str, str], stream: str, subject: str, published: Iterable[NewDelivery],
        error: str = "",
    ) -> None:  # fmt: skip
        """Record a span for a message of a stream or topic that was published or refused."""
        carrier = {name.lower(): value for name, value in headers.items() if len(value) <= _MAX_CONTEXT}
        span = self._start(f"process {stream}", SpanKind.CONSUMER, carrier)
        span.set_attributes({"messaging.system": system, "messaging.destination.name": subject})
        if error:
            _fail(span, error)
        _end(span, published)

    def _start(self, name: str, kind: SpanKind, carrier: Mapping[str, str]) -> Span:
        return self._tracer.start_span(name, context=self._propagator.extract(carrier), kind=kind)

    # --- delivery attempts

    def start_attempt(self, event: str, type_: str, delivery: str, number: int) -> str:
        """Start the span of an attempt. Returns its `traceparent` header (W3C Trace Context, section 3.2)."""
        self._ids.fixed = trace_of(event), span_of(delivery, number)
        try:
            span = self._tracer.start_span(f"deliver {type_}", kind=SpanKind.CLIENT)
        finally:
            self._ids.fixed = None
        self._open[delivery, number] = span
        context = span.get_span_context()
        return f"traceparent: 00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def end_attempt(self, attempt: AttemptLine, timings: Mapping[str, float]) -> str:
        """End the span of an attempt. Returns its trace id, for the log, or "" if the attempt was never started."""
        span = self._open.pop((attempt.delivery, attempt.attempt), None)
        if span is None:
            return ""
        attributes = {name: getattr(attempt, name) for name in _ATTRIBUTES} | dict(timings)
        span.set_attributes({f"gatepost.{name}": value for name, value in attributes.items()})
        span.set_attribute("http.request.method", "POST")
        if attempt.response_code is not None:
            span.set_attribute("http.response.status_code", attempt.response_code)
        if attempt.outcome != "succeeded":
            _fail(span, attempt.failure or str(attempt.response_code))
        return _end(span)

    def close(self) -> None:
        """End the spans of interrupted attempts, and give the exporter a moment to send the last spans."""
        for span in self._open.values():
            _fail(span, "interrupted")
            span.end()
        shutdown = threading.Thread(target=self._provider.shutdown, daemon=True)  # waits long for a lost collector
        shutdown.start()
        shutdown.join(_SHUTDOWN)


_CONTEXT = (b"traceparent", b"tracestate")
_MAX_CONTEXT = 512  # W3C Trace Context, section 3.3.1.5: longer values need not be propagated
_ATTRIBUTES = ("account", "endpoint", "delivery", "entry", "type", "attempt", "waited_for", "waited_ms")


def _fail(span: Span, error_type: str) -> None:
    span.set_status(StatusCode.ERROR)
    span.set_attribute("error.type", error_type)


def _end(span: Span, published: Iterable[NewDelivery] = ()) -> str:
    """End a span, with a link to the first attempt of each delivery, which is made later."""
    for _, (event, delivery) in zip(range(_MAX_LINKS), published, strict=False):
        sampled = TraceFlags(TraceFlags.SAMPLED)
        span.add_link(SpanContext(trace_of(event), span_of(delivery, 1), is_remote=True, trace_flags=sampled))
    span.end()
    return f"{span.get_span_context().trace_id:032x}"
