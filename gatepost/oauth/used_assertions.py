"""The rows of `jti` values that were used: of client assertions, of assertions of issuers, and of DPoP proofs."""

import hashlib
from datetime import datetime

from gatepost.core import clock, ids
from gatepost.store.transaction import Tx


def use(tx: Tx, client: str, kind: str, assertion: str, expires_at: datetime) -> bool:
    """True if this is the first use. The insert decides between two requests. Kinds do not share ids."""
    used, until = _assertion_id(kind, assertion), clock.milliseconds(expires_at)
    return bool(tx.write("use_assertion", client=ids.raw(client), id=used, expires_at=until))


def is_used(tx: Tx, client: str, kind: str, assertion: str) -> bool:
    return tx.one("assertion_used", client=ids.raw(client), id=_assertion_id(kind, assertion)) is not None


def _assertion_id(kind: str, assertion: str) -> bytes:
    return hashlib.sha256(f"{kind}\0{assertion}".encode("utf-8", "surrogatepass")).digest()[:16]
