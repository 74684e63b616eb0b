"""The rows of pushed authorization requests (RFC 9126)."""

from datetime import datetime

from gatepost.core import clock, ids
from gatepost.core.secrets import Box
from gatepost.store.transaction import Tx


def add(
    tx: Tx, account: str, raw_id: bytes, client: str, source: str, request: bytes, box: Box, expires_at: datetime
) -> None:
    """Store a request, encrypted."""
    tx.write(
        "insert_pushed", account=ids.raw(account), id=raw_id, client=ids.raw(client), source=source,
        request=box.encrypt(request, f"pushed {account} {raw_id.hex()}"), expires_at=clock.milliseconds(expires_at),
    )  # fmt: skip


def evict(tx: Tx, account: str, client: str, source: str, keep: int) -> int:
    """Delete all but the newest `keep` requests of one client and address. Returns how many were deleted."""
    return len(tx.write("evict_pushed", account=ids.raw(account), client=ids.raw(client), source=source, keep=keep))


def load(tx: Tx, account: str, raw_id: bytes, client: str, box: Box) -> bytes | None:
    """The request that this client pushed; None once it has expired."""
    row = tx.one("pushed", account=ids.raw(account), id=raw_id, client=ids.raw(client), at=tx.now)
    return box.decrypt(row[0], f"pushed {account} {raw_id.hex()}") if row else None


def delete(tx: Tx, account: str, raw_id: bytes) -> bool:
    """Delete a request. False if it was deleted before."""
    return bool(tx.write("delete_pushed", account=ids.raw(account), id=raw_id))
