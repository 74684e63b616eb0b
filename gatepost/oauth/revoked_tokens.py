"""The rows of access tokens that were revoked by themselves, and not with what they were issued for."""

from datetime import datetime

from gatepost.core import clock, ids
from gatepost.store.transaction import Tx


def add(tx: Tx, account: str, token: bytes, expires_at: datetime) -> bool:
    """True for the first request that revokes it."""
    tx.end()
    return bool(
        tx.write("revoke_token", account=ids.raw(account), id=token, expires_at=clock.milliseconds(expires_at))
    )  # fmt: skip


def contains(tx: Tx, account: str, token: bytes) -> bool:
    return tx.one("is_revoked", account=ids.raw(account), id=token) is not None


def contains_any(tx: Tx, account: str, tokens: list[bytes]) -> bool:
    whose = ids.raw(account)
    return bool(tx.rows_given("revoked_among", sorted((whose, token) for token in tokens)))
