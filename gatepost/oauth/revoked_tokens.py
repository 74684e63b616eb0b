"""The rows of access tokens that were revoked individually, not together with a consent or family."""

from datetime import datetime

from gatepost.core import clock, ids
from gatepost.store.transaction import Tx


def add(tx: Tx, account: str, token: bytes, expires_at: datetime) -> bool:
    """Revoke a token. True for the first request that does so."""
    tx.end()
    until = clock.milliseconds(expires_at)
    return bool(tx.write("revoke_token", account=ids.raw(account), id=token, expires_at=until))


def contains(tx: Tx, account: str, token: bytes) -> bool:
    """Whether the token was revoked."""
    return tx.one("is_revoked", account=ids.raw(account), id=token) is not None


def contains_any(tx: Tx, account: str, tokens: list[bytes]) -> bool:
    """Whether any of the tokens was revoked."""
    owner = ids.raw(account)
    return bool(tx.rows_given("revoked_among", sorted((owner, token) for token in tokens)))
