"""The rows of checkpoints: what was last recorded of each chain. A row whose proof is wrong is never returned."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from gatepost.core import ids
from gatepost.ledger import chain
from gatepost.ledger.chain import Chain, Recorded
from gatepost.ledger.chain_rows import chain_of
from gatepost.store.transaction import Tx


class Changed(NamedTuple):
    """A chain, and what was last recorded of it. None stands for a row that was altered."""

    account: str
    chain: Chain | None
    recorded: Recorded | None


def load(tx: Tx, key: bytes, account: str) -> Recorded | None:
    rows = tx.rows("checkpoint", account=ids.raw(account))
    return _recorded(key, account, rows[0]) if rows else None


def exists(tx: Tx, account: str) -> bool:
    return bool(tx.rows("checkpoint", account=ids.raw(account)))


def save(tx: Tx, key: bytes, those: Iterable[tuple[str, Recorded]]) -> None:
    rows = [(ids.raw(account), *found, chain.recorded_proof(key, account, found)) for account, found in sorted(those)]
    if rows:
        tx.write_given("put_checkpoints", rows)


def page(tx: Tx, key: bytes, after: str, limit: int) -> list[Changed]:
    """Chains by account, each with what was last recorded of it."""
    asked = {"after": ids.raw(after) if after else b"", "limit": limit}
    found = []
    for row in tx.rows("chains_to_record", **asked):
        account = ids.text("acc", row[0])
        recorded = _recorded(key, account, row[8:]) if row[8] is not None else None
        found.append(Changed(account, chain_of(key, account, row[1:8]), recorded))
    return found


def notes(tx: Tx, after: str, limit: int) -> list[tuple[str, int, str]]:
    """Account, size of the tree, and signed checkpoint."""
    asked = {"after": ids.raw(after) if after else b"", "limit": limit}
    return [(ids.text("acc", raw), size, note) for raw, size, note in tx.rows("checkpoints_after", **asked)]


def _recorded(key: bytes, account: str, row: tuple[Any, ...]) -> Recorded | None:
    *fields, proof = row
    found = Recorded(*fields)
    return found if chain.same(proof, chain.recorded_proof(key, account, found)) else None
