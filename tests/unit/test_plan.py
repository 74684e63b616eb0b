"""The plan: how long each wait is, what is still to come, and what a Retry-After asks for."""

from datetime import UTC, datetime

import pytest

from gatepost.accounts import SETTINGS
from gatepost.webhooks import plan
from gatepost.webhooks.plan import Planned

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)  # a Sunday
DELIVERY = b"d" * 16
DEFAULT: list[int] = SETTINGS["retry_schedule"].default
DAY = 24 * 3600 * 1000


@pytest.mark.parametrize(("used", "longest"), [(1, 5_500), (2, 330_000), (9, 95_040_000)])
def test_a_wait_is_that_of_the_schedule(used: int, longest: int) -> None:
    found = plan.delay(DEFAULT, used, DELIVERY, used + 1)
    assert found is not None
    assert longest * 0.9 / 1.1 <= found <= longest


@pytest.mark.parametrize(
    ("schedule", "used"), [([], 0), ([], 1), ([5], 0), ([5], 2), (DEFAULT, 10), (DEFAULT, -1), (DEFAULT, 0)]
)
def test_where_the_schedule_says_nothing_there_is_no_wait(schedule: list[int], used: int) -> None:
    assert plan.delay(schedule, used, DELIVERY, used + 1) is None


def test_the_jitter_is_of_the_delivery_and_the_number() -> None:
    waits = {(each, number): plan.delay([3600], 1, each, number) for each in (DELIVERY, b"e" * 16) for number in (2, 3)}
    assert len(set(waits.values())) == 4
    assert waits == {key: plan.delay([3600], 1, *key) for key in waits}


def test_a_seconds_jitter_is_in_milliseconds() -> None:
    assert len({plan.delay([1], 1, bytes([each]) * 16, 2) for each in range(100)}) > 50


def test_ten_attempts_are_planned_by_default() -> None:
    found = plan.remaining(DEFAULT, 0, DELIVERY, Planned(1, 1000, "event"))
    assert [each.number for each in found] == list(range(1, 11))
    assert [each.because for each in found] == ["event"] + ["schedule"] * 9
    assert found[0].at == 1000
    assert 68 < (found[-1].at - 1000) / 3_600_000 < 84


@pytest.mark.parametrize(
    ("schedule", "used", "left"),
    [([], 0, 1), ([5], 0, 2), ([5], 1, 1), ([5, 5, 5], 2, 2), ([5], 7, 1), ([5, 5], 0, 3)],
)
def test_what_is_left_is_what_was_not_used(schedule: list[int], used: int, left: int) -> None:
    found = plan.remaining(schedule, used, DELIVERY, Planned(8, 1000, "interrupted"))
    assert [each.number for each in found] == list(range(8, 8 + left))


ASKED: list[tuple[str | None, int | None]] = [
    (None, None), ("", None), (" ", None),
    ("1", 1000), (" 120 ", 120_000), ("0120", 120_000), ("0", None), ("-5", None), ("+5", None), ("1.5", None),
    ("86400", DAY), ("86401", DAY), ("315360000", DAY), ("9" * 64, DAY), ("9" * 5000, None),
    ("1e3", None), ("٣", None), ("1 2", None), ("120, 240", None), ("soon", None), ("\0", None),
    ("Sun, 15 Nov 2026 08:02:00 GMT", 120_000), ("Sun, 15 Nov 2026 10:02:00 +0200", 120_000),
    ("Sunday, 15-Nov-26 08:02:00 GMT", 120_000), ("Sun Nov 15 08:02:00 2026", 120_000),
    ("Mon Dec  7 08:00:00 2026", DAY), ("Sun Nov 15 07:58:00 2026", None), ("Sun, 15 Nov 2026 08:02:00 -0000", 120_000),
    ("Sun, 15 Nov 2026 08:00:00 GMT", None), ("Sat, 14 Nov 2026 08:00:00 GMT", None),
    ("Fri, 15 Nov 2036 08:00:00 GMT", DAY), ("Fri, 31 Dec 9999 23:59:59 GMT", DAY),
    ("Fri, 31 Dec 9999 23:59:59 -2359", DAY), ("Thu, 01 Jan 1970 00:00:00 GMT", None),
    ("Sun, 99 Nov 2026 08:02:00 GMT", None), ("2026-11-15T08:02:00Z", None),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "asked"), ASKED)
def test_retry_after(sent: str | None, asked: int | None) -> None:
    assert plan.retry_after(sent, NOW, 86_400) == asked


@pytest.mark.parametrize("longest", [1, 3600])
def test_a_longer_retry_after_counts_as_the_longest(longest: int) -> None:
    assert plan.retry_after("86400", NOW, longest) == longest * 1000
    assert plan.retry_after("Fri, 15 Nov 2036 08:00:00 GMT", NOW, longest) == longest * 1000


@pytest.mark.parametrize(
    ("not_before", "expected"),
    [(None, (2, 1000, "schedule")), (0, (2, 1000, "schedule")), (1000, (2, 1000, "schedule")),
     (1001, (2, 1001, "retry_after"))],
)  # fmt: skip
def test_the_later_of_plan_and_retry_after_counts(not_before: int | None, expected: tuple[int, int, str]) -> None:
    assert plan.postponed(Planned(2, 1000, "schedule"), not_before) == expected
