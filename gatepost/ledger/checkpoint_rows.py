"""The rows of checkpoints: what was last recorded of each chain. A row whose proof is wrong is never returned."""

import hmac
from collections.abc import Iterable
from typing import NamedTuple

from gatepost.core import ids
from gatepost.ledger import chain
from gatepost.ledger.chain import Chain, RecordedHead
from gatepost.ledger.chain_rows import chain_of
from gatepost.store.pending import Row
from gatepost.store.transaction import Tx


class ChainAndRecord(NamedTuple):
    """A chain, and the head that was last recorded of it. None stands for a row that was altered."""

    account: str
    chain: Chain | None
    recorded: RecordedHead | None


def load(tx: Tx, key: bytes, account: str) -> RecordedHead | None:
    """The last recorded head of an account. None if there is none, or its row was altered."""
    return load_many(tx, key, [account]).get(account)


def load_many(tx: Tx, key: bytes, accounts: Iterable[str]) -> dict[str, RecordedHead | None]:
    """The last recorded heads of these accounts, if they have a row. None stands for a row that was altered."""
    return {account: _recorded_head(key, account, row) for account, row in _rows(tx, accounts).items()}


def exists(tx: Tx, account: str) -> bool:
    """Whether the account has a row, even one that was altered."""
    return bool(_rows(tx, [account]))


def save(tx: Tx, key: bytes, heads: Iterable[tuple[str, RecordedHead]]) -> None:
    """Insert or replace the recorded heads of these accounts."""
    rows = [(ids.raw(account), *head, chain.recorded_proof(key, account, head)) for account, head in sorted(heads)]
    if rows:
        tx.write_given("put_checkpoints", rows)


def page(tx: Tx, key: bytes, after: str, limit: int) -> list[ChainAndRecord]:
    """Chains by account, each with the head that was last recorded of it."""
    rows = tx.rows("chains_to_record", after=ids.raw(after) if after else b"", limit=limit)
    accounts = [ids.text("acc", row[0]) for row in rows]
    return [
        ChainAndRecord(
            account,
            chain_of(key, account, row[1:8]),
            _recorded_head(key, account, row[8:]) if row[8] is not None else None,
        )
        for account, row in zip(accounts, rows, strict=True)
    ]


def notes(tx: Tx, after: str, limit: int) -> list[tuple[str, int, str]]:
    """Account, size of the tree, and signed checkpoint."""
    rows = tx.rows("checkpoints_after", after=ids.raw(after) if after else b"", limit=limit)
    return [(ids.text("acc", raw), size, note) for raw, size, note in rows]


def _rows(tx: Tx, accounts: Iterable[str]) -> dict[str, Row]:
    rows = tx.rows_given("checkpoints_given", sorted({(ids.raw(account),) for account in accounts}))
    return {ids.text("acc", row[0]): row[1:] for row in rows}


def _recorded_head(key: bytes, account: str, row: Row) -> RecordedHead | None:
    *fields, proof = row
    head = RecordedHead(*fields)
    try:
        return head if hmac.compare_digest(proof, chain.recorded_proof(key, account, head)) else None
    except (TypeError, AttributeError):  # SQLite stores values of any type
        return None
