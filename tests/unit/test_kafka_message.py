"""Reading events from messages of Kafka: plain JSON, and CloudEvents in structured and binary mode."""

import json
from typing import Any

import pytest

from gatepost.core.errors import Refusal
from gatepost.ingest import cloudevents, kafka_message
from gatepost.ingest.kafka_message import Headers
from gatepost.ingest.message import Message, Position
from gatepost.ledger import publishable
from gatepost.ledger.publishable import Event
from gatepost.webhooks.publish import MAX_BODY

POSITION = Position("kafka", "events:3", 7, 1_794_700_800_000, {"topic": "events", "partition": 3, "offset": 7})
STRUCTURED = [("content-type", b"application/cloudevents+json")]
PLAIN = {"account": "acme", "type": "invoice.paid", "data": {"invoice": 17}}
EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "invoice.paid"}


def read(value: Any, headers: Headers | None = ()) -> Message:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return kafka_message.read(POSITION, headers, body)


def binary(**changes: Any) -> Headers:
    attributes = EVENT | {"account": "acme"} | changes
    return [(f"ce_{name}", value) for name, value in attributes.items() if value is not ...]


def test_plain_json() -> None:
    assert read(PLAIN | {"id": "x"}) == Message(
        POSITION, "acme", publishable.event("invoice.paid", {"invoice": 17}, "x")
    )
    own = publishable.event("invoice.paid", {"invoice": 17}, "7 1794700800000", source="kafka:events:3")
    assert read(PLAIN) == read(PLAIN, [("any", b"\xff"), ("content-type", b"application/json")])
    assert read(PLAIN).event == own


@pytest.mark.parametrize("headers", [[], STRUCTURED, binary()], ids=["plain", "structured", "binary"])
def test_data_may_be_written_with_escapes(headers: Headers) -> None:
    """As `json.dumps` writes it, with six bytes for a character of two."""
    data = "я" * 130_000
    value: Any = data if headers == binary() else (EVENT if headers else PLAIN) | {"account": "acme", "data": data}
    event = read(json.dumps(value).encode(), headers).event
    assert isinstance(event, Event)
    assert event.data == f'"{data}"'


def test_a_cloud_event_is_the_same_in_both_modes() -> None:
    sent = EVENT | {"data": {"invoice": 17}}
    expected = Message(POSITION, "acme", cloudevents.read(sent))
    assert not isinstance(expected.event, Refusal)
    for name in ("content-type", "Content-Type"):
        for kind in (b"application/cloudevents+json", b"Application/CloudEvents+JSON; charset=UTF-8"):
            assert read(sent | {"account": "acme"}, [(name, kind)]) == expected
    assert read({"invoice": 17}, binary()) == expected
    assert read({"invoice": 17}, [*binary(), ("content-type", "application/json"), ("other", None)]) == expected


def test_a_cloud_event_without_data() -> None:
    assert read(b"", binary()) == read(EVENT | {"account": "acme"}, STRUCTURED)


@pytest.mark.parametrize(
    ("value", "headers", "code", "words"),
    [
        (b"", [], "invalid_request", "the body is not JSON"),
        (PLAIN, None, "invalid_request", "the names of headers must be UTF-8"),
        (EVENT, [], "invalid_request", "specversion: unknown member"),
        (b" " * (MAX_BODY + 1), [], "request_too_large", "a message may have at most"),
        (b" " * (MAX_BODY + 1), STRUCTURED, "request_too_large", "a message may have at most"),
        (b" " * (MAX_BODY + 1), binary(), "request_too_large", "a message may have at most"),
        (b"x", STRUCTURED, "invalid_request", "the body is not JSON"),
        ([EVENT], STRUCTURED, "invalid_request", "must be a JSON object with specversion"),
        (EVENT, STRUCTURED, "invalid_request", "account: must be the name or the id of an account"),
        (EVENT | {"account": 5}, STRUCTURED, "invalid_request", "account: must be the name or the id of an account"),
        (EVENT | {"account": "a", "x": 1}, STRUCTURED, "invalid_request", "x: unknown attribute"),
        (b"", [("content-type", b"application/cloudevents-batch+json")], "unsupported_media_type", "a CloudEvent must"),
        (b"", [("content-type", b"application/cloudevents+avro")], "unsupported_media_type", "a CloudEvent must"),
        (b"x", binary(), "invalid_request", "the body is not JSON"),
        (1, binary(account=...), "invalid_request", "account: must be the name or the id of an account"),
        (1, binary(id=...), "invalid_request", "id: required"),
        (1, binary(data="1"), "invalid_request", "ce_data: the data must be the value"),
        (1, binary(type=b"\xff"), "invalid_request", "ce_type: must be UTF-8"),
        (1, binary(type=None), "invalid_request", "ce_type: must be UTF-8"),
        (1, [*binary(), ("ce_id", "2")], "invalid_request", "ce_id: the header is repeated"),
        (
            1,
            [*binary(), ("content-type", "text/plain")],
            "invalid_request",
            "datacontenttype: must be application/json",
        ),
    ],
)
def test_refused(value: Any, headers: Headers | None, code: str, words: str) -> None:
    found = read(value, headers).event
    assert isinstance(found, Refusal)
    assert (found.code, found.detail[: len(words)]) == (code, words)
