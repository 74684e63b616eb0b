"""Fan-out: the subscriptions that an event matches, and events without deliveries."""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gatepost.core import ids
from gatepost.ledger import entries
from gatepost.ledger.entries import Entry, Origin
from gatepost.webhooks import fanout
from gatepost.webhooks.deliveries import Delivery
from gatepost.webhooks.fanout import NO_SUBSCRIBERS, Subscribers
from gatepost.webhooks.subscriptions import Subscription

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
ACCOUNT = ids.new("acc")
A, B = ids.text("ep", b"a" * 16), ids.text("ep", b"b" * 16)


def entry(type_: str = "invoice.paid", data: dict[str, Any] | None = None, subject: str = "") -> Entry:
    return entries.new(
        type_, account=ACCOUNT, origin=Origin("operator"), subject=subject, data=data or {}, at=NOW, keep_days=400
    )


def subscription(endpoint: str, *events: str, **members: Any) -> Subscription:
    return Subscription(ids.new("sub"), ACCOUNT, endpoint, list(events), NOW, NOW, **members)


def deliveries(found: Entry, those: Sequence[Subscription], origin: str = "event") -> list[Delivery]:
    numbers = itertools.count(1)
    to = Subscribers(fanout.subscribers(those, found.type), 30)
    return fanout.fan_out(found, to, lambda: next(numbers).to_bytes(16, "big"), origin)


def receivers(found: Entry, *those: Subscription) -> list[str]:
    return [ids.text("ep", each.endpoint) for each in deliveries(found, those)]


def test_one_delivery_for_each_subscription_also_of_one_endpoint() -> None:
    paid, those = entry(), [subscription(A, "*"), subscription(A, "invoice.*"), subscription(B, "invoice.paid")]
    made = deliveries(paid, those)
    assert [ids.text("sub", each.subscription) for each in made] == [each.id for each in those]
    assert [ids.text("ep", each.endpoint) for each in made] == [A, A, B]
    assert {(each.account, each.event, each.event_type) for each in made} == {
        (ids.raw(ACCOUNT), paid.id, "invoice.paid")
    }
    assert {(each.status, each.keep_days, each.origin) for each in made} == {("pending", 30, "event")}
    assert [each.id for each in made] == [number.to_bytes(16, "big") for number in (1, 2, 3)]


def test_a_replay_is_named_as_the_origin() -> None:
    assert [each.origin for each in deliveries(entry(), [subscription(A, "*")], "replay")] == ["replay"]


@pytest.mark.parametrize(
    ("type_", "patterns", "fits"),
    [
        ("invoice.paid", ["invoice.paid"], True),
        ("invoice.paid", ["invoice.*"], True),
        ("invoice.paid", ["*"], True),
        ("invoice.paid.late", ["invoice.paid"], False),
        ("invoice.paid", ["order.*", "invoice.paid"], True),
        ("oauth.token.issued", ["*"], False),
        ("oauth.token.issued", ["oauth.token.*"], True),
    ],
)
def test_types(type_: str, patterns: list[str], fits: bool) -> None:
    assert receivers(entry(type_), subscription(A, *patterns)) == [A] * fits


@pytest.mark.parametrize("status", ["disabled", "removed"])
def test_only_what_is_active_matches(status: str) -> None:
    assert receivers(entry(), subscription(A, "*", status=status), subscription(B, "*")) == [B]


@pytest.mark.parametrize(
    ("filter_", "fits"),
    [
        ({}, True), ({"/plan": "pro"}, True), ({"/plan": "pro", "/n": 1}, True), ({"/plan": "pro", "/n": 2}, False),
        ({"/plan": "free"}, False), ({"/other": None}, False), ({"/n": True}, False),
    ],
)  # fmt: skip
def test_filters(filter_: dict[str, Any], fits: bool) -> None:
    found = entry(data={"plan": "pro", "n": 1})
    assert receivers(found, subscription(A, "*", filter=filter_), subscription(B, "*")) == [A] * fits + [B]


def test_nobody() -> None:
    assert fanout.fan_out(entry(), NO_SUBSCRIBERS, lambda: b"") == []


class TestNoLoopCanForm:
    """Events about deliveries: never to whom they are about, and never about themselves."""

    @pytest.mark.parametrize(
        ("type_", "subject", "data"),
        [
            ("webhook.endpoint.created", A, {"url": "https://a.example"}),
            ("webhook.endpoint.disabled", A, {"reason": "gone"}),
            ("webhook.subscription.changed", ids.text("sub", b"s" * 16), {"endpoint": A}),
            ("webhook.replay.ended", ids.text("rpl", b"r" * 16), {"endpoint": A}),
            ("webhook.delivery.failed", ids.text("dlv", b"d" * 16), {"endpoint": A, "event_type": "invoice.paid"}),
        ],
    )
    def test_what_is_about_an_endpoint_is_not_sent_to_it(self, type_: str, subject: str, data: dict[str, Any]) -> None:
        those = subscription(A, "webhook.*"), subscription(B, "webhook.*")
        assert receivers(entry(type_, data, subject), *those) == [B]

    @pytest.mark.parametrize("type_", ["webhook.delivery.failed", "webhook.endpoint.disabled"])
    @pytest.mark.parametrize("about", ["webhook.delivery.failed", "webhook.endpoint.disabled", "webhook.replay.ended"])
    def test_failures_of_events_about_deliveries_create_no_deliveries(self, type_: str, about: str) -> None:
        data = {"endpoint": A, "event_type": about}
        assert receivers(entry(type_, data, A), subscription(A, "webhook.*"), subscription(B, "webhook.*")) == []

    def test_platform_events_may_say_what_they_like(self) -> None:
        """Only the service's own data means what it says."""
        found = entry("invoice.paid", {"endpoint": A, "event_type": "webhook.delivery.failed"}, A)
        assert receivers(found, subscription(A, "*"), subscription(B, "*")) == [A, B]


class TestErased:
    """An entry whose data was erased can still be replayed."""

    def test_a_platform_event_fits_no_filter(self) -> None:
        found = entry(data={"plan": "pro"})._replace(data=None, data_hash=b"h" * 32)
        those = subscription(A, "*"), subscription(B, "*", filter={"/plan": "pro"})
        assert receivers(found, *those) == [A]

    def test_an_erased_event_about_deliveries_is_not_sent(self) -> None:
        found = entry("webhook.delivery.failed")._replace(data=None, data_hash=b"h" * 32)
        assert receivers(found, subscription(A, "webhook.*")) == []


def test_data_is_read_as_it_is_kept() -> None:
    found = entry()._replace(data=msgspec.json.encode(["x"]).decode())
    assert receivers(found, subscription(A, "*", filter={"/0": "x"})) == [A]
