"""The body and the headers of a webhook, as specified by Standard Webhooks or CloudEvents."""

from functools import lru_cache

import msgspec

from gatepost import __version__
from gatepost.core import clock

USER_AGENT = f"Gatepost/{__version__}"
_TYPES = {"standard": "application/json", "cloudevents": "application/cloudevents+json"}
_encode = msgspec.json.Encoder().encode


class EventMessage(msgspec.Struct, frozen=True, gc=False):
    """The part of an event that receivers get."""

    account: str
    id: str
    type: str
    at: int
    data: str | None


def body(event: EventMessage, format_: str = "standard") -> bytes:
    """The bytes that are signed and sent. The data is the text in the ledger, unparsed."""
    at = _timestamp(event.at)
    data = event.data if event.data is not None else "null"
    type_ = _encode(event.type).decode()
    if format_ == "cloudevents":
        return (
            f'{{"specversion":"1.0","id":"{event.id}","source":"urn:gatepost:{event.account}","type":{type_},'
            f'"time":"{at}","datacontenttype":"application/json","data":{data}}}'
        ).encode()
    return (
        f'{{"id":"{event.id}","type":{type_},"timestamp":"{at}","account":"{event.account}","data":{data}}}'
    ).encode()


@lru_cache(4096)
def _timestamp(at: int) -> str:
    """The time as text. Cached, because events that were published together have the same time."""
    return clock.rfc3339(clock.from_milliseconds(at))


def fixed_headers(headers: dict[str, str], format_: str) -> list[str]:
    """The headers that are the same for every event of an endpoint."""
    return [
        f"content-type: {_TYPES[format_]}",
        f"user-agent: {USER_AGENT}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]


def headers(fixed: list[str], event: str, timestamp: int, signature: str) -> list[str]:
    """All headers of a request, as specified by Standard Webhooks."""
    return [*fixed, f"webhook-id: {event}", f"webhook-timestamp: {timestamp}", f"webhook-signature: {signature}"]
