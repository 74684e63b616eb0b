"""Writing an archive while the service runs. It deletes nothing.

Only rows that no longer change are read: sealed entries, seals, and deliveries that have ended, with their attempts. So
an archive needs no snapshot, and every page is a transaction of its own.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from gatepost.accounts import Account
from gatepost.archive import archive_rows, manifest, tables
from gatepost.archive.manifest import AnchorRecord, ArchivedAccount, Manifest, Period
from gatepost.archive.parquet import Writer
from gatepost.archive.verify import verify
from gatepost.core import clock, files, ids
from gatepost.core.errors import BadSetting
from gatepost.ledger import chain, checkpoint_rows, entry_rows, seal, seal_rows
from gatepost.ledger.seal import Head, Leaf, Seal
from gatepost.ledger.search import CLOCK_TOLERANCE
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx

_SEALS = 20
_DELIVERIES = 500
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
        raise BadSetting(f"{target} exists already; choose another name, so that no archive is overwritten")
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
    created_at = source.store.now()
    with ExitStack() as stack:
        writers = [stack.enter_context(Writer(directory, table)) for table in tables.TABLES]
        archived = [_Export(source, account, period, writers, on_progress).run() for account in accounts]
    made = Manifest(
        manifest.FORMAT, source.base_url, clock.rfc3339(created_at), period.after, period.before,
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
        self._pruned = 0
        self._previous: Head | None = None  # the head before the first seal of the archive
        self._last: Head | None = None

    def run(self) -> ArchivedAccount | None:
        """Export the account. Returns None if the period has nothing of it."""
        before = [writer.rows for writer in (self._entries, self._seals, self._deliveries, self._attempts)]
        self._export_entries()
        self._export_deliveries()
        after = [writer.rows for writer in (self._entries, self._seals, self._deliveries, self._attempts)]
        entries, seals, deliveries, attempts = (new - old for new, old in zip(after, before, strict=True))
        found = self._store.read_now(
            partial(archive_rows.count, account=self._account.id, after=self._after, before=self._before)
        )
        unsealed = max(0, found.entries - entries)
        if not any((entries, self._pruned, deliveries, unsealed, found.unfinished)):
            return None
        head, anchor, checkpoint = self._store.read_now(self._end_of_chain)
        return ArchivedAccount(
            self._account.id, self._account.name, entries, self._pruned, seals, deliveries, attempts, unsealed,
            found.unfinished, _text(self._previous), _text(self._last), _text(head), anchor, checkpoint,
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

    def _export_entries(self) -> None:
        """Write all seals from the first to the last with an entry of the period, and these entries.

        An entry is created after the last seal that left no entry unsealed, up to the tolerance for clocks. So later
        seals are not read.
        """
        first = self._store.read_now(
            lambda tx: seal_rows.first_since(tx, self._account.id, self._period.first_at - _SLACK)
        )
        for previous, sealed in self._walk(first - 1) if first is not None else ():
            all_leaves = chain.entry_leaves(sealed.leaves)
            leaves = [leaf for leaf in all_leaves if self._after < leaf.id < self._before]
            if leaves:
                self._add_seals(previous, sealed)
                self._add_entries(sealed.number, leaves)
            if len(all_leaves) < seal.BATCH and sealed.at > self._period.end_at + _SLACK:
                return

    def _walk(self, after: int) -> Iterator[tuple[Head, Seal]]:
        """The seals after this number, each with the head before it."""
        while page := self._store.read_now(lambda tx, after=after: self._page(tx, after)):  # type: ignore[misc]
            yield from page
            after = page[-1][1].number

    def _page(self, tx: Tx, after: int) -> list[tuple[Head, Seal]]:
        page = seal_rows.page(tx, self._account.id, after, _SEALS)
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
        entries = self._store.read_now(lambda tx: entry_rows.load_many(tx, keys))
        for key in keys:
            if key in entries:
                self._entries.add(tables.entry_row(number, entries[key]))
        self._pruned += len(keys) - len(entries)
        self._on_progress(len(entries))

    # --- deliveries

    def _export_deliveries(self) -> None:
        after = self._after
        while page := self._store.read_now(
            lambda tx, after=after: archive_rows.ended_deliveries(  # type: ignore[misc]
                tx, self._account.id, after, self._before, _DELIVERIES
            )
        ):
            for delivery, attempts in page:
                self._deliveries.add(tables.delivery_row(delivery))
                for attempt in attempts:
                    self._attempts.add(tables.attempt_row(attempt))
            self._on_progress(len(page))
            after = page[-1][0].id


def _text(head: Head | None) -> str | None:
    return None if head is None else str(head)
