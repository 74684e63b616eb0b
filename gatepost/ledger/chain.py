"""What the service stores about each ledger: the end of its chain of seals, and its Merkle tree. No I/O.

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
from gatepost.ledger import merkle, seal
from gatepost.ledger.entries import Entry
from gatepost.ledger.merkle import Node, Tree
from gatepost.ledger.seal import START, Anchor, Head, Leaf, Seal, leaf, unpack

STORED = 8  # subtrees of this level and above are kept, so that a proof need not read the whole ledger


class BrokenChain(BadSetting):
    """The ledger of an account was altered, so the service must not seal further entries of it."""


class Chain(NamedTuple):
    """The end of the chain of an account, and its Merkle tree."""

    head: Head = Head(0, START)
    grown: int = 0  # the last seal whose entries are in the tree
    tree: Tree = Tree()
    linked: int = 0  # the operator's last seal that a seal of this chain names


class PrunedTree(NamedTuple):
    """The Merkle tree of everything up to the anchor."""

    number: int = 0
    tree: Tree = Tree()


class RecordedHead(NamedTuple):
    """The last head that was recorded in the operator's ledger, its signed checkpoint, and the recording entry."""

    number: int
    size: int
    note: str
    entry: bytes


def chain_proof(key: bytes, account: str, chain: Chain) -> bytes:
    """The HMAC that authenticates the stored chain of an account."""
    head, tree = chain.head, chain.tree
    fields = (head.number, head.mac.hex(), chain.grown, tree.size, tree.packed().hex(), chain.linked)
    return _proof(key, "chain", account, fields)


def pruned_proof(key: bytes, account: str, pruned: PrunedTree) -> bytes:
    """The HMAC that authenticates the stored tree of what was pruned."""
    return _proof(key, "pruned tree", account, (pruned.number, pruned.tree.size, pruned.tree.packed().hex()))


def recorded_proof(key: bytes, account: str, recorded: RecordedHead) -> bytes:
    """The HMAC that authenticates the stored checkpoint of an account."""
    return _proof(key, "checkpoint", account, (*recorded[:3], recorded.entry.hex()))


def _proof(key: bytes, kind: str, account: str, fields: tuple[object, ...]) -> bytes:
    return hmac.digest(key, msgspec.json.encode((kind, account, *fields)), "sha256")


# --- the tree


def blinding(key: bytes, raw_id: bytes) -> bytes:
    """The blinding of an entry, which nobody can predict, so that the hash of its leaf does not reveal its contents."""
    return secrets.mac(_blinding_key(key), raw_id)[:16]


def _blinding_key(key: bytes) -> bytes:
    return secrets.mac(key, b"gatepost tree leaves")


def tree_leaves(key: bytes, leaves: Iterable[Leaf]) -> list[bytes]:
    """The leaf hashes of entries in the Merkle tree, each with the blinding of its entry."""
    blinding_key, mac_, sha256 = _blinding_key(key), secrets.mac, hashlib.sha256
    return [sha256(b"\0" + mac_(blinding_key, leaf.id)[:16] + leaf.hash).digest() for leaf in leaves]


def tree_at_anchor(anchor: Anchor | None) -> PrunedTree:
    """The start of a tree for a ledger that had none. One leaf represents everything that was pruned."""
    if anchor is None:
        return PrunedTree()
    pruned = msgspec.json.encode(("pruned before the tree", anchor.number, anchor.mac.hex()))
    return PrunedTree(anchor.number, Tree(1, (merkle.leaf_hash(pruned),)))


def grow(key: bytes, tree: Tree, added: Seal) -> tuple[Tree, list[Node]]:
    """Add the entries of a seal to the tree. Returns the tree, and the subtrees to store."""
    return merkle.append(tree, tree_leaves(key, entry_leaves(added.leaves)), STORED)


# --- seals that name the operator's head


def linked_head(leaves: bytes) -> Head | None:
    """The operator's head that a seal names."""
    links = [leaf for leaf in unpack(leaves) if _is_link(leaf)]
    return Head(int.from_bytes(links[-1].id[8:], "big"), links[-1].hash) if links else None


def entry_leaves(leaves: bytes) -> list[Leaf]:
    """The leaves of a seal that are entries."""
    return [leaf for leaf in unpack(leaves) if not _is_link(leaf)]


def _is_link(leaf: Leaf) -> bool:
    return leaf.id[:8] == bytes(8)


class NextSeal(NamedTuple):
    """A seal, the chain after it, and what it adds to the tree (nothing while the tree is behind the chain)."""

    seal: Seal
    chain: Chain
    first_leaf: int | None
    nodes: list[Node]


def next_seal(key: bytes, account: str, chain: Chain, entries: list[Entry], at: int, operator: Head | None) -> NextSeal:
    """The seal of these entries, which follows the last seal of the chain.

    It names the operator's head with a leaf that has an id of no entry and 0 days of retention. Earlier releases ignore
    such a leaf.
    """
    leaves = [leaf(entry) for entry in entries]
    tree, nodes, first_leaf, grown = chain.tree, list[Node](), None, chain.grown
    if grown == chain.head.number:
        first_leaf, grown = tree.size, grown + 1
        tree, nodes = merkle.append(tree, tree_leaves(key, leaves), STORED)
    linked = chain.linked
    if operator is not None and operator.number > linked:
        leaves.append(Leaf(bytes(8) + operator.number.to_bytes(8, "big"), 0, operator.mac))
        linked = operator.number
    made = seal.new(key, account, chain.head, leaves, at)
    return NextSeal(made, Chain(Head(made.number, made.mac), grown, tree, linked), first_leaf, nodes)
