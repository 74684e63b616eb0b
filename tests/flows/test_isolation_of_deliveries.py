"""Slow, dead or flooded receivers do not affect others, and no receiver gets more than its limits."""

import threading
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing, contextmanager

import apsw
import psycopg
import pytest

from tests.flows.test_delivery import Platform
from tests.receiver import OK, Answer, Raw, Receiver, Request, receiver, silent
from tests.service import Service
from tests.waiting import wait_until


@pytest.fixture
def platform(gatepost: Service, account_name: str) -> Platform:
    return Platform(gatepost, account_name)


@pytest.fixture
def one_store(sqlite_gatepost: Service, account_name: str) -> Platform:
    return Platform(sqlite_gatepost, account_name)


def test_many_that_never_answer_do_not_hold_up_one_that_does(platform: Platform) -> None:
    dead, each_has, count = 32, 20, 60  # together more than there are slots
    with receiver(Raw(silent)) as hole, receiver() as found:
        for number in range(dead):
            platform.connect(f"{hole.url}/{number}", "dead.*", timeout=30, retry_schedule=[])
        platform.connect(found.url, "good.*")
        platform.send_many(each_has, "dead.letter")
        hole.wait_for(dead)
        platform.send_many(count, "good.letter")
        found.wait_for(count)
        wait_until(lambda: len(platform.records(event_type="good.letter", status="succeeded")) == count, "its records")
        hanging = platform.records(event_type="dead.letter", status="in_flight")
        assert len({each["endpoint"]["id"] for each in hanging}) == dead, "they all still hang"
        assert len(hole.requests) == len(hanging) == dead, "one at a time each"
        for each in platform.read(view="endpoints", limit="200").json()["data"]:
            if hole.url in each["url"]:
                platform.redefine(each, status="removed")


@contextmanager
def busy(pause: float) -> Iterator[tuple[Receiver, list[int]]]:
    """Takes so long for each request. The numbers are how many it had in hand when each came."""
    lock, in_hand, seen = threading.Lock(), 0, list[int]()

    def answer(_request: Request) -> Answer:
        nonlocal in_hand
        with lock:
            in_hand += 1
            seen.append(in_hand)
        found.ended.wait(pause)
        with lock:
            in_hand -= 1
        return OK

    with receiver(answer) as found:
        yield found, seen


def test_a_backlog_of_one_account_does_not_hold_up_another(platform: Platform) -> None:
    """Its first event comes while most of the other's wait."""
    backlog, first = 2000, 20
    neighbour = Platform(platform.gatepost, f"{platform.name}-neighbour")
    with busy(0.05) as (slow, _), receiver() as found:
        flooded = platform.connect(slow.url, "invoice.*", max_in_flight=16)
        same_account = platform.connect(found.url, "small.*")
        neighbour.connect(f"{found.url}/neighbour")
        platform.send_many(backlog)
        slow.wait_for(first)
        neighbour.send()
        platform.send(type_="small.thing")
        found.wait_for(2)
        assert len(slow.requests) < backlog // 2, "the backlog is still there"
        shown = {each["id"]: each for each in platform.read(view="endpoints").json()["data"]}
        assert shown[same_account["id"]]["health"]["consecutive_failures"] == 0
        platform.redefine(flooded, status="removed")
        wait_until(platform.is_quiet, "the backlog to be cancelled")
    ended = platform.read(view="summary").json()["total"]["deliveries"]["ended"]
    assert ended["delivered"] + ended["endpoint_removed"] == backlog + 1


def test_no_more_at_once_than_the_endpoint_takes(one_store: Platform) -> None:
    with busy(0.02) as (found, seen):
        one_store.connect(found.url, max_in_flight=3)
        one_store.send_many(40)
        found.wait_for(40)
        wait_until(lambda: len(one_store.records(status="succeeded")) == 40, "all of them")
    assert max(seen) == 3
    waited = {each["attempts"][0]["waited"]["for"] for each in one_store.records()}
    assert "window" in waited


def test_no_more_in_a_second_than_the_endpoint_takes(one_store: Platform) -> None:
    with receiver() as found:
        one_store.connect(found.url, rate_limit=10)
        one_store.send_many(25)
        times = sorted(each.at for each in found.wait_for(25))
        wait_until(lambda: len(one_store.records(status="succeeded")) == 25, "all of them")
    within = [bisect_left(times, at + 1) - number for number, at in enumerate(times)]
    assert max(within) <= 15, "by the receiver's clock; some may have met on the way"
    waited = [each["attempts"][0]["waited"]["for"] for each in one_store.records()]
    assert waited.count("rate_limit") > 10


@contextmanager
def old_snapshot(gatepost: Service) -> Iterator[None]:
    """Somebody reads the store for as long as this lasts."""
    if gatepost.database:
        with psycopg.connect(gatepost.database) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT count(*) FROM queue")
            yield
        return
    with closing(apsw.Connection(str(gatepost.directory / "gatepost.db"))) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM queue").fetchall()
        yield


def test_a_long_report_does_not_stop_deliveries(platform: Platform) -> None:
    count = 600
    with receiver() as found, old_snapshot(platform.gatepost):
        platform.connect(found.url, max_in_flight=64)
        for _ in range(3):
            platform.send_many(count // 3)
        found.wait_for(count)
        wait_until(lambda: len(platform.records(status="succeeded")) == count, "their records")
