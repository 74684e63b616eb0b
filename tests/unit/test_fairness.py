"""Fairness of the schedule with a heavy-tailed load, under a simulated clock."""

import pytest

from gatepost.run import fairness
from gatepost.run.fairness import SCENARIOS, Deliverer, Lateness, Scenario

ACCOUNTS, SECONDS = 1000, 3.0
DELIVERER = Deliverer(221, 50)


@pytest.fixture(scope="module")
def results() -> dict[str, Scenario]:
    return {offered.name: fairness.simulate(offered, ACCOUNTS, SECONDS, DELIVERER) for offered in SCENARIOS}


def times(lateness: Lateness) -> tuple[float, float]:
    """The median and the 99th percentile of accounts that have deliveries."""
    assert lateness.p50_ms is not None
    assert lateness.p99_ms is not None
    return lateness.p50_ms, lateness.p99_ms


def test_the_load_is_heavy_tailed() -> None:
    weights = fairness.weights(10_000)
    assert sum(weights) == pytest.approx(1)
    assert weights == sorted(weights, reverse=True)
    assert 0.7 < sum(weights[:2000]) < 0.8


@pytest.mark.parametrize("name", ["normal load", "normal load after a restart"])
def test_every_delivery_is_prompt_without_overload(results: dict[str, Scenario], name: str) -> None:
    normal = results[name]
    assert normal.sent == pytest.approx(normal.offered, rel=0.05)
    assert max(times(lateness)[1] for lateness in normal.lateness) < 100


def test_an_account_that_sends_too_much_delays_itself(results: dict[str, Scenario]) -> None:
    """The other accounts wait for a few batches of 31 ms at most, and nothing of theirs is left over."""
    small, large, biggest = results["overload by the biggest account"].lateness
    assert max(times(small)[1], times(large)[1]) < 200
    assert max(small.waiting, large.waiting) < 100
    assert times(biggest)[0] > 1000
    assert biggest.waiting > 1000


def test_in_overload_small_accounts_wait_less_than_big_ones(results: dict[str, Scenario]) -> None:
    overload = results["overload by all accounts"]
    small, large, biggest = overload.lateness
    assert overload.sent < overload.offered
    assert times(small)[0] < times(large)[0]
    assert times(small)[0] < times(biggest)[0]
    assert small.waiting / (small.deliveries + small.waiting) < large.waiting / (large.deliveries + large.waiting)


def test_deliveries_that_are_never_sent_are_late() -> None:
    """All endpoints wait for their first response, which would come after the end."""
    restarted = fairness.simulate(SCENARIOS[1], 1, 20, Deliverer(221, 30_000))
    small, large, biggest = restarted.lateness
    assert small == (small.accounts, 0, 0, None, None, None)
    assert large == (large.accounts, 0, 0, None, None, None)
    assert biggest.waiting > biggest.deliveries
    assert times(biggest)[0] > 1000


def test_the_same_parameters_give_the_same_result(results: dict[str, Scenario]) -> None:
    offered = SCENARIOS[2]
    assert fairness.simulate(offered, ACCOUNTS, SECONDS, DELIVERER) == results[offered.name]


def test_slow_receivers_use_up_the_slots() -> None:
    assert Deliverer(221, 10).capacity == pytest.approx(128 / 31.288 * 1000, rel=0.001)
    assert Deliverer(221, 1000).capacity == pytest.approx(384 / 1031.288 * 1000, rel=0.001)
