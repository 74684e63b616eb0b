"""Subscriptions: every member right and wrong, which events match, and what may be asked to be sent again."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.ledger import entries
from gatepost.webhooks import subscriptions
from gatepost.webhooks.subscriptions import Replay, Subscription, SubscriptionDefinition, matches_data, matches_type

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
ACCOUNT = "acc_06d8un0u5du3r3ifb9lnp3culs"
ENDPOINT = "ep_06d8un0u5du3r3ifb9lnp3culs"
SMALL: dict[str, Any] = {"endpoint_id": ENDPOINT, "events": ["invoice.paid"]}
FULL: dict[str, Any] = {
    "endpoint_id": ENDPOINT,
    "events": ["invoice.*", "oauth.token.issued"],
    "filter": {"/customer/id": "c1", "/total": 5},
    "status": "disabled",
    "description": "Billing.",
}
EVENTS = [ids.new("evt") for _ in range(101)]


def define(
    sent: dict[str, Any], known: Subscription | None = None, at: datetime = NOW
) -> SubscriptionDefinition | Refusal:
    return subscriptions.define(sent, known, account=ACCOUNT, at=at, endpoint_exists=ENDPOINT.__eq__)


def definition(sent: dict[str, Any], known: Subscription | None = None, at: datetime = NOW) -> SubscriptionDefinition:
    found = define(sent if known else SMALL | sent, known, at)
    assert isinstance(found, SubscriptionDefinition), found
    return found


def defined(sent: dict[str, Any], known: Subscription | None = None, at: datetime = NOW) -> Subscription:
    return definition(sent, known, at).subscription


def refused(sent: dict[str, Any], known: Subscription | None = None) -> Refusal:
    found = define(sent if known else SMALL | sent, known, LATER)
    assert isinstance(found, Refusal), found
    return found


RIGHT: list[tuple[str, list[Any]]] = [
    ("events", [["invoice.paid"], ["a.b.c.d"], ["invoice.*"], ["a.b.*"], ["*"], ["*", "oauth.*"], ["0-_.a_-9"],
                ["oauth.token.issued"], ["oauth.token.*"], ["oauth.*"], ["webhook.*"], ["account.*"],
                ["accounts.created"], ["oauths.*"], [f"a.b{n}" for n in range(100)], ["a." + "b" * 254]]),
    ("filter", [{}, {"/a": "b"}, {"/a/b/0": 1}, {"/": None}, {"/~0~1": True}, {"/a b/é": 1.5}, {"//": False},
                {"/a": ""}, {"/a": "b" * 1024}, {"/" + "a" * 255: 1}, {f"/{n}": n for n in range(10)},
                {"/a": -(1 << 63), "/b": (1 << 63) - 1, "/c": 1e300, "/d": -0.0}]),
    ("status", ["active", "disabled"]),
    ("description", ["", "a" * 500, "größer"]),
]  # fmt: skip
WRONG: list[tuple[str, list[Any]]] = [
    ("endpoint_id", [None, 5, "", [ENDPOINT], {}, True]),
    ("events", [None, [], "invoice.paid", {}, 5, ["invoice"], [""], ["Invoice.paid"], ["invoice..paid"], [".paid"],
                ["invoice."], ["invoice.paid "], ["invoice.paid\n"], ["invoice.*.paid"], ["*.paid"], ["**"], ["*.*"],
                [".*"], ["a*"], ["a.b*"], ["inv oice.paid"], ["é.a"], [5], [None], [["a.b"]], ["a.b", "a.b"],
                ["*", "*"], ["a." + "b" * 255], ["b" * 255 + ".*"], [f"a.b{n}" for n in range(101)],
                ["oauth.token"], ["oauth.token.stolen"], ["oauth.tokens.*"], ["oauth.token.issued.*"], ["oauth.tok.*"],
                ["account.deleted"], ["webhook.x.*"], ["webhook.endpoint.x"]]),
    ("filter", [[], "/a", 5, {"": 1}, {"a": 1}, {"a/b": 1}, {"#/a": 1}, {"/~": 1}, {"/~2": 1}, {"/a~": 1}, {"/a~/b": 1},
                {"/" + "a" * 256: 1}, {f"/{n}": n for n in range(11)}, {"/a": []}, {"/a": {}}, {"/a": "b" * 1025},
                {"/a": float("inf")}, {"/a": float("nan")}, {"/a": 1 << 63}, {"/a": -(1 << 70)}, {"/a": [1]}]),
    ("status", ["paused", "Active", "", 1, True, ["active"], {}]),
    ("description", ["a" * 501, 5, ["a"], False]),
    ("replay", [5, "all", [], True, {}, {"from": None}, {"since": "2026-11-15T08:00:00Z"}, {"from": 5},
                {"from": "yesterday"}, {"from": "2026-11-15T08:00:00"}, {"from": "2026-13-15T08:00:00Z"}, {"until": ""},
                {"until": ["2026-11-15T08:00:00Z"]}, {"from": "2026-11-15T08:00:00Z", "until": "2026-11-15T08:00:00Z"},
                {"from": "2026-11-15T08:00:01Z", "until": "2026-11-15T08:00:00Z"},
                {"from": "2026-11-15T08:00:00Z", "until": "2026-11-15T09:00:00+02:00"},
                {"only": "succeeded"}, {"only": True}, {"only": ["failed"]}, {"only": ""},
                {"event_ids": []}, {"event_ids": EVENTS}, {"event_ids": EVENTS[0]}, {"event_ids": [EVENTS[0]] * 2},
                {"event_ids": ["evt_1"]}, {"event_ids": [5]}, {"event_ids": [["x"]]}, {"event_ids": [{}]},
                {"event_ids": [ids.new("dlv")]}, {"event_ids": [EVENTS[0].upper()]},
                {"event_ids": EVENTS[:1], "only": "failed"},
                {"event_ids": EVENTS[:1], "from": "2026-11-15T08:00:00Z"}]),
]  # fmt: skip


def flat(table: list[tuple[str, list[Any]]]) -> list[tuple[str, Any]]:
    return [(member, value) for member, values in table for value in values]


class TestMembers:
    @pytest.mark.parametrize(("member", "value"), flat(RIGHT))
    def test_right_is_kept_and_shown(self, member: str, value: Any) -> None:
        for known in (None, defined(FULL)):
            made = defined({member: value}, known, LATER)
            assert getattr(made, member) == value
            assert subscriptions.render(made, None)[member] == value
            assert msgspec.json.decode(msgspec.json.encode(made), type=Subscription) == made

    @pytest.mark.parametrize(("member", "value"), flat(WRONG))
    def test_wrong(self, member: str, value: Any) -> None:
        for known in (None, defined(FULL)):
            found = refused({member: value}, known)
            if (found.code, found.pointer) == ("not_found", "/endpoint_id"):
                assert value == "", "a text that is no id of ours"
                continue
            assert (found.code, found.status, found.pointer) == ("invalid_request", 400, f"/{member}")
            assert found.detail.startswith(f"{member}: ")
            assert len(found.detail) < 600

    def test_every_member_stands_in_both_tables(self) -> None:
        """Except members with their own tests."""
        members = set(subscriptions.MEMBERS.request)
        assert members - {member for member, _ in RIGHT} == {"id", "endpoint_id", "replay"}
        assert members - {member for member, _ in WRONG} == {"id"}

    @pytest.mark.parametrize("member", ["endpoint", "account", "Events", "", "types"])
    def test_an_unknown_member_is_named(self, member: str) -> None:
        for known in (None, defined(FULL)):
            found = refused({member: "x"}, known)
            assert (found.code, found.pointer) == ("invalid_request", f"/{member}")
            assert found.detail.startswith(f"{member}: unknown member; a subscription has id, endpoint_id, events")

    def test_a_pointer_is_a_json_pointer(self) -> None:
        assert refused({"a/b~c": 1}).pointer == "/a~1b~0c"
        assert len(refused({"x" * 5000: 1}).detail) < 250

    def test_what_the_service_does_not_record_cannot_be_subscribed_to(self) -> None:
        assert refused({"events": ["oauth.token.stolen"]}).detail.startswith(
            "events: item 1 must be a type such as invoice.paid"
        )

    @pytest.mark.parametrize("type_", entries.TYPES)
    def test_every_type_of_the_service_can_be_named(self, type_: str) -> None:
        prefix = type_.rpartition(".")[0]
        assert defined({"events": [type_, f"{prefix}.*"]}).events == [type_, f"{prefix}.*"]


class TestCreating:
    def test_an_endpoint_and_events_are_enough(self) -> None:
        made = definition({})
        found = made.subscription
        assert made == SubscriptionDefinition(
            Subscription(found.id, ACCOUNT, ENDPOINT, ["invoice.paid"], NOW, NOW), None
        )
        assert found.id.startswith("sub_")
        assert (found.filter, found.status, found.description) == ({}, "active", "")

    @pytest.mark.parametrize("member", SMALL)
    def test_neither_may_be_missing(self, member: str) -> None:
        found = define({other: value for other, value in SMALL.items() if other != member})
        assert isinstance(found, Refusal)
        assert (found.code, found.pointer) == ("invalid_request", f"/{member}")

    def test_an_endpoint_that_is_not_there(self) -> None:
        found = refused({"endpoint_id": "ep_06d8un0u5du3r3ifb9lnp3cult"})
        assert (found.code, found.status, found.pointer) == ("not_found", 404, "/endpoint_id")

    def test_not_removed_from_the_start(self) -> None:
        assert refused({"status": "removed"}).pointer == "/status"

    def test_shown(self) -> None:
        made = defined(FULL)
        answer = FULL | {
            "id": made.id,
            "account": ACCOUNT,
            "created_at": "2026-11-15T08:00:00.000Z",
            "updated_at": "2026-11-15T08:00:00.000Z",
        }
        assert subscriptions.render(made, None) == answer | {"replay": None}
        progress = {"state": "running", "examined": 5, "made": 3}
        assert subscriptions.render(made, progress) == answer | {"replay": progress}


class TestRedefining:
    def test_the_id_alone_changes_nothing(self) -> None:
        known = defined(FULL)
        assert definition({"id": known.id}, known, LATER) == SubscriptionDefinition(known, None)

    def test_the_same_again_changes_nothing(self) -> None:
        known = defined(FULL)
        assert definition(FULL, known, LATER) == SubscriptionDefinition(known, None)

    @pytest.mark.parametrize(
        ("member", "value"),
        [("events", ["*"]), ("filter", {"/a": 1}), ("status", "active"), ("status", "removed"), ("description", "x")],
    )
    def test_only_what_is_sent_changes(self, member: str, value: Any) -> None:
        known = defined(FULL)
        found = defined({"id": known.id, member: value}, known, LATER)
        assert found == msgspec.structs.replace(known, **{member: value}, updated_at=LATER)

    @pytest.mark.parametrize(("member", "default"), [("filter", {}), ("status", "active"), ("description", "")])
    def test_null_removes(self, member: str, default: Any) -> None:
        assert getattr(defined({member: None}, defined(FULL)), member) == default
        assert getattr(defined({member: None}), member) == default

    def test_the_endpoint_stays(self) -> None:
        found = refused({"endpoint_id": "ep_06d8un0u5du3r3ifb9lnp3cult"}, defined(FULL))
        assert (found.code, found.pointer) == ("invalid_request", "/endpoint_id")
        assert found.detail == "endpoint_id: cannot be changed; create another subscription"

    @pytest.mark.parametrize(("one", "other"), [(1, True), (True, 1), (0, False), (False, 0.0), (None, 0), ("1", 1)])
    def test_a_filter_that_differs_in_kind_is_another(self, one: Any, other: Any) -> None:
        known = defined({"filter": {"/a": one}})
        found = defined({"filter": {"/a": other}}, known, LATER)
        assert found.updated_at == LATER
        assert found.filter["/a"] is other


class TestRemoving:
    REMOVED = msgspec.structs.replace(defined(FULL), status="removed")

    @pytest.mark.parametrize(
        "sent",
        [{"status": "active"}, {"status": "removed"}, {"events": ["*"]}, {"replay": {"only": "failed"}}, {"x": 1}],
    )
    def test_is_final(self, sent: dict[str, Any]) -> None:
        found = refused({"id": self.REMOVED.id} | sent, self.REMOVED)
        assert (found.code, found.status, found.pointer) == ("conflict", 409, "/id")

    def test_but_it_can_be_read(self) -> None:
        assert definition({"id": self.REMOVED.id}, self.REMOVED, LATER) == SubscriptionDefinition(self.REMOVED, None)


class TestReplay:
    @pytest.mark.parametrize(
        ("sent", "replay"),
        [
            ({"from": "2026-11-15T08:00:00Z"}, Replay(start=NOW)),
            ({"until": "2026-11-15T10:00:00+01:00"}, Replay(until=LATER)),
            ({"from": "2026-11-15T08:00:00.000Z", "until": "2026-11-15T09:00:00.000Z"}, Replay(NOW, LATER)),
            ({"only": "failed"}, Replay(only_failed=True)),
            ({"from": "2026-11-15T08:00:00Z", "until": None, "only": "failed"}, Replay(start=NOW, only_failed=True)),
            ({"event_ids": EVENTS[:1]}, Replay(event_ids=EVENTS[:1])),
            ({"event_ids": EVENTS[:100], "only": None}, Replay(event_ids=EVENTS[:100])),
        ],
    )
    def test_right(self, sent: dict[str, Any], replay: Replay) -> None:
        known = defined({})
        assert definition({"id": known.id, "replay": sent}, known, LATER) == SubscriptionDefinition(known, replay)
        assert definition({"replay": sent}).replay == replay
        assert msgspec.json.decode(msgspec.json.encode(replay), type=Replay) == replay

    def test_null_is_none(self) -> None:
        assert definition({"replay": None}, defined({})).replay is None

    def test_while_disabled(self) -> None:
        assert definition({"replay": {"only": "failed"}}, defined(FULL)).replay == Replay(only_failed=True)

    def test_not_while_removing(self) -> None:
        found = refused({"replay": {"only": "failed"}, "status": "removed"}, defined({}))
        assert (found.code, found.pointer) == ("invalid_request", "/replay")

    def test_of_the_future(self) -> None:
        """It would have nothing to send, because later events are delivered anyway."""
        for start in (LATER + timedelta(milliseconds=1), LATER + timedelta(days=1)):
            found = refused({"replay": {"from": clock.rfc3339(start)}}, defined(FULL))
            assert (found.pointer, found.detail) == ("/replay", "replay: from must not be in the future")

    def test_an_unknown_member_is_named(self) -> None:
        assert "since" in refused({"replay": {"since": "x"}}).detail
        assert len(refused({"replay": {"x" * 5000: 1}}).detail) < 250


@pytest.mark.parametrize(
    ("patterns", "type_", "matches"),
    [
        (["invoice.paid"], "invoice.paid", True),
        (["invoice.paid"], "invoice.paid.late", False),
        (["invoice.paid"], "invoice.pai", False),
        (["invoice.*"], "invoice.paid", True),
        (["invoice.*"], "invoice.paid.late", True),
        (["invoice.*"], "invoices.paid", False),
        (["invoice.paid.*"], "invoice.paid", False),
        (["invoice.paid.*"], "invoice.paid.late", True),
        (["invoice.paid.*"], "invoice.paidx.late", False),
        (["*"], "invoice.paid", True),
        (["*"], "accounts.created", True),
        (["*"], "account.created", False),
        (["*"], "oauth.token.issued", False),
        (["*"], "webhook.delivery.failed", False),
        (["*", "oauth.token.*"], "oauth.token.issued", True),
        (["*", "oauth.token.*"], "oauth.client.created", False),
        (["oauth.*"], "oauth.token.issued", True),
        (["oauth.token.issued"], "oauth.token.issued", True),
        (["a.b", "c.d"], "c.d", True),
        ([], "a.b", False),
    ],
)
def test_types(patterns: list[str], type_: str, matches: bool) -> None:
    assert matches_type(patterns, type_) is matches


@pytest.mark.parametrize("type_", entries.TYPES)
def test_a_star_is_never_for_the_services_own(type_: str) -> None:
    assert not matches_type(["*"], type_)


# RFC 6901, section 5, and what equality is in JSON.
DATA: dict[str, Any] = {
    "foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8,
    "~1": 9, "yes": True, "no": False, "nil": None, "one": 1, "real": 1.0, "text": "1", "deep": {"list": [{"x": "y"}]},
    "big": 9007199254740993, "0": "zero", "empty": "",
}  # fmt: skip


class TestData:
    @pytest.mark.parametrize(
        ("pointer", "value"),
        [
            ("/foo/0", "bar"), ("/foo/1", "baz"), ("/", 0), ("/a~1b", 1), ("/c%d", 2), ("/e^f", 3), ("/g|h", 4),
            ("/i\\j", 5), ('/k"l', 6), ("/ ", 7), ("/m~0n", 8), ("/~01", 9), ("/yes", True), ("/no", False),
            ("/nil", None), ("/one", 1), ("/one", 1.0), ("/real", 1), ("/text", "1"), ("/deep/list/0/x", "y"),
            ("/big", 9007199254740993), ("/0", "zero"), ("/empty", ""),
        ],
    )  # fmt: skip
    def test_equal(self, pointer: str, value: Any) -> None:
        assert matches_data({pointer: value}, DATA)
        assert defined({"filter": {pointer: value}}).filter == {pointer: value}

    @pytest.mark.parametrize(
        ("pointer", "value"),
        [
            ("/yes", 1), ("/one", True), ("/no", 0), ("/no", None), ("/nil", False), ("/nil", 0), ("/nil", ""),
            ("/text", 1), ("/one", "1"), ("/yes", "true"), ("/none", None), ("/none", ""), ("/foo/2", None),
            ("/foo/-", None), ("/foo/-1", "baz"), ("/foo/00", "bar"), ("/foo/01", "baz"), ("/foo/+1", "baz"),
            ("/foo/ 1", "baz"), ("/foo/١", "baz"), ("/foo/1.0", "baz"), ("/foo/", "bar"), ("/foo/" + "9" * 200, None),
            ("/text/0", "1"), ("/nil/x", None), ("/one/x", None), ("/deep/list/x", None), ("/foo", "bar"),
            ("/deep", ""), ("/big", 9007199254740992), ("/big", 9007199254740992.0), ("/a/b", 1), ("/Foo/0", "bar"),
        ],
    )  # fmt: skip
    def test_not_equal(self, pointer: str, value: Any) -> None:
        assert not matches_data({pointer: value}, DATA)

    def test_all_must_hold(self) -> None:
        assert matches_data({}, DATA)
        assert matches_data({"/one": 1, "/text": "1"}, DATA)
        assert not matches_data({"/one": 1, "/text": "2"}, DATA)

    @pytest.mark.parametrize("data", [None, [], "text", 5, True, {}])
    def test_data_of_any_kind(self, data: Any) -> None:
        assert matches_data({}, data)
        assert not matches_data({"/a": None}, data)
