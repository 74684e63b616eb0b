"""Merkle trees of any size, against the definition in RFC 6962 written out."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from gatepost.ledger import merkle
from gatepost.ledger.merkle import Tree, append, inclusion, leaf_hash, root_of

SIZE = st.integers(1, 70)


def naive(leaves: list[bytes]) -> bytes:
    """MTH of section 2.1, over leaf hashes."""
    if len(leaves) == 1:
        return leaves[0]
    middle = 1
    while middle * 2 < len(leaves):
        middle *= 2
    return hashlib.sha256(b"\1" + naive(leaves[:middle]) + naive(leaves[middle:])).digest()


def leaves_of(size: int) -> list[bytes]:
    return [leaf_hash(str(number).encode()) for number in range(size)]


@given(SIZE, st.data())
def test_it_grows_in_any_steps(size: int, data: st.DataObject) -> None:
    leaves, tree = leaves_of(size), Tree()
    completed = []
    while tree.size < size:
        count = data.draw(st.integers(1, size - tree.size))
        tree, more = append(tree, leaves[tree.size : tree.size + count])
        completed += more
        assert tree.root() == naive(leaves[: tree.size])
        assert merkle.unpack(tree.size, tree.packed()) == tree
    spans = {(node.level, node.position): node.hash for node in completed}
    assert len(spans) == len(completed) == sum(size >> level for level in range(1, 8))
    for (level, position), found in spans.items():
        assert found == naive(leaves[position << level : position + 1 << level])


@given(SIZE, st.data())
def test_inclusion_of_any_leaf(size: int, data: st.DataObject) -> None:
    leaves = leaves_of(size)
    index = data.draw(st.integers(0, size - 1))
    path = inclusion(index, size, lambda start, end: naive(leaves[start:end]))
    root = naive(leaves)
    assert root_of(index, size, leaves[index], path) == root
    other = data.draw(st.integers(0, size - 1))
    if other != index:
        assert root_of(other, size, leaves[index], path) != root
    assert root_of(index, size, leaf_hash(b"another"), path) != root
    assert root_of(index, size, leaves[index], [*path, root]) != root
    if path:
        assert root_of(index, size, leaves[index], path[:-1]) != root
        altered = data.draw(st.integers(0, len(path) - 1))
        assert root_of(index, size, leaves[index], [*path[:altered], bytes(32), *path[altered + 1 :]]) != root


@given(SIZE, st.integers(0, 4), st.data())
def test_ranges_come_from_complete_subtrees(size: int, lowest: int, data: st.DataObject) -> None:
    """Where only leaves from some index on are known, and the edge before it: what pruning leaves."""
    leaves = leaves_of(size)
    pruned = data.draw(st.integers(0, size - 1))
    _, nodes = append(Tree(), leaves, max(lowest, 1))
    known = {(node.level, node.position): node.hash for node in nodes if node.position << node.level >= pruned}
    before, _ = append(Tree(), leaves[:pruned])
    start = 0
    for level, found in zip((bit for bit in range(8, -1, -1) if pruned >> bit & 1), before.edge, strict=True):
        known[level, start >> level] = found
        start += 1 << level
    known |= {(0, index): leaves[index] for index in range(pruned, size)}

    def subtree(start: int, end: int) -> bytes:
        return merkle.range_root(start, end, lambda level, position: known.get((level, position)))

    index = data.draw(st.integers(pruned, size - 1))
    assert root_of(index, size, leaves[index], inclusion(index, size, subtree)) == naive(leaves)
