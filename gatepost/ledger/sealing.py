"""Sealing the entries that wait for a seal: several ledgers in one commit, each with one seal."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gatepost.accounts import OPERATOR, account_rows
from gatepost.core import ids
from gatepost.ledger import chain, chain_rows, chains, entry_rows, seal, seal_rows, tree_rows
from gatepost.ledger.chain import BrokenChain, Chain, NextSeal
from gatepost.ledger.chain_rows import ChainUpdate
from gatepost.ledger.tree_rows import GrownTree
from gatepost.store.pending import Key
from gatepost.store.transaction import Tx


class PreparedSeal(NamedTuple):
    """A seal that was computed from a snapshot. It is added if the chain still has the same end."""

    account: str
    stored: Chain
    next: NextSeal
    keys: list[Key]  # of its entries


class Prepared(NamedTuple):
    """The next seals of some ledgers, and the ledgers that get none in the same commit."""

    seals: list[PreparedSeal]
    larger: list[str]  # accounts with too many waiting entries for a commit with so many others
    broken: dict[str, BrokenChain]


def prepare(tx: Tx, key: bytes, accounts: Sequence[str]) -> Prepared:
    """Compute the next seals in a unit that only reads, so that writers do not wait for the hashing.

    The chains are read before the entries. In the other order, a process could read entries that another process seals
    before the chain is read, and seal them again with the next number.

    All ledgers together have at most as many entries as one seal, in equal shares. The seal of a ledger is the same as
    if it were prepared alone. So if more of its entries wait than its share, it has to be prepared with fewer others.
    """
    operator = _operator(tx)
    stored = chain_rows.load_many(tx, key, [*accounts, operator] if operator else accounts)
    operator_chain = stored.get(operator) if operator else None
    operator_head = operator_chain.head if isinstance(operator_chain, Chain) else None
    intact, broken = _follow(tx, key, {account: stored.get(account) for account in accounts})
    share = seal.BATCH // len(accounts)
    waiting = seal_rows.unsealed(tx, intact, share + 1)
    larger = [account for account, keys in waiting.items() if len(keys) > share and len(accounts) > 1]
    found = entry_rows.load_many(
        tx, [each for account, keys in waiting.items() if account not in larger for each in keys[:share]]
    )
    seals: list[PreparedSeal] = []
    for account, (before, current) in intact.items():
        keys = [each for each in waiting[account][:share] if each in found and seal.is_entry_id(each[1])]
        if keys:
            entries = [found[each] for each in keys]
            named = None if account == operator else operator_head
            following = chain.next_seal(key, account, current, entries, tx.now, named)
            seals.append(PreparedSeal(account, before, following, keys))
    return Prepared(seals, larger, broken)


def _operator(tx: Tx) -> str | None:
    """The account whose head the seals of the others name. None while its database node is down."""
    operator = account_rows.load_named(tx, OPERATOR)
    if operator is None or (tx.shards is not None and not tx.shards.is_reachable(ids.raw(operator.id))):
        return None
    return operator.id


def _follow(
    tx: Tx, key: bytes, stored: Mapping[str, Chain | BrokenChain | None]
) -> tuple[dict[str, tuple[Chain, Chain]], dict[str, BrokenChain]]:
    """The stored and the current chain of each ledger that is intact, and the errors of the others."""
    intact = {account: (found, found) for account, found in stored.items() if isinstance(found, Chain)}
    broken = {
        account: found or BrokenChain(
            f"{account} has no chain record: it was removed, or another release of the service created the account"
        )
        for account, found in stored.items() if not isinstance(found, Chain)
    }  # fmt: skip
    heads = {account: found.head.number for account, (found, _) in intact.items()}
    for account in seal_rows.with_newer_seals(tx, heads):
        found, _ = intact.pop(account)
        try:
            intact[account] = (found, chains.follow(tx, key, account, found))
        except BrokenChain as error:
            broken[account] = error
    return intact, broken


def add(tx: Tx, key: bytes, prepared: Sequence[PreparedSeal]) -> int:
    """Add prepared seals. Returns the number of sealed entries.

    A seal is left out if another process updated the chain first, if one of its entries no longer waits (it was pruned,
    or the server of the snapshot was replaced by one without it), or if an earlier release used its number.
    """
    unchanged = chain_rows.lock(tx, key, {each.account: each.stored for each in prepared})
    candidates = [each for each in prepared if each.account in unchanged]
    unsealed = seal_rows.unseal(tx, [waiting for each in candidates for waiting in each.keys])
    candidates = [each for each in candidates if unsealed.issuperset(each.keys)]
    added = seal_rows.add(tx, [(each.account, each.next.seal) for each in candidates])
    sealed = [each for each in candidates if each.account in added]
    seal_rows.put_back(tx, unsealed.difference(*(each.keys for each in sealed)))
    chain_rows.update_many(tx, key, [ChainUpdate(each.account, each.stored, each.next.chain) for each in sealed])
    tree_rows.add_seals(tx, [
        GrownTree(each.account, each.next.seal.number, each.next.first_leaf, each.next.nodes)
        for each in sealed if each.next.first_leaf is not None
    ])  # fmt: skip
    return sum(len(each.keys) for each in sealed)


def seal_batch(tx: Tx, key: bytes, account: str) -> int:
    """Prepare and add one seal in one unit. Returns the number of sealed entries."""
    prepared = prepare(tx, key, [account])
    for error in prepared.broken.values():
        raise error
    return add(tx, key, prepared.seals)
