"""Failed deliveries are retried as the API plans them, until they succeed or all attempts are made."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gatepost.core import clock
from gatepost.verify import verify
from tests import service
from tests.flows.test_delivery import Json, Platform, arrived, instant
from tests.receiver import OK, Answer, Behaviour, Connection, Raw, receiver, silent
from tests.service import Service
from tests.waiting import LIMIT

SOON = timedelta(seconds=10)  # for a busy machine: what comes by the plan comes within this


@pytest.fixture
def platform(gatepost: Service, account_name: str) -> Platform:
    return Platform(gatepost, account_name)


@pytest.fixture
def one_store(sqlite_gatepost: Service, account_name: str) -> Platform:
    return Platform(sqlite_gatepost, account_name)


def bad(code: int, **headers: str) -> Answer:
    return code, {name.replace("_", "-"): value for name, value in headers.items()}, b"no"


# --- by the plan


def test_it_is_tried_again_as_planned_until_it_is_taken(platform: Platform) -> None:
    shown: list[Json] = []
    with receiver([bad(503), bad(500), OK]) as found:
        endpoint = platform.connect(found.url, retry_schedule=[1, 1])
        delivery = platform.send({"amount": 1})
        for number in (1, 2):
            found.wait_for(number)
            shown.append(platform.once(delivery, "pending", number))
        requests = found.wait_for(3)
        record = platform.once(delivery, "succeeded")
    for made, each in enumerate(shown):
        retries = each["retries"]
        assert [planned["number"] for planned in retries["plan"]] == [2, 3][made:]
        assert [planned["because"] for planned in retries["plan"]] == ["schedule", "schedule"][made:]
        assert (retries["made"], retries["remaining"]) == (made, 2 - made)
        assert retries["next_at"] == retries["plan"][0]["at"] == record["attempts"][made + 1]["planned_at"]
        wait = instant(retries["next_at"]) - instant(each["attempts"][made]["ended_at"])
        assert timedelta(seconds=0.9) <= wait <= timedelta(seconds=1.1)
        planned_at = instant(retries["next_at"])
        assert planned_at - timedelta(milliseconds=100) <= arrived(requests[made + 1]) < planned_at + SOON
    assert [each["response_code"] for each in record["attempts"]] == [503, 500, 200]
    assert [each["outcome"] for each in record["attempts"]] == ["failed", "failed", "succeeded"]
    assert [each["number"] for each in record["attempts"]] == [1, 2, 3]
    assert record["retries"] == {"made": 2, "remaining": 0, "next_at": None, "plan": []}
    assert len(requests) == 3
    assert len({each.headers["webhook-id"] for each in requests}) == len({each.body for each in requests}) == 1
    for request, attempt in zip(requests, record["attempts"], strict=True):
        assert verify(endpoint["secret"], request.headers, request.body)
        assert int(request.headers["webhook-timestamp"]) == int(instant(attempt["started_at"]).timestamp())
    counted = platform.read(view="summary", interval="minute", endpoint_id=endpoint["id"]).json()["total"]
    assert (counted["deliveries"]["made"], counted["deliveries"]["ended"]["delivered"]) == (1, 1)
    assert (counted["attempts"]["5xx"], counted["attempts"]["2xx"]) == (2, 1)
    assert (counted["success_ratio"], counted["attempt_success_ratio"]) == (1.0, 0.333333)


def test_a_delivery_fails_after_all_attempts_and_an_event_reports_it(platform: Platform) -> None:
    with receiver(bad(500)) as found, receiver() as watcher:
        endpoint = platform.connect(found.url, retry_schedule=[1])
        watching = platform.connect(watcher.url, "webhook.delivery.failed")
        result = platform.publish()
        record = platform.once(result["deliveries"][0], "failed")
        [request] = watcher.wait_for(1)
        assert len(found.requests) == 2
    assert (record["ended_reason"], len(record["attempts"])) == ("attempts_exhausted", 2)
    assert record["retries"] == {"made": 1, "remaining": 0, "next_at": None, "plan": []}
    assert record["ended_at"] == record["attempts"][-1]["ended_at"]
    [entry] = platform.entries("webhook.delivery.failed")
    assert (entry["subject"], entry["matched"]) == (record["id"], 1)
    assert entry["data"] == {
        "endpoint": endpoint["id"],
        "event": result["id"],
        "event_type": "invoice.paid",
        "ended_reason": "attempts_exhausted",
        "attempts": 2,
        "response_code": 500,
        "failure": None,
    }
    body = verify(watching["secret"], request.headers, request.body)
    assert (body["id"], body["type"], body["data"]) == (entry["id"], entry["type"], entry["data"])


def test_a_schedule_that_changed_counts_from_the_next_planning(one_store: Platform) -> None:
    with receiver(bad(500)) as found:
        endpoint = one_store.connect(found.url, retry_schedule=[2, 3600, 3600])
        delivery = one_store.send()
        before = one_store.once(delivery, "pending", 1)["retries"]
        one_store.redefine(endpoint, retry_schedule=[3600, 1])
        after = one_store.record(delivery)["retries"]
        record = one_store.once(delivery, "failed")
    assert after["next_at"] == before["next_at"] == record["attempts"][1]["planned_at"], "as it was planned"
    assert (before["remaining"], after["remaining"]) == (3, 2)
    later = [instant(each["plan"][1]["at"]) - instant(each["next_at"]) for each in (before, after)]
    assert later[0] > timedelta(seconds=3000)
    assert timedelta(seconds=0.9) <= later[1] <= timedelta(seconds=1.1)
    assert len(record["attempts"]) == 3


def test_the_accounts_schedule_holds_where_the_endpoint_has_none(sqlite_gatepost: Service, account_name: str) -> None:
    platform = Platform(sqlite_gatepost, account_name, "retry_schedule=1")
    with receiver(bad(500)) as found:
        platform.connect(found.url)
        assert len(platform.once(platform.send(), "failed")["attempts"]) == 2


def test_a_url_that_changed_is_the_next_attempts(one_store: Platform) -> None:
    with receiver(bad(500)) as old, receiver() as new:
        endpoint = one_store.connect(old.url, retry_schedule=[1])
        delivery = one_store.send()
        one_store.once(delivery, "pending", 1)
        one_store.redefine(endpoint, url=new.url, headers={"X-Moved": "yes"})
        record = one_store.once(delivery, "succeeded")
        assert (len(old.requests), len(new.requests)) == (1, 1)
    assert [each["url"] for each in record["attempts"]] == [old.url, new.url]
    assert record["endpoint"]["url"] == new.url
    assert new.requests[0].headers["x-moved"] == "yes"
    assert new.requests[0].headers["webhook-id"] == old.requests[0].headers["webhook-id"]


# --- what the receiver asks for


@pytest.mark.parametrize("code", [429, 503])
def test_retry_after_is_for_the_whole_endpoint(one_store: Platform, code: int) -> None:
    with receiver([bad(code, Retry_After="2"), OK]) as found, receiver() as other:
        endpoint = one_store.connect(found.url, "invoice.*", retry_schedule=[1])
        one_store.connect(other.url, "other.*")
        first = one_store.send()
        record = one_store.once(first, "pending", 1)
        second = one_store.send()
        third = one_store.send(type_="other.happened")
        waiting = one_store.record(second)["retries"]
        one_store.once(third, "succeeded")
        assert len(found.requests) == 1, "another endpoint is not held up"
        [attempt] = record["attempts"]
        until = instant(attempt["ended_at"]) + timedelta(seconds=2)
        assert instant(record["retries"]["next_at"]) == until == instant(waiting["next_at"])
        assert record["retries"]["plan"][0]["because"] == waiting["plan"][0]["because"] == "retry_after"
        assert attempt["retry_after"] == "2"
        health = one_store.redefine(endpoint)["health"]
        assert (health["consecutive_failures"], instant(health["retry_after_until"])) == (1, until)
        found.wait_for(3)
        ended = [one_store.once(each, "succeeded") for each in (first, second)]
        assert all(arrived(each) >= until - timedelta(milliseconds=100) for each in found.requests[1:])
    assert ended[1]["attempts"][0]["waited"]["for"] == "retry_after"
    assert ended[1]["attempts"][0]["waited"]["ms"] > 500
    assert one_store.redefine(endpoint)["health"]["consecutive_failures"] == 0


@pytest.mark.parametrize("asked", ["-1", "0", "soon", "Wed, 21 Oct 2015 07:28:00 GMT", "1e3", "٣"])
def test_what_asks_for_nothing_follows_the_plan(one_store: Platform, asked: str) -> None:
    def say(connection: Connection) -> None:
        connection.read()
        connection.send(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nRetry-After: " + asked.encode() + b"\r\n\r\n")

    with receiver(Raw(say)) as found:
        one_store.connect(found.url, retry_schedule=[60])
        record = one_store.once(one_store.send(), "pending", 1)
    assert record["attempts"][0]["retry_after"] == asked.encode().decode("latin-1")
    assert record["retries"]["plan"][0]["because"] == "schedule"


@pytest.mark.parametrize(("members", "seconds"), [({}, 3600), ({"max_retry_after": 86_400}, 86_400)])
def test_retry_after_is_limited_by_the_endpoint(one_store: Platform, members: dict[str, int], seconds: int) -> None:
    with receiver(bad(429, Retry_After="315360000")) as found:
        one_store.connect(found.url, retry_schedule=[60], **members)
        record = one_store.once(one_store.send(), "pending", 1)
    wait = instant(record["retries"]["next_at"]) - instant(record["attempts"][0]["ended_at"])
    assert wait == timedelta(seconds=seconds)


def test_410_disables_the_endpoint_and_resuming_delivers_the_others(platform: Platform) -> None:
    with receiver([bad(410), OK]) as found, receiver() as watcher:
        endpoint = platform.connect(found.url, "invoice.*")
        platform.connect(watcher.url, "webhook.endpoint.*")
        gone = platform.once(platform.send(1), "failed")
        held = [platform.send(number) for number in (2, 3)]
        assert [platform.record(each)["status"] for each in held] == ["held", "held"]
        shown = platform.redefine(endpoint)
        assert (shown["status"], shown["disabled_reason"], shown["held"]) == ("disabled", "gone", 2)
        watcher.wait_for(1)
        resumed = platform.redefine(endpoint, status="active")
        assert (resumed["status"], resumed["disabled_reason"], resumed["held"]) == ("active", None, 0)
        for each in held:
            platform.once(each, "succeeded")
        watcher.wait_for(2)
        assert sorted(json.loads(each.body)["data"] for each in found.requests) == [1, 2, 3]
    assert (gone["ended_reason"], len(gone["attempts"])) == ("endpoint_gone", 1)
    [entry] = platform.entries("webhook.endpoint.disabled")
    assert (entry["subject"], entry["data"]["reason"]) == (endpoint["id"], "gone")
    assert [each["data"]["ended_reason"] for each in platform.entries("webhook.delivery.failed")] == ["endpoint_gone"]
    assert {json.loads(each.body)["type"] for each in watcher.requests} == {
        "webhook.endpoint.disabled", "webhook.endpoint.enabled",
    }  # fmt: skip


# --- what went wrong


@contextmanager
def address_without_listener() -> Iterator[str]:
    """An address without a listener."""
    with receiver() as found:
        url = found.url
    yield url


@contextmanager
def at(behaviour: Behaviour) -> Iterator[str]:
    with receiver(behaviour) as found:
        yield found.url


@pytest.mark.parametrize(
    ("where", "failure", "code", "words"),
    [
        (lambda: at(bad(302, Location="http://127.0.0.1:9/")), "redirect", 302, "not followed"),
        (lambda: at(Raw(silent)), "timeout", None, "no complete response within 1 s"),
        (address_without_listener, "connect", None, "refused"),
    ],
)
def test_what_went_wrong_is_said(
    platform: Platform, where: Callable[[], Any], failure: str, code: int | None, words: str
) -> None:
    with where() as url:
        platform.connect(url, retry_schedule=[], timeout=1)
        record = platform.once(platform.send(), "failed")
        [attempt] = record["attempts"]
        assert (attempt["failure"], attempt["response_code"], attempt["outcome"]) == (failure, code, "failed")
        assert words in attempt["detail"]
        assert record["ended_reason"] == "attempts_exhausted"
        assert [each["id"] for each in platform.records(failure=failure)] == [record["id"]]


def test_a_redirect_is_not_followed(one_store: Platform) -> None:
    with receiver() as elsewhere, receiver(bad(307, Location=elsewhere.url)) as found:
        one_store.connect(found.url, retry_schedule=[1])
        record = one_store.once(one_store.send(), "failed")
        assert (len(found.requests), elsewhere.connections) == (2, 0)
    assert [each["failure"] for each in record["attempts"]] == ["redirect", "redirect"]


def test_what_a_kept_connection_swallowed_is_one_failed_attempt(one_store: Platform) -> None:
    """The receiver answers once, reads the next request on the same connection and closes it without a word."""

    def swallow(connection: Connection) -> None:
        connection.read()
        connection.answer(OK)
        if connection.number == 1:
            connection.read()

    with receiver(Raw(swallow)) as found:
        endpoint = one_store.connect(found.url, retry_schedule=[])
        one_store.once(one_store.send(1), "succeeded")
        record = one_store.once(one_store.send(2), "succeeded")
        health = one_store.redefine(endpoint)["health"]
        assert [json.loads(each.body)["data"] for each in found.requests] == [1, 2, 2]
        assert found.connections == 2
    assert [each["failure"] for each in record["attempts"]] == ["first_byte", None]
    assert [each["because"] for each in record["attempts"]] == ["event", "connection_closed"]
    assert health["consecutive_failures"] == 0


def test_a_receiver_that_closes_every_connection_sees_a_request_twice_at_most(one_store: Platform) -> None:
    def swallow(connection: Connection) -> None:
        if connection.read() and connection.number == 1:
            connection.answer(OK)
            connection.read()

    with receiver(Raw(swallow)) as found:
        one_store.connect(found.url, retry_schedule=[])
        one_store.once(one_store.send(1), "succeeded")
        record = one_store.once(one_store.send(2), "failed")
        assert [json.loads(each.body)["data"] for each in found.requests] == [1, 2, 2]
    assert [(each["because"], each["outcome"]) for each in record["attempts"]] == [
        ("event", "failed"), ("connection_closed", "failed"),
    ]  # fmt: skip
    assert record["ended_reason"] == "attempts_exhausted"


def test_an_attempt_is_on_record_while_it_is_under_way(platform: Platform) -> None:
    """Written before the socket is opened: the receiver has not even answered yet."""
    go = threading.Event()

    def answer(_request: Any) -> Answer:
        go.wait(LIMIT)
        return OK

    with receiver(answer) as found:
        platform.connect(found.url, retry_schedule=[60])
        delivery = platform.send()
        found.wait_for(1)
        record = platform.record(delivery)
        go.set()
        ended = platform.once(delivery, "succeeded")
    [open_] = record["attempts"]
    assert (record["status"], open_["number"], open_["outcome"], open_["ended_at"]) == ("in_flight", 1, None, None)
    assert record["retries"]["next_at"] is None
    assert [each["number"] for each in record["retries"]["plan"]] == [2], "if it fails"
    [closed] = ended["attempts"]
    same = ("number", "planned_at", "started_at", "url", "signed_with", "waited", "worker")
    assert {name: closed[name] for name in same} == {name: open_[name] for name in same}


# --- clocks

_SKEWED = """
import sys
if "gatepost.run.delivery_process" in sys.orig_argv:
    from datetime import timedelta
    from gatepost.core import clock
    right = clock.now
    clock.now = lambda: right() + timedelta(minutes={minutes})
"""


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_worker_whose_clock_is_wrong(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    """Due times are the database's: nothing comes ten minutes early or late."""
    (tmp_path / "skew").mkdir()
    (tmp_path / "skew" / "sitecustomize.py").write_text(_SKEWED.format(minutes=minutes))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'skew'}{os.pathsep}{Path(clock.__file__).parents[1]}")
    with service.running(tmp_path / "data", postgres_url) as running, receiver([bad(500), OK]) as found:
        platform = Platform(running, "skewed")
        platform.connect(found.url, retry_schedule=[2])
        record = platform.once(platform.send(), "succeeded")
        times = [arrived(each) for each in found.requests]
    assert times[1] - times[0] > timedelta(seconds=1.5)
    for attempt, at_ in zip(record["attempts"], times, strict=True):
        assert abs(instant(attempt["started_at"]) - at_) < timedelta(minutes=1)
    assert abs(clock.now() - instant(record["ended_at"])) < timedelta(minutes=1)
