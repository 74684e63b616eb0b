"""Summaries: durations by buckets, and counts by the hour and the day."""

import random
from typing import Any

import pytest

from gatepost.webhooks import summary
from gatepost.webhooks.deliveries import ENDS
from gatepost.webhooks.summary import CLASSES, Interval, bucket, percentile, summarize, total

DAY = 1_794_700_800 // 86_400 * 86_400
HOUR = 3600


class TestBuckets:
    @pytest.mark.parametrize("duration", [0.1, 0.13, 1.0, 17.3, 250.0, 999.9, 30_000.0])
    def test_a_bucket_is_off_by_at_most_a_tenth(self, duration: float) -> None:
        result = percentile({bucket(duration): 1}, 0.5)
        assert result is not None
        assert abs(result - duration) <= duration * 0.1 + 0.005  # and the rounding

    @pytest.mark.parametrize("duration", [-1.0, 0.0, 0.05, 0.1])
    def test_nothing_is_shorter_than_the_first(self, duration: float) -> None:
        assert bucket(duration) == 0

    def test_longer_is_never_in_an_earlier_one(self) -> None:
        found = [bucket(number / 10) for number in range(1, 5000)]
        assert found == sorted(found)

    def test_percentiles_of_many(self) -> None:
        dice = random.Random(1)
        durations = sorted(dice.expovariate(1 / 80) + 0.2 for _ in range(5000))
        counts: dict[int, int] = {}
        for each in durations:
            counts[bucket(each)] = counts.get(bucket(each), 0) + 1
        for share in (0.5, 0.95, 0.99):
            result, true = percentile(counts, share), durations[int(5000 * share) - 1]
            assert result is not None
            assert abs(result - true) <= true * 0.1 + 0.005

    def test_percentiles_of_few(self) -> None:
        counts = {10: 1, 20: 1}
        assert percentile(counts, 0.5) == pytest.approx(summary.middle(10), abs=0.005)
        assert percentile(counts, 0.51) == pytest.approx(summary.middle(20), abs=0.005)

    def test_percentiles_of_nothing(self) -> None:
        assert percentile({}, 0.5) is None


EMPTY: dict[str, Any] = {
    "deliveries": {"made": 0, "ended": dict.fromkeys(ENDS, 0)},
    "attempts": dict.fromkeys(CLASSES, 0),
    "success_ratio": None,
    "attempt_success_ratio": None,
    "duration_ms": {"p50": None, "p95": None, "p99": None},
}


class TestIntervals:
    def test_nothing_happened(self) -> None:
        assert summarize([], "hour", DAY, DAY + 2 * HOUR) == [
            {"start": "2026-11-15T00:00:00.000Z"} | EMPTY,
            {"start": "2026-11-15T01:00:00.000Z"} | EMPTY,
        ]
        assert total([]) == EMPTY

    def test_everything_happened(self) -> None:
        rows = [
            (DAY, "made", 9), (DAY, "ended delivered", 3), (DAY, "ended attempts_exhausted", 1),
            (DAY, "ended endpoint_removed", 1), (DAY, "attempt 2xx", 3), (DAY, "attempt 5xx", 4),
            (DAY, "attempt none", 2), (DAY, "attempt interrupted", 1), (DAY, "attempt not_sent", 1), (DAY, "ms 30", 5),
        ]  # fmt: skip
        [found] = summarize(rows, "hour", DAY, DAY + HOUR)
        assert found["deliveries"]["made"] == 9
        assert {reason: count for reason, count in found["deliveries"]["ended"].items() if count} == {
            "delivered": 3, "attempts_exhausted": 1, "endpoint_removed": 1,
        }  # fmt: skip
        assert found["attempts"] == dict.fromkeys(CLASSES, 0) | {
            "2xx": 3, "5xx": 4, "none": 2, "interrupted": 1, "not_sent": 1,
        }  # fmt: skip
        assert found["success_ratio"] == 0.6
        assert found["attempt_success_ratio"] == 0.333333
        assert set(found["duration_ms"].values()) == {round(summary.middle(30), 2)}
        assert {"start": found["start"]} | total(rows) == found

    def test_codes_that_are_not_valid_count_as_5xx(self) -> None:
        """Earlier releases have counted them by their first digit."""
        found = total(
            [(DAY, "attempt 2xx", 1), (DAY, "attempt 5xx", 2), (DAY, "attempt 6xx", 3), (DAY, "attempt 9xx", 4)]
        )
        assert found["attempts"] == dict.fromkeys(CLASSES, 0) | {"2xx": 1, "5xx": 9}
        assert found["attempt_success_ratio"] == 0.1

    @pytest.mark.parametrize(("delivered", "failed", "ratio"), [(5, 0, 1.0), (0, 5, 0.0), (1, 2, 0.333333)])
    def test_success_ratio(self, delivered: int, failed: int, ratio: float) -> None:
        rows = [(DAY, "ended delivered", delivered), (DAY, "ended attempts_exhausted", failed)]
        assert total(rows)["success_ratio"] == ratio

    def test_minutes_and_hours_are_summed(self) -> None:
        """Those of the last days are kept by the minute, the older ones by the hour; some are of both."""
        rows = [(DAY + 60 * minute, "made", 1) for minute in range(120)] + [(DAY, "made", 100)]
        assert [each["deliveries"]["made"] for each in summarize(rows, "hour", DAY, DAY + 3 * HOUR)] == [160, 60, 0]
        assert [each["deliveries"]["made"] for each in summarize(rows, "day", DAY, DAY + 1)] == [220]

    def test_percentiles_are_of_all_rows_of_an_interval(self) -> None:
        rows = [(DAY + 60, "ms 10", 98), (DAY + 120, "ms 60", 2)]
        [found] = summarize(rows, "hour", DAY, DAY + HOUR)
        fast, slow = round(summary.middle(10), 2), round(summary.middle(60), 2)
        assert found["duration_ms"] == {"p50": fast, "p95": fast, "p99": slow}

    def test_what_lies_outside_is_left_out(self) -> None:
        rows = [(DAY - 1, "made", 1), (DAY, "made", 2), (DAY + HOUR, "made", 4)]
        assert [each["deliveries"]["made"] for each in summarize(rows, "hour", DAY, DAY + HOUR)] == [2]

    @pytest.mark.parametrize(
        ("interval", "start", "end", "count"),
        [("hour", 0, 1, 1), ("hour", 0, HOUR, 1), ("hour", HOUR - 1, HOUR + 1, 2), ("day", 1, 86_401, 2)],
    )
    def test_intervals_are_whole(self, interval: Interval, start: int, end: int, count: int) -> None:
        found = summarize([], interval, DAY + start, DAY + end)
        assert len(found) == count
        assert found[0]["start"] == "2026-11-15T00:00:00.000Z"
