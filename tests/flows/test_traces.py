"""Traces, as a collector gets them over OTLP: who called, what was published, and every attempt."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests import nats, service
from tests.flows.test_delivery import Platform
from tests.receiver import OK, Receiver, receiver
from tests.service import Service, free_ports
from tests.waiting import wait_until

STREAM = "traced"
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{CALLER}-01"

pytestmark = pytest.mark.xdist_group("traces")


class Collector:
    """Takes what an OpenTelemetry exporter sends, and says what it took."""

    def __init__(self, found: Receiver) -> None:
        self._found = found
        self.url = found.url.removesuffix("/hooks")

    @property
    def exports(self) -> list[ExportTraceServiceRequest]:
        made = []
        for request in list(self._found.requests):
            assert (request.headers[":method"], request.headers[":path"]) == ("POST", "/v1/traces")
            assert request.headers["content-type"] == "application/x-protobuf"
            packed = request.headers.get("content-encoding") == "gzip"
            made.append(ExportTraceServiceRequest.FromString(gzip.decompress(request.body) if packed else request.body))
        return made

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for export in self.exports
            for resource in export.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def named(self, name: str, count: int = 1, **attributes: Any) -> list[Span]:
        """Those of this name that say so of themselves, once so many have come; oldest first."""
        found: list[Span] = []

        def are_there() -> bool:
            found[:] = [span for span in self.spans if span.name == name and attributes.items() <= about(span).items()]
            return len(found) >= count

        wait_until(are_there, f"{count} spans {name} with {attributes}: {[each.name for each in self.spans]}")
        return sorted(found, key=lambda span: span.start_time_unix_nano)


def about(span: Span) -> dict[str, Any]:
    return {
        each.key.replace(".", "_"): getattr(each.value, str(each.value.WhichOneof("value"))) for each in span.attributes
    }


def parent_of(span: Span) -> str:
    return f"00-{span.trace_id.hex()}-{span.parent_span_id.hex()}-01"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with receiver((200, {"Content-Type": "application/x-protobuf"}, b"")) as found:
        yield Collector(found)


@pytest.fixture(scope="module")
def stream() -> Iterator[nats.Server]:
    with nats.running() as server:
        server.make_stream(STREAM)
        yield server


@pytest.fixture(scope="module")
def traced(
    collector: Collector, stream: nats.Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:  # fmt: skip
    directory = tmp_path_factory.mktemp("traced") / "data"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with service.running(directory, nats=stream.url, nats_stream=STREAM) as running:
            yield running


def lines(gatepost: Service, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in Path(f"{gatepost.directory}.log").read_text().splitlines()]
    return [each for each in found if each["event"] == event]


def test_a_request_is_part_of_its_callers_trace(traced: Service, collector: Collector, account_name: str) -> None:
    _, client = traced.account(account_name)
    answer = traced.token_answer(client, "gatepost:clients", {"traceparent": PARENT, "tracestate": "shop=1"})
    [span] = collector.named("POST /oauth/tokens", gatepost_request=answer.headers["X-Request-Id"])
    assert parent_of(span) == PARENT
    assert span.kind == Span.SPAN_KIND_SERVER
    assert about(span) == {
        "http_request_method": "POST",
        "http_route": "/oauth/tokens",
        "http_response_status_code": 200,
        "gatepost_request": answer.headers["X-Request-Id"],
        "gatepost_entry": answer.headers["Gatepost-Event"],
    }
    [line] = [each for each in lines(traced, "request.answered") if each["request"] == answer.headers["X-Request-Id"]]
    assert line["trace"] == TRACE
    resource = {
        each.key: each.value.string_value for each in collector.exports[0].resource_spans[0].resource.attributes
    }
    assert resource["service.name"] == "gatepost"


def test_from_the_publisher_to_the_receiver(traced: Service, collector: Collector, account_name: str) -> None:
    """The span of publishing is the publisher's child, and links to the trace that all attempts of the event are in."""
    platform = Platform(traced, account_name)
    with receiver([(503, {}, b""), OK]) as found:
        platform.connect(found.url, retry_schedule=[1])
        event = {"specversion": "1.0", "id": "1", "source": "/traced", "type": "invoice.paid", "data": 1}
        headers = {"Authorization": f"Bearer {platform.token}", "traceparent": PARENT}
        body = traced.session.post(f"{traced.ops}/events", json=event, headers=headers).json()
        [delivery] = body["deliveries"]
        platform.once(delivery, "succeeded", attempts=2)
        first, second = collector.named("deliver invoice.paid", 2, gatepost_delivery=delivery)
        got = [request.headers["traceparent"] for request in found.requests]
    [published] = collector.named("POST /events", gatepost_entry=body["id"])
    assert parent_of(published) == PARENT
    [link] = published.links
    assert (link.trace_id, link.span_id) == (first.trace_id, first.span_id)
    assert first.trace_id == second.trace_id != published.trace_id
    assert [each[:-3] for each in got] == [
        f"00-{span.trace_id.hex()}-{span.span_id.hex()}" for span in (first, second)
    ]  # fmt: skip
    assert [span.status.code for span in (first, second)] == [Status.STATUS_CODE_ERROR, Status.STATUS_CODE_UNSET]
    assert [about(span)["http_response_status_code"] for span in (first, second)] == [503, 200]
    assert about(second)["gatepost_attempt"] == 2
    attempts = [each for each in lines(traced, "delivery.attempted") if each["delivery"] == delivery]
    assert [each["trace"] for each in attempts] == [first.trace_id.hex()] * 2


def test_from_a_message_to_the_receiver(
    traced: Service, collector: Collector, stream: nats.Server, account_name: str
) -> None:
    platform = Platform(traced, account_name)
    with receiver() as found:
        platform.connect(found.url)
        body = {"account": account_name, "type": "invoice.sent", "data": 1}
        stream.publish(STREAM, body, headers={"traceparent": PARENT})
        stream.publish(STREAM, body | {"account": "nobody-has-this"})
        [request] = found.wait_for(1)
    [taken] = collector.named(f"process {STREAM}", messaging_destination_name=f"{STREAM}.test")[:1]
    [refused] = collector.named(f"process {STREAM}", error_type="not_found")
    assert parent_of(taken) == PARENT
    assert taken.kind == Span.SPAN_KIND_CONSUMER
    [link] = taken.links
    assert request.headers["traceparent"].startswith(f"00-{link.trace_id.hex()}-{link.span_id.hex()}-")
    assert not refused.parent_span_id
    assert not refused.links


def test_an_endpoint_with_a_traceparent_of_its_own(traced: Service, account_name: str) -> None:
    platform = Platform(traced, account_name)
    with receiver() as found:
        platform.connect(found.url, headers={"Traceparent": PARENT})
        platform.send()
        [request] = found.wait_for(1)
    assert request.headers["traceparent"] == PARENT


def test_strangers_words_are_in_no_span(traced: Service, collector: Collector, account_name: str) -> None:
    answer = traced.session.request("BREW", f"{traced.url}/word-of-a-stranger?word=of-a-stranger")
    assert answer.status_code == 404
    collector.named("HTTP", gatepost_request=answer.headers["X-Request-Id"])
    assert not any(b"stranger" in export.SerializeToString() for export in collector.exports)


def test_a_missing_collector_does_not_stop_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The problem is logged in the usual format, and the service stops normally."""
    [port] = free_ports(1)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    with service.running(tmp_path / "data") as running:
        _, client = running.account("acme")
        running.token(client, "gatepost:clients")
        wait_until(lambda: bool(lines(running, "exporting traces failed")), "a word about it")
        assert running.stop() == 0
    assert {each["level"] for each in lines(running, "exporting traces failed")} == {"warning"}
