"""Instants have one stored form and one text form."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from gatepost.core import clock


@pytest.mark.parametrize(
    ("instant", "milliseconds", "seconds", "shown"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0, 0, "1970-01-01T00:00:00.000Z"),
        (datetime(2026, 11, 15, 8, 5, 9, tzinfo=UTC), 1_794_729_909_000, 1_794_729_909, "2026-11-15T08:05:09.000Z"),
        (datetime(2026, 11, 15, 8, 5, 9, 999_999, tzinfo=UTC), 1_794_729_909_999, 1_794_729_909,
         "2026-11-15T08:05:09.999Z"),
        (datetime(2026, 11, 15, 8, 5, 9, 1_000, tzinfo=UTC), 1_794_729_909_001, 1_794_729_909,
         "2026-11-15T08:05:09.001Z"),
    ],
)  # fmt: skip
def test_what_is_finer_than_its_form_is_cut_not_rounded(
    instant: datetime, milliseconds: int, seconds: int, shown: str
) -> None:
    assert clock.milliseconds(instant) == milliseconds
    assert clock.seconds(instant) == seconds
    assert clock.rfc3339(instant) == shown


def test_now_is_aware_utc() -> None:
    assert clock.now().tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-11-15T08:00:00Z", datetime(2026, 11, 15, 8, tzinfo=UTC)),
        ("2026-11-15 08:00:00Z", datetime(2026, 11, 15, 8, tzinfo=UTC)),
        ("2026-11-15T08:00:00.250Z", datetime(2026, 11, 15, 8, 0, 0, 250_000, tzinfo=UTC)),
        ("2026-11-15T08:00:00+02:00", datetime(2026, 11, 15, 6, tzinfo=UTC)),
        ("2026-11-15T23:30:00-01:00", datetime(2026, 11, 16, 0, 30, tzinfo=UTC)),
        ("2026-11-15t08:00:00z", datetime(2026, 11, 15, 8, tzinfo=UTC)),
        ("2016-12-31T23:59:60Z", datetime(2016, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        ("1990-12-31T15:59:60.25-08:00", datetime(1990, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        ("2026-11-15T08:00:00.2Z", datetime(2026, 11, 15, 8, 0, 0, 200_000, tzinfo=UTC)),
        ("2026-11-15T08:00:00.123456789Z", datetime(2026, 11, 15, 8, 0, 0, 123_456, tzinfo=UTC)),
        ("2026-11-15T08:00:00-00:00", datetime(2026, 11, 15, 8, tzinfo=UTC)),
    ],
)
def test_offsets_are_turned_into_utc(text: str, instant: datetime) -> None:
    found = clock.parse_rfc3339(text)
    assert found == instant
    assert found is not None
    assert found.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "2026-11-15", "2026-11-15T08:00:00", "2026-02-30T00:00:00Z", "2026-11-15T25:00:00Z",
        "2026-11-15T08:00:00+24:00", "1794729909",
        "2026-11-15T08:00:60Z", "2016-12-31T23:59:61Z", "2016-12-31T23:59:60", "2016-12-31T23:59:60.Z.1",
        "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01",
        # ISO 8601, but not RFC 3339
        "20261115T080000Z", "2026-11-15T080000Z", "2026-W46-7T08:00:00Z", "2026W467T08:00:00Z", "2026-319T08:00:00Z",
        "2026-11-15T08:00:00,5Z", "2026-11-15T08:00:00.Z", "2026-11-15T08:00Z", "2026-11-15T08Z",
        "2026-11-15T24:00:00Z", "2026-11-15T08:00:00+02", "2026-11-15T08:00:00+0200", "2026-11-15T08:00:00+00:00:30",
        "2026-11-15T08:00:00+00:60", "2016-12-31T23:59:60+0000", "20161231T235960Z",
        # neither
        "2026-11-15  08:00:00Z", "2026-11-15_08:00:00Z", "2026-11-15T08:00:00 Z", "2026-11-15T08:00:00Z\n",
        "２０２６-11-15T08:00:00Z",
    ],
)  # fmt: skip
def test_what_is_no_instant_is_none(text: str) -> None:
    assert clock.parse_rfc3339(text) is None


def test_an_instant_of_another_zone_is_stored_as_the_same_instant() -> None:
    there = datetime(2026, 11, 15, 8, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert clock.from_milliseconds(clock.milliseconds(there)) == there
