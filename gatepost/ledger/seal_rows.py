"""The rows of seals, and of the entries that wait for one."""

from collections.abc import Iterable
from datetime import datetime

from gatepost.core import ids
from gatepost.ledger.entries import Entry
from gatepost.ledger.seal import Anchor, Head, Seal
from gatepost.store.pending import Again
from gatepost.store.transaction import Tx


def count_unsealed(tx: Tx, account: str) -> int:
    return int(tx.rows("count_unsealed", account=ids.raw(account))[0][0])


def is_unsealed(tx: Tx, account: str, raw_id: bytes) -> bool:
    return tx.one("is_unsealed", account=ids.raw(account), id=raw_id) is not None


def unsealed_accounts(tx: Tx) -> list[str]:
    return [ids.text("acc", account) for (account,) in tx.rows("unsealed_accounts")]


def oldest_unsealed(tx: Tx) -> datetime | None:
    firsts = [tx.one("oldest_unsealed", account=ids.raw(account)) for account in unsealed_accounts(tx)]
    return min((ids.made_at(first[0]) for first in firsts if first), default=None)


def unsealed(tx: Tx, account: str, limit: int) -> list[Entry]:
    rows = tx.rows("unsealed", account=ids.raw(account), limit=limit)
    return [Entry(account, *row[1:]) for row in rows]


def last(tx: Tx, account: str) -> Head | None:
    found = tx.one("last_seal", account=ids.raw(account)) or tx.one("anchor", account=ids.raw(account))
    return Head(*found[:2]) if found else None


def anchor(tx: Tx, account: str) -> Anchor | None:
    found = tx.one("anchor", account=ids.raw(account))
    return Anchor(*found) if found else None


def page(tx: Tx, account: str, after: int, limit: int) -> list[Seal]:
    return [Seal(*row) for row in tx.rows("seals_after", account=ids.raw(account), after=after, limit=limit)]


def add(tx: Tx, account: str, seal: Seal, sealed: Iterable[Entry]) -> bool:
    """False if another process was first. Each number has one seal, and each entry is sealed once."""
    whose = ids.raw(account)
    if not tx.write("insert_seal", account=whose, number=seal.number, at=seal.at, leaves=seal.leaves, mac=seal.mac):
        return False
    waiting = [(whose, entry.id) for entry in sealed]
    if len(tx.write_given("unseal", waiting)) != len(waiting):
        raise Again("some of these were sealed or pruned meanwhile")
    return True


def delete_oldest(tx: Tx, account: str, anchor: Anchor) -> bool:
    """Replace the oldest seal by the anchor. False if another process was first."""
    whose = ids.raw(account)
    if not tx.write("delete_seal", account=whose, number=anchor.number):
        return False
    tx.write("set_anchor", account=whose, number=anchor.number, mac=anchor.mac, proof=anchor.proof)
    return True


def macs(tx: Tx, asked: Iterable[tuple[str, int]]) -> dict[tuple[str, int], bytes]:
    rows = sorted({(ids.raw(account), number) for account, number in asked})
    found = tx.rows_given("seal_macs_given", rows) if rows else []
    return {(ids.text("acc", raw), number): mac for raw, number, mac in found}


def anchors(tx: Tx, accounts: Iterable[str]) -> dict[str, Anchor]:
    rows = sorted({(ids.raw(account),) for account in accounts})
    found = tx.rows_given("anchors_given", rows) if rows else []
    return {ids.text("acc", raw): Anchor(*rest) for raw, *rest in found}


def accounts_given(tx: Tx, accounts: Iterable[str]) -> set[str]:
    """Those of these accounts that exist. Reads no cache."""
    rows = sorted({(ids.raw(account),) for account in accounts})
    found = tx.rows_given("accounts_given", rows) if rows else []
    return {ids.text("acc", raw) for (raw,) in found}


def first_since(tx: Tx, account: str, since: int) -> int | None:
    rows = tx.rows("first_seal_since", account=ids.raw(account), since=since)
    return int(rows[0][0]) if rows else None
