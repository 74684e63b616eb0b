"""Deletes expired rows of the authorization server, in batches."""

from gatepost.store.transaction import Tx

DAY = 24 * 3600 * 1000

# statement → milliseconds for which its rows are kept after they expired
_EXPIRED = {
    "forget_assertions": 0,
    "forget_pushed": 0,
    "forget_interactions": 0,
    "forget_codes": DAY,
    "forget_consents": 0,
    "forget_families": DAY,
    "forget_revoked": 60_000,
}


def delete_expired(tx: Tx) -> int:
    """Delete some expired rows of each kind. Returns the largest number of one kind."""
    return max(len(tx.write(statement, before=tx.now - kept)) for statement, kept in _EXPIRED.items())
