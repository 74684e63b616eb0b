"""Verification of webhooks as specified by Standard Webhooks: the function of `gatepost_client`, by its first name."""

from gatepost_client.errors import VerificationError
from gatepost_client.webhooks import TOLERANCE, verify

__all__ = ["TOLERANCE", "VerificationError", "verify"]
