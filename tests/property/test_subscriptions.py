"""Subscriptions by any JSON: accepted or refused in words, stable once accepted; matching as JSON has it."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gatepost.core.errors import Refusal
from gatepost.ledger import entries
from gatepost.webhooks import subscriptions
from gatepost.webhooks.subscriptions import Subscription, matches_data, matches_type
from tests.property.test_clients import JSON, TEXT
from tests.unit.test_subscriptions import EVENTS, FULL, LATER, NOW, SMALL, define, defined

SEGMENT = st.from_regex(r"[a-z0-9_-]{1,3}", fullmatch=True)
PLATFORM = st.lists(SEGMENT, min_size=2, max_size=4).map(".".join)
TYPE = PLATFORM | st.sampled_from(list(entries.TYPES))
PATTERN = st.just("*") | TYPE | TYPE.map(lambda type_: type_.rpartition(".")[0] + ".*")
SCALAR = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 0.5]) | TEXT
TIME = st.sampled_from(["2026-11-15T08:00:00Z", "2026-11-15T10:00:00+02:00", "2026-11-16T08:00:00.5Z", "x"])
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "events": st.lists(PATTERN, min_size=1, max_size=3),
    "filter": st.dictionaries(st.from_regex(r"(/[a-c~01]{0,3}){1,2}", fullmatch=True), SCALAR, max_size=3),
    "status": st.sampled_from(["active", "disabled", "removed"]),
    "description": TEXT,
    "replay": st.fixed_dictionaries(
        {},
        optional={
            "from": TIME,
            "until": TIME,
            "only": st.just("failed"),
            "event_ids": st.lists(st.sampled_from(EVENTS), max_size=3),
        },
    ),
}
BODY = st.one_of(
    st.fixed_dictionaries({}, optional={name: st.none() | likely for name, likely in LIKELY.items()}),
    st.fixed_dictionaries({}, optional=dict.fromkeys([*subscriptions.MEMBERS.request, "x"], JSON)),
)
KNOWN = st.sampled_from([None, defined({}), defined(FULL)])


@given(BODY, KNOWN)
def test_a_body_is_a_subscription_or_a_refusal(sent: dict[str, Any], known: Subscription | None) -> None:
    found = define(sent if known else SMALL | sent, known, LATER)
    if isinstance(found, Refusal):
        assert found.code in ("invalid_request", "not_found")
        assert found.pointer.startswith("/")
        return
    made = found.subscription
    assert msgspec.json.decode(msgspec.json.encode(made), type=Subscription) == made
    if known is not None:
        assert (made.id, made.endpoint, made.created_at) == (known.id, known.endpoint, NOW)
        assert (made == known) == (made.updated_at == known.updated_at)
    if made.status == "removed":
        assert found.replay is None
        return
    assert define(sent, made, LATER) == found, "the same definition again is the same subscription"
    shown = subscriptions.render(made, None)
    back = {name: shown[name] for name in ("id", "endpoint_id", "events", "filter", "status", "description")}
    assert define(back, made, LATER) == (made, None), "what is shown can be sent again"


@given(PLATFORM, st.integers(1, 3))
def test_a_prefix_is_for_everything_below_it_and_nothing_beside(type_: str, depth: int) -> None:
    segments = type_.split(".")
    prefix = ".".join(segments[:depth])
    assert matches_type([f"{prefix}.*"], type_) == (depth < len(segments))
    assert not matches_type([f"{prefix}x.*"], type_)


@given(st.lists(PATTERN, max_size=3), TYPE)
def test_patterns_are_a_union(patterns: list[str], type_: str) -> None:
    assert matches_type(patterns, type_) == any(matches_type([each], type_) for each in patterns)


@given(TYPE)
def test_a_star_is_for_what_is_not_the_services(type_: str) -> None:
    assert matches_type(["*"], type_) == (type_.partition(".")[0] not in ("account", "oauth", "webhook"))


def leaves(value: Any, pointer: str = "") -> list[tuple[str, Any]]:
    """Every scalar in the value, with its JSON pointer."""
    if isinstance(value, dict):
        parts = [(name.replace("~", "~0").replace("/", "~1"), inner) for name, inner in value.items()]
    elif isinstance(value, list):
        parts = [(str(index), inner) for index, inner in enumerate(value)]
    else:
        return [(pointer, value)]
    return [leaf for part, inner in parts for leaf in leaves(inner, f"{pointer}/{part}")]


NAME = st.text("ab~/01 é", max_size=3)
DATA = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAME, inner, max_size=3), max_leaves=8
)


@given(DATA)
def test_every_scalar_is_found_at_its_pointer(data: Any) -> None:
    found = dict(leaves(data))
    assert matches_data(found, data)
    assert matches_data(found, json.loads(json.dumps(data)))


@given(DATA, SCALAR)
def test_equal_is_what_json_calls_equal(data: Any, wanted: Any) -> None:
    for pointer, value in leaves(data):
        numbers = [isinstance(each, int | float) and not isinstance(each, bool) for each in (value, wanted)]
        same = value == wanted if all(numbers) else json.dumps(value) == json.dumps(wanted)
        assert matches_data({pointer: wanted}, data) == same


@given(DATA, st.text(max_size=8), SCALAR)
def test_no_pointer_is_a_surprise(data: Any, text: str, wanted: Any) -> None:
    pointer = f"/{text}"
    found = [value for other, value in leaves(data) if other == pointer]
    if not found:
        assert not matches_data({pointer: wanted}, data)
