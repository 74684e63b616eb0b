"""The consumer of Kafka in the test process, and what it has published."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gatepost import accounts, settings
from gatepost.accounts import lookup
from gatepost.ingest import kafka as bus
from gatepost.ingest import kafka_offsets
from gatepost.ingest.kafka_offsets import Partition
from gatepost.ledger import search
from gatepost.ledger.entries import Entry
from gatepost.oauth import account_admin
from gatepost.run import app
from gatepost.run.app import Runtime
from gatepost.settings import KafkaTopics
from tests import service
from tests.kafka import Cluster
from tests.waiting import LIMIT, wait_until


@contextmanager
def opening(directory: Path) -> Iterator[Runtime]:
    """A store without a service, with the account acme."""
    found = app.open_for_start(settings.load({}, service.environment(directory, "")))
    found.store.run_now(lambda tx: account_admin.create(tx, found.service, "acme", {}))
    with closing(found.store):
        yield found


@contextmanager
def consuming(
    opened: Runtime, servers: str, *topics: str, config: str = "", traces: Any = None, group: str = ""
) -> Iterator[None]:
    """Reads in a thread, which must end when `stopping` is set."""
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()
    source = KafkaTopics(servers, list(topics), group or topics[-1])
    work = bus.consume(opened.store, source, config, stopping, traces)
    thread = threading.Thread(target=loop.run_until_complete, args=(work,))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(LIMIT)
        assert not thread.is_alive()
        loop.close()


def event(number: int, account: Any = "acme", **members: Any) -> dict[str, Any]:
    return {"account": account, "type": "invoice.paid", "data": {"number": number}} | members


def entries(opened: Runtime, account: str, type_: str = "invoice.paid") -> list[Entry]:
    found = opened.store.read_now(lambda tx: lookup.named(tx, account))
    return list(search.oldest(opened.store, found.id, search.EntryFilter((type_,))))


def numbers(opened: Runtime, account: str = "acme") -> list[int]:
    return [json.loads(entry.data or "")["number"] for entry in entries(opened, account)]


def refusals(opened: Runtime, topic: str) -> list[dict[str, Any]]:
    found = [json.loads(each.data or "") for each in entries(opened, accounts.OPERATOR, "webhook.event.refused")]
    return [each for each in found if each["topic"] == topic]


def offsets(opened: Runtime, topic: str, group: str = "") -> dict[int, int]:
    """The offsets in the store."""
    found = opened.store.read_now(lambda tx: kafka_offsets.load(tx, group or topic))
    return {partition.number: offset for partition, offset in found.items() if partition.topic == topic}


def set_offset(opened: Runtime, topic: str, expected: int | None, following: int) -> None:
    """Advance the offset of partition 0, as another consumer does."""
    partition = Partition(topic, 0)
    assert opened.store.run_now(lambda tx: kafka_offsets.advance(tx, topic, partition, expected, following))


def wait_until_read(opened: Runtime, cluster: Cluster, topic: str) -> None:
    """Wait until the store has the end of each partition."""
    ends = cluster.ends(topic)
    wait_until(lambda: offsets(opened, topic) == ends, "every message to be read")
