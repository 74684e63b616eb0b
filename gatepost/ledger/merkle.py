"""Merkle trees as specified by RFC 6962, section 2.1: roots and inclusion proofs. No I/O.

A growing tree is kept as its *edge*: the roots of the complete subtrees that its leaves fall into, largest first.
There is one for each bit set in the size, so the edge of a million leaves has at most twenty hashes.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

HASH = 32  # bytes
EMPTY = hashlib.sha256(b"").digest()

Subtree = Callable[[int, int], bytes]  # the hash of the leaves from one index up to, not including, another


class Node(NamedTuple):
    """The root of a complete subtree: of the 2**level leaves from position * 2**level on."""

    level: int
    position: int
    hash: bytes


def leaf_hash(leaf: bytes) -> bytes:
    """The hash of a leaf (section 2.1)."""
    return hashlib.sha256(b"\0" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of a node, from the hashes of its two subtrees (section 2.1)."""
    return hashlib.sha256(b"\1" + left + right).digest()


class Tree(NamedTuple):
    """A tree of `size` leaves, by its edge."""

    size: int = 0
    edge: tuple[bytes, ...] = ()

    def root(self) -> bytes:
        """The Merkle tree hash (section 2.1)."""
        if not self.edge:
            return EMPTY
        root = self.edge[-1]
        for left in self.edge[-2::-1]:
            root = node_hash(left, root)
        return root

    def packed(self) -> bytes:
        return b"".join(self.edge)


def unpack(size: int, edge: bytes) -> Tree | None:
    """The tree with this packed edge. None if the edge does not fit the size."""
    if size < 0 or len(edge) != size.bit_count() * HASH:
        return None
    return Tree(size, tuple(edge[start : start + HASH] for start in range(0, len(edge), HASH)))


def append(tree: Tree, hashes: Iterable[bytes], lowest: int = 1) -> tuple[Tree, list[Node]]:
    """Add leaf hashes. Returns the tree, and the subtrees of at least this level that became complete."""
    size, edge = tree.size, list(tree.edge)
    completed: list[Node] = []
    sha256 = hashlib.sha256
    for leaf in hashes:
        subtree, position, level = leaf, size, 0
        while position & 1:
            subtree = sha256(b"\1" + edge.pop() + subtree).digest()
            position >>= 1
            level += 1
            if level >= lowest:
                completed.append(Node(level, position, subtree))
        edge.append(subtree)
        size += 1
    return Tree(size, tuple(edge)), completed


def inclusion(index: int, size: int, subtree: Subtree) -> list[bytes]:
    """The audit path of a leaf (section 2.1.1), from its sibling up."""
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} is not in a tree of {size}")
    path: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            path.append(subtree(middle, end))
            end = middle
        else:
            path.append(subtree(start, middle))
            start = middle
    return path[::-1]


def root_of(index: int, size: int, leaf: bytes, path: list[bytes]) -> bytes | None:
    """The root that an inclusion proof yields. None if its length is wrong (RFC 9162, section 2.1.3.2)."""
    if not 0 <= index < size:
        return None
    root, node, last = leaf, index, size - 1
    for sibling in path:
        if last == 0:
            return None
        if node & 1 or node == last:
            root = node_hash(sibling, root)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            root = node_hash(root, sibling)
        node, last = node >> 1, last >> 1
    return root if last == 0 else None


def range_root(start: int, end: int, complete: Callable[[int, int], bytes | None]) -> bytes:
    """The hash of a range of leaves, from the known complete subtrees: `complete(level, position)`.

    An unknown hash is computed from its halves, down to single leaves (level 0).
    """
    count = end - start
    level = count.bit_length() - 1
    if count == 1 << level:
        known = complete(level, start >> level)
        if known is not None:
            return known
        if level == 0:
            raise LookupError(f"leaf {start} is not known")
    middle = start + _split(count)
    return node_hash(range_root(start, middle, complete), range_root(middle, end, complete))


def _split(count: int) -> int:
    """The largest power of two that is smaller than `count`."""
    return 1 << (count - 1).bit_length() - 1
