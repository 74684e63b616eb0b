"""GET /webhooks/deliveries on every store: records, cursors, the summary and the endpoints of an account."""

from base64 import urlsafe_b64decode
from datetime import datetime, timedelta
from string import ascii_letters
from typing import Any

import msgspec
import pytest

from gatepost import accounts
from gatepost.accounts import Account, account_rows
from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.ledger.operations import Answer
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx
from gatepost.webhooks import delivery_rows, health_rows, summary, tallies
from gatepost.webhooks import listing as units
from gatepost.webhooks import listing_query as listing
from gatepost.webhooks.deliveries import Attempt, AttemptDocument
from gatepost.webhooks.listing import Query
from gatepost.webhooks.listing_query import DeliveryFilter
from tests.contract import make
from tests.contract.backends import FakeClock
from tests.contract.listed import SERVICE, START, World, choices, expected_ids


@pytest.fixture
def world(store: Store, account: str) -> World:
    return World(store, account)


def ask(store: Store, account: str, **asked: Any) -> dict[str, Any]:
    found = store.read_now(lambda tx: units.answer(tx, SERVICE, whole(tx, account), Query(**asked)))
    assert isinstance(found, Answer), found
    return found.body


def ask_all(store: Store, account: str, **asked: Any) -> list[list[dict[str, Any]]]:
    """The data of every page, to the end."""
    pages = []
    cursor: str | None = ""
    while cursor is not None:
        body = ask(store, account, cursor=cursor, **asked)
        pages.append(body["data"])
        cursor = body["next_cursor"]
    return pages


def ask_badly(store: Store, account: str, query: Query) -> str:
    """The parameter that is named as wrong."""
    found = store.read_now(lambda tx: units.answer(tx, SERVICE, whole(tx, account), query))
    assert isinstance(found, Refusal), query
    assert found.code == "invalid_request"
    return found.detail.partition(":")[0]


def whole(tx: Tx, account: str) -> Account:
    found = account_rows.load(tx, account)
    assert found is not None
    return found


def test_records_are_whole(world: World, account: str) -> None:
    entry = world.store.run_now(lambda tx: make.record(tx, account, amount=5))
    world.events = [entry.id]
    world.deliver(30)
    done = next(each for each in world.made if each.status == "failed")
    document = AttemptDocument(
        START, START, START + 9, "https://receiver.example", ["sk_1"], "plan", 0, "wrk_1", response="no"
    )
    attempt = Attempt(world.raw, done.id, 1, "failed", msgspec.json.encode(document).decode())
    world.store.run_now(lambda tx: delivery_rows.add_attempts(tx, [attempt]))
    found = {each["id"]: each for each in ask(world.store, account)["data"]}
    assert list(found) == [ids.text("dlv", each.id) for each in reversed(world.made)]
    assert [each["status"] for each in found.values()] == [each.status for each in reversed(world.made)]
    assert {each["event"]["at"] for each in found.values()} == {clock.rfc3339(clock.from_milliseconds(entry.at))}
    record = found[ids.text("dlv", done.id)]
    assert [each["number"] for each in record["attempts"]] == [1]
    assert "response" not in record["attempts"][0]
    assert "payload" not in record
    both = frozenset({"payload", "responses"})
    [record] = ask(world.store, account, filters=DeliveryFilter(id=done.id), include=both)["data"]
    assert record["attempts"][0]["response"] == "no"
    assert record["payload"]["data"] == {"amount": 5}


def test_a_retry_after_of_the_endpoint_shows(world: World, account: str, watch: FakeClock) -> None:
    world.deliver(60, ended=0.0)
    key = (world.raw, ids.raw(world.endpoints[0].id))
    later = START + 10 * 86_400_000
    world.store.run_now(lambda tx: health_rows.add_failures(tx, key, 1, START, later))
    result = ask(world.store, account, filters=DeliveryFilter(status="pending"), limit=200)["data"]
    for each in result:
        waits = each["endpoint"]["id"] == world.endpoints[0].id
        assert (each["retries"]["plan"][0]["because"] == "retry_after") == waits
        assert (each["retries"]["next_at"] == clock.rfc3339(clock.from_milliseconds(later))) == waits


def test_a_subscription_is_found_by_its_endpoint(world: World, account: str) -> None:
    world.deliver(60)
    filters = DeliveryFilter(subscription=ids.raw(world.subscriptions[0].id))
    expected = [ids.text("dlv", each) for each in expected_ids(world.made, filters, newest=True)]
    assert expected
    assert [each["id"] for each in ask(world.store, account, filters=filters)["data"]] == expected
    for other in (
        filters._replace(endpoint=ids.raw(world.endpoints[1].id)),
        DeliveryFilter(subscription=ids.new_raw()),
    ):
        assert ask(world.store, account, filters=other) == {"data": [], "next_cursor": None}


def test_payloads_fill_a_page_early(world: World, account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = world.store.run_now(lambda tx: make.record(tx, account, text="x" * 1000))
    world.events = [entry.id]
    world.deliver(10)
    monkeypatch.setattr(units, "MAX_PAYLOAD", 2500)
    pages = ask_all(world.store, account, include=frozenset({"payload"}))
    assert [len(page) for page in pages] == [2] * 5
    found = [each["id"] for page in pages for each in page]
    assert found == [ids.text("dlv", each.id) for each in reversed(world.made)]
    monkeypatch.setattr(units, "MAX_PAYLOAD", 10)
    assert len(ask(world.store, account, include=frozenset({"payload"}))["data"]) == 1


def test_a_cursor_is_for_one_account_one_view_and_the_same_filters(
    world: World, store: Store, account: str, watch: FakeClock
) -> None:
    world.deliver(40)
    other = accounts.new("other", watch())
    assert store.run_now(lambda tx: account_rows.add(tx, other))
    World(store, other.id, 2).deliver(40)
    filters = DeliveryFilter(event_type="invoice.paid")
    cursor = ask(store, account, filters=filters, limit=3)["next_cursor"]
    assert ask(store, account, filters=filters, limit=5, cursor=cursor)["data"]
    assert ask(store, account, filters=filters, include=frozenset({"payload"}), cursor=cursor)["data"]

    def refused(account: str, **asked: Any) -> None:
        assert ask_badly(store, account, Query(**asked)) == "cursor"

    refused(other.id, filters=filters, cursor=cursor)
    refused(account, cursor=cursor)
    refused(account, filters=filters, newest=False, cursor=cursor)
    refused(account, filters=filters, view="endpoints", cursor=cursor)
    for name, values in choices(world).items():
        if name != "event_type":
            refused(account, filters=filters._replace(**{name: values[0]}), cursor=cursor)
    for place in range(len(cursor)):
        changed = "A" if cursor[place] != "A" else "B"
        refused(account, filters=filters, cursor=cursor[:place] + changed + cursor[place + 1 :])
    alike = [cursor[:-1] + char for char in ascii_letters if char != cursor[-1]]
    alike = [each for each in alike if urlsafe_b64decode(each + "=") == urlsafe_b64decode(cursor + "=")]
    for bad in (alike[0], cursor[:-1], cursor + "A", cursor + "=", " ", "ü", "A", "A" * 129, cursor.upper()):
        refused(account, filters=filters, cursor=bad)


def test_a_cursor_by_due_time(world: World, account: str) -> None:
    world.deliver(60)
    filters = DeliveryFilter(due_before=1 << 47)
    for newest in (True, False):
        pages = ask_all(world.store, account, filters=filters, newest=newest, limit=7)
        assert [ids.parse("dlv", each["id"]) for page in pages for each in page] == expected_ids(
            world.made, filters, newest=newest
        )


def test_the_summary_of_an_account(world: World, account: str, watch: FakeClock) -> None:
    world.deliver(50)
    hour = clock.seconds(watch()) // 3600 * 3600
    key = (world.raw, ids.raw(world.endpoints[0].id))
    world.store.run_now(lambda tx: tallies.add(tx, key, "ended delivered", count=3))
    body = ask(world.store, account, view="summary")
    assert len(body["data"]) == 25 if clock.seconds(watch()) % 3600 else 24
    last = body["data"][-1]
    assert last["start"] == clock.rfc3339(clock.from_milliseconds(hour * 1000))
    assert last["deliveries"]["ended"]["delivered"] == body["total"]["deliveries"]["ended"]["delivered"] == 3
    for name in listing.UNFINISHED:
        assert body["now"][name] == sum(each.status == name for each in world.made)
    assert body["now"]["counted_to"] == 10_000
    oldest = next(each for each in world.made if each.unfinished)
    assert body["now"]["oldest_pending_at"] == clock.rfc3339(ids.made_at(oldest.id))
    assert len(ask(world.store, account, view="summary", interval="day")["data"]) in (30, 31)


def test_the_summary_of_an_endpoint(world: World, account: str, watch: FakeClock) -> None:
    """By the minute, by the hour and by the day, before and after minutes become hours."""
    world.deliver(60)
    now = watch.at.replace(hour=12, minute=30)
    first, other, held = (ids.raw(endpoint.id) for endpoint in world.endpoints)
    names = ("attempt 2xx", "ms 30", "ended delivered")
    for minutes, raw in ((0, first), (1, first), (61, first), (61, other), (170, first), (24 * 60, first)):
        watch.at = now - timedelta(minutes=minutes)
        world.store.run_now(lambda tx, raw=raw: tallies.add(tx, (world.raw, raw), "made", count=7))  # type: ignore[misc]
        world.store.run_now(lambda tx, raw=raw: tallies.add(tx, (world.raw, raw), *names))  # type: ignore[misc]
    watch.at = now
    oldest = tallies.oldest_minute(now)

    def made(endpoint: bytes, interval: Any, hours: int = 0) -> list[int]:
        after = clock.milliseconds(now - timedelta(hours=hours)) if hours else None
        filters = DeliveryFilter(endpoint=endpoint, created_after=after)
        body = ask(world.store, account, view="summary", interval=interval, filters=filters)
        parts = [part["deliveries"]["made"] for part in body["data"]]
        assert sum(parts) == body["total"]["deliveries"]["made"] == 7 * body["total"]["attempts"]["2xx"]
        assert body["total"]["duration_ms"]["p50"] == (round(summary.middle(30), 2) if sum(parts) else None)
        return [count for count in parts if count]

    def roll_up(before: int) -> None:
        world.store.run_now(lambda tx: tallies.add_logged(tx, 500))
        world.store.run_now(lambda tx: tallies.roll_up_endpoints(tx, before, 500))

    for before in (oldest - 3600, oldest, oldest + 2 * 3600):
        assert made(first, "minute") == [7, 7]
        assert made(first, "minute", 3) == [7, 7, 7, 7]
        assert made(other, "minute", 3) == [7]
        assert made(first, "hour") == [7, 7, 7, 14]
        assert made(first, "day") == [7, 28]
        assert made(held, "day") == []
        roll_up(before)
    assert made(first, "hour") == [7, 7, 7, 14]
    assert made(first, "minute", 3) == [7, 7, 7]  # the first of them is in an hour by now
    for endpoint in world.endpoints:
        filters = DeliveryFilter(endpoint=ids.raw(endpoint.id))
        body = ask(world.store, account, view="summary", filters=filters)
        mine = [each for each in world.made if each.delivery.endpoint == filters.endpoint and each.unfinished]
        for name in listing.UNFINISHED:
            assert body["now"][name] == sum(each.status == name for each in mine)
        assert body["now"]["oldest_pending_at"] == clock.rfc3339(ids.made_at(min(each.id for each in mine)))


def test_ranges_by_the_minute(world: World, account: str, watch: FakeClock) -> None:
    """At most three hours, of which the counts by the minute are still there."""
    now, hour = clock.milliseconds(watch.at), 3_600_000
    for filters, count in (
        (DeliveryFilter(), 60), (DeliveryFilter(created_after=now - 3 * hour), 180),
        (DeliveryFilter(created_after=now - 3 * hour, created_before=now - hour), 120),
        (DeliveryFilter(created_after=now - 2 * hour, created_before=now + hour), 180),
    ):  # fmt: skip
        body = ask(world.store, account, view="summary", interval="minute", filters=filters)
        assert len(body["data"]) in (count, count + 1)
    for filters in (
        DeliveryFilter(created_after=now - 3 * hour - 1), DeliveryFilter(created_before=now - 4 * hour),
        DeliveryFilter(created_after=now), DeliveryFilter(created_after=now, created_before=now - hour),
    ):  # fmt: skip
        assert ask_badly(world.store, account, Query(filters, "summary", interval="minute")) == "created_after"


NO_RANGES = [
    DeliveryFilter(created_after=START, created_before=START),
    DeliveryFilter(created_after=1 << 47),
    DeliveryFilter(created_after=0),
    DeliveryFilter(created_before=-(10**13)),
    DeliveryFilter(created_after=START, created_before=START + 3_600_000 * 1001),
]


@pytest.mark.parametrize("filters", NO_RANGES)
def test_ranges_that_no_summary_has(world: World, account: str, filters: DeliveryFilter) -> None:
    assert ask_badly(world.store, account, Query(filters, "summary")) == "created_after"


def test_the_endpoints_of_an_account(world: World, account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of their creation, without removed endpoints."""
    world.deliver(60)
    gone = world.endpoint("removed")
    monkeypatch.setattr(units, "_BATCH", 2)
    more = [world.endpoint("active") for _ in range(3)]
    expected = [each.id for each in (*world.endpoints, *more)]
    assert gone.id not in expected
    for limit in (1, 2, 5, 6, 200):
        pages = ask_all(world.store, account, view="endpoints", limit=limit)
        assert max(len(page) for page in pages) <= limit
        found = [each for page in pages for each in page]
        assert [each["id"] for each in found] == expected
    first = found[0]
    assert [each["id"] for each in first["subscriptions"]] == [each.id for each in world.subscriptions[:2]]
    held = [each for each in world.made if each.status == "held"]
    assert {each.delivery.endpoint for each in held} == {ids.raw(world.endpoints[2].id)}
    assert (first["held"], found[2]["held"]) == (0, len(held))


def test_what_happens_at_an_endpoint(world: World, account: str, watch: FakeClock) -> None:
    since = clock.milliseconds(watch.at) - 600_000
    world.deliver(60, since=since)
    keys = [(world.raw, ids.raw(endpoint.id)) for endpoint in world.endpoints]

    def attempts(endpoint: int, code: str, count: int) -> None:
        world.store.run_now(lambda tx: tallies.add(tx, keys[endpoint], f"attempt {code}", "ms 9", count=count))
        if code != "2xx":
            world.store.run_now(lambda tx: health_rows.add_failures(tx, keys[endpoint], count, since, 0))

    def shown() -> list[dict[str, Any]]:
        data: list[dict[str, Any]] = ask(world.store, account, view="endpoints")["data"]
        return data

    assert [each["condition"] for each in shown()] == ["healthy", "healthy", "disabled"]
    attempts(0, "5xx", 5)
    attempts(1, "2xx", 94)
    attempts(1, "5xx", 5)
    first, second, third = shown()
    assert (first["condition"], second["condition"], third["condition"]) == ("failing", "degraded", "disabled")
    assert second["recent"]["attempts"]["5xx"] == 5
    assert second["recent"]["duration_ms"]["p50"] == round(summary.middle(9), 2)
    seconds = (watch.at - datetime.fromisoformat(second["recent"]["since"])).total_seconds()
    assert second["recent"]["attempts_per_second"] == pytest.approx(99 / seconds, abs=0.001)
    assert third["recent"]["attempts_per_second"] == 0
    attempts(1, "2xx", 1)
    assert shown()[1]["condition"] == "healthy"
    for key, rendered in zip(keys, shown(), strict=True):
        mine = [each for each in world.made if each.delivery.endpoint == key[1]]
        unfinished = [each for each in mine if each.unfinished]
        assert rendered["waiting"] == len(unfinished)
        due = min(each.queued.due for each in unfinished)
        assert rendered["oldest_due_at"] == clock.rfc3339(clock.from_milliseconds(due))
        last = max(mine, key=lambda each: each.id)
        assert rendered["last_delivery"]["id"] == ids.text("dlv", last.id)
        assert rendered["last_delivery"]["response_code"] == last.delivery.last_code
    until = clock.milliseconds(watch.at) + 600_000
    world.store.run_now(lambda tx: health_rows.add_failures(tx, keys[0], 0, None, until))
    assert shown()[0]["oldest_due_at"] == clock.rfc3339(clock.from_milliseconds(until)), "with its Retry-After"
    watch.forward(timedelta(days=8))
    later = shown()[1]
    assert (later["condition"], later["last_delivery"]) == ("failing", None)
    assert (later["recent"]["attempts_per_second"], later["recent"]["attempt_success_ratio"]) == (0, None)
