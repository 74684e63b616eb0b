"""Instants keep their value when they are stored and formatted, to the millisecond."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from gatepost.core import clock

INSTANT = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001


@given(INSTANT)
def test_stored_and_shown_are_the_same_instant(at: datetime) -> None:
    stored = clock.from_milliseconds(clock.milliseconds(at))
    assert timedelta(0) <= at - stored < timedelta(milliseconds=1)
    assert clock.parse_rfc3339(clock.rfc3339(at)) == stored


@given(INSTANT, INSTANT)
def test_order_is_kept(one: datetime, other: datetime) -> None:
    assert (clock.milliseconds(one) <= clock.milliseconds(other)) or one > other
    assert (clock.rfc3339(one) <= clock.rfc3339(other)) or one > other


@given(st.text())
def test_no_text_makes_it_raise(text: str) -> None:
    found = clock.parse_rfc3339(text)
    assert found is None or found.tzinfo is UTC
