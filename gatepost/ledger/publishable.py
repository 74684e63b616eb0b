"""Events that a platform publishes: their checks, and the id by which a repeated event is recognized."""

import hashlib
from typing import Any, NamedTuple

import msgspec

from gatepost.core.errors import Refusal
from gatepost.ledger.entries import MAX_DATA, PLATFORM_TYPE, RESERVED

_encode = msgspec.json.Encoder().encode
_LONGEST_TYPE = 128
_LONGEST_ID = 256
_TOO_LARGE = Refusal("request_too_large", f"data: at most {MAX_DATA} bytes as JSON", "/data")


class Event(NamedTuple):
    """An event to record. `name` is empty if the publisher gave no id."""

    type: str
    data: str
    subject: str = ""
    name: bytes = b""

    @property
    def body(self) -> bytes:
        """The hash of what must be the same if the same id is published again."""
        return hashlib.sha256(f"{self.type}\0{self.subject}\0{self.data}".encode()).digest()


def event(type_: Any, data: Any, given_id: Any = None, *, source: str = "", subject: str = "") -> Event | Refusal:
    """Check an event to publish. Its id is unique within the source, if the publisher names one."""
    if not isinstance(type_, str) or len(type_) > _LONGEST_TYPE or not PLATFORM_TYPE.fullmatch(type_):
        return _bad(
            "type", f"must be a dotted lower-case name such as invoice.paid, at most {_LONGEST_TYPE} characters"
        )
    if type_.startswith(RESERVED):
        return _bad("type", f"{type_} is reserved, like all types that begin with {', '.join(RESERVED)}")
    if given_id is not None and not _is_name(given_id):
        return _bad("id", f"must be a string of 1 to {_LONGEST_ID} printable characters")
    if subject and not _is_name(subject):
        return _bad("subject", f"must be a string of at most {_LONGEST_ID} printable characters")
    try:
        text = _encode(data).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _bad("data", "must be JSON with numbers of at most 64 bits")
    if len(text.encode()) > MAX_DATA:
        return _TOO_LARGE
    name = hashlib.sha256(f"{source}\0{given_id}".encode()).digest() if given_id is not None else b""
    return Event(type_, text, subject, name)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_ID and value.isprintable()


def _bad(member: str, detail: str) -> Refusal:
    return Refusal("invalid_request", f"{member}: {detail}", f"/{member}")
