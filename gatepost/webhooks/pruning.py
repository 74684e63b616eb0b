"""Retention of deliveries, and the check that every entry has the deliveries that it created. Both work in slices."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from gatepost.accounts import RETENTION_DAYS
from gatepost.core import clock, ids
from gatepost.ledger import entry_rows, retention
from gatepost.ledger.entries import RESERVED
from gatepost.ledger.retention import PruningPosition
from gatepost.ledger.search import CLOCK_TOLERANCE
from gatepost.store.interface import Reader
from gatepost.store.transaction import LOWEST, Tx, Unit
from gatepost.webhooks import delivery_rows, endpoint_rows, subscription_rows
from gatepost.webhooks.fanout import Subscribers, fan_out, subscribers
from gatepost.webhooks.subscriptions import Subscription

_SLICE = 100  # deliveries with their attempts: a commit of a few milliseconds
_PAGE = 500
_SAMPLE = 20  # entries of a page that are matched again


# --- retention


START = PruningPosition("deliveries")


class PrunedSlice(NamedTuple):
    """The result of a slice: deliveries deleted, entries examined, and the next position; None at the end."""

    deliveries: int
    entries: int
    next: PruningPosition | None


def is_due(tx: Tx, key: bytes, account: str) -> bool:
    """Whether there is anything to delete."""
    marks = ((days, delivery_rows.pruned_up_to(tx, account, days)) for days in RETENTION_DAYS)
    return retention.is_due(tx, key, account) or any(_due(tx, account, *mark, 1) for mark in marks)


def prune_slice(key: bytes, account: str, position: PruningPosition) -> Unit[PrunedSlice]:
    """Return the unit that prunes one slice of an account."""

    def unit(tx: Tx) -> PrunedSlice:
        if position.rows == "deliveries":
            return _prune_deliveries(tx, account, position)
        return PrunedSlice(0, *retention.prune_batch(tx, key, account, position))

    return unit


def _prune_deliveries(tx: Tx, account: str, position: PruningPosition) -> PrunedSlice:
    """Delete a slice of the deliveries whose retention has ended, but never an unfinished one."""
    mark = delivery_rows.pruned_up_to(tx, account, position.days)
    page = _due(tx, account, position.days, position.after or mark, _SLICE)
    own = [(raw_id, status) for raw_id, keep_days, status in page if keep_days == position.days]
    ended = [raw_id for raw_id, status in own if status != "pending"]
    unfinished = next((raw_id for raw_id, status in own if status == "pending"), None)
    _delete(tx, account, ended)
    examined = [raw_id for raw_id, _, _ in page]
    passed = [raw_id for raw_id in examined if unfinished is None or raw_id < unfinished]
    if passed and not position.after:
        delivery_rows.set_pruned_up_to(tx, account, position.days, mark, passed[-1])
    following = position.following(examined, full=len(page) == _SLICE, unfinished=unfinished is not None)
    return PrunedSlice(len(ended), 0, following or retention.START)


def _due(tx: Tx, account: str, days: int, after: bytes, limit: int) -> list[tuple[bytes, int, str]]:
    return delivery_rows.retention_page(tx, account, after, retention.oldest_kept(tx, days), limit)


def _delete(tx: Tx, account: str, ended: list[bytes]) -> None:
    """Delete deliveries, and their entries if they have no other deliveries and their own retention has ended."""
    raw_account = ids.raw(account)
    deleted = delivery_rows.load_many(tx, ((raw_account, raw_id) for raw_id in ended))
    delivery_rows.delete(tx, account, ended)
    kept = entry_rows.keep_days(tx, account, sorted({delivery.event for delivery in deleted.values()}))
    retention.delete_delivered(tx, account, [event for event in kept if event < retention.oldest_kept(tx, kept[event])])


# --- checking


class Recount(NamedTuple):
    """The deliveries that entries record, compared with those that exist.

    The deliveries of `old` entries may have been pruned. They are in neither `recorded` nor `existing`.
    """

    entries: int = 0
    old: int = 0
    recorded: int = 0
    existing: int = 0
    sampled: int = 0
    problem: str = ""

    def plus(self, other: "Recount") -> "Recount":
        return Recount(
            self.entries + other.entries, self.old + other.old, self.recorded + other.recorded,
            self.existing + other.existing, self.sampled + other.sampled, self.problem or other.problem,
        )  # fmt: skip


def recount(store: Reader, account: str, on_page: Callable[[int], None] = lambda _entries: None) -> Recount:
    """Count the deliveries of every entry, and match a sample again. `on_page` receives the size of each page."""
    total = Recount()
    after: bytes | None = LOWEST
    while after is not None:
        after, counted = store.read_now(partial(_recount_page, account=account, after=after))
        total = total.plus(counted)
        on_page(counted.entries)
    return total


def _recount_page(tx: Tx, account: str, after: bytes) -> tuple[bytes | None, Recount]:
    """Recount one page. Returns also where the next one starts; None if this was the last."""
    page = entry_rows.matched_page(tx, account, after, _PAGE)
    counts = delivery_rows.count_of_events(tx, account, [raw_id for raw_id, _, _, _ in page])
    complete = {raw_id: matched for raw_id, type_, days, matched in page if _is_complete(tx, raw_id, type_, days)}
    problems = (
        f"entry {ids.text('evt', raw_id)} should have {matched} deliveries, but has {counts[raw_id]}"
        for raw_id, _, _, matched in page
        if not complete.get(raw_id, 0) <= counts[raw_id] <= matched
    )
    sample = [raw_id for raw_id, _, _, _ in page[:: max(1, len(page) // _SAMPLE)] if raw_id in complete]
    problem = next(problems, "") or _rematch(tx, account, sample)
    existing = sum(counts[raw_id] for raw_id in complete)
    old = len(page) - len(complete)
    counted = Recount(len(page), old, sum(complete.values()), existing, len(sample), problem)
    return page[-1][0] if len(page) == _PAGE else None, counted


class MissingDeliveries(NamedTuple):
    """The result for one page: where the next one starts, entries examined, and missing deliveries."""

    next: bytes | None
    entries: int
    deliveries: int


def count_missing(tx: Tx, account: str, after: bytes) -> MissingDeliveries:
    """Count the missing deliveries of one page. Cheaper than a recount: it skips entries without deliveries."""
    page = entry_rows.matched_page(tx, account, after, _PAGE)
    recorded = {raw_id: count for raw_id, type_, days, count in page if count and _is_complete(tx, raw_id, type_, days)}
    counts = delivery_rows.count_of_events(tx, account, list(recorded)) if recorded else {}
    missing = sum(max(0, count - counts[raw_id]) for raw_id, count in recorded.items())
    return MissingDeliveries(page[-1][0] if len(page) == _PAGE else None, len(page), missing)


def _is_complete(tx: Tx, raw_id: bytes, type_: str, days: int) -> bool:
    """Whether no delivery of the entry can have been pruned yet.

    Deliveries of platform events are kept as long as the entry, those of Gatepost's own events possibly shorter.
    """
    kept = timedelta(days=RETENTION_DAYS[0] if type_.startswith(RESERVED) else days)
    return ids.made_at(raw_id) > tx.at - kept + CLOCK_TOLERANCE


def _rematch(tx: Tx, account: str, events: list[bytes]) -> str:
    """Match entries again with the subscriptions that have not changed since. Returns a problem, or an empty string.

    A subscription that changed shortly before an entry may not have matched it, if a clock was set back meanwhile.
    """
    raw_account = ids.raw(account)
    entries = entry_rows.load_many(tx, ((raw_account, event) for event in events))
    delivered = delivery_rows.subscriptions_of_events(tx, account, events)
    existing = list(_subscriptions(tx, account)) if entries else []
    for entry in sorted(entries.values(), key=lambda entry: entry.id):
        if entry.data is None:
            continue
        before = clock.from_milliseconds(entry.at) - CLOCK_TOLERANCE
        unchanged = [subscription for subscription in existing if subscription.updated_at < before]
        created = fan_out(entry, Subscribers(subscribers(unchanged, entry.type)), ids.new_raw)
        expected = {delivery.subscription for delivery in created}
        actual = {raw for raw in (ids.raw(each.id) for each in unchanged) if (entry.id, raw) in delivered}
        for wrong in sorted(expected ^ actual):
            verb = "did not go" if wrong in expected else "went"
            return f"entry {entry.name} {verb} to {ids.text('sub', wrong)}, but matching it again gives another result"
    return ""


def _subscriptions(tx: Tx, account: str) -> Iterator[Subscription]:
    """The subscriptions of endpoints that are not removed."""
    after = LOWEST
    while page := subscription_rows.page(tx, account, after, _PAGE):
        for subscription in page:
            endpoint = endpoint_rows.load(tx, account, subscription.endpoint)
            if endpoint is not None and endpoint.status != "removed":
                yield subscription
        after = ids.raw(page[-1].id)
