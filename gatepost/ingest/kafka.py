"""Publishes events from topics of Kafka. Offsets are stored in the same commit as the entries of the ledger.

The offset in the store decides what is read next. A conditional write advances it, so a consumer that lost a partition
without noticing publishes nothing. Kafka gets a copy of the offsets, for its tools to show the lag.

The client blocks, so one thread does everything. It reads no further while the store commits, and it leaves the group
while the store is unavailable, because a process on another machine may still reach the store.
"""

import asyncio
import contextlib
import operator
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Record

from gatepost.core.errors import BadSetting, GatepostError, Refusal, Unavailable
from gatepost.core.logging import log
from gatepost.ingest import kafka_message, kafka_offsets
from gatepost.ingest.kafka_offsets import Partition
from gatepost.ingest.kafka_partitions import REQUEST_TIMEOUT, Partitions, describe
from gatepost.ingest.message import (
    Message,
    Outcome,
    Position,
    Unit,
    Unreachable,
    parts,
    publish_some,
    record_refusal,
    refuse_all,
)
from gatepost.settings import KafkaTopics
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx
from gatepost.webhooks.publish import MAX_TRIES, Published

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

BATCH = 100  # messages at a time
POLL = 0.5  # seconds to wait for a message, and to notice that the process stops
STOP_TIMEOUT = 8.0  # seconds to finish the current work
RETRY_PAUSES = (0.5, 1.0, 2.0, 5.0)  # seconds before the next try; the last one repeats

DEFAULTS: dict[str, Any] = {
    "client.id": "gatepost",
    "session.timeout.ms": 15_000,  # after which the partitions of a process that crashed go to another
    "queued.max.messages.kbytes": 16 * 1024,  # that the client fetches ahead
    "topic.metadata.refresh.interval.ms": 60_000,  # after which a new topic or partition is noticed
}
FIXED: dict[str, Any] = {
    "enable.auto.commit": True,  # of the offsets that are passed to store_offsets
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # nothing is skipped without a record
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "range,roundrobin",
    "group.protocol": "classic",
    "log_level": 0,  # errors are reported to error_cb
}
_RESERVED = re.compile(  # what decides which messages are read, other names of it, and what is not text
    r"bootstrap\.servers|metadata\.broker\.list|group\.id|group\.instance\.id|topic\.blacklist|auto\.commit\.enable"
    r"|default\.topic\.config|\w+_cb"
)
_OUTAGES = (KafkaException, BadSetting)
_NO_BROKER = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 (the client's own errors have such names)
_OUT_OF_RANGE = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 (the same)
_END = KafkaError._PARTITION_EOF  # noqa: SLF001 (the same; reported with the property enable.partition.eof)
_UNREADABLE = (KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG)  # noqa: SLF001 (the same)


class _Fenced(GatepostError):
    """Another consumer has published messages of this partition."""


class Received(NamedTuple):
    """A message with its place in Kafka."""

    partition: Partition
    offset: int
    headers: dict[str, str]
    message: Message


async def consume(
    store: Store, topics: KafkaTopics, config: str, stopping: asyncio.Event, traces: "Traces | None" = None
) -> None:
    """Publish messages until `stopping` is set. Outages of Kafka or the store are retried."""
    loop = asyncio.get_running_loop()

    def trace(*span: Any) -> None:
        if traces is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(traces.record_message, "kafka", *span)

    reader = Reader(store, topics, config, trace)
    thread = threading.Thread(target=reader.run, name="kafka", daemon=True)
    thread.start()
    await stopping.wait()
    reader.stopping.set()
    await asyncio.to_thread(thread.join, STOP_TIMEOUT)


def configuration(topics: KafkaTopics, config: str) -> dict[str, Any]:
    """The properties of the client: the defaults, those in the operator's file, and those that must not differ."""
    given = read_properties(Path(config)) if config else {}
    for name in given:
        if name in FIXED or _RESERVED.fullmatch(name):
            raise BadSetting(f"bus_config: {name} cannot be set; remove it from {config}")
    return DEFAULTS | given | FIXED | {"bootstrap.servers": topics.servers, "group.id": topics.group}


def read_properties(file: Path) -> dict[str, str]:
    """Read lines `name=value`. Empty lines and lines that begin with # are ignored."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"bus_config: cannot read {file}: {error}") from None
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or not name.strip():
            raise BadSetting(f"bus_config: line {number} of {file} must be name=value, with a property of librdkafka")
        found[name.strip()] = value.strip()
    return found


def problem(topics: KafkaTopics, config: str) -> str:
    """Why the topics cannot be read, or "" if they can."""
    errors: list[str] = []
    try:
        consumer = Consumer(configuration(topics, config) | {"error_cb": lambda error: errors.append(error.str())})
        try:
            known = consumer.list_topics(timeout=REQUEST_TIMEOUT).topics
        finally:
            consumer.poll(0)  # reports why a connection failed
            consumer.close()
    except _OUTAGES as error:
        return errors[0] if errors else describe(error)
    missing = [topic for topic in topics.topics if topic not in known]
    return f"there is no topic {', '.join(missing)}, or it may not be read" if missing else ""


class Reader:
    """Reads the topics in one process, and joins the group again after an outage."""

    def __init__(self, store: Store, topics: KafkaTopics, config: str, trace: Callable[..., None]) -> None:
        self.stopping = threading.Event()
        self._store = store
        self._topics = topics
        self._config = config
        self._trace = trace
        self._partitions = Partitions(store, topics.group, self._warn)
        self._failures = 0
        self._error = ""  # the last one of a connection
        self._logged: set[str] = set()  # warnings of the current outage

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._partitions.load()  # join only if the store responds
                self._read_as_member()
            except Unavailable as error:
                self._warn("events from Kafka wait for the store", str(error))
            except _OUTAGES as error:
                self._warn("cannot read from Kafka", describe(error))
            except Exception:  # noqa: BLE001 (what was not committed is read again)
                log.exception("reading from Kafka failed", topics=self._topics.topics)
            self._pause()

    def _read_as_member(self) -> None:
        consumer = Consumer(configuration(self._topics, self._config) | {"error_cb": self._on_error})
        try:
            consumer.subscribe(
                self._topics.topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
            while not self.stopping.is_set():
                self._partitions.resume(consumer)
                first = consumer.poll(POLL)
                if first is not None:
                    self._handle(consumer, [first, *consumer.consume(BATCH - 1, timeout=0)])
        finally:
            self._partitions.clear()
            consumer.close()

    def _warn(self, warning: str, error: str) -> None:
        if warning not in self._logged and not self.stopping.is_set():
            self._logged.add(warning)
            log.warning(warning, topics=self._topics.topics, error=error)

    def _pause(self) -> None:
        self.stopping.wait(RETRY_PAUSES[min(self._failures, len(RETRY_PAUSES) - 1)])
        self._failures += 1

    # --- the group

    def _on_assign(self, consumer: Consumer, assigned: list[TopicPartition]) -> None:
        self._partitions.assign(consumer, assigned)
        log.info("reading events from Kafka", group=self._topics.group, partitions=len(assigned))
        self._logged.clear()

    def _on_revoke(self, _consumer: Consumer, revoked: list[TopicPartition]) -> None:
        self._partitions.revoke(revoked)

    def _on_error(self, error: KafkaError) -> None:
        """The client reconnects by itself. It reports each connection, and then that none is left."""
        if error.code() == _NO_BROKER:
            self._warn("cannot read from Kafka", self._error or error.str())
        else:
            self._error = error.str()
        if error.fatal():
            raise KafkaException(error)

    # --- messages

    def _handle(self, consumer: Consumer, records: list[Record]) -> None:
        following = dict(self._partitions.next)
        received: list[Record] = []
        missing: dict[Partition, Record] = {}  # the errors of partitions whose next message cannot be read
        for record in records:
            error, partition, offset = record.error(), _partition(record), record.offset() or 0
            if partition in self._partitions.waiting or partition in missing:
                continue
            if error is None:
                if partition in following and offset >= (following[partition] or 0):
                    received.append(record)
                    following[partition] = offset + 1
            elif error.code() in (_OUT_OF_RANGE, *_UNREADABLE):
                missing[partition] = record
            elif error.fatal():
                raise KafkaException(error)
            elif error.code() != _END:
                self._warn("cannot read from Kafka", error.str())
        try:
            for part in parts(received, lambda record: len(record.value() or b"")):
                self._publish(consumer, [_parse(record) for record in part])
            for record in missing.values():
                self._skip(consumer, record)
            is_read = not missing
        except _Fenced:
            log.warning("another consumer has read these messages", group=self._topics.group)
            is_read = False
        if not is_read:
            self._partitions.reposition(consumer)

    def _publish(self, consumer: Consumer, batch: list[Received]) -> None:
        batch = self._without_waiting(batch)
        while batch and not self.stopping.is_set():
            done = self._settle(consumer, batch, publish_some)
            batch = self._without_waiting(batch[done:])
            while not done and batch and self._settle_alone(consumer, batch[0]):
                batch = self._without_waiting(batch[1:])

    def _without_waiting(self, batch: list[Received]) -> list[Received]:
        return [received for received in batch if received.partition not in self._partitions.waiting]

    def _settle_alone(self, consumer: Consumer, received: Received) -> bool:
        """Publish one message, or refuse it after MAX_TRIES internal errors. False if the process stops before that."""
        for _ in range(MAX_TRIES):
            if self.stopping.is_set() or self._settle(consumer, [received], publish_some):
                return not self.stopping.is_set()
            self.stopping.wait(RETRY_PAUSES[0])
        if not self._settle(consumer, [received], refuse_all):
            raise RuntimeError("a refusal could not be recorded")
        return True

    def _settle(self, consumer: Consumer, batch: list[Received], work: Unit) -> int:
        """Publish messages and advance the offsets in one commit. Returns the number of messages, 0 after an error."""
        expected = dict(
            self._partitions.next
        )  # the unit may run on after this thread stopped waiting, when other offsets apply

        def unit(tx: Tx) -> tuple[list[Outcome], dict[Partition, int]]:
            outcomes = work(tx, [received.message for received in batch])
            following = {
                received.partition: received.offset + 1
                for received, outcome in zip(batch, outcomes, strict=False)
                if not isinstance(outcome, Unreachable)
            }
            for partition, offset in sorted(following.items()):
                self._advance(tx, partition, expected[partition], offset)
            return outcomes, following

        try:
            outcomes, following = self._store.run_now(unit)
        except (Unavailable, _Fenced):
            raise
        except Exception:  # noqa: BLE001 (an error in one message must not stop the others)
            log.exception("messages from Kafka could not be published", messages=len(batch))
            return 0
        self._failures = 0
        self._logged.clear()
        self._partitions.next.update(following)
        with contextlib.suppress(KafkaException):  # the partition was revoked
            consumer.store_offsets(offsets=[TopicPartition(*each, offset) for each, offset in following.items()])
        for received, outcome in zip(batch, outcomes, strict=False):
            if isinstance(outcome, Unreachable):
                self._partitions.wait(consumer, received.partition, outcome.account)
            else:
                self._report(received, outcome)
        return len(outcomes)

    def _advance(self, tx: Tx, partition: Partition, expected: int | None, following: int) -> None:
        if not kafka_offsets.advance(tx, self._topics.group, partition, expected, following):
            raise _Fenced(f"{partition.topic} {partition.number}")

    def _report(self, received: Received, outcome: Refusal | Published) -> None:
        topic, number = received.partition
        error, deliveries = (outcome.code, []) if isinstance(outcome, Refusal) else ("", outcome.created)
        self._trace(received.headers, topic, topic, deliveries, error)
        if isinstance(outcome, Refusal):
            log.error("message refused", topic=topic, partition=number, offset=received.offset, error=outcome.detail)

    def _skip(self, consumer: Consumer, record: Record) -> None:
        error, partition = record.error(), _partition(record)
        if partition in self._partitions.waiting or error is None:  # it waits at an earlier message
            return
        if error.code() == _OUT_OF_RANGE:
            self._skip_deleted(consumer, partition)
        elif partition in self._partitions.next:
            self._refuse_unreadable(consumer, partition, record.offset() or 0, error.str())

    def _skip_deleted(self, consumer: Consumer, partition: Partition) -> None:
        """Continue at the first message that Kafka has, and record that others were deleted before they were read."""
        low, high = consumer.get_watermark_offsets(TopicPartition(*partition), timeout=REQUEST_TIMEOUT)
        expected = self._partitions.next.get(partition)
        if expected is None or low <= expected <= high:
            return
        problem = (
            f"Kafka deleted the messages from offset {expected} to {low - 1} before they were read"
            if expected < low
            else f"the topic was created again, or has lost messages: it ends before the offset {expected}"
        )
        refusal = Refusal("not_found", f"{problem}; reading continues at {low}")
        if self._refuse_and_advance(consumer, partition, expected, refusal, low):
            log.error("messages are missing", topic=partition.topic, partition=partition.number, error=problem)

    def _refuse_unreadable(self, consumer: Consumer, partition: Partition, first: int, error: str) -> None:
        """Refuse a message that the client cannot decode: it would report the same error for ever.

        The error concerns a batch of messages, which begins at `first`. Each of them is refused by itself.
        """
        offset = max(self._partitions.next[partition] or 0, first)
        refusal = Refusal("invalid_request", f"the message cannot be decoded: {error}")
        if self._refuse_and_advance(consumer, partition, offset, refusal, offset + 1):
            details = {"topic": partition.topic, "partition": partition.number, "offset": offset}
            log.error("message refused", **details, error=refusal.detail)

    def _refuse_and_advance(
        self, consumer: Consumer, partition: Partition, refused: int, refusal: Refusal, following: int
    ) -> bool:
        """Record a refusal and move the offset on in one commit. False if the partition has to wait."""
        expected = self._partitions.next[partition]

        def unit(tx: Tx) -> Refusal | Unreachable:
            outcome = record_refusal(tx, _place(partition, refused, tx.now), refusal)
            if isinstance(outcome, Refusal):
                self._advance(tx, partition, expected, following)
            return outcome

        outcome = self._store.run_now(unit)
        if isinstance(outcome, Unreachable):
            self._partitions.wait(consumer, partition, outcome.account)
            return False
        return True


def _partition(record: Record) -> Partition:
    return Partition(record.topic() or "", record.partition() or 0)


def _place(partition: Partition, offset: int, stored_at: int) -> Position:
    topic, number = partition
    details = {"topic": topic, "partition": number, "offset": offset}
    return Position("kafka", f"{topic}:{number}", offset, stored_at, details, offset_in_store=True)


# If the name of a header is not UTF-8, the client returns a list and sets an exception. Python turns that into a
# SystemError, except where it has optimized a direct call: then another statement would raise the exception.
_headers = operator.methodcaller("headers")


def _parse(record: Record) -> Received:
    partition, offset = _partition(record), record.offset() or 0
    try:
        headers: list[tuple[str, Any]] | None = _headers(record) or []
    except SystemError:
        headers = None
    message = kafka_message.read(_place(partition, offset, record.timestamp()[1]), headers, record.value() or b"")
    texts = {name: raw.decode("latin-1") for name, raw in headers or () if isinstance(raw, bytes)}
    return Received(partition, offset, texts, message)
