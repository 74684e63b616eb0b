"""Verification of webhooks, for receivers: `gatepost_client.webhooks` under the name that it has in this package."""

from gatepost_client.errors import VerificationError
from gatepost_client.webhooks import TOLERANCE, verify

__all__ = ["TOLERANCE", "VerificationError", "verify"]
