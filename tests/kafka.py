"""Kafka for tests, on loopback: the cluster that librdkafka has for its own tests, and a producer.

The cluster is in the library of the `confluent-kafka` wheel and runs in threads of the test process. Its groups and
offsets work as those of a broker. It keeps no message on disk.
"""

import ctypes
import importlib.metadata
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.waiting import LIMIT

Header = tuple[str, bytes | str | None]


@dataclass
class Cluster:
    """A Kafka cluster: the address of its servers, and what tests do with it."""

    servers: str

    def url(self, topic: str) -> str:
        """The topic and a group of its own: the group of another test may wait for members that are gone."""
        return f"kafka://{self.servers}/{topic}?group={topic}"

    def publish(
        self,
        topic: str,
        *bodies: Any,
        headers: Sequence[Header] = (),
        partition: int = -1,
        key: str | None = None,
        timestamp: int = 0,
    ) -> None:
        """Publish messages, as JSON unless they are bytes or None, and wait until the cluster has them."""
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for body in bodies:
            value = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            producer.produce(
                topic, value=value, key=key, headers=list(headers), partition=partition, timestamp=timestamp
            )
        assert producer.flush(LIMIT) == 0

    def publish_compressed(self, topic: str, *bodies: bytes, partition: int) -> None:
        """Publish messages in one compressed batch."""
        options = {"compression.type": "zstd", "linger.ms": 1000, "message.max.bytes": 10_000_000, "log_level": 0}
        producer = Producer({"bootstrap.servers": self.servers, **options})
        for body in bodies:
            producer.produce(topic, value=body, partition=partition)
        assert producer.flush(LIMIT) == 0

    def ends(self, topic: str) -> dict[int, int]:
        """The offset after the last message of each partition."""
        return {number: end for number, (_, end) in self._watermarks(topic).items()}

    def beginnings(self, topic: str) -> dict[int, int]:
        """The offset of the first message of each partition."""
        return {number: beginning for number, (beginning, _) in self._watermarks(topic).items()}

    def _watermarks(self, topic: str) -> dict[int, tuple[int, int]]:
        with self._consumer(topic) as consumer:
            partitions = consumer.list_topics(topic, timeout=LIMIT).topics[topic].partitions
            return {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=LIMIT)
                for number in partitions
            }

    def committed(self, topic: str, group: str = "") -> dict[int, int]:
        """The offsets that the group has committed in Kafka, without partitions that have none."""
        partitions = [TopicPartition(topic, number) for number in self.ends(topic)]
        with self._consumer(group or topic) as consumer:
            committed = consumer.committed(partitions, timeout=LIMIT)
        return {each.partition: each.offset for each in committed if each.offset >= 0}

    def commit(self, topic: str, offsets: dict[int, int]) -> None:
        """Commit offsets for the group, as an operator's tool does."""
        with self._consumer(topic) as consumer:
            consumer.commit(offsets=[TopicPartition(topic, *each) for each in offsets.items()], asynchronous=False)

    @contextmanager
    def _consumer(self, group: str) -> Iterator[Consumer]:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        try:
            yield consumer
        finally:
            consumer.close()


@dataclass
class MockCluster(Cluster):
    """librdkafka's own cluster."""

    handle: int

    def create(self, topic: str, partitions: int = 1) -> str:
        assert _library().rd_kafka_mock_topic_create(self.handle, topic.encode(), partitions, 1) == 0
        return topic

    def set_reachable(self, reachable: bool) -> None:
        """Close the connections of the broker and refuse new ones, or accept them again."""
        act = _library().rd_kafka_mock_broker_set_up if reachable else _library().rd_kafka_mock_broker_set_down
        assert act(self.handle, 1) == 0

    def publish_header(self, topic: str, name: bytes, body: bytes) -> None:
        """Publish a message with a header whose name no client of Python would send."""
        library = _library()
        producer = _client(self.servers)
        headers = library.rd_kafka_headers_new(1)
        assert library.rd_kafka_header_add(headers, name, len(name), b"x", 1) == 0
        fields = (_Field * 3)()
        fields[0].kind, fields[0].value.text = 1, topic.encode()
        fields[1].kind, fields[1].value.memory = 4, _Memory(body, len(body))
        fields[2].kind, fields[2].value.pointer = 10, headers
        assert library.rd_kafka_produceva(producer, fields, 3) is None
        assert library.rd_kafka_flush(producer, int(LIMIT * 1000)) == 0
        library.rd_kafka_destroy(producer)


@contextmanager
def running() -> Iterator[MockCluster]:
    """A new cluster with one broker, whose groups do not wait for further members."""
    library = _library()
    client = _client("")
    handle = library.rd_kafka_mock_cluster_new(client, 1)
    library.rd_kafka_mock_group_initial_rebalance_delay_ms(handle, 0)
    try:
        yield MockCluster(library.rd_kafka_mock_cluster_bootstraps(handle).decode(), handle)
    finally:
        library.rd_kafka_mock_cluster_destroy(handle)
        library.rd_kafka_destroy(client)


# --- librdkafka


class _Memory(ctypes.Structure):
    _fields_ = (("text", ctypes.c_char_p), ("size", ctypes.c_size_t))


class _Value(ctypes.Union):
    _fields_ = (
        ("text", ctypes.c_char_p),
        ("pointer", ctypes.c_void_p),
        ("memory", _Memory),
        ("padding", ctypes.c_char * 64),
    )


class _Field(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("value", _Value))


@cache
def _library() -> ctypes.CDLL:
    """The library in the wheel, with the types of its functions: first the result, then the arguments."""
    files = importlib.metadata.files("confluent-kafka") or []
    path = next(Path(str(each.locate())) for each in files if each.name.startswith("librdkafka"))
    library = ctypes.CDLL(str(path.resolve()))
    pointer, text, size, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
    for name, result, *arguments in (
        ("conf_new", pointer),
        ("conf_set", number, pointer, text, text, text, size),
        ("new", pointer, number, pointer, text, size),
        ("destroy", None, pointer),
        ("flush", number, pointer, number),
        ("headers_new", pointer, size),
        ("header_add", number, pointer, text, ctypes.c_ssize_t, text, ctypes.c_ssize_t),
        ("produceva", pointer, pointer, pointer, size),
        ("mock_cluster_new", pointer, pointer, number),
        ("mock_cluster_destroy", None, pointer),
        ("mock_cluster_bootstraps", text, pointer),
        ("mock_group_initial_rebalance_delay_ms", None, pointer, ctypes.c_int32),
        ("mock_topic_create", number, pointer, text, number, number),
        ("mock_broker_set_down", number, pointer, ctypes.c_int32),
        ("mock_broker_set_up", number, pointer, ctypes.c_int32),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def _client(servers: str) -> int:
    library, problem = _library(), ctypes.create_string_buffer(256)
    configuration = library.rd_kafka_conf_new()
    for name, value in (("bootstrap.servers", servers), ("log_level", "0")):
        if value:
            assert library.rd_kafka_conf_set(configuration, name.encode(), value.encode(), problem, 256) == 0
    client = library.rd_kafka_new(0, configuration, problem, 256)
    assert client, problem.value
    return int(client)
