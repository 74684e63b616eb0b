"""The service stopped, killed and cut off while attempts are under way: nothing is lost, and it goes on by itself."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import urlsplit

import apsw
import psycopg
import pytest
import requests

from tests import postgres, service
from tests.chaos.load import Threads
from tests.figures import Figures
from tests.flows.test_delivery import Json, Platform
from tests.receiver import OK, Answer, Receiver, Request, receiver
from tests.service import Service
from tests.waiting import LIMIT, wait_until

pytestmark = pytest.mark.xdist_group("drain")


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    """One of our own, since it will not have an easy life."""
    with postgres.running() as found:
        yield found


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return ""
    found: postgres.Server = request.getfixturevalue("server")
    return found.create_database(f"drain_{abs(hash(request.node.name)):x}")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a service puts everything, also what it cannot take away when it is killed."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    return tmp_path / "data"


class Again(Platform):
    """The same account after a new start."""

    def __init__(self, gatepost: Service, before: Platform) -> None:
        self.gatepost, self.name = gatepost, before.name
        self.account, self.client = before.account, before.client
        self.token = gatepost.token(self.client, "gatepost:deliveries gatepost:endpoints gatepost:events")


@contextmanager
def holding_back() -> Iterator[tuple[Receiver, threading.Event]]:
    """Holds all responses until it is released."""
    go = threading.Event()

    def answer(_request: Request) -> Answer:
        while not go.wait(0.05) and not found.ended.is_set():
            pass
        return OK

    with receiver(answer) as found:
        yield found, go


def open_endpoints(platform: Platform, url: str, count: int, **members: Any) -> list[Json]:
    return [platform.connect(f"{url}/{number}", "invoice.*", **members) for number in range(count)]


def outcomes(record: Json) -> list[str]:
    return [each["outcome"] for each in record["attempts"]]


def test_attempts_under_way_are_finished_before_the_end(directory: Path, database: str) -> None:
    with holding_back() as (found, go):
        with service.running(directory, database) as running:
            platform = Platform(running, "drained")
            open_endpoints(platform, found.url, 3)
            first, second = platform.publish(1), platform.publish(2)
            found.wait_for(3)
            [process] = running.delivery_processes()
            running.process.terminate()
            wait_until(lambda: not answers(running), "the listener to close")
            assert Path(f"/proc/{process}").exists(), "it waits for its receivers"
            assert len(found.requests) == 3, "and takes up nothing new"
            under_way = {received(each) for each in found.requests}
            go.set()
            assert running.process.wait(LIMIT) == 0
        with service.running(directory, database) as running:
            again = Again(running, platform)
            records = [again.once(each, "succeeded") for each in first["deliveries"] + second["deliveries"]]
            assert again.is_quiet()
    sent = {(each["event"]["id"], urlsplit(each["endpoint"]["url"]).path): outcomes(each) for each in records}
    assert len(sent) == 6
    assert sorted(received(each) for each in found.requests) == sorted(sent), "each receiver got each event once"
    assert [sent[key] for key in under_way] == [["succeeded"]] * 3, "none was cut off"
    for attempts in sent.values():  # one that was claimed just before draining began is not sent
        assert attempts in (["succeeded"], ["not_sent", "succeeded"])


def received(request: Request) -> tuple[str, str]:
    """The event and the path of the endpoint."""
    return request.headers["webhook-id"], request.headers[":path"]


def answers(running: Service) -> bool:
    try:
        return requests.get(f"{running.url}/oauth/jwks", timeout=LIMIT).ok
    except requests.ConnectionError:
        return False


def test_an_attempt_under_way_has_all_its_time(directory: Path) -> None:
    """None is cut off. How an endpoint fared, and what Retry-After it asked for, holds after the restart too."""
    with holding_back() as (found, go), receiver((503, {"Retry-After": "3600"}, b"")) as failing:
        with service.running(directory) as running:
            platform = Platform(running, "drained")
            open_endpoints(platform, found.url, 2, timeout=14, retry_schedule=[1])
            result = platform.publish(1)
            found.wait_for(2)
            ill = platform.connect(failing.url, "ill.*")
            waiting = platform.once(platform.send(type_="ill.letter"), "pending", 1)
            health = platform.redefine(ill)["health"]
            assert running.stop() == 0
        with service.running(directory) as running:
            again = Again(running, platform)
            assert again.redefine(ill)["health"] == health
            assert again.record(waiting["id"])["retries"] == waiting["retries"]
            found.wait_for(4)
            shown = [again.record(each) for each in result["deliveries"]]
            go.set()
            records = [again.once(each, "succeeded") for each in result["deliveries"]]
    assert health["consecutive_failures"] == 1
    for each in shown:
        assert outcomes(each) == ["failed", None]
        assert each["attempts"][0]["failure"] == "timeout"
    assert [outcomes(each) for each in records] == [["failed", "succeeded"]] * 2
    assert [each["retries"]["remaining"] for each in records] == [0, 0]
    seen = Counter(each.headers["webhook-id"] for each in found.requests)
    assert seen == {result["id"]: 4}, "each request is an attempt on record"


def test_a_delivery_process_that_is_killed_is_started_again(directory: Path, database: str) -> None:
    with holding_back() as (found, go), service.running(directory, database) as running:
        platform = Platform(running, "killed")
        open_endpoints(platform, found.url, 2)
        result = platform.publish(1)
        found.wait_for(2)
        [killed] = running.delivery_processes()
        os.kill(killed, signal.SIGKILL)
        found.wait_for(4)
        go.set()
        records = [platform.once(each, "succeeded") for each in result["deliveries"]]
        [other] = running.delivery_processes()
        assert other != killed
        assert [outcomes(each) for each in records] == [["interrupted", "succeeded"]] * 2
        for each in records:
            assert each["attempts"][0]["worker"] != each["attempts"][1]["worker"]
            assert "gone" in each["attempts"][0]["detail"]
        for delivery in platform.publish(2)["deliveries"]:
            platform.once(delivery, "succeeded")
        assert len(found.requests) == 6
        assert requests.get(f"{running.ops}/readyz", timeout=LIMIT).status_code == 200


def test_an_operations_process_that_is_killed_is_started_again(directory: Path, database: str) -> None:
    with service.running(directory, database, only="web") as running:
        [killed] = running.operations_processes()
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: running.operations_processes() not in ([], [killed]), "another process")
        wait_until(lambda: _is_ready(running), "the operations plane")
        wait_until(lambda: Figures(running.ops)("gatepost_sealed_entries_total") > 0, "a report of the supervisor")


def test_operations_processes_end_last(directory: Path, database: str) -> None:
    """While an attempt is drained, the plane says that the service is stopping, and still shows metrics."""
    with holding_back() as (found, go), service.running(directory, database) as running:
        platform = Platform(running, "draining")
        open_endpoints(platform, found.url, 1)
        platform.publish(1)
        found.wait_for(1)
        running.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not running.web_processes(), "the web processes to end")

        def is_stopping() -> bool:
            answer = requests.get(f"{running.ops}/readyz", timeout=LIMIT)
            return (answer.status_code, answer.json().get("because")) == (503, "the service is stopping")

        wait_until(is_stopping, "the operations plane to report it")
        assert Figures(running.ops)("gatepost_attempts_in_flight") == 1
        go.set()
        assert running.process.wait(LIMIT) == 0


def test_heartbeats_go_on_while_attempts_are_drained(directory: Path, database: str) -> None:
    """Neither the worker nor the node looks dead to others. When they have left, nothing remains of them."""
    with holding_back() as (found, go), service.running(directory, database) as running:
        platform = Platform(running, "beating")
        open_endpoints(platform, found.url, 1, timeout=30)
        platform.publish(1)
        found.wait_for(1)
        running.process.terminate()
        wait_until(lambda: not running.web_processes(), "the web processes to end")
        for _ in range(2):  # the first ones may have been under way
            for table in ("workers", "nodes"):
                before = beats(directory, database, table)
                wait_until(partial(has_beaten, before, directory, database, table), f"a heartbeat in {table}")
                assert len(beats(directory, database, table)) == len(before) == 1
        go.set()
        assert running.process.wait(LIMIT) == 0
    assert beats(directory, database) == beats(directory, database, "nodes") == set()


def test_the_service_stops_while_postgres_stands_still(directory: Path, server: postgres.Server) -> None:
    """It waits for the database, but not for ever."""
    with service.running(directory, server.create_database("drain_still")) as running, server.frozen():
        running.process.terminate()
        assert running.process.wait(LIMIT) == 0
    assert "its connections are closed" in directory.with_name(f"{directory.name}.log").read_text()


def _is_ready(running: service.Service) -> bool:
    with suppress(requests.ConnectionError):
        return requests.get(f"{running.ops}/readyz", timeout=LIMIT).status_code == 200
    return False


def test_several_delivery_processes_share_the_endpoints(directory: Path, database: str) -> None:
    with receiver() as found, service.running(directory, database, deliverers="3") as running:
        assert len(running.delivery_processes()) == 3
        platform = Platform(running, "sharing")
        open_endpoints(platform, found.url, 40)  # so many that each process has some
        wait_until(lambda: len(_workers_used(platform)) == 3, "every process to deliver")
        records = platform.records()
        assert {each["status"] for each in records} <= {"succeeded", "pending"}
        wait_until(platform.is_quiet, "every delivery to end")
        sent = sorted((request.headers["webhook-id"], request.headers[":path"]) for request in found.requests)
        recorded = sorted((each["event"]["id"], urlsplit(each["endpoint"]["url"]).path) for each in platform.records())
        assert sent == recorded, "each was sent once"


def test_delivery_processes_leave_the_attempts_of_each_other_alone(directory: Path, database: str) -> None:
    """Heartbeats find dead workers. Those beside them are alive, however long their attempts take."""
    with holding_back() as (found, go), service.running(directory, database, deliverers="3") as running:
        platform = Platform(running, "beside")
        open_endpoints(platform, found.url, 20)
        wait_until(lambda: len(beats(directory, database)) == 3, "every worker to register")
        made = platform.publish(1)["deliveries"]
        found.wait_for(20)
        for _ in range(2):
            before = beats(directory, database)
            assert len(before) == 3
            wait_until(partial(has_beaten, before, directory, database), "a heartbeat of each worker")
        go.set()
        records = [platform.once(each, "succeeded") for each in made]
    assert [outcomes(each) for each in records] == [["succeeded"]] * 20
    assert len(found.requests) == 20


def beats(directory: Path, database: str, table: LiteralString = "workers") -> set[tuple[bytes, int]]:
    """The workers, or the nodes, and the times of their last heartbeats."""
    query: LiteralString = f"SELECT id, beat_at FROM {table}"
    if database:
        with psycopg.connect(database) as connection:
            return set(connection.execute(query).fetchall())
    with closing(apsw.Connection(str(directory / "gatepost.db"), flags=apsw.SQLITE_OPEN_READONLY)) as file:
        return set(file.execute(query))


def has_beaten(
    before: set[tuple[bytes, int]], directory: Path, database: str, table: LiteralString = "workers"
) -> bool:  # fmt: skip
    return before.isdisjoint(beats(directory, database, table))


def _workers_used(platform: Platform) -> set[str]:
    for delivery in platform.publish(1)["deliveries"]:
        platform.once(delivery, "succeeded")
    return {attempt["worker"] for each in platform.records() for attempt in each["attempts"]}


class Publishing(Threads):
    """Threads that publish one event after the other, each until it is accepted."""

    def __init__(self, platform: Platform, threads: int = 2) -> None:
        super().__init__(partial(self._publish, number) for number in range(threads))
        self._platform = platform
        self.accepted: list[Json] = []
        self.unexpected: list[str] = []

    def wait_for(self, more: int) -> None:
        wanted = len(self.accepted) + more
        wait_until(lambda: len(self.accepted) >= wanted, f"{more} more events")

    def _publish(self, thread: int) -> None:
        headers = {"Authorization": f"Bearer {self._platform.token}"}
        number = 0
        with requests.Session() as session:
            while not self._stop.is_set():
                event = {"specversion": "1.0", "id": str(number), "source": f"/{thread}", "type": "invoice.paid"}
                url = f"{self._platform.gatepost.ops}/events"
                answer = session.post(url, json=event, headers=headers, timeout=LIMIT)
                if answer.status_code == 200:
                    self.accepted.append(answer.json())
                    number += 1
                elif answer.status_code != 503:
                    self.unexpected.append(answer.text)
                    return
                self._stop.wait(0.02)


def test_postgres_restarted_while_events_come_and_go(directory: Path, server: postgres.Server) -> None:
    """What was accepted was accepted with its deliveries, and all of them end."""
    with receiver() as found, service.running(directory, server.create_database("drain_restarted")) as running:
        platform = Platform(running, "restarted")
        open_endpoints(platform, found.url, 2, max_in_flight=8)
        processes = running.delivery_processes()
        with Publishing(platform) as publishing:
            for _ in range(2):
                publishing.wait_for(60)
                server.restart("immediate")
            publishing.wait_for(60)
        assert publishing.unexpected == []
        wait_until(platform.is_quiet, "every delivery to end")
        records = platform.records()
        entries = platform.entries("invoice.paid")
        assert running.delivery_processes() == processes, "they mended by themselves"
    events = {each["id"] for each in publishing.accepted}
    assert len(publishing.accepted) == len(events), "each accepted once"
    assert events <= {each["event"]["id"] for each in records}
    made = Counter(each["event"]["id"] for each in records)
    assert set(made.values()) == {2}
    assert {each["matched"] for each in entries} == {2}
    assert {each["status"] for each in records} == {"succeeded"}
    seen = Counter((each.headers["webhook-id"], each.headers[":path"]) for each in found.requests)
    where = {url: f"/hooks/{number}" for number, url in enumerate([f"{found.url}/0", f"{found.url}/1"])}
    for each in records:
        times = seen.pop((each["event"]["id"], where[each["endpoint"]["url"]]))
        assert 1 <= times <= len(each["attempts"]), "no request without an attempt on record"
    assert not seen
