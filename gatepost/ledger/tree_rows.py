"""The rows of Merkle trees."""

import hmac
from collections.abc import Iterable
from typing import NamedTuple

from gatepost.core import ids
from gatepost.ledger import chain, merkle
from gatepost.ledger.chain import PrunedTree
from gatepost.ledger.merkle import Node
from gatepost.ledger.seal import Anchor
from gatepost.store.transaction import Tx


class GrownTree(NamedTuple):
    """What a seal adds to the tree of its account."""

    account: str
    number: int  # of the seal
    first_leaf: int
    nodes: list[Node]  # the roots of the subtrees that it completes


def add_seals(tx: Tx, grown: Iterable[GrownTree]) -> None:
    """Insert the positions of seals in their trees, and the subtrees that they complete."""
    listed = sorted((ids.raw(account), number, first, nodes) for account, number, first, nodes in grown)
    tx.write_given("insert_tree_seals", [row[:3] for row in listed])
    tx.write_given("insert_tree_nodes", [(raw_account, *node) for raw_account, _, _, nodes in listed for node in nodes])


def first_leaf(tx: Tx, account: str, number: int) -> int | None:
    """The index of the first leaf of a seal."""
    row = tx.one("tree_seal", account=ids.raw(account), number=number)
    return row[0] if row else None


def seal_with(tx: Tx, account: str, leaf: int) -> tuple[int, int] | None:
    """The seal that contains this leaf, and the first leaf of the seal."""
    row = tx.one("tree_seal_with", account=ids.raw(account), leaf=leaf)
    return (row[0], row[1]) if row else None


def node(tx: Tx, account: str, level: int, position: int) -> bytes | None:
    """The hash of a stored subtree."""
    row = tx.one("tree_node", account=ids.raw(account), level=level, position=position)
    return row[0] if row else None


def nodes_at(tx: Tx, account: str, nodes: Iterable[Node]) -> dict[tuple[int, int], bytes]:
    """The stored hashes at the positions of these nodes, by level and position."""
    keys = [(ids.raw(account), node.level, node.position) for node in nodes]
    rows = tx.rows_given("tree_nodes_given", keys) if keys else []
    return {(level, position): hash_ for level, position, hash_ in rows}


def load_pruned(tx: Tx, key: bytes, account: str, anchor: Anchor | None) -> PrunedTree | None:
    """The tree at the anchor. None if it is not known, or its row was altered."""
    row = tx.one("pruned_tree", account=ids.raw(account))
    if row is None:
        return PrunedTree() if anchor is None else None
    number, size, edge, proof = row
    tree = merkle.unpack(size, edge)
    if tree is None or number != (anchor.number if anchor else 0):
        return None
    pruned = PrunedTree(number, tree)
    return pruned if hmac.compare_digest(proof, chain.pruned_proof(key, account, pruned)) else None


def save_pruned(tx: Tx, key: bytes, account: str, pruned: PrunedTree) -> None:
    """Replace the tree at the anchor, and delete the positions of the seals before it."""
    raw_account = ids.raw(account)
    tx.write(
        "put_pruned_tree", account=raw_account, number=pruned.number, size=pruned.tree.size,
        edge=pruned.tree.packed(), proof=chain.pruned_proof(key, account, pruned),
    )  # fmt: skip
    tx.write("delete_tree_seals", account=raw_account, number=pruned.number)
