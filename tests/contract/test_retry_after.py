"""The Retry-After of a receiver on every store: one row has it, which claims and plans follow."""

from datetime import timedelta
from typing import Any

import pytest

from gatepost.accounts import account_rows
from gatepost.core import clock, ids
from gatepost.ledger.operations import Answer
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx
from gatepost.webhooks import health_rows, listing
from gatepost.webhooks.claim import Claim, Claimed
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.listing import Query
from gatepost.webhooks.listing_query import DeliveryFilter
from tests.contract.backends import FakeClock
from tests.contract.posting import SERVICE, WORKER, Post, claim_all, wait

ASKED: list[tuple[str | None, int]] = [
    (None, 0), ("", 0), ("-5", 0), ("0", 0), ("soon", 0), ("2", 2), ("600", 600), ("315360000", 3600),
    ("{:%a, %d %b %Y %H:%M:%S GMT}", 600), ("Sat, 14 Nov 2020 08:00:00 GMT", 0),
    ("Fri, 15 Nov 2126 08:00:00 GMT", 3600),
]  # fmt: skip


@pytest.fixture
def post(store: Store, watch: FakeClock) -> Post:
    return Post(store, watch)


@pytest.fixture
def endpoint(post: Post) -> Endpoint:
    return post.endpoint("*")


def record(post: Post, delivery: str) -> dict[str, Any]:
    """As GET /webhooks/deliveries shows it."""

    def unit(tx: Tx) -> Any:
        account = account_rows.load(tx, post.id)
        assert account is not None
        return listing.answer(tx, SERVICE, account, Query(DeliveryFilter(id=ids.raw(delivery))))

    answer = post.store.read_now(unit)
    assert isinstance(answer, Answer)
    [found] = answer.body["data"]
    return dict(found)


def planned(post: Post, delivery: str) -> tuple[str, str]:
    """Return the time of the next attempt and its reason, as the API returns them."""
    retries = record(post, delivery)["retries"]
    assert retries["next_at"] == retries["plan"][0]["at"]
    return retries["next_at"], retries["plan"][0]["because"]


def text_of(milliseconds: int) -> str:
    return clock.rfc3339(clock.from_milliseconds(milliseconds))


def receive_retry_after(post: Post, seconds: int = 600, claims: int = 1) -> list[Claim]:
    """The first of some attempts that began together is answered by 429; the others are still under way."""
    first, *others = post.claim(limit=claims)
    post.settle(post.result(first, 429, retry_after=str(seconds)))
    return others


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize(("sent", "asked"), ASKED)
def test_it_is_kept_for_the_whole_endpoint_and_the_plan_stays(
    post: Post, endpoint: Endpoint, code: int, sent: str | None, asked: int
) -> None:
    post.watch.at = post.watch.at.replace(microsecond=0)
    [made] = post.deliver()
    [claim] = post.claim()
    sent = sent.format(post.watch() + timedelta(seconds=600)) if sent else sent
    found = post.settle(post.result(claim, code, retry_after=sent))
    by_plan, until = post.now + wait(1, made, 2), post.now + asked * 1000
    queued, health = post.waiting(made), post.health(endpoint)
    assert (queued.due, queued.because, queued.planned_at) == (by_plan, "schedule", max(by_plan, until))
    assert planned(post, made) == (
        (text_of(until), "retry_after") if until > by_plan else (text_of(by_plan), "schedule")
    )  # fmt: skip
    assert health is not None
    assert health.not_before == (clock.from_milliseconds(until) if asked else None)
    assert found.not_before == ({post.key(endpoint): until} if asked else {})
    assert post.documents(made)[0].retry_after == sent


def test_the_longest_of_several_counts(post: Post, endpoint: Endpoint) -> None:
    post.deliver(4)
    claims = post.claim()
    asked = ["60", "1200", "5"]
    found = post.settle(*[post.result(each, 503, retry_after=sent) for each, sent in zip(claims, asked, strict=False)])
    until = {post.key(endpoint): post.now + 1_200_000}
    assert found.not_before == until
    assert post.settle(post.result(claims[3], 429, retry_after="5")).not_before == until, "no shorter one shortens it"


@pytest.mark.parametrize("most", [1, 30, 7200, 86_400])
def test_the_endpoint_says_how_much_is_too_much(post: Post, endpoint: Endpoint, most: int) -> None:
    post.redefine(endpoint, max_retry_after=most)
    post.deliver()
    receive_retry_after(post, 7200)
    health = post.health(endpoint)
    assert health is not None
    assert health.not_before == post.watch() + timedelta(seconds=min(most, 7200))


@pytest.mark.parametrize("together", [False, True])
def test_a_success_of_an_attempt_that_began_earlier_does_not_lift_it(
    post: Post, endpoint: Endpoint, together: bool
) -> None:
    first, second, third = post.deliver(3)
    one, other = post.claim(limit=2)
    asked, until = post.result(one, 429, retry_after="600"), post.now + 600_000
    if together:
        post.forward(seconds=1)
        post.settle(asked, post.result(other))
    else:
        post.settle(asked)
        post.forward(seconds=1)
        post.settle(post.result(other))
    assert post.record(second).status == "succeeded"
    health = post.health(endpoint)
    assert health == (0, None, clock.from_milliseconds(until)), "it succeeded, and asked for time"
    assert planned(post, first) == planned(post, third) == (text_of(until), "retry_after")
    post.forward(seconds=598, milliseconds=999)
    assert post.claim() == [], "the store decides, whatever a worker remembers"
    post.forward(milliseconds=1)
    claims = {ids.text("dlv", each.key[1]): each.attempt for each in post.claim()}
    assert set(claims) == {first, third}
    assert (claims[third].waited_for, claims[third].waited_ms) == ("retry_after", 600_000)
    assert record(post, first)["attempts"][1]["planned_at"] == text_of(until), "as it was shown"


def test_a_claim_tells_the_worker_until_when_to_wait(post: Post, endpoint: Endpoint) -> None:
    """One that was started again, or another one, knows nothing of it."""
    post.deliver(2)
    receive_retry_after(post)
    found: Claimed = post.store.run_now(lambda tx: claim_all(tx, WORKER, 10))
    assert found.claims == []
    assert {each.not_before for each in found.lanes} == {post.now + 600_000}
    assert post.store.read_now(health_rows.retry_afters) == {post.key(endpoint): post.now + 600_000}
    post.forward(seconds=600)
    assert post.store.read_now(health_rows.retry_afters) == {}


@pytest.mark.parametrize("members", [{"status": "active"}, {"status": None}, {"status": "active", "timeout": 5}])
def test_defining_the_endpoint_as_active_lifts_it(post: Post, endpoint: Endpoint, members: dict[str, Any]) -> None:
    first, second = post.deliver(2)
    receive_retry_after(post)
    post.redefine(endpoint, description="not a word about its status")
    assert post.claim() == []
    by_plan = post.waiting(first).due
    post.redefine(endpoint, **members)
    health = post.health(endpoint)
    assert health is not None
    assert health.not_before == post.watch.at, "it ends now"
    assert post.store.read_now(health_rows.retry_afters) == {}
    assert health.consecutive_failures == 1, "the failures are still failures"
    assert post.entry_data("webhook.endpoint.changed")[-1]["changed"] == [*list(members)[1:], "retry_after_until"]
    assert planned(post, first) == (text_of(by_plan), "schedule")
    assert [ids.text("dlv", each.key[1]) for each in post.claim()] == [second]
    post.until_due(first)
    post.claim()
    assert record(post, first)["attempts"][1]["planned_at"] == text_of(by_plan)
    assert record(post, first)["attempts"][1]["waited"] == {"for": "plan", "ms": 0}


def test_what_waited_until_it_was_lifted_says_so(post: Post, endpoint: Endpoint) -> None:
    post.deliver(3)
    receive_retry_after(post)
    post.forward(seconds=100)
    post.redefine(endpoint, status="active")
    post.forward(seconds=1)
    [later] = post.deliver()
    post.forward(seconds=1)
    waited = {ids.text("dlv", each.key[1]): each.attempt for each in post.claim(limit=10)}
    by_turn = waited.pop(later)
    assert [each.waited_for for each in waited.values()] == ["retry_after"] * 3
    assert max(each.waited_ms for each in waited.values()) == 102_000
    assert (by_turn.waited_for, by_turn.waited_ms) == ("turn", 1000), "it was planned after that"


def test_nothing_is_written_where_there_is_nothing_to_lift(post: Post, endpoint: Endpoint) -> None:
    post.deliver()
    receive_retry_after(post, 60)
    post.forward(seconds=60)
    post.redefine(endpoint, description="now it has a secret too")
    post.redefine(endpoint, status="active")
    assert len(post.entry_data("webhook.endpoint.changed")) == 1


def test_resuming_lifts_it_too(post: Post, endpoint: Endpoint) -> None:
    first, second = post.deliver(2)
    receive_retry_after(post)
    post.redefine(endpoint, status="disabled")
    assert post.health(endpoint) is not None
    post.redefine(endpoint, status="active")
    assert post.health(endpoint) is None
    assert planned(post, first) == (text_of(post.waiting(first).due), "schedule")
    assert [ids.text("dlv", each.key[1]) for each in post.claim()] == [second]


def test_one_from_a_url_that_was_left_means_nothing(post: Post, endpoint: Endpoint) -> None:
    post.deliver()
    [claim] = post.claim()
    post.redefine(endpoint, url="https://moved.example/hooks")
    found = post.settle(post.result(claim, 429, retry_after="600"))
    assert found.not_before == {}
    health = post.health(endpoint)
    assert health is not None
    assert health.not_before is None
