"""The rows of authorization codes."""

from datetime import datetime
from typing import NamedTuple

from gatepost.core import clock, ids
from gatepost.store.transaction import Tx


class Code(NamedTuple):
    client: str
    consent: str
    request: str
    expires_at: datetime
    spent_at: datetime | None = None


def add(tx: Tx, account: str, raw_id: bytes, code: Code) -> None:
    tx.write(
        "insert_code", account=ids.raw(account), id=raw_id, client=ids.raw(code.client),
        consent=ids.raw(code.consent), request=code.request, expires_at=clock.milliseconds(code.expires_at),
    )  # fmt: skip


def load(tx: Tx, account: str, raw_id: bytes) -> Code | None:
    found = tx.one("code", account=ids.raw(account), id=raw_id)
    if found is None:
        return None
    client, consent, request, expires_at, spent_at = found
    return Code(
        ids.text("cli", client), ids.text("con", consent), request, clock.from_milliseconds(expires_at),
        clock.optional_from_milliseconds(spent_at),
    )  # fmt: skip


def spend(tx: Tx, account: str, raw_id: bytes) -> bool:
    """True for the first request that spends it."""
    return bool(tx.write("spend_code", account=ids.raw(account), id=raw_id, at=tx.now))
