"""Counts of failed authentications: every one counts, in one window of a minute, which is summed up once."""

from datetime import timedelta

from gatepost.app import Store
from gatepost.store.refusals import Counted, Failure
from gatepost.store.tx import Tx
from tests.contract import together
from tests.contract.backends import Watch

MINUTE = timedelta(minutes=1)
FAILURE = Failure(b"p" * 16, None, "cli_1", "192.0.2.1")


def count(tx: Tx) -> Counted:
    return tx.refusals.count_failure(FAILURE, MINUTE)


def test_every_failure_counts(store: Store, other: Store) -> None:
    outcomes = together.run([store, other], [count] * 40)
    assert sorted(counted.number for counted in outcomes) == list(range(1, 41))


def test_a_window_starts_with_its_first_failure(store: Store, other: Store, watch: Watch) -> None:
    began = store.run_now(count).since
    watch.forward(MINUTE - timedelta(milliseconds=1))
    assert other.run_now(count)[:2] == (2, began)
    watch.forward(timedelta(milliseconds=1))
    number, since, ended = other.run_now(count)
    assert (number, since - began) == (1, MINUTE)
    assert [each.count for each in ended] == [2]


def test_a_window_that_ended_is_returned_once(store: Store, other: Store, watch: Watch) -> None:
    for _ in range(12):
        store.run_now(count)
    watch.forward(MINUTE)
    outcomes = together.run([store, other], [count] * 10)
    assert sorted(counted.number for counted in outcomes) == list(range(1, 11))
    [ended] = [each for counted in outcomes for each in counted.ended]
    assert ended.count == 12
    assert store.run_now(lambda tx: tx.refusals.end_failures(watch())) != []
    assert store.run_now(lambda tx: tx.refusals.end_failures(watch())) == []
