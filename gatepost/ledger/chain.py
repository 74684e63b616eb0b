"""What the service keeps about each ledger: the end of the chain of seals, and the Merkle tree. No I/O.

Each record carries an HMAC with the seal key. A person who can write to the database can restore an older record, but
cannot forge one. So a chain cannot start again at zero, and a checkpoint is only signed for a tree the service built.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from gatepost.core import secrets
from gatepost.core.errors import BadSetting
from gatepost.ledger import merkle
from gatepost.ledger.entries import Entry
from gatepost.ledger.merkle import Node, Tree
from gatepost.ledger.seal import START, Anchor, Head, Leaf, Seal, leaf, mac, unpack

STORED = 8  # subtrees of this level and above are kept, so that a proof need not read the whole ledger


class BrokenChain(BadSetting):
    """The ledger of an account was altered, so the service must not seal further entries of it."""


class Chain(NamedTuple):
    head: Head = Head(0, START)
    grown: int = 0  # the last seal whose entries are in the tree
    tree: Tree = Tree()
    linked: int = 0  # the operator's last seal that a seal of this chain names


class PrunedTree(NamedTuple):
    """The Merkle tree of everything up to the anchor."""

    number: int = 0
    tree: Tree = Tree()


class Recorded(NamedTuple):
    """The last head that was recorded in the operator's ledger, by which entry, and its signed checkpoint."""

    number: int
    size: int
    note: str
    entry: bytes


def chain_proof(key: bytes, account: str, chain: Chain) -> bytes:
    head, tree = chain.head, chain.tree
    fields = (head.number, head.mac.hex(), chain.grown, tree.size, tree.packed().hex(), chain.linked)
    return _proof(key, "chain", account, fields)


def pruned_proof(key: bytes, account: str, pruned: PrunedTree) -> bytes:
    return _proof(key, "pruned tree", account, (pruned.number, pruned.tree.size, pruned.tree.packed().hex()))


def recorded_proof(key: bytes, account: str, recorded: Recorded) -> bytes:
    fields = (recorded.number, recorded.size, recorded.note, recorded.entry.hex())
    return _proof(key, "checkpoint", account, fields)


def _proof(key: bytes, kind: str, account: str, fields: tuple[object, ...]) -> bytes:
    return hmac.digest(key, msgspec.json.encode((kind, account, *fields)), "sha256")


def same(one: bytes, other: bytes) -> bool:
    return hmac.compare_digest(one, other)


# --- the tree


def blind(key: bytes, raw_id: bytes) -> bytes:
    """A random value for each entry, so that its contents cannot be guessed from a hash in the proof of another."""
    return secrets.mac(_blinding(key), raw_id)[:16]


def _blinding(key: bytes) -> bytes:
    return secrets.mac(key, b"gatepost tree leaves")


def tree_leaf(blinding: bytes, entry_hash: bytes) -> bytes:
    return merkle.leaf_hash(blinding + entry_hash)


def tree_leaves(key: bytes, leaves: Iterable[Leaf]) -> list[bytes]:
    blinding, mac_, sha256 = _blinding(key), secrets.mac, hashlib.sha256
    return [sha256(b"\0" + mac_(blinding, each.id)[:16] + each.hash).digest() for each in leaves]


def at_anchor(anchor: Anchor | None) -> PrunedTree:
    """The start of a tree for a ledger that had none. One leaf stands for everything that was pruned."""
    if anchor is None:
        return PrunedTree()
    told = msgspec.json.encode(("pruned before the tree", anchor.number, anchor.mac.hex()))
    return PrunedTree(anchor.number, Tree(1, (merkle.leaf_hash(told),)))


def grow(key: bytes, tree: Tree, of: Seal) -> tuple[Tree, list[Node]]:
    return merkle.append(tree, tree_leaves(key, entry_leaves(of.leaves)), STORED)


# --- seals that name the operator's head


def link(operator: Head) -> Leaf:
    """A leaf with an id that no entry has and no days of retention, which earlier releases ignore."""
    return Leaf(bytes(8) + operator.number.to_bytes(8, "big"), 0, operator.mac)


def linked(leaves: bytes) -> Head | None:
    """The operator's head that a seal names."""
    found = None
    for each in unpack(leaves):
        if is_link(each):
            found = Head(int.from_bytes(each.id[8:], "big"), each.hash)
    return found


def is_link(found: Leaf) -> bool:
    return found.id[:8] == bytes(8)


def entry_leaves(leaves: bytes) -> list[Leaf]:
    return [each for each in unpack(leaves) if not is_link(each)]


class Next(NamedTuple):
    """A seal, the chain after it, and what it adds to the tree (nothing while the tree is behind)."""

    seal: Seal
    chain: Chain
    first: int | None
    nodes: list[Node]


def follow(key: bytes, account: str, chain: Chain, entries: list[Entry], at: int, operator: Head | None) -> Next:
    """Seal these entries after `chain`."""
    leaves = [leaf(entry) for entry in entries]
    tree, nodes, first, grown = chain.tree, list[Node](), None, chain.grown
    number = chain.head.number + 1
    if grown == chain.head.number:
        first, grown = tree.size, number
        tree, nodes = merkle.append(tree, tree_leaves(key, leaves), STORED)
    number_linked = chain.linked
    if operator is not None and operator.number > number_linked:
        leaves.append(link(operator))
        number_linked = operator.number
    packed = b"".join(each.id + each.keep_days.to_bytes(2, "big") + each.hash for each in leaves)
    made = Seal(number, at, packed, mac(key, account, chain.head.mac, number, at, packed))
    return Next(made, Chain(Head(number, made.mac), grown, tree, number_linked), first, nodes)
