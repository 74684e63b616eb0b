"""Publishing from a real Kafka broker, with TLS, SCRAM, transactions, rebalances and deleted messages."""

import json
import os
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from gatepost.ingest import kafka_offsets
from tests import kafka_broker, service
from tests.docs.pages import HOW_TO, blocks
from tests.kafka_broker import Broker
from tests.kafka_consumer import consuming, entries, event, numbers, opening, refusals, wait_until_read
from tests.waiting import LIMIT, wait_until

PAGE = HOW_TO / "publish-from-kafka.md"

pytestmark = pytest.mark.xdist_group("kafka broker")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with kafka_broker.running() as found:
        yield found


@pytest.fixture
def config(broker: Broker, tmp_path: Path) -> str:
    """The properties of the page, and a short session, so that a dead process is noticed soon."""
    [properties] = blocks(PAGE, "properties")
    file = tmp_path / "kafka.properties"
    written = properties.replace("/etc/gatepost/kafka-ca.pem", str(broker.authority))
    file.write_text(f"{written}\nsession.timeout.ms=3000\nheartbeat.interval.ms=500\n")
    return str(file)


def publish_in_transactions(broker: Broker, topic: str, start: int) -> None:
    """Publish 100 events in a transaction, and one that is aborted."""
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": "tests", "log_level": 0})
    producer.init_transactions(LIMIT)
    for numbers_, end in ((range(start, start + 100), producer.commit_transaction), ([-1], producer.abort_transaction)):
        producer.begin_transaction()
        for number in numbers_:
            producer.produce(topic, json.dumps(event(number)), key=str(number))
        assert producer.flush(LIMIT) == 0
        end(LIMIT)


def test_each_event_is_published_once(broker: Broker, tmp_path: Path, config: str) -> None:
    """With the settings, the message and the program of the page."""
    topic = broker.create("events", 3)
    [settings], [body], [program] = blocks(PAGE, "toml"), blocks(PAGE, "json"), blocks(PAGE, "python")
    servers = "kafka-1.example.com:9093,kafka-2.example.com:9093"
    wanted = tomllib.loads(settings.replace(servers, broker.secure)) | {"bus_config": config}
    with service.running(tmp_path / "data", **wanted) as running:
        running.account("acme")
        for start in range(0, 200, 100):
            publish_in_transactions(broker, topic, start)
            wait_until(lambda start=start: len(numbers(running.opened)) > start, "some of them")  # type: ignore[misc]
            for process in running.delivery_processes():
                os.kill(process, signal.SIGKILL)
        broker.publish(topic, b"poison", body.encode())
        exec(compile(program.replace("kafka-1.example.com:9093", broker.servers), PAGE.name, "exec"), {})
        wait_until(lambda: len(entries(running.opened, "default")) == 2, "the events of the page")
        wait_until(lambda: len(numbers(running.opened)) >= 200, "the other events")
        wait_until(lambda: bool(refusals(running.opened, topic)), "the refusal")
        assert sorted(numbers(running.opened)) == list(range(200))
        assert {entry.data for entry in entries(running.opened, "default")} == {'{"invoice":17}', '{"invoice":18}'}
        assert len(refusals(running.opened, topic)) == 1
        assert running.stop() == 0
        read = running.opened.store.read_now(lambda tx: kafka_offsets.load(tx, "gatepost"))
        assert broker.committed(topic, "gatepost") == {each.number: offset for each, offset in read.items()}


def test_messages_that_kafka_deleted(broker: Broker, tmp_path: Path) -> None:
    """While the service was away for longer than Kafka keeps messages."""
    topic = broker.create("short", 1)
    with opening(tmp_path / "data") as opened:
        broker.publish(topic, *map(event, range(10)))
        with consuming(opened, broker.servers, topic):
            wait_until_read(opened, broker, topic)
        broker.publish(topic, *map(event, range(10, 20)))
        broker.delete_before(topic, 15)
        with consuming(opened, broker.servers, topic):
            wait_until_read(opened, broker, topic)
        assert numbers(opened) == [*range(10), *range(15, 20)]
        [missing] = refusals(opened, topic)
    assert missing["error_description"] == (
        "Kafka deleted the messages from offset 10 to 14 before they were read; reading continues at 15"
    )
