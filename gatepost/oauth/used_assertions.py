"""The rows of ids that can be used once: of client assertions, assertions of issuers, DPoP proofs, pushed requests."""

import hashlib
from datetime import datetime

from gatepost.core import clock, ids
from gatepost.store.transaction import Tx


def use(tx: Tx, client: str, kind: str, assertion: str, expires_at: datetime) -> bool:
    """Mark an id as used. True for the first use: the insert decides between two requests. Kinds do not share ids."""
    used, until = _assertion_id(kind, assertion), clock.milliseconds(expires_at)
    return bool(tx.write("use_assertion", client=ids.raw(client), id=used, expires_at=until))


def is_used(tx: Tx, client: str, kind: str, assertion: str) -> bool:
    """Whether the id was used."""
    return tx.one("assertion_used", client=ids.raw(client), id=_assertion_id(kind, assertion)) is not None


def _assertion_id(kind: str, assertion: str) -> bytes:
    return hashlib.sha256(f"{kind}\0{assertion}".encode("utf-8", "surrogatepass")).digest()[:16]
