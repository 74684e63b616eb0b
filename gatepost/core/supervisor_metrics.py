"""Metrics of the supervisor only. The other processes must not export them too."""

from collections.abc import Iterator
from itertools import chain

from prometheus_client import Counter, Gauge, Metric, generate_latest
from prometheus_client.registry import Collector

from gatepost.core.metrics import OF_EVERY_PROCESS

UNSEALED = Gauge("gatepost_unsealed_age_seconds", "Age of the oldest ledger entry not sealed yet.", registry=None)
SEALED = Counter("gatepost_sealed_entries_total", "Ledger entries sealed by this supervisor.", registry=None)
UNACCOUNTED = Gauge(
    "gatepost_deliveries_unaccounted", "Deliveries that entries say they created and that are missing. Must be 0.",
    registry=None,
)  # fmt: skip
RECOUNTED = Counter("gatepost_recounted_entries_total", "Entries whose deliveries were recounted.", registry=None)
UNACCOUNTED.set(float("nan"))  # until everything has been counted once
OF_SUPERVISOR = (UNSEALED, SEALED, UNACCOUNTED, RECOUNTED)


class _InMemory(Collector):
    """Everything that the supervisor counts. Its children count into files, so they are not included."""

    def collect(self) -> Iterator[Metric]:
        return chain.from_iterable(metric.collect() for metric in (*OF_EVERY_PROCESS, *OF_SUPERVISOR))


def render() -> str:
    """The metrics of the supervisor, as the operations processes receive them for the page /metrics."""
    return generate_latest(_InMemory()).decode()
