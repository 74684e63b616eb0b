"""What the service says about itself: logs on standard error and counters for /metrics; and how processes are tuned."""

import gc
import logging
import sys
from functools import cache
from typing import Any

import structlog
from prometheus_client import Counter, Gauge, Histogram

TOKENS = Counter("gatepost_token_requests_total", "Answers of POST /oauth/tokens.", ["grant_type", "outcome"])
UNKNOWN_CLIENTS = Counter("gatepost_unknown_client_total", "Token requests that named no known client.")
ATTEMPTS = Counter("gatepost_attempts_total", "Attempts to deliver that ended.", ["outcome", "failure"])
IN_FLIGHT = Gauge("gatepost_attempts_in_flight", "Attempts under way.", multiprocess_mode="livesum")
LATENESS = Histogram(
    "gatepost_attempt_lateness_seconds", "From when an attempt was planned to when it was made.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600),
)  # fmt: skip

# Of the supervisor alone, which adds them to what the web processes count.
UNSEALED = Gauge("gatepost_unsealed_age_seconds", "Age of the oldest ledger entry not sealed yet.", registry=None)
SEALED = Counter("gatepost_sealed_entries_total", "Ledger entries sealed by this supervisor.", registry=None)


@cache
def token_counter(grant_type: str, outcome: str) -> Any:
    """The counter of one outcome, looked up once. The grant type is one we have, or empty: never a stranger's word."""
    return TOKENS.labels(grant_type, outcome)


@cache
def attempt_counter(outcome: str, failure: str) -> Any:
    return ATTEMPTS.labels(outcome, failure)


log: Any = structlog.get_logger("gatepost")


def configure_logs() -> None:
    """JSON lines for programs; for a person at a terminal, readable ones."""
    readable = sys.stderr.isatty()
    renderer: Any = structlog.dev.ConsoleRenderer() if readable else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def collect_rarely() -> None:
    """Requests under way are many short-lived objects without cycles; looking for some took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
