"""Keeping the ledger: sealing, pruning, reading and verifying it, always in slices."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar

from gatepost import clock, ids
from gatepost.accounts import RETENTION_DAYS
from gatepost.ledger import seal
from gatepost.ledger.entries import Entry
from gatepost.ledger.seal import Anchor, Head, Seal
from gatepost.store.tx import HIGHEST, LOWEST, Tx, Unit

T = TypeVar("T")
_PAGE = 500
_SLICE = 200
_SEALS = 20


class Reader(Protocol):
    def read_now(self, unit: Unit[T]) -> T: ...


# --- sealing and pruning


class Prepared(NamedTuple):
    """A seal worked out from a snapshot, to be added if the chain still ends where it did."""

    previous: Head
    seal: Seal
    entries: list[Entry]


def prepare_seal(tx: Tx, key: bytes, account: str) -> Prepared | None:
    """The hashing, done in a reading unit: writers need not wait for it.

    The last seal is read before the entries: were it the other way round, a sealer could take entries that another
    sealed in between, and its number would be free.
    """
    previous = tx.last_seal(account) or Head(0, seal.START)
    entries = tx.unsealed(account, seal.BATCH)
    if not entries:
        return None
    return Prepared(previous, seal.follow(key, account, previous, entries, clock.milliseconds(tx.at)), entries)


def add_seal(tx: Tx, account: str, prepared: Prepared) -> int:
    """How many entries this sealed: none if another sealer was first. The seal's number decides between two."""
    if (tx.last_seal(account) or Head(0, seal.START)) != prepared.previous:
        return 0
    return len(prepared.entries) if tx.add_seal(account, prepared.seal, prepared.entries) else 0


def seal_some(tx: Tx, key: bytes, account: str) -> int:
    """Both in one unit, for who is in no hurry."""
    prepared = prepare_seal(tx, key, account)
    return add_seal(tx, account, prepared) if prepared else 0


def prune_is_due(tx: Tx, key: bytes, account: str) -> bool:
    """Whether an entry's time is over, or all of the oldest seal's."""
    due = any(tx.entry_keeps(account, tx.pruned_up_to(account, days), too_old(tx, days), 1) for days in RETENTION_DAYS)
    return due or _ended_seal(tx, key, account) is not None


def prune_some(tx: Tx, key: bytes, account: str) -> int:
    """Delete a slice of the entries whose time is over, then the oldest seals that have none left.

    Each retention class has a mark up to which it was pruned, so an entry is looked at once per class. One with
    unfinished deliveries is passed over: it goes with the last of their records, or with its seal.
    The last seal deleted becomes the anchor, from which verification starts.
    """
    for days in RETENTION_DAYS:
        page = tx.entry_keeps(account, tx.pruned_up_to(account, days), too_old(tx, days), _SLICE)
        if page:
            drop_finished(tx, account, [raw_id for raw_id, keep_days in page if keep_days == days])
            tx.put_pruned_up_to(account, days, page[-1][0])
            return len(page)
    ended = _ended_seal(tx, key, account)
    if ended is None:
        return 0
    _drop(tx, account, _leaves(ended))  # an entry may have come with an id older than the mark
    tx.drop_seal(account, seal.anchor(key, account, ended))
    return 1


def drop_finished(tx: Tx, account: str, raw_ids: Iterable[bytes]) -> None:
    """Delete these entries, but for those with unfinished deliveries."""
    those = list(raw_ids)
    unfinished = tx.webhooks.unfinished_of(account, those)
    _drop(tx, account, [raw_id for raw_id in those if raw_id not in unfinished])


def _drop(tx: Tx, account: str, raw_ids: list[bytes]) -> None:
    """The entries go, and the ids that publishers gave them: what comes again is new."""
    tx.drop_entries(account, raw_ids)
    tx.webhooks.forget_published((ids.raw(account), raw_id) for raw_id in raw_ids)


def too_old(tx: Tx, days: int) -> bytes:
    """An id before this is of something that is older than this class allows."""
    return _bound(tx.at - timedelta(days=days), HIGHEST)


def _ended_seal(tx: Tx, key: bytes, account: str) -> Seal | None:
    """The oldest seal, if the time of all its entries is over. One that was altered stays, for verification to name."""
    now = clock.milliseconds(tx.at)
    previous = tx.anchor(account)
    for each in tx.seals(account, 0, 1):
        before = previous.mac if previous else seal.START
        genuine = each.mac == seal.mac(key, account, before, each.number, each.at, each.leaves)
        over = genuine and all(leaf.kept_until() <= now for leaf in seal.unpack(each.leaves))
        if over and not tx.webhooks.unfinished_of(account, _leaves(each)):
            return each
    return None


def _leaves(of: Seal) -> list[bytes]:
    return [leaf.id for leaf in seal.unpack(of.leaves)]


# --- reading


class Wanted(NamedTuple):
    """Which entries: every condition must hold; an empty one always does."""

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
        return not self.mentions or self._mentioned(entry)

    def _mentioned(self, entry: Entry) -> bool:
        own = {entry.name, ids.retitle("tok", entry.name), entry.actor, entry.subject}
        return not own.isdisjoint(self.mentions) or any(each in (entry.data or "") for each in self.mentions)


def _type_matches(type_: str, pattern: str) -> bool:
    return type_.startswith(pattern[:-1]) if pattern.endswith(".*") else type_ == pattern


def newest(store: Reader, account: str, wanted: Wanted, limit: int) -> Iterator[Entry]:
    """The newest entries first, page by page: no transaction lasts longer than one page."""
    before, since = _bound(wanted.until, HIGHEST), _bound(wanted.since, LOWEST)
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
    return lambda tx: tx.newest_entries(account, before, since, _PAGE)


def oldest(store: Reader, account: str, wanted: Wanted) -> Iterator[Entry]:
    """Every entry, oldest first."""
    after, before = _bound(wanted.since, LOWEST), _bound(wanted.until, HIGHEST)
    while True:
        page = store.read_now(_oldest_page(account, after, before))
        yield from (entry for entry in page if wanted.matches(entry))
        if len(page) < _PAGE:
            return
        after = page[-1].id


def _oldest_page(account: str, after: bytes, before: bytes) -> Callable[[Tx], list[Entry]]:
    return lambda tx: tx.oldest_entries(account, after, before, _PAGE)


def _bound(at: datetime | None, otherwise: bytes) -> bytes:
    return otherwise if at is None else clock.milliseconds(at).to_bytes(6, "big") + b"\0" * 10


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
) -> Verdict:
    """Walk the chain from its anchor to what is its end now, and recompute everything.

    A service at full speed seals faster than this walks. `passed` hears of the entries of each seal.
    """
    walk = _Walk(store, key, account, expected, passed)
    problem = walk.run()
    unsealed = store.read_now(lambda tx: tx.count_unsealed(account))
    return Verdict(walk.seals, walk.entries, walk.pruned, unsealed, walk.head, problem)


class _Walk:
    """One verification, beside a service that goes on sealing and pruning."""

    def __init__(
        self, store: Reader, key: bytes, account: str, expected: Head | None, passed: Callable[[int], None]
    ) -> None:
        self._store, self._key, self._account = store, key, account
        self._expected, self._passed = expected, passed
        self.seals = self.entries = self.pruned = 0
        self.head = Head(0, seal.START)

    def run(self) -> str:
        end = self._store.read_now(lambda tx: tx.last_seal(self._account)) or self.head
        problem = self._follow(end.number)
        if problem:
            return problem
        if self._expected and self._expected.number > self.head.number:
            return (
                f"the chain ends at seal {self.head.number}, before the exported head {self._expected.number}: "
                "its tail was cut off"
            )
        counts = self._store.read_now(lambda tx: tx.ledger_counts(self._account, self.head.number))
        if counts.lost is not None:
            return f"entry {ids.text('evt', counts.lost)} was removed before it was sealed"
        return self._find_stray() if counts.not_waiting > self.entries + counts.sealed_since else ""

    def _follow(self, end: int) -> str:
        while self.head.number < end:
            after = self.head.number
            # The anchor is read after the seals: a seal that pruning took meanwhile is then not after it.
            page, anchor = self._store.read_now(
                lambda tx, after=after: (tx.seals(self._account, after, _SEALS), tx.anchor(self._account))  # type: ignore[misc]
            )
            if anchor is not None and anchor.number > after:
                problem = self._start_from(anchor)
                if problem:
                    return problem
            for each in page:
                problem = self._check_seal(each) if each.number > self.head.number else ""
                if problem:
                    return problem
            if self.head.number == after:
                break
        return ""

    def _start_from(self, anchor: Anchor) -> str:
        if anchor != seal.anchor(self._key, self._account, anchor):
            return f"the seals up to {anchor.number} were removed, but not by pruning"
        return self._reach(Head(anchor.number, anchor.mac))

    def _reach(self, head: Head) -> str:
        if self._expected and head.number == self._expected.number and head != self._expected:
            return f"seal {head.number} is not the one that was exported: the chain was rewritten"
        self.head = head
        return ""

    def _check_seal(self, each: Seal) -> str:
        if each.number != self.head.number + 1:
            return f"seal {self.head.number + 1} is missing"
        expected = seal.mac(self._key, self._account, self.head.mac, each.number, each.at, each.leaves)
        if expected != each.mac:
            return f"seal {each.number} was altered, or the chain before it was"
        leaves = list(seal.unpack(each.leaves))
        at, found = self._store.read_now(
            lambda tx: (tx.at, {leaf.id: tx.entry(self._account, leaf.id) for leaf in leaves})
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
        self.seals += 1
        self._passed(len(leaves))
        return self._reach(Head(each.number, each.mac))

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
        while page := self._store.read_now(lambda tx, after=after: tx.seals(self._account, after, _SEALS)):  # type: ignore[misc]
            sealed.update(leaf.id for each in page for leaf in seal.unpack(each.leaves))
            after = page[-1].number
        return after


def _is_unsealed(entry: Entry) -> Callable[[Tx], bool]:
    return lambda tx: tx.is_unsealed(entry.account, entry.id)
