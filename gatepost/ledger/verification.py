"""Verifying the ledger of an account: its seals, entries, Merkle tree and checkpoint."""

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import clock, ids
from gatepost.ledger import (
    chain,
    chain_rows,
    checkpoint,
    checkpoint_rows,
    entry_rows,
    merkle,
    seal,
    seal_rows,
    tree_rows,
    unknown_entries,
)
from gatepost.ledger.chain import BrokenChain, Chain, PrunedTree, RecordedHead
from gatepost.ledger.checkpoint import Checkpoint
from gatepost.ledger.entries import Entry
from gatepost.ledger.heads import HEADS
from gatepost.ledger.merkle import Tree
from gatepost.ledger.seal import Anchor, Head, Leaf, Seal
from gatepost.ledger.search import CLOCK_TOLERANCE
from gatepost.store.interface import Reader
from gatepost.store.transaction import LOWEST, Tx

_SEALS = 20
_WAITING = 500
_RECENT = 20_000
_NAMED = 3  # entries that one problem lists


class Verdict(NamedTuple):
    """The result of a verification: what was checked, the end of the chain, and the first problem."""

    seals: int
    entries: int
    pruned: int
    unsealed: int
    head: Head
    problem: str = ""


def verify(
    store: Reader,
    key: bytes,
    account: str,
    expected: Head | None = None,
    on_progress: Callable[[int], None] = lambda _entries: None,
    saved: Checkpoint | None = None,
) -> Verdict:
    """Follow the chain from its anchor to the end that it had when the verification started, and recompute everything.

    `on_progress` receives the number of entries of each seal. A `saved` checkpoint must still be one of this tree.
    """
    verification = _Verification(store, key, account, expected, on_progress, saved)
    try:
        problem = verification.run()
    except (TypeError, AttributeError, ValueError, OverflowError) as error:  # SQLite stores values of any type
        problem = f"a value has a wrong type: the service did not write it ({error})"
    unsealed = store.read_now(lambda tx: seal_rows.count_unsealed(tx, account))
    return Verdict(
        verification.seals, verification.entries, verification.pruned, unsealed, verification.head, problem,
    )  # fmt: skip


class _Records(NamedTuple):
    """The service's own records when the verification started."""

    chain: Chain | None
    broken: str
    last: Head | None
    recorded: RecordedHead | None
    operator: str | None
    problem: str


def _load_records(tx: Tx, key: bytes, account: str) -> _Records:
    stored, broken = None, ""
    try:
        stored = chain_rows.load(tx, key, account)
        if stored is None:
            broken = "there is no chain record: it was removed, or the service has not started since the upgrade"
    except BrokenChain as error:
        broken = str(error)
    recorded = checkpoint_rows.load(tx, key, account)
    problem = ""
    if recorded is None and checkpoint_rows.exists(tx, account):
        problem = "the checkpoint record was altered"
    for days, mark in entry_rows.pruned_marks(tx, account):
        if ids.made_at(mark) + timedelta(days=days) > tx.at + CLOCK_TOLERANCE:
            problem = problem or f"the mark of pruning after {days} days is too recent"
    operator = account_rows.load_named(tx, accounts.OPERATOR)
    return _Records(
        stored, broken, seal_rows.last(tx, account), recorded, operator.id if operator else None, problem,
    )  # fmt: skip


class _Times:
    """Compares the times of entries with those of their seals, in the order of the seals."""

    def __init__(self) -> None:
        self.caught_up_at: int | None = None  # the time of the last seal that left no entry unsealed
        self._recent: set[bytes] = set()
        self._limit = _RECENT
        self._problems: list[str] = []

    def check(self, name: str, sealed_at: int, raw_id: bytes, entry: Entry | None) -> None:
        """An entry is created after the last seal that left no entry unsealed, before its own seal, and is sealed once.

        A service that was stopped seals the remaining entries when it starts again, so a late seal is not a problem.
        """
        slack = CLOCK_TOLERANCE // timedelta(milliseconds=1)
        made = clock.milliseconds(ids.made_at(raw_id))
        early = self.caught_up_at is not None and made < self.caught_up_at - slack
        if early or made > sealed_at + slack or (entry is not None and abs(entry.at - made) > slack):
            self._problems.append(
                f"{name} has a time that does not fit its seal: it was inserted later, or a clock was wrong"
            )
        elif raw_id in self._recent:
            self._problems.append(f"{name} was sealed twice: it was inserted again to be sealed again")
        if len(self._recent) > self._limit:
            first = ids.lowest_at(sealed_at - 2 * slack)
            self._recent = {recent for recent in self._recent if recent >= first}
            self._limit = max(_RECENT, 2 * len(self._recent))
        self._recent.add(raw_id)

    def problem(self) -> str:
        more = f" (and {len(self._problems) - 1} more)" if len(self._problems) > 1 else ""
        return f"{self._problems[0]}{more}" if self._problems else ""


class _Verification:
    """One verification. The service may seal and prune at the same time. Each check returns a problem, or ""."""

    _records: _Records

    def __init__(
        self, store: Reader, key: bytes, account: str, expected: Head | None, on_progress: Callable[[int], None],
        saved: Checkpoint | None,
    ) -> None:  # fmt: skip
        self._store, self._key, self._account = store, key, account
        self._expected, self._on_progress, self._saved = expected, on_progress, saved
        self.seals = self.entries = self.pruned = 0
        self.head = Head(0, seal.START)
        self._tree: Tree | None = Tree()
        self._root_at_saved: bytes | None = None  # of the tree with the size of the saved checkpoint
        self._saved_is_pruned = False
        self._times = _Times()
        self._erased: list[str] = []

    def run(self) -> str:
        self._records = self._store.read_now(lambda tx: _load_records(tx, self._key, self._account))
        end = self._records.last or self.head
        return (
            self._follow(end.number)
            or self._check_end()
            or unknown_entries.check_ids(self._store, self._account)
            or self._check_waiting()
            or unknown_entries.find(self._store, self._account)
            or self._erasures()
            or self._times.problem()
            or self._records.problem
        )

    def _erasures(self) -> str:
        """Report erased data, because the service erases none."""
        if not self._erased:
            return ""
        names, rest = ", ".join(self._erased[:_NAMED]), len(self._erased) - _NAMED
        more = f" (and {rest} more)" if rest > 0 else ""
        return f"data was erased, but not by the service: {names}{more}"

    def _check_end(self) -> str:
        """Check that the chain and the tree end where the service's own records say."""
        if self._expected and self._expected.number > self.head.number:
            return (
                f"the chain ends at seal {self.head.number}, before the exported head {self._expected.number}: "
                "its tail was cut off"
            )
        stored, recorded = self._records.chain, self._records.recorded
        if stored is None:
            return self._records.broken
        number = max(stored.head.number, recorded.number if recorded else 0)
        if number > self.head.number:
            return f"the chain ends at seal {self.head.number}, but the service made {number}: its tail was cut off"
        saved = self._saved
        if saved is None or saved.size == 0:
            return ""
        if self._saved_is_pruned:
            return (
                f"the checkpoint of {saved.size} entries cannot be compared, because entries after it were pruned; "
                "save a newer one"
            )
        if self._tree is not None and saved.size > self._tree.size:
            return f"the tree has {self._tree.size} entries, the checkpoint {saved.size}: its tail was cut off"
        if self._root_at_saved != saved.root:
            return f"the tree of the first {saved.size} entries differs from that of the checkpoint: it was rewritten"
        return ""

    def _follow(self, end: int) -> str:
        while True:
            after = self.head.number
            page, anchor, pruned = self._store.read_now(lambda tx, after=after: self._page(tx, after))  # type: ignore[misc]
            if anchor is not None and anchor.number > after:
                problem = self._start_from(anchor, pruned)
                if problem:
                    return problem
            for following in page:
                problem = self._check_seal(following)
                if problem:
                    return problem
            if self.head.number == after or self.head.number >= end:
                return ""

    def _page(self, tx: Tx, after: int) -> tuple[list[Seal], Anchor | None, PrunedTree | None]:
        """The following seals, at first with any before the start of the chain, and the anchor at the same time."""
        anchor = seal_rows.anchor(tx, self._account)
        return (
            seal_rows.page(tx, self._account, after or -(1 << 63), _SEALS),
            anchor,
            tree_rows.load_pruned(tx, self._key, self._account, anchor),
        )

    def _start_from(self, anchor: Anchor, pruned: PrunedTree | None) -> str:
        if anchor != seal.anchor(self._key, self._account, anchor):
            return f"the seals up to {anchor.number} were removed, but not by pruning"
        if pruned is None and self._records.chain is not None:
            return f"the tree of what was pruned up to seal {anchor.number} is not known: its record was altered"
        self._tree = pruned.tree if pruned else None
        self._saved_is_pruned = bool(self._saved and self._tree and self._saved.size < self._tree.size)
        self._times.caught_up_at = None
        return self._check_head(Head(anchor.number, anchor.mac))

    def _check_head(self, head: Head) -> str:
        if self._expected and head.number == self._expected.number and head != self._expected:
            return f"seal {head.number} is not the one that was exported: the chain was rewritten"
        self.head = head
        stored, recorded, tree = self._records.chain, self._records.recorded, self._tree
        if self._saved and tree is not None and self._saved.size == tree.size:
            self._root_at_saved = tree.root()
        if stored and head.number == stored.head.number and head != stored.head:
            return f"seal {head.number} is not the one that the service made last: the chain was rewritten"
        if stored and tree is not None and head.number == stored.grown and tree != stored.tree:
            return f"the tree at seal {head.number} is not the one that the service grew"
        if recorded and recorded.note and tree is not None and head.number == recorded.number:
            last = checkpoint.parse_unverified(recorded.note)
            if (last.size, last.root) != (tree.size, tree.root()):
                return f"the checkpoint at seal {head.number} does not belong to this tree: the chain was rewritten"
        return ""

    def _check_seal(self, sealed: Seal) -> str:
        if sealed.number <= self.head.number:
            return f"seal {sealed.number} is before the start of the chain: the service did not write it"
        if sealed.number != self.head.number + 1:
            return f"seal {self.head.number + 1} is missing"
        if not seal.follows(self._key, self._account, self.head, sealed):
            return f"seal {sealed.number} was altered, or the chain before it was"
        leaves = chain.entry_leaves(sealed.leaves)
        now, copies = self._store.read_now(
            lambda tx: (tx.now, entry_rows.load_copies(tx, self._account, [leaf.id for leaf in leaves]))
        )
        for leaf in leaves:
            name = f"entry {ids.text('evt', leaf.id)} (seal {sealed.number})"
            problem = self._check_entry(name, sealed.at, leaf, copies.get(leaf.id, []), now)
            if problem:
                return problem
        problem = self._check_link(sealed) or self._check_tree(sealed, leaves)
        if problem:
            return problem
        if len(leaves) < seal.BATCH:
            self._times.caught_up_at = sealed.at
        self.seals += 1
        self._on_progress(len(leaves))
        return self._check_head(Head(sealed.number, sealed.mac))

    def _check_entry(self, name: str, sealed_at: int, leaf: Leaf, copies: list[Entry], now: int) -> str:
        entry = copies[0] if copies else None
        if entry is None:
            if leaf.kept_until() > now:
                return f"{name} is missing before its retention ended"
            self.pruned += 1
        elif not all(_matches(copy, leaf) for copy in copies):
            return f"{name} differs from what was sealed"
        else:
            problem = self._check_data(name, copies)
            if problem:
                return problem
            self.entries += 1
        self._times.check(name, sealed_at, leaf.id, entry)
        return ""

    def _check_data(self, name: str, copies: list[Entry]) -> str:
        """Check what the hash in the seal does not cover: the number of rows, and whether the data is still there."""
        [entry, *others] = copies
        if others:
            return f"{name} has {len(copies)} rows: the service wrote only one of them"
        if entry.data is not None:
            return f"{name} has its data and a hash of erased data" if entry.data_hash is not None else ""
        if entry.type == HEADS:
            return f"{name}, which recorded heads, has no data"
        self._erased.append(entry.name)
        return ""

    def _check_link(self, sealed: Seal) -> str:
        """Check that the operator's chain still has the head that this seal names."""
        named, operator = chain.linked_head(sealed.leaves), self._records.operator
        if named is None:
            return ""
        problem = f"seal {sealed.number} names the operator's seal {named.number}"
        if operator is None:
            return f"{problem}, but there is no operator's account"
        macs, anchor = self._store.read_now(
            lambda tx: (seal_rows.macs(tx, [(operator, named.number)]), seal_rows.anchor(tx, operator))
        )
        if macs.get((operator, named.number)) == named.mac:
            return ""
        if anchor and seal.is_pruned(self._key, operator, anchor, named):
            return ""
        return f"{problem}, which is no longer in the operator's chain"

    def _check_tree(self, sealed: Seal, leaves: list[Leaf]) -> str:
        stored = self._records.chain
        if self._tree is None:
            return ""
        first = self._tree.size
        self._tree, nodes = merkle.append(self._tree, chain.tree_leaves(self._key, leaves), chain.STORED)
        if stored is None or sealed.number > stored.grown:
            return ""
        stored_first, stored_nodes, is_stored = self._store.read_now(
            lambda tx: (
                tree_rows.first_leaf(tx, self._account, sealed.number),
                tree_rows.nodes_at(tx, self._account, nodes),
                bool(seal_rows.macs(tx, [(self._account, sealed.number)])),
            )
        )
        if stored_first != first and is_stored:  # pruning deletes a seal together with its position in the tree
            return f"the position of seal {sealed.number} in the tree was altered"
        if any(stored_nodes.get((node.level, node.position)) != node.hash for node in nodes):
            return f"a subtree of seal {sealed.number} was altered or removed"
        return ""

    def _check_waiting(self) -> str:
        """Check the entries that wait for a seal as far as that is possible without one."""
        after = LOWEST
        while True:
            now, page, copies = self._store.read_now(lambda tx, after=after: self._waiting_page(tx, after))  # type: ignore[misc]
            for raw_id in page:
                name = f"entry {ids.text('evt', raw_id)} (not sealed yet)"
                if raw_id not in copies:
                    return f"{name} was removed before it was sealed"
                problem = self._check_data(name, copies[raw_id])
                if problem:
                    return problem
                self._times.check(name, now, raw_id, copies[raw_id][0])
            if len(page) < _WAITING:
                return ""
            after = page[-1]

    def _waiting_page(self, tx: Tx, after: bytes) -> tuple[int, list[bytes], dict[bytes, list[Entry]]]:
        page = seal_rows.unsealed_page(tx, self._account, after, _WAITING)
        copies = entry_rows.load_copies(tx, self._account, page)
        tx.check_snapshot()
        return tx.now, page, copies


def _matches(entry: Entry, leaf: Leaf) -> bool:
    try:
        return seal.leaf(entry) == leaf
    except (TypeError, AttributeError):  # SQLite stores values of any type
        return False
