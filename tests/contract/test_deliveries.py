"""Claiming and settling deliveries, on every store: a claim is exclusive, and who was overtaken changes nothing."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import apsw
import msgspec
import psycopg
import pytest

from gatepost.core import clock, ids
from gatepost.oauth import account_admin
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx
from gatepost.webhooks import claim as claiming_unit
from gatepost.webhooks import recover, tallies
from gatepost.webhooks.claim import Claim, Claimed
from gatepost.webhooks.deliveries import ENDS, OpenAttempt
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.queue_rows import Lane
from gatepost.webhooks.schedule import Turn
from tests.contract import parallel
from tests.contract.backends import Backend, FakeClock
from tests.contract.posting import OTHER_WORKER, START, URL, WORKER, Post, claim_all, raw, wait

LEASE = timedelta(seconds=15 + 30)
MILLISECOND = timedelta(milliseconds=1)


@pytest.fixture
def post(store: Store, watch: FakeClock) -> Post:
    return Post(store, watch)


@pytest.fixture
def endpoint(post: Post) -> Endpoint:
    return post.endpoint("*")


def everything(backend: Backend) -> dict[str, list[tuple[Any, ...]]]:
    """All rows that deliveries are made of."""
    tables = {
        "deliveries": "account, id", "queue": "account, id", "attempts": "account, delivery, number",
        "health": "account, endpoint", "endpoints": "account, id", "entries": "account, id",
        "tallies": "account, since, what, slot", "endpoint_tally_log": "account, id",
    }  # fmt: skip
    return {name: backend.execute(f"SELECT * FROM {name} ORDER BY {order}") for name, order in tables.items()}


def left(claimed: Claimed) -> list[tuple[Lane, int | None]]:
    """The lanes that were picked, with the first due time that is left in each."""
    return [(each.lane, each.next_due) for each in claimed.lanes]


# --- claiming


def test_what_one_worker_claims_no_other_does(post: Post, other: Store) -> None:
    for number in range(3):
        post.endpoint("*", max_in_flight=number + 1)
    made = post.deliver(60)

    def claiming(worker: bytes) -> Callable[[Tx], Claimed]:
        return lambda tx: claim_all(tx, worker, 7)

    outcomes = parallel.run([post.store, other], [claiming(worker) for worker in (WORKER, OTHER_WORKER) * 15])
    assert parallel.failures(outcomes) == []
    claims = [each for claimed in outcomes for each in claimed.claims]
    assert sorted(each.queued.id for each in claims) == sorted(map(raw, made))
    assert {each.number for each in claims} == {1}


def test_an_attempt_is_on_record_before_it_is_made(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    post.forward(milliseconds=40)
    [claim] = post.claim()
    queued = post.waiting(made)
    assert (queued.worker, queued.number) == (WORKER, 1)
    assert msgspec.json.decode(queued.opened or "", type=OpenAttempt) == claim.attempt
    assert claim.attempt == OpenAttempt(post.now, URL, [], "turn", 40)
    assert (claim.queued.number, claim.number, claim.type) == (0, 1, "invoice.paid")
    assert (post.record(made).status, post.attempts(made)) == ("pending", [])


def test_only_what_is_due_is_claimed_in_its_order(post: Post, endpoint: Endpoint) -> None:
    first = post.deliver(3)
    post.attempt(503)
    post.forward(milliseconds=1)
    second = post.deliver(5)
    account, name = post.key(endpoint)
    picked = [Turn(Lane(account, name, lane, 0), 3, START, "turn", "turn") for lane in (0, 1)]
    found = post.store.run_now(lambda tx: claiming_unit.claim(tx, WORKER, picked))
    assert [each.queued.id for each in found.claims] == [raw(each) for each in second[:3]]
    retries = min(post.waiting(each).due for each in first)
    assert left(found) == [(picked[0].lane, post.now), (picked[1].lane, retries)]
    passed = post.waiting(second[3])
    after = [picked[0]._replace(after=(passed.due, passed.id))]
    found = post.store.run_now(lambda tx: claiming_unit.claim(tx, WORKER, after))
    assert [each.queued.id for each in found.claims] == [raw(second[4])]
    assert left(found) == [(picked[0].lane, None)]  # after that position
    found = post.store.run_now(lambda tx: claiming_unit.claim(tx, WORKER, picked[:1]))
    assert [each.queued.id for each in found.claims] == [raw(second[3])]
    assert left(found) == [(picked[0].lane, None)]


def test_each_attempt_is_of_the_endpoint_as_it_is_then(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    post.attempt(503)
    post.redefine(endpoint, url="https://other.example/hooks")
    post.until_due(made)
    [claim] = post.claim()
    assert claim.endpoint.url == claim.attempt.url == "https://other.example/hooks"
    post.settle(post.result(claim))
    assert [each.url for each in post.documents(made)] == [URL, "https://other.example/hooks"]
    assert [len(each.signed_with) for each in post.documents(made)] == [0, 1]


@pytest.mark.parametrize("status", ["disabled", "removed", "suspended"])
def test_what_stands_still_is_not_claimed(post: Post, endpoint: Endpoint, status: str) -> None:
    [made] = post.deliver()
    if status == "suspended":
        post.store.run_now(lambda tx: account_admin.suspend(tx, post.name, ""))
    else:
        post.redefine(endpoint, status=status)
    found = post.store.run_now(lambda tx: claim_all(tx, WORKER, 10))
    assert found.lanes == []
    assert post.waiting(made).number == 0
    if status == "suspended":
        post.store.run_now(lambda tx: account_admin.resume(tx, post.name))
    elif status == "disabled":
        post.redefine(endpoint, status="active")
    assert len(post.claim()) == (status != "removed")


@pytest.mark.parametrize("status", ["disabled", "suspended"])
def test_what_was_held_waited_for_its_plan(post: Post, endpoint: Endpoint, status: str) -> None:
    post.deliver(2)
    if status == "suspended":
        post.store.run_now(lambda tx: account_admin.suspend(tx, post.name, ""))
        post.forward(seconds=60)
        post.store.run_now(lambda tx: account_admin.resume(tx, post.name))
    else:
        post.redefine(endpoint, status=status)
        post.forward(seconds=60)
        post.redefine(endpoint, status="active")
    post.forward(seconds=1)
    assert [each.attempt.waited_for for each in post.claim(limit=10)] == ["plan", "plan"]


def test_a_delivery_whose_event_is_missing_is_claimed_and_fails(
    post: Post, endpoint: Endpoint, backend: Backend
) -> None:
    """Otherwise it would be due for ever, and on PostgreSQL also hide those after it."""
    lost, kept = post.publish(), post.publish()
    backend.execute("DELETE FROM entries WHERE id = ?", lost.entry.id)
    first, second = claims = post.claim(limit=2)
    assert [(claim.key[1], claim.type, claim.is_lost) for claim in claims] == [
        (lost.delivery_ids[0], "invoice.paid", True),
        (kept.delivery_ids[0], "invoice.paid", False),
    ]
    assert (first.data, second.data) == (None, "{}")
    post.settle(post.result(first, None, "send"))
    assert post.waiting(lost.deliveries[0]).used == 1
    assert post.health(endpoint) is None, "the endpoint is not at fault"


def test_a_lease_that_ran_out_is_an_interrupted_attempt(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    post.claim()
    post.watch.forward(LEASE - MILLISECOND)
    assert post.claim(worker=OTHER_WORKER) == []
    assert post.waiting(made).worker == WORKER
    post.watch.forward(MILLISECOND)
    assert post.claim(worker=OTHER_WORKER) == [], "it comes up again"
    assert post.outcomes(made) == ["interrupted"]
    assert post.documents(made)[0].worker == ids.text("wrk", WORKER)
    queued = post.waiting(made)
    assert (queued.because, queued.due, queued.interrupted, queued.used) == ("interrupted", post.now, 1, 0)
    [again] = post.claim(worker=OTHER_WORKER)
    assert again.number == 2
    post.settle(post.result(again), worker=OTHER_WORKER)
    assert (post.outcomes(made), post.ends([made])) == (["interrupted", "succeeded"], ["delivered"])


# --- settling


def test_a_success(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    [claim] = post.claim()
    post.forward(milliseconds=31)
    found = post.settle(post.result(claim, 202, timings={"dns_ms": 0.2}, remote_ip="192.0.2.1", response=b"ok"))
    assert (found.retries, found.overtaken, found.not_before) == ([], [], {})
    record = post.record(made)
    assert (record.status, record.ended_reason, record.ended_at) == ("succeeded", "delivered", post.now)
    assert (record.last_code, record.last_failure, post.queued(made)) == (202, None, None)
    assert post.outcomes(made) == ["succeeded"]
    [document] = post.documents(made)
    assert (document.started_at, document.ended_at, document.duration_ms) == (post.now - 31, post.now, 31.4)
    assert (document.response_code, document.response, document.remote_ip) == (202, "ok", "192.0.2.1")
    assert document.worker == ids.text("wrk", WORKER)
    assert post.tallied() == {"made": 1, "attempt 2xx": 1, "ended delivered": 1, "ms 31": 1}


def test_a_failure_is_planned_again(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    [claim] = post.claim()
    found = post.settle(post.result(claim, None, "connect", detail="refused"))
    due = post.now + wait(1, made, 2)
    assert found.retries == [(post.key(endpoint), due)]
    queued, record = post.waiting(made), post.record(made)
    assert (queued.lane, queued.due, queued.planned_at, queued.because) == (1, due, due, "schedule")
    assert (queued.number, queued.used, queued.interrupted, queued.worker) == (1, 1, 0, None)
    assert (record.status, record.last_code, record.last_failure) == ("pending", None, "connect")
    assert post.documents(made)[0].detail == "refused"


def test_the_last_failure_ends_it_with_an_entry(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    for _ in range(3):
        post.until_due(made)
        post.attempt(500)
    record = post.record(made)
    assert (record.status, record.ended_reason, record.last_code) == ("failed", "attempts_exhausted", 500)
    assert (post.queued(made), post.outcomes(made)) == (None, ["failed"] * 3)
    [entry] = post.entries("webhook.delivery.failed")
    assert (entry.subject, entry.actor, entry.matched) == (made, "gatepost", 0)
    assert post.entry_data("webhook.delivery.failed") == [
        {
            "endpoint": endpoint.id,
            "event": ids.text("evt", record.event),
            "event_type": "invoice.paid",
            "ended_reason": "attempts_exhausted",
            "attempts": 3,
            "response_code": 500,
            "failure": None,
        }
    ]


def test_what_was_never_sent_uses_up_nothing(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    [claim] = post.claim()
    found = post.settle(post.not_sent(claim))
    assert found.retries == [(post.key(endpoint), post.now)]
    queued = post.waiting(made)
    assert (queued.because, queued.due, queued.used, queued.number) == ("released", post.now, 0, 1)
    assert (post.outcomes(made), post.health(endpoint)) == (["not_sent"], None)
    post.attempt()
    assert post.outcomes(made) == ["not_sent", "succeeded"]


def test_any_answer_can_be_kept(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    post.attempt(200, response=b"a\0b\xff\xed\xa0\x80", remote_ip="::1")
    assert post.documents(made)[0].response.startswith("a�b�")


# --- the fence


def late(post: Post, *, claimed_again: bool) -> tuple[str, Claim]:
    """A delivery and its first claim, whose lease ran out."""
    [made] = post.deliver()
    [claim] = post.claim()
    post.watch.forward(LEASE)
    post.claim(worker=OTHER_WORKER)
    if claimed_again:
        assert [each.number for each in post.claim(worker=OTHER_WORKER)] == [2]
    return made, claim


@pytest.mark.parametrize("code", [200, 503, 410, None])
def test_a_late_result_after_another_claim_changes_nothing(
    post: Post, endpoint: Endpoint, backend: Backend, code: int | None
) -> None:
    _, claim = late(post, claimed_again=True)
    before = everything(backend)
    result = post.result(claim, code) if code else post.not_sent(claim)
    found = post.settle(result)
    assert (found.overtaken, found.retries, found.not_before) == ([result], [], {})
    assert everything(backend) == before


@pytest.mark.parametrize("code", [200, 503])
def test_a_late_result_before_another_claim_counts(post: Post, endpoint: Endpoint, code: int) -> None:
    made, claim = late(post, claimed_again=False)
    assert post.settle(post.result(claim, code)).overtaken == []
    if code == 200:
        assert (post.outcomes(made), post.ends([made]), post.queued(made)) == (["succeeded"], ["delivered"], None)
        assert post.claim() == []
        return
    queued = post.waiting(made)
    assert (post.outcomes(made), queued.because, queued.used, queued.interrupted) == (["failed"], "schedule", 1, 0)
    assert queued.due == post.now + wait(1, made, 2)


@pytest.mark.parametrize("code", [200, 503, 410])
def test_settling_twice_is_settling_once(post: Post, endpoint: Endpoint, backend: Backend, code: int) -> None:
    post.deliver()
    [claim] = post.claim()
    result = post.result(claim, code)
    assert post.settle(result).overtaken == []
    before = everything(backend)
    assert post.settle(result).overtaken == [result]
    assert everything(backend) == before


def test_settling_twice_in_one_commit_is_settling_once(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    [claim] = post.claim()
    result = post.result(claim, 410)
    post.settle(result, result)
    assert len(post.entries("webhook.delivery.failed")) == post.tallied()["ended endpoint_gone"] == 1
    assert post.outcomes(made) == ["failed"]


@pytest.mark.parametrize("later_first", [False, True])
def test_of_two_results_of_one_delivery_the_later_attempts_counts(
    post: Post, endpoint: Endpoint, later_first: bool
) -> None:
    """Both may come to one worker at once, after it was stopped for longer than a lease."""
    [made] = post.deliver()
    [first] = post.claim()
    post.watch.forward(LEASE)
    post.claim()
    [second] = post.claim()
    results = [post.result(first, 200), post.result(second, 503)]
    found = post.settle(*results[:: -1 if later_first else 1])
    assert found.overtaken == [results[0]]
    assert post.outcomes(made) == ["interrupted", "failed"]
    assert (post.record(made).status, post.waiting(made).used) == ("pending", 1)


def test_results_of_one_batch_are_settled_independently(post: Post, endpoint: Endpoint) -> None:
    made = post.deliver(6)
    claims = post.claim()
    post.cancel(made[5])
    codes = [200, 503, 410, 204, None]
    results = [post.result(claim, code, None if code else "dns") for claim, code in zip(claims, codes, strict=False)]
    found = post.settle(*results, post.result(claims[5]))
    assert [each.claim.queued.id for each in found.overtaken] == [raw(made[5])]
    assert post.ends(made) == ["delivered", None, "endpoint_gone", "delivered", None, "cancelled_by_operator"]
    assert [post.outcomes(each)[0] for each in made] == [
        "succeeded", "failed", "failed", "succeeded", "failed", "interrupted",
    ]  # fmt: skip


# --- interruptions


def test_a_dead_workers_attempts_are_interrupted(post: Post, endpoint: Endpoint) -> None:
    made = post.deliver(250)
    post.claim(200)
    assert len(post.claim(worker=OTHER_WORKER)) == 50
    rescued = 0
    while count := post.rescue():
        rescued += count
    assert rescued == 200
    assert [post.outcomes(each) for each in made] == [["interrupted"]] * 200 + [[]] * 50
    assert len(post.claim()) == 200


def test_several_who_rescue_close_each_attempt_once(post: Post, other: Store, endpoint: Endpoint) -> None:
    made = post.deliver(60)
    claims = post.claim(40)
    post.claim(worker=OTHER_WORKER)
    post.settle(*[post.result(each) for each in claims[:10]])
    keys = [(each.queued.account, each.queued.id) for each in claims]
    outcomes = parallel.run([post.store, other], [lambda tx: recover.rescue(tx, WORKER, keys)] * 6)
    assert parallel.failures(outcomes) == []
    assert sum(outcomes) == post.tallied()["attempt interrupted"] == 30
    assert [post.outcomes(each) for each in made] == [["succeeded"]] * 10 + [["interrupted"]] * 30 + [[]] * 20
    assert {post.waiting(each).interrupted for each in made[10:40]} == {1}


def test_the_third_interruption_in_a_row_uses_up_a_planned_attempt(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    seen = []
    for _ in range(8):
        post.until_due(made)
        assert len(post.claim()) == 1
        post.rescue()
        queued = post.waiting(made)
        seen.append((queued.used, queued.interrupted, queued.due - post.now))
    waits = [wait(1, made, 4), wait(2, made, 7)]
    assert seen == [
        (0, 1, 0), (0, 2, 0), (1, 0, waits[0]), (1, 1, 0), (1, 2, 0), (2, 0, waits[1]), (2, 1, 0), (2, 2, 0)
    ]  # fmt: skip
    post.until_due(made)
    post.claim()
    post.rescue()
    assert (post.ends([made]), post.outcomes(made)) == (["attempts_exhausted"], ["interrupted"] * 9)
    assert [each["attempts"] for each in post.entry_data("webhook.delivery.failed")] == [9]
    assert post.tallied()["attempt interrupted"] == 9


def last_result(post: Post, delivery: str) -> tuple[int | None, str | None]:
    record = post.record(delivery)
    return record.last_code, record.last_failure


def test_an_interrupted_attempt_has_no_response(post: Post, endpoint: Endpoint) -> None:
    """The code and the failure on record are those of the last attempt, so an earlier attempt's are removed."""
    cancelled, interrupted = post.deliver(2)
    post.attempt(302, "redirect")
    assert last_result(post, cancelled) == last_result(post, interrupted) == (302, "redirect")
    post.forward(hours=1)
    claims = {claim.queued.id: claim for claim in post.claim()}
    post.cancel(cancelled)
    post.rescue()
    assert last_result(post, cancelled) == last_result(post, interrupted) == (None, None)
    post.settle(post.result(claims[raw(interrupted)], 503))
    assert last_result(post, interrupted) == (503, None), "a late result counts"


def test_a_delivery_that_ends_with_an_interruption_has_no_response(post: Post) -> None:
    post.endpoint("*", retry_schedule=[1])
    [made] = post.deliver()
    post.attempt(503)
    for _ in range(3):
        post.until_due(made)
        post.claim()
        post.rescue()
    assert (post.ends([made]), last_result(post, made)) == (["attempts_exhausted"], (None, None))
    assert [data["response_code"] for data in post.entry_data("webhook.delivery.failed")] == [None]


def test_an_answer_between_interruptions_starts_the_count_anew(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    for _ in range(2):
        post.claim()
        post.rescue()
    post.attempt(503)
    post.until_due(made)
    post.claim()
    post.rescue()
    queued = post.waiting(made)
    assert (queued.used, queued.interrupted, queued.due) == (1, 1, post.now)


# --- counts


def test_attempts_are_counted_by_the_class_of_their_response(post: Post, endpoint: Endpoint) -> None:
    results = [(302, "redirect"), (200, "body"), (None, "dns"), (999, None)]
    post.deliver(len(results))
    claims = post.claim()
    post.settle(*[post.result(claim, *given) for claim, given in zip(claims, results, strict=True)])
    counted = {what: count for what, count in post.tallied().items() if what.startswith("attempt ")}
    assert counted == {"attempt 3xx": 1, "attempt none": 2, "attempt 5xx": 1}
    assert sum(count for what, count in post.tallied().items() if what.startswith("ms ")) == 2


def test_minutes_become_hours_with_the_same_sums(post: Post, endpoint: Endpoint, backend: Backend) -> None:
    post.watch.at = post.watch.at.replace(minute=0, second=0, microsecond=0)
    began, key = clock.seconds(post.watch()), post.key(endpoint)
    for number in range(90):
        post.store.run_now(lambda tx, number=number: tallies.add(tx, key, "made", count=number))  # type: ignore[misc]
        post.store.run_now(lambda tx: tallies.add(tx, key, "attempt 2xx", "ms 3"))
        post.forward(minutes=1)
    before = post.tallied()
    assert before == {"made": 89 * 45, "attempt 2xx": 90, "ms 3": 90}
    hour = began + 3600
    while post.store.run_now(lambda tx: tallies.roll_up(tx, hour, 50)) == 50:
        assert post.tallied() == before
    assert post.tallied() == before
    rows = backend.execute("SELECT since, span, what, count FROM tallies WHERE since < ? ORDER BY what", hour)
    assert rows == [(began, 3600, "attempt 2xx", 60), (began, 3600, "made", 59 * 30), (began, 3600, "ms 3", 60)]
    assert backend.execute("SELECT count(*) FROM tallies WHERE since >= ? AND span = 60", hour)[0][0] >= 59
    assert post.store.run_now(lambda tx: tallies.roll_up(tx, hour, 50)) == 0
    while post.store.run_now(lambda tx: tallies.add_logged(tx, 50)) == 50:
        assert post.tallied() == before
    assert backend.execute("SELECT count(*) FROM endpoint_tally_log") == [(0,)]
    while post.store.run_now(lambda tx: tallies.roll_up_endpoints(tx, hour, 50)) == 50:
        assert post.tallied() == before
    assert post.tallied() == before
    rows = backend.execute("SELECT since, what, count FROM endpoint_tallies WHERE span = 3600 ORDER BY what")
    assert rows == [(began, "attempt 2xx,ms 3", 60), (began, "made", 59 * 30)]


def test_every_writer_counts(post: Post, endpoint: Endpoint, other: Store) -> None:
    key = post.key(endpoint)
    outcomes = parallel.run([post.store, other], [lambda tx: tallies.add(tx, key, "made", count=2)] * 60)
    assert parallel.failures(outcomes) == []
    assert post.tallied() == {"made": 120}


# --- what the database itself refuses

ID = b"i" * 16
DELIVERY = dict.fromkeys(("account", "id", "endpoint", "subscription", "event"), ID) | {
    "event_type": "invoice.paid", "origin": "event", "status": "pending", "ended_at": None, "ended_reason": None,
    "keep_days": 30,
}  # fmt: skip
QUEUED = dict.fromkeys(("account", "id", "endpoint", "event"), ID) | {
    "lane": 0, "due": 0, "planned_at": 0, "because": "event", "number": 0, "used": 0, "interrupted": 0,
    "worker": None, "opened": None, "lease": None,
}  # fmt: skip
ATTEMPT: dict[str, Any] = {"account": ID, "delivery": ID, "number": 1, "outcome": "failed", "document": "{}"}
REPLAY: dict[str, Any] = {
    "account": ID, "id": ID, "subscription": ID, "state": "running", "position": ID, "examined": 0, "made": 0,
    "document": "{}",
}  # fmt: skip
POSSIBLE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("deliveries", DELIVERY, {}),
    *(
        ("deliveries", DELIVERY, {"status": status, "ended_at": 1, "ended_reason": reason})
        for reason, (status, _) in ENDS.items()
    ),
    ("queue", QUEUED, {}),
    ("queue", QUEUED, {"worker": ID, "opened": "{}", "lease": 1}),
    ("attempts", ATTEMPT, {}),
    ("replays", REPLAY, {"state": "ended"}),
]
IMPOSSIBLE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *(
        ("deliveries", DELIVERY, {"status": status, "ended_at": 1, "ended_reason": reason})
        for status in ("pending", "succeeded", "failed", "cancelled")
        for reason, end in ENDS.items()
        if status != end[0]
    ),
    *(
        ("deliveries", DELIVERY, {"status": status, "ended_at": at, "ended_reason": reason})
        for right, (status, _) in ENDS.items()
        for at, reason in ((None, right), (1, None), (None, None), (1, "because"))
    ),
    *(("deliveries", DELIVERY, {"status": status}) for status in ("held", "in_flight", "", None)),
    ("deliveries", DELIVERY, {"ended_at": 1}),
    ("deliveries", DELIVERY, {"ended_reason": "delivered"}),
    ("deliveries", DELIVERY, {"origin": "magic"}),
    ("queue", QUEUED, {"lane": 2}),
    ("queue", QUEUED, {"worker": ID}),
    ("queue", QUEUED, {"opened": "{}"}),
    ("queue", QUEUED, {"worker": ID, "opened": "{}"}),
    ("queue", QUEUED, {"worker": ID, "lease": 1}),
    ("attempts", ATTEMPT, {"outcome": "pending"}),
    ("attempts", ATTEMPT, {"outcome": None}),
    ("replays", REPLAY, {"state": "paused"}),
]


def insert(backend: Backend, table: str, row: dict[str, Any]) -> None:
    places = ", ".join("?" * len(row))
    backend.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", *row.values())


@pytest.mark.usefixtures("store")
def test_rows_that_can_be(backend: Backend) -> None:
    for table, row, more in POSSIBLE:
        insert(backend, table, row | more)
        backend.execute(f"DELETE FROM {table}")


@pytest.mark.usefixtures("store")
def test_rows_that_cannot_be(backend: Backend) -> None:
    for table, row, more in IMPOSSIBLE:
        with pytest.raises((apsw.ConstraintError, psycopg.IntegrityError)):
            insert(backend, table, row | more)


def test_a_subscription_is_of_an_endpoint_of_its_account(post: Post, endpoint: Endpoint, watch: FakeClock) -> None:
    stranger = Post(post.store, watch, "stranger")
    with pytest.raises((apsw.ConstraintError, psycopg.IntegrityError)):
        stranger.subscription(endpoint, "*")


# --- a claim whose result was lost: the attempt is open, and no worker will send it


def test_what_was_claimed_unheard_is_given_back_as_not_sent(post: Post, endpoint: Endpoint) -> None:
    [delivery] = post.deliver()
    [claim] = post.claim()
    assert post.store.run_now(lambda tx: recover.release(tx, WORKER, {claim.key: claim.number})) == 1
    assert post.outcomes(delivery) == ["not_sent"]
    waiting = post.waiting(delivery)
    assert (waiting.worker, waiting.due, waiting.because, waiting.used) == (None, post.now, "released", 0)
    assert post.tallied()["attempt not_sent"] == 1
    [again] = post.claim()
    assert (again.number, again.endpoint.id) == (2, endpoint.id)


def test_a_later_attempt_of_the_same_worker_is_not_given_back(post: Post, endpoint: Endpoint) -> None:
    """It may have been sent since the earlier one was found."""
    [delivery] = post.deliver()
    [claim] = post.claim()
    assert post.store.run_now(lambda tx: recover.release(tx, WORKER, {claim.key: claim.number})) == 1
    [later] = post.claim()
    assert later.endpoint.id == endpoint.id
    assert post.store.run_now(lambda tx: recover.release(tx, WORKER, {claim.key: claim.number})) == 0
    assert post.outcomes(delivery) == ["not_sent"]
    assert post.waiting(delivery).number == later.number
    assert post.waiting(delivery).worker == WORKER


def test_what_another_has_is_not_given_back(post: Post, endpoint: Endpoint) -> None:
    [delivery] = post.deliver()
    [claim] = post.claim()
    assert claim.endpoint.id == endpoint.id
    assert post.store.run_now(lambda tx: recover.release(tx, OTHER_WORKER, {claim.key: claim.number})) == 0
    assert post.outcomes(delivery) == []
    assert post.waiting(delivery).worker == WORKER


def test_what_was_not_sent_for_want_of_our_own_resources(post: Post, endpoint: Endpoint) -> None:
    [made] = post.deliver()
    [claim] = post.claim()
    words = "not sent: the service ran out of files"
    for number, pause in enumerate([1_000, 2_000, 4_000], 1):
        post.settle(post.not_sent(claim, detail=words, shortage="files"))
        queued = post.waiting(made)
        assert (queued.due, queued.used, queued.because) == (post.now + pause, 0, "shortage")
        assert (post.outcomes(made), post.documents(made)[-1].detail) == (["not_sent"] * number, words)
        assert post.health(endpoint) is None
        post.until_due(made)
        [claim] = post.claim()
        assert claim.number == number + 1
