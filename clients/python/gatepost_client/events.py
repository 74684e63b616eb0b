"""Events of a platform: their types for `POST /events`, and the checks that need no service."""

import json
import math
import re
import secrets
from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

MAX_DATA = 256 * 1024  # bytes as JSON
RESERVED = ("account.", "oauth.", "webhook.")
SINGLE = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
TYPE = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)+")
_LONGEST_TYPE = 128
_LONGEST_ID = 256
_MAX_DEPTH = 32


class Event(TypedDict):
    """An event to publish over HTTP: a CloudEvent without its version.

    `source` names the publisher, and `id` is unique within it. Without an id, the client generates one, so that it can
    send the request again.
    """

    type: str
    source: str
    data: Any
    id: NotRequired[str]
    subject: NotRequired[str]
    time: NotRequired[str]


class PublishedEvent(TypedDict):
    """An event in the ledger, and the ids of its deliveries. `again` is true if it was published before."""

    id: str
    type: str
    at: str
    matched: int
    deliveries: list[str]
    again: bool


def cloud_event(event: Event) -> Mapping[str, Any]:
    """The event as a CloudEvent 1.0, with an id."""
    return {"specversion": "1.0", "id": secrets.token_hex(16), **event}


def data_as_json(type_: str, data: Any, event_id: str | None) -> str:
    """The data of an event as JSON. Raises ValueError if Gatepost would refuse the event."""
    if not isinstance(type_, str) or len(type_) > _LONGEST_TYPE or not TYPE.fullmatch(type_):
        raise ValueError(
            f"type: must be a dotted lower-case name such as invoice.paid, at most {_LONGEST_TYPE} characters"
        )
    if type_.startswith(RESERVED):
        raise ValueError(f"type: {type_} is reserved, like all types that begin with {', '.join(RESERVED)}")
    if event_id is not None and not (
        isinstance(event_id, str) and 0 < len(event_id) <= _LONGEST_ID and event_id.isprintable()
    ):
        raise ValueError(f"id: must be a string of 1 to {_LONGEST_ID} printable characters")
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        parsed = json.loads(text, object_pairs_hook=_unique)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"data: must be representable as JSON ({error})") from None
    _check(parsed, 0)
    if len(text.encode()) > MAX_DATA:
        raise ValueError(f"data: at most {MAX_DATA} bytes as JSON")
    return text


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):  # {1: "a", "1": "b"}
        raise ValueError("a member is repeated")
    return members


def _check(value: Any, depth: int) -> None:
    """Raise ValueError for what a database or another JSON parser would not return as it was sent."""
    match value:
        case str() if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
            raise ValueError("data: contains a NUL or an unpaired surrogate")
        case int() if not -(1 << 63) <= value < 1 << 63:
            raise ValueError("data: contains a number beyond 64 bits")
        case float() if not math.isfinite(value):
            raise ValueError("data: contains a number beyond 64 bits")
        case dict() | list() if depth == _MAX_DEPTH:
            raise ValueError(f"data: is nested more than {_MAX_DEPTH} deep")
        case dict():
            for name, inner in value.items():
                _check(name, depth + 1)
                _check(inner, depth + 1)
        case list():
            for inner in value:
                _check(inner, depth + 1)
