"""The chain of each account: how it begins, how it follows the seals, and how its Merkle tree grows."""

from gatepost import accounts
from gatepost.accounts import Account, account_rows
from gatepost.ledger import chain, chain_rows, checkpoint_rows, entry_rows, seal, seal_rows, tree_rows
from gatepost.ledger.chain import BrokenChain, Chain
from gatepost.ledger.chain_rows import ChainUpdate
from gatepost.ledger.heads import HEADS, heads_in
from gatepost.ledger.seal import Head
from gatepost.ledger.tree_rows import GrownTree
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
    if recorded is None:
        return missing
    removed = [account for account in missing if account in recorded or checkpoint_rows.exists(tx, account)]
    for account in missing:
        if account not in removed:
            pruned = chain.tree_at_anchor(seal_rows.anchor(tx, account))
            head = seal_rows.last(tx, account) or Head(0, seal.START)
            if chain_rows.add(tx, key, account, Chain(head, pruned.number, pruned.tree)):
                tree_rows.save_pruned(tx, key, account, pruned)
    return removed


def _accounts_with_heads(tx: Tx, operator: Account) -> set[str] | None:
    """The accounts that the operator's ledger names. None if an entry that names accounts was erased or altered."""
    named: set[str] = set()
    after = LOWEST
    while page := entry_rows.oldest(tx, operator.id, after, HIGHEST, _PAGE):
        for entry in page:
            if entry.type == HEADS:
                heads = heads_in(entry)
                if heads is None:
                    return None
                named.update(heads.heads)
        after = page[-1].id
    return named


# --- following the seals


def follow(tx: Tx, key: bytes, account: str, present: Chain) -> Chain:
    """The chain with the valid seals that an earlier release added without updating the chain record."""
    while page := seal_rows.page(tx, account, present.head.number, _PAGE):
        for added in page:
            if not seal.follows(key, account, present.head, added):
                raise BrokenChain(f"seal {added.number} of {account} does not follow the last seal of the service")
            linked = chain.linked_head(added.leaves)
            present = present._replace(
                head=Head(added.number, added.mac), linked=max(present.linked, linked.number if linked else 0)
            )
    return present


def grow_tree(tx: Tx, key: bytes, account: str) -> bool:
    """Add a few seals to a tree that is behind its chain. False if nothing is left to do."""
    stored = chain_rows.load(tx, key, account)
    if stored is None or stored.grown >= stored.head.number:
        return False
    last, tree, grown = _last_grown(tx, account, stored.grown), stored.tree, list[GrownTree]()
    for added in seal_rows.page(tx, account, stored.grown, _SEALS):
        if last is None or not seal.follows(key, account, last, added):
            break
        first_leaf = tree.size
        tree, nodes = chain.grow(key, tree, added)
        grown.append(GrownTree(account, added.number, first_leaf, nodes))
        last = Head(added.number, added.mac)
    if last is None or last.number == stored.grown:
        raise BrokenChain(
            f"seal {stored.grown + 1} of {account} is missing or was altered: the tree cannot grow over it"
        )
    update = ChainUpdate(account, stored, stored._replace(grown=last.number, tree=tree))
    if not chain_rows.update_many(tx, key, [update]):
        raise Again("another process updated the chain")
    tree_rows.add_seals(tx, grown)
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
