"""Subscriptions: which events go to which endpoint, and which are replayed. Model, members and rules, no I/O."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from gatepost.core import clock, ids
from gatepost.core import json_schema as schema
from gatepost.core.errors import Refusal
from gatepost.core.members import Member, read, request_schemas, table
from gatepost.ledger import entries

Scalar = str | int | float | bool | None
Status = Literal["active", "disabled", "removed"]


class Subscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """One endpoint and the events that it gets. `filter` maps JSON pointers into the event's data to values."""

    id: str
    account: str
    endpoint: str
    events: list[str]
    created_at: datetime
    updated_at: datetime
    filter: dict[str, Scalar] = {}
    status: Status = "active"
    description: str = ""


class Replay(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which retained events are sent again: those recorded from `start` to `until`, or those with these ids."""

    start: datetime | None = None
    until: datetime | None = None
    only_failed: bool = False
    event_ids: list[str] = []


class SubscriptionDefinition(NamedTuple):
    """The subscription that a body of POST /webhooks/subscriptions defines, and the replay that it requests."""

    subscription: Subscription
    replay: Replay | None


def matches_type(patterns: Sequence[str], type_: str) -> bool:
    """Whether any pattern matches the type. `*` matches platform types only: Gatepost's own types must be named."""
    for pattern in patterns:
        if pattern == "*":
            if not type_.startswith(entries.RESERVED):
                return True
        elif pattern.endswith(".*"):
            if type_.startswith(pattern[:-1]):
                return True
        elif pattern == type_:
            return True
    return False


def matches_data(filter_: Mapping[str, Scalar], data: Any) -> bool:
    """Whether the data has the expected value at every pointer. A missing value equals nothing, not even null."""
    return all(_equal(_at(pointer, data), expected) for pointer, expected in filter_.items())


_ABSENT = object()
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")


def _at(pointer: str, data: Any) -> Any:
    """The value that a JSON pointer references (RFC 6901, section 4), or `_ABSENT`."""
    value = data
    for part in pointer.split("/")[1:]:
        if isinstance(value, dict):
            value = value.get(part.replace("~1", "/").replace("~0", "~"), _ABSENT)
        elif isinstance(value, list) and _INDEX.fullmatch(part) and int(part) < len(value):
            value = value[int(part)]
        else:
            return _ABSENT
    return value


def _equal(value: Any, expected: Scalar) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are the same number, and true is not a number."""
    if isinstance(expected, bool) or isinstance(value, bool) or expected is None:
        return value is expected
    return bool(value == expected)


# --- members

_PART = "[a-z0-9_-]+"
_PATTERN = rf"^(?:\*|{entries.PLATFORM_TYPE.pattern}|{_PART}(?:\.{_PART})*\.\*)$"
_RESERVED = "|".join(prefix.removesuffix(".") for prefix in entries.RESERVED)


def _own_patterns() -> list[str]:
    """Gatepost's own event types, and every prefix that matches some of them."""
    parts = [type_.split(".") for type_ in entries.TYPES]
    prefixes = {".".join([*path[:depth], "*"]) for path in parts for depth in range(1, len(path))}
    return sorted({*entries.TYPES, *prefixes})


_EVENT_PATTERN = {
    "type": "string",
    "maxLength": 256,
    "anyOf": [{"pattern": _PATTERN, "not": {"pattern": rf"^(?:{_RESERVED})\."}}, {"enum": _own_patterns()}],
    schema.EXPECTS: "a type such as invoice.paid, a prefix such as invoice.*, * for all types of the platform, or an "
    f"existing type or prefix below {', '.join(entries.RESERVED)}",
}
_POINTER = schema.string(
    0, 256, expects="a JSON pointer of at most 256 characters, such as /customer/id", pattern="^(?:/(?:[^~/]|~[01])*)+$"
)
_SCALAR = {
    "type": ["string", "number", "boolean", "null"],
    "maxLength": 1024,
    schema.EXPECTS: "a string of at most 1024 characters, a number, true, false or null",
}


def _filter_numbers(filter_: dict[str, Scalar]) -> str:
    """Check that every database and JSON parser returns the numbers of a filter unchanged."""
    for pointer, value in filter_.items():
        if isinstance(value, float) and not math.isfinite(value):
            return f"{pointer} must be a finite number"
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            return f"{pointer} must be a number of at most 64 bits"
    return ""


_TIME = schema.DATE_TIME | {schema.EXPECTS: "a time with its offset, such as 2026-11-15T08:00:00Z"}
REPLAY_MEMBERS = table(
    "a replay",
    Replay,
    Member("from", _TIME, "Replays events recorded at this time or later."),
    Member("until", _TIME, "Replays events recorded at this time or earlier.", default_text="now"),
    Member("only", schema.one_of(["failed"]), "Replays events of which a delivery by this subscription failed."),
    Member(
        "event_ids",
        schema.array(
            schema.identifier("evt"),
            expects="a list of 1 to 100 different ids of events",
            minItems=1,
            maxItems=100,
            uniqueItems=True,
        ),
        "Replays these events. Must not be combined with other members.",
    ),
)
_RANGE = ("from", "until", "only")
_NULL = {"type": "null"}
REPLAY = schema.request_object(
    request_schemas(REPLAY_MEMBERS),
    description="Creates new deliveries of retained events: of a range, or of those named.",
) | {
    "anyOf": [
        *({"required": [name], "properties": {name: {"type": "string"}, "event_ids": _NULL}} for name in _RANGE),
        {"required": ["event_ids"], "properties": dict.fromkeys(_RANGE, _NULL) | {"event_ids": {"type": "array"}}},
    ],
    schema.EXPECTS: "an object with from, until or only, or with event_ids alone",
}


def _replay_problem(value: Any) -> str:
    problem = schema.problem(REPLAY, value)
    if problem:
        return problem
    for name in ("from", "until"):
        if value.get(name) is not None and clock.parse_rfc3339(value[name]) is None:
            return f"{name} must be {_TIME[schema.EXPECTS]}"
    replay = _replay(value)
    return "from must be before until" if replay.start and replay.until and replay.start >= replay.until else ""


def _replay(value: dict[str, Any]) -> Replay:
    """Convert a checked member `replay`."""
    start, until = (clock.parse_rfc3339(value[name]) if value.get(name) else None for name in ("from", "until"))
    return Replay(start, until, value.get("only") is not None, value.get("event_ids") or [])


_PROGRESS = schema.response_object(
    {
        "id": schema.identifier("rpl"),
        "state": schema.one_of(["running", "ended"]),
        "examined": schema.count(description="Retained events examined."),
        "made": schema.count(description="New deliveries."),
        "from": schema.DATE_TIME,
        "until": schema.DATE_TIME,
        "only": schema.one_of(["failed"]),
        "event_ids": schema.array(schema.identifier("evt")),
    },
    *REPLAY_MEMBERS.request,
)
MEMBERS = table(
    "a subscription",
    Subscription,
    Member(
        "id",
        schema.identifier("sub"),
        "Identifies the subscription to change or read. Leave it out to create a subscription.",
        null=False,
        occasion="change",
        is_reference=True,
    ),
    Member(
        "endpoint_id",
        schema.identifier("ep"),
        "The endpoint that the events go to. It cannot be changed.",
        required=True,
        null=False,
        is_reference=True,
    ),
    Member(
        "events",
        schema.array(
            _EVENT_PATTERN,
            expects="a list of 1 to 100 different event types or prefixes",
            minItems=1,
            maxItems=100,
            uniqueItems=True,
            examples=[["invoice.*"]],
        ),
        "Event types, prefixes such as `invoice.*`, or `*` for all types of the platform. Gatepost's own types must be "
        "named.",
        required=True,
        null=False,
    ),
    Member(
        "filter",
        schema.mapping(
            _POINTER,
            _SCALAR,
            10,
            expects="an object of at most 10 JSON pointers, each with a string, number, boolean or null",
            examples=[{"/customer/country": "NL"}],
        ),
        "JSON pointers into the data of an event (RFC 6901), and the values that must be there.",
        rule=_filter_numbers,
    ),
    Member(
        "status",
        schema.one_of(get_args(Status)),
        "A disabled subscription matches no new events, but its deliveries go on. Removing it is final.",
    ),
    Member("description", schema.string(0, 500), "A note for people."),
    Member(
        "replay",
        schema.ref("Replay") | {schema.EXPECTS: "an object with from, until or only, or with event_ids alone"},
        "Which retained events to send again.",
        direction="request",
        rule=_replay_problem,
    ),
    Member("account", schema.identifier("acc"), "The account that the subscription belongs to.", direction="response"),
    Member("created_at", schema.DATE_TIME, "When the subscription was created.", direction="response"),
    Member("updated_at", schema.DATE_TIME, "When the subscription was last changed.", direction="response"),
    Member("replay", schema.nullable(_PROGRESS), "The progress of the latest replay, or null.", direction="response"),
)


# --- defining a subscription


def define(
    body: Mapping[str, Any],
    current: Subscription | None,
    *,
    account: str,
    at: datetime,
    endpoint_exists: Callable[[str], bool],
) -> SubscriptionDefinition | Refusal:
    """The subscription that the body defines: a new one, or `current` with the members sent changed."""
    if current is not None and current.status == "removed":
        if set(body) <= {"id"}:
            return SubscriptionDefinition(current, None)
        return Refusal("conflict", "id: the subscription was removed, which is final; create another", "/id")
    refusal = _endpoint_refusal(body, current, endpoint_exists)
    values = refusal or read(MEMBERS, body, creating=current is None)
    if isinstance(values, Refusal):
        return values
    if current is None and values.get("status") == "removed":
        return MEMBERS.refusal("status", "must be active or disabled when the subscription is created")
    requested = values.pop("replay", None)
    replay = None if requested is None else _replay(requested)
    base = current or Subscription(ids.new("sub"), account, body["endpoint_id"], [], at, at)
    subscription = msgspec.structs.replace(base, **values)
    if replay is not None and subscription.status == "removed":
        return MEMBERS.refusal("replay", "must not be sent for a subscription that is removed")
    if replay is not None and replay.start is not None and replay.start > at:
        return MEMBERS.refusal("replay", "from must not be in the future")
    if _is_same(subscription, base):
        return SubscriptionDefinition(base, replay)
    return SubscriptionDefinition(msgspec.structs.replace(subscription, updated_at=at), replay)


def _endpoint_refusal(
    body: Mapping[str, Any], current: Subscription | None, endpoint_exists: Callable[[str], bool]
) -> Refusal | None:
    """The endpoint must exist when the subscription is created, and stays the same afterwards."""
    endpoint = body.get("endpoint_id")
    if "endpoint_id" not in body:
        return None
    if current is not None:
        is_same = endpoint == current.endpoint
        return None if is_same else MEMBERS.refusal("endpoint_id", "cannot be changed; create another subscription")
    if not isinstance(endpoint, str):
        return MEMBERS.refusal("endpoint_id", "must be the id of an endpoint")
    return None if endpoint_exists(endpoint) else Refusal("not_found", "endpoint_id: no such endpoint", "/endpoint_id")


def _is_same(one: Subscription, other: Subscription) -> bool:
    """Whether two subscriptions are equal. In Python 1 equals True; in a filter it does not."""
    return one == other and all(
        isinstance(value, bool) == isinstance(other.filter[pointer], bool) for pointer, value in one.filter.items()
    )


def render(subscription: Subscription, replay_progress: dict[str, Any] | None) -> dict[str, Any]:
    """The response of POST /webhooks/subscriptions."""
    return {
        "id": subscription.id,
        "account": subscription.account,
        "endpoint_id": subscription.endpoint,
        **{name: getattr(subscription, name) for name in ("events", "filter", "status", "description")},
        "created_at": clock.rfc3339(subscription.created_at),
        "updated_at": clock.rfc3339(subscription.updated_at),
        "replay": replay_progress,
    }
