"""Drops of partitions move few rows, go on where the last run stopped, and leave nothing behind that has expired."""

from collections.abc import Mapping
from typing import Any

import psycopg
import pytest

from gatepost.core import ids
from gatepost.ledger import entry_rows, published_ids
from gatepost.store import partition_drops, partitions
from gatepost.store.interface import Store
from gatepost.store.partitions import Database
from gatepost.store.transaction import Tx
from gatepost.webhooks import define_subscription, delivery_rows, operator_actions, pruning, replay, replay_rows
from gatepost.webhooks.deliveries import Attempt
from gatepost.webhooks.subscriptions import Subscription
from tests.contract.backends import FakeClock, Postgres
from tests.contract.posting import Post
from tests.contract.test_partitions import DAY, backend, exists, names, publish, subscription, table_of
from tests.contract.test_pruning import KEY, attempts, deliver, end, prune, seal_all

__all__ = ["backend", "subscription"]


@pytest.fixture
def start(store: Store, account: str, watch: FakeClock) -> FakeClock:
    """A day after the store was made, all of which has partitions."""
    watch.forward(DAY)
    return watch


def maintain(store: Store) -> dict[str, str]:
    return store.maintain_partitions().waiting


def retained(store: Store, account: str, events: list[bytes]) -> list[bool]:
    kept = store.read_now(lambda tx: entry_rows.keep_days(tx, account, events))
    return [event in kept for event in events]


def test_a_run_goes_on_where_the_last_one_stopped(
    store: Store, account: str, subscription: Subscription, watch: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempts of the shorter class are deleted in slices, before its deliveries are dropped."""
    deliver(store, subscription, watch.at, keep_days=7)
    store.maintain_partitions()
    watch.forward(DAY)
    first = watch.at
    short = deliver(store, subscription, watch.at, keep_days=7, count=4)
    end(store, account, short)
    watch.at = first + 8 * DAY
    monkeypatch.setattr(partition_drops, "SLICE", 1)
    monkeypatch.setattr(partition_drops, "MAX_SECONDS", 0.0)
    left = []
    name = f"deliveries_7_{first:%Y%m%d}"
    for _ in range(10):
        if name in store.maintain_partitions().dropped:
            break
        left.append(attempts(store, account, short))
    assert [count for count in left if count < 4] == [3, 2, 1, 0]
    assert exists(store, account, short) == [False] * 4


def test_another_process_starts_from_the_beginning(
    store: Store, other: Store, account: str, subscription: Subscription, watch: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    deliver(store, subscription, watch.at, keep_days=7)
    store.maintain_partitions()
    watch.forward(DAY)
    first = watch.at
    short = deliver(store, subscription, watch.at, keep_days=7, count=4)
    end(store, account, short)
    watch.at = first + 8 * DAY
    with monkeypatch.context() as context:
        context.setattr(partition_drops, "SLICE", 1)
        context.setattr(partition_drops, "MAX_SECONDS", 0.0)
        for _ in range(4):
            store.maintain_partitions()
    assert f"deliveries_7_{first:%Y%m%d}" in other.maintain_partitions().dropped
    assert f"deliveries_7_{first:%Y%m%d}" not in store.maintain_partitions().waiting
    assert attempts(store, account, short) == 0


def test_a_partition_with_many_unfinished_deliveries_is_dropped_later(
    store: Store, backend: Postgres, account: str, subscription: Subscription, start: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its other rows are deleted in slices meanwhile."""
    monkeypatch.setattr(partition_drops, "MAX_MOVED", 2)
    monkeypatch.setattr(partition_drops, "SLICE", 3)
    event, gone = publish(store, account, start, name=b"kept"), publish(store, account, start, name=b"gone")
    seal_all(store, account)
    unfinished = deliver(store, subscription, start.at, count=5, event=event)
    ended = deliver(store, subscription, start.at, count=5, event=gone)
    end(store, account, ended)
    day = f"{start.at:%Y%m%d}"
    start.forward(32 * DAY)
    for _ in range(2):
        waiting = maintain(store)
    assert "too many of its rows must stay" in waiting[f"deliveries_30_{day}"]
    assert waiting[f"attempts_30_{day}"] == f"deliveries_30_{day} is dropped first"
    assert exists(store, account, unfinished + ended) == [True] * 5 + [False] * 5
    assert attempts(store, account, ended) == 0
    end(store, account, unfinished[:3])
    for _ in range(2):
        maintain(store)
    assert not {f"{table}_30_{day}" for table in ("deliveries", "attempts", "entries")} & names(backend)
    prune(store, account)
    assert exists(store, account, unfinished) == [False] * 3 + [True] * 2
    assert store.read_now(lambda tx: entry_rows.load(tx, account, event)) is not None
    assert store.read_now(lambda tx: published_ids.load(tx, account, b"kept")) is not None
    assert store.read_now(lambda tx: published_ids.load(tx, account, b"gone")) is None
    end(store, account, unfinished[3:])
    prune(store, account)
    for table in ("deliveries", "attempts"):
        assert backend.execute(f"SELECT count(*) FROM {table}") == [(0,)]
    assert store.read_now(lambda tx: published_ids.load(tx, account, b"kept")) is None


def test_many_events_with_unfinished_deliveries(
    store: Store, backend: Postgres, account: str, subscription: Subscription, start: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(partition_drops, "MAX_MOVED", 2)
    events = [publish(store, account, start) for _ in range(5)]
    day = f"{start.at:%Y%m%d}"
    start.forward(3 * DAY)
    store.maintain_partitions()
    later = [deliver(store, subscription, start.at, event=event)[0] for event in events[:3]]
    start.forward(29 * DAY)
    for _ in range(2):
        waiting = maintain(store)
    assert "too many of its rows must stay" in waiting[f"entries_30_{day}"]
    assert backend.execute("SELECT id FROM entries WHERE type = 'invoice.paid' ORDER BY id") == [
        (event,) for event in sorted(events[:3])
    ]
    end(store, account, later)
    maintain(store)
    assert f"entries_30_{day}" not in names(backend)


def test_many_attempts_of_an_unfinished_delivery_are_not_moved_at_once(
    store: Store, backend: Postgres, account: str, subscription: Subscription, start: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(partition_drops, "MAX_MOVED", 2)
    [unfinished] = deliver(store, subscription, start.at)
    key = (ids.raw(account), unfinished)
    tried = [Attempt(*key, number, "failed", "{}") for number in (1, 2, 3)]
    store.run_now(lambda tx: delivery_rows.add_attempts(tx, tried))
    day = f"{start.at:%Y%m%d}"
    start.forward(32 * DAY)
    for _ in range(2):
        waiting = maintain(store)
    assert "too many of its rows must stay" in waiting[f"attempts_30_{day}"]
    assert len(store.read_now(lambda tx: delivery_rows.attempts(tx, [key]))[key]) == 3
    end(store, account, [unfinished])
    prune(store, account)
    maintain(store)
    assert f"attempts_30_{day}" not in names(backend)
    assert backend.execute("SELECT count(*) FROM attempts") == [(0,)]


def test_large_events_are_not_moved_at_once(
    store: Store, backend: Postgres, account: str, subscription: Subscription, start: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The partition is dropped when few bytes have to stay."""
    monkeypatch.setattr(partition_drops, "MAX_BYTES", len("{}") + 1)  # one event, with the length that is stored
    events = [publish(store, account, start) for _ in range(3)]
    seal_all(store, account)
    day = f"{start.at:%Y%m%d}"
    start.forward(3 * DAY)
    store.maintain_partitions()
    later = [deliver(store, subscription, start.at, event=event)[0] for event in events[:2]]
    start.forward(29 * DAY)
    for _ in range(2):
        waiting = maintain(store)
    assert "too many of its rows must stay" in waiting[f"entries_30_{day}"]
    assert retained(store, account, events) == [True, True, False]
    end(store, account, later[:1])
    for _ in range(2):
        maintain(store)
    assert f"entries_30_{day}" not in names(backend)
    assert table_of(backend, "entries", events[1]) == "entries_30_rest"


def test_large_attempts_of_a_longer_class_are_not_moved_at_once(
    store: Store, backend: Postgres, account: str, subscription: Subscription, start: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Their partition is kept for as long as they are."""
    monkeypatch.setattr(partition_drops, "MAX_BYTES", 1)
    day = f"{start.at:%Y%m%d}"
    made = deliver(store, subscription, start.at, keep_days=90) + deliver(store, subscription, start.at)
    end(store, account, made)
    start.forward(32 * DAY)
    store.maintain_partitions()
    assert f"attempts_90_{day}" in names(backend)


def test_a_drop_that_took_too_long_moves_half_as_many_rows(
    store: Store, backend: Postgres, account: str, subscription: Subscription, start: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(partition_drops, "MAX_MOVED", 3)
    unfinished = deliver(store, subscription, start.at, count=3)
    ended = deliver(store, subscription, start.at)
    end(store, account, ended)
    name = f"deliveries_30_{start.at:%Y%m%d}"
    start.forward(32 * DAY)

    def cancel(*_: object) -> None:
        raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")

    with monkeypatch.context() as context:
        context.setattr(partition_drops, "_move_and_drop", cancel)
        assert "statement timeout" in maintain(store)[name]
    assert "too many of its rows must stay" in maintain(store)[name]
    assert exists(store, account, unfinished + ended) == [True] * 3 + [False]
    end(store, account, unfinished[:2])
    maintain(store)
    assert name not in names(backend)
    assert exists(store, account, unfinished) == [False, False, True]


def test_nothing_is_deleted_before_a_drop_that_has_to_wait(
    store: Store, backend: Postgres, account: str, start: FakeClock
) -> None:
    """As long as an event is retained, its id is not accepted for another one."""
    event = publish(store, account, start, name=b"order-1")
    name = f"entries_30_{start.at:%Y%m%d}"
    start.forward(32 * DAY)
    with psycopg.connect(backend.url) as reader:
        reader.execute("SELECT count(*) FROM entries")
        assert "lock timeout" in maintain(store)[name]
    assert store.read_now(lambda tx: published_ids.load(tx, account, b"order-1")) == (event, b"")
    maintain(store)
    assert name not in names(backend)
    assert store.read_now(lambda tx: published_ids.load(tx, account, b"order-1")) is None


def test_a_delivery_that_ends_between_its_slice_and_the_drop_leaves_no_attempts(
    store: Store, backend: Postgres, account: str, subscription: Subscription, watch: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    deliver(store, subscription, watch.at, keep_days=7)
    store.maintain_partitions()
    watch.forward(DAY)
    first = watch.at
    unfinished = deliver(store, subscription, watch.at, keep_days=7)
    watch.at = first + 8 * DAY
    with monkeypatch.context() as context:  # the run ends after this slice
        context.setattr(partition_drops, "SLICE", 1)
        context.setattr(partition_drops, "MAX_SECONDS", 0.0)
        store.maintain_partitions()
    end(store, account, unfinished)
    assert f"deliveries_7_{first:%Y%m%d}" in store.maintain_partitions().dropped
    prune(store, account)
    assert exists(store, account, unfinished) == [False]
    assert backend.execute("SELECT count(*) FROM attempts WHERE delivery = ?", unfinished[0]) == [(0,)]


# --- beside replays


def is_locked(backend: Postgres, event: bytes) -> bool:
    """Whether another transaction would have to wait before it can delete the event."""
    with psycopg.connect(backend.url) as another:
        try:
            another.execute("SELECT 1 FROM entries WHERE id = %s FOR UPDATE NOWAIT", [event])
        except psycopg.errors.LockNotAvailable:
            return True
    return False


def test_a_replay_locks_its_events(store: Store, backend: Postgres, watch: FakeClock) -> None:
    post = Post(store, watch)
    subscription = post.subscription(post.endpoint(), "*")
    event = post.publish("invoice.paid").entry
    post.forward(minutes=1)
    post.define(define_subscription.define, {"id": subscription.id, "replay": {"event_ids": [event.name]}})
    [(account, job)] = store.read_now(replay_rows.running)

    def unit(tx: Tx) -> bool:
        replay.run_slice(tx, account, job)
        return is_locked(backend, event.id)

    assert store.run_now(unit)
    assert not is_locked(backend, event.id)


def test_a_retry_of_an_operator_locks_its_event(store: Store, backend: Postgres, watch: FakeClock) -> None:
    post = Post(store, watch, retry_schedule=[])
    post.endpoint("*")
    published = post.publish()
    post.attempt(500)

    def unit(tx: Tx) -> bool:
        operator_actions.retry(tx, post.account(tx), published.deliveries[0])
        return is_locked(backend, published.entry.id)

    assert store.run_now(unit)


def test_pruning_keeps_an_event_that_is_replayed_meanwhile(
    store: Store, other: Store, account: str, subscription: Subscription, watch: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The replay commits after pruning looked for unfinished deliveries."""
    event = publish(store, account, watch, days=90)
    seal_all(store, account)
    watch.forward(91 * DAY)
    undelivered = entry_rows.undelivered
    made: list[bytes] = []

    def look(tx: Tx, account: str, entries: list[bytes]) -> set[bytes]:
        unfinished = undelivered(tx, account, entries)
        if event in entries and not made:
            made.extend(deliver(other, subscription, watch.at, event=event))
        return unfinished

    monkeypatch.setattr(entry_rows, "undelivered", look)
    prune(store, account)
    assert made
    assert retained(store, account, [event]) == [True]
    end(store, account, made)
    prune(store, account)
    assert retained(store, account, [event]) == [False]


def test_a_slice_keeps_an_event_that_is_replayed_meanwhile(
    store: Store, backend: Postgres, account: str, subscription: Subscription, start: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The replay, which had locked the event, commits while the statement of the slice waits for it."""
    monkeypatch.setattr(partition_drops, "MAX_MOVED", 1)
    events = [publish(store, account, start, name=b"%d" % number) for number in range(4)]
    seal_all(store, account)
    name = f"entries_30_{start.at:%Y%m%d}"
    start.forward(3 * DAY)
    store.maintain_partitions()
    for event in events[:2]:
        deliver(store, subscription, start.at, event=event)
    start.forward(29 * DAY)
    assert "too many of its rows must stay" in maintain(store)[name]
    run = partitions.run
    replayed: list[bytes] = []

    def beside(database: Database, text: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        rows = run(database, text, parameters)
        if f"DELETE FROM {name}" in text and not replayed:
            replayed.extend(deliver(store, subscription, start.at, event=events[2]))
        return rows

    monkeypatch.setattr(partition_drops, "run", beside)
    assert maintain(store)[name] == "deliveries of its events were created just now"
    assert retained(store, account, events) == [True] * 4
    maintain(store)
    assert retained(store, account, events) == [True, True, True, False]
    assert store.read_now(lambda tx: published_ids.load(tx, account, b"2")) is not None
    assert store.read_now(lambda tx: published_ids.load(tx, account, b"3")) is None


# --- rows that were moved


def test_an_event_does_not_outlive_the_delivery_that_kept_it(
    store: Store, backend: Postgres, account: str, subscription: Subscription, start: FakeClock
) -> None:
    """A replay made the delivery later, so it is dropped with its partition, and not deleted by row."""
    event = publish(store, account, start, name=b"order-1")
    publish(store, account, start, days=400)  # in the same seal, which stays
    seal_all(store, account)
    start.forward(25 * DAY)
    store.maintain_partitions()
    [replayed] = deliver(store, subscription, start.at, event=event)
    assert table_of(backend, "deliveries", replayed).startswith("deliveries_30_2")
    start.forward(7 * DAY)
    store.maintain_partitions()
    prune(store, account)
    assert table_of(backend, "entries", event) == "entries_30_rest"
    end(store, account, [replayed])
    start.forward(30 * DAY)
    store.maintain_partitions()
    prune(store, account)
    assert exists(store, account, [replayed]) == [False]
    assert store.read_now(lambda tx: entry_rows.load(tx, account, event)) is None
    assert store.read_now(lambda tx: published_ids.load(tx, account, b"order-1")) is None


def test_a_run_of_pruning_does_not_pass_rows_that_are_moved_meanwhile(
    store: Store, backend: Postgres, account: str, subscription: Subscription, start: FakeClock
) -> None:
    """They are moved to a place before the position of the run."""
    [unfinished] = deliver(store, subscription, start.at)
    start.forward(4 * DAY)
    by_row = deliver(store, subscription, start.at, count=150)
    assert table_of(backend, "deliveries", by_row[0]) == "deliveries_30_rest"
    end(store, account, by_row)
    start.forward(32 * DAY)
    position = pruning.START
    while store.read_now(lambda tx: delivery_rows.pruned_up_to(tx, account, 30)) < by_row[0]:
        following = store.run_now(pruning.prune_slice(KEY, account, position)).next
        assert following is not None
        position = following
    store.maintain_partitions()
    assert table_of(backend, "deliveries", unfinished) == "deliveries_30_rest"
    run = store.run_now(pruning.prune_slice(KEY, account, position))
    while run.next is not None:
        run = store.run_now(pruning.prune_slice(KEY, account, run.next))
    end(store, account, [unfinished])
    prune(store, account)
    assert exists(store, account, [unfinished, *by_row]) == [False] * 151
