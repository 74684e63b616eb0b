"""The request of an attempt: the body, serialised the same each time, and the headers of Standard Webhooks."""

from functools import lru_cache
from typing import NamedTuple

import msgspec

from gatepost import __version__
from gatepost.core import clock

USER_AGENT = f"Gatepost/{__version__}"
_TYPES = {"standard": "application/json", "cloudevents": "application/cloudevents+json"}
_encode = msgspec.json.Encoder().encode


class Told(NamedTuple):
    """An event as receivers get it."""

    account: str
    name: str
    type: str
    at: int
    data: str | None


def body(told: Told, format_: str = "standard") -> bytes:
    """The bytes that are signed and sent. The data is the ledger's own text, never parsed again."""
    at = _shown(told.at)
    data = told.data if told.data is not None else "null"
    kind = _encode(told.type).decode()
    if format_ == "cloudevents":
        return (
            f'{{"specversion":"1.0","id":"{told.name}","source":"urn:gatepost:{told.account}","type":{kind},'
            f'"time":"{at}","datacontenttype":"application/json","data":{data}}}'
        ).encode()
    return (
        f'{{"id":"{told.name}","type":{kind},"timestamp":"{at}","account":"{told.account}","data":{data}}}'
    ).encode()


@lru_cache(4096)
def _shown(at: int) -> str:
    """Events that were published together have one time."""
    return clock.rfc3339(clock.from_milliseconds(at))


def fixed_headers(headers: dict[str, str], format_: str) -> list[str]:
    """Those that are the same for every event of an endpoint."""
    return [
        f"content-type: {_TYPES[format_]}",
        f"user-agent: {USER_AGENT}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]


def headers(fixed: list[str], event: str, timestamp: int, signature: str) -> list[str]:
    return [
        *fixed,
        f"webhook-id: {event}",
        f"webhook-timestamp: {timestamp}",
        f"webhook-signature: {signature}",
    ]
