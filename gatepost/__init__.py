"""Gatepost: issues and audits tokens, delivers and explains webhooks, from one ledger.

For programs of others: `gatepost.verify` checks a webhook that was received, and `gatepost.publish` puts an event into
the outbox inside the caller's own PostgreSQL transaction.
"""

from typing import TYPE_CHECKING, Any

from gatepost.verify import VerificationError, verify

__version__ = "0.3.0"
__all__ = ["VerificationError", "__version__", "publish", "verify"]

if TYPE_CHECKING:
    from gatepost.ledger.outbox import publish


def __getattr__(name: str) -> Any:
    """`publish` is loaded when first used: a receiver should not pay for it."""
    if name != "publish":
        raise AttributeError(f"module 'gatepost' has no attribute {name!r}")
    from gatepost.ledger.outbox import publish as found  # noqa: PLC0415

    return found
