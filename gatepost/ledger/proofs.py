"""Proofs that an entry is in its account's tree, computed from seals, stored subtrees and the tree at the anchor."""

from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting, NotFound
from gatepost.ledger import chain, checkpoint, checkpoint_rows, entry_rows, merkle, receipt, seal_rows, tree_rows
from gatepost.ledger.chain import STORED, PrunedTree
from gatepost.ledger.checkpoint import Proof
from gatepost.ledger.seal import Seal
from gatepost.ledger.search import CLOCK_TOLERANCE
from gatepost.store.transaction import Tx

_SEALS = 20


def prove(tx: Tx, key: bytes, account: str, raw_id: bytes) -> Proof | None:
    """The proof that an entry is in the tree of the last checkpoint. None if the entry is newer than the checkpoint."""
    entry = entry_rows.load(tx, account, raw_id)
    if entry is None:
        raise NotFound(f"there is no entry {ids.text('evt', raw_id)} in this account; `gatepost audit list` shows them")
    recorded = checkpoint_rows.load(tx, key, account)
    sealed = _find_seal(tx, account, raw_id)
    if recorded is None or sealed is None:
        return None
    seal, offset = sealed
    first = tree_rows.first_leaf(tx, account, seal.number)
    if first is None or first + offset >= recorded.size:
        return None
    index = first + offset
    tree = _StoredTree(tx, key, account)
    path = merkle.inclusion(index, recorded.size, tree.subtree)
    leaf = chain.tree_leaves(key, chain.entry_leaves(seal.leaves))[offset]
    root = checkpoint.parse_unverified(recorded.note).root
    if merkle.root_of(index, recorded.size, leaf, path) != root:
        raise BadSetting("the stored tree does not have the root of the checkpoint; run `gatepost audit verify`")
    return Proof(receipt.extra_data(key, entry), index, path, recorded.note)


def _find_seal(tx: Tx, account: str, raw_id: bytes) -> tuple[Seal, int] | None:
    """The seal of an entry, and its position in the seal."""
    since = seal_rows.first_since(tx, account, clock.milliseconds(ids.made_at(raw_id) - CLOCK_TOLERANCE))
    after = (since or 1) - 1
    while page := seal_rows.page(tx, account, after, _SEALS):
        for seal in page:
            for offset, leaf in enumerate(chain.entry_leaves(seal.leaves)):
                if leaf.id == raw_id:
                    return seal, offset
        after = page[-1].number
    return None


class _StoredTree:
    """The hashes of ranges of leaves. Each stored leaf is read once."""

    def __init__(self, tx: Tx, key: bytes, account: str) -> None:
        self._tx, self._key, self._account = tx, key, account
        self._leaves: dict[int, bytes] = {}
        self._pruned = tree_rows.load_pruned(tx, key, account, seal_rows.anchor(tx, account)) or PrunedTree()
        self._before: dict[tuple[int, int], bytes] = {}
        start, size = 0, self._pruned.tree.size
        levels = [level for level in range(size.bit_length(), -1, -1) if size >> level & 1]
        for level, node in zip(levels, self._pruned.tree.edge, strict=True):
            self._before[level, start >> level] = node
            start += 1 << level

    def subtree(self, start: int, end: int) -> bytes:
        return merkle.range_root(start, end, self._complete)

    def _complete(self, level: int, position: int) -> bytes | None:
        start = position << level
        if start < self._pruned.tree.size:
            return self._before.get((level, position))
        if level >= STORED:
            return tree_rows.node(self._tx, self._account, level, position)
        return self._leaf(start) if level == 0 else None

    def _leaf(self, index: int) -> bytes | None:
        position = None if index in self._leaves else tree_rows.seal_with(self._tx, self._account, index)
        if position is not None:
            number, first = position
            for seal in seal_rows.page(self._tx, self._account, number - 1, 1):
                hashes = chain.tree_leaves(self._key, chain.entry_leaves(seal.leaves))
                self._leaves |= dict(enumerate(hashes, first))
        return self._leaves.get(index)
