"""The rows of chains: the head of each account's ledger. A row whose proof is wrong is never returned."""

import hmac
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gatepost.core import ids
from gatepost.ledger import chain, merkle
from gatepost.ledger.chain import BrokenChain, Chain
from gatepost.ledger.seal import Head
from gatepost.store.pending import Row
from gatepost.store.transaction import Tx


class ChainUpdate(NamedTuple):
    """The chain of an account before and after a change."""

    account: str
    before: Chain
    after: Chain


def load(tx: Tx, key: bytes, account: str) -> Chain | None:
    """The chain of an account. None if it has none. Raises `BrokenChain` if the row was altered."""
    stored = load_many(tx, key, [account]).get(account)
    if isinstance(stored, BrokenChain):
        raise stored
    return stored


def load_many(tx: Tx, key: bytes, accounts: Iterable[str]) -> dict[str, Chain | BrokenChain]:
    """The chains of these accounts, if they have one. An altered row is returned as an error."""
    found: dict[str, Chain | BrokenChain] = {}
    for raw, *row in tx.rows_given("chains_given", sorted({(ids.raw(account),) for account in accounts})):
        account = ids.text("acc", raw)
        stored = chain_of(key, account, tuple(row))
        found[account] = stored or BrokenChain(f"the chain record of {account} was altered")
    return found


def add(tx: Tx, key: bytes, account: str, new: Chain) -> bool:
    """Insert the chain of an account. False if it has one."""
    return bool(tx.write_given("insert_chains", [_row(key, account, new)]))


def lock(tx: Tx, key: bytes, chains: Mapping[str, Chain]) -> set[str]:
    """Lock chains until the commit. Returns the accounts whose chain is still the given one.

    Two processes lock chains in the same order, so that neither waits for the other while the other waits for it.
    """
    rows = sorted((ids.raw(account), chain.chain_proof(key, account, stored)) for account, stored in chains.items())
    return {ids.text("acc", raw) for (raw,) in tx.write_given("lock_chains", rows)}


def update_many(tx: Tx, key: bytes, updates: Iterable[ChainUpdate]) -> set[str]:
    """Replace chains. Returns the accounts whose chain no other process replaced first."""
    rows = [(*_row(key, account, after), chain.chain_proof(key, account, before)) for account, before, after in updates]
    return {ids.text("acc", raw) for (raw,) in tx.write_given("move_chains", sorted(rows))}


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


def chain_of(key: bytes, account: str, row: Row) -> Chain | None:
    """The chain in a row. None if the row was altered."""
    number, mac, grown, size, edge, linked, proof = row
    try:
        tree = merkle.unpack(size, edge)
        if tree is None:
            return None
        stored = Chain(Head(number, mac), grown, tree, linked)
        return stored if hmac.compare_digest(proof, chain.chain_proof(key, account, stored)) else None
    except (TypeError, AttributeError):  # SQLite stores values of any type
        return None


def _row(key: bytes, account: str, new: Chain) -> Row:
    return (
        ids.raw(account), *new.head, new.grown, new.tree.size, new.tree.packed(), new.linked,
        chain.chain_proof(key, account, new),
    )  # fmt: skip
