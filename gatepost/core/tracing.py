"""Traces by OpenTelemetry (an extra): a span for each request and each message, and one for each attempt to deliver.

All attempts of an event are in one trace. Its id follows from the event's, so that nothing has to be stored for it, and
what published the event can link to attempts that another process makes, perhaps days later.
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
from gatepost.core.logging import Attempted, log

Born = tuple[str, str]  # an event and a delivery of it
_MOST_LINKS = 100
_LEAVE = 2.0  # seconds to send the last spans
_SAID_FOR = 60.0


def trace_of(event: str) -> int:
    """Of all attempts of an event. A hash: who samples by trace ids expects every bit of them to be random."""
    return int.from_bytes(hashlib.blake2b(event.encode(), digest_size=16).digest(), "big")


def span_of(delivery: str, attempt: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{delivery} {attempt}".encode(), digest_size=8).digest(), "big")


def exporting() -> SpanProcessor:
    """To the collector that OpenTelemetry's own variables name, and as they say."""
    theirs = logging.getLogger("opentelemetry")
    theirs.handlers, theirs.propagate = [_Warnings(logging.WARNING)], False
    return BatchSpanProcessor(OTLPSpanExporter())


class _Warnings(logging.Handler):
    """What OpenTelemetry says, as of a collector that is away, in lines of our own log: one a minute is enough."""

    _said_at = -math.inf

    def emit(self, record: logging.LogRecord) -> None:
        if time.monotonic() - self._said_at > _SAID_FOR:
            self._said_at = time.monotonic()
            log.warning("traces", said=record.getMessage())


class _Ids(RandomIdGenerator):
    """Random ones, but for the span of an attempt."""

    given: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return self.given[0] if self.given else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.given[1] if self.given else super().generate_span_id()


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

    # --- what comes in

    def request(self, headers: Iterable[tuple[bytes, bytes]], method: str, path: str) -> Span:
        """The beginning of one; the caller's `traceparent` is its parent."""
        context = ((name, value) for name, value in headers if name in _CONTEXT and len(value) <= _LONGEST_CONTEXT)
        sent = {name.decode("latin-1"): value.decode("latin-1") for name, value in context}
        span = self._begin(f"{method} {path}".strip() or "HTTP", SpanKind.SERVER, sent)
        span.set_attributes({"http.request.method": method or "_OTHER", **({"http.route": path} if path else {})})
        return span

    def answered(self, span: Span, status: int, request: str, entry: str, published: Iterable[Born] = ()) -> str:
        """Its end. Its trace, for the log."""
        span.set_attributes({"http.response.status_code": status, "gatepost.request": request})
        if entry:
            span.set_attribute("gatepost.entry", entry)
        if status >= 500:
            _fail(span, str(status))
        return _end(span, published)

    def message(
        self, headers: Mapping[str, str], stream: str, subject: str, published: Iterable[Born], error: str = ""
    ) -> None:  # fmt: skip
        """A message of a stream was published, or refused."""
        sent = {name.lower(): value for name, value in headers.items() if len(value) <= _LONGEST_CONTEXT}
        span = self._begin(f"process {stream}", SpanKind.CONSUMER, sent)
        span.set_attributes({"messaging.system": "nats", "messaging.destination.name": subject})
        if error:
            _fail(span, error)
        _end(span, published)

    def _begin(self, name: str, kind: SpanKind, sent: Mapping[str, str]) -> Span:
        return self._tracer.start_span(name, context=self._propagator.extract(sent), kind=kind)

    # --- what goes out

    def attempt(self, event: str, type_: str, delivery: str, number: int) -> str:
        """The beginning of an attempt: its `traceparent`. W3C Trace Context, section 3.2."""
        self._ids.given = trace_of(event), span_of(delivery, number)
        try:
            span = self._tracer.start_span(f"deliver {type_}", kind=SpanKind.CLIENT)
        finally:
            self._ids.given = None
        self._open[delivery, number] = span
        found = span.get_span_context()
        return f"traceparent: 00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"

    def attempted(self, each: Attempted, timings: Mapping[str, float]) -> str:
        """Its end. Its trace, for the log; none if it could not even be prepared."""
        span = self._open.pop((each.delivery, each.attempt), None)
        if span is None:
            return ""
        told = {name: getattr(each, name) for name in _TOLD}
        span.set_attributes({f"gatepost.{name}": value for name, value in (told | dict(timings)).items()})
        span.set_attribute("http.request.method", "POST")
        if each.response_code is not None:
            span.set_attribute("http.response.status_code", each.response_code)
        if each.outcome != "succeeded":
            _fail(span, each.failure or str(each.response_code))
        return _end(span)

    def close(self) -> None:
        """Attempts that nobody waits for any more end here. What was not sent yet is sent, if it is taken soon."""
        for span in self._open.values():
            _fail(span, "interrupted")
            span.end()
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)  # which waits long for who is away
        ending.start()
        ending.join(_LEAVE)


_CONTEXT = (b"traceparent", b"tracestate")
_LONGEST_CONTEXT = 512  # W3C Trace Context, section 3.3.1.5: what is longer need not be propagated
_TOLD = ("account", "endpoint", "delivery", "entry", "type", "attempt", "waited_for", "waited_ms")


def _fail(span: Span, why: str) -> None:
    span.set_status(StatusCode.ERROR)
    span.set_attribute("error.type", why)


def _end(span: Span, published: Iterable[Born] = ()) -> str:
    """With a link to the first attempt of each delivery, whenever and wherever that will be made."""
    for _, (event, delivery) in zip(range(_MOST_LINKS), published, strict=False):
        sampled = TraceFlags(TraceFlags.SAMPLED)
        span.add_link(SpanContext(trace_of(event), span_of(delivery, 1), is_remote=True, trace_flags=sampled))
    span.end()
    return f"{span.get_span_context().trace_id:032x}"
