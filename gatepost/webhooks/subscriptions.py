"""Subscriptions: which events go to which endpoint, and what is to be sent again. Model and rules, no I/O."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.ledger import entries

Scalar = str | int | float | bool | None
ANY = "*"
BELOW = ".*"


class Subscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """One endpoint and the events it gets. `filter` has JSON pointers into an event's data, and what must be there."""

    id: str
    account: str
    endpoint: str
    events: list[str]
    created_at: datetime
    updated_at: datetime
    filter: dict[str, Scalar] = {}
    status: Literal["active", "disabled", "removed"] = "active"
    description: str = ""


class Replay(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is to be sent again: retained events from `start` up to `until`, or those named."""

    start: datetime | None = None
    until: datetime | None = None
    only_failed: bool = False
    event_ids: list[str] = []


class Defined(NamedTuple):
    """What a body of POST /webhooks/subscriptions asks for, checked."""

    subscription: Subscription
    replay: Replay | None


def matches_type(patterns: Sequence[str], type_: str) -> bool:
    """Whether one of the patterns is for events of this type. `*` is for platform types: ours must be named."""
    for pattern in patterns:
        if pattern == ANY:
            if not type_.startswith(entries.RESERVED):
                return True
        elif pattern.endswith(BELOW):
            if type_.startswith(pattern[:-1]):
                return True
        elif pattern == type_:
            return True
    return False


def matches_data(filter_: Mapping[str, Scalar], data: Any) -> bool:
    """Whether the data has, at each pointer, what must be there. What is absent equals nothing, not even null."""
    return all(_equal(_at(pointer, data), wanted) for pointer, wanted in filter_.items())


_ABSENT = object()
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")


def _at(pointer: str, data: Any) -> Any:
    """RFC 6901, section 4."""
    found = data
    for part in pointer.split("/")[1:]:
        if isinstance(found, dict):
            found = found.get(part.replace("~1", "/").replace("~0", "~"), _ABSENT)
        elif isinstance(found, list) and _INDEX.fullmatch(part) and int(part) < len(found):
            found = found[int(part)]
        else:
            return _ABSENT
    return found


def _equal(found: Any, wanted: Scalar) -> bool:
    """As in JSON: 1 and 1.0 are one number, and true is none."""
    if isinstance(wanted, bool) or isinstance(found, bool) or wanted is None:
        return found is wanted
    return bool(found == wanted)


def define(
    sent: Mapping[str, Any],
    known: Subscription | None,
    *,
    account: str,
    at: datetime,
    endpoint_exists: Callable[[str], bool],
) -> Defined | Refusal:
    """The subscription that the body defines: a new one, or `known` with the members sent changed."""
    if known is not None and known.status == "removed":
        if set(sent) <= {"id"}:
            return Defined(known, None)
        return Refusal("conflict", "id: the subscription is removed, which is final; create another", "/id")
    fields = _misplaced(sent, known, endpoint_exists) or _read(sent)
    if isinstance(fields, Refusal):
        return fields
    base = known or Subscription(ids.new("sub"), account, sent["endpoint_id"], [], at, at)
    made = msgspec.structs.replace(base, **fields)
    replay = None
    if sent.get("replay") is not None:
        read = _replay(sent["replay"])
        if isinstance(read, str):
            return _bad("replay", read)
        if made.status == "removed":
            return _bad("replay", "not for a subscription that is removed")
        replay = read
    return Defined(base if _same(made, base) else msgspec.structs.replace(made, updated_at=at), replay)


def _same(one: Subscription, other: Subscription) -> bool:
    """In Python 1 equals True; in a filter it does not."""
    kinds = [{pointer: isinstance(value, bool) for pointer, value in each.filter.items()} for each in (one, other)]
    return one == other and kinds[0] == kinds[1]


def _misplaced(
    sent: Mapping[str, Any], known: Subscription | None, endpoint_exists: Callable[[str], bool]
) -> Refusal | None:
    """A member that is unknown, missing, or not for this occasion. `endpoint_id` stays what it was at the start."""
    for member in sent:
        if member not in MEMBERS:
            return _bad(member, f"unknown member; a subscription has {', '.join(MEMBERS)}")
    endpoint = sent.get("endpoint_id")
    if known is not None:
        same = "endpoint_id" not in sent or endpoint == known.endpoint
        return None if same else _bad("endpoint_id", "cannot change; create another subscription")
    if not isinstance(endpoint, str):
        return _bad("endpoint_id", "needed: the id of an endpoint")
    if not endpoint_exists(endpoint):
        return Refusal("not_found", "endpoint_id: no such endpoint", "/endpoint_id")
    if "events" not in sent:
        return _bad("events", "needed: the types of events to send")
    if sent.get("status") == "removed":
        return _bad("status", "must be active or disabled when creating")
    return None


def _read(sent: Mapping[str, Any]) -> dict[str, Any] | Refusal:
    """The members sent, each checked by itself; null means the default."""
    fields: dict[str, Any] = {}
    for member, check in _CHECKS.items():
        if member not in sent:
            continue
        value = sent[member]
        if value is None and member in _DEFAULTS:
            fields[member] = _DEFAULTS[member]
            continue
        problem = check(value)
        if problem:
            return _bad(member, problem)
        fields[member] = value
    return fields


def shown(subscription: Subscription, replay_progress: dict[str, Any] | None) -> dict[str, Any]:
    """The answer of POST /webhooks/subscriptions."""
    return {
        "id": subscription.id,
        "account": subscription.account,
        "endpoint_id": subscription.endpoint,
        "events": subscription.events,
        "filter": subscription.filter,
        "status": subscription.status,
        "description": subscription.description,
        "created_at": clock.rfc3339(subscription.created_at),
        "updated_at": clock.rfc3339(subscription.updated_at),
        "replay": replay_progress,
    }


REPLAY_MEMBERS = ("from", "until", "only", "event_ids")


def _replay(value: Any) -> Replay | str:
    """What the body asks to send again, or what is wrong with it."""
    if not isinstance(value, dict):
        return f"must be an object with {', '.join(REPLAY_MEMBERS)}"
    for name in value:
        if name not in REPLAY_MEMBERS:
            return f"unknown member {name[:64]}; a replay has {', '.join(REPLAY_MEMBERS)}"
    asked = {name: each for name, each in value.items() if each is not None}
    if not asked:
        return "must say what: from or until, only, or event_ids"
    if "event_ids" in asked:
        named = asked["event_ids"]
        right = isinstance(named, list) and 1 <= len(named) <= 100
        right = right and all(isinstance(each, str) and ids.parse("evt", each) is not None for each in named)
        if not right or len(set(named)) != len(named):
            return "event_ids must be a list of 1 to 100 ids of events, each once"
        return Replay(event_ids=named) if len(asked) == 1 else "event_ids must stand alone"
    if asked.get("only", "failed") != "failed":
        return "only must be failed"
    times = {}
    for name in ("from", "until"):
        if name in asked:
            times[name] = clock.parse_rfc3339(asked[name]) if isinstance(asked[name], str) else None
            if times[name] is None:
                return f"{name} must be a time with its offset, as 2026-11-15T08:00:00Z"
    start, until = times.get("from"), times.get("until")
    if start and until and start >= until:
        return "from must be before until"
    return Replay(start, until, "only" in asked)


# --- single members


def _bad(member: str, detail: str) -> Refusal:
    pointer = member[:64].replace("~", "~0").replace("/", "~1")  # RFC 6901, section 3
    return Refusal("invalid_request", f"{member[:64]}: {detail}", f"/{pointer}")


_PREFIX = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")


def _events(value: Any) -> str:
    if not isinstance(value, list) or not 1 <= len(value) <= 100:
        return "must be a list of 1 to 100 types of events"
    for pattern in value:
        if not isinstance(pattern, str) or len(pattern) > 256 or not _is_pattern(pattern):
            return "must be types as invoice.paid, prefixes as invoice.*, or * for all types of the platform"
        if _names_nothing(pattern):
            return f"{pattern} names no type that the service has ({', '.join(entries.RESERVED)} are its own)"
    return "" if len(set(value)) == len(value) else "must be all different"


def _is_pattern(text: str) -> bool:
    if text.endswith(BELOW):
        return _PREFIX.fullmatch(text.removesuffix(BELOW)) is not None
    return text == ANY or entries.PLATFORM_TYPE.fullmatch(text) is not None


def _names_nothing(pattern: str) -> bool:
    """Whether it is among the reserved names without naming one that the service has."""
    return pattern.startswith(entries.RESERVED) and not any(matches_type([pattern], each) for each in entries.TYPES)


_POINTER = re.compile(r"(/([^~/]|~[01])*)+")  # RFC 6901, section 3


def _filter(value: Any) -> str:
    if not isinstance(value, dict) or len(value) > 10:
        return "must be an object of at most 10 JSON pointers, each with the value that must be there"
    for pointer, wanted in value.items():
        if len(pointer) > 256 or not _POINTER.fullmatch(pointer):
            return "must have JSON pointers of at most 256 characters, as /customer/id"
        if not _is_scalar(wanted):
            return f"{pointer} must be a text of at most 1024 characters, a number, true, false or null"
    return ""


def _is_scalar(value: Any) -> bool:
    match value:
        case str():
            return len(value) <= 1024
        case float():
            return math.isfinite(value)
        case int():
            return -(1 << 63) <= value < 1 << 63
        case _:
            return value is None


def _status(value: Any) -> str:
    return "" if value in ("active", "disabled", "removed") else "must be one of active, disabled, removed"


def _description(value: Any) -> str:
    return "" if isinstance(value, str) and len(value) <= 500 else "must be a text of at most 500 characters"


# member → its check: an empty text, or what would be right.
_CHECKS: dict[str, Callable[[Any], str]] = {
    "events": _events,
    "filter": _filter,
    "status": _status,
    "description": _description,
}
MEMBERS = ("id", "endpoint_id", *_CHECKS, "replay")
_DEFAULTS: dict[str, Any] = {"filter": {}, "status": "active", "description": ""}
