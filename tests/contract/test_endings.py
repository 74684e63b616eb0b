"""What answers mean for an endpoint, what ends because it stands still, and what operators end, on every store."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gatepost.core import ids
from gatepost.core.errors import BadSetting
from gatepost.ledger import entry_rows
from gatepost.oauth import account_admin
from gatepost.store.interface import Store
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import define_endpoint, endings, endpoint_rows, health_rows, settle, sweep
from gatepost.webhooks.endpoints import Endpoint
from tests.contract import parallel
from tests.contract.backends import Backend, FakeClock, Postgres, closing_stores
from tests.contract.posting import URL, Post, ids_by, raw

MILLISECOND = timedelta(milliseconds=1)


@pytest.fixture
def post(store: Store, watch: FakeClock) -> Post:
    return Post(store, watch)


@pytest.fixture
def endpoint(post: Post) -> Endpoint:
    return post.endpoint("*")


@pytest.fixture
def later_post(store: Store, watch: FakeClock) -> Iterator[Post]:
    """What is made later there has a later id, and an hour is long to be held."""
    undo = ids_by(watch)
    yield Post(store, watch, hold_limit=3600)
    undo()


# --- what an answer means for the endpoint


def test_410_disables_the_endpoint_and_ends_that_delivery(post: Post, endpoint: Endpoint) -> None:
    made = post.deliver(3)
    claims = post.claim(2)
    post.settle(post.result(claims[0], 410))
    post.settle(post.result(claims[1], 410))
    found = post.stored(endpoint)
    assert (found.status, found.disabled_reason, found.disabled_at) == ("disabled", "gone", post.watch())
    assert post.ends(made) == ["endpoint_gone", "endpoint_gone", None], "what is in flight is finished, and counts"
    assert post.entry_data("webhook.endpoint.disabled") == [
        {"reason": "gone", "url": URL, "event_type": "invoice.paid", "response_code": 410}
    ]
    assert post.claim() == [], "the others are held"
    post.redefine(endpoint, status="active")
    post.attempt()
    assert post.ends(made) == ["endpoint_gone", "endpoint_gone", "delivered"]


def test_410_disables_the_endpoint_even_if_a_later_attempt_of_the_same_commit_succeeded(
    post: Post, endpoint: Endpoint
) -> None:
    made = post.deliver(4)
    claims = post.claim(3)
    results = []
    for claim, code in zip(claims, (410, 200, 500), strict=True):
        results.append(post.result(claim, code))
        post.forward(milliseconds=1)
    post.settle(*results[:2])
    assert (post.stored(endpoint).status, post.stored(endpoint).disabled_reason) == ("disabled", "gone")
    assert post.health(endpoint) == (0, None, None)
    post.redefine(endpoint, status="active")
    post.settle(results[2])
    assert post.ends(made) == ["endpoint_gone", "delivered", None, None]
    assert [data["response_code"] for data in post.entry_data("webhook.endpoint.disabled")] == [410]


def test_the_entry_of_a_disabled_endpoint_names_the_attempt_with_the_410(post: Post, endpoint: Endpoint) -> None:
    post.deliver(2)
    first, second = post.claim()
    gone = post.result(first, 410)
    post.forward(milliseconds=1)
    post.settle(gone, post.result(second, 500))
    assert [data["response_code"] for data in post.entry_data("webhook.endpoint.disabled")] == [410]


def test_410_of_an_address_that_was_left_disables_nothing(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    [claim] = post.claim()
    post.redefine(endpoint, url="https://other.example/hooks")
    post.settle(post.result(claim, 410))
    assert (post.stored(endpoint).status, post.record(made).status) == ("active", "pending")


def test_health_is_kept_only_while_something_is_wrong(post: Post, endpoint: Endpoint, backend: Backend) -> None:
    post.deliver(9)
    claims = post.claim()
    post.settle(post.result(claims[0]))
    assert post.health(endpoint) is None
    began, first = post.watch(), post.result(claims[1], 500)
    post.forward(minutes=1)
    post.settle(post.result(claims[2], None, "dns"), first)
    post.forward(minutes=1)
    post.settle(post.result(claims[3], 500))
    assert post.health(endpoint) == (3, began, None)
    healthy = frozenset([post.key(endpoint)])
    post.settle(post.result(claims[4]), healthy=healthy)
    assert post.health(endpoint) == (3, began, None), "who says that all is well is believed"
    post.settle(post.result(claims[5], 500), post.result(claims[6]))
    assert post.health(endpoint) == (0, None, None)
    first = post.result(claims[7], 500)
    post.forward(minutes=1)
    post.settle(post.result(claims[8]), first)
    assert post.health(endpoint) == (0, None, None), "in the order in which they ended"
    post.store.run_now(health_rows.delete_recovered)
    assert not post.store.read_now(health_rows.has_recovered)
    assert backend.execute("SELECT count(*) FROM health") == [(0,)]


HOURS = timedelta(hours=120)


def fail_for(post: Post, duration: timedelta) -> str:
    """One failed attempt at the start, and one at the end."""
    [made] = post.deliver()
    post.attempt(500)
    post.watch.forward(duration)
    post.attempt(500)
    return made


def test_120_hours_without_a_success_disable(post: Post, endpoint: Endpoint) -> None:
    fail_for(post, HOURS - MILLISECOND)
    assert post.stored(endpoint).status == "active"
    post.watch.forward(MILLISECOND)
    post.deliver()
    post.attempt(None, "timeout")
    found = post.stored(endpoint)
    assert (found.status, found.disabled_reason, found.disabled_at) == ("disabled", "failing", post.watch())
    assert [(each["reason"], each["event_type"]) for each in post.entry_data("webhook.endpoint.disabled")] == [
        ("failing", "invoice.paid")
    ]


def test_a_success_meanwhile_starts_the_hours_anew(post: Post, endpoint: Endpoint) -> None:
    fail_for(post, HOURS / 2)
    post.deliver()
    post.attempt()
    fail_for(post, HOURS / 2)
    assert post.stored(endpoint).status == "active"


def test_being_resumed_meanwhile_starts_the_hours_anew(post: Post, endpoint: Endpoint) -> None:
    fail_for(post, HOURS / 2)
    post.redefine(endpoint, status="disabled")
    post.redefine(endpoint, status="active")
    assert post.health(endpoint) is None
    fail_for(post, HOURS - MILLISECOND)
    assert post.stored(endpoint).status == "active"
    post.watch.forward(MILLISECOND)
    post.deliver()
    post.attempt(500)
    assert post.stored(endpoint).status == "disabled"


@pytest.fixture
def overlapping(schema_url: str, watch: FakeClock) -> Iterator[tuple[Post, Store]]:
    """On PostgreSQL, where one unit can be committed between the beginning and the end of another."""
    with closing_stores(Postgres(schema_url, watch)) as backend:
        store, other = backend.open(), backend.open()
        store.migrate()
        yield Post(store, watch), other


@pytest.mark.parametrize(
    ("members", "status"),
    [
        ({"metadata": {"still": "there"}}, "disabled"),
        ({"url": "https://other.example/hooks"}, "active"),
        ({"status": "disabled"}, "disabled"),
        ({"status": "removed"}, "removed"),
    ],
)
def test_what_was_defined_while_we_disable_is_not_undone(
    overlapping: tuple[Post, Store], members: dict[str, Any], status: str
) -> None:
    post, other = overlapping
    endpoint = post.endpoint("*")
    post.deliver()
    [claim] = post.claim()
    defined: list[Endpoint] = []

    def unit(tx: Tx) -> None:
        assert endpoint_rows.load(tx, post.id, endpoint.id) is not None  # as it knows it from here on
        defined.append(post.redefine(endpoint, other, **members))
        settle.settle(tx, settle.batch([settle.finish(post.result(claim, 410), "wrk")], frozenset()))

    post.store.run_now(unit)
    found = post.stored(endpoint)
    reason = "gone" if "metadata" in members else defined[0].disabled_reason
    assert (found.status, found.disabled_reason) == (status, reason)
    assert (found.url, found.metadata, found.secrets) == (defined[0].url, defined[0].metadata, defined[0].secrets)


def test_what_is_being_defined_while_we_disable_does_not_undo_it(overlapping: tuple[Post, Store]) -> None:
    post, other = overlapping
    endpoint = post.endpoint("*")
    post.deliver()
    [claim] = post.claim()
    settling = threading.Thread(target=lambda: post.settle(post.result(claim, 410)))

    def defining(tx: Tx) -> None:
        post.account(tx)
        found = endpoint_rows.load_uncached(tx, post.id, endpoint.id)
        assert found is not None
        settling.start()
        settling.join(0.5)  # which it cannot, if it waits for us as it should
        endpoint_rows.update(tx, msgspec.structs.replace(found, description="changed"))

    other.run_now(defining)
    settling.join(parallel.LONG)
    made = post.stored(endpoint)
    assert (made.status, made.description) == ("disabled", "changed")


# --- standing still


def test_a_delivery_in_flight_is_not_counted_as_held(post: Post, endpoint: Endpoint) -> None:
    post.deliver(3)
    [claim] = post.claim(1)
    assert post.define(define_endpoint.define, {"id": endpoint.id, "status": "disabled"})["held"] == 2
    post.settle(post.result(claim, 503))
    assert post.define(define_endpoint.define, {"id": endpoint.id})["held"] == 3


def test_held_too_long_ends_in_slices_with_an_entry_each(later_post: Post) -> None:
    post = later_post
    endpoint = post.endpoint("*")
    old = post.deliver(250)
    post.redefine(endpoint, status="disabled")
    post.forward(minutes=1)
    young = post.deliver(3)
    post.forward(minutes=59, milliseconds=-1)
    assert post.sweep(endpoint) == 0
    post.forward(milliseconds=2)
    assert [post.sweep(endpoint) for _ in range(4)] == [100, 100, 50, 0]
    assert set(post.ends(old)) == {"held_too_long"}
    assert post.ends(young) == [None] * 3
    result = post.entry_data("webhook.delivery.failed")
    assert len(result) == 250
    assert {(each["ended_reason"], each["attempts"], each["endpoint"]) for each in result} == {
        ("held_too_long", 0, endpoint.id)
    }
    assert {each.subject for each in post.entries("webhook.delivery.failed")} == set(old)
    post.redefine(endpoint, status="active")
    assert post.sweep(endpoint) == 0
    assert len(post.claim()) == 3


def test_what_is_old_is_not_held_too_long_before_it_is_held(later_post: Post) -> None:
    post = later_post
    endpoint = post.endpoint("*", retry_schedule=[86_400])
    [made] = post.deliver()
    post.attempt(503)
    post.forward(hours=3)
    post.redefine(endpoint, status="disabled")
    post.forward(minutes=59)
    assert post.sweep(endpoint) == 0
    post.forward(minutes=1)
    assert post.sweep(endpoint) == 1
    assert post.ends([made]) == ["held_too_long"]


def test_a_suspended_account_holds_too(later_post: Post) -> None:
    post = later_post
    endpoint = post.endpoint("*")
    [tried, fresh] = post.deliver(2)
    [claim] = post.claim(1)
    post.settle(post.result(claim, 503))
    post.store.run_now(lambda tx: account_admin.suspend(tx, post.name, "unpaid"))
    post.forward(minutes=59)
    assert (post.sweep(endpoint), post.claim()) == (0, [])
    post.forward(minutes=1, milliseconds=1)
    assert post.sweep(endpoint) == 2
    assert post.ends([tried, fresh]) == ["held_too_long"] * 2
    assert [(each["attempts"], each["response_code"]) for each in post.entry_data("webhook.delivery.failed")] == [
        (0, None), (1, 503),
    ]  # fmt: skip
    assert post.record(tried).last_code == 503


def test_removal_cancels_what_waits(post: Post, endpoint: Endpoint) -> None:
    made = post.deliver(4)
    claims = post.claim(2)
    post.redefine(endpoint, status="removed")
    assert [post.sweep(endpoint), post.sweep(endpoint)] == [2, 0]
    assert post.ends(made) == [None, None, "endpoint_removed", "endpoint_removed"]
    post.settle(post.result(claims[0]), post.result(claims[1], 503))
    assert post.ends(made) == ["delivered", *["endpoint_removed"] * 3]
    assert [post.record(each).status for each in made] == ["succeeded", *["cancelled"] * 3]
    assert post.entries("webhook.delivery.failed") == []


def test_an_active_endpoint_is_never_swept(post: Post, endpoint: Endpoint) -> None:
    post.deliver(3)
    post.forward(days=60)
    assert post.sweep(endpoint) == 0


def test_only_where_something_has_to_end_is_a_commit_worth_it(later_post: Post) -> None:
    post = later_post
    gone, empty, paused = (post.endpoint(f"{name}.*") for name in ("gone", "empty", "paused"))
    post.publish("gone.a")
    post.publish("paused.a")
    for endpoint, status in ((gone, "removed"), (empty, "removed"), (paused, "disabled")):
        post.redefine(endpoint, status=status)

    def found() -> tuple[list[str], list[str]]:
        still = post.store.read_now(lambda tx: endpoint_rows.inactive_with_deliveries(tx, (LOWEST, LOWEST), 100))
        swept = post.store.read_now(lambda tx: sweep.to_sweep(tx, still))
        return [ids.text("ep", key[1]) for key in still], [ids.text("ep", key[1]) for key in swept]

    assert found() == ([gone.id, paused.id], [gone.id])
    post.forward(hours=2)
    assert found() == ([gone.id, paused.id], [gone.id, paused.id])
    assert (post.sweep(gone), post.sweep(paused)) == (1, 1)
    assert found() == ([], [])


# --- operators


def test_cancelling(post: Post, endpoint: Endpoint) -> None:
    waiting, open_ = post.deliver(2)
    claims = {each.queued.id: each for each in post.claim()}
    post.settle(post.result(claims[raw(waiting)], 503))
    for each in (waiting, open_):
        post.cancel(each)
        assert (post.record(each).status, post.ends([each]), post.queued(each)) == (
            "cancelled", ["cancelled_by_operator"], None,
        )  # fmt: skip
    assert (post.outcomes(waiting), post.outcomes(open_)) == (["failed"], ["interrupted"])
    assert post.documents(open_)[0].detail == endings.CANCELLED, "its worker is not gone"
    late = post.result(claims[raw(open_)])
    assert post.settle(late).overtaken == [late]
    assert post.outcomes(open_) == ["interrupted"]
    tallied = post.tallied()
    assert (tallied["attempt interrupted"], tallied["ended cancelled_by_operator"]) == (1, 2)
    for gone in (waiting, ids.new("dlv"), "dlv_x", endpoint.id):
        with pytest.raises(BadSetting):
            post.cancel(gone)


def test_the_ledger_records_what_an_operator_does_to_a_delivery(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    post.attempt(503)
    post.retry(made)
    post.cancel(made)
    again = post.retry(made)
    entries = post.entries("webhook.delivery.changed")
    assert {(entry.actor, entry.subject) for entry in entries} == {("operator", made)}
    event = ids.text("evt", post.record(made).event)
    data = {"endpoint": endpoint.id, "event": event, "event_type": "invoice.paid"}
    assert post.entry_data("webhook.delivery.changed") == [
        {"action": "retried"} | data,
        {"action": "cancelled"} | data,
        {"action": "retried"} | data | {"new_delivery": again},
    ]


def test_a_delivery_of_another_account_is_not_there(post: Post, endpoint: Endpoint, watch: FakeClock) -> None:
    stranger = Post(post.store, watch, "stranger")
    [made] = post.deliver()
    for operation in (stranger.cancel, stranger.retry):
        with pytest.raises(BadSetting):
            operation(made)
    assert post.waiting(made).because == "event"


def test_retrying_what_waits_makes_the_next_attempt_now(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    [claim] = post.claim()
    with pytest.raises(BadSetting, match="is in flight"):
        post.retry(made)
    post.settle(post.result(claim, 503))
    assert post.claim() == []
    assert post.retry(made) == made
    queued = post.waiting(made)
    assert (queued.due, queued.because, queued.used) == (post.now, "operator", 1)
    assert [each.number for each in post.claim()] == [2]


def test_retrying_what_ended_makes_a_new_delivery(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    post.attempt()
    again = post.retry(made)
    assert again != made
    first, second = post.record(made), post.record(again)
    assert (second.origin, second.status, second.event) == ("retry", "pending", first.event)
    assert (second.subscription, second.endpoint) == (first.subscription, first.endpoint)
    assert (post.waiting(again).because, post.tallied()["made"]) == ("operator", 2)
    assert first.status == "succeeded"
    post.store.run_now(lambda tx: entry_rows.delete(tx, post.id, [first.event]))
    with pytest.raises(BadSetting, match="no longer retained"):
        post.retry(made)


def test_nothing_is_retried_at_a_removed_endpoint(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    post.attempt()
    post.redefine(endpoint, status="removed")
    with pytest.raises(BadSetting, match="removed"):
        post.retry(made)
