"""The tables of deliveries agree: with each other, and with what the database takes."""

import re
from typing import get_args

import pytest

from gatepost.store import sql_loader
from gatepost.webhooks import deliveries
from gatepost.webhooks.deliveries import ENDS, TRANSITIONS, Outcome, Queued, Status

ENDED = {state for state, after in TRANSITIONS.items() if not after}
QUEUED = Queued(b"a" * 16, b"d" * 16, b"e" * 16, b"v" * 16, 0, 5, 5, "event", 0, 0, 0)


def table(name: str) -> str:
    """The definition of a table, as it was migrated to."""
    [schema] = [each.text for each in sql_loader.migrations("sqlite") if each.name == "webhooks"]
    found = re.search(rf"CREATE TABLE {name} \((.*?)\n\)", schema, re.DOTALL)
    assert found is not None
    return found[1]


def words(listed: str) -> set[str]:
    return set(re.findall(r"'(\w+)'", listed))


def checked(column: str, of: str) -> set[str]:
    """The words that a CHECK lets into a column."""
    found = re.search(rf"{column} text NOT NULL CHECK \({column} IN \((.*?)\)\)", table(of))
    assert found is not None
    return words(found[1])


def test_every_state_goes_somewhere_or_is_an_end() -> None:
    assert set(TRANSITIONS) == set(get_args(Status))
    assert set().union(*TRANSITIONS.values()) <= set(TRANSITIONS)
    assert {state for state, _ in ENDS.values()} == ENDED == {"succeeded", "failed", "cancelled"}


def test_held_is_pending_by_another_name() -> None:
    assert TRANSITIONS["held"] == TRANSITIONS["pending"]
    assert not any("held" in after for after in TRANSITIONS.values())


def test_an_attempt_comes_before_success() -> None:
    assert [state for state, after in TRANSITIONS.items() if "succeeded" in after] == ["in_flight"]


@pytest.mark.parametrize("reason", ENDS)
def test_an_ending_is_in_the_state_of_its_reason(reason: str) -> None:
    found = deliveries.end(b"a", b"d", reason, 7, 503, None)
    assert found == (b"a", b"d", ENDS[reason][0], 7, reason, 503, None)
    assert ENDS[reason][1].endswith(".")


def test_the_database_takes_the_ends_of_the_table_and_no_others() -> None:
    [check] = re.findall(r"\n  CHECK \((.*)\n  \)", table("deliveries"), re.DOTALL)
    taken: dict[str, set[str]] = {}
    for case in check.strip().split("\n    OR "):
        [state] = re.findall(r"\(status = '(\w+)'", case)
        ended = "ended_at IS NOT NULL AND ended_reason IS NOT NULL" in case
        assert ended == (state in ENDED)
        taken[state] = words(case) - {state}
        assert ended or "ended_at IS NULL AND ended_reason IS NULL" in case
    assert taken == {"pending": set()} | {
        state: {reason for reason, end in ENDS.items() if end[0] == state} for state in ENDED
    }


def test_the_database_takes_the_outcomes_and_origins_of_the_model() -> None:
    assert checked("outcome", "attempts") == set(get_args(Outcome))
    assert checked("origin", "deliveries") == {"event", "replay", "retry"}


@pytest.mark.parametrize(
    ("worker", "still", "shown"),
    [
        (None, False, "pending"),
        (None, True, "held"),
        (b"w" * 16, False, "in_flight"),
        (b"w" * 16, True, "in_flight"),
    ],
)
def test_the_rendering_of_an_unfinished_delivery(worker: bytes | None, still: bool, shown: str) -> None:
    assert deliveries.unfinished_status(QUEUED._replace(worker=worker), inactive=still) == shown


def test_a_delivery_is_born_pending_and_due() -> None:
    born = deliveries.new_delivery(b"a", b"d", b"s", b"e", b"v", "invoice.paid", 30)
    assert (born.status, born.ended_at, born.ended_reason, born.origin) == ("pending", None, None, "event")
    queued = deliveries.enqueue(born, 5)
    assert (queued.account, queued.id, queued.endpoint, queued.event) == (b"a", b"d", b"e", b"v")
    assert (queued.lane, queued.due, queued.planned_at, queued.because) == (0, 5, 5, "event")
    assert (queued.number, queued.used, queued.interrupted, queued.worker, queued.opened) == (0, 0, 0, None, None)
