"""Writing an archive while the service runs. It deletes nothing.

Only rows that no longer change are read: sealed entries, seals, and deliveries that have ended, with their attempts. So
an archive needs no snapshot, and every page is a transaction of its own. Rows whose retention ends meanwhile may be
missing: the manifest counts what was written, and its time is that of the last page.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from gatepost.accounts import Account
from gatepost.archive import archive_rows, manifest, tables
from gatepost.archive.archive_rows import DeliveryPage
from gatepost.archive.manifest import AnchorRecord, ArchivedAccount, Manifest, Period
from gatepost.archive.parquet import Writer
from gatepost.archive.verify import verify
from gatepost.core import clock, files, ids
from gatepost.core.errors import BadSetting, Refused
from gatepost.ledger import chain, checkpoint_rows, entry_rows, seal, seal_rows
from gatepost.ledger.entries import Entry
from gatepost.ledger.seal import Head, Leaf, Seal
from gatepost.ledger.search import CLOCK_TOLERANCE
from gatepost.store.interface import Store
from gatepost.store.pending import Key
from gatepost.store.transaction import Tx

_SEALS = 20
_DELIVERIES = 500
_TRIES = 3
_SLACK = clock.milliseconds(clock.EPOCH + CLOCK_TOLERANCE)


class Source(NamedTuple):
    """The store to read, the seal key, and the base URL of the service."""

    store: Store
    key: bytes
    base_url: str


def export(
    source: Source,
    accounts: Iterable[Account],
    period: Period,
    directory: Path,
    on_progress: Callable[[int], None] = lambda _rows: None,
) -> Manifest:
    """Write an archive of these accounts and verify it. The directory gets its name when everything is on the disk.

    Raises `BadSetting` if the directory exists or cannot be written, or if the ledger does not verify.
    """
    accounts = list(accounts)
    for _ in range(_TRIES):
        with suppress(_SealsPruned):
            return _export(source, accounts, period, directory, on_progress)
    raise BadSetting("nothing was archived: retention deleted seals of the period while they were read; try again")


class _SealsPruned(Exception):
    """Retention deleted seals that follow those already written."""


def _export(
    source: Source, accounts: list[Account], period: Period, directory: Path, on_progress: Callable[[int], None]
) -> Manifest:  # fmt: skip
    try:
        with _new_directory(directory.absolute()) as unfinished:
            written = _write(source, accounts, period, unfinished, on_progress)
            problems = verify(unfinished, source.key).problems
            if problems:
                raise BadSetting(f"nothing was archived: {problems[0]}; see `gatepost audit verify`, and try again")
    except OSError as error:
        raise BadSetting(f"cannot write {directory}: {error.strerror or error}") from None
    return written


@contextmanager
def _new_directory(target: Path) -> Iterator[Path]:
    """A directory beside the target, which is renamed to it at the end, or else removed."""
    if target.exists():
        raise Refused(f"{target} exists already; choose another name, so that no archive is overwritten")
    if not target.parent.is_dir():
        raise BadSetting(f"{target.parent} is not a directory; make it first")
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
    try:
        yield unfinished
        files.sync(unfinished)
        unfinished.rename(target)  # fails if another process was first
        files.sync(target.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write(
    source: Source, accounts: Iterable[Account], period: Period, directory: Path, on_progress: Callable[[int], None]
) -> Manifest:
    with ExitStack() as stack:
        writers = [stack.enter_context(Writer(directory, table)) for table in tables.TABLES]
        archived = [_Export(source, account, period, writers, on_progress).run() for account in accounts]
    made = Manifest(
        manifest.FORMAT, source.base_url, clock.rfc3339(source.store.now()), period.after, period.before,
        {writer.path.name: manifest.describe(writer.path, writer.rows) for writer in writers},
        [account for account in archived if account is not None],
    )  # fmt: skip
    made = msgspec.structs.replace(made, proof=manifest.expected_proof(source.key, made))
    manifest.write(directory, made)
    return made


class _Export:
    """The export of one account."""

    def __init__(
        self, source: Source, account: Account, period: Period, writers: list[Writer],
        on_progress: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._store, self._key, self._account = source.store, source.key, account
        self._period, self._on_progress = period, on_progress
        self._after, self._before = period.id_range()
        self._entries, self._seals, self._deliveries, self._attempts = writers
        self._pruned = self._unfinished = 0
        self._previous: Head | None = None  # the head before the first seal of the archive
        self._last: Head | None = None

    def run(self) -> ArchivedAccount | None:
        """Export the account. Returns None if the period has nothing of it."""
        before = [writer.rows for writer in (self._entries, self._seals, self._deliveries, self._attempts)]
        unsealed = self._export_entries()
        self._export_deliveries()
        after = [writer.rows for writer in (self._entries, self._seals, self._deliveries, self._attempts)]
        entries, seals, deliveries, attempts = (new - old for new, old in zip(after, before, strict=True))
        if not any((entries, self._pruned, deliveries, unsealed, self._unfinished)):
            return None
        head, anchor, checkpoint = self._store.read_now(self._end_of_chain)
        return ArchivedAccount(
            self._account.id, self._account.name, entries, self._pruned, seals, deliveries, attempts, unsealed,
            self._unfinished, _text(self._previous), _text(self._last), _text(head), anchor, checkpoint,
        )  # fmt: skip

    def _end_of_chain(self, tx: Tx) -> tuple[Head | None, AnchorRecord | None, str | None]:
        account = self._account.id
        anchor = seal_rows.anchor(tx, account)
        recorded = checkpoint_rows.load(tx, self._key, account)
        return (
            seal_rows.last(tx, account),
            AnchorRecord(anchor.number, anchor.mac.hex(), anchor.proof.hex()) if anchor else None,
            recorded.note or None if recorded else None,
        )

    # --- entries, in the order of their seals

    def _export_entries(self) -> int:
        """Write all seals from the first to the last with an entry of the period, and these entries.

        An entry is created after the last seal that left no entry unsealed, up to the tolerance for clocks. So later
        seals are not read. Returns how many entries had no seal at the start. Seals of later are left out as well.
        """
        first, last, unsealed = self._store.read_now(self._start)
        for previous, sealed in self._walk(first - 1) if first is not None else ():
            if last is None or sealed.number > last.number:
                break
            all_leaves = chain.entry_leaves(sealed.leaves)
            leaves = [leaf for leaf in all_leaves if self._after < leaf.id < self._before]
            if leaves:
                self._add_seals(previous, sealed)
                self._add_entries(sealed.number, leaves)
            if len(all_leaves) < seal.BATCH and sealed.at > self._period.end_at + _SLACK:
                break
        return unsealed

    def _start(self, tx: Tx) -> tuple[int | None, Head | None, int]:
        """The first seal that can have an entry of the period, the last seal, and the number of unsealed entries."""
        account = self._account.id
        return (
            seal_rows.first_since(tx, account, self._period.first_at - _SLACK),
            seal_rows.last(tx, account),
            archive_rows.count_unsealed(tx, account, self._after, self._before),
        )

    def _walk(self, after: int) -> Iterator[tuple[Head, Seal]]:
        """The seals after this number, each with the head before it."""
        while page := self._store.read_now(lambda tx, after=after: self._page(tx, after)):  # type: ignore[misc]
            yield from page
            after = page[-1][1].number

    def _page(self, tx: Tx, after: int) -> list[tuple[Head, Seal]]:
        page = seal_rows.page(tx, self._account.id, after, _SEALS)
        anchor = seal_rows.anchor(tx, self._account.id)
        if self._last is not None and anchor is not None and anchor.number > after:
            raise _SealsPruned
        if not page:
            return []
        heads = [self._head_before(tx, page[0]), *(Head(sealed.number, sealed.mac) for sealed in page)]
        return list(zip(heads, page, strict=False))

    def _head_before(self, tx: Tx, sealed: Seal) -> Head:
        number, account = sealed.number - 1, self._account.id
        anchor = seal_rows.anchor(tx, account)
        if not number:
            return Head(0, seal.START)
        if anchor is not None and anchor.number == number:
            return Head(number, anchor.mac)
        mac = seal_rows.macs(tx, [(account, number)]).get((account, number))
        if mac is None:
            raise BadSetting(f"seal {number} of {self._account.name} is missing; see `gatepost audit verify`")
        return Head(number, mac)

    def _add_seals(self, previous: Head, sealed: Seal) -> None:
        """Write a seal, and before it those since the last one, which have no entry of the period."""
        if self._last is None:
            self._previous = previous
        elif self._last.number < previous.number:
            for _, between in self._walk(self._last.number):
                if between.number >= sealed.number:
                    break
                self._seals.add(tables.seal_row(self._account.id, between))
        self._seals.add(tables.seal_row(self._account.id, sealed))
        self._last = Head(sealed.number, sealed.mac)

    def _add_entries(self, number: int, leaves: list[Leaf]) -> None:
        raw_account = ids.raw(self._account.id)
        keys = [(raw_account, leaf.id) for leaf in leaves]
        entries = self._store.read_now(partial(_load_entries, keys=keys))
        for key in keys:
            if key in entries:
                self._entries.add(tables.entry_row(number, entries[key]))
        self._pruned += len(keys) - len(entries)
        self._on_progress(len(entries))

    # --- deliveries

    def _export_deliveries(self) -> None:
        after: bytes | None = self._after
        while after is not None:
            page = self._store.read_now(partial(self._delivery_page, after=after))
            for delivery, attempts in page.ended:
                self._deliveries.add(tables.delivery_row(delivery))
                for attempt in attempts:
                    self._attempts.add(tables.attempt_row(attempt))
            self._on_progress(len(page.ended))
            self._unfinished += page.unfinished
            after = page.next

    def _delivery_page(self, tx: Tx, after: bytes) -> DeliveryPage:
        return archive_rows.deliveries(tx, self._account.id, after, self._before, _DELIVERIES)


def _load_entries(tx: Tx, keys: list[Key]) -> dict[Key, Entry]:
    entries = entry_rows.load_many(tx, keys)
    tx.check_snapshot()
    return entries


def _text(head: Head | None) -> str | None:
    return None if head is None else str(head)
