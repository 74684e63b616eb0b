"""The chain of each account: how it begins, how it follows the seals, and how its Merkle tree grows."""

from typing import TypeVar

from gatepost import accounts
from gatepost.accounts import Account, account_rows
from gatepost.ledger import (
    chain,
    chain_rows,
    checkpoint_rows,
    entry_rows,
    seal,
    seal_rows,
    tree_rows,
)
from gatepost.ledger.chain import BrokenChain, Chain
from gatepost.ledger.heads import HEADS, heads_in
from gatepost.ledger.seal import Head
from gatepost.store.pending import Again
from gatepost.store.transaction import HIGHEST, LOWEST, Tx

T = TypeVar("T")
_SEALS = 4  # in one unit: a commit of a few milliseconds
_PAGE = 500


# --- the start of a chain


def begin(tx: Tx, key: bytes, account: str) -> None:
    """Start the chain of a new account, in the commit that creates it."""
    chain_rows.add(tx, key, account, Chain())


def adopt(tx: Tx, key: bytes) -> list[str]:
    """Start the chains of accounts that an earlier release created. Returns the accounts for which it must not.

    The operator's ledger names every account that ever had a chain. The chain of such an account was removed.
    """
    missing = chain_rows.accounts_without(tx)
    if not missing:
        return []
    operator = account_rows.load_named(tx, accounts.OPERATOR)
    if operator is not None and operator.id in missing and chain_rows.exists(tx):
        return missing  # the operator's chain is always the first
    known = _accounts_with_heads(tx, operator) if operator is not None else set()
    for account in sorted(missing, key=lambda each: operator is None or each != operator.id):
        if account not in known and not checkpoint_rows.exists(tx, account):
            _adopt(tx, key, account)
    return [account for account in missing if account in known or checkpoint_rows.exists(tx, account)]


def _adopt(tx: Tx, key: bytes, account: str) -> None:
    anchor = seal_rows.anchor(tx, account)
    pruned = chain.at_anchor(anchor)
    if chain_rows.add(
        tx, key, account, Chain(seal_rows.last(tx, account) or Head(0, seal.START), pruned.number, pruned.tree)
    ):
        tree_rows.save_pruned(tx, key, account, pruned)


def _accounts_with_heads(tx: Tx, operator: Account) -> set[str]:
    found: set[str] = set()
    after = LOWEST
    while page := entry_rows.oldest(tx, operator.id, after, HIGHEST, _PAGE):
        for entry in page:
            if entry.type == HEADS:
                found.update(heads_in(entry).heads)
        after = page[-1].id
    return found


# --- following the seals


def current(tx: Tx, key: bytes, account: str) -> Chain:
    """The present chain, including genuine seals that an earlier release added without moving it."""
    found = chain_rows.load(tx, key, account)
    if found is None:
        raise BrokenChain(f"{account} has no chain record: it was removed, or the account was made by another release")
    last = seal_rows.last(tx, account)
    while last is not None and last.number > found.head.number:
        page = seal_rows.page(tx, account, found.head.number, _PAGE)
        for each in page:
            right = seal.mac(key, account, found.head.mac, each.number, each.at, each.leaves)
            if each.number != found.head.number + 1 or right != each.mac:
                raise BrokenChain(f"seal {each.number} of {account} does not follow the last one that the service made")
            linked = chain.linked(each.leaves)
            found = found._replace(
                head=Head(each.number, each.mac), linked=max(found.linked, linked.number if linked else 0)
            )
        if not page:
            break
    return found


def operator_head(tx: Tx, key: bytes, account: str) -> Head | None:
    """The operator's head, for the seals of other accounts to name."""
    operator = account_rows.load_named(tx, accounts.OPERATOR)
    if operator is None or operator.id == account:
        return None
    try:
        found = chain_rows.load(tx, key, operator.id)
    except BrokenChain:
        return None
    return found.head if found else None


def grow_some(tx: Tx, key: bytes, account: str) -> bool:
    """Add some seals to a tree that is behind. False if nothing is left to do."""
    stored = chain_rows.load(tx, key, account)
    if stored is None or stored.grown >= stored.head.number:
        return False
    anchor = seal_rows.anchor(tx, account)
    before = seal_rows.macs(tx, [(account, stored.grown)]).get((account, stored.grown))
    if before is None:
        before = seal.START if not stored.grown else anchor.mac if anchor and anchor.number == stored.grown else None
    tree, grown = stored.tree, stored.grown
    for each in seal_rows.page(tx, account, grown, _SEALS):
        right = seal.mac(key, account, before, each.number, each.at, each.leaves) if before is not None else None
        if each.number != grown + 1 or right != each.mac:
            break
        first = tree.size
        tree, nodes = chain.grow(key, tree, each)
        tree_rows.add_seal(tx, account, each.number, first, nodes)
        grown, before = each.number, each.mac
    if grown == stored.grown:
        raise BrokenChain(f"seal {grown + 1} of {account} is missing or was altered: the tree cannot grow over it")
    if not chain_rows.move(tx, key, account, stored, stored._replace(grown=grown, tree=tree)):
        raise Again("the chain moved on meanwhile")
    return grown < stored.head.number
