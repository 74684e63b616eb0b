"""The rows of the ids that publishers gave to their events."""

from collections.abc import Iterable

from gatepost.core import ids
from gatepost.store.pending import Key
from gatepost.store.transaction import Tx


def add(tx: Tx, account: str, name: bytes, event: bytes, body: bytes) -> bool:
    """Insert an id. True for the first event that is published with it: the insert decides.

    In a shared commit always True. If the id is not new, the commit leaves this unit out, and it runs by itself.
    """
    row = (ids.raw(account), name, event, body)
    if tx.write_later("append_published", "not_published", row):
        return True
    return bool(tx.write("insert_published", account=ids.raw(account), name=name, event=event, body=body))


def load(tx: Tx, account: str, name: bytes) -> tuple[bytes, bytes] | None:
    """The event that was published with this id, and the hash of its body."""
    row = tx.one("published", account=ids.raw(account), name=name)
    return (row[0], row[1]) if row else None


def load_durably(tx: Tx, account: str, name: bytes) -> tuple[bytes, bytes] | None:
    """The same, and the commit waits until the row is durable, because it writes the row again.

    The commit of another process may have failed to reach its standbys, or may not be on the disk yet.
    """
    rows = tx.write("rewrite_published", account=ids.raw(account), name=name)
    return (rows[0][0], rows[0][1]) if rows else None


def delete(tx: Tx, events: Iterable[Key]) -> None:
    """Delete the ids that publishers gave to these events."""
    tx.write_given("forget_published", events)
