"""Replays: retained events are sent again as new deliveries, by a job whose progress the API returns."""

import json
from collections import Counter

import pytest

from gatepost.core import clock, ids
from tests.flows.test_delivery import Json, Platform
from tests.receiver import Answer, Receiver, Request, receiver
from tests.service import Service
from tests.waiting import wait_until


@pytest.fixture
def platform(gatepost: Service, account_name: str) -> Platform:
    return Platform(gatepost, account_name)


@pytest.fixture
def one_store(sqlite_gatepost: Service, account_name: str) -> Platform:
    return Platform(sqlite_gatepost, account_name)


def replayed(platform: Platform, subscription: Json, **replay: object) -> Json:
    """Return the progress of the replay when it has ended."""
    begun = platform.redefine(subscription, replay=replay)["replay"]
    assert begun["id"].startswith("rpl_")
    assert begun["state"] in ("running", "ended")
    wait_until(lambda: platform.redefine(subscription)["replay"]["state"] == "ended", "the replay to end")
    shown: Json = platform.redefine(subscription)["replay"]
    assert shown["id"] == begun["id"]
    return shown


def all_delivered(platform: Platform, count: int) -> None:
    wait_until(lambda: len(platform.records(status="succeeded")) == count, f"{count} to be delivered")


def test_a_span_of_time_is_sent_again(platform: Platform) -> None:
    with receiver() as found:
        endpoint = platform.endpoint(found.url)
        subscription = platform.subscription(endpoint, "invoice.*", filter={"/big": True})
        reported = [platform.publish({"n": number, "big": number != 2}) for number in range(5)]
        platform.publish({"big": True}, "other.type")
        all_delivered(platform, 4)
        since, until = reported[1]["at"], reported[3]["at"]
        shown = replayed(platform, subscription, **{"from": since, "until": until})
        within = [each for each in reported if since <= each["at"] <= until and each["matched"]]
        assert {reported[1]["id"], reported[3]["id"]} <= {each["id"] for each in within}, "of one millisecond are all"
        assert (shown["made"], shown["from"], shown["until"]) == (len(within), since, until)
        assert shown["examined"] >= 3
        all_delivered(platform, 4 + len(within))
        seen = Counter(each.headers["webhook-id"] for each in found.requests)
    again = [each for each in platform.records() if each["trigger"] == "replay"]
    assert sorted(each["event"]["id"] for each in again) == sorted(each["id"] for each in within)
    assert not {each["id"] for each in again} & {each["deliveries"][0] for each in reported if each["deliveries"]}
    for each in reported:
        assert seen[each["id"]] == (each["matched"] + 1 if each in within else each["matched"])
    bodies = {(each.headers["webhook-id"], each.body) for each in found.requests}
    assert len(bodies) == 4, "the same event is the same body"


def test_only_what_failed(platform: Platform) -> None:
    def picky(request: Request) -> Answer:
        fails = broken and json.loads(request.body)["data"] % 2
        return (500, {}, b"") if fails else (200, {}, b"")

    broken = True
    with receiver(picky) as found:
        endpoint = platform.endpoint(found.url, retry_schedule=[])
        subscription = platform.subscription(endpoint, "invoice.*")
        reported = [platform.publish(number) for number in range(6)]
        wait_until(lambda: len(platform.records(status="failed")) == 3, "three to fail")
        all_delivered(platform, 3)
        broken = False
        shown = replayed(platform, subscription, only="failed")
        assert (shown["made"], shown["only"]) == (3, "failed")
        all_delivered(platform, 6)
    again = [each["event"]["id"] for each in platform.records() if each["trigger"] == "replay"]
    assert again == [each["id"] for each in reported[1::2]]
    failed = platform.records(status="failed")
    assert [each["event"]["id"] for each in failed] == again, "what failed stays on record"
    [started] = platform.entries("webhook.replay.started")
    [ended] = platform.entries("webhook.replay.ended")
    assert started["subject"] == ended["subject"] == shown["id"]
    assert (ended["data"]["made"], ended["data"]["examined"]) == (3, shown["examined"])


def test_events_by_their_ids(platform: Platform) -> None:
    with receiver() as found:
        endpoint = platform.endpoint(found.url)
        subscription = platform.subscription(endpoint, "invoice.*")
        reported = [platform.publish(number) for number in range(3)]
        other = platform.publish(3, "other.type")
        all_delivered(platform, 3)
        named = [reported[2]["id"], reported[0]["id"], other["id"], ids.new("evt")]
        shown = replayed(platform, subscription, event_ids=named)
        assert (shown["made"], shown["examined"], shown["event_ids"]) == (2, 3, named)
        all_delivered(platform, 5)
        again = [json.loads(each.body)["data"] for each in found.requests[3:]]
    assert sorted(again) == [0, 2], "and not what the subscription does not match"


def test_a_new_subscription_gets_what_was_before_it_and_nothing_is_cut_short(platform: Platform) -> None:
    """More events than one slice of the job, published before the subscription existed."""
    count = 450
    platform.send_many(count)
    with receiver() as found:
        endpoint = platform.endpoint(found.url, max_in_flight=64)
        subscription = platform.subscription(endpoint, "*", replay={"from": "2020-01-01T00:00:00Z"})
        assert subscription["replay"]["state"] in ("running", "ended")
        live = platform.publish("live")
        found.wait_for(count + 1)
        wait_until(lambda: platform.redefine(subscription)["replay"]["state"] == "ended", "the replay to end")
        shown = platform.redefine(subscription)["replay"]
        all_delivered(platform, count + 1)
    assert shown["made"] == count, "what came after it was asked for is delivered once, as an event"
    assert shown["examined"] >= count
    seen = Counter(each.headers["webhook-id"] for each in found.requests)
    assert set(seen.values()) == {1}
    triggers = {each["event"]["id"]: each["trigger"] for each in platform.records()}
    assert triggers.pop(live["id"]) == "event"
    assert set(triggers.values()) == {"replay"}


def test_a_replay_to_an_endpoint_that_is_paused_is_held(one_store: Platform) -> None:
    with receiver() as found:
        endpoint = one_store.endpoint(found.url)
        subscription = one_store.subscription(endpoint, "*")
        result = one_store.publish()
        all_delivered(one_store, 1)
        one_store.redefine(endpoint, status="disabled")
        replayed(one_store, subscription, event_ids=[result["id"]])
        [held] = one_store.records(status="held")
        assert held["trigger"] == "replay"
        one_store.redefine(endpoint, status="active")
        one_store.once(held["id"], "succeeded")


def check_refused(found: Receiver, platform: Platform, subscription: Json) -> None:
    body = {"id": subscription["id"], "replay": {"from": clock.rfc3339(clock.now())}}
    assert "final" in platform.post("/webhooks/subscriptions", body, 409)["detail"]
    assert found.requests == []


@pytest.mark.parametrize("gone", ["endpoint", "subscription"])
def test_what_is_removed_gets_no_replay(one_store: Platform, gone: str) -> None:
    with receiver() as found:
        endpoint = one_store.endpoint(found.url)
        subscription = one_store.subscription(endpoint, "*")
        one_store.redefine({"endpoint": endpoint, "subscription": subscription}[gone], status="removed")
        check_refused(found, one_store, subscription)
