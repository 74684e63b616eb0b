"""The rows of responses that are kept for an `Idempotency-Key`."""

from datetime import timedelta

from gatepost.core import clock, ids
from gatepost.store.pending import Again
from gatepost.store.transaction import Tx

KEPT = timedelta(hours=24)


def find(tx: Tx, account: str, caller: str, operation: str, key: bytes) -> tuple[bytes, int, str] | None:
    """The kept response to this key: the hash of the request body, the status, and the response as JSON."""
    row = tx.one("answer", account=ids.raw(account), caller=caller, operation=operation, id=key, at=tx.now)
    return (row[0], row[1], row[2]) if row else None


def keep(tx: Tx, account: str, caller: str, operation: str, key: bytes, body: bytes, status: int, answer: str) -> None:
    """Keep a response for this key. Raises `Again` if another request with the key was first."""
    kept = tx.write(
        "insert_answer", account=ids.raw(account), caller=caller, operation=operation, id=key, body_hash=body,
        status=status, answer=answer, at=tx.now, expires_at=clock.milliseconds(tx.at + KEPT),
    )  # fmt: skip
    if not kept:
        raise Again("another request with this Idempotency-Key was first")


def delete_expired(tx: Tx) -> int:
    """Delete some responses that are no longer kept."""
    return len(tx.write("forget_answers", before=tx.now))
