"""The page /metrics: what all processes counted, what the supervisor alone knows, and what waits, each figure once.

The children count into files of one directory. The supervisor counts in memory, since it writes to the store as well:
it records what is published over HTTP. Both are added up here. What waits is counted when somebody looks.
"""

import asyncio
import math
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from gatepost.core import clock, ids
from gatepost.core.errors import Unavailable
from gatepost.core.metrics import OF_EVERY_PROCESS, start_at_zero
from gatepost.core.supervisor_metrics import DELIVERIES, OF_SUPERVISOR, QUEUE_AGE, REPLAYED, REPLAYS
from gatepost.ledger.entries import TYPES
from gatepost.store.interface import Store
from gatepost.store.tx import LOWEST, Tx
from gatepost.store.webhooks import Lane
from gatepost.webhooks.deliveries import FAILURES

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTED_FOR = 1.0  # seconds that a count serves, however many look
PATIENCE = 3.0  # seconds for a count: who scrapes waits for ten
MOST = 100_000  # deliveries counted, so that a large queue costs no more than that


class Page:
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
        registry = CollectorRegistry()
        registry.register(_Everything(self._directory))
        return generate_latest(registry)

    async def _count(self) -> None:
        """Nothing is known of a store that does not answer."""
        try:
            show(await asyncio.wait_for(self._store.read(waiting), PATIENCE), self._store.now())
        except (Unavailable, TimeoutError):
            show(UNKNOWN, self._store.now())


# --- what waits


class Waiting(NamedTuple):
    """Deliveries that are not ended, by state; when the first one was due that could be sent; and the replays."""

    states: dict[str, float]
    due: datetime | None
    replays: float
    examined: float
    made: float


UNKNOWN = Waiting(dict.fromkeys(("pending", "held", "in_flight"), math.nan), None, math.nan, math.nan, math.nan)


def waiting(tx: Tx) -> Waiting:
    states = dict.fromkeys(UNKNOWN.states, 0.0)
    for key, (number, in_flight) in tx.webhooks.count_waiting(MOST).items():
        states["in_flight"] += in_flight
        states["pending" if _is_sent_to(tx, *key) else "held"] += number - in_flight
    not_before = tx.webhooks.retry_afters()
    due = min(
        (max(each.due, not_before.get(each[:2], 0)) for each in _lanes(tx) if _is_sent_to(tx, *each[:2])), default=None
    )
    return Waiting(states, None if due is None else clock.from_milliseconds(due), *tx.webhooks.count_replays())


def _lanes(tx: Tx) -> Iterator[Lane]:
    after = Lane(LOWEST, LOWEST, -1, 0)
    while page := tx.webhooks.lanes(after, 1000):
        yield from page
        after = page[-1]


def _is_sent_to(tx: Tx, account: bytes, endpoint: bytes) -> bool:
    """Whether its deliveries are not held."""
    whose = ids.text("acc", account)
    owner, found = tx.account(whose), tx.webhooks.endpoint(whose, ids.text("ep", endpoint))
    return owner is not None and owner.active and found is not None and found.status == "active"


def show(found: Waiting, now: datetime) -> None:
    for state, number in found.states.items():
        DELIVERIES.labels(state).set(number)
    age = 0.0 if found.due is None else max(0.0, (now - found.due).total_seconds())
    QUEUE_AGE.set(math.nan if found is UNKNOWN else age)
    REPLAYS.set(found.replays)
    REPLAYED.labels("examined").set(found.examined)
    REPLAYED.labels("made").set(found.made)


# --- what was counted


class _Everything(Collector):
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        children = MultiProcessCollector(None, self._directory).collect() if self._directory else []  # type: ignore[no-untyped-call]
        yield from added(chain(_of(OF_EVERY_PROCESS), children))
        yield from _of(OF_SUPERVISOR)


def _of(metrics: Iterable[MetricWrapperBase]) -> Iterator[Metric]:
    for each in metrics:
        yield from each.collect()


def added(families: Iterable[Metric]) -> list[Metric]:
    """One family for each name, with the sum of what has the same labels. All that is added up counts something."""
    found: dict[str, Metric] = {}
    sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for family in families:
        found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
        of_family = sums.setdefault(family.name, {})
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            of_family[key] = of_family.get(key, 0.0) + sample.value
    for name, family in found.items():
        family.samples = [Sample(each, dict(labels), value) for (each, labels), value in sums[name].items()]
    return list(found.values())
