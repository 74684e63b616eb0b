"""Metrics that every process counts, for the page /metrics. Callers pass event types and failures in."""

from bisect import bisect_left
from collections import Counter as CountOf
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from functools import cache
from itertools import chain
from math import inf

from prometheus_client import Counter, Gauge, Histogram, Metric, disable_created_metrics
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

disable_created_metrics()  # type: ignore[no-untyped-call]


class BatchHistogram(Collector):
    """A histogram with one label that observes many amounts with few writes.

    The processes share their figures through memory-mapped files, so every write counts. `Histogram.observe` takes one
    amount and writes twice. This class keeps the buckets and the sums in counters, and builds the histogram from them.
    """

    def __init__(self, name: str, documentation: str, label: str, buckets: Iterable[float]) -> None:
        self.name = name
        self.label = label
        self._documentation = documentation
        self._bounds = (*buckets, inf)
        self._bounds_text = [floatToGoString(bound) for bound in self._bounds]  # type: ignore[no-untyped-call]
        self._buckets = Counter(f"{name}_bucket", documentation, [label, "le"], registry=None)
        self._sums = Counter(f"{name}_sum", documentation, [label], registry=None)
        self._children: dict[str, tuple[list[Counter], Counter]] = {}

    def observe_all(self, label: str, amounts: Iterable[float]) -> None:
        buckets, total = self._children.get(label) or self._add_child(label)
        counts: dict[int, int] = {}
        seconds = 0.0
        for amount in amounts:
            bucket = bisect_left(self._bounds, amount)
            counts[bucket] = counts.get(bucket, 0) + 1
            seconds += amount
        for bucket, count in counts.items():
            buckets[bucket].inc(count)
        total.inc(seconds)

    def _add_child(self, label: str) -> tuple[list[Counter], Counter]:
        buckets = [self._buckets.labels(label, bound) for bound in self._bounds_text]
        child = self._children[label] = (buckets, self._sums.labels(label))
        return child

    def collect(self) -> Iterator[Metric]:
        """Return what this process observed."""
        yield self.build(chain(self._buckets.collect(), self._sums.collect()))

    def owns(self, family: Metric) -> bool:
        """Return whether a family is one of the two counters, as the files of another process have them."""
        return family.name in (f"{self.name}_bucket", f"{self.name}_sum")

    def build(self, counters: Iterable[Metric]) -> HistogramMetricFamily:
        """Build the histogram from the values of the counters."""
        buckets: defaultdict[str, dict[str, float]] = defaultdict(dict)
        sums: dict[str, float] = {}
        for sample in chain.from_iterable(family.samples for family in counters):
            label, bound = sample.labels[self.label], sample.labels.get("le")
            if bound is None:
                sums[label] = sample.value
            else:
                buckets[label][bound] = sample.value
        histogram = HistogramMetricFamily(self.name, self._documentation, labels=[self.label])
        for label, counts in buckets.items():
            below, cumulative = 0.0, []
            for bound in self._bounds_text:
                below += counts.get(bound, 0.0)
                cumulative.append((bound, below))
            histogram.add_metric([label], cumulative, sums.get(label, 0.0))
        return histogram


TOKENS = Counter("gatepost_token_requests_total", "Responses of POST /oauth/tokens.", ["grant_type", "outcome"])
UNKNOWN_CLIENTS = Counter("gatepost_unknown_client_total", "Authentications that named an unknown client.")
REQUESTS = Counter(
    "gatepost_requests_total", "Responses of the public listener and of POST /events. An empty path is an unknown one.",
    ["path", "status"],
)  # fmt: skip
REQUEST_SECONDS = BatchHistogram(
    "gatepost_request_seconds", "Time from the arrival of a request to its response.", "path",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)  # fmt: skip
ENTRIES = Counter(
    "gatepost_ledger_entries_total", "Entries written to the ledger, by type. `platform` counts published events.",
    ["type"],
)  # fmt: skip
ATTEMPTS = Counter(
    "gatepost_attempts_total", "Finished delivery attempts. The failure names the phase.", ["outcome", "failure"]
)  # fmt: skip
IN_FLIGHT = Gauge("gatepost_attempts_in_flight", "Attempts in progress.", multiprocess_mode="livesum")
LATENESS = BatchHistogram(
    "gatepost_attempt_lateness_seconds", "Delay of an attempt behind its planned time, by what it waited for.",
    "waited_for", buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600),
)  # fmt: skip
COMMIT_SECONDS = Histogram(
    "gatepost_store_commit_seconds", "Duration of a transaction that writes.",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)  # fmt: skip
COMMIT_UNITS = Histogram(
    "gatepost_store_commit_units", "Units of work that shared a commit.", buckets=(1, 2, 5, 10, 20, 50, 100, 200)
)  # fmt: skip
SHORTAGES = Counter(
    "gatepost_shortages_total", "Outgoing requests not sent because the service ran out of a resource.",
    ["resource"],
)  # fmt: skip
OUTBOX_REFUSED = Counter("gatepost_outbox_refused_total", "Rows of the outbox that were refused.")
CHORE_FAILURES = Counter("gatepost_chore_failures_total", "Runs of a chore that failed.", ["chore"])
CHORE_IDLE = Gauge(
    "gatepost_chore_idle_seconds", "Time since a chore last finished or made progress.", ["chore"],
    multiprocess_mode="livesum",
)  # fmt: skip
OF_EVERY_PROCESS = (
    CHORE_FAILURES, CHORE_IDLE, SHORTAGES, OUTBOX_REFUSED,
    TOKENS, UNKNOWN_CLIENTS, REQUESTS, REQUEST_SECONDS, ENTRIES, ATTEMPTS, IN_FLIGHT, LATENESS, COMMIT_SECONDS,
    COMMIT_UNITS,
)  # fmt: skip

# The counters for given labels. The look-up by labels is slow.
token_counter, attempt_counter, request_counter, _entry_counter = (
    cache(counter.labels) for counter in (TOKENS, ATTEMPTS, REQUESTS, ENTRIES)
)


def start_at_zero(types: Iterable[str], failures: Iterable[str]) -> None:
    """Export the known label values from the start, so that an alert on an increase sees the first one too."""
    for type_ in (*types, "platform"):
        _entry_counter(type_)
    for outcome in ("succeeded", "failed", "interrupted", "not_sent"):
        attempt_counter(outcome, "")
    for failure in failures:
        attempt_counter("failed", failure)


def observe_commit(units: int, seconds: float, types: Iterable[str], *, known: Container[str]) -> None:
    """Count a commit of a store, with the types of its entries. Types that are not known count as the platform's."""
    COMMIT_SECONDS.observe(seconds)
    COMMIT_UNITS.observe(units)
    for type_, count in CountOf(type_ if type_ in known else "platform" for type_ in types).items():
        _entry_counter(type_).inc(count)


def observe_claims(waited: Iterable[tuple[str, int]]) -> None:
    """Count claimed attempts: the reason why each one waited, and for how many milliseconds beyond its plan."""
    by_reason: dict[str, list[float]] = {}
    for waited_for, milliseconds in waited:
        by_reason.setdefault(waited_for, []).append(milliseconds / 1000)
    for waited_for, seconds in by_reason.items():
        LATENESS.observe_all(waited_for, seconds)
