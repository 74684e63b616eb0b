"""The page /metrics: the figures of all processes, of the supervisor alone, and of the queue, each of them once.

The child processes count into files of one directory. The supervisor counts in memory, and sends its figures. Both are
added up here. The queue is counted when the page is requested.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from prometheus_client import Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from gatepost.core import clock
from gatepost.core.errors import Unavailable
from gatepost.core.metrics import OF_EVERY_PROCESS, BatchHistogram, start_at_zero
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

    def __init__(self, store: Store, directory: str, of_supervisor: Callable[[], str]) -> None:
        """`directory` has the figures of the child processes, this one included."""
        self._store = store
        self._directory = directory
        self._of_supervisor = of_supervisor
        self._queue_figures = UNKNOWN
        self._queue: list[Metric] = []
        self._counted_at = -math.inf
        self._counting = asyncio.Lock()
        start_at_zero(TYPES, FAILURES)

    async def text(self) -> bytes:
        await self.queue()
        return generate_latest(self)

    async def queue(self) -> "QueueFigures":
        """The figures of the queue, counted again if the last count is too old."""
        async with self._counting:
            if time.monotonic() - self._counted_at > COUNTED_FOR:
                self._queue = await self._count()
                self._counted_at = time.monotonic()
        return self._queue_figures

    async def _count(self) -> list[Metric]:
        """Count the queue, the nodes and the workers. The figures are unknown while the store is unavailable."""
        try:
            queue = await asyncio.wait_for(self._store.read(count_queue), TIMEOUT)
            deployment = await asyncio.wait_for(self._store.read(count_deployment), TIMEOUT)
        except (Unavailable, TimeoutError):
            queue, deployment = UNKNOWN, NO_DEPLOYMENT
        self._queue_figures = queue
        return [*of_queue(queue, self._store.now()), *of_deployment(deployment)]

    def collect(self) -> Iterator[Metric]:
        """The metrics of the page."""
        of_supervisor = text_string_to_metric_families(self._of_supervisor())
        yield from add_up(chain(of_supervisor, self._collect_children()))
        yield from self._queue

    def _collect_children(self) -> Iterator[Metric]:
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

    def age(self, now: datetime) -> float:
        """How many seconds the oldest due delivery has waited. 0 if none is due."""
        return 0.0 if self.due is None else max(0.0, (now - self.due).total_seconds())


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


def of_queue(queue: QueueFigures, now: datetime) -> Iterator[Metric]:
    """The metrics of the queue."""
    deliveries = GaugeMetricFamily(
        "gatepost_deliveries", "Unfinished deliveries, counted up to 100,000 in total.", labels=["state"]
    )
    for state, number in queue.states.items():
        deliveries.add_metric([state], number)
    yield deliveries
    waited = math.nan if queue is UNKNOWN else queue.age(now)
    yield GaugeMetricFamily("gatepost_queue_age_seconds", "How long the oldest due delivery has waited.", waited)
    yield GaugeMetricFamily("gatepost_replays_running", "Running replays.", queue.replays)
    replayed = GaugeMetricFamily(
        "gatepost_replay_events", "Events that running replays have processed.", labels=["what"]
    )
    replayed.add_metric(["examined"], queue.examined)
    replayed.add_metric(["made"], queue.made)
    yield replayed


# --- the nodes and workers of the deployment


class Deployment(NamedTuple):
    """The running nodes, by host, kind and version, and the number of running workers."""

    nodes: Counter[tuple[str, str, str]]
    workers: float


NO_DEPLOYMENT = Deployment(Counter(), math.nan)


def count_deployment(tx: Tx) -> Deployment:
    """Count the running nodes and workers."""
    running = Counter((node.host, node.kind, node.version) for node in nodes.load(tx) if not node.is_silent(tx.now))
    return Deployment(running, float(peers.count_running(tx)))


def of_deployment(deployment: Deployment) -> Iterator[Metric]:
    """The metrics of nodes and workers. There are no samples of nodes while the store is unavailable."""
    running = GaugeMetricFamily(
        "gatepost_nodes", "Running nodes of the deployment, by the name of the machine.",
        labels=["host", "kind", "version"],
    )  # fmt: skip
    for labels, number in deployment.nodes.items():
        running.add_metric(labels, number)
    yield running
    yield GaugeMetricFamily("gatepost_workers", "Running workers of the deployment.", deployment.workers)


# --- the figures of all processes


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
