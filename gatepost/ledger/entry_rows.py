"""The rows of ledger entries."""

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from gatepost.core import ids
from gatepost.ledger.entries import Entry
from gatepost.store.pending import Key
from gatepost.store.transaction import LOWEST, Tx


class EntrySize(NamedTuple):
    """When an entry was recorded, and the size of its data in bytes; None if the data was erased."""

    at: int
    size: int | None


class InvalidRows(NamedTuple):
    """The first rows of a ledger that the service cannot have left there."""

    malformed: object  # the id of an entry, if it is not a UUIDv7; SQLite stores values of any type
    lost: object  # the id of an entry that waits for a seal and no longer exists


def load(tx: Tx, account: str, raw_id: bytes) -> Entry | None:
    """The entry with this id."""
    row = tx.one("entry", account=ids.raw(account), id=raw_id)
    return entry_of(row) if row else None


def retention_page(tx: Tx, account: str, after: bytes, before: bytes, limit: int) -> list[tuple[bytes, int]]:
    """The oldest entries between two ids: the id of each, and the days for which it is kept."""
    return cast(
        list[tuple[bytes, int]],
        tx.rows("entry_keeps", account=ids.raw(account), after=after, before=before, limit=limit),
    )


def pruned_up_to(tx: Tx, account: str, keep_days: int) -> bytes:
    """The id up to which the entries of a retention class were pruned."""
    row = tx.one("pruned_up_to", account=ids.raw(account), keep_days=keep_days)
    return row[0] if row else LOWEST


def set_pruned_up_to(tx: Tx, account: str, keep_days: int, previous: bytes, raw_id: bytes) -> None:
    """Set the id up to which the entries of a retention class were pruned, unless it has changed."""
    tx.write("put_pruned_up_to", account=ids.raw(account), keep_days=keep_days, id=raw_id, previous=previous)


def newest(tx: Tx, account: str, before: bytes, since: bytes, limit: int) -> list[Entry]:
    """The newest entries between two ids, the newest first."""
    rows = tx.rows("entries_newest", account=ids.raw(account), before=before, since=since, limit=limit)
    return [entry_of(row) for row in rows]


def oldest(tx: Tx, account: str, after: bytes, before: bytes, limit: int) -> list[Entry]:
    """The oldest entries between two ids, the oldest first."""
    rows = tx.rows("entries_oldest", account=ids.raw(account), after=after, before=before, limit=limit)
    return [entry_of(row) for row in rows]


def count(tx: Tx, account: str) -> int:
    """The number of entries of an account."""
    return int(tx.rows("count_entries", account=ids.raw(account))[0][0])


def invalid_rows(tx: Tx, account: str) -> InvalidRows:
    """Find rows of an account that no seal can explain. Each is None if there is none."""
    [row] = tx.rows(
        "invalid_rows", account=ids.raw(account),
        version_first=b"\x70", version_last=b"\x7f", variant_first=b"\x80", variant_last=b"\xbf",
    )  # fmt: skip
    tx.check_snapshot()
    return InvalidRows(*row)


def sealing_page(tx: Tx, account: str, after: bytes, limit: int) -> list[tuple[bytes, bool]]:
    """The oldest entries after an id: the id of each, and whether it waits for a seal."""
    rows = tx.rows("entries_waiting", account=ids.raw(account), after=after, limit=limit)
    tx.check_snapshot()
    return [(raw_id, bool(waiting)) for raw_id, waiting in rows]


def raw_accounts(tx: Tx) -> list[object]:
    """The accounts of all entries, whether they exist or not."""
    return [account for (account,) in tx.rows("entry_accounts")]


def delete(tx: Tx, account: str, raw_ids: Iterable[bytes]) -> list[bytes]:
    """Delete entries, including any that wait for a seal. Returns those that existed."""
    raw_account = ids.raw(account)
    keys = [(raw_account, raw_id) for raw_id in raw_ids]
    deleted = tx.write_given("delete_entries", keys)
    tx.write_given("unseal", keys)
    return [raw_id for (raw_id,) in deleted]


def lock(tx: Tx, account: str, raw_ids: Iterable[bytes]) -> set[bytes]:
    """Those of these entries that exist. Other transactions wait for the end of this one before they delete them."""
    return {raw_id for (raw_id,) in _rows_given(tx, "lock_entries", account, raw_ids)}


def load_copies(tx: Tx, account: str, raw_ids: Iterable[bytes]) -> dict[bytes, list[Entry]]:
    """The rows with each of these ids. PostgreSQL's partitions do not prevent a second row with another retention."""
    copies: dict[bytes, list[Entry]] = {}
    wanted = list(raw_ids)
    for row in _rows_given(tx, "entries_given", account, wanted) if wanted else ():
        copies.setdefault(row[1], []).append(entry_of(row))
    return copies


def load_many(tx: Tx, keys: Iterable[Key]) -> dict[Key, Entry]:
    """The entries with these keys, by key."""
    return {(row[0], row[1]): entry_of(row) for row in tx.rows_given("entries_given", keys)}


def events(tx: Tx, keys: Iterable[Key]) -> dict[Key, tuple[str, int, str | None]]:
    """The type, the time and the data of the entries with these keys, by key."""
    rows = tx.rows_given("events_given", keys)
    return {(account, raw_id): (type_, at, data) for account, raw_id, type_, at, data in rows}


def sizes(tx: Tx, keys: Iterable[Key]) -> dict[Key, EntrySize]:
    """The times of the entries with these keys, and the sizes of their data, by key."""
    return {(row[0], row[1]): EntrySize(*row[2:]) for row in tx.rows_given("entry_sizes_given", keys)}


def matched_page(tx: Tx, account: str, after: bytes, limit: int) -> list[tuple[bytes, str, int, int]]:
    """The oldest entries: id, type, days for which each is kept, and the number of subscriptions it matched."""
    return cast(
        list[tuple[bytes, str, int, int]],
        tx.rows("entries_matched", account=ids.raw(account), after=after, limit=limit),
    )


def keep_days(tx: Tx, account: str, entries: Iterable[bytes]) -> dict[bytes, int]:
    """The days for which each of these entries is kept, if it exists."""
    return dict(_rows_given(tx, "entry_keeps_given", account, entries))


def undelivered(tx: Tx, account: str, entries: Iterable[bytes]) -> set[bytes]:
    """Those of these entries that have an unfinished delivery."""
    return {entry for (entry,) in _rows_given(tx, "unfinished_given", account, entries)}


def _rows_given(tx: Tx, statement: str, account: str, raw_ids: Iterable[bytes]) -> list[tuple[Any, ...]]:
    raw_account = ids.raw(account)
    return tx.rows_given(statement, [(raw_account, raw_id) for raw_id in raw_ids])


def partitioned(tx: Tx, account: str, entries: Iterable[bytes]) -> set[bytes]:
    """Those of these entries that are deleted with their partition."""
    return {entry for (entry,) in _rows_given(tx, "partitioned_given", account, entries)}


def pruned_marks(tx: Tx, account: str) -> list[tuple[int, bytes]]:
    """For each retention class, the id up to which it was pruned."""
    return cast(list[tuple[int, bytes]], tx.rows("marks", account=ids.raw(account)))


def entry_of(row: tuple[Any, ...]) -> Entry:
    """The entry in a row."""
    return Entry(ids.text("acc", row[0]), *row[1:])
