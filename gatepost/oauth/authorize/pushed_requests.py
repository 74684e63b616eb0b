"""The rows of pushed authorization requests (RFC 9126)."""

from datetime import datetime

from gatepost.core import clock, ids
from gatepost.core.secrets import Box
from gatepost.store.transaction import Tx


def add(tx: Tx, account: str, raw_id: bytes, client: str, source: str, request: bytes, box: Box, expires_at: datetime
) -> None:  # fmt: skip
    tx.write(
        "insert_pushed", account=ids.raw(account), id=raw_id, client=ids.raw(client), source=source,
        request=box.close(request, f"pushed {account} {raw_id.hex()}"), expires_at=clock.milliseconds(expires_at),
    )  # fmt: skip


def evict(tx: Tx, account: str, client: str, source: str, keep: int) -> int:
    """Delete all but the newest `keep` of one client and address. Returns how many were deleted."""
    return len(tx.write("evict_pushed", account=ids.raw(account), client=ids.raw(client), source=source, keep=keep))


def load(tx: Tx, account: str, raw_id: bytes, client: str, box: Box) -> bytes | None:
    """The request that the client pushed, until it expires."""
    found = tx.one("pushed", account=ids.raw(account), id=raw_id, client=ids.raw(client), at=tx.now)
    return box.open(found[0], f"pushed {account} {raw_id.hex()}") if found else None


def delete(tx: Tx, account: str, raw_id: bytes) -> bool:
    return bool(tx.write("delete_pushed", account=ids.raw(account), id=raw_id))
