"""The rows of chains: the head of each account's ledger. A row whose proof is wrong is never returned."""

from typing import Any

from gatepost.core import ids
from gatepost.ledger import chain, merkle
from gatepost.ledger.chain import BrokenChain, Chain
from gatepost.ledger.merkle import Tree
from gatepost.ledger.seal import Head
from gatepost.store.transaction import Tx


def load(tx: Tx, key: bytes, account: str) -> Chain | None:
    """None if the account has no chain. Raises `BrokenChain` if the row was altered."""
    rows = tx.rows("chain", account=ids.raw(account))
    if not rows:
        return None
    found = chain_of(key, account, rows[0])
    if found is None:
        raise BrokenChain(f"the chain record of {account} was altered")
    return found


def add(tx: Tx, key: bytes, account: str, begun: Chain) -> bool:
    """False if the account has a chain."""
    return bool(tx.write("insert_chain", **_parameters(key, account, begun)))


def move(tx: Tx, key: bytes, account: str, before: Chain, after: Chain) -> bool:
    """False if another process moved it first."""
    parameters = _parameters(key, account, after) | {"before": chain.chain_proof(key, account, before)}
    return bool(tx.write("move_chain", **parameters))


def behind(tx: Tx, limit: int) -> list[str]:
    """Accounts with seals that are not in their Merkle tree."""
    return [ids.text("acc", row[0]) for row in tx.rows("chains_behind", limit=limit)]


def accounts_without(tx: Tx) -> list[str]:
    """Accounts without a chain."""
    return [ids.text("acc", row[0]) for row in tx.rows("accounts_without_chain")]


def without_account(tx: Tx) -> list[str]:
    """Chains without an account."""
    return [ids.text("acc", row[0]) for row in tx.rows("chains_without_account")]


def exists(tx: Tx) -> bool:
    return bool(tx.rows("any_chain"))


def chain_of(key: bytes, account: str, row: tuple[Any, ...]) -> Chain | None:
    number, mac, grown, size, edge, linked, proof = row
    tree = merkle.unpack(size, edge)
    found = Chain(Head(number, mac), grown, tree or Tree(), linked)
    return found if tree is not None and chain.same(proof, chain.chain_proof(key, account, found)) else None


def _parameters(key: bytes, account: str, found: Chain) -> dict[str, Any]:
    return {
        "account": ids.raw(account), "number": found.head.number, "mac": found.head.mac, "grown": found.grown,
        "size": found.tree.size, "edge": found.tree.packed(), "linked": found.linked,
        "proof": chain.chain_proof(key, account, found),
    }  # fmt: skip
