"""Metrics of the supervisor only. The other processes, whose figures it adds up, must not export them too."""

from prometheus_client import Counter, Gauge

UNSEALED = Gauge("gatepost_unsealed_age_seconds", "Age of the oldest ledger entry not sealed yet.", registry=None)
SEALED = Counter("gatepost_sealed_entries_total", "Ledger entries sealed by this supervisor.", registry=None)
DELIVERIES = Gauge(
    "gatepost_deliveries", "Unfinished deliveries, counted up to 100,000 in total.", ["state"], registry=None
)  # fmt: skip
QUEUE_AGE = Gauge("gatepost_queue_age_seconds", "How long the oldest due delivery has waited.", registry=None)
REPLAYS = Gauge("gatepost_replays_running", "Running replays.", registry=None)
REPLAYED = Gauge("gatepost_replay_events", "Events that running replays have processed.", ["what"], registry=None)
UNACCOUNTED = Gauge(
    "gatepost_deliveries_unaccounted", "Deliveries that entries say they created and that are missing. Must be 0.",
    registry=None,
)  # fmt: skip
NODES = Gauge(
    "gatepost_nodes", "Running nodes of the deployment, by the name of the machine.", ["host", "kind", "version"],
    registry=None,
)  # fmt: skip
WORKERS = Gauge("gatepost_workers", "Running workers of the deployment.", registry=None)
RECOUNTED = Counter("gatepost_recounted_entries_total", "Entries whose deliveries were recounted.", registry=None)
UNACCOUNTED.set(float("nan"))  # until everything has been counted once
OF_SUPERVISOR = (UNSEALED, SEALED, DELIVERIES, QUEUE_AGE, REPLAYS, REPLAYED, UNACCOUNTED, RECOUNTED, NODES, WORKERS)
