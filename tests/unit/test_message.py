"""The request of an attempt: the bytes of its body, and its headers."""

import json

import pytest

from gatepost import __version__
from gatepost.core import ids
from gatepost.webhooks import message
from gatepost.webhooks.message import EventMessage

ACCOUNT = "acc_06d8un0u5du3r3ifb9lnp3culs"
EVENT = bytes(range(16))
NAME = ids.text("evt", EVENT)
AT = 1_794_729_600_120


def event_message(data: str | None = '{"b":1,"a":2}', type_: str = "invoice.paid") -> EventMessage:
    return EventMessage(ACCOUNT, NAME, type_, AT, data)


def test_the_standard_body() -> None:
    assert message.body(event_message()).decode() == (
        f'{{"id":"{NAME}","type":"invoice.paid","timestamp":"2026-11-15T08:00:00.120Z","account":"{ACCOUNT}",'
        '"data":{"b":1,"a":2}}'
    )


def test_a_cloud_event() -> None:
    assert json.loads(message.body(event_message(), "cloudevents")) == {
        "specversion": "1.0",
        "id": NAME,
        "source": f"urn:gatepost:{ACCOUNT}",
        "type": "invoice.paid",
        "time": "2026-11-15T08:00:00.120Z",
        "datacontenttype": "application/json",
        "data": {"b": 1, "a": 2},
    }


@pytest.mark.parametrize("form", ["standard", "cloudevents"])
@pytest.mark.parametrize(
    "data",
    ['{"b":1,"a":2}', "1.0", "1e2", "10000000000000000001", '"größer 𝄞"', '"\\u0000"', "[]", "null", '{"a": 1}', "0.1"],
)
def test_the_data_is_the_ledgers_own_text(data: str, form: str) -> None:
    sent = message.body(event_message(data), form)
    assert sent.endswith(f'"data":{data}}}'.encode())
    assert json.loads(sent)["data"] == json.loads(data)
    assert message.body(event_message(data), form) == sent, "every attempt sends the same bytes"


@pytest.mark.parametrize("form", ["standard", "cloudevents"])
def test_data_that_was_erased_is_null(form: str) -> None:
    assert json.loads(message.body(event_message(None), form))["data"] is None


@pytest.mark.parametrize(
    ("form", "content_type"), [("standard", "application/json"), ("cloudevents", "application/cloudevents+json")]
)
def test_headers(form: str, content_type: str) -> None:
    fixed = message.fixed_headers({"x-own": "yes"}, form)
    assert message.headers(fixed, NAME, 1_794_729_600, "v1,abc v1a,def") == [
        f"content-type: {content_type}",
        f"user-agent: Gatepost/{__version__}",
        "x-own: yes",
        f"webhook-id: {NAME}",
        "webhook-timestamp: 1794729600",
        "webhook-signature: v1,abc v1a,def",
    ]
    assert len(fixed) == 3, "the next event's headers do not grow from these"


def test_what_is_signed_has_no_dot_in_it() -> None:
    assert "." not in event_message().id
