"""Endpoints: valid and invalid members, secrets, disabling and resuming, and the response of the API."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gatepost.core.errors import Refusal
from gatepost.core.secret_rotation import OVERLAP
from gatepost.core.webhook_signature import new_secret
from gatepost.webhooks import endpoint_rules, endpoints
from gatepost.webhooks.endpoint_rules import EndpointDefinition
from gatepost.webhooks.endpoints import DISABLE_AFTER, Endpoint, Health, SigningSecret, with_secret

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LATER = NOW + HOUR
ACCOUNT = "acc_06d8un0u5du3r3ifb9lnp3culs"
URL = "https://example.com/hooks"
FULL: dict[str, Any] = {
    "url": URL,
    "description": "Billing.",
    "headers": {"X-Team": "blue"},
    "timeout": 5,
    "max_in_flight": 4,
    "rate_limit": 100,
    "max_retry_after": 600,
    "retry_schedule": [5, 60],
    "signing": "v1a",
    "format": "cloudevents",
    "metadata": {"owner": "ops"},
}
GIVEN = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def url_problem(url: str) -> str:
    return "" if url.startswith("https://") else "must be https"


def define(sent: dict[str, Any], known: Endpoint | None = None, at: datetime = NOW) -> EndpointDefinition | Refusal:
    return endpoint_rules.define(sent, known, account=ACCOUNT, at=at, url_problem=url_problem)


def definition(sent: dict[str, Any], known: Endpoint | None = None, at: datetime = NOW) -> EndpointDefinition:
    found = define(sent if known else {"url": URL} | sent, known, at)
    assert isinstance(found, EndpointDefinition), found
    return found


def defined(sent: dict[str, Any], known: Endpoint | None = None, at: datetime = NOW) -> Endpoint:
    """The endpoint, with the secret that it wants."""
    found = definition(sent, known, at)
    if not found.needs_secret:
        return found.endpoint
    return with_secret(found.endpoint, secret(found.endpoint.signing, at), found.overlap, at)


def secret(name: str, at: datetime = NOW) -> SigningSecret:
    return SigningSecret(f"sk_{name}", at, "c2VhbGVk", "v1a" if name == "v1a" else "v1")


def refused(sent: dict[str, Any], known: Endpoint | None = None) -> Refusal:
    found = define(sent if known else {"url": URL} | sent, known, LATER)
    assert isinstance(found, Refusal), found
    return found


RIGHT: list[tuple[str, list[Any]]] = [
    ("url", [URL, "https://other.example"]),
    ("description", ["", "a" * 500, "größer"]),
    ("headers", [{}, {"X-Team": "blue"}, {"a": "!"}, {"a" * 128: "b" * 1024}, {"x-a": "b c", "x-b": "~"},
                 {f"x-{n}": "a" for n in range(20)}, {"!#$%&'*+-.^_`|~09azAZ": "a"}, {"hostname": "a"},
                 {"x-webhook-id": "a"}, {"x-content-type": "a"}, {"tea": "a"}, {"accept": "a/b;q=\"1\", c"},
                 {"x-api-key": "abc"}, {"x-team": "***"}]),
    ("timeout", [1, 30]),
    ("max_in_flight", [1, 1000]),
    ("rate_limit", [1, 10_000]),
    ("max_retry_after", [1, 86_400]),
    ("retry_schedule", [[], [1], [604_800], [5] * 24]),
    ("signing", ["v1", "v1a"]),
    ("format", ["standard", "cloudevents"]),
    ("status", ["active", "disabled"]),
    ("metadata", [{}, {"a": ""}, {"a" * 64: "b" * 512}, {str(n): "" for n in range(50)}]),
]  # fmt: skip
FORBIDDEN = [
    "webhook-id", "webhook-timestamp", "webhook-signature", "webhook-", "host", "content-type", "content-length",
    "content-encoding", "content-", "authorization", "connection", "keep-alive", "te", "trailer", "transfer-encoding",
    "upgrade", "proxy-authorization", "proxy-authenticate", "proxy-connection", "expect", "user-agent", "cookie",
]  # fmt: skip
WRONG: list[tuple[str, list[Any]]] = [
    ("url", [None, 5, "", "http://example.com", [URL], {}, True]),
    ("description", ["a" * 501, 5, ["a"], False]),
    ("headers", [[], "x: y", 5, {"": "a"}, {"a b": "c"}, {"a:": "b"}, {"a\r\nb": "c"}, {"a\n": "b"}, {"é": "a"},
                 {"a\0": "b"}, {"(a)": "b"}, {"a" * 129: "b"}, {"a": ""}, {"a": " "}, {"a": " b"}, {"a": "b "},
                 {"a": "b\r\nhost: c"}, {"a": "b\n"}, {"a": "b\rc"}, {"a": "b\0c"}, {"a": "b\tc"}, {"a": "é"},
                 {"a": "\x7f"}, {"a": "b" * 1025}, {"a": 5}, {"a": None}, {"a": ["b"]}, {"a": True},
                 {f"x-{n}": "a" for n in range(21)}, {"X-Team": "a", "x-team": "b"}, {"x-api-key": "***"},
                 *[{spelt: "a"} for name in FORBIDDEN for spelt in (name, name.upper(), name.title())]]),
    ("timeout", [0, 31, -1, 1.0, "15", True, [15]]),
    ("max_in_flight", [0, 1001, 1.5, "16", True]),
    ("rate_limit", [0, 10_001, 0.5, "1", True]),
    ("max_retry_after", [0, 86_401, 0.5, "1", True]),
    ("retry_schedule", [5, "5", {}, [0], [604_801], [5] * 25, [1.0], ["5"], [True], [None], [[5]]]),
    ("signing", ["v2", "V1", "", "hmac", 1, ["v1"], {}]),
    ("format", ["json", "Standard", "", 1, []]),
    ("status", ["paused", "Active", "", 1, True, ["active"], {}]),
    ("metadata", [[], {"a": 1}, {"a": None}, {"": "a"}, {"a" * 65: ""}, {"a": "b" * 513},
                  {str(n): "" for n in range(51)}]),
    ("rotate_secret", [1, 0, "true", [], {}, {"overlap": -1}, {"overlap": 604_801}, {"overlap": 1.0},
                       {"overlap": True}, {"overlap": None}, {"overlap": 5, "x": 1}, {"after": 5}]),
]  # fmt: skip


def flat(table: list[tuple[str, list[Any]]]) -> list[tuple[str, Any]]:
    return [(member, value) for member, values in table for value in values]


class TestMembers:
    @pytest.mark.parametrize(("member", "value"), flat(RIGHT))
    def test_right(self, member: str, value: Any) -> None:
        assert getattr(defined({member: value}), member) == value
        assert getattr(defined({member: value}, defined(FULL), LATER), member) == value

    @pytest.mark.parametrize(("member", "value"), flat(WRONG))
    def test_wrong(self, member: str, value: Any) -> None:
        for known in (None, defined(FULL)):
            found = refused({member: value}, known)
            assert (found.code, found.status, found.pointer) == ("invalid_request", 400, f"/{member}")
            assert found.detail.startswith(f"{member}: ")
            assert len(found.detail) < 400

    def test_every_member_stands_in_both_tables(self) -> None:
        """Except members with their own tests."""
        members = set(endpoints.MEMBERS.request)
        assert members - {member for member, _ in RIGHT} == {"id", "secret", "rotate_secret"}
        assert members - {member for member, _ in WRONG} == {"id", "secret"}

    @pytest.mark.parametrize(
        "member", ["owner", "account", "created_at", "Url", "", "health", "held", "disabled_reason", "secrets"]
    )
    def test_an_unknown_member_is_named(self, member: str) -> None:
        for known in (None, defined(FULL)):
            found = refused({member: "x"}, known)
            assert (found.code, found.pointer) == ("invalid_request", f"/{member}")
            assert found.detail.startswith(f"{member}: unknown member; an endpoint has id, url, description")

    def test_a_pointer_is_a_json_pointer(self) -> None:
        assert refused({"a/b~c": 1}).pointer == "/a~1b~0c"
        assert len(refused({"x" * 5000: 1}).detail) < 300

    def test_the_message_of_the_guard_is_the_detail(self) -> None:
        assert refused({"url": "http://example.com"}).detail == "url: must be https"

    def test_the_url_may_not_be_missing(self) -> None:
        found = define({"description": "x"})
        assert isinstance(found, Refusal)
        assert (found.code, found.pointer) == ("invalid_request", "/url")


class TestCreating:
    def test_a_url_alone_is_enough(self) -> None:
        made = definition({})
        assert made == EndpointDefinition(
            Endpoint(made.endpoint.id, ACCOUNT, URL, NOW, NOW, resumed_at=NOW),
            needs_secret=True,
            given_secret=None,
            overlap=OVERLAP,
        )
        assert made.endpoint.id.startswith("ep_")

    def test_it_may_begin_disabled(self) -> None:
        made = defined({"status": "disabled"})
        assert (made.status, made.disabled_reason, made.disabled_at) == ("disabled", "requested", NOW)

    def test_but_not_removed(self) -> None:
        assert refused({"status": "removed"}).pointer == "/status"

    @pytest.mark.parametrize("member", [member for member, _ in RIGHT if member != "url"])
    def test_null_is_the_default(self, member: str) -> None:
        assert getattr(defined({member: None}), member) == getattr(defined({}), member)


class TestGivenSecret:
    def test_is_taken_when_creating(self) -> None:
        made = definition({"secret": GIVEN})
        assert made.needs_secret
        assert made.given_secret is not None
        assert made.given_secret.reveal() == GIVEN
        assert GIVEN not in repr(made)

    def test_null_is_none(self) -> None:
        assert definition({"secret": None}).given_secret is None

    @pytest.mark.parametrize("value", ["", "whsec_", "whsec_AAAA", GIVEN[6:], GIVEN + "!", 5, [], {}])
    def test_wrong(self, value: Any) -> None:
        found = refused({"secret": value})
        assert (found.code, found.pointer) == ("invalid_request", "/secret")
        assert found.detail == "secret: must be whsec_ and the base64 of 24 to 64 bytes"

    def test_is_for_hmac_only(self) -> None:
        assert refused({"secret": GIVEN, "signing": "v1a"}).pointer == "/secret"

    @pytest.mark.parametrize("value", [GIVEN, None])
    def test_only_when_creating(self, value: str | None) -> None:
        found = refused({"secret": value}, defined({}))
        assert (found.code, found.pointer) == ("invalid_request", "/secret")
        assert "rotate_secret" in found.detail

    def test_not_while_asking_for_another(self) -> None:
        assert refused({"secret": GIVEN, "rotate_secret": True}).pointer == "/rotate_secret"


class TestRotating:
    @pytest.mark.parametrize(
        ("value", "wanted", "overlap"),
        [
            (True, True, DAY),
            (False, False, DAY),
            (None, False, DAY),
            ({"overlap": 0}, True, timedelta(0)),
            ({"overlap": 604_800}, True, 7 * DAY),
        ],
    )
    def test_asking(self, value: Any, wanted: bool, overlap: timedelta) -> None:
        known = defined({})
        found = definition({"rotate_secret": value}, known, LATER)
        assert (found.needs_secret, found.overlap) == (wanted, overlap)
        assert found.endpoint.updated_at == (LATER if wanted else NOW)
        assert definition({"rotate_secret": value}).needs_secret, "a new one always wants its first"

    def test_another_kind_of_signing_is_another_secret(self) -> None:
        known = defined({})
        assert definition({"signing": "v1a"}, known).needs_secret
        assert not definition({"signing": "v1"}, known).needs_secret
        assert definition({"signing": "v1a", "rotate_secret": {"overlap": 5}}, known).overlap == timedelta(seconds=5)
        both = defined({"signing": "v1a"}, known, LATER)
        assert [(each.kind, each.is_active(LATER)) for each in both.secrets] == [("v1", True), ("v1a", True)]
        assert definition({"signing": None}, both).needs_secret, "null goes back to v1"

    def test_one_whose_secrets_ended_gets_another(self) -> None:
        known = defined({})
        ended = msgspec.structs.replace(known.secrets[0], expires_at=LATER)
        known = msgspec.structs.replace(known, secrets=[ended])
        assert not definition({"timeout": 5}, known, NOW).needs_secret
        assert definition({"timeout": 5}, known, LATER).needs_secret


def rotated(*made: tuple[str, timedelta, datetime]) -> Endpoint:
    """An endpoint given these secrets, one after the other."""
    found = definition({}).endpoint
    for name, overlap, at in made:
        found = with_secret(found, secret(name, at), overlap, at)
    return found


def live(found: Endpoint, at: datetime) -> list[str]:
    return [each.id for each in found.secrets if each.is_active(at)]


class TestSecrets:
    def test_the_first_does_not_end(self) -> None:
        assert live(rotated(("1", OVERLAP, NOW)), NOW + 1000 * DAY) == ["sk_1"]

    def test_two_live_for_the_overlap(self) -> None:
        two = rotated(("1", OVERLAP, NOW), ("2", OVERLAP, LATER))
        end = LATER + DAY
        assert live(two, LATER) == ["sk_1", "sk_2"]
        assert live(two, end - timedelta(milliseconds=1)) == ["sk_1", "sk_2"]
        assert live(two, end) == ["sk_2"]
        assert two.updated_at == LATER

    def test_a_third_ends_the_oldest(self) -> None:
        three = rotated(("1", OVERLAP, NOW), ("2", OVERLAP, NOW + HOUR), ("3", OVERLAP, NOW + 2 * HOUR))
        assert [each.id for each in three.secrets] == ["sk_2", "sk_3"]

    def test_no_overlap_ends_the_old_at_once(self) -> None:
        assert [each.id for each in rotated(("1", OVERLAP, NOW), ("2", timedelta(0), NOW)).secrets] == ["sk_2"]

    def test_a_longer_overlap_never_prolongs_what_is_ending(self) -> None:
        two = rotated(("1", OVERLAP, NOW), ("2", HOUR, NOW))
        ending = msgspec.structs.replace(two, secrets=two.secrets[:1])
        assert live(with_secret(ending, secret("3"), 7 * DAY, NOW), NOW + HOUR) == ["sk_3"]


class TestRedefining:
    def test_the_id_alone_changes_nothing(self) -> None:
        known = defined(FULL)
        assert definition({"id": known.id}, known, LATER) == EndpointDefinition(known, False, None, OVERLAP)

    def test_the_same_again_changes_nothing(self) -> None:
        known = defined(FULL)
        assert definition(FULL | {"status": "active"}, known, LATER).endpoint == known

    @pytest.mark.parametrize(
        ("member", "value"),
        [
            ("url", "https://other.example"), ("description", "Other."), ("headers", {"x-a": "b"}), ("timeout", 6),
            ("max_in_flight", 5), ("rate_limit", 7), ("retry_schedule", []), ("format", "standard"),
            ("metadata", {}),
        ],
    )  # fmt: skip
    def test_only_what_is_sent_changes(self, member: str, value: Any) -> None:
        known = defined(FULL)
        found = definition({"id": known.id, member: value}, known, LATER)
        assert found.endpoint == msgspec.structs.replace(known, **{member: value}, updated_at=LATER)
        assert not found.needs_secret

    @pytest.mark.parametrize("member", [member for member in FULL if member != "url"])
    def test_null_removes(self, member: str) -> None:
        default = getattr(definition({}).endpoint, member)
        assert getattr(definition({member: None}, defined(FULL)).endpoint, member) == default

    def test_it_reads_back_as_it_was_written(self) -> None:
        for known in (defined({}), defined(FULL), defined({"retry_schedule": [], "status": "disabled"})):
            assert msgspec.json.decode(msgspec.json.encode(known), type=Endpoint) == known


KEPT = {"X-Api-Key": "k1", "x-team": "blue"}


class TestHiddenHeaders:
    @pytest.mark.parametrize(
        "name",
        [
            "x-token",
            "X-Api-Key",
            "x-secret",
            "x-auth",
            "X-Authorization",
            "x-password",
            "x-signature",
            "SESSION-id",
            "X-Passphrase",
            "x-passwd",
            "X-Credentials",
            "x-bearer",
            "X-JWT",
        ],
    )
    def test_values_like_credentials_are_hidden(self, name: str) -> None:
        made = defined({"headers": {name: "v4lue", "x-team": "blue"}})
        assert made.headers[name] == "v4lue"
        assert endpoints.render(made, None, 0, NOW)["headers"] == {name: "***", "x-team": "blue"}

    def test_what_was_hidden_may_be_sent_back(self) -> None:
        known = defined({"headers": KEPT})
        answer = endpoints.render(known, None, 0, NOW)
        assert definition({"headers": answer["headers"]}, known, LATER).endpoint == known
        assert defined({"headers": {"x-api-key": "***"}}, known).headers == {"x-api-key": "k1"}
        assert defined({"headers": {"x-api-key": "k2"}}, known).headers == {"x-api-key": "k2"}

    @pytest.mark.parametrize(
        ("url", "same"),
        [
            (f"{URL}/other", True), ("https://EXAMPLE.com:443/", True),
            ("https://other.example/", False),
            ("https://example.com.evil.example/", False), ("https://example.com:8443/hooks", False),
        ],
    )  # fmt: skip
    def test_they_do_not_follow_the_url_to_another_origin(self, url: str, same: bool) -> None:
        """What was meant for one receiver is not sent to another."""
        known = defined({"url": URL, "headers": {"x-team": "blue", "X-Api-Key": "k1", "x-token": "t1"}})
        for sent in ({"url": url}, {"url": url, "headers": endpoints.render(known, None, 0, NOW)["headers"]}):
            changed = definition(sent, known, LATER)
            assert changed.endpoint.headers == (known.headers if same else {"x-team": "blue"})
            assert changed.dropped_headers == ([] if same else ["X-Api-Key", "x-token"])

    def test_those_that_are_set_again_are_kept(self) -> None:
        known = defined({"url": URL, "headers": {"X-Api-Key": "k1", "x-token": "t1"}})
        sent = {"url": "https://other.example/", "headers": {"X-Api-Key": "k1", "x-token": "***"}}
        changed = definition(sent, known, LATER)
        assert (changed.endpoint.headers, changed.dropped_headers) == ({"X-Api-Key": "k1"}, ["x-token"])
        removed = definition({"url": "https://other.example/", "headers": None}, known, LATER)
        assert (removed.endpoint.headers, removed.dropped_headers) == ({}, [])

    def test_what_was_never_there_is_not_made_up(self) -> None:
        known = defined({"headers": KEPT})
        assert refused({"headers": {"x-other-key": "***"}}, known).pointer == "/headers"
        assert defined({"headers": {"x-team": "***"}}, known).headers == {"x-team": "***"}


class TestDisabling:
    def test_on_request(self) -> None:
        found = definition({"status": "disabled"}, defined({}), LATER).endpoint
        assert (found.status, found.disabled_reason, found.disabled_at) == ("disabled", "requested", LATER)
        assert (found.updated_at, found.resumed_at) == (LATER, NOW)

    @pytest.mark.parametrize("reason", ["gone", "failing", "operator"])
    def test_by_what_happened(self, reason: Any) -> None:
        found = endpoints.disabled(defined({}), reason, LATER)
        assert (found.status, found.disabled_reason, found.disabled_at) == ("disabled", reason, LATER)
        assert found.updated_at == LATER

    def test_the_first_reason_stands(self) -> None:
        gone = endpoints.disabled(defined({}), "gone", NOW)
        assert endpoints.disabled(gone, "failing", LATER) == gone
        assert definition({"status": "disabled"}, gone, LATER).endpoint == gone

    def test_other_changes_do_not_resume_it(self) -> None:
        gone = endpoints.disabled(defined({}), "gone", NOW)
        found = definition({"url": "https://other.example"}, gone, LATER).endpoint
        assert (found.status, found.disabled_reason, found.disabled_at) == ("disabled", "gone", NOW)

    @pytest.mark.parametrize("status", ["active", None])
    def test_resuming(self, status: str | None) -> None:
        gone = endpoints.disabled(defined({}), "gone", NOW)
        found = definition({"status": status}, gone, LATER).endpoint
        assert found == endpoints.enabled(gone, LATER)
        assert (found.status, found.disabled_reason, found.disabled_at) == ("active", "", None)
        assert (found.resumed_at, found.updated_at) == (LATER, LATER)

    def test_what_is_active_is_not_resumed(self) -> None:
        known = defined({})
        assert endpoints.enabled(known, LATER) == known
        assert definition({"status": "active"}, known, LATER).endpoint == known


class TestRemoving:
    def test_wipes_secrets_and_headers(self) -> None:
        known = endpoints.disabled(defined(FULL), "gone", NOW)
        found = definition({"status": "removed"}, known, LATER)
        assert not found.needs_secret
        assert found.endpoint.secrets == []
        assert found.endpoint.headers == {}
        assert (found.endpoint.status, found.endpoint.disabled_reason) == ("removed", "")
        assert (found.endpoint.url, found.endpoint.updated_at) == (URL, LATER)

    def test_wipes_what_comes_with_it(self) -> None:
        found = definition({"status": "removed", "headers": {"x-key": "a"}, "signing": "v1"}, defined(FULL))
        assert (found.endpoint.headers, found.needs_secret) == ({}, False)

    @pytest.mark.parametrize(
        "sent",
        [
            {"status": "active"},
            {"status": "removed"},
            {"url": URL},
            {"rotate_secret": True},
            {"x": 1},
            {"status": None},
        ],
    )
    def test_is_final(self, sent: dict[str, Any]) -> None:
        known = defined({"status": "removed"}, defined(FULL))
        found = refused({"id": known.id} | sent, known)
        assert (found.code, found.status, found.pointer) == ("conflict", 409, "/id")

    def test_but_it_can_be_read(self) -> None:
        known = defined({"status": "removed"}, defined(FULL))
        assert definition({"id": known.id}, known, LATER) == EndpointDefinition(known, False, None, OVERLAP)

    def test_nothing_brings_it_back(self) -> None:
        known = defined({"status": "removed"}, defined(FULL))
        assert endpoints.enabled(known, LATER) == endpoints.disabled(known, "operator", LATER) == known

    def test_has_no_secret_to_rotate(self) -> None:
        assert refused({"status": "removed", "rotate_secret": True}, defined({})).pointer == "/rotate_secret"


class TestWillBeDisabled:
    def test_five_days_after_it_began_to_fail(self) -> None:
        assert timedelta(days=5) == DISABLE_AFTER
        assert endpoints.will_be_disabled_at(defined({}), Health(3, LATER, None)) == LATER + 5 * DAY

    def test_counted_from_when_it_was_resumed(self) -> None:
        known = endpoints.enabled(endpoints.disabled(defined({}), "failing", NOW), NOW + 6 * DAY)
        assert endpoints.will_be_disabled_at(known, Health(9, NOW + HOUR, None)) == NOW + 11 * DAY
        assert endpoints.will_be_disabled_at(known, Health(9, NOW + 7 * DAY, None)) == NOW + 12 * DAY

    def test_or_made_where_nothing_else_is_known(self) -> None:
        known = msgspec.structs.replace(defined({}), resumed_at=None)
        assert endpoints.will_be_disabled_at(known, Health(1, NOW - DAY, None)) == NOW + 5 * DAY

    @pytest.mark.parametrize("health", [None, Health(0, None, None), Health(0, None, LATER)])
    def test_not_while_it_is_well(self, health: Health | None) -> None:
        assert endpoints.will_be_disabled_at(defined({}), health) is None

    @pytest.mark.parametrize("status", ["disabled", "removed"])
    def test_not_when_it_is_already(self, status: str) -> None:
        known = definition({"status": status}, defined({})).endpoint
        assert endpoints.will_be_disabled_at(known, Health(3, NOW, None)) is None


class TestShown:
    def test_everything_but_secrets(self) -> None:
        known = defined(FULL | {"signing": "v1"})
        made = new_secret("v1a")
        asymmetric = SigningSecret("sk_2", LATER, "c2VhbGVk", "v1a", made.public)
        known = with_secret(known, asymmetric, HOUR, LATER)
        answer = endpoints.render(known, Health(3, LATER, LATER + HOUR), 7, LATER)
        assert answer == FULL | {
            "id": known.id,
            "account": ACCOUNT,
            "signing": "v1",
            "status": "active",
            "disabled_reason": None,
            "disabled_at": None,
            "health": {
                "consecutive_failures": 3,
                "failing_since": "2026-11-15T09:00:00.000Z",
                "will_be_disabled_at": "2026-11-20T09:00:00.000Z",
                "retry_after_until": "2026-11-15T10:00:00.000Z",
            },
            "held": 7,
            "secrets": [
                {"id": "sk_v1", "created_at": "2026-11-15T08:00:00.000Z", "expires_at": "2026-11-15T10:00:00.000Z"},
                {
                    "id": "sk_2",
                    "created_at": "2026-11-15T09:00:00.000Z",
                    "expires_at": None,
                    "public": made.public,
                },
            ],
            "created_at": "2026-11-15T08:00:00.000Z",
            "updated_at": "2026-11-15T09:00:00.000Z",
        }
        assert "c2VhbGVk" not in str(answer)

    def test_a_secret_whose_overlap_has_ended_is_not_shown(self) -> None:
        known = with_secret(defined(FULL), secret("new", LATER), HOUR, LATER)
        for at, shown in ((LATER + HOUR - timedelta(seconds=1), ["sk_v1a", "sk_new"]), (LATER + HOUR, ["sk_new"])):
            assert [each["id"] for each in endpoints.render(known, None, 0, at)["secrets"]] == shown

    def test_one_that_is_well(self) -> None:
        answer = endpoints.render(defined({}), None, 0, NOW)
        assert answer["health"] == {
            "consecutive_failures": 0,
            "failing_since": None,
            "will_be_disabled_at": None,
            "retry_after_until": None,
        }

    def test_a_retry_after_that_is_over_is_not_shown(self) -> None:
        health = Health(3, LATER, LATER + HOUR)
        assert endpoints.render(defined({}), health, 0, LATER + HOUR)["health"]["retry_after_until"] is None

    def test_one_that_is_disabled(self) -> None:
        answer = endpoints.render(endpoints.disabled(defined({}), "gone", LATER), None, 5, LATER)
        assert (answer["status"], answer["disabled_reason"], answer["held"]) == ("disabled", "gone", 5)
        assert answer["disabled_at"] == "2026-11-15T09:00:00.000Z"
