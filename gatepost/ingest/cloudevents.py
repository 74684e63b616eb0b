"""CloudEvents 1.0: reads an event from its attributes and its data, for all sources that accept the format.

An event's `time` and `dataschema` are checked but not kept: an entry has the time at which it was recorded.
"""

from collections.abc import Callable
from typing import Any

from gatepost.core import clock
from gatepost.core.errors import Refusal
from gatepost.ledger import publishable as rules
from gatepost.ledger.publishable import Event

STRUCTURED = "application/cloudevents+json"


def read(sent: Any) -> Event | Refusal:
    """Read one event. An attribute that would not be kept is refused, and never silently dropped."""
    if not isinstance(sent, dict):
        return Refusal("invalid_request", "must be a JSON object with specversion, id, source, type and data")
    given = {name: value for name, value in sent.items() if value is not None or name == "data"}  # null means not set
    for name in given:
        if name not in _CHECKS:
            return _invalid(name, _UNKNOWN.get(name, f"unknown attribute; the attributes are {', '.join(_CHECKS)}"))
    for name, check in _CHECKS.items():
        problem = check(given[name]) if name in given else "required" if name in _REQUIRED else ""
        if problem:
            return _invalid(name, problem)
    source, subject = given["source"], given.get("subject", "")
    return rules.event(given["type"], given.get("data"), given["id"], source=source, subject=subject)


def _invalid(name: str, detail: str) -> Refusal:
    pointer = name[:64].replace("~", "~0").replace("/", "~1")  # RFC 6901, section 3
    return Refusal("invalid_request", f"{name[:64]}: {detail}", f"/{pointer}")


def _version(value: Any) -> str:
    return "" if value == "1.0" else 'must be "1.0"'


def _reference(value: Any) -> str:
    valid = isinstance(value, str) and 0 < len(value) <= 1024 and value.isascii() and value.isprintable()
    return "" if valid and " " not in value else "must be a URI reference of 1 to 1024 characters"


def _content_type(value: Any) -> str:
    kind = value.partition(";")[0].strip().lower() if isinstance(value, str) else ""
    return "" if kind == "application/json" else "must be application/json"


def _time(value: Any) -> str:
    valid = isinstance(value, str) and clock.parse_rfc3339(value) is not None
    return "" if valid else "must be a time with an offset, such as 2026-11-15T08:00:00Z"


def _subject(value: Any) -> str:
    return "" if isinstance(value, str) and value else "must be a non-empty string"


def _any(_value: Any) -> str:
    return ""


# Attribute → its check, which returns "" or what the value must be. For all sources, `publishable.event` checks `type`,
# `id` and the length of `subject`.
_CHECKS: dict[str, Callable[[Any], str]] = {
    "specversion": _version,
    "id": _any,
    "source": _reference,
    "type": _any,
    "subject": _subject,
    "time": _time,
    "datacontenttype": _content_type,
    "dataschema": _reference,
    "data": _any,
}
_REQUIRED = ("specversion", "id", "source", "type")
_UNKNOWN = {"data_base64": "binary data is not supported; send JSON as data"}
