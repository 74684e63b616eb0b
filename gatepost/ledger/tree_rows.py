"""The rows of Merkle trees."""

from collections.abc import Iterable

from gatepost.core import ids
from gatepost.ledger import chain, merkle
from gatepost.ledger.chain import PrunedTree
from gatepost.ledger.merkle import Node
from gatepost.ledger.seal import Anchor
from gatepost.store.transaction import Tx


def add_seal(tx: Tx, account: str, number: int, first: int, nodes: Iterable[Node]) -> None:
    whose = ids.raw(account)
    tx.write("insert_tree_seal", account=whose, number=number, first=first)
    rows = [(whose, *node) for node in nodes]
    if rows:
        tx.write_given("insert_tree_nodes", rows)


def first_leaf(tx: Tx, account: str, number: int) -> int | None:
    rows = tx.rows("tree_seal", account=ids.raw(account), number=number)
    return int(rows[0][0]) if rows else None


def seal_with(tx: Tx, account: str, leaf: int) -> tuple[int, int] | None:
    """The seal that contains this leaf, and the first leaf of the seal."""
    rows = tx.rows("tree_seal_with", account=ids.raw(account), leaf=leaf)
    return (rows[0][0], rows[0][1]) if rows else None


def node(tx: Tx, account: str, level: int, position: int) -> bytes | None:
    parameters = {"account": ids.raw(account), "level": level, "position": position}
    rows = tx.rows("tree_node", **parameters)
    return rows[0][0] if rows else None


def nodes_at(tx: Tx, account: str, nodes: Iterable[Node]) -> dict[tuple[int, int], bytes]:
    """The stored hashes at the places of these nodes."""
    asked = [(ids.raw(account), node.level, node.position) for node in nodes]
    rows = tx.rows_given("tree_nodes_given", asked) if asked else []
    return {(level, position): hash_ for level, position, hash_ in rows}


def load_pruned(tx: Tx, key: bytes, account: str, anchor: Anchor | None) -> PrunedTree | None:
    """The tree at the anchor. None if it is not known, or its row was altered."""
    rows = tx.rows("pruned_tree", account=ids.raw(account))
    if not rows:
        return PrunedTree() if anchor is None else None
    number, size, edge, proof = rows[0]
    tree = merkle.unpack(size, edge)
    found = PrunedTree(number, tree) if tree is not None else None
    if found is None or not chain.same(proof, chain.pruned_proof(key, account, found)):
        return None
    return found if number == (anchor.number if anchor else 0) else None


def save_pruned(tx: Tx, key: bytes, account: str, pruned: PrunedTree) -> None:
    parameters = {
        "account": ids.raw(account), "number": pruned.number, "size": pruned.tree.size,
        "edge": pruned.tree.packed(), "proof": chain.pruned_proof(key, account, pruned),
    }  # fmt: skip
    tx.write("put_pruned_tree", **parameters)
    tx.write("delete_tree_seals", account=ids.raw(account), number=pruned.number)
