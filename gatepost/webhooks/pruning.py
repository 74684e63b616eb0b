"""Retention of deliveries, in slices, and the check that every entry has the deliveries that it created."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from gatepost.accounts import RETENTION_DAYS
from gatepost.core import clock, ids
from gatepost.ledger import entry_rows, retention
from gatepost.ledger.entries import RESERVED
from gatepost.store.interface import Reader
from gatepost.store.transaction import LOWEST, Tx, Unit
from gatepost.webhooks import delivery_rows, endpoint_rows, subscription_rows
from gatepost.webhooks.fanout import Subscribers, fan_out, subscribers
from gatepost.webhooks.subscriptions import Subscription

_SLICE = 100  # deliveries with their attempts: a commit of a few milliseconds
_PAGE = 500


# --- retention


class Place(NamedTuple):
    """The position of a run: the retention class, the last delivery, and whether the run has met an unfinished one.

    Class 0, the last one, stands for the entries.
    """

    days: int
    after: bytes = b""
    met: bool = False


START = Place(RETENTION_DAYS[0])
_ENTRIES = Place(0)


class Pruned(NamedTuple):
    """The result of a slice: deliveries deleted, entries examined, and the next position; None at the end."""

    deliveries: int
    entries: int
    next: Place | None


def is_due(tx: Tx, key: bytes, account: str) -> bool:
    """Whether there is anything to delete."""
    return retention.is_due(tx, key, account) or any(_page(tx, account, Place(each), 1) for each in RETENTION_DAYS)


def some(key: bytes, account: str, place: Place) -> Unit[Pruned]:
    """The unit for a slice of a run over one account."""

    def unit(tx: Tx) -> Pruned:
        if place != _ENTRIES:
            return prune_deliveries_some(tx, account, place)
        count = retention.prune_some(tx, key, account)
        return Pruned(0, count, _ENTRIES if count else None)

    return unit


def prune_deliveries_some(tx: Tx, account: str, place: Place) -> Pruned:
    """Delete a slice of the deliveries whose retention has ended, and never an unfinished one.

    Each class has a mark up to which it was pruned, where a run starts. The mark stays before the first unfinished
    delivery of the class, while the run itself goes on beyond.
    """
    page = _page(tx, account, place, _SLICE)
    own = [(raw_id, status) for raw_id, keep_days, status in page if keep_days == place.days]
    ended = [raw_id for raw_id, status in own if status != "pending"]
    unfinished = next((raw_id for raw_id, status in own if status == "pending"), None)
    _drop(tx, account, ended)
    passed = [raw_id for raw_id, _, _ in page if unfinished is None or raw_id < unfinished]
    if passed and not place.met:
        delivery_rows.set_pruned_up_to(tx, account, place.days, passed[-1])
    if len(page) == _SLICE:
        return Pruned(len(ended), 0, Place(place.days, page[-1][0], place.met or unfinished is not None))
    later = [Place(days) for days in RETENTION_DAYS if days > place.days]
    return Pruned(len(ended), 0, later[0] if later else _ENTRIES)


def _page(tx: Tx, account: str, place: Place, limit: int) -> list[tuple[bytes, int, str]]:
    after = place.after or delivery_rows.pruned_up_to(tx, account, place.days)
    return delivery_rows.retention_page(tx, account, after, retention.oldest_kept(tx, place.days), limit)


def _drop(tx: Tx, account: str, ended: list[bytes]) -> None:
    """Delete deliveries, and entries without other deliveries whose own retention has ended."""
    whose = ids.raw(account)
    events = {each.event for each in delivery_rows.load_many(tx, ((whose, raw_id) for raw_id in ended)).values()}
    delivery_rows.delete(tx, account, ended)
    kept = entry_rows.keep_days(tx, account, sorted(events))
    retention.delete_delivered(tx, account, [event for event in kept if event < retention.oldest_kept(tx, kept[event])])


# --- checking


class Recount(NamedTuple):
    """What entries say that they made, and what is there. `old`: entries whose deliveries may be pruned by now."""

    entries: int = 0
    old: int = 0
    said: int = 0
    found: int = 0
    sampled: int = 0
    problem: str = ""

    def plus(self, other: "Recount") -> "Recount":
        return Recount(
            self.entries + other.entries, self.old + other.old, self.said + other.said, self.found + other.found,
            self.sampled + other.sampled, self.problem or other.problem,
        )  # fmt: skip


def recount(store: Reader, account: str, passed: Callable[[int], None] = lambda _entries: None) -> Recount:
    """Count the deliveries of every entry, and match some entries again. `passed` gets the size of each page."""
    total, after = Recount(), LOWEST
    while True:
        last, counted = store.read_now(lambda tx, after=after: recount_page(tx, account, after))  # type: ignore[misc]
        total = total.plus(counted)
        passed(counted.entries)
        if last is None:
            return total
        after = last


def recount_page(tx: Tx, account: str, after: bytes) -> tuple[bytes | None, Recount]:
    """The recount of one page, and where the next one starts; None if there is none."""
    page = entry_rows.matched_page(tx, account, after, _PAGE)
    rows = delivery_rows.count_of_events(tx, account, [raw_id for raw_id, _, _, _ in page])
    whole = {raw_id for raw_id, type_, days, _ in page if _is_whole(tx, raw_id, type_, days)}
    problem = ""
    for raw_id, _, _, matched in page:
        if not problem and (rows[raw_id] > matched or (raw_id in whole and rows[raw_id] < matched)):
            problem = f"entry {ids.text('evt', raw_id)} should have {matched} deliveries, but has {rows[raw_id]}"
    sample = [raw_id for raw_id, _, _, _ in page[:: max(1, len(page) // _SAMPLE)] if raw_id in whole]
    counted = Recount(
        len(page),
        len(page) - len(whole),
        sum(matched for raw_id, _, _, matched in page if raw_id in whole),
        sum(rows[raw_id] for raw_id in whole),
        len(sample),
        problem or _rematch(tx, account, sample),
    )
    return page[-1][0] if len(page) == _PAGE else None, counted


class Missed(NamedTuple):
    """The result for one page: where the next one starts, entries examined, and missing deliveries."""

    next: bytes | None
    entries: int
    deliveries: int


def missing(tx: Tx, account: str, after: bytes) -> Missed:
    """Count missing deliveries only: cheaper than a recount, because entries without deliveries are skipped."""
    page = entry_rows.matched_page(tx, account, after, _PAGE)
    said = {raw_id: count for raw_id, type_, days, count in page if count and _is_whole(tx, raw_id, type_, days)}
    rows = delivery_rows.count_of_events(tx, account, list(said)) if said else {}
    lost = sum(max(0, count - rows[raw_id]) for raw_id, count in said.items())
    return Missed(page[-1][0] if len(page) == _PAGE else None, len(page), lost)


def _is_whole(tx: Tx, raw_id: bytes, type_: str, days: int) -> bool:
    """Whether none of its deliveries can have been deleted yet."""
    return ids.made_at(raw_id) > tx.at - _kept(type_, days)


_SAMPLE = 20  # of a page
_MARGIN = timedelta(minutes=1)  # a subscription that changed so shortly before an entry may or may not have matched it


def _kept(type_: str, days: int) -> timedelta:
    """How long the deliveries of an entry are certainly retained. Those of platform events are kept like the entry."""
    return timedelta(days=RETENTION_DAYS[0] if type_.startswith(RESERVED) else days) - _MARGIN


def _rematch(tx: Tx, account: str, events: list[bytes]) -> str:
    """Match entries again with the subscriptions that have not changed since. Returns a problem, or an empty string."""
    whose = ids.raw(account)
    entries = entry_rows.load_many(tx, ((whose, event) for event in events))
    made = delivery_rows.subscriptions_of_events(tx, account, events)
    known = list(_subscriptions(tx, account)) if entries else []
    for entry in sorted(entries.values(), key=lambda each: each.id):
        if entry.data is None:
            continue
        same = _unchanged(known, clock.from_milliseconds(entry.at))
        right = {each.subscription for each in fan_out(entry, Subscribers(subscribers(same, entry.type)), ids.fresh)}
        found = {ids.raw(each.id) for each in same if (entry.id, ids.raw(each.id)) in made}
        for wrong in sorted(right ^ found):
            was = "did not go" if wrong in right else "went"
            return f"entry {entry.name} {was} to {ids.text('sub', wrong)}, but matching it again gives another result"
    return ""


def _subscriptions(tx: Tx, account: str) -> Iterator[Subscription]:
    """The subscriptions of endpoints that are not removed."""
    after = LOWEST
    while page := subscription_rows.page(tx, account, after, _PAGE):
        for each in page:
            endpoint = endpoint_rows.load(tx, account, each.endpoint)
            if endpoint is not None and endpoint.status != "removed":
                yield each
        after = ids.raw(page[-1].id)


def _unchanged(known: list[Subscription], since: datetime) -> list[Subscription]:
    return [each for each in known if each.updated_at < since - _MARGIN]
