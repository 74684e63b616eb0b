"""Gatepost: issues and audits tokens, delivers and explains webhooks, from one ledger."""

__version__ = "0.1.0"
