"""The days of an archive."""

from datetime import UTC, date, datetime, timedelta

import pytest

from gatepost.archive import manifest
from gatepost.archive.manifest import Period
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting

DAY = timedelta(days=1)


def test_a_period_ends_with_a_day_that_has_ended() -> None:
    now = datetime(2026, 11, 17, 0, 10, tzinfo=UTC)
    today = now.date()
    assert manifest.period(None, None, now) == Period(None, today - DAY)
    assert manifest.period(None, None, now + timedelta(minutes=5)) == Period(None, today)
    with pytest.raises(BadSetting, match="the day before has not ended"):
        manifest.period(None, today, now)
    with pytest.raises(BadSetting, match="must be earlier than --before"):
        manifest.period(today - DAY, today - DAY, now)


def test_days_are_written_in_one_way() -> None:
    assert manifest.parse_day("--after", "2026-11-01") == date(2026, 11, 1)
    for text in ("20261101", "2026-11-31", "yesterday", "2026-11-01T00:00:00Z", ""):
        with pytest.raises(BadSetting, match=r"--after .*: not a day"):
            manifest.parse_day("--after", text)
    with pytest.raises(BadSetting, match="too early"):
        manifest.parse_day("--after", "1969-12-31")


def test_the_ids_of_a_period_are_those_of_its_days() -> None:
    first, end = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 3, tzinfo=UTC)
    after, before = Period(first.date(), end.date()).id_range()
    assert after < ids.lowest_at(clock.milliseconds(first)) < before
    assert ids.made_at(after) < first
    assert ids.lowest_at(clock.milliseconds(end)) == before
    assert Period(date(1970, 1, 1), end.date()).id_range() == Period(None, end.date()).id_range()
