"""The rows of the offsets from which a consumer group reads on. Kafka's own offsets are only a copy of them."""

from typing import NamedTuple

from gatepost.store.transaction import Tx


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


def load(tx: Tx, group: str) -> dict[Partition, int]:
    """The next offset of each partition that the group has read from."""
    rows = tx.rows("kafka_offsets", consumer_group=group)
    return {Partition(topic, number): following for topic, number, following in rows}


def begin(tx: Tx, group: str, partition: Partition, offset: int) -> bool:
    """Store where reading a partition begins. False if it has an offset: the write decides."""
    return bool(tx.write("insert_kafka_offset", **_key(group, partition), next_offset=offset))


def advance(tx: Tx, group: str, partition: Partition, expected: int | None, following: int) -> bool:
    """Move the offset of a partition on. False if it is not the expected one, None for none: the write decides."""
    if expected is None:
        return begin(tx, group, partition, following)
    return bool(tx.write("advance_kafka_offset", **_key(group, partition), expected=expected, next_offset=following))


def _key(group: str, partition: Partition) -> dict[str, str | int]:
    return {"consumer_group": group, "topic": partition.topic, "kafka_partition": partition.number}
