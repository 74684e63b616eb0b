"""The rows of seals, and of the entries that wait for one."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import cast

from gatepost.core import ids
from gatepost.ledger.seal import Anchor, Head, Seal
from gatepost.store.pending import Key, Row
from gatepost.store.transaction import Tx


def count_unsealed(tx: Tx, account: str) -> int:
    """The number of entries that wait for a seal."""
    return int(tx.rows("count_unsealed", account=ids.raw(account))[0][0])


def is_unsealed(tx: Tx, account: str, raw_id: bytes) -> bool:
    """Whether an entry waits for a seal."""
    return tx.one("is_unsealed", account=ids.raw(account), id=raw_id) is not None


def unsealed_accounts(tx: Tx) -> list[str]:
    """The accounts with entries that wait for a seal."""
    return [ids.text("acc", account) for (account,) in tx.rows("unsealed_accounts") if ids.is_raw(account)]


def raw_accounts(tx: Tx) -> list[object]:
    """The accounts of all seals and of all entries that wait for one, whether they exist or not."""
    return [account for statement in ("seal_accounts", "unsealed_accounts") for (account,) in tx.rows(statement)]


def oldest_unsealed(tx: Tx) -> datetime | None:
    """When the oldest entry that waits for a seal was created."""
    oldest = unsealed(tx, unsealed_accounts(tx), 1)
    return min((ids.made_at(raw_id) for keys in oldest.values() for _, raw_id in keys), default=None)


def unsealed(tx: Tx, accounts: Iterable[str], limit: int) -> dict[str, list[Key]]:
    """The keys of the oldest entries of each account that wait for a seal."""
    listed = list(accounts)
    found = tx.rows_each("unsealed", [{"account": ids.raw(account), "most": limit} for account in listed])
    return dict(zip(listed, cast(list[list[Key]], found), strict=True))


def unsealed_page(tx: Tx, account: str, after: bytes, limit: int) -> list[bytes]:
    """The ids of the oldest entries after an id that wait for a seal."""
    return [raw_id for (raw_id,) in tx.rows("unsealed_after", account=ids.raw(account), after=after, limit=limit)]


def unseal(tx: Tx, keys: Iterable[Key]) -> set[Key]:
    """Let entries no longer wait for a seal. Returns the keys of those that did."""
    return set(cast(list[Key], tx.write_given("unseal", keys)))


def put_back(tx: Tx, keys: Iterable[Key]) -> None:
    """Let entries wait for a seal again."""
    tx.write_given("insert_unsealed", sorted(keys))


def last(tx: Tx, account: str) -> Head | None:
    """The head at the last seal of an account, or at its anchor if all seals were pruned."""
    row = tx.one("last_seal", account=ids.raw(account)) or tx.one("anchor", account=ids.raw(account))
    return Head(*row[:2]) if row else None


def anchor(tx: Tx, account: str) -> Anchor | None:
    """The last seal of an account that was pruned."""
    row = tx.one("anchor", account=ids.raw(account))
    return Anchor(*row) if row else None


def page(tx: Tx, account: str, after: int, limit: int) -> list[Seal]:
    """Seals in their order, after this number."""
    return [Seal(*row) for row in tx.rows("seals_after", account=ids.raw(account), after=after, limit=limit)]


def with_newer_seals(tx: Tx, numbers: Mapping[str, int]) -> set[str]:
    """Those of these accounts that have a seal after the given number."""
    parameters = [{"account": ids.raw(account), "number": number} for account, number in numbers.items()]
    newer = tx.rows_each("newer_seal", parameters)
    return {account for account, found in zip(numbers, newer, strict=True) if found}


def add(tx: Tx, seals: Iterable[tuple[str, Seal]]) -> set[str]:
    """Insert a seal for each of these accounts. Returns the accounts that had no seal with its number."""
    rows = sorted((ids.raw(account), *seal) for account, seal in seals)
    return {ids.text("acc", raw) for (raw,) in tx.write_given("insert_seals", rows)}


def delete_oldest(tx: Tx, account: str, anchor: Anchor) -> bool:
    """Replace the oldest seal by the anchor. False if another process was first."""
    raw_account = ids.raw(account)
    if not tx.write("delete_seal", account=raw_account, number=anchor.number):
        return False
    tx.write("set_anchor", account=raw_account, **anchor._asdict())
    return True


def macs(tx: Tx, seals: Iterable[tuple[str, int]]) -> dict[tuple[str, int], bytes]:
    """The HMACs of seals, by account and number. A seal that does not exist is left out."""
    keys = {(ids.raw(account), number) for account, number in seals}
    return {(ids.text("acc", raw), number): mac for raw, number, mac in _rows_given(tx, "seal_macs_given", keys)}


def anchors(tx: Tx, accounts: Iterable[str]) -> dict[str, Anchor]:
    """The anchors of these accounts, if they have one."""
    keys = {(ids.raw(account),) for account in accounts}
    return {ids.text("acc", raw): Anchor(*fields) for raw, *fields in _rows_given(tx, "anchors_given", keys)}


def existing_accounts(tx: Tx, accounts: Iterable[str]) -> set[str]:
    """Those of these accounts that exist. This does not use the cache."""
    keys = {(ids.raw(account),) for account in accounts}
    return {ids.text("acc", raw) for (raw,) in _rows_given(tx, "accounts_given", keys)}


def _rows_given(tx: Tx, statement: str, keys: set[Row]) -> list[Row]:
    return tx.rows_given(statement, sorted(keys)) if keys else []


def first_since(tx: Tx, account: str, since: int) -> int | None:
    """The number of the first seal since this time in milliseconds."""
    row = tx.one("first_seal_since", account=ids.raw(account), since=since)
    return row[0] if row else None
