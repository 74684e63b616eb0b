"""The rows of ledger entries."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from gatepost.core import ids
from gatepost.ledger.entries import Entry
from gatepost.ledger.seal import LEAF
from gatepost.store.pending import Key
from gatepost.store.transaction import LOWEST, Tx


class LedgerCounts(NamedTuple):
    """What verification compares with the seals. One statement counts all of it, so it is of one instant."""

    not_waiting: int  # entries that do not wait for a seal
    sealed_since: int  # entries with a later seal than the one given
    lost: bytes | None  # an entry that waits for a seal and no longer exists


def load(tx: Tx, account: str, raw_id: bytes) -> Entry | None:
    found = tx.one("entry", account=ids.raw(account), id=raw_id)
    return entry_of(found) if found else None


def retention_page(tx: Tx, account: str, after: bytes, before: bytes, limit: int) -> list[tuple[bytes, int]]:
    """Ids, and the days for which each entry is kept."""
    rows = tx.rows("entry_keeps", account=ids.raw(account), after=after, before=before, limit=limit)
    return [(raw_id, keep_days) for raw_id, keep_days in rows]


def pruned_up_to(tx: Tx, account: str, keep_days: int) -> bytes:
    found = tx.one("pruned_up_to", account=ids.raw(account), keep_days=keep_days)
    return found[0] if found else LOWEST


def set_pruned_up_to(tx: Tx, account: str, keep_days: int, raw_id: bytes) -> None:
    tx.write("put_pruned_up_to", account=ids.raw(account), keep_days=keep_days, id=raw_id)


def newest(tx: Tx, account: str, before: bytes, since: bytes, limit: int) -> list[Entry]:
    rows = tx.rows("entries_newest", account=ids.raw(account), before=before, since=since, limit=limit)
    return [entry_of(row) for row in rows]


def oldest(tx: Tx, account: str, after: bytes, before: bytes, limit: int) -> list[Entry]:
    rows = tx.rows("entries_oldest", account=ids.raw(account), after=after, before=before, limit=limit)
    return [entry_of(row) for row in rows]


def count(tx: Tx, account: str) -> int:
    return int(tx.rows("count_entries", account=ids.raw(account))[0][0])


def ledger_counts(tx: Tx, account: str, after: int) -> LedgerCounts:
    [(not_waiting, leaves, lost)] = tx.rows("ledger_counts", account=ids.raw(account), after=after, link=bytes(8))
    return LedgerCounts(not_waiting, int(leaves) // LEAF, lost)


def delete(tx: Tx, account: str, raw_ids: Iterable[bytes]) -> None:
    """Delete entries, including any that were never sealed."""
    those = [(ids.raw(account), raw_id) for raw_id in raw_ids]
    tx.write_given("delete_entries", those)
    tx.write_given("unseal", those)


def erase_data(tx: Tx, account: str, raw_id: bytes, data_hash: bytes) -> None:
    tx.write("erase_data", account=ids.raw(account), id=raw_id, data_hash=data_hash)


def load_many(tx: Tx, keys: Iterable[Key]) -> dict[Key, Entry]:
    rows = tx.rows_given("entries_given", list(keys))
    return {(row[0], row[1]): entry_of(row) for row in rows}


def matched_page(tx: Tx, account: str, after: bytes, limit: int) -> list[tuple[bytes, str, int, int]]:
    """The oldest entries: id, type, days for which each is kept, and the number of subscriptions it matched."""
    rows = tx.rows("entries_matched", account=ids.raw(account), after=after, limit=limit)
    return [(raw_id, type_, keep_days, matched) for raw_id, type_, keep_days, matched in rows]


def keep_days(tx: Tx, account: str, entries: Iterable[bytes]) -> dict[bytes, int]:
    """The days for which each of these entries is kept, if it exists."""
    return dict(_of_account(tx, "entry_keeps_given", account, entries))


def undelivered(tx: Tx, account: str, entries: Iterable[bytes]) -> set[bytes]:
    """The entries with an unfinished delivery."""
    return {entry for (entry,) in _of_account(tx, "unfinished_given", account, entries)}


def _of_account(tx: Tx, statement: str, account: str, raw_ids: Iterable[bytes]) -> list[tuple[Any, ...]]:
    whose = ids.raw(account)
    return tx.rows_given(statement, [(whose, raw_id) for raw_id in raw_ids])


def pruned_marks(tx: Tx, account: str) -> list[tuple[int, bytes]]:
    """For each retention class, the id up to which it was pruned."""
    return [(days, raw_id) for days, raw_id in tx.rows("marks", account=ids.raw(account))]


def entry_of(row: tuple[Any, ...]) -> Entry:
    return Entry(ids.text("acc", row[0]), *row[1:])
