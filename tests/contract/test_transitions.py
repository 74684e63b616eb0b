"""TRANSITIONS is what moves a delivery: the statements that change a status refuse every other move, on every store."""

import re
from collections.abc import Callable
from typing import get_args

import pytest

from gatepost.core import ids
from gatepost.store import sql_loader
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx
from gatepost.webhooks import deliveries, delivery_rows, queue_rows
from gatepost.webhooks.deliveries import ENDS, TRANSITIONS, Delivery, Queued, Status, StatusChange
from tests.contract.backends import FakeClock
from tests.contract.posting import WORKER, Post

RECORDED: list[Status] = ["pending", "succeeded", "failed", "cancelled"]  # the values of the column
QUEUED: list[Status] = ["pending", "held", "in_flight"]  # derived from the row in the queue
REASONS = {status: reason for reason, (status, _) in ENDS.items()}
GENERATED = {
    "write_records": delivery_rows.MAY_MOVE,
    "claim": queue_rows.MAY_BE_CLAIMED,
    "requeue": queue_rows.MAY_BE_REQUEUED,
    "end_queued": queue_rows.MAY_END_AFTER_ATTEMPT,
    "drop_queued": queue_rows.MAY_END,
}


@pytest.fixture
def post(store: Store, watch: FakeClock) -> Post:
    return Post(store, watch)


def recorded(status: Status) -> Status:
    return "pending" if status in QUEUED else status


def allowed(status: Status, to: Status) -> bool:
    """Whether TRANSITIONS has a move that looks like this one in the column."""
    return any(
        recorded(before) == status and to in map(recorded, following) for before, following in TRANSITIONS.items()
    )


def change(key: tuple[bytes, bytes], status: Status) -> StatusChange:
    if status == "pending":
        return StatusChange(*key, "pending", None, None, 503, None)
    return deliveries.end(*key, REASONS[status], 7, 503, None)


def test_the_tables_of_this_test_are_complete() -> None:
    assert {*RECORDED, *QUEUED} == set(get_args(Status)) == set(TRANSITIONS)


@pytest.mark.parametrize("to", RECORDED)
@pytest.mark.parametrize("status", RECORDED)
def test_a_record_makes_the_moves_of_the_table_and_no_others(post: Post, status: Status, to: Status) -> None:
    key = ids.raw(post.id), ids.new_raw()
    made = deliveries.new_delivery(*key, ids.new_raw(), ids.new_raw(), ids.new_raw(), "invoice.paid", 30)
    before = made._replace(**change(key, status)._asdict())

    def unit(tx: Tx) -> None:
        tx.pending.append("insert_deliveries", [before])

    post.store.run_now(unit)
    move = change(key, to)._replace(last_code=500)
    post.store.run_now(lambda tx: delivery_rows.write_statuses(tx, [move]))
    [after] = post.store.read_now(lambda tx: delivery_rows.load_many(tx, [key])).values()
    expected: Delivery = before._replace(**move._asdict()) if allowed(status, to) else before
    assert after == expected


def claim(tx: Tx, queued: Queued) -> None:
    queue_rows.claim(tx, [(*queued.key, 99, b"another worker..", "{}")])


def requeue(tx: Tx, queued: Queued) -> None:
    queue_rows.requeue(tx, [(*queued.key, queued.number, 9, 9, "schedule", 1, 0)])


def end_attempted(tx: Tx, queued: Queued) -> None:
    queue_rows.end_attempted(tx, [(*queued.key, queued.number)])


def end_unclaimed(tx: Tx, queued: Queued) -> None:
    queue_rows.end_unclaimed(tx, [(*queued.key, queued.number)])


@pytest.mark.parametrize("status", QUEUED)
@pytest.mark.parametrize(
    ("statement", "to"),
    [
        (claim, {"in_flight"}),
        (requeue, {"pending"}),
        (end_attempted, {"succeeded", "failed", "cancelled"}),
        (end_unclaimed, {"failed", "cancelled"}),
    ],
)
def test_the_queue_makes_the_moves_of_the_table_and_no_others(
    post: Post, status: Status, statement: Callable[[Tx, Queued], None], to: set[Status]
) -> None:
    endpoint = post.endpoint("*")
    [delivery] = post.deliver()
    if status == "in_flight":
        assert len(post.claim(worker=WORKER)) == 1
    elif status == "held":
        post.redefine(endpoint, status="disabled")
    before = post.waiting(delivery)
    post.store.run_now(lambda tx: statement(tx, before))
    assert (post.queued(delivery) != before) == (TRANSITIONS[status] >= to)


def test_every_statement_that_changes_a_status_has_its_generated_condition() -> None:
    changing = re.compile(
        r"\b(UPDATE deliveries SET\b.*\bstatus = |UPDATE queue SET\b.*\bworker = |DELETE FROM queue\b)"
    )
    for dialect in get_args(sql_loader.Dialect):
        statements = sql_loader.statements(dialect)
        found = {name for name, text in statements.items() if changing.search(" ".join(text.split()))}
        assert found == set(GENERATED)
        for name, condition in GENERATED.items():
            where = statements[name].partition("WHERE")[2]
            assert f"AND {condition}" in where, (dialect, name)


@pytest.mark.parametrize("to", TRANSITIONS)
def test_the_conditions_follow_the_table(to: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    """A move that is taken out of the table is taken out of the condition."""
    assert deliveries.queue_condition("in_flight") == queue_rows.MAY_BE_CLAIMED
    assert deliveries.record_condition() == delivery_rows.MAY_MOVE
    fewer = {status: following - {to} for status, following in TRANSITIONS.items()}
    monkeypatch.setattr(deliveries, "TRANSITIONS", fewer)
    if to in RECORDED and to != "pending":
        assert f"'{to}'" in delivery_rows.MAY_MOVE
        assert f"'{to}'" not in deliveries.record_condition()
