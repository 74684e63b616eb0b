"""Spans: their parents and attributes, and that all attempts of an event have the same trace."""

import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gatepost.core import ids, tracing
from gatepost.core.logging import AttemptLine
from gatepost.core.tracing import Traces, span_of, trace_of
from gatepost.run import app

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
EVENT, DELIVERY = "evt_1", "dlv_1"


class Seen:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.traces = Traces(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    @property
    def only(self) -> ReadableSpan:
        [found] = self.spans
        return found


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    found = Seen()
    yield found
    found.traces.close()


def attempted(
    number: int = 1, outcome: str = "succeeded", code: int | None = 200, failure: str | None = None
) -> AttemptLine:
    return AttemptLine(
        "info", None, "acc_1", "ep_1", DELIVERY, EVENT, "invoice.paid", number, outcome, "plan", 3, "wrk_1", code,
        failure, 12.5,
    )  # fmt: skip


# --- what comes in


def test_a_request_is_a_child_of_its_callers_span(seen: Seen) -> None:
    span = seen.traces.start_request([(b"host", b"x"), (b"traceparent", PARENT.encode())], "POST", "/oauth/tokens")
    result = seen.traces.end_request(span, 200, "req_1", "evt_9")
    found = seen.only
    assert (found.name, found.kind) == ("POST /oauth/tokens", SpanKind.SERVER)
    assert found.parent is not None
    assert f"{found.parent.trace_id:032x}-{found.parent.span_id:016x}" == PARENT[3:-3]
    assert result == PARENT.split("-")[1]
    assert dict(found.attributes or {}) == {
        "http.request.method": "POST", "http.route": "/oauth/tokens", "http.response.status_code": 200,
        "gatepost.request": "req_1", "gatepost.entry": "evt_9",
    }  # fmt: skip
    assert found.resource.attributes["service.name"] == "gatepost"


@pytest.mark.parametrize(
    "sent", ["", "nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01"], ids=["none", "odd", "zeros"]
)
def test_without_a_parent_it_is_a_root(seen: Seen, sent: str) -> None:
    span = seen.traces.start_request([(b"traceparent", sent.encode())] if sent else [], "GET", "/oauth/jwks")
    seen.traces.end_request(span, 200, "req_1", "")
    assert seen.only.parent is None


def test_what_a_stranger_made_up_is_not_repeated(seen: Seen) -> None:
    seen.traces.end_request(seen.traces.start_request([], "", ""), 404, "req_1", "")
    assert seen.only.name == "HTTP"
    assert "http.route" not in (seen.only.attributes or {})


@pytest.mark.parametrize(
    ("status", "code"), [(200, StatusCode.UNSET), (401, StatusCode.UNSET), (503, StatusCode.ERROR)]
)
def test_only_our_own_failures_are_errors(seen: Seen, status: int, code: StatusCode) -> None:
    seen.traces.end_request(seen.traces.start_request([], "POST", "/oauth/tokens"), status, "req_1", "")
    assert seen.only.status.status_code is code


def test_a_message_is_a_child_of_its_publishers_span(seen: Seen) -> None:
    seen.traces.record_message("nats", {"Traceparent": PARENT}, "events", "events.shop", [(EVENT, DELIVERY)])
    seen.traces.record_message("nats", {}, "events", "events.shop", [], "not_found")
    good, bad = seen.spans
    assert good.name == "process events"
    assert good.parent is not None
    assert f"{good.parent.span_id:016x}" == PARENT.split("-")[2]
    assert (good.kind, good.status.status_code, bad.status.status_code) == (
        SpanKind.CONSUMER, StatusCode.UNSET, StatusCode.ERROR,
    )  # fmt: skip


# --- what goes out


def test_publishing_links_to_the_first_attempt(seen: Seen) -> None:
    """Which another process makes later, knowing nothing but the ids."""
    span = seen.traces.start_request([(b"traceparent", PARENT.encode())], "POST", "/events")
    seen.traces.end_request(span, 200, "req_1", EVENT, [(EVENT, DELIVERY), (EVENT, "dlv_2")])
    header = seen.traces.start_attempt(EVENT, "invoice.paid", DELIVERY, 1)
    seen.traces.end_attempt(attempted(), {"connect_ms": 0.5})
    published, made = seen.spans
    [first, _] = published.links
    assert made.context is not None
    assert (first.context.trace_id, first.context.span_id) == (made.context.trace_id, made.context.span_id)
    assert header.startswith(f"traceparent: 00-{made.context.trace_id:032x}-{made.context.span_id:016x}-")
    assert made.context.trace_id != int(PARENT.split("-")[1], 16)
    assert (made.name, made.kind, made.parent) == ("deliver invoice.paid", SpanKind.CLIENT, None)


def test_attempts_of_one_event_are_one_trace(seen: Seen) -> None:
    for number in (1, 2):
        seen.traces.start_attempt(EVENT, "invoice.paid", DELIVERY, number)
    reported = [
        seen.traces.end_attempt(attempted(1, "failed", 503), {}),
        seen.traces.end_attempt(attempted(2, "failed", None, "timeout"), {"dns_ms": 0.1}),
    ]
    first, second = seen.spans
    assert first.context is not None
    assert second.context is not None
    assert reported == [f"{trace_of(EVENT):032x}"] * 2
    assert first.context.trace_id == second.context.trace_id
    assert first.context.span_id != second.context.span_id
    assert [span.status.status_code for span in (first, second)] == [StatusCode.ERROR] * 2
    assert [(span.attributes or {})["error.type"] for span in (first, second)] == ["503", "timeout"]
    assert dict(second.attributes or {}) == {
        "gatepost.account": "acc_1", "gatepost.endpoint": "ep_1", "gatepost.delivery": DELIVERY,
        "gatepost.entry": EVENT, "gatepost.type": "invoice.paid", "gatepost.attempt": 2, "gatepost.waited_for": "plan",
        "gatepost.waited_ms": 3, "gatepost.dns_ms": 0.1, "http.request.method": "POST", "error.type": "timeout",
    }  # fmt: skip


def test_after_an_attempt_ids_are_random_again(seen: Seen) -> None:
    seen.traces.start_attempt(EVENT, "invoice.paid", DELIVERY, 1)
    seen.traces.end_request(seen.traces.start_request([], "GET", "/oauth/jwks"), 200, "req_1", "")
    assert seen.only.context is not None
    assert seen.only.context.trace_id != trace_of(EVENT)


def test_an_attempt_that_was_never_started_has_no_trace(seen: Seen) -> None:
    assert seen.traces.end_attempt(attempted(), {}) == ""


def test_abandoned_attempts_end_with_the_process() -> None:
    seen = Seen()
    seen.traces.start_attempt(EVENT, "invoice.paid", DELIVERY, 1)
    seen.traces.close()
    assert (seen.only.attributes or {})["error.type"] == "interrupted"


def test_ids_are_spread_evenly() -> None:
    """Samplers look at the lower half of a trace's id: it must not be a time, as that of an event's own id is not."""
    made = [trace_of(ids.new("evt")) for _ in range(400)]
    halves = [each & (1 << 63) != 0 for each in made]
    assert 120 < sum(halves) < 280
    assert all(0 < each < 1 << 128 for each in made)
    assert all(0 < span_of(ids.new("dlv"), 1) < 1 << 64 for _ in range(100))


# --- on and off


@pytest.mark.parametrize(
    "environment",
    [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}],
    ids=["nothing", "empty", "disabled"],
)
def test_traces_are_off(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gatepost.core.tracing", None)  # not even looked at
    assert app.traces(environment) is None


@pytest.mark.parametrize("name", app.COLLECTORS)
def test_a_collector_switches_them_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(tracing, "exporting", lambda: SimpleSpanProcessor(exporter))
    found = app.traces({name: "http://127.0.0.1:4318"})
    assert found is not None
    found.close()


def test_without_the_extra_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gatepost.core.tracing", None)
    monkeypatch.delattr("gatepost.core.tracing", raising=False)
    assert app.traces({app.COLLECTORS[0]: "http://127.0.0.1:4318"}) is None
