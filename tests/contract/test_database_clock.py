"""On PostgreSQL time is the server's. A step of this machine's wall clock between two measurements changes nothing."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import psycopg
import pytest

from gatepost.core import clock
from gatepost.store import database_clock
from gatepost.store.database_clock import DatabaseClock
from gatepost.store.postgres import PostgresStore
from gatepost.webhooks.fanout import create_deliveries
from tests.contract.backends import FakeClock

HOUR = timedelta(hours=1)
CLOSE = timedelta(minutes=5)  # of a busy machine; a step is twelve times as long


class Stopwatch:
    """A monotonic clock that stands still until a test sets it."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def following(schema_url: str, watch: FakeClock) -> Iterator[PostgresStore]:
    watch.forward(-3 * HOUR)  # this machine's wall clock is wrong from the beginning
    with closing(PostgresStore(schema_url, watch, create_deliveries, follow=True)) as store:
        store.migrate()
        yield store


@pytest.fixture
def database(schema_url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(schema_url, autocommit=True) as found:
        yield found


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_step_of_the_wall_clock_changes_nothing(following: PostgresStore, watch: FakeClock, step: timedelta) -> None:
    assert abs(following.run_now(lambda tx: tx.at) - clock.now()) < CLOSE
    watch.forward(step)
    assert abs(following.now() - clock.now()) < CLOSE
    assert abs(following.run_now(lambda tx: tx.at) - clock.now()) < CLOSE
    assert abs(following.read_now(lambda tx: tx.at) - clock.now()) < CLOSE


def test_a_store_that_does_not_follow_has_the_time_it_is_given(schema_url: str, watch: FakeClock) -> None:
    with closing(PostgresStore(schema_url, watch, create_deliveries)) as store:
        store.migrate()
        assert store.run_now(lambda tx: tx.at) == watch()


def test_time_passes_between_measurements(database: psycopg.Connection[tuple[object, ...]], watch: FakeClock) -> None:
    stopwatch = Stopwatch()
    time = DatabaseClock(watch, follow=True, elapsed=stopwatch)
    assert time.now() == watch()  # nothing was measured yet
    time.measure(database)
    first = time.now()
    assert abs(first - clock.now()) < CLOSE
    stopwatch.seconds += 59
    time.measure(database)  # too soon: the server is not asked
    assert time.now() == first + timedelta(seconds=59)
    stopwatch.seconds += 3600
    time.measure(database)
    assert time.now() < first + CLOSE  # the server's word counts, not what was counted since


def test_a_slow_answer_does_not_replace_a_measurement(
    database: psycopg.Connection[tuple[object, ...]], watch: FakeClock
) -> None:
    readings = iter([0.0, 0.0, 0.0, 100.0, 130.0, 130.0])
    time = DatabaseClock(watch, follow=True, elapsed=lambda: next(readings))
    time.measure(database)
    first = time.now()
    time.measure(database)  # the round trip took 30 s, so the reading is not usable
    assert time.now() == first + timedelta(seconds=130)
    assert database_clock.LONGEST_ROUND_TRIP < 30
