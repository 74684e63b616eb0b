"""The chain of each account: how it begins, how it follows the seals, and how its Merkle tree grows."""

from gatepost import accounts
from gatepost.accounts import Account, account_rows
from gatepost.ledger import chain, chain_rows, checkpoint_rows, entry_rows, seal, seal_rows, tree_rows
from gatepost.ledger.chain import BrokenChain, Chain
from gatepost.ledger.heads import HEADS, heads_in
from gatepost.ledger.seal import Head
from gatepost.store.pending import Again
from gatepost.store.transaction import HIGHEST, LOWEST, Tx

_SEALS = 4  # in one unit: a commit of a few milliseconds
_PAGE = 500


# --- the start of a chain


def create(tx: Tx, key: bytes, account: str) -> None:
    """Create the chain of a new account, in the commit that creates the account."""
    chain_rows.add(tx, key, account, Chain())


def create_missing(tx: Tx, key: bytes) -> list[str]:
    """Create the chains of accounts that an earlier release created. Returns the accounts whose chains were removed.

    The operator's ledger names every account that ever had a chain. The chain of such an account is not created again.
    """
    missing = chain_rows.accounts_without_chain(tx)
    if not missing:
        return []
    operator = account_rows.load_named(tx, accounts.OPERATOR)
    if operator is not None and operator.id in missing and chain_rows.exists(tx):
        return missing  # the operator's chain is always the first
    recorded = _accounts_with_heads(tx, operator) if operator is not None else set()
    removed = [account for account in missing if account in recorded or checkpoint_rows.exists(tx, account)]
    for account in missing:
        if account not in removed:
            pruned = chain.tree_at_anchor(seal_rows.anchor(tx, account))
            head = seal_rows.last(tx, account) or Head(0, seal.START)
            if chain_rows.add(tx, key, account, Chain(head, pruned.number, pruned.tree)):
                tree_rows.save_pruned(tx, key, account, pruned)
    return removed


def _accounts_with_heads(tx: Tx, operator: Account) -> set[str]:
    named: set[str] = set()
    after = LOWEST
    while page := entry_rows.oldest(tx, operator.id, after, HIGHEST, _PAGE):
        for entry in page:
            if entry.type == HEADS:
                named.update(heads_in(entry).heads)
        after = page[-1].id
    return named


# --- following the seals


def current(tx: Tx, key: bytes, account: str) -> Chain:
    """The present chain, including valid seals that an earlier release added without updating the chain record."""
    present = chain_rows.load(tx, key, account)
    if present is None:
        raise BrokenChain(
            f"{account} has no chain record: it was removed, or another release of the service created the account"
        )
    while page := seal_rows.page(tx, account, present.head.number, _PAGE):
        for added in page:
            if not seal.follows(key, account, present.head, added):
                raise BrokenChain(f"seal {added.number} of {account} does not follow the last seal of the service")
            linked = chain.linked_head(added.leaves)
            present = present._replace(
                head=Head(added.number, added.mac), linked=max(present.linked, linked.number if linked else 0)
            )
    return present


def operator_head(tx: Tx, key: bytes, account: str) -> Head | None:
    """The operator's head, for the seals of other accounts to name."""
    operator = account_rows.load_named(tx, accounts.OPERATOR)
    if operator is None or operator.id == account:
        return None
    try:
        operator_chain = chain_rows.load(tx, key, operator.id)
    except BrokenChain:
        return None
    return operator_chain.head if operator_chain else None


def grow_tree(tx: Tx, key: bytes, account: str) -> bool:
    """Add a few seals to a tree that is behind its chain. False if nothing is left to do."""
    stored = chain_rows.load(tx, key, account)
    if stored is None or stored.grown >= stored.head.number:
        return False
    last, tree = _last_grown(tx, account, stored.grown), stored.tree
    for added in seal_rows.page(tx, account, stored.grown, _SEALS):
        if last is None or not seal.follows(key, account, last, added):
            break
        first_leaf = tree.size
        tree, nodes = chain.grow(key, tree, added)
        tree_rows.add_seal(tx, account, added.number, first_leaf, nodes)
        last = Head(added.number, added.mac)
    if last is None or last.number == stored.grown:
        raise BrokenChain(
            f"seal {stored.grown + 1} of {account} is missing or was altered: the tree cannot grow over it"
        )
    if not chain_rows.update(tx, key, account, stored, stored._replace(grown=last.number, tree=tree)):
        raise Again("another process updated the chain")
    return last.number < stored.head.number


def _last_grown(tx: Tx, account: str, number: int) -> Head | None:
    """The head at the last seal whose entries are in the tree. None if that seal is missing."""
    if not number:
        return Head(0, seal.START)
    mac = seal_rows.macs(tx, [(account, number)]).get((account, number))
    anchor = seal_rows.anchor(tx, account)
    if mac is None and anchor and anchor.number == number:
        mac = anchor.mac
    return Head(number, mac) if mac is not None else None
