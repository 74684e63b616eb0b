"""Verifying an archive: its files, its entries with the leaves of their seals, and with the key the chain of seals."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from gatepost.archive import manifest, tables
from gatepost.archive.manifest import ArchivedAccount, Manifest
from gatepost.archive.parquet import Row, Table, Unreadable, read
from gatepost.core import clock, ids
from gatepost.ledger import chain, seal
from gatepost.ledger.seal import Head, Leaf, Seal

_MAX_PROBLEMS = 100
_ENDED = frozenset({"succeeded", "failed", "cancelled"})


class ArchiveVerdict(NamedTuple):
    """The result of a verification. Without the key, seals and the manifest itself are not authenticated."""

    manifest: Manifest | None
    with_key: bool
    entries: int
    seals: int
    deliveries: int
    attempts: int
    problems: list[str]


def verify(
    directory: Path, key: bytes | None, on_progress: Callable[[int], None] = lambda _rows: None
) -> ArchiveVerdict:
    """Verify an archive. Without the key, it is compared with its own manifest and leaves only.

    `on_progress` receives numbers of rows. Raises `BadSetting` if the directory has no manifest.
    """
    stored = manifest.read(directory)
    if isinstance(stored, str):
        return ArchiveVerdict(None, key is not None, 0, 0, 0, 0, [stored])
    verification = _Verification(directory, stored, key, on_progress)
    try:
        verification.run()
    except _TooManyProblems:
        verification.problems.append("there may be more problems: the verification was ended")
    counts = (verification.entries, verification.seals, verification.deliveries, verification.attempts)
    return ArchiveVerdict(stored, key is not None, *counts, verification.problems)


class _TooManyProblems(Exception):
    pass


class _Rows:
    """The rows of a file, of which the next one can be looked at."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows = rows
        self.next = next(rows, None)

    def take(self, *prefix: object) -> Iterator[Row]:
        """Take the following rows that begin with these values."""
        return self.take_while(lambda row: row[: len(prefix)] == prefix)

    def take_while(self, condition: Callable[[Row], bool]) -> Iterator[Row]:
        while self.next is not None and condition(self.next):
            row = self.next
            self.next = next(self._rows, None)
            yield row


class _Verification:
    """One verification. The rows of all files are in the order of the accounts in the manifest."""

    def __init__(
        self, directory: Path, stored: Manifest, key: bytes | None, on_progress: Callable[[int], None]
    ) -> None:
        self._directory, self._manifest, self._key, self._on_progress = directory, stored, key, on_progress
        self._after, self._before = stored.period.id_range()
        made = clock.parse_rfc3339(stored.created_at)
        self._made_at = clock.milliseconds(made) if made is not None else 0
        self.problems: list[str] = []
        self.entries = self.seals = self.deliveries = self.attempts = 0

    def run(self) -> None:
        if self._key is not None and not manifest.is_authentic(self._key, self._manifest):
            self._report(f"{manifest.FILE} was altered, or belongs to a service with another key")
        readable = [self._check_file(table) for table in tables.TABLES]
        if not all(readable[:2]):
            self._report("the entries were not verified: entries.parquet or seals.parquet is missing")
        else:
            self._guarded(self._check_entries)
        if not all(readable[2:]):
            self._report("the deliveries were not verified: deliveries.parquet or attempts.parquet is missing")
        else:
            self._guarded(self._check_deliveries)

    def _report(self, problem: str) -> None:
        if len(self.problems) >= _MAX_PROBLEMS:
            raise _TooManyProblems
        self.problems.append(problem)

    def _guarded(self, check: Callable[[], None]) -> None:
        try:
            check()
        except Unreadable as error:
            self._report(str(error))
        except (ValueError, OverflowError):
            self._report("a value is out of range, so the verification could not be completed")

    def _check_file(self, table: Table) -> bool:
        """Compare a file with the manifest. False if it cannot be read."""
        path, listed = self._directory / table.file, self._manifest.files.get(table.file)
        if listed is None:
            self._report(f"{manifest.FILE} does not list {table.file}")
        try:
            found = manifest.describe(path, listed.rows if listed else 0)
        except OSError as error:
            self._report(f"{table.file} cannot be read: {error.strerror}")
            return False
        if listed is not None and found != listed:
            self._report(f"{table.file} was altered: its SHA-256 or size differs from {manifest.FILE}")
        return True

    def _read(self, table: Table) -> _Rows:
        return _Rows(self._rows(table))

    def _rows(self, table: Table) -> Iterator[Row]:
        count = 0
        try:
            for row in read(self._directory / table.file, table):
                count += 1
                yield row
                if not count % 1000:
                    self._on_progress(1000)
        except Unreadable as error:
            raise Unreadable(f"{table.file} cannot be read: {error}") from None
        self._on_progress(count % 1000)
        listed = self._manifest.files.get(table.file)
        if listed is not None and count != listed.rows:
            self._report(f"{table.file} has {count} rows, but {manifest.FILE} says {listed.rows}")

    def _check_end(self, table: Table, rows: _Rows) -> None:
        if rows.next is not None:
            self._report(f"{table.file} has rows of {rows.next[0]} that {manifest.FILE} does not list at this place")
            for _ in rows.take():
                pass

    # --- entries and seals

    def _check_entries(self) -> None:
        entries, seals = self._read(tables.ENTRIES), self._read(tables.SEALS)
        for account in self._manifest.accounts:
            self._check_ledger(account, entries, seals)
        self._check_end(tables.ENTRIES, entries)
        self._check_end(tables.SEALS, seals)

    def _check_ledger(self, account: ArchivedAccount, entries: _Rows, seals: _Rows) -> None:
        counts = self.entries, self.seals
        head = seal.parse_head(account.previous) if account.previous else None
        pruned = 0
        for row in seals.take(account.account):
            sealed = tables.seal_of(row)
            self._check_seal(account, head, sealed)
            head = Head(sealed.number, sealed.mac)
            self._check_other_seals(account, entries, lambda row, sealed=sealed: row[1] < sealed.number)  # type: ignore[misc]
            pruned += self._check_entries_of(account, sealed, entries)
            self.seals += 1
        self._check_other_seals(account, entries, lambda _row: True)
        if (str(head) if head else None) != account.last:
            self._report(f"{account.name}: the last seal is {head}, but {manifest.FILE} says {account.last}")
        found = (self.entries - counts[0], self.seals - counts[1], pruned)
        listed = (account.entries, account.seals, account.pruned_entries)
        for noun, actual, expected in zip(("entries", "seals", "pruned entries"), found, listed, strict=True):
            self._compare(account, noun, actual, expected)

    def _compare(self, account: ArchivedAccount, noun: str, actual: int, expected: int) -> None:
        if actual != expected:
            self._report(f"{account.name}: the archive has {actual} {noun}, but {manifest.FILE} says {expected}")

    def _check_seal(self, account: ArchivedAccount, head: Head | None, sealed: Seal) -> None:
        name = f"{account.name}: seal {sealed.number}"
        if head is None:
            self._report(f"{name} is in the archive, but {manifest.FILE} does not say which head it follows")
        elif sealed.number != head.number + 1:
            self._report(f"{name} follows seal {head.number}: a seal is missing or out of order")
        elif self._key is not None and not seal.follows(self._key, account.account, head, sealed):
            self._report(f"{name} was altered, or the chain before it was")
        if len(sealed.leaves) % seal.LEAF:
            self._report(f"{name} was altered: its leaves have a wrong length")

    def _check_entries_of(self, account: ArchivedAccount, sealed: Seal, entries: _Rows) -> int:
        """Check the entries of a seal. Returns how many are missing because they had been pruned."""
        leaves = {
            leaf.id: leaf
            for leaf in chain.entry_leaves(sealed.leaves)
            if self._after < leaf.id < self._before and len(leaf.hash) == 32
        }
        for row in entries.take(account.account, sealed.number):
            self._check_entry(account, sealed, row, leaves)
            self.entries += 1
        for leaf in leaves.values():
            if leaf.kept_until() > self._made_at:
                name = ids.text("evt", leaf.id)
                self._report(f"{account.name}: entry {name} (seal {sealed.number}) is missing from the archive")
        return len(leaves)

    def _check_entry(self, account: ArchivedAccount, sealed: Seal, row: Row, leaves: dict[bytes, Leaf]) -> None:
        """Compare an entry with its leaf, which is then removed from `leaves`."""
        name = f"{account.name}: entry {row[2]} (seal {sealed.number})"
        try:
            entry = tables.entry_of(row)
            leaf, actual = leaves.pop(entry.id, None), seal.leaf(entry)
        except ValueError:
            self._report(f"{name} is malformed")
            return
        if leaf is None:
            self._report(f"{name} is not in the seal, or twice in the archive")
        elif leaf != actual:
            self._report(f"{name} differs from what was sealed")
        elif entry.data is None:  # the hash in the leaf does not cover it
            self._report(f"{name} has no data: it was erased, but not by the service")

    def _check_other_seals(self, account: ArchivedAccount, entries: _Rows, condition: Callable[[Row], bool]) -> None:
        """Report entries whose seal is not in the archive."""
        for row in entries.take_while(lambda row: row[0] == account.account and condition(row)):
            self._report(f"{account.name}: entry {row[2]} names seal {row[1]}, which is not at this place")

    # --- deliveries and attempts

    def _check_deliveries(self) -> None:
        deliveries, attempts = self._read(tables.DELIVERIES), self._read(tables.ATTEMPTS)
        for account in self._manifest.accounts:
            counts, last = (self.deliveries, self.attempts), ""
            for row in deliveries.take(account.account):
                self._check_delivery(account, row, last)
                last = row[1]
                self._check_orphans(account, attempts, last)
                self.attempts += sum(1 for _ in attempts.take(account.account, last))
                self.deliveries += 1
            self._check_orphans(account, attempts, None)
            self._compare(account, "deliveries", self.deliveries - counts[0], account.deliveries)
            self._compare(account, "attempts", self.attempts - counts[1], account.attempts)
        self._check_end(tables.DELIVERIES, deliveries)
        self._check_end(tables.ATTEMPTS, attempts)

    def _check_delivery(self, account: ArchivedAccount, row: Row, last: str) -> None:
        name = f"{account.name}: delivery {row[1]}"
        raw_id = ids.parse("dlv", row[1])
        if raw_id is None or not self._after < raw_id < self._before:
            self._report(f"{name} is not of this period")
        if row[1] <= last:
            self._report(f"{name} is out of order, or twice in the archive")
        if row[7] not in _ENDED:
            self._report(f"{name} has the status {row[7]}, but only deliveries that have ended are archived")

    def _check_orphans(self, account: ArchivedAccount, attempts: _Rows, before: str | None) -> None:
        """Report attempts of deliveries that are not in the archive."""
        for row in attempts.take_while(lambda row: row[0] == account.account and (before is None or row[1] < before)):
            self._report(f"{account.name}: attempt {row[2]} of {row[1]} has no delivery in the archive")
