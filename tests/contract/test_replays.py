"""Fan-out and replays, on every store: who gets an event when it is recorded, and who gets it again."""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from gatepost.core import clock, ids
from gatepost.ledger.entries import Origin
from gatepost.oauth import account_admin
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx
from gatepost.webhooks import (
    define_endpoint,
    define_subscription,
    endpoint_rows,
    publish,
    replay,
    replay_rows,
    subscription_rows,
    worker_chores,
)
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.subscriptions import Subscription
from tests.contract import make, parallel
from tests.contract.backends import Backend, FakeClock
from tests.contract.posting import URL, Post, event, ids_by


@pytest.fixture
def post(store: Store, watch: FakeClock) -> Iterator[Post]:
    undo = ids_by(watch)
    yield Post(store, watch, retry_schedule=[])
    undo()


def subscribe(tx: Tx, post: Post, **members: Any) -> Subscription:
    endpoint = Endpoint(ids.new("ep"), post.id, URL, tx.at, tx.at)
    made = Subscription(ids.new("sub"), post.id, endpoint.id, ["*"], tx.at, tx.at, **members)
    endpoint_rows.add(tx, endpoint)
    subscription_rows.add(tx, made)
    return made


def publishing(post: Post) -> Callable[[Tx], Any]:
    return lambda tx: publish.publish_event(tx, post.account(tx), event(), Origin("test"))


def made_by(backend: Backend, origin: str = "event") -> list[bytes]:
    """The events of all deliveries of this origin, in the order of their making."""
    return [row[0] for row in backend.execute("SELECT event FROM deliveries WHERE origin = ? ORDER BY id", origin)]


# --- fan-out


@pytest.mark.parametrize(("status", "matched"), [("active", 1), ("disabled", 0)])
def test_a_subscription_counts_in_the_unit_that_defines_it(post: Post, status: str, matched: int) -> None:
    assert post.publish().entry.matched == 0

    def unit(tx: Tx) -> Any:
        subscribe(tx, post, status=status)
        return publishing(post)(tx)

    assert post.store.run_now(unit).entry.matched == matched


def test_a_subscription_counts_once_it_was_answered_anywhere(post: Post, other: Store) -> None:
    assert post.publish().entry.matched == 0
    made = other.run_now(lambda tx: subscribe(tx, post))
    assert post.publish().entry.matched == 1
    post.define(define_subscription.define, {"id": made.id, "status": "disabled"}, other)
    assert post.publish().entry.matched == 0
    post.define(define_subscription.define, {"id": made.id, "status": "active"}, other)
    assert post.publish().entry.matched == 1
    post.define(define_endpoint.define, {"id": made.endpoint, "status": "disabled"}, other)
    assert post.publish().entry.matched == 1, "held"
    post.define(define_endpoint.define, {"id": made.endpoint, "status": "removed"}, other)
    assert post.publish().entry.matched == 0


def test_a_suspended_accounts_events_are_fanned_out_and_held(post: Post) -> None:
    post.endpoint("*")
    post.store.run_now(lambda tx: account_admin.suspend(tx, post.name, ""))
    assert (post.publish().entry.matched, post.claim()) == (1, [])
    post.store.run_now(lambda tx: account_admin.resume(tx, post.name))
    assert len(post.claim()) == 1


def test_an_event_may_match_more_than_one_commit_usually_holds(post: Post, backend: Backend) -> None:
    endpoints = [post.endpoint() for _ in range(4)]

    def unit(tx: Tx) -> None:
        for number in range(620):
            name = endpoints[number % 4].id
            subscription_rows.add(tx, Subscription(ids.new("sub"), post.id, name, ["*"], tx.at, tx.at))

    post.store.run_now(unit)
    outcomes = parallel.run_in_one_batch(post.store, [publishing(post)] * 3)
    assert parallel.failures(outcomes) == []
    assert [(each.entry.matched, len(set(each.deliveries))) for each in outcomes] == [(620, 620)] * 3
    assert backend.execute("SELECT count(*), count(DISTINCT subscription) FROM deliveries") == [(1860, 620)]
    assert backend.execute("SELECT count(*) FROM queue") == [(1860,)]
    assert post.tallied() == {"made": 1860}


def test_an_event_of_one_account_is_not_for_another(post: Post, watch: FakeClock, backend: Backend) -> None:
    stranger = Post(post.store, watch, "stranger")
    stranger.endpoint("*")
    post.endpoint("*")
    post.publish()
    assert backend.execute("SELECT account FROM deliveries") == [(ids.raw(post.id),)]


# --- replays


def start(post: Post, subscription: Subscription, **asked: Any) -> None:
    post.define(define_subscription.define, {"id": subscription.id, "replay": asked})


def progress(post: Post, subscription: Subscription) -> dict[str, Any]:
    found: dict[str, Any] = post.define(define_subscription.define, {"id": subscription.id})["replay"]
    return found


def at(post: Post, **ago: float) -> str:
    return clock.rfc3339(post.watch() - timedelta(**ago))


def test_a_replay_goes_in_slices_and_has_no_cap(post: Post, other: Store, backend: Backend) -> None:
    post.deliver(450)
    before = [row[0] for row in backend.execute("SELECT id FROM entries ORDER BY id")]
    subscription = post.subscription(post.endpoint(), "invoice.*")
    post.forward(minutes=1)
    start(post, subscription, **{"from": at(post, hours=1)})
    [(account, job)] = post.store.read_now(replay_rows.running)
    seen = []
    for store in (post.store, other, post.store):
        more = store.run_now(lambda tx: replay.run_slice(tx, account, job))
        shown = progress(post, subscription)
        seen.append((more, shown["examined"], shown["made"], shown["state"]))
    assert seen[:2] == [(True, 200, 200, "running"), (True, 400, 400, "running")]
    assert (seen[2][0], seen[2][2:]) == (False, (450, "ended"))
    assert made_by(backend, "replay") == before
    assert post.store.read_now(replay_rows.running) == []
    assert not post.store.run_now(lambda tx: replay.run_slice(tx, account, job)), "it does not begin again"
    assert len(made_by(backend, "replay")) == post.tallied()["made"] == 450
    [result] = post.entry_data("webhook.replay.ended")
    assert (result["subscription"], result["made"]) == (subscription.id, 450)
    assert len(post.claim()) == 450


def test_a_replay_does_not_wait_for_the_end_of_a_longer_one(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    post.deliver(850)
    long, short = (post.subscription(post.endpoint(), "*") for _ in range(2))
    post.forward(minutes=1)
    start(post, long, **{"from": at(post, hours=1)})
    run_slice, order = replay.run_slice, []

    def sliced(tx: Tx, account: str, job: str) -> bool:
        order.append(job)
        return run_slice(tx, account, job)

    def read_running(tx: Tx) -> list[tuple[str, str]]:
        if len(order) == 1:  # requested while the first one runs
            start(post, short, **{"from": at(post, seconds=1)})
        return running(tx)

    running = replay_rows.running
    monkeypatch.setattr(replay, "run_slice", sliced)
    monkeypatch.setattr(replay_rows, "running", read_running)
    asyncio.run(worker_chores.run_replays(post.store))
    assert len(set(order)) == 2
    assert max(order) in order[: len(order) - order[::-1].index(min(order))], "before the last slice of the first one"
    assert progress(post, long)["made"] == 850


@pytest.mark.parametrize("replays", [2, 12])
def test_an_account_has_a_turn_after_each_slice_of_another(
    post: Post, watch: FakeClock, monkeypatch: pytest.MonkeyPatch, replays: int
) -> None:
    stranger = Post(post.store, watch, "stranger")
    by_account = {post: replays, stranger: 1}
    for one, count in by_account.items():
        one.deliver(250)
        subscriptions = [one.subscription(one.endpoint(), "*") for _ in range(count)]
        one.forward(minutes=1)
        for each in subscriptions:
            start(one, each, **{"from": at(one, hours=1)})
    run_slice, order = replay.run_slice, []

    def sliced(tx: Tx, account: str, job: str) -> bool:
        order.append(account)
        return run_slice(tx, account, job)

    monkeypatch.setattr(replay, "run_slice", sliced)
    asyncio.run(worker_chores.run_replays(post.store))
    assert {order[0], order[1]} == {order[2], order[3]} == {post.id, stranger.id}
    assert order.count(post.id) == 2 * replays
    assert post.store.read_now(replay_rows.running) == []


def test_two_workers_at_one_replay_send_nothing_twice(post: Post, other: Store, backend: Backend) -> None:
    post.deliver(700)
    subscription = post.subscription(post.endpoint(), "*")
    start(post, subscription, **{"from": at(post, hours=1)})
    [(account, job)] = post.store.read_now(replay_rows.running)
    for _ in range(10):
        outcomes = parallel.run([post.store, other], [lambda tx: replay.run_slice(tx, account, job)] * 4)
        assert parallel.failures(outcomes) == []
    assert progress(post, subscription)["state"] == "ended"
    replayed = made_by(backend, "replay")
    assert len(replayed) == len(set(replayed)) == progress(post, subscription)["made"] == 700
    assert len(post.entries("webhook.replay.ended")) == 1


def test_from_and_until(post: Post, backend: Backend) -> None:
    made = []
    for _ in range(5):
        made.append(post.publish().entry.id)
        post.forward(minutes=1)
    subscription = post.subscription(post.endpoint(), "*")
    start(post, subscription, **{"from": at(post, minutes=4), "until": at(post, minutes=2)})
    post.replay()
    assert made_by(backend, "replay") == made[1:4], "both ends belong to it"


@pytest.mark.parametrize("asked", [{"until": "2100-01-01T00:00:00Z"}, {"from": "1969-12-31T00:00:00Z"}])
def test_any_time_can_be_asked_for(post: Post, backend: Backend, asked: dict[str, str]) -> None:
    made = [post.publish().entry.id for _ in range(2)]
    subscription = post.subscription(post.endpoint(), "*")
    start(post, subscription, **asked)
    post.replay()
    assert made_by(backend, "replay") == made


def test_until_before_everything_replays_nothing(post: Post, backend: Backend) -> None:
    post.publish()
    start(post, post.subscription(post.endpoint(), "*"), until="1960-01-01T00:00:00Z")
    assert (post.replay(), made_by(backend, "replay")) == (1, [])


def test_what_is_published_meanwhile_is_delivered_once(post: Post, backend: Backend) -> None:
    before = post.publish().entry.id
    subscription = post.subscription(post.endpoint(), "*")
    start(post, subscription, **{"from": at(post, hours=1)})
    post.forward(milliseconds=1)
    after = post.publish().entry.id
    post.replay()
    assert (made_by(backend), made_by(backend, "replay")) == ([after], [before])


def test_only_what_failed(post: Post, backend: Backend) -> None:
    endpoint = post.endpoint()
    subscription = post.subscription(endpoint, "*")
    post.endpoint("*")
    made = [post.publish().entry.id for _ in range(4)]
    ours = {each.queued.event: each for each in post.claim() if each.endpoint.id == endpoint.id}
    codes = [200, 500, 404, 200]
    post.settle(*[post.result(ours[each], code) for each, code in zip(made, codes, strict=True)])
    start(post, subscription, only="failed")
    post.replay()
    assert made_by(backend, "replay") == made[1:3], "of this subscription, and nobody else's"
    assert progress(post, subscription)["examined"] >= 4


def test_events_by_their_ids(post: Post, watch: FakeClock, backend: Backend) -> None:
    made = [post.publish().entry for _ in range(4)]
    theirs = Post(post.store, watch, "stranger").publish().entry
    subscription = post.subscription(post.endpoint(), "*")
    named = [made[2].name, made[0].name, theirs.name, ids.new("evt")]
    start(post, subscription, event_ids=named)
    assert post.replay() == 1
    assert made_by(backend, "replay") == [made[0].id, made[2].id]
    shown = progress(post, subscription)
    assert (shown["examined"], shown["made"], shown["event_ids"]) == (2, 2, named)


def test_a_replay_is_of_what_the_subscription_is_for(post: Post, backend: Backend) -> None:
    post.publish("order.paid", {"plan": "pro"})
    post.publish("invoice.paid", {"plan": "free"})
    wanted = post.publish("invoice.paid", {"plan": "pro"}).entry.id
    subscription = post.subscription(post.endpoint(), "invoice.*", filter={"/plan": "pro"})
    start(post, subscription, **{"from": at(post, hours=1)})
    post.replay()
    assert made_by(backend, "replay") == [wanted]


def test_a_replay_of_events_about_deliveries_makes_no_loop(post: Post, backend: Backend) -> None:
    failing, telling = post.endpoint("invoice.*"), post.endpoint()
    post.publish()
    post.attempt(500)
    [failed] = post.entries("webhook.delivery.failed")
    for endpoint in (failing, telling):
        start(post, post.subscription(endpoint, "webhook.delivery.*"), **{"from": at(post, hours=1)})
    post.replay()
    assert backend.execute("SELECT event, endpoint FROM deliveries WHERE origin = 'replay'") == [
        (failed.id, ids.raw(telling.id))
    ]


def test_what_was_erased_can_be_replayed(post: Post, backend: Backend) -> None:
    post.endpoint("*")
    made = post.publish().entry
    post.attempt(500)
    [failed] = post.entries("webhook.delivery.failed")
    for entry in (made, failed):
        make.erase_data(backend, entry, hashlib.sha256((entry.data or "").encode()).digest())
    start(post, post.subscription(post.endpoint(), "*", "webhook.*"), **{"from": at(post, hours=1)})
    post.replay()
    assert made_by(backend, "replay") == [made.id]
    assert [each.data for each in post.claim()] == [None]


@pytest.mark.parametrize("removed", ["subscription", "endpoint"])
def test_a_replay_ends_with_what_it_is_for(post: Post, backend: Backend, removed: str) -> None:
    post.deliver(250)
    endpoint = post.endpoint()
    subscription = post.subscription(endpoint, "*")
    start(post, subscription, **{"from": at(post, hours=1)})
    [(account, job)] = post.store.read_now(replay_rows.running)
    assert post.store.run_now(lambda tx: replay.run_slice(tx, account, job))
    gone = subscription.id if removed == "subscription" else endpoint.id
    noun = define_subscription if removed == "subscription" else define_endpoint
    post.define(noun.define, {"id": gone, "status": "removed"})
    assert not post.store.run_now(lambda tx: replay.run_slice(tx, account, job))
    assert len(made_by(backend, "replay")) == 200
    assert [each["made"] for each in post.entry_data("webhook.replay.ended")] == [200]


def test_a_replay_for_an_endpoint_that_stands_still_is_held(post: Post) -> None:
    post.publish()
    endpoint = post.endpoint()
    subscription = post.subscription(endpoint, "*")
    post.redefine(endpoint, status="disabled")
    start(post, subscription, **{"from": at(post, hours=1)})
    post.replay()
    assert post.claim() == []
    assert post.define(define_endpoint.define, {"id": endpoint.id})["held"] == 1
    post.redefine(endpoint, status="active")
    assert [each.queued.because for each in post.claim()] == ["event"]
