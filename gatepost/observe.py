"""What the service says about itself: structured logs on standard error, and counters for /metrics."""

import logging
import sys
from functools import cache
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

TOKENS = Counter("gatepost_token_requests_total", "Answers of POST /oauth/tokens.", ["grant_type", "outcome"])
UNKNOWN_CLIENTS = Counter("gatepost_unknown_client_total", "Token requests that named no known client.")

# Of the supervisor alone, which adds them to what the web processes count.
UNSEALED = Gauge("gatepost_unsealed_age_seconds", "Age of the oldest ledger entry not sealed yet.", registry=None)
SEALED = Counter("gatepost_sealed_entries_total", "Ledger entries sealed by this supervisor.", registry=None)


@cache
def token_counter(grant_type: str, outcome: str) -> Any:
    """The counter of one outcome, looked up once. The grant type is one we have, or empty: never a stranger's word."""
    return TOKENS.labels(grant_type, outcome)


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
