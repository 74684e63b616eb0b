"""Merkle trees as specified by RFC 6962, section 2.1: heads, inclusion proofs and consistency proofs. No I/O.

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
    return hashlib.sha256(b"\0" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


class Tree(NamedTuple):
    """A tree of `size` leaves, by its edge."""

    size: int = 0
    edge: tuple[bytes, ...] = ()

    def root(self) -> bytes:
        if not self.edge:
            return EMPTY
        found = self.edge[-1]
        for left in self.edge[-2::-1]:
            found = node_hash(left, found)
        return found

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
    for each in hashes:
        found, position, level = each, size, 0
        while position & 1:
            found = sha256(b"\1" + edge.pop() + found).digest()
            position >>= 1
            level += 1
            if level >= lowest:
                completed.append(Node(level, position, found))
        edge.append(found)
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


def consistency(old: int, size: int, subtree: Subtree) -> list[bytes]:
    """The proof that the tree of `size` leaves extends that of the first `old` (section 2.1.2)."""
    if not 0 < old <= size:
        raise ValueError(f"a tree of {size} leaves extends none of {old}")
    path: list[bytes] = []
    start, end, whole = 0, size, True
    while old != end:
        middle = start + _split(end - start)
        if old <= middle:
            path.append(subtree(middle, end))
            end = middle
        else:
            path.append(subtree(start, middle))
            start, whole = middle, False
    if not whole:
        path.append(subtree(start, end))
    return path[::-1]


def root_of(index: int, size: int, leaf: bytes, path: list[bytes]) -> bytes | None:
    """The root that an inclusion proof yields. None if its length is wrong (RFC 9162, section 2.1.3.2)."""
    if not 0 <= index < size:
        return None
    found, node, last = leaf, index, size - 1
    for each in path:
        if last == 0:
            return None
        if node & 1 or node == last:
            found = node_hash(each, found)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            found = node_hash(found, each)
        node, last = node >> 1, last >> 1
    return found if last == 0 else None


def is_consistent(old: int, old_root: bytes, size: int, root: bytes, path: list[bytes]) -> bool:
    """Whether the proof shows that one tree extends the other (RFC 9162, section 2.1.4.2)."""
    if old == size:
        return not path and old_root == root
    if not 0 < old < size or not path:
        return False
    if old & (old - 1) == 0:
        path = [old_root, *path]
    node, last = old - 1, size - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    before = after = path[0]
    for each in path[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            before, after = node_hash(each, before), node_hash(each, after)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            after = node_hash(after, each)
        node, last = node >> 1, last >> 1
    return last == 0 and before == old_root and after == root


def range_root(start: int, end: int, complete: Callable[[int, int], bytes | None]) -> bytes:
    """The hash of a range of leaves, from the known complete subtrees: `complete(level, position)`.

    An unknown hash is computed from its halves, down to single leaves (level 0).
    """
    count = end - start
    level = count.bit_length() - 1
    if count == 1 << level:
        found = complete(level, start >> level)
        if found is not None:
            return found
        if level == 0:
            raise LookupError(f"leaf {start} is not known")
    middle = start + _split(count)
    return node_hash(range_root(start, middle, complete), range_root(middle, end, complete))


def _split(count: int) -> int:
    """The largest power of two that is smaller than `count`."""
    return 1 << (count - 1).bit_length() - 1
