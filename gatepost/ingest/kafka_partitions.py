"""The partitions of Kafka that are assigned to this process: where each continues, and which of them wait."""

import contextlib
from collections.abc import Callable, Iterable, Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from gatepost.core.logging import log
from gatepost.ingest import kafka_offsets
from gatepost.ingest.kafka_offsets import Partition
from gatepost.ingest.message import is_reachable
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx

REQUEST_TIMEOUT = 5.0  # seconds


class Partitions:
    """The assigned partitions. They are read from their offsets in the store."""

    def __init__(self, store: Store, group: str, warn: Callable[[str, str], None]) -> None:
        self.next: dict[Partition, int | None] = {}  # the offset of each; None: it is not known where it begins
        self.waiting: dict[Partition, str] = {}  # those that wait for the database node of an account
        self._store = store
        self._group = group
        self._warn = warn

    def load(self) -> dict[Partition, int]:
        """The offsets of all partitions in the store."""
        return self._store.read_now(lambda tx: kafka_offsets.load(tx, self._group))

    def assign(self, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        self.waiting.clear()
        self._position(consumer, [Partition(each.topic, each.partition) for each in partitions])

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self.next.pop(Partition(each.topic, each.partition), None)
            self.waiting.pop(Partition(each.topic, each.partition), None)

    def clear(self) -> None:
        self.next.clear()
        self.waiting.clear()

    def reposition(self, consumer: Consumer) -> None:
        """Read all of them from their offsets in the store again."""
        self._position(consumer, list(self.next))

    # --- partitions that wait

    def wait(self, consumer: Consumer, partition: Partition, account: str) -> None:
        """Read no further in a partition until the database node of an account is up again."""
        if partition not in self.waiting:
            self.waiting[partition] = account
            consumer.pause([TopicPartition(*partition)])
            details = {"topic": partition.topic, "partition": partition.number, "account": account}
            log.warning("a partition of Kafka waits for a database node", **details)

    def resume(self, consumer: Consumer) -> None:
        """Read on in partitions whose database node is up again."""
        accounts = set(self.waiting.values())
        if not accounts:
            return
        reachable = self._store.read_now(lambda tx: {each for each in accounts if is_reachable(tx, each)})
        if reachable:
            self.waiting = {each: account for each, account in self.waiting.items() if account not in reachable}
            self.reposition(consumer)

    # --- where they continue

    def _position(self, consumer: Consumer, partitions: Sequence[Partition]) -> None:
        """Read each partition from its offset in the store, or from its beginning."""
        offsets = self.load()
        if beginnings := self._beginnings(consumer, [each for each in partitions if each not in offsets]):
            self._store_beginnings(beginnings)
            offsets = self.load()  # another consumer may have been first
        self.next = {partition: offsets.get(partition) for partition in partitions}
        consumer.assign(
            [
                TopicPartition(*partition, OFFSET_BEGINNING if offset is None else offset)
                for partition, offset in self.next.items()
            ]
        )
        consumer.resume([TopicPartition(*each) for each in self.next if each not in self.waiting])
        consumer.pause([TopicPartition(*each) for each in self.waiting])
        stored = [TopicPartition(*each, offset) for each, offset in self.next.items() if offset is not None]
        with contextlib.suppress(KafkaException):  # the group is rebalanced again
            if stored:  # a process that crashed may not have passed them on
                consumer.commit(offsets=stored, asynchronous=True)

    def _beginnings(self, consumer: Consumer, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The first offset of each partition, without those that Kafka does not report in time."""
        found: dict[Partition, int] = {}
        for partition in partitions:
            try:
                found[partition], _ = consumer.get_watermark_offsets(TopicPartition(*partition), REQUEST_TIMEOUT)
            except KafkaException as error:  # no more requests: each may take as long, and the group does not wait
                self._warn("cannot read where partitions begin", describe(error))
                break
        return found

    def _store_beginnings(self, beginnings: dict[Partition, int]) -> None:
        """Store where reading begins, so that it is noticed if Kafka deletes messages before the first one is read."""

        def unit(tx: Tx) -> None:
            for partition, offset in sorted(beginnings.items()):
                kafka_offsets.begin(tx, self._group, partition, offset)

        self._store.run_now(unit)


def describe(error: Exception) -> str:
    """What an error of the client says."""
    reason = error.args[0] if error.args else ""
    return reason.str() if isinstance(reason, KafkaError) else str(error)
