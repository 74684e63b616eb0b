"""The plan for any schedule: close to the schedule, and equal to the attempts that follow."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from gatepost.webhooks import decide, plan
from gatepost.webhooks.decide import Attempted, Exhausted, Receiver, RetryAt
from gatepost.webhooks.plan import Planned

URL = "https://receiver.example"
SCHEDULE = st.lists(st.integers(1, 7 * 86_400), max_size=24)
DELIVERY = st.binary(min_size=16, max_size=16)
TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(SCHEDULE, st.integers(-2, 30), DELIVERY, st.integers(1, 2**31))
def test_a_wait_is_within_a_tenth_of_the_schedules(
    schedule: list[int], used: int, delivery: bytes, number: int
) -> None:
    found = plan.delay(schedule, used, delivery, number)
    if not 1 <= used <= len(schedule):
        assert found is None
        return
    assert found is not None
    assert schedule[used - 1] * 900 <= found <= schedule[used - 1] * 1100
    assert found == plan.delay(schedule, used, delivery, number)


def test_the_jitter_is_spread_evenly() -> None:
    waits = [plan.delay([1000], 1, number.to_bytes(16, "big"), 2) or 0 for number in range(4000)]
    tenths = [sum(900_000 + 20_000 * part <= each < 920_000 + 20_000 * part for each in waits) for part in range(10)]
    assert all(320 <= count <= 480 for count in tenths)


@given(SCHEDULE, st.integers(0, 25), DELIVERY, st.integers(1, 100), st.integers(0, 2))
def test_the_plan_matches_the_attempts(
    schedule: list[int], used: int, delivery: bytes, number: int, interrupted: int
) -> None:
    """When each attempt fails at the moment at which it is made."""
    shown = plan.remaining(schedule, used, delivery, Planned(number, 1_794_729_600_000, "event"))
    happened, receiver = [shown[0]], Receiver(URL, "active", schedule)
    while True:
        at = happened[-1].at
        attempted = Attempted(delivery, happened[-1].number, used, interrupted, URL, 503, None, None, at)
        match decide.after_attempt(attempted, receiver):
            case RetryAt() as again:
                happened.append(Planned(happened[-1].number + 1, again.at, again.because))
                used, interrupted = again.used, again.interrupted
            case end:
                assert end == Exhausted()
                break
    assert happened == shown


@given(
    st.text(max_size=40) | st.integers(-(10**12), 10**12).map(str) | TIMES.map("{:%a, %d %b %Y %H:%M:%S GMT}".format),
    TIMES,
    st.integers(1, 86_400),
)
def test_no_retry_after_is_a_surprise(sent: str, at: datetime, longest: int) -> None:
    found = plan.retry_after(sent, at, longest)
    assert found is None or 0 < found <= longest * 1000
