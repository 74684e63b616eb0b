"""Metrics of the supervisor alone, which adds them to what the other processes count: they must not make their own."""

from prometheus_client import Counter, Gauge

UNSEALED = Gauge("gatepost_unsealed_age_seconds", "Age of the oldest ledger entry not sealed yet.", registry=None)
SEALED = Counter("gatepost_sealed_entries_total", "Ledger entries sealed by this supervisor.", registry=None)
DELIVERIES = Gauge(
    "gatepost_deliveries", "Deliveries that are not ended, counted up to 100,000 in all.", ["state"], registry=None
)  # fmt: skip
QUEUE_AGE = Gauge("gatepost_queue_age_seconds", "How long the longest due delivery has waited.", registry=None)
REPLAYS = Gauge("gatepost_replays_running", "Replays under way.", registry=None)
REPLAYED = Gauge("gatepost_replay_events", "Events that replays under way have dealt with.", ["what"], registry=None)
UNACCOUNTED = Gauge(
    "gatepost_deliveries_unaccounted", "Deliveries that entries say they made and that are not there: must be 0.",
    registry=None,
)  # fmt: skip
RECOUNTED = Counter("gatepost_recounted_entries_total", "Entries whose deliveries were counted again.", registry=None)
UNACCOUNTED.set(float("nan"))  # until everything was counted once
OF_SUPERVISOR = (UNSEALED, SEALED, DELIVERIES, QUEUE_AGE, REPLAYS, REPLAYED, UNACCOUNTED, RECOUNTED)
