"""A read whose snapshot is older than the drop of a partition on PostgreSQL is repeated, so that it lacks no row."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest

from gatepost.accounts import account_rows
from gatepost.core import ids
from gatepost.core.errors import Unavailable
from gatepost.ledger import search
from gatepost.ledger.operations import Answer
from gatepost.ledger.search import EntryFilter
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx, Unit
from gatepost.webhooks import listing
from gatepost.webhooks.listing import Query
from gatepost.webhooks.listing_query import DeliveryFilter
from gatepost.webhooks.subscriptions import Subscription
from tests.contract.backends import FakeClock
from tests.contract.posting import SERVICE
from tests.contract.test_partitions import DAY, backend, publish, subscription
from tests.contract.test_pruning import deliver

__all__ = ["backend", "subscription"]

T = TypeVar("T")


class DropsMeanwhile:
    """A store in which another process drops partitions when a read has its snapshot, but has read no table."""

    def __init__(self, store: Store, drop: Callable[[], Any]) -> None:
        self._store = store
        self._drop: Callable[[], Any] | None = drop

    def read_now(self, unit: Unit[T]) -> T:
        return self._store.read_now(partial(self._run, unit))

    def _run(self, unit: Unit[T], tx: Tx) -> T:
        drop, self._drop = self._drop, None
        if drop is not None:
            assert drop().dropped
        return unit(tx)


@pytest.fixture
def read(store: Store, other: Store) -> DropsMeanwhile:
    return DropsMeanwhile(store, other.maintain_partitions)


@pytest.mark.parametrize("filters", [DeliveryFilter(), DeliveryFilter(status="pending")], ids=["all", "pending"])
def test_a_listing_has_deliveries_that_are_moved_meanwhile(
    read: DropsMeanwhile, store: Store, account: str, subscription: Subscription, watch: FakeClock,
    filters: DeliveryFilter,
) -> None:  # fmt: skip
    watch.forward(DAY)
    event = publish(store, account, watch)
    [delivery] = deliver(store, subscription, watch.at, event=event)
    watch.forward(32 * DAY)

    def unit(tx: Tx) -> list[Any]:
        owner = account_rows.load(tx, account)
        assert owner is not None
        page = listing.page(tx, SERVICE, owner, Query(filters))
        assert isinstance(page, Answer)
        return list(page.body["data"])

    assert [listed["id"] for listed in read.read_now(unit)] == [ids.text("dlv", delivery)]


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_a_search_has_entries_that_are_moved_meanwhile(
    read: DropsMeanwhile, store: Store, account: str, subscription: Subscription, watch: FakeClock, order: str
) -> None:
    watch.forward(DAY)
    event = publish(store, account, watch)
    deliver(store, subscription, watch.at, event=event)
    watch.forward(32 * DAY)
    wanted = EntryFilter(types=("invoice.paid",))
    matching = search.newest(read, account, wanted, 10) if order == "newest" else search.oldest(read, account, wanted)
    assert [entry.id for entry in matching] == [event]


def test_a_read_that_is_overtaken_by_every_drop_is_refused(
    store: Store, other: Store, account: str, watch: FakeClock
) -> None:
    """The caller gets 503 and can try again."""

    def unit(tx: Tx) -> None:
        watch.forward(DAY)
        assert other.maintain_partitions().dropped
        tx.check_snapshot()

    watch.forward(32 * DAY)
    for _ in range(10):
        other.maintain_partitions()
        watch.forward(DAY)
    watch.forward(31 * DAY - 10 * DAY)
    with pytest.raises(Unavailable, match="a partition was dropped"):
        store.read_now(unit)
