"""Publishing from Kafka: once, with the offsets in the same commit, and what cannot be published on record."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from gatepost import accounts, settings
from gatepost.core import logging
from gatepost.core.errors import BadSetting, Unavailable
from gatepost.ingest import kafka as bus
from gatepost.ingest import kafka_offsets, kafka_partitions, message
from gatepost.ledger.publishable import Event
from gatepost.run.app import Runtime
from gatepost.settings import KafkaTopics
from gatepost.webhooks import publish
from tests import kafka, service, shards
from tests.docs.pages import HOW_TO, first_column
from tests.kafka import MockCluster
from tests.kafka_consumer import (
    consuming,
    entries,
    event,
    numbers,
    offsets,
    opening,
    refusals,
    set_offset,
    wait_until_read,
)
from tests.receiver import receiver
from tests.service import Client, Service
from tests.waiting import LIMIT, LIMIT_MS, wait_until

SHORT_SESSION = "session.timeout.ms=2000\nheartbeat.interval.ms=300\n"  # so that a dead consumer is noticed soon

pytestmark = pytest.mark.xdist_group("kafka")


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with kafka.running() as found:
        yield found


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Runtime]:
    with opening(tmp_path / "data") as found:
        yield found


@pytest.fixture
def topic(cluster: MockCluster, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with four partitions."""
    return cluster.create(f"own-{abs(hash(request.node.name)):x}", 4)


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "kafka.properties"
    file.write_text(SHORT_SESSION)
    return str(file)


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(
        logging.log, "warning", lambda what, **more: found.append(f"{what}: {more.get('error')}"), raising=False
    )
    return found


def log_lines(directory: Path) -> list[dict[str, Any]]:
    log = (directory.parent / f"{directory.name}.log").read_text()
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


# --- what is published


def subscribe(running: Service, client: Client, url: str) -> None:
    token = running.token(client, "gatepost:endpoints gatepost:subscriptions")
    endpoint = running.post("/webhooks/endpoints", token, {"url": url})
    assert endpoint.status_code == 201, endpoint.text
    body = {"endpoint_id": endpoint.json()["id"], "events": ["invoice.*"]}
    assert running.post("/webhooks/subscriptions", token, body).status_code == 201


def test_a_message_becomes_an_entry_and_is_delivered(cluster: MockCluster, topic: str, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with service.running(directory, bus=cluster.url(topic)) as running, receiver() as received:
        account, client = running.account("acme")
        subscribe(running, client, received.url)
        cluster.publish(topic, event(1), event(2, account))
        headers = {"specversion": "1.0", "id": "3", "source": "/shop", "type": "invoice.paid", "account": "acme"}
        cluster.publish(topic, {"number": 3}, headers=[(f"ce_{name}", value) for name, value in headers.items()])
        structured = headers | {"id": "4", "data": {"number": 4}}
        cluster.publish(topic, structured, headers=[("content-type", "application/cloudevents+json; charset=UTF-8")])
        requests = received.wait_for(4)
        found = entries(running.opened, "acme")
        assert [(entry.actor, entry.matched) for entry in found] == [("kafka", 1)] * 4
        assert {request.headers["webhook-id"] for request in requests} == {entry.name for entry in found}
        assert sorted(json.loads(request.body)["data"]["number"] for request in requests) == [1, 2, 3, 4]
        [checked] = [check for check in running.cli_json("doctor") if check["check"] == "bus"]
        assert (checked["status"], checked["found"]) == ("ok", f"Kafka has {topic}, read by the group {topic}")
        assert running.stop() == 0
    assert sum(cluster.committed(topic).values()) == 4, "a process that ends passes on what it has read"
    assert [each["event"] for each in log_lines(directory) if each["level"] in ("warning", "error")] == []


def test_on_postgresql(cluster: MockCluster, topic: str, postgres_url: str, tmp_path: Path) -> None:
    with service.running(tmp_path / "data", postgres_url, bus=cluster.url(topic)) as running:
        running.account("acme")
        cluster.publish(topic, *(event(number % 50, id=f"id-{number % 50}") for number in range(150)), b"poison")
        wait_until_read(running.opened, cluster, topic)
        assert sorted(numbers(running.opened)) == list(range(50))
        assert len(refusals(running.opened, topic)) == 1
        assert running.stop() == 0


def test_messages_of_a_partition_keep_their_order(opened: Runtime, cluster: MockCluster, topic: str) -> None:
    cluster.publish(topic, *(event(number) for number in range(350)), partition=2)
    with consuming(opened, cluster.servers, topic):
        wait_until_read(opened, cluster, topic)
    assert numbers(opened) == list(range(350))


def test_several_topics(opened: Runtime, cluster: MockCluster, topic: str) -> None:
    first = cluster.create(f"{topic}-1")
    with consuming(opened, cluster.servers, first, topic):
        cluster.publish(first, event(1), event(1, id="same"))
        wait_until(lambda: numbers(opened) == [1, 1], "the first topic")
        cluster.publish(topic, event(1), event(1, id="same"))
        wait_until_read(opened, cluster, topic)
    assert numbers(opened) == [1, 1, 1], "an ID is one event, whichever topic it comes from"


def test_each_message_is_a_span(opened: Runtime, cluster: MockCluster, topic: str) -> None:
    spans: list[tuple[Any, ...]] = []

    class Recorded:
        def record_message(self, *span: Any) -> None:
            spans.append(span)

    cluster.publish(topic, event(1), headers=[("traceparent", b"00-a-b-01")])
    cluster.publish(topic, b"poison")
    with consuming(opened, cluster.servers, topic, traces=Recorded()):
        wait_until(lambda: len(spans) == 2, "two spans")
    assert sorted(spans, key=lambda span: str(span[-1])) == [
        ("kafka", {"traceparent": "00-a-b-01"}, topic, topic, [], ""),
        ("kafka", {}, topic, topic, [], "invalid_request"),
    ]


# --- crashes and rebalances

# Reads until it is killed by itself: after it published three times, either before or after the commit.
CRASHING = """
import asyncio, os, signal, sys
from gatepost import accounts, settings
from gatepost.ingest import kafka, kafka_offsets
from gatepost.run import app

moment, url, config = sys.argv[1:]
runtime = app.open_for_use(settings.load({"bus": url, "bus_config": config}))
advance, report, count = kafka_offsets.advance, kafka.Reader._report, [0]

def die(at):
    count[0] += at == moment
    if count[0] == 3:
        os.kill(os.getpid(), signal.SIGKILL)

def advance_or_die(*arguments):
    advanced = advance(*arguments)
    die("before the commit")
    return advanced

def report_or_die(*arguments):
    die("after the commit")

kafka.BATCH = 7
kafka_offsets.advance, kafka.Reader._report = advance_or_die, report_or_die
source = settings.load({"bus": url}).kafka
asyncio.run(kafka.consume(runtime.store, source, config, asyncio.Event()))
"""


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_killed_around_the_commit(
    opened: Runtime, cluster: MockCluster, topic: str, tmp_path: Path, config: str, moment: str
) -> None:
    """The IDs of events are deleted between two runs, so that only the offsets prevent a second entry."""
    environment = os.environ | service.environment(tmp_path / "data", "")
    cluster.publish(topic, *(event(number) for number in range(100)), partition=0)
    for _ in range(3):
        arguments = [sys.executable, "-c", CRASHING, moment, cluster.url(topic), config]
        assert subprocess.run(arguments, env=environment, timeout=LIMIT, check=False).returncode == -signal.SIGKILL
        with closing(apsw.Connection(str(tmp_path / "data" / "gatepost.db"))) as database:
            database.set_busy_timeout(LIMIT_MS)
            database.execute("DELETE FROM published")
        assert len(numbers(opened)) == sum(offsets(opened, topic).values())
    assert 0 < len(numbers(opened)) < 100
    with consuming(opened, cluster.servers, topic, config=config):
        wait_until_read(opened, cluster, topic)
    assert sorted(numbers(opened)) == list(range(100))


def test_consumers_come_and_go(opened: Runtime, cluster: MockCluster, topic: str, config: str) -> None:
    def some(start: int) -> None:
        cluster.publish(topic, *(event(number) for number in range(start, start + 100)))

    with ExitStack() as second, ExitStack() as first:
        first.enter_context(consuming(opened, cluster.servers, topic, config=config))
        some(0)
        second.enter_context(consuming(opened, cluster.servers, topic, config=config))
        some(100)
        wait_until_read(opened, cluster, topic)
        some(200)
        first.close()
        some(300)
        wait_until_read(opened, cluster, topic)
    assert sorted(numbers(opened)) == list(range(400))


def test_a_consumer_that_lost_a_partition_publishes_nothing(
    opened: Runtime, cluster: MockCluster, topic: str, warnings: list[str]
) -> None:
    with consuming(opened, cluster.servers, topic):
        cluster.publish(topic, event(0), partition=0)
        wait_until_read(opened, cluster, topic)
        set_offset(opened, topic, 1, 3)
        cluster.publish(topic, *map(event, range(1, 5)), partition=0)
        wait_until_read(opened, cluster, topic)
    assert numbers(opened) == [0, 3, 4]
    assert warnings == ["another consumer has read these messages: None"]


def test_the_offsets_in_kafka_decide_nothing(opened: Runtime, cluster: MockCluster, topic: str) -> None:
    cluster.publish(topic, *map(event, range(5)), partition=0)
    cluster.commit(topic, {0: 3})
    with consuming(opened, cluster.servers, topic):
        wait_until_read(opened, cluster, topic)
    assert numbers(opened) == list(range(5))
    assert cluster.committed(topic) == {0: 5, 1: 0, 2: 0, 3: 0}


def test_a_topic_that_was_created_again(opened: Runtime, cluster: MockCluster, topic: str) -> None:
    set_offset(opened, topic, None, 1000)
    cluster.publish(topic, *map(event, range(3)), partition=0)
    with consuming(opened, cluster.servers, topic):
        wait_until_read(opened, cluster, topic)
    assert numbers(opened) == [0, 1, 2]
    [missing] = refusals(opened, topic)
    assert (missing["error"], missing["partition"], missing["offset"]) == ("not_found", 0, 1000)
    assert missing["error_description"].endswith("it ends before the offset 1000; reading continues at 0")


def test_a_topic_that_was_created_again_with_the_same_timestamps(opened: Runtime) -> None:
    """The timestamps are those of the events, and the operator changed the name of the group."""
    for group, bodies in (("first", (event(1), event(2), b"poison")), ("second", (event(1), event(3), b"poison"))):
        with kafka.running() as cluster:
            topic = cluster.create("events")
            cluster.publish(topic, *bodies, timestamp=1_700_000_000_000)
            with consuming(opened, cluster.servers, topic, group=group):
                wait_until(lambda group=group: offsets(opened, "events", group) == {0: 3}, "every message to be read")  # type: ignore[misc]
    assert numbers(opened) == [1, 2, 1, 3]
    assert [each["error"] for each in refusals(opened, "events")] == ["invalid_request"] * 2


def test_messages_that_kafka_deleted_before_any_was_read(
    opened: Runtime, cluster: MockCluster, topic: str, config: str
) -> None:
    """The cluster keeps 5 MB of a partition. Partitions that were assigned while they were empty have a position."""
    with consuming(opened, cluster.servers, topic, config=config):
        wait_until_read(opened, cluster, topic)
    assert offsets(opened, topic) == {0: 0, 1: 0, 2: 0, 3: 0}
    cluster.publish(topic, *map(event, range(10)), *[b"x" * 450_000] * 12, partition=0)
    beginning = cluster.beginnings(topic)[0]
    assert beginning > 0
    with consuming(opened, cluster.servers, topic, config=config):
        wait_until_read(opened, cluster, topic)
    missing = refusals(opened, topic)[0]
    assert (missing["error"], missing["partition"], missing["offset"]) == ("not_found", 0, 0)
    assert f"deleted the messages from offset 0 to {beginning - 1} before" in missing["error_description"]


def test_a_partition_whose_beginning_is_unknown_is_read(
    opened: Runtime, cluster: MockCluster, topic: str, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    """Kafka does not report it in time, for example because the partition has no leader."""
    monkeypatch.setattr(kafka_partitions, "REQUEST_TIMEOUT", 0.0)
    cluster.publish(topic, *map(event, range(3)), partition=0)
    with consuming(opened, cluster.servers, topic):
        wait_until(lambda: numbers(opened) == [0, 1, 2], "the events")
    assert offsets(opened, topic) == {0: 3}
    assert [each.partition(":")[0] for each in warnings] == ["cannot read where partitions begin"]


# --- what cannot be published


def test_poison_is_recorded_once_and_not_looped(
    opened: Runtime, cluster: MockCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[int] = []
    monkeypatch.setattr(logging.log, "error", lambda what, **more: reported.append(more["offset"]), raising=False)
    cluster.publish(topic, event(0, id="taken"), b"poison", None, event(1, "nobody"), partition=0)
    cluster.publish(topic, event(9, id="taken"), event(1), event(1, data="x" * 600_000), partition=0)
    cluster.publish(topic, b"avro", headers=[("content-type", "application/cloudevents+avro")], partition=0)
    cluster.publish(topic, event(2), partition=0)
    with consuming(opened, cluster.servers, topic):
        wait_until_read(opened, cluster, topic)
    assert numbers(opened) == [0, 1, 2]
    found = {each["offset"]: each["error"] for each in refusals(opened, topic)}
    invalid = "invalid_request"
    assert found == {
        1: invalid, 2: invalid, 3: "not_found", 4: "conflict", 6: "request_too_large", 7: "unsupported_media_type"
    }  # fmt: skip
    assert reported == list(found)


def test_a_header_whose_name_is_not_utf_8(opened: Runtime, cluster: MockCluster, topic: str) -> None:
    cluster.publish_header(topic, b"\xff\xfe", json.dumps(event(1)).encode())
    cluster.publish_header(topic, b"any", json.dumps(event(2)).encode())
    with consuming(opened, cluster.servers, topic):
        wait_until_read(opened, cluster, topic)
    assert numbers(opened) == [2]
    assert [each["error_description"] for each in refusals(opened, topic)] == ["the names of headers must be UTF-8"]


def test_messages_that_cannot_be_decompressed(
    opened: Runtime, cluster: MockCluster, topic: str, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client does not decompress more than it may receive. Each message of the batch is refused once."""
    reported: list[int] = []
    monkeypatch.setattr(logging.log, "error", lambda what, **more: reported.append(more["offset"]), raising=False)
    limits = "message.max.bytes=100000\nfetch.max.bytes=100000\nreceive.message.max.bytes=200000\n"
    Path(config).write_text(f"{SHORT_SESSION}{limits}")
    cluster.publish(topic, event(0), partition=0)
    cluster.publish_compressed(topic, *[b"0" * 900_000] * 3, partition=0)
    cluster.publish(topic, event(1), event(2), partition=0)
    cluster.publish(topic, event(3), partition=1)
    with consuming(opened, cluster.servers, topic, config=config):
        wait_until_read(opened, cluster, topic)
    assert sorted(numbers(opened)) == [0, 1, 2, 3]
    assert [(each["partition"], each["offset"]) for each in refusals(opened, topic)] == [(0, 1), (0, 2), (0, 3)]
    assert {each["error"] for each in refusals(opened, topic)} == {"invalid_request"}
    assert reported == [1, 2, 3]


def test_a_defect_keeps_back_one_message_and_not_for_ever(
    opened: Runtime, cluster: MockCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_event, tries = publish.publish_event, []

    def failing_for_one_event(tx: Any, account: Any, event: Event, *arguments: Any) -> Any:
        if '"number":3' in event.data:
            tries.append(event)
            raise LookupError("a defect")
        return publish_event(tx, account, event, *arguments)

    monkeypatch.setattr(publish, "publish_event", failing_for_one_event)
    monkeypatch.setattr(bus, "RETRY_PAUSES", (0.01,))
    cluster.publish(topic, *map(event, range(6)), partition=0)
    with consuming(opened, cluster.servers, topic):
        wait_until_read(opened, cluster, topic)
    assert numbers(opened) == [0, 1, 2, 4, 5]
    [refused] = refusals(opened, topic)
    assert (refused["error"], refused["offset"]) == ("server_error", 3)
    assert len(tries) == publish.MAX_TRIES + 1, "once together with others"


def test_a_commit_takes_no_more_than_enough(
    opened: Runtime, cluster: MockCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message, "MAX_NEW_DELIVERIES", 0)
    monkeypatch.setattr(message, "MAX_BYTES", 1000)
    sizes: list[int] = []

    def counted(tx: Any, messages: list[message.Message]) -> Any:
        sizes.append(len(messages))
        return message.publish_some(tx, messages)

    monkeypatch.setattr(bus, "publish_some", counted)
    cluster.publish(topic, *(event(number, data={"number": number, "x": "x" * 400}) for number in range(10)))
    with consuming(opened, cluster.servers, topic):
        wait_until_read(opened, cluster, topic)
    assert sorted(numbers(opened)) == list(range(10))
    assert max(sizes) <= 2
    assert len(sizes) == 10


# --- outages


@pytest.mark.parametrize("max_bytes", [1, publish.MAX_BYTES], ids=["each in a commit", "in one commit"])
def test_a_database_node_is_down(
    opened: Runtime, cluster: MockCluster, topic: str, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    """The partition waits at the first message for an account on that node. The others are read."""
    monkeypatch.setattr(message, "MAX_BYTES", max_bytes)
    down = shards.add_account_on_node_that_is_down(opened, monkeypatch)
    cluster.publish(topic, event(0), event(1, "down"), event(2), event(3), partition=0)
    cluster.publish(topic, event(10), event(11), partition=1)
    with consuming(opened, cluster.servers, topic):
        wait_until(lambda: offsets(opened, topic) == {0: 1, 1: 2, 2: 0, 3: 0}, "what does not wait")
        cluster.publish(topic, event(4), partition=0)
        cluster.publish(topic, event(12), partition=1)
        wait_until(lambda: offsets(opened, topic) == {0: 1, 1: 3, 2: 0, 3: 0}, "another message that does not wait")
        assert sorted(numbers(opened)) == [0, 10, 11, 12]
        down.clear()
        wait_until_read(opened, cluster, topic)
    assert numbers(opened, "down") == [1]
    assert [number for number in numbers(opened) if number < 10] == [0, 2, 3, 4]
    assert refusals(opened, topic) == []


def test_the_database_node_of_the_operator_is_down(
    opened: Runtime, cluster: MockCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal cannot be recorded there, so a partition waits at the first message that is refused."""
    down = shards.set_node_down(opened, monkeypatch, accounts.OPERATOR)
    set_offset(opened, topic, None, 1000)
    cluster.publish(topic, event(0), partition=0)
    cluster.publish(topic, event(1), b"poison", event(2), partition=1)
    with consuming(opened, cluster.servers, topic):
        wait_until(lambda: offsets(opened, topic) == {0: 1000, 1: 1, 2: 0, 3: 0}, "what does not wait")
        down.clear()
        wait_until_read(opened, cluster, topic)
    assert sorted(numbers(opened)) == [0, 1, 2]
    assert {(each["partition"], each["error"]) for each in refusals(opened, topic)} == {
        (0, "not_found"), (1, "invalid_request")
    }  # fmt: skip


def test_the_store_is_away(cluster: MockCluster, topic: str, tmp_path: Path, config: str) -> None:
    directory = tmp_path / "data"

    def waiting() -> list[Any]:
        return [each for each in log_lines(directory) if each["event"] == "events from Kafka wait for the store"]

    with service.running(directory, bus=cluster.url(topic), bus_config=config) as running:
        running.account("acme")
        cluster.publish(topic, event(0), partition=0)
        wait_until_read(running.opened, cluster, topic)
        with closing(apsw.Connection(str(directory / "gatepost.db"))) as somebody:
            somebody.set_busy_timeout(LIMIT_MS)
            somebody.execute("BEGIN EXCLUSIVE")
            cluster.publish(topic, *map(event, range(1, 300)), partition=0)
            wait_until(lambda: bool(waiting()), "the warning")
            somebody.execute("ROLLBACK")
        wait_until_read(running.opened, cluster, topic)
        assert numbers(running.opened) == list(range(300))
        assert len(waiting()) == 1


def test_the_store_is_away_when_partitions_are_assigned(
    opened: Runtime, cluster: MockCluster, topic: str, config: str, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    load, calls = kafka_offsets.load, []

    def failing_at_first(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise Unavailable("away")
        return load(*arguments)

    monkeypatch.setattr(kafka_offsets, "load", failing_at_first)
    cluster.publish(topic, *map(event, range(5)))
    with consuming(opened, cluster.servers, topic, config=config):
        wait_until(lambda: len(numbers(opened)) == 5, "all of them")
    assert sorted(numbers(opened)) == list(range(5))
    assert warnings == ["events from Kafka wait for the store: away"]


def test_kafka_goes_and_comes_back(tmp_path: Path, opened: Runtime, warnings: list[str]) -> None:
    with kafka.running() as cluster:
        topic = cluster.create("events")
        with consuming(opened, cluster.servers, topic):
            cluster.publish(topic, event(1))
            wait_until_read(opened, cluster, topic)
            cluster.set_reachable(reachable=False)
            wait_until(lambda: bool(warnings), "the warning")
            cluster.set_reachable(reachable=True)
            cluster.publish(topic, event(2))
            wait_until_read(opened, cluster, topic)
    assert numbers(opened) == [1, 2]
    assert [each.partition(":")[0] for each in warnings] == ["cannot read from Kafka"]


def test_it_ends_while_kafka_is_away(opened: Runtime, warnings: list[str]) -> None:
    with consuming(opened, "127.0.0.1:1", "nothing"):
        wait_until(lambda: bool(warnings), "the warning")
    assert "Connection refused" in warnings[0]


def test_a_topic_that_is_created_later(
    opened: Runtime, cluster: MockCluster, config: str, topic: str, warnings: list[str]
) -> None:
    Path(config).write_text("topic.metadata.refresh.interval.ms=100\n" + SHORT_SESSION)
    with consuming(opened, cluster.servers, topic, f"{topic}-later", config=config):
        cluster.publish(topic, event(1))
        wait_until(lambda: bool(warnings) and numbers(opened) == [1], "the topic that exists, and a warning")
        later = cluster.create(f"{topic}-later")
        cluster.publish(later, event(2))
        wait_until_read(opened, cluster, later)
    assert numbers(opened) == [1, 2]
    assert "topic" in warnings[0]


# --- settings


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("kafka://a/events", ("a", ["events"], "gatepost")),
        ("kafka://a:9092,b.c:93/events,Or_d-e.rs?group=own", ("a:9092,b.c:93", ["events", "Or_d-e.rs"], "own")),
        ("kafka://[::1]:9092/events", ("[::1]:9092", ["events"], "gatepost")),
    ],
)  # fmt: skip
def test_right_settings(url: str, expected: tuple[Any, ...]) -> None:
    assert settings.load({"bus": url}, {}).kafka == expected


@pytest.mark.parametrize(
    "url",
    ["a", "nats://a", "kafka://a", "kafka://a/", "kafka:///events", "kafka://a:x/events", "kafka://u:p@a/events",
     "kafka://a,/events", "kafka://a/e,", "kafka://a/^e", "kafka://a/e?group=", "kafka://a/e?x=y", "kafka://a/e#x"],
)  # fmt: skip
def test_wrong_addresses(url: str) -> None:
    with pytest.raises(BadSetting, match=r"^bus: must be kafka://host:port/topic"):
        settings.load({"bus": url}, {})


def test_a_topic_that_is_repeated() -> None:
    with pytest.raises(BadSetting, match=r"^bus: the topic b is repeated"):
        settings.load({"bus": "kafka://a/b,c,b"}, {})


def test_the_extra_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda _name: None)
    assert settings.load({}, {}).bus == ""
    with pytest.raises(BadSetting, match=r"gatepost\[kafka\]"):
        settings.load({"bus": "kafka://a/events"}, {})


def test_the_file_of_properties(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    source = settings.load({"bus": "kafka://a/events", "bus_config": str(file)}, {}).kafka
    assert source is not None
    with pytest.raises(BadSetting, match=r"^bus_config: cannot read .* No such file"):
        bus.configuration(source, str(file))
    file.write_text("# credentials\n\nsasl.username = gatepost\nsasl.password=a=b#c\nsession.timeout.ms=6000\n")
    with pytest.raises(BadSetting, match=r"^bus: required with bus_config"):
        settings.load({"bus_config": str(file)}, {})
    found = bus.configuration(source, str(file))
    assert (found["sasl.username"], found["sasl.password"], found["session.timeout.ms"]) == (
        "gatepost",
        "a=b#c",
        "6000",
    )
    assert (found["bootstrap.servers"], found["group.id"]) == ("a", "gatepost")
    file.write_text("a b")
    with pytest.raises(BadSetting, match=r"^bus_config: line 1 of .* must be name=value"):
        bus.configuration(source, str(file))


@pytest.mark.parametrize(
    "name",
    ["group.id", "group.instance.id", "metadata.broker.list", "topic.blacklist", "isolation.level",
     "auto.commit.enable", "auto.offset.reset", "default.topic.config", "stats_cb"],
)  # fmt: skip
def test_properties_that_decide_what_is_read_cannot_be_set(tmp_path: Path, name: str) -> None:
    file = tmp_path / "kafka.properties"
    source = settings.load({"bus": "kafka://a/events", "bus_config": str(file)}, {}).kafka
    assert source is not None
    file.write_text(f"{name}=x\n")
    with pytest.raises(BadSetting, match=rf"^bus_config: {re.escape(name)} cannot be set"):
        bus.configuration(source, str(file))


def test_the_end_of_a_partition_is_no_error(
    opened: Runtime, cluster: MockCluster, topic: str, config: str, warnings: list[str]
) -> None:
    Path(config).write_text(f"{SHORT_SESSION}enable.partition.eof=true\n")
    with consuming(opened, cluster.servers, topic, config=config):
        cluster.publish(topic, event(1), partition=0)
        wait_until_read(opened, cluster, topic)
        cluster.publish(topic, event(2), partition=0)
        wait_until_read(opened, cluster, topic)
    assert numbers(opened) == [1, 2]
    assert warnings == []


def test_a_property_that_does_not_exist(opened: Runtime, config: str, warnings: list[str]) -> None:
    Path(config).write_text("sasl.pasword=x\n")
    with consuming(opened, "127.0.0.1:1", "nothing", config=config):
        wait_until(lambda: bool(warnings), "the warning")
    assert warnings == ['cannot read from Kafka: No such configuration property: "sasl.pasword"']


def test_what_is_wrong_with_the_topics(cluster: MockCluster, topic: str, config: str) -> None:
    assert bus.problem(KafkaTopics(cluster.servers, [topic], "any"), "") == ""
    assert bus.problem(KafkaTopics(cluster.servers, [topic, "none"], "any"), "").startswith("there is no topic none,")
    assert "Connection refused" in bus.problem(KafkaTopics("127.0.0.1:1", [topic], "any"), "")
    Path(config).write_text("x")
    assert bus.problem(KafkaTopics(cluster.servers, [topic], "any"), config).startswith("bus_config: line 1 of")


def test_the_page_has_the_numbers_of_the_code() -> None:
    page = HOW_TO / "publish-from-kafka.md"
    assert first_column(page, "member", "value") == list(message.MEMBERS)
    assert f"after {bus.DEFAULTS['session.timeout.ms'] // 1000} seconds" in page.read_text()
    assert f"at most {bus.BATCH} messages at a time" in page.read_text()
