"""Retention of deliveries on every store: each in its time and never an unfinished one; and the recount of them all."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import clock, ids
from gatepost.ledger import entry_rows, seal_rows, sealing, verification
from gatepost.ledger.entries import Entry
from gatepost.ledger.record import append_entry
from gatepost.run import chores
from gatepost.run.app import Runtime
from gatepost.store.interface import Store
from gatepost.store.transaction import HIGHEST, LOWEST, Tx
from gatepost.webhooks import (
    deliveries,
    delivery_rows,
    endpoint_rows,
    pruning,
    queue_rows,
    recount,
    subscription_rows,
    tallies,
)
from gatepost.webhooks.deliveries import Attempt
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.pruning import PrunedSlice
from gatepost.webhooks.subscriptions import Subscription
from tests.contract import make
from tests.contract.backends import Backend, FakeClock

KEY = b"k" * 32
DAY = timedelta(days=1)
ENDPOINT = b"e" * 16


@pytest.fixture
def subscription(store: Store, account: str, watch: FakeClock) -> Subscription:
    """To everything of the platform, made some time before anything happens."""
    made = store.run_now(lambda tx: subscribe(tx, account))
    watch.forward(timedelta(minutes=20))
    return made


def subscribe(tx: Tx, account: str, **members: Any) -> Subscription:
    endpoint = Endpoint(ids.new("ep"), account, "https://receiver.example/hooks", tx.at, tx.at)
    made = Subscription(ids.new("sub"), account, endpoint.id, ["*"], tx.at, tx.at, **members)
    endpoint_rows.add(tx, endpoint)
    subscription_rows.add(tx, made)
    return made


def made_at(at: datetime) -> bytes:
    return clock.milliseconds(at).to_bytes(6, "big") + ids.new_raw()[6:]


def deliver(
    store: Store, subscription: Subscription, at: datetime, *, keep_days: int = 30, count: int = 1, event: bytes = b""
) -> list[bytes]:
    """Unfinished deliveries that were made then."""
    account = ids.raw(subscription.account)

    def unit(tx: Tx) -> list[bytes]:
        made = [
            deliveries.new_delivery(account, made_at(at), ids.raw(subscription.id), ids.raw(subscription.endpoint),
                       event or ids.new_raw(), "invoice.paid", keep_days)
            for _ in range(count)
        ]  # fmt: skip
        tx.now = clock.milliseconds(at)
        delivery_rows.create(tx, made)
        return sorted(each.id for each in made)

    return store.run_now(unit)


def end(store: Store, account: str, raw_ids: list[bytes]) -> None:
    """Each with one attempt, as if a worker had."""
    keys = [(ids.raw(account), each) for each in raw_ids]

    def unit(tx: Tx) -> None:
        queue_rows.end_unclaimed(tx, ((*key, 0) for key in keys))
        now = clock.milliseconds(tx.at)
        delivery_rows.write_statuses(tx, (deliveries.end(*key, "delivered", now, 200, None) for key in keys))
        delivery_rows.add_attempts(tx, (Attempt(*key, 1, "succeeded", "{}") for key in keys))

    store.run_now(unit)


def left(store: Store, account: str) -> list[bytes]:
    return [
        each
        for each, _, _ in store.read_now(lambda tx: delivery_rows.retention_page(tx, account, LOWEST, HIGHEST, 10_000))
    ]


def attempts(store: Store, account: str, raw_ids: list[bytes]) -> int:
    keys = [(ids.raw(account), each) for each in raw_ids]
    return len(store.read_now(lambda tx: delivery_rows.attempts(tx, keys)))


def prune(store: Store, account: str) -> list[PrunedSlice]:
    """One whole run, as the chore makes it."""
    done = [store.run_now(pruning.prune_slice(KEY, account, pruning.START))]
    while (position := done[-1].next) is not None:
        assert len(done) < 100, "it has no end"
        done.append(store.run_now(pruning.prune_slice(KEY, account, position)))
    return done


def seal_all(store: Store, account: str) -> None:
    while store.run_now(lambda tx: sealing.seal_batch(tx, KEY, account)):
        pass


def entries(store: Store, account: str) -> list[Entry]:
    return store.read_now(lambda tx: entry_rows.oldest(tx, account, LOWEST, HIGHEST, 10_000))


# --- what goes


def test_each_goes_when_its_time_is_over_and_not_before(
    store: Store, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    start = watch.at
    made = {days: deliver(store, subscription, start, keep_days=days, count=3) for days in (7, 30, 90, 400)}
    for those in made.values():
        end(store, account, those)
    for days, those in made.items():
        watch.at = start + days * DAY - timedelta(milliseconds=1)
        prune(store, account)
        assert set(those) <= set(left(store, account))
        assert attempts(store, account, those) == 3
        watch.at = start + days * DAY + timedelta(milliseconds=2)
        prune(store, account)
        assert left(store, account) == sorted(
            each for longer, others in made.items() if longer > days for each in others
        )
        assert attempts(store, account, those) == 0


def test_an_unfinished_one_stays_until_it_is_ended_however_old(
    store: Store, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    [unfinished] = deliver(store, subscription, watch.at)
    watch.forward(timedelta(minutes=1))
    later = deliver(store, subscription, watch.at, count=5)
    end(store, account, later)
    watch.forward(3000 * DAY)
    prune(store, account)
    assert left(store, account) == [unfinished]
    key = (ids.raw(account), unfinished)
    assert store.read_now(lambda tx: queue_rows.load_many(tx, [key])).keys() == {key}
    end(store, account, [unfinished])
    prune(store, account)
    assert left(store, account) == []


def test_a_run_goes_on_past_any_number_of_unfinished_ones(
    store: Store, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    """And every run begins before them, for they may have ended since."""
    before = deliver(store, subscription, watch.at, count=10)
    unfinished = deliver(store, subscription, watch.at + timedelta(hours=1), count=450)
    beyond = deliver(store, subscription, watch.at + timedelta(hours=2), count=450)
    end(store, account, before + beyond)
    watch.forward(31 * DAY)
    assert sum(each.deliveries for each in prune(store, account)) == 460
    assert left(store, account) == unfinished
    assert store.read_now(lambda tx: delivery_rows.pruned_up_to(tx, account, 30)) == before[-1]
    end(store, account, unfinished[:300])
    assert sum(each.deliveries for each in prune(store, account)) == 300
    assert left(store, account) == unfinished[300:]


def test_what_was_looked_at_is_not_looked_at_again(
    store: Store, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    made = deliver(store, subscription, watch.at, count=10)
    kept = deliver(store, subscription, watch.at + timedelta(hours=1), keep_days=400, count=10)
    end(store, account, made + kept)
    assert not store.read_now(lambda tx: pruning.is_due(tx, KEY, account))
    watch.forward(31 * DAY)
    assert store.read_now(lambda tx: pruning.is_due(tx, KEY, account))
    prune(store, account)
    assert store.read_now(lambda tx: delivery_rows.pruned_up_to(tx, account, 30)) == kept[-1]
    assert not store.read_now(lambda tx: pruning.is_due(tx, KEY, account))
    assert left(store, account) == kept


def test_pruning_goes_in_slices(store: Store, account: str, subscription: Subscription, watch: FakeClock) -> None:
    end(store, account, deliver(store, subscription, watch.at, count=450))
    watch.forward(31 * DAY)
    assert [each.deliveries for each in prune(store, account) if each.deliveries] == [100, 100, 100, 100, 50]


def test_other_accounts_are_left_alone(
    store: Store, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    other = accounts.new("other", watch())
    store.run_now(lambda tx: account_rows.add(tx, other))
    theirs = store.run_now(lambda tx: subscribe(tx, other.id))
    made = deliver(store, theirs, watch.at)
    end(store, other.id, made)
    watch.forward(31 * DAY)
    prune(store, account)
    assert left(store, other.id) == made


# --- entries


def test_an_entry_outlives_its_unfinished_deliveries(
    store: Store, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    kept, gone = (store.run_now(lambda tx: make.record(tx, account)) for _ in range(2))
    seal_all(store, account)
    waiting, ended = ([each for each in left(store, account) if event_of(store, account, each) == entry.id]
                      for entry in (kept, gone))  # fmt: skip
    end(store, account, ended)
    watch.forward(31 * DAY)
    for _ in range(2):
        prune(store, account)
        assert [entry.id for entry in entries(store, account)] == [kept.id]
        assert left(store, account) == waiting
        assert verification.verify(store, KEY, account).problem == ""
    assert len(store.read_now(lambda tx: seal_rows.page(tx, account, 0, 10))) == 1
    end(store, account, waiting)
    prune(store, account)
    assert (entries(store, account), left(store, account)) == ([], [])
    assert store.read_now(lambda tx: seal_rows.page(tx, account, 0, 10)) == []
    assert verification.verify(store, KEY, account).problem == ""


def event_of(store: Store, account: str, delivery: bytes) -> bytes:
    key = (ids.raw(account), delivery)
    return store.read_now(lambda tx: delivery_rows.load_many(tx, [key]))[key].event


def test_an_entry_passed_over_does_not_wait_for_its_seal(
    store: Store, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    """It is in one seal with entries that are kept for a year longer."""
    entry = store.run_now(lambda tx: make.record(tx, account))
    audit = store.run_now(lambda tx: make.record(tx, account, keep_days=400))
    seal_all(store, account)
    waiting = left(store, account)
    watch.forward(31 * DAY)
    prune(store, account)
    assert {each.id for each in entries(store, account)} == {entry.id, audit.id}
    end(store, account, waiting)
    prune(store, account)
    assert [each.id for each in entries(store, account)] == [audit.id]
    assert verification.verify(store, KEY, account).problem == ""


def test_an_entry_whose_time_is_not_over_stays_when_its_deliveries_go(
    store: Store, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    entry = store.run_now(lambda tx: make.record(tx, account, keep_days=400))
    end(store, account, left(store, account))
    watch.forward(31 * DAY)
    prune(store, account)
    assert left(store, account) == []
    assert [each.id for each in entries(store, account)] == [entry.id]


def test_one_of_two_deliveries_unfinished_is_enough(
    store: Store, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    entry = store.run_now(lambda tx: make.record(tx, account))
    first = left(store, account)
    end(store, account, first)
    [again] = deliver(store, subscription, watch.at + 20 * DAY, event=entry.id)
    watch.forward(31 * DAY)
    prune(store, account)
    assert left(store, account) == [again]
    assert [each.id for each in entries(store, account)] == [entry.id]
    end(store, account, [again])
    watch.forward(20 * DAY)
    prune(store, account)
    assert (entries(store, account), left(store, account)) == ([], [])


# --- the recount


def test_all_is_well_where_nothing_happened_and_where_much_did(
    store: Store, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    assert recount.recount(store, account) == recount.Recount()
    store.run_now(lambda tx: [make.record(tx, account) for _ in range(200)])
    store.run_now(lambda tx: subscribe(tx, account))
    watch.forward(timedelta(minutes=20))
    store.run_now(lambda tx: [make.record(tx, account) for _ in range(400)])
    heard: list[int] = []
    found = recount.recount(store, account, heard.append)
    assert found.problem == ""
    assert (found.entries, found.old, found.recorded, found.existing) == (600, 0, 1000, 1000)
    assert found.sampled >= 20
    assert heard == [500, 100]


def test_deliveries_made_later_do_not_count(store: Store, account: str, subscription: Subscription) -> None:
    entry = store.run_now(lambda tx: make.record(tx, account))

    def unit(tx: Tx) -> None:
        for origin in ("replay", "retry"):
            to = ids.raw(subscription.id), ids.raw(subscription.endpoint)
            made = deliveries.new_delivery(ids.raw(account), ids.new_raw(), *to, entry.id, entry.type, 30, origin)
            delivery_rows.create(tx, [made])

    store.run_now(unit)
    found = recount.recount(store, account)
    assert (found.problem, found.recorded, found.existing) == ("", 1, 1)


def test_a_delivery_that_is_gone_is_missed(
    store: Store, account: str, subscription: Subscription, backend: Backend
) -> None:
    made = store.run_now(lambda tx: [make.record(tx, account) for _ in range(40)])
    backend.execute("DELETE FROM deliveries WHERE event = ?", made[7].id)
    found = recount.recount(store, account)
    assert made[7].name in found.problem
    assert "should have 1 deliveries, but has 0" in found.problem
    assert (found.recorded, found.existing) == (40, 39)


def test_an_unfinished_delivery_without_a_row_in_the_queue_is_a_problem(
    store: Store, account: str, subscription: Subscription, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would send it, and no count of deliveries shows it."""
    monkeypatch.setattr(recount, "_DELIVERIES", 3)
    made = store.run_now(lambda tx: [make.record(tx, account) for _ in range(8)])
    assert recount.recount(store, account).problem == ""
    [delivery] = store.read_now(lambda tx: delivery_rows.of_event(tx, account, made[6].id, 9))
    backend.execute("DELETE FROM queue WHERE id = ?", delivery)
    found = recount.recount(store, account)
    assert (found.recorded, found.existing) == (8, 8)
    name = ids.text("dlv", delivery)
    assert found.problem == f"delivery {name} has not ended, but is not in the queue; it is never sent"
    ended = "status = 'succeeded', ended_at = 1, ended_reason = 'delivered'"
    backend.execute(f"UPDATE deliveries SET {ended} WHERE id = ?", delivery)
    assert recount.recount(store, account).problem == ""


def test_a_forged_delivery_is_detected(store: Store, account: str, subscription: Subscription) -> None:
    entry = store.run_now(lambda tx: make.record(tx, account))
    deliver(store, subscription, ids.made_at(entry.id), event=entry.id)
    assert f"{entry.name} should have 1 deliveries, but has 2" in recount.recount(store, account).problem


def test_matching_again_finds_what_counting_cannot(
    store: Store, account: str, subscription: Subscription, watch: FakeClock, backend: Backend
) -> None:
    """An entry that says that it made none, and has none, though it should have."""
    entry = store.run_now(lambda tx: make.record(tx, account))
    backend.execute("DELETE FROM deliveries WHERE event = ?", entry.id)
    backend.execute("UPDATE entries SET matched = 0 WHERE id = ?", entry.id)
    assert recount.recount(store, account).problem.startswith(f"entry {entry.name} did not go to {subscription.id}")


def test_matching_again_finds_who_should_not_have_got_it(
    store: Store, account: str, watch: FakeClock, backend: Backend
) -> None:
    never = store.run_now(lambda tx: subscribe(tx, account, filter={"/subject": "never"}))
    watch.forward(timedelta(minutes=20))
    entry = store.run_now(lambda tx: make.record(tx, account))
    deliver(store, never, ids.made_at(entry.id), event=entry.id)
    backend.execute("UPDATE entries SET matched = 1 WHERE id = ?", entry.id)
    assert recount.recount(store, account).problem.startswith(f"entry {entry.name} went to {never.id}")


def test_what_changed_since_is_not_held_against_an_entry(
    store: Store, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    store.run_now(lambda tx: make.record(tx, account))
    watch.forward(timedelta(minutes=20))
    disabled = msgspec.structs.replace(subscription, status="disabled", updated_at=watch())
    store.run_now(lambda tx: subscription_rows.update(tx, disabled))
    store.run_now(lambda tx: subscribe(tx, account))
    assert recount.recount(store, account).problem == ""


def test_a_clock_that_was_set_back_is_not_held_against_an_entry(
    store: Store, account: str, watch: FakeClock
) -> None:  # fmt: skip
    """The subscription is newer than the entry, although its time is earlier."""
    store.run_now(lambda tx: make.record(tx, account))
    watch.at -= timedelta(seconds=90)
    store.run_now(lambda tx: subscribe(tx, account))
    assert recount.recount(store, account).problem == ""


def test_what_was_pruned_is_not_missed(
    store: Store, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    """Deliveries of a service's entry go long before it; so do some of other entries when their time is over."""
    wide = msgspec.structs.replace(subscription, events=["account.*", "*"])
    store.run_now(lambda tx: subscription_rows.update(tx, wide))
    watch.forward(timedelta(minutes=20))
    result = store.run_now(lambda tx: append_entry(tx, make.record(tx, account)._replace(
        id=ids.new_raw(), type="account.changed", keep_days=400, matched=0)))  # fmt: skip
    end(store, account, left(store, account))
    watch.forward(31 * DAY)
    prune(store, account)
    assert left(store, account) == []
    assert [each.id for each in entries(store, account)] == [result.entry.id]
    found = recount.recount(store, account)
    assert (found.problem, found.entries, found.old) == ("", 1, 1)


# --- the chores


def opened(store: Store) -> Runtime:
    class Keys:
        seal = KEY

    class Service:
        keys = Keys

    return Runtime(store, Service)  # type: ignore[arg-type]


def test_the_chore_prunes_every_account(
    store: Store, account: str, subscription: Subscription, watch: FakeClock
) -> None:
    other = accounts.new("other", watch())
    store.run_now(lambda tx: account_rows.add(tx, other))
    theirs = store.run_now(lambda tx: subscribe(tx, other.id))
    store.run_now(lambda tx: (make.record(tx, account), make.record(tx, other.id)))
    unfinished = deliver(store, theirs, watch.at)
    for each in (account, other.id):
        end(store, each, [raw_id for raw_id in left(store, each) if raw_id not in unfinished])
    watch.forward(31 * DAY)
    asyncio.run(chores.prune(opened(store)))
    assert (left(store, account), left(store, other.id)) == ([], unfinished)
    assert (entries(store, account), entries(store, other.id)) == ([], [])


def tally_all(tx: Tx, account: str) -> None:
    for number in range(20):
        tallies.add(tx, (ids.raw(account), ENDPOINT), f"ms {number}", count=2)


def test_counts_by_the_minute_become_counts_by_the_hour(
    store: Store, account: str, watch: FakeClock, backend: Backend
) -> None:
    now = clock.now()
    hour = (now - timedelta(hours=5)).replace(minute=0, second=0, microsecond=0)
    for minute in range(60):
        watch.at = hour + timedelta(minutes=minute)
        store.run_now(lambda tx: tally_all(tx, account))
    watch.at = now
    store.run_now(lambda tx: tallies.add(tx, (ids.raw(account), ENDPOINT), "made"))
    asyncio.run(chores.add_logged_counts(opened(store)))
    asyncio.run(chores.roll_up(opened(store)))
    spans = backend.execute("SELECT span, count(*), sum(count) FROM tallies GROUP BY span ORDER BY span")
    assert [(span, rows, int(total)) for span, rows, total in spans] == [(60, 1, 1), (3600, 20, 60 * 20 * 2)]
    start, end_ = clock.seconds(hour), clock.seconds(now) + 1
    result = store.read_now(lambda tx: tallies.load(tx, account, start, end_))
    assert sorted(each for each in result if each[1] != "made") == sorted((start, f"ms {n}", 120) for n in range(20))
    of_endpoints = store.read_now(lambda tx: tallies.load_of_endpoints(tx, account, [ENDPOINT], start, end_))
    assert sorted(of_endpoints[ENDPOINT]) == sorted(result)


def test_counts_are_forgotten_in_the_end(store: Store, account: str, watch: FakeClock, backend: Backend) -> None:
    now = watch.at
    for age in (89 * DAY, 399 * DAY, 402 * DAY):
        watch.at = now - age
        store.run_now(lambda tx: tallies.add(tx, (ids.raw(account), ENDPOINT), "made"))
    watch.at = now
    asyncio.run(chores.add_logged_counts(opened(store)))
    asyncio.run(chores.roll_up(opened(store)))
    hours = [(clock.seconds(now - age) // 3600 * 3600,) for age in (399 * DAY, 89 * DAY)]
    assert backend.execute("SELECT since FROM tallies ORDER BY since") == hours
    assert backend.execute("SELECT since FROM endpoint_tallies") == hours[1:]
