"""Reading the entries of an account that match a filter, a page at a time."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from gatepost.core import clock, ids
from gatepost.ledger import (
    entry_rows,
)
from gatepost.ledger.entries import Entry
from gatepost.store.interface import Reader
from gatepost.store.transaction import HIGHEST, LOWEST, Tx

# The most by which the times of an entry, in its id and of its seal may differ: the clocks of machines differ, and a
# commit may have to wait.
CLOCK_TOLERANCE = timedelta(minutes=15)
_PAGE = 500


class EntryFilter(NamedTuple):
    """Conditions that an entry must meet. Empty ones are met. `since` is inclusive, `until` is exclusive."""

    types: tuple[str, ...] = ()
    actor: str = ""
    subject: str = ""
    since: datetime | None = None
    until: datetime | None = None
    mentions: frozenset[str] = frozenset()  # ids of which the entry contains at least one

    def matches(self, entry: Entry) -> bool:
        right_type = not self.types or any(_type_matches(entry.type, each) for each in self.types)
        if not right_type or self.actor not in ("", entry.actor) or self.subject not in ("", entry.subject):
            return False
        return self._is_within(entry.at) and (not self.mentions or self._mentioned(entry))

    def _is_within(self, at: int) -> bool:
        """By the time of the entry, which is the database's. The time in its id is the machine's."""
        if self.since is not None and at < clock.milliseconds(self.since):
            return False
        return self.until is None or at < clock.milliseconds(self.until)

    def id_range(self) -> tuple[bytes, bytes]:
        """The range of ids that entries within these times can have."""
        slack = CLOCK_TOLERANCE // timedelta(milliseconds=1)
        first = LOWEST if self.since is None else ids.lowest_at(clock.milliseconds(self.since) - slack)
        return first, HIGHEST if self.until is None else ids.lowest_at(clock.milliseconds(self.until) + slack)

    def _mentioned(self, entry: Entry) -> bool:
        own = {entry.name, ids.with_prefix("tok", entry.name), entry.actor, entry.subject}
        return not own.isdisjoint(self.mentions) or any(each in (entry.data or "") for each in self.mentions)


def _type_matches(type_: str, pattern: str) -> bool:
    return type_.startswith(pattern[:-1]) if pattern.endswith(".*") else type_ == pattern


def newest(store: Reader, account: str, wanted: EntryFilter, limit: int) -> Iterator[Entry]:
    """The newest entries first. Each page is a transaction of its own."""
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


def oldest(store: Reader, account: str, wanted: EntryFilter) -> Iterator[Entry]:
    """All entries that match, the oldest first."""
    after, before = wanted.id_range()
    while True:
        page = store.read_now(_oldest_page(account, after, before))
        yield from (entry for entry in page if wanted.matches(entry))
        if len(page) < _PAGE:
            return
        after = page[-1].id


def _oldest_page(account: str, after: bytes, before: bytes) -> Callable[[Tx], list[Entry]]:
    return lambda tx: entry_rows.oldest(tx, account, after, before, _PAGE)
