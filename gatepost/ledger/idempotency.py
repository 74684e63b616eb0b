"""The rows of answers that are kept for an `Idempotency-Key`."""

from datetime import timedelta

from gatepost.core import clock, ids
from gatepost.store.pending import Again
from gatepost.store.transaction import Tx

KEPT = timedelta(hours=24)


def find(tx: Tx, account: str, caller: str, operation: str, key: bytes) -> tuple[bytes, int, str] | None:
    found = tx.one(
        "answer", account=ids.raw(account), caller=caller, operation=operation, id=key,
        at=tx.now,
    )  # fmt: skip
    return (found[0], found[1], found[2]) if found else None


def keep(tx: Tx, account: str, caller: str, operation: str, key: bytes, body: bytes, status: int, answer: str
) -> None:  # fmt: skip
    kept = tx.write(
        "insert_answer", account=ids.raw(account), caller=caller, operation=operation, id=key, body_hash=body,
        status=status, answer=answer, at=tx.now,
        expires_at=clock.milliseconds(tx.at + KEPT),
    )  # fmt: skip
    if not kept:
        raise Again("another request with this Idempotency-Key was first")


def delete_expired(tx: Tx) -> int:
    """Delete some answers that are no longer kept."""
    return len(tx.write("forget_answers", before=tx.now))
