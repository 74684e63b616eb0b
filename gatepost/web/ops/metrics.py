"""The page /metrics: the figures of all processes, of the supervisor alone, and of the queue, each of them once.

The child processes count into files of one directory. The supervisor counts in memory: it writes to the store as well,
since it records what is published over HTTP. Both are added up here. The queue is counted when the page is requested.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from prometheus_client import Metric, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from gatepost.core import clock
from gatepost.core.errors import Unavailable
from gatepost.core.metrics import OF_EVERY_PROCESS, BatchHistogram, start_at_zero
from gatepost.core.supervisor_metrics import (
    DELIVERIES,
    NODES,
    OF_SUPERVISOR,
    QUEUE_AGE,
    REPLAYED,
    REPLAYS,
    WORKERS,
)
from gatepost.ledger.entries import TYPES
from gatepost.store import nodes
from gatepost.store.interface import Store
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import endpoint_rows, health_rows, peers, queue_rows, replay_rows
from gatepost.webhooks.deliveries import FAILURES
from gatepost.webhooks.queue_rows import Lane

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTED_FOR = 1.0  # seconds for which a count of the queue is reused
TIMEOUT = 3.0  # seconds for a count of the queue: Prometheus waits for ten
MAX_COUNTED = 100_000  # deliveries: this bounds the cost of a large queue


class Page(Collector):
    """Renders the page. A count of the queue is shared by requests that arrive together."""

    def __init__(self, store: Store, directory: str) -> None:
        self._store = store
        self._directory = directory
        self._counted_at = -math.inf
        self._counting = asyncio.Lock()
        start_at_zero(TYPES, FAILURES)

    async def text(self) -> bytes:
        async with self._counting:
            if time.monotonic() - self._counted_at > COUNTED_FOR:
                await self._count()
                self._counted_at = time.monotonic()
        return generate_latest(self)

    async def _count(self) -> None:
        """Count the queue. The figures are unknown while the store is unavailable."""
        try:
            set_gauges(await asyncio.wait_for(self._store.read(count_queue), TIMEOUT), self._store.now())
            set_deployment_gauges(*await asyncio.wait_for(self._store.read(count_deployment), TIMEOUT))
        except (Unavailable, TimeoutError):
            set_gauges(UNKNOWN, self._store.now())
            set_deployment_gauges(Counter(), math.nan)

    def collect(self) -> Iterator[Metric]:
        """The metrics of the page."""
        yield from add_up(chain(_collect(OF_EVERY_PROCESS), self._collect_children()))
        yield from _collect(OF_SUPERVISOR)

    def _collect_children(self) -> Iterator[Metric]:
        if not self._directory:
            return
        families: list[Metric] = list(MultiProcessCollector(None, self._directory).collect())  # type: ignore[no-untyped-call]
        for metric in OF_EVERY_PROCESS:
            if isinstance(metric, BatchHistogram):
                yield metric.build(family for family in families if metric.owns(family))
                families = [family for family in families if not metric.owns(family)]
        yield from families


# --- the queue


class QueueFigures(NamedTuple):
    """Unfinished deliveries by state, when the first of those that may be sent was due, and the running replays."""

    states: dict[str, float]
    due: datetime | None
    replays: float
    examined: float
    made: float


UNKNOWN = QueueFigures(dict.fromkeys(("pending", "held", "in_flight"), math.nan), None, math.nan, math.nan, math.nan)


def count_queue(tx: Tx) -> QueueFigures:
    """Count the unfinished deliveries, of which at most MAX_COUNTED are read."""
    states = dict.fromkeys(UNKNOWN.states, 0.0)
    for key, (number, in_flight) in queue_rows.count_by_endpoint(tx, MAX_COUNTED).items():
        states["in_flight"] += in_flight
        states["pending" if _is_active(tx, *key) else "held"] += number - in_flight
    not_before = health_rows.retry_afters(tx)
    due = min(
        (max(lane.due, not_before.get(lane[:2], 0)) for lane in _lanes(tx) if _is_active(tx, *lane[:2])), default=None
    )
    return QueueFigures(states, None if due is None else clock.from_milliseconds(due), *replay_rows.count_running(tx))


def _lanes(tx: Tx) -> Iterator[Lane]:
    after = Lane(LOWEST, LOWEST, -1, 0)
    while page := queue_rows.lanes(tx, after, 1000):
        yield from page
        after = page[-1]


def _is_active(tx: Tx, account: bytes, endpoint: bytes) -> bool:
    """Whether the endpoint and its account are active. Otherwise their deliveries are held."""
    owner, receiver = endpoint_rows.load_with_account(tx, (account, endpoint))
    return owner is not None and owner.active and receiver is not None and receiver.status == "active"


def set_gauges(queue: QueueFigures, now: datetime) -> None:
    """Set the metrics of the queue."""
    for state, number in queue.states.items():
        DELIVERIES.labels(state).set(number)
    age = 0.0 if queue.due is None else max(0.0, (now - queue.due).total_seconds())
    QUEUE_AGE.set(math.nan if queue is UNKNOWN else age)
    REPLAYS.set(queue.replays)
    REPLAYED.labels("examined").set(queue.examined)
    REPLAYED.labels("made").set(queue.made)


# --- the nodes and workers of the deployment


def count_deployment(tx: Tx) -> tuple[Counter[tuple[str, str, str]], float]:
    """Count the running nodes, by host, kind and version, and the running workers."""
    running = Counter((node.host, node.kind, node.version) for node in nodes.load(tx) if not node.is_silent(tx.now))
    return running, float(peers.count_running(tx))


def set_deployment_gauges(running: Counter[tuple[str, str, str]], workers: float) -> None:
    """Set the metrics of nodes and workers. There are no samples of nodes while the store is unavailable."""
    NODES.clear()
    for labels, number in running.items():
        NODES.labels(*labels).set(number)
    WORKERS.set(workers)


# --- the figures of all processes


def _collect(metrics: Iterable[Collector]) -> Iterator[Metric]:
    return chain.from_iterable(metric.collect() for metric in metrics)


def add_up(families: Iterable[Metric]) -> list[Metric]:
    """One family for each name, with the sum of the samples that have the same labels."""
    totals: dict[str, Metric] = {}
    sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for family in families:
        totals.setdefault(family.name, Metric(family.name, family.documentation, family.type))
        sums_of_family = sums.setdefault(family.name, {})
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            sums_of_family[key] = sums_of_family.get(key, 0.0) + sample.value
    for name, family in totals.items():
        family.samples = [Sample(series, dict(labels), value) for (series, labels), value in sums[name].items()]
    return list(totals.values())
