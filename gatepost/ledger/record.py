"""Recording an entry: the only way into the ledger. Its deliveries are created in the same commit."""

from typing import Any

import msgspec

from gatepost.accounts import Account
from gatepost.core import ids
from gatepost.ledger import entries
from gatepost.ledger.entries import TYPES, Entry, Origin
from gatepost.store.transaction import Tx


class Recorded(msgspec.Struct):
    """An entry, and the ids of the deliveries that were created for it."""

    entry: Entry
    deliveries: list[bytes]


def append_entry(tx: Tx, entry: Entry) -> Recorded:
    """Write an entry, with a delivery for each subscription that it matches, at the end of the commit."""
    deliveries = tx.engine.fan_out(tx, entry)
    if deliveries:
        entry = entry._replace(matched=len(deliveries))
    row = (ids.raw(entry.account), *entry[1:])
    tx.pending.append("insert_entries", [row])
    tx.pending.append("insert_unsealed", [row[:2]])
    tx.pending.labels.append(entry.type)
    return Recorded(entry, deliveries)


def record(tx: Tx, account: Account, type_: str, origin: Origin, subject: str, data: dict[str, Any]) -> Entry:
    """Record a fact about the account, in this commit."""
    if type_ not in TYPES:
        raise ValueError(f"{type_} is not in the table of event types")
    keep_days = account.seconds("audit_retention") // 86400
    entry = entries.new(
        type_, account=account.id, origin=origin, subject=subject, data=data, at=tx.at, keep_days=keep_days
    )
    return append_entry(tx, entry).entry
