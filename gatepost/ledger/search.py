"""Reading the entries of an account that match a filter, a page at a time."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from gatepost.core import clock, ids
from gatepost.ledger import entry_rows
from gatepost.ledger.entries import Entry
from gatepost.store.interface import Reader
from gatepost.store.transaction import HIGHEST, LOWEST, Tx

# The most by which the times of an entry, in its id and of its seal may differ: the clocks of machines differ, and a
# commit may have to wait.
CLOCK_TOLERANCE = timedelta(minutes=15)
_PAGE = 500
_BATCH = 100
MAX_EXAMINED = 2000  # entries that one page examines
MAX_READ = 4 * 1024 * 1024  # characters of data that one page examines


class EntryFilter(NamedTuple):
    """Conditions that an entry must meet. Empty ones are met. `since` is inclusive, `until` is exclusive."""

    types: tuple[str, ...] = ()
    actor: str = ""
    subject: str = ""
    since: datetime | None = None
    until: datetime | None = None
    mentions: frozenset[str] = frozenset()  # ids of which the entry contains at least one

    def matches(self, entry: Entry) -> bool:
        right_type = not self.types or any(_type_matches(entry.type, pattern) for pattern in self.types)
        if not right_type or self.actor not in ("", entry.actor) or self.subject not in ("", entry.subject):
            return False
        # The time of the entry is the database's. The time in its id is the machine's.
        if self.since is not None and entry.at < clock.milliseconds(self.since):
            return False
        if self.until is not None and entry.at >= clock.milliseconds(self.until):
            return False
        return not self.mentions or self._mentioned(entry)

    def id_range(self) -> tuple[bytes, bytes]:
        """The range of ids that entries within these times can have."""
        slack = CLOCK_TOLERANCE // timedelta(milliseconds=1)
        first = LOWEST if self.since is None else ids.lowest_at(clock.milliseconds(self.since) - slack)
        return first, HIGHEST if self.until is None else ids.lowest_at(clock.milliseconds(self.until) + slack)

    def _mentioned(self, entry: Entry) -> bool:
        own = {entry.name, ids.with_prefix("tok", entry.name), entry.actor, entry.subject}
        return not own.isdisjoint(self.mentions) or any(mention in (entry.data or "") for mention in self.mentions)


def _type_matches(type_: str, pattern: str) -> bool:
    return type_.startswith(pattern[:-1]) if pattern.endswith(".*") else type_ == pattern


def newest(store: Reader, account: str, wanted: EntryFilter, limit: int) -> Iterator[Entry]:
    """The newest entries first. Each page is a transaction of its own."""
    since, before = wanted.id_range()
    while limit > 0:
        page = store.read_now(partial(_newest, account=account, before=before, since=since))
        matching = [entry for entry in page if wanted.matches(entry)][:limit]
        yield from matching
        limit -= len(matching)
        if len(page) < _PAGE:
            return
        before = page[-1].id


def _newest(tx: Tx, account: str, before: bytes, since: bytes) -> list[Entry]:
    page = entry_rows.newest(tx, account, before, since, _PAGE)
    tx.check_snapshot()
    return page


class EntryPage(NamedTuple):
    """Entries, the newest first, and the id before which the next page starts. It is None on the last page only."""

    entries: list[Entry]
    next: bytes | None


def page(tx: Tx, account: str, wanted: EntryFilter, before: bytes, limit: int) -> EntryPage:
    """The newest entries before this id that match. The cost is bounded, so a page may have few of them, or none."""
    since, end = wanted.id_range()
    before = min(before, end)
    found: list[Entry] = []
    examined = read = 0
    while examined < MAX_EXAMINED:
        batch = entry_rows.newest(tx, account, before, since, _BATCH)
        tx.check_snapshot()
        for entry in batch:
            before = entry.id
            read += len(entry.data or "")
            if wanted.matches(entry):
                found.append(entry)
            if len(found) == limit or read > MAX_READ:
                return EntryPage(found, before)
        if len(batch) < _BATCH:
            return EntryPage(found, None)
        examined += len(batch)
    return EntryPage(found, before)


def oldest(store: Reader, account: str, wanted: EntryFilter) -> Iterator[Entry]:
    """All entries that match, the oldest first. Each page is a transaction of its own."""
    after, before = wanted.id_range()
    while page := store.read_now(partial(_oldest, account=account, after=after, before=before)):
        yield from (entry for entry in page if wanted.matches(entry))
        if len(page) < _PAGE:
            return
        after = page[-1].id


def _oldest(tx: Tx, account: str, after: bytes, before: bytes) -> list[Entry]:
    page = entry_rows.oldest(tx, account, after, before, _PAGE)
    tx.check_snapshot()
    return page
