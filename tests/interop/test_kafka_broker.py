"""Publishing from a real Kafka broker, with TLS, SCRAM, transactions, rebalances and deleted messages."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests import kafka_broker, service
from tests.kafka_broker import Broker
from tests.kafka_consumer import consuming, event, numbers, offsets, opening, refusals, wait_until_read
from tests.waiting import LIMIT, wait_until

pytestmark = pytest.mark.xdist_group("kafka broker")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with kafka_broker.running() as found:
        yield found


@pytest.fixture
def config(broker: Broker, tmp_path: Path) -> str:
    file = tmp_path / "kafka.properties"
    file.write_text(
        "security.protocol=SASL_SSL\n"
        f"ssl.ca.location={broker.authority}\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.username={kafka_broker.USER}\n"
        f"sasl.password={kafka_broker.PASSWORD}\n"
        "session.timeout.ms=3000\n"
        "heartbeat.interval.ms=500\n"
    )
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
    topic = broker.create("events", 3)
    url = f"kafka://{broker.secure}/{topic}?group={topic}"
    with service.running(tmp_path / "data", bus=url, bus_config=config) as running:
        running.account("acme")
        for start in range(0, 200, 100):
            publish_in_transactions(broker, topic, start)
            wait_until(lambda start=start: len(numbers(running.opened)) > start, "some of them")  # type: ignore[misc]
            for process in running.delivery_processes():
                os.kill(process, signal.SIGKILL)
        broker.publish(topic, b"poison", *(event(number) for number in range(200, 220)))
        wait_until(lambda: len(numbers(running.opened)) >= 220 and bool(refusals(running.opened, topic)), "all of them")
        assert sorted(numbers(running.opened)) == list(range(220))
        assert len(refusals(running.opened, topic)) == 1
        assert running.stop() == 0
        assert broker.committed(topic) == offsets(running.opened, topic), "the lag is visible in Kafka"


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
