"""Offsets of Kafka: of several consumers that read the same messages, one commits."""

from functools import partial

from gatepost.ingest import kafka_offsets
from gatepost.ingest.kafka_offsets import Partition
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx
from tests.contract import make, parallel
from tests.contract.backends import Backend

PARTITION = Partition("events", 3)


class Fenced(Exception):
    pass


def publish(tx: Tx, account: str, expected: int | None, following: int) -> str:
    make.record(tx, account, f"until {following}")
    if not kafka_offsets.advance(tx, "gatepost", PARTITION, expected, following):
        raise Fenced
    return "committed"


def test_one_consumer_advances(backend: Backend, store: Store, account: str) -> None:
    stores = [store, backend.open()]
    for expected, following in ((None, 5), (5, 9)):
        outcomes = parallel.run(stores, [partial(publish, account=account, expected=expected, following=following)] * 6)
        assert outcomes.count("committed") == 1
        assert sum(isinstance(outcome, Fenced) for outcome in outcomes) == 5
        assert store.read_now(lambda tx: kafka_offsets.load(tx, "gatepost")) == {PARTITION: following}
    assert store.read_now(lambda tx: make.subjects(tx, account)) == ["until 5", "until 9"]


def test_each_group_and_partition_has_its_own(store: Store) -> None:
    def advance(tx: Tx) -> None:
        for group, partition in (("a", PARTITION), ("b", PARTITION), ("a", Partition("events", 4))):
            assert kafka_offsets.advance(tx, group, partition, None, 1)
        assert kafka_offsets.advance(tx, "a", PARTITION, 1, 2)
        assert not kafka_offsets.advance(tx, "a", Partition("other", 3), 0, 1)

    store.run_now(advance)
    assert store.read_now(lambda tx: kafka_offsets.load(tx, "a")) == {PARTITION: 2, Partition("events", 4): 1}
    assert store.read_now(lambda tx: kafka_offsets.load(tx, "b")) == {PARTITION: 1}
