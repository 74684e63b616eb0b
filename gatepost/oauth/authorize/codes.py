"""Authorization codes: what a code is bound to, and its rows."""

import hashlib
from datetime import datetime
from typing import NamedTuple

import msgspec

from gatepost.core import clock, ids
from gatepost.store.transaction import Tx


class CodeBinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parts of the authorization request that the redemption of its code must match. Stored as JSON."""

    redirect_uri: str
    challenge: str = ""
    thumbprint: str = ""
    nonce: str | None = None


_binding = msgspec.json.Decoder(CodeBinding)


class Code(NamedTuple):
    """A stored authorization code. It is stored by its `code_id`."""

    client: str
    consent: str
    request: str  # a serialized CodeBinding
    expires_at: datetime
    spent_at: datetime | None = None

    def binding(self) -> CodeBinding:
        return _binding.decode(self.request)


def code_id(code: str) -> bytes:
    """The hash by which a code is stored."""
    return hashlib.sha256(b"code\0" + code.encode("utf-8", "surrogatepass")).digest()


def add(tx: Tx, account: str, raw_id: bytes, code: Code) -> None:
    """Store a code."""
    tx.write(
        "insert_code", account=ids.raw(account), id=raw_id, client=ids.raw(code.client),
        consent=ids.raw(code.consent), request=code.request, expires_at=clock.milliseconds(code.expires_at),
    )  # fmt: skip


def load(tx: Tx, account: str, raw_id: bytes) -> Code | None:
    """The code, also if it has expired or was redeemed."""
    row = tx.one("code", account=ids.raw(account), id=raw_id)
    if row is None:
        return None
    client, consent, request, expires_at, spent_at = row
    return Code(
        ids.text("cli", client), ids.text("con", consent), request, clock.from_milliseconds(expires_at),
        clock.optional_from_milliseconds(spent_at),
    )  # fmt: skip


def spend(tx: Tx, account: str, raw_id: bytes) -> bool:
    """Mark a code as redeemed. True for the first request that does so."""
    return bool(tx.write("spend_code", account=ids.raw(account), id=raw_id, at=tx.now))
