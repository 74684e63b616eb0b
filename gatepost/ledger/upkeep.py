"""Keeping the ledger: sealing, pruning, reading and verifying it, always in slices."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar

from gatepost import accounts
from gatepost.accounts import RETENTION_DAYS, account_rows
from gatepost.core import clock, ids
from gatepost.ledger import (
    chain,
    chain_rows,
    chain_upkeep,
    checkpoint,
    checkpoint_rows,
    entry_rows,
    merkle,
    published_ids,
    seal,
    seal_rows,
    tree_rows,
)
from gatepost.ledger.chain import BrokenChain, Chain, Next, PrunedTree, Recorded
from gatepost.ledger.checkpoint import Checkpoint
from gatepost.ledger.entries import Entry
from gatepost.ledger.merkle import Tree
from gatepost.ledger.seal import Anchor, Head, Leaf, Seal
from gatepost.store.pending import Again
from gatepost.store.transaction import HIGHEST, LOWEST, Tx, Unit

T = TypeVar("T")
_PAGE = 500
_SLICE = 200
_SEALS = 20


class Reader(Protocol):
    def read_now(self, unit: Unit[T]) -> T: ...


# --- sealing and pruning


class Prepared(NamedTuple):
    """A seal worked out from a snapshot, to be added if the chain still ends where it did."""

    key: bytes
    stored: Chain
    next: Next
    entries: list[Entry]


def prepare_seal(tx: Tx, key: bytes, account: str) -> Prepared | None:
    """The hashing, done in a reading unit: writers need not wait for it.

    The chain is read before the entries: were it the other way round, a sealer could take entries that another
    sealed in between, and its number would be free.
    """
    stored = chain_rows.load(tx, key, account)
    now = chain_upkeep.current(tx, key, account)
    entries = seal_rows.unsealed(tx, account, seal.BATCH)
    if not entries or stored is None:
        return None
    operator = chain_upkeep.operator_head(tx, key, account)
    return Prepared(key, stored, chain.follow(key, account, now, entries, clock.milliseconds(tx.at), operator), entries)


def add_seal(tx: Tx, account: str, prepared: Prepared) -> int:
    """How many entries this sealed: none if another sealer was first. The update of the chain decides between two."""
    new = prepared.next
    if not chain_rows.move(tx, prepared.key, account, prepared.stored, new.chain):
        return 0
    if not seal_rows.add(tx, account, new.seal, prepared.entries):
        raise Again("another sealer was first")
    if new.first is not None:
        tree_rows.add_seal(tx, account, new.seal.number, new.first, new.nodes)
    return len(prepared.entries)


def seal_some(tx: Tx, key: bytes, account: str) -> int:
    """Both in one unit, where nobody waits."""
    prepared = prepare_seal(tx, key, account)
    return add_seal(tx, account, prepared) if prepared else 0


def prune_is_due(tx: Tx, key: bytes, account: str) -> bool:
    """Whether an entry's time is over, or all of the oldest seal's."""
    due = any(
        entry_rows.retention_page(tx, account, entry_rows.pruned_up_to(tx, account, days), too_old(tx, days), 1)
        for days in RETENTION_DAYS
    )
    return due or _ended_seal(tx, key, account) is not None


def prune_some(tx: Tx, key: bytes, account: str) -> int:
    """Delete a slice of the entries whose time is over, then the oldest seals that have none left.

    Each retention class has a mark up to which it was pruned, so an entry is looked at once per class. One with
    unfinished deliveries is passed over: it goes with the last of their records, or with its seal.
    The last seal deleted becomes the anchor, from which verification starts.
    """
    for days in RETENTION_DAYS:
        page = entry_rows.retention_page(
            tx, account, entry_rows.pruned_up_to(tx, account, days), too_old(tx, days), _SLICE
        )
        if page:
            drop_finished(tx, account, [raw_id for raw_id, keep_days in page if keep_days == days])
            entry_rows.set_pruned_up_to(tx, account, days, page[-1][0])
            return len(page)
    ended = _ended_seal(tx, key, account)
    if ended is None:
        return 0
    _drop(tx, account, _leaves(ended))  # an entry may have come with an id older than the mark
    pruned = tree_rows.load_pruned(tx, key, account, seal_rows.anchor(tx, account))
    if seal_rows.delete_oldest(tx, account, seal.anchor(key, account, ended)) and pruned is not None:
        tree, _ = chain.grow(key, pruned.tree, ended)
        tree_rows.save_pruned(tx, key, account, PrunedTree(ended.number, tree))
    return 1


def drop_finished(tx: Tx, account: str, raw_ids: Iterable[bytes]) -> None:
    """Delete these entries, but for those with unfinished deliveries."""
    those = list(raw_ids)
    unfinished = entry_rows.undelivered(tx, account, those)
    _drop(tx, account, [raw_id for raw_id in those if raw_id not in unfinished])


def _drop(tx: Tx, account: str, raw_ids: list[bytes]) -> None:
    """The entries go, and the ids that publishers gave them: what comes again is new."""
    entry_rows.delete(tx, account, raw_ids)
    published_ids.delete(tx, ((ids.raw(account), raw_id) for raw_id in raw_ids))


def too_old(tx: Tx, days: int) -> bytes:
    """An id before this is of something that is older than this class allows."""
    return ids.lowest_at(clock.milliseconds(tx.at - timedelta(days=days)))


def _ended_seal(tx: Tx, key: bytes, account: str) -> Seal | None:
    """The oldest seal, if the time of all its entries is over and they are in the tree.

    One that was altered stays, for verification to name.
    """
    now = clock.milliseconds(tx.at)
    previous = seal_rows.anchor(tx, account)
    try:
        stored = chain_rows.load(tx, key, account)
    except BrokenChain:
        return None
    grown = stored.grown if stored else 0
    for each in seal_rows.page(tx, account, 0, 1):
        before = previous.mac if previous else seal.START
        genuine = each.mac == seal.mac(key, account, before, each.number, each.at, each.leaves)
        over = genuine and each.number <= grown and all(leaf.kept_until() <= now for leaf in seal.unpack(each.leaves))
        if over and not entry_rows.undelivered(tx, account, _leaves(each)):
            return each
    return None


def _leaves(of: Seal) -> list[bytes]:
    return [leaf.id for leaf in chain.entry_leaves(of.leaves)]


# --- reading

# Between an entry's time, the time in its id and its seal's: the clocks of machines differ, and a commit may wait.
FITS = timedelta(minutes=15)


class Wanted(NamedTuple):
    """Which entries: every condition must hold; an empty one always does. `since` is included, `until` is not."""

    types: tuple[str, ...] = ()
    actor: str = ""
    subject: str = ""
    since: datetime | None = None
    until: datetime | None = None
    mentions: frozenset[str] = frozenset()  # ids, of which one is anywhere in the entry

    def matches(self, entry: Entry) -> bool:
        right_type = not self.types or any(_type_matches(entry.type, each) for each in self.types)
        if not right_type or self.actor not in ("", entry.actor) or self.subject not in ("", entry.subject):
            return False
        return self._is_within(entry.at) and (not self.mentions or self._mentioned(entry))

    def _is_within(self, at: int) -> bool:
        """By the time that is shown for the entry, which is the database's; the time in its id is the machine's."""
        if self.since is not None and at < clock.milliseconds(self.since):
            return False
        return self.until is None or at < clock.milliseconds(self.until)

    def id_range(self) -> tuple[bytes, bytes]:
        """The ids that entries within these times can have: the two clocks may differ by as much as `FITS`."""
        slack = FITS // timedelta(milliseconds=1)
        first = LOWEST if self.since is None else ids.lowest_at(clock.milliseconds(self.since) - slack)
        return first, HIGHEST if self.until is None else ids.lowest_at(clock.milliseconds(self.until) + slack)

    def _mentioned(self, entry: Entry) -> bool:
        own = {entry.name, ids.retitle("tok", entry.name), entry.actor, entry.subject}
        return not own.isdisjoint(self.mentions) or any(each in (entry.data or "") for each in self.mentions)


def _type_matches(type_: str, pattern: str) -> bool:
    return type_.startswith(pattern[:-1]) if pattern.endswith(".*") else type_ == pattern


def newest(store: Reader, account: str, wanted: Wanted, limit: int) -> Iterator[Entry]:
    """The newest entries first, page by page: no transaction lasts longer than one page."""
    since, before = wanted.id_range()
    found = 0
    while found < limit:
        page = store.read_now(_newest_page(account, before, since))
        for entry in page:
            if wanted.matches(entry):
                yield entry
                found += 1
                if found == limit:
                    return
        if len(page) < _PAGE:
            return
        before = page[-1].id


def _newest_page(account: str, before: bytes, since: bytes) -> Callable[[Tx], list[Entry]]:
    return lambda tx: entry_rows.newest(tx, account, before, since, _PAGE)


def oldest(store: Reader, account: str, wanted: Wanted) -> Iterator[Entry]:
    """Every entry, oldest first."""
    after, before = wanted.id_range()
    while True:
        page = store.read_now(_oldest_page(account, after, before))
        yield from (entry for entry in page if wanted.matches(entry))
        if len(page) < _PAGE:
            return
        after = page[-1].id


def _oldest_page(account: str, after: bytes, before: bytes) -> Callable[[Tx], list[Entry]]:
    return lambda tx: entry_rows.oldest(tx, account, after, before, _PAGE)


# --- verifying


class Verdict(NamedTuple):
    """What verification found: how much it checked, the end of the chain, and the first thing that is wrong."""

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
    passed: Callable[[int], None] = lambda _entries: None,
    kept: Checkpoint | None = None,
) -> Verdict:
    """Walk the chain from its anchor to what is its end now, and recompute everything.

    A service at full speed seals faster than this walks. `passed` gets the number of entries of each seal.
    """
    walk = _Walk(store, key, account, expected, passed, kept)
    problem = walk.run()
    unsealed = store.read_now(lambda tx: seal_rows.count_unsealed(tx, account))
    return Verdict(walk.seals, walk.entries, walk.pruned, unsealed, walk.head, problem)


class _Start(NamedTuple):
    """What the service's own records say, as of the beginning."""

    at: int
    chain: Chain | None
    broken: str
    last: Head | None
    recorded: Recorded | None
    operator: str | None
    problem: str


def _start(tx: Tx, key: bytes, account: str) -> _Start:
    found, broken = None, ""
    try:
        found = chain_rows.load(tx, key, account)
        if found is None:
            broken = "there is no chain record: it was removed, or the service has not started since the upgrade"
    except BrokenChain as error:
        broken = str(error)
    recorded = checkpoint_rows.load(tx, key, account)
    problem = ""
    if recorded is None and checkpoint_rows.exists(tx, account):
        problem = "the checkpoint record was altered"
    for days, mark in entry_rows.pruned_marks(tx, account):
        if ids.made_at(mark) + timedelta(days=days) > tx.at + FITS:
            problem = problem or f"the mark of pruning after {days} days is ahead of its time"
    operator = account_rows.load_named(tx, accounts.OPERATOR)
    return _Start(
        tx.now, found, broken, seal_rows.last(tx, account), recorded, operator.id if operator else None, problem,
    )  # fmt: skip


class _Walk:
    """One verification, beside a service that goes on sealing and pruning."""

    def __init__(
        self, store: Reader, key: bytes, account: str, expected: Head | None, passed: Callable[[int], None],
        kept: Checkpoint | None,
    ) -> None:  # fmt: skip
        self._store, self._key, self._account = store, key, account
        self._expected, self._passed, self._kept = expected, passed, kept
        self.seals = self.entries = self.pruned = 0
        self.head = Head(0, seal.START)
        self._start = store.read_now(lambda tx: _start(tx, key, account))
        self._tree: Tree | None = Tree()
        self._roots: dict[int, bytes] = {}  # of the sizes that are asked for
        self._kept_is_pruned = False
        self._caught_up_at: int | None = None  # when a seal last left no entry waiting
        self._recent: set[bytes] = set()
        self._misfits: list[str] = []

    def run(self) -> str:
        end = self._start.last or self.head
        problem = self._follow(end.number) or self._check_end()
        if problem:
            return problem
        counts = self._store.read_now(lambda tx: entry_rows.ledger_counts(tx, self._account, self.head.number))
        if counts.lost is not None:
            return f"entry {ids.text('evt', counts.lost)} was removed before it was sealed"
        if counts.not_waiting > self.entries + counts.sealed_since:
            problem = self._find_stray()
        more = f" (and {len(self._misfits) - 1} more)" if len(self._misfits) > 1 else ""
        return problem or (f"{self._misfits[0]}{more}" if self._misfits else self._start.problem)

    def _check_end(self) -> str:
        """Whether the chain and the tree end where the service's own records say."""
        if self._expected and self._expected.number > self.head.number:
            return (
                f"the chain ends at seal {self.head.number}, before the exported head {self._expected.number}: "
                "its tail was cut off"
            )
        stored, recorded = self._start.chain, self._start.recorded
        if stored is None:
            return self._start.broken
        number = max(stored.head.number, recorded.number if recorded else 0)
        if number > self.head.number:
            return f"the chain ends at seal {self.head.number}, but the service made {number}: its tail was cut off"
        return self._check_kept() if self._kept else ""

    def _check_kept(self) -> str:
        kept = self._kept
        if kept is None or kept.size == 0:
            return ""
        if self._kept_is_pruned:
            return (
                f"the checkpoint of {kept.size} entries cannot be compared: entries after it are pruned by now; "
                "keep a newer one"
            )
        if self._tree is not None and kept.size > self._tree.size:
            return f"the tree has {self._tree.size} entries, the checkpoint {kept.size}: its tail was cut off"
        if self._roots.get(kept.size) != kept.root:
            return f"the tree of the first {kept.size} entries is not that of the checkpoint: it was rewritten"
        return ""

    def _follow(self, end: int) -> str:
        while self.head.number < end:
            after = self.head.number
            page, anchor, pruned = self._store.read_now(lambda tx, after=after: self._page(tx, after))  # type: ignore[misc]
            if anchor is not None and anchor.number > after:
                problem = self._start_from(anchor, pruned)
                if problem:
                    return problem
            for each in page:
                problem = self._check_seal(each) if each.number > self.head.number else ""
                if problem:
                    return problem
            if self.head.number == after:
                break
        return ""

    def _page(self, tx: Tx, after: int) -> tuple[list[Seal], Anchor | None, PrunedTree | None]:
        anchor = seal_rows.anchor(tx, self._account)
        return (
            seal_rows.page(tx, self._account, after, _SEALS),
            anchor,
            tree_rows.load_pruned(tx, self._key, self._account, anchor),
        )

    def _start_from(self, anchor: Anchor, pruned: PrunedTree | None) -> str:
        if anchor != seal.anchor(self._key, self._account, anchor):
            return f"the seals up to {anchor.number} were removed, but not by pruning"
        if pruned is None and self._start.chain is not None:
            return f"the tree of what was pruned up to seal {anchor.number} is not known: its record was altered"
        self._tree = pruned.tree if pruned else None
        self._kept_is_pruned = bool(self._kept and self._tree and self._kept.size < self._tree.size)
        if self._kept and self._tree and self._kept.size == self._tree.size:
            self._roots[self._tree.size] = self._tree.root()
        self._caught_up_at = None
        return self._reach(Head(anchor.number, anchor.mac))

    def _reach(self, head: Head) -> str:
        if self._expected and head.number == self._expected.number and head != self._expected:
            return f"seal {head.number} is not the one that was exported: the chain was rewritten"
        self.head = head
        stored, recorded, tree = self._start.chain, self._start.recorded, self._tree
        if stored and head.number == stored.head.number and head != stored.head:
            return f"seal {head.number} is not the one that the service made last: the chain was rewritten"
        if stored and tree is not None and head.number == stored.grown and tree != stored.tree:
            return f"the tree at seal {head.number} is not the one that the service grew"
        if recorded and recorded.note and tree is not None and head.number == recorded.number:
            told = checkpoint.unverified(recorded.note)
            if (told.size, told.root) != (tree.size, tree.root()):
                return f"the checkpoint at seal {head.number} is not of this tree: the chain was rewritten"
        return ""

    def _check_seal(self, each: Seal) -> str:
        if each.number != self.head.number + 1:
            return f"seal {self.head.number + 1} is missing"
        expected = seal.mac(self._key, self._account, self.head.mac, each.number, each.at, each.leaves)
        if expected != each.mac:
            return f"seal {each.number} was altered, or the chain before it was"
        leaves = chain.entry_leaves(each.leaves)
        at, found = self._store.read_now(
            lambda tx: (tx.at, {leaf.id: entry_rows.load(tx, self._account, leaf.id) for leaf in leaves})
        )
        for leaf in leaves:
            entry = found[leaf.id]
            name = ids.text("evt", leaf.id)
            if entry is None:
                if leaf.kept_until() > clock.milliseconds(at):
                    return f"entry {name} (seal {each.number}) is missing before its time"
                self.pruned += 1
            elif seal.leaf(entry) != leaf:
                return f"entry {name} (seal {each.number}) differs from what was sealed"
            else:
                self.entries += 1
            self._check_time(each, leaf, entry)
        problem = self._check_link(each) or self._check_tree(each, leaves)
        if problem:
            return problem
        if len(leaves) < seal.BATCH:
            self._caught_up_at = each.at
        self.seals += 1
        self._passed(len(leaves))
        return self._reach(Head(each.number, each.mac))

    def _check_time(self, each: Seal, leaf: Leaf, entry: Entry | None) -> None:
        """An entry is made after the last seal that left none waiting, and before its own; sealed once.

        A service that was stopped seals what it left behind when it starts again: a late seal is no fault.
        """
        slack = FITS // timedelta(milliseconds=1)
        made = clock.milliseconds(ids.made_at(leaf.id))
        early = self._caught_up_at is not None and made < self._caught_up_at - slack
        name = f"entry {ids.text('evt', leaf.id)} (seal {each.number})"
        if early or made > each.at + slack or (entry is not None and abs(entry.at - made) > slack):
            self._misfits.append(
                f"{name} has a time that does not fit its seal: it was put in later, or a clock was wrong"
            )
        elif leaf.id in self._recent:
            self._misfits.append(f"{name} was sealed before: it was put back to be sealed again")
        if len(self._recent) > 20_000:
            first = ids.lowest_at(each.at - 2 * slack)
            self._recent = {raw_id for raw_id in self._recent if raw_id >= first}
        self._recent.add(leaf.id)

    def _check_link(self, each: Seal) -> str:
        """Whether the operator's head that this seal names is still in the operator's chain."""
        named, operator = chain.linked(each.leaves), self._start.operator
        if named is None:
            return ""
        if operator is None:
            return f"seal {each.number} names the operator's seal {named.number}, but there is no operator's account"
        there, anchor = self._store.read_now(
            lambda tx: (seal_rows.macs(tx, [(operator, named.number)]), seal_rows.anchor(tx, operator))
        )
        if there.get((operator, named.number)) == named.mac or (
            anchor and seal.is_pruned(self._key, operator, anchor, named)
        ):
            return ""
        return (
            f"seal {each.number} names the operator's seal {named.number}, which is no longer in the operator's chain"
        )

    def _check_tree(self, each: Seal, leaves: list[Leaf]) -> str:
        stored = self._start.chain
        if self._tree is None or stored is None or each.number > stored.grown:
            if self._tree is not None:
                self._tree, _ = chain.grow(self._key, self._tree, each)
            return ""
        first = self._tree.size
        self._tree, nodes = merkle.append(self._tree, chain.tree_leaves(self._key, leaves), chain.STORED)
        if self._kept and self._kept.size == self._tree.size:
            self._roots[self._tree.size] = self._tree.root()
        known, there = self._store.read_now(
            lambda tx: (
                tree_rows.first_leaf(tx, self._account, each.number),
                tree_rows.nodes_at(tx, self._account, nodes),
            )
        )
        if known != first and self._is_there(each.number):
            return f"the place of seal {each.number} in the tree was altered"
        if any(there.get((node.level, node.position)) != node.hash for node in nodes):
            return f"a subtree of seal {each.number} was altered or removed"
        return ""

    def _is_there(self, number: int) -> bool:
        """Whether a seal is still stored: pruning takes its place in the tree along with it."""
        return bool(self._store.read_now(lambda tx: seal_rows.macs(tx, [(self._account, number)])))

    def _find_stray(self) -> str:
        """An entry that is neither sealed nor waiting to be: put there by somebody else."""
        sealed: set[bytes] = set()
        after = self._collect(sealed, 0)
        for entry in oldest(self._store, self._account, Wanted()):
            if entry.id in sealed or self._store.read_now(_is_unsealed(entry)):
                continue
            after = self._collect(sealed, after)  # it may have been sealed since
            if entry.id not in sealed:
                return f"entry {entry.name} was never sealed: it did not come through the service"
        return ""

    def _collect(self, sealed: set[bytes], after: int) -> int:
        while page := self._store.read_now(lambda tx, after=after: seal_rows.page(tx, self._account, after, _SEALS)):  # type: ignore[misc]
            sealed.update(leaf.id for each in page for leaf in seal.unpack(each.leaves))
            after = page[-1].number
        return after


def _is_unsealed(entry: Entry) -> Callable[[Tx], bool]:
    return lambda tx: seal_rows.is_unsealed(tx, entry.account, entry.id)
