"""The check that every entry has the deliveries that it created, and that each can be sent. It works in pages."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from gatepost.accounts import RETENTION_DAYS
from gatepost.core import clock, ids
from gatepost.ledger import entry_rows
from gatepost.ledger.entries import RESERVED
from gatepost.ledger.search import CLOCK_TOLERANCE
from gatepost.store.interface import Reader
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import delivery_rows, endpoint_rows, subscription_rows
from gatepost.webhooks.fanout import Subscribers, fan_out, subscribers
from gatepost.webhooks.subscriptions import Subscription

_PAGE = 500
_DELIVERIES = 5000  # on a page: less is read of each than of an entry
_SAMPLE = 20  # entries of a page that are matched again


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
    """Count the deliveries of every entry, match a sample again, and look for deliveries that would never be sent.

    `on_page` receives the number of entries of each page.
    """
    total = Recount()
    after: bytes | None = LOWEST
    while after is not None:
        after, counted = store.read_now(partial(_recount_page, account=account, after=after))
        total = total.plus(counted)
        on_page(counted.entries)
    return total if total.problem else total._replace(problem=_find_unqueued(store, account))


def _find_unqueued(store: Reader, account: str) -> str:
    """Look for a delivery that has not ended and has no row in the queue. Returns a problem, or an empty string."""
    after: bytes | None = LOWEST
    while after is not None:
        after, unqueued = store.read_now(partial(_unqueued_page, account=account, after=after))
        if unqueued:
            return f"delivery {ids.text('dlv', unqueued[0])} has not ended, but is not in the queue; it is never sent"
    return ""


def _unqueued_page(tx: Tx, account: str, after: bytes) -> tuple[bytes | None, list[bytes]]:
    """Where the next page starts, None if this was the last; and the deliveries that have no row in the queue."""
    page = delivery_rows.queue_page(tx, account, after, _DELIVERIES)
    tx.check_snapshot()
    last = page[-1][0] if len(page) == _DELIVERIES else None
    return last, [raw_id for raw_id, is_unqueued in page if is_unqueued]


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
