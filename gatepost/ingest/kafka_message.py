"""A message of a Kafka topic: how an event is read from its headers and its value.

A message without headers of CloudEvents has the same JSON as a message of NATS. A CloudEvent has its account in the
extension attribute `account`. Kafka Protocol Binding for CloudEvents 1.0.2, section 3.
"""

from collections.abc import Iterable
from typing import Any

from gatepost.core.errors import Refusal
from gatepost.ingest import cloudevents, message
from gatepost.ingest.message import INVALID_ACCOUNT, Message, Position

Headers = Iterable[tuple[str, bytes | str | None]]

_PREFIX = "ce_"
_CONTENT_TYPE = "content-type"


def read(position: Position, headers: Headers | None, value: bytes) -> Message:
    """Read a message: a CloudEvent in structured or binary mode, or {"account", "type", "data", "id"}."""
    if headers is None:
        return _refused(position, Refusal("invalid_request", "the names of headers must be UTF-8"))
    named = _attributes(headers)
    if isinstance(named, Refusal):
        return _refused(position, named)
    content_type = named.pop(_CONTENT_TYPE, "")
    kind = content_type.partition(";")[0].strip().lower()
    if kind == cloudevents.STRUCTURED:
        return _read_structured(position, value)
    if kind.startswith("application/cloudevents"):
        return _refused(position, Refusal("unsupported_media_type", f"a CloudEvent must be {cloudevents.STRUCTURED}"))
    if not named:
        return message.read(position, value)
    if content_type:
        named["datacontenttype"] = content_type
    return _read_binary(position, named, value)


def _attributes(headers: Headers) -> dict[str, Any] | Refusal:
    """The attributes of a CloudEvent in binary mode, and the content type."""
    found: dict[str, Any] = {}
    for header, raw in headers:
        name = header.removeprefix(_PREFIX)
        if name == header and header.lower() != _CONTENT_TYPE:
            continue
        if name == header:
            name = _CONTENT_TYPE
        try:
            text = raw.decode() if isinstance(raw, bytes) else raw
        except UnicodeDecodeError:
            text = None
        if text is None or name in found:
            problem = "must be UTF-8" if text is None else "the header is repeated"
            return Refusal("invalid_request", f"{header[:64]}: {problem}", f"/{name[:64]}")
        found[name] = text
    return found


def _read_structured(position: Position, value: bytes) -> Message:
    event = message.read_body(value)
    if isinstance(event, Refusal):
        return _refused(position, event)
    return _read_event(position, event) if isinstance(event, dict) else Message(position, "", cloudevents.read(event))


def _read_binary(position: Position, attributes: dict[str, Any], value: bytes) -> Message:
    if "data" in attributes:
        return _refused(position, Refusal("invalid_request", "ce_data: the data must be the value", "/data"))
    data = message.read_body(value) if value else None
    return _refused(position, data) if isinstance(data, Refusal) else _read_event(position, attributes | {"data": data})


def _read_event(position: Position, event: dict[str, Any]) -> Message:
    account = event.pop("account", None)
    if not isinstance(account, str):
        return _refused(position, INVALID_ACCOUNT)
    return Message(position, account, cloudevents.read(event))


def _refused(position: Position, refusal: Refusal) -> Message:
    return Message(position, "", refusal)
