"""The rows of chains: the head of each account's ledger. A row whose proof is wrong is never returned."""

import hmac
from typing import Any

from gatepost.core import ids
from gatepost.ledger import chain, merkle
from gatepost.ledger.chain import BrokenChain, Chain
from gatepost.ledger.seal import Head
from gatepost.store.transaction import Tx


def load(tx: Tx, key: bytes, account: str) -> Chain | None:
    """The chain of an account. None if it has none. Raises `BrokenChain` if the row was altered."""
    row = tx.one("chain", account=ids.raw(account))
    if row is None:
        return None
    stored = chain_of(key, account, row)
    if stored is None:
        raise BrokenChain(f"the chain record of {account} was altered")
    return stored


def add(tx: Tx, key: bytes, account: str, new: Chain) -> bool:
    """Insert the chain of an account. False if it has one."""
    return bool(tx.write("insert_chain", **_parameters(key, account, new)))


def update(tx: Tx, key: bytes, account: str, before: Chain, after: Chain) -> bool:
    """Replace the chain of an account. False if another process replaced it first."""
    parameters = _parameters(key, account, after) | {"before": chain.chain_proof(key, account, before)}
    return bool(tx.write("move_chain", **parameters))


def accounts_with_incomplete_tree(tx: Tx, limit: int) -> list[str]:
    """Accounts with seals that are not in their Merkle tree."""
    return [ids.text("acc", raw) for (raw,) in tx.rows("chains_behind", limit=limit)]


def accounts_without_chain(tx: Tx) -> list[str]:
    """Accounts that have no chain."""
    return [ids.text("acc", raw) for (raw,) in tx.rows("accounts_without_chain")]


def removed_accounts(tx: Tx) -> list[str]:
    """Accounts that do not exist, but have a chain."""
    return [ids.text("acc", raw) for (raw,) in tx.rows("chains_without_account")]


def exists(tx: Tx) -> bool:
    """Whether any account has a chain."""
    return tx.one("any_chain") is not None


def chain_of(key: bytes, account: str, row: tuple[Any, ...]) -> Chain | None:
    """The chain in a row. None if the row was altered."""
    number, mac, grown, size, edge, linked, proof = row
    tree = merkle.unpack(size, edge)
    if tree is None:
        return None
    stored = Chain(Head(number, mac), grown, tree, linked)
    return stored if hmac.compare_digest(proof, chain.chain_proof(key, account, stored)) else None


def _parameters(key: bytes, account: str, new: Chain) -> dict[str, Any]:
    return {
        "account": ids.raw(account), "number": new.head.number, "mac": new.head.mac, "grown": new.grown,
        "size": new.tree.size, "edge": new.tree.packed(), "linked": new.linked,
        "proof": chain.chain_proof(key, account, new),
    }  # fmt: skip
