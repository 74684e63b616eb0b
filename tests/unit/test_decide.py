"""The decision after an attempt: for every response, every failure, and interrupted attempts."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from gatepost.core import clock
from gatepost.webhooks import decide, plan
from gatepost.webhooks.decide import (
    Attempted,
    Decision,
    Delivered,
    Exhausted,
    Gone,
    Receiver,
    Released,
    Removed,
    RetryAt,
)
from gatepost.webhooks.deliveries import BECAUSE, ENDS, FAILURES

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
ENDED_AT = clock.milliseconds(NOW)
DELIVERY = b"d" * 16
URL = "https://receiver.example/hooks"
SCHEDULE = [60, 3600]


def attempted(
    code: int | None = 503,
    failure: str | None = None,
    *,
    number: int = 1,
    used: int = 0,
    interrupted: int = 0,
    url: str = URL,
    retry_after: str | None = None,
) -> Attempted:
    return Attempted(DELIVERY, number, used, interrupted, url, code, failure, retry_after, ENDED_AT)


def after(made: Attempted, status: str = "active", schedule: Sequence[int] = SCHEDULE) -> Decision:
    return decide.after_attempt(made, Receiver(URL, status, schedule))


def wait(used: int, number: int) -> int:
    found = plan.delay(SCHEDULE, used, DELIVERY, number)
    assert found is not None
    return found


class TestAnAnswer:
    @pytest.mark.parametrize("code", [200, 201, 202, 204, 226, 299])
    @pytest.mark.parametrize("status", ["active", "disabled", "removed"])
    def test_2xx_is_a_success_in_every_state_of_the_endpoint(self, code: int, status: str) -> None:
        assert after(attempted(code), status) == Delivered()

    @pytest.mark.parametrize("code", [100, 199, 300, 301, 302, 307, 400, 401, 404, 409, 429, 500, 503, 599, None])
    def test_everything_else_follows_the_plan(self, code: int | None) -> None:
        assert after(attempted(code)) == RetryAt(ENDED_AT + wait(1, 2), "schedule", 1)

    @pytest.mark.parametrize("failure", FAILURES)
    @pytest.mark.parametrize("code", [None, 200, 410])
    def test_a_failure_counts_even_after_a_status_code(self, failure: str, code: int | None) -> None:
        """An answer that broke off is no answer."""
        assert after(attempted(code, failure)) == RetryAt(ENDED_AT + wait(1, 2), "schedule", 1)

    def test_the_last_planned_attempt_is_the_last(self) -> None:
        assert after(attempted(number=2, used=1)) == RetryAt(ENDED_AT + wait(2, 3), "schedule", 2)
        assert after(attempted(number=3, used=2)) == Exhausted()
        assert after(attempted(), schedule=[]) == Exhausted()

    def test_a_schedule_that_became_shorter_ends_it(self) -> None:
        assert after(attempted(number=6, used=5)) == Exhausted()

    def test_an_answer_ends_a_row_of_interruptions(self) -> None:
        assert after(attempted(number=3, interrupted=2)) == RetryAt(ENDED_AT + wait(1, 4), "schedule", 1, 0)

    @pytest.mark.parametrize("code", [400, 503, None])
    def test_nothing_is_tried_again_at_a_removed_endpoint(self, code: int | None) -> None:
        assert after(attempted(code), "removed") == Removed()

    def test_a_disabled_endpoint_has_its_plan_all_the_same(self) -> None:
        assert after(attempted(), "disabled") == RetryAt(ENDED_AT + wait(1, 2), "schedule", 1)


class TestGone:
    @pytest.mark.parametrize("status", ["active", "disabled"])
    def test_410_ends_the_delivery(self, status: str) -> None:
        assert after(attempted(410), status) == Gone()

    def test_410_from_an_address_that_the_endpoint_no_longer_has(self) -> None:
        found = after(attempted(410, url="https://old.example/hooks"))
        assert found == RetryAt(ENDED_AT + wait(1, 2), "schedule", 1)

    @pytest.mark.parametrize(
        ("made", "is_gone"),
        [
            (attempted(410), True),
            (attempted(404), False),
            (attempted(410, "body"), False),
            (attempted(410, url="https://old.example/hooks"), False),
        ],
    )
    def test_what_counts_as_gone(self, made: Attempted, is_gone: bool) -> None:
        assert decide.gone(made, Receiver(URL, "active", SCHEDULE)) == is_gone


class TestRetryAfter:
    @pytest.mark.parametrize("code", [429, 503])
    @pytest.mark.parametrize(
        ("sent", "asked"),
        [("600", 600_000), ("315360000", 3_600_000), ("Sun, 15 Nov 2026 09:00:00 GMT", 3_600_000)],
    )
    def test_it_is_kept_beside_the_plan(self, code: int, sent: str, asked: int) -> None:
        """The plan stays as it is: the Retry-After is the endpoint's, and may be lifted."""
        made = attempted(code, retry_after=sent)
        assert decide.asked_not_before(made, Receiver(URL, "active", SCHEDULE)) == ENDED_AT + asked
        decision = after(made)
        assert decision == RetryAt(ENDED_AT + wait(1, 2), "schedule", 1, not_before=ENDED_AT + asked)
        assert isinstance(decision, RetryAt)
        assert decision.planned_at == ENDED_AT + max(asked, wait(1, 2))

    @pytest.mark.parametrize(("most", "asked"), [(1, 1), (600, 600), (7200, 7200), (86_400, 7200)])
    def test_at_most_what_the_endpoint_allows(self, most: int, asked: int) -> None:
        receiver = Receiver(URL, "active", SCHEDULE, most)
        assert decide.asked_not_before(attempted(429, retry_after="7200"), receiver) == ENDED_AT + asked * 1000

    def test_one_from_a_url_that_was_left_means_nothing(self) -> None:
        made = attempted(429, url="https://old.example", retry_after="600")
        assert decide.asked_not_before(made, Receiver(URL, "active", SCHEDULE)) is None

    @pytest.mark.parametrize("sent", ["0", "-600", "soon", "", "Sat, 14 Nov 2026 08:00:00 GMT", None])
    def test_else_the_plan_does(self, sent: str | None) -> None:
        assert after(attempted(retry_after=sent)) == RetryAt(ENDED_AT + wait(1, 2), "schedule", 1)

    @pytest.mark.parametrize("code", [200, 301, 400, 404, 500, 502, 504, None])
    def test_with_other_answers_it_means_nothing(self, code: int | None) -> None:
        made = attempted(code, retry_after="600")
        assert decide.asked_not_before(made, Receiver(URL, "active", SCHEDULE)) is None

    def test_it_gives_no_attempt_that_was_not_planned(self) -> None:
        assert after(attempted(429, used=2, number=3, retry_after="600")) == Exhausted()


class TestAKeptConnectionThatWasClosed:
    CLOSED = attempted(None, "first_byte")._replace(connection_closed=True)

    @pytest.mark.parametrize("used", [0, 1, 2])
    def test_it_is_made_again_at_once_and_uses_up_nothing(self, used: int) -> None:
        made = self.CLOSED._replace(used=used, number=used + 1)
        assert after(made) == RetryAt(ENDED_AT, "connection_closed", used)

    def test_only_once(self) -> None:
        made = self.CLOSED._replace(because="connection_closed")
        assert after(made) == RetryAt(ENDED_AT + wait(1, 2), "schedule", 1)

    def test_not_at_a_removed_endpoint(self) -> None:
        assert after(self.CLOSED, "removed") == Removed()


class TestWaitedFor:
    @pytest.mark.parametrize(
        ("planned_at", "not_before", "resumed_at", "now", "waited_for"),
        [
            (1000, 0, 0, 1000, "plan"),
            (1000, 0, 0, 1001, "window"),
            (1000, 900, 0, 1001, "window"),
            (1000, 1000, 0, 1001, "window"),
            (1000, 1001, 0, 1001, "retry_after"),
            (1000, 5000, 0, 5010, "retry_after"),
            (1000, 1010, 0, 5000, "window"),
            (1000, 0, 900, 1001, "window"),
            (1000, 0, 9000, 9060, "plan"),
            (1000, 0, 1010, 5000, "window"),
            (1000, 2000, 9000, 9060, "plan"),
            (1000, 9300, 9000, 9360, "retry_after"),
        ],
    )
    def test_what_accounts_for_most_of_the_time(
        self, planned_at: int, not_before: int, resumed_at: int, now: int, waited_for: str
    ) -> None:
        assert decide.waited_for(planned_at, not_before, resumed_at, "window", now) == waited_for


class TestInterruption:
    @pytest.mark.parametrize(
        ("interrupted", "used", "decision"),
        [
            (0, 0, RetryAt(ENDED_AT, "interrupted", 0, 1)),
            (1, 0, RetryAt(ENDED_AT, "interrupted", 0, 2)),
            (2, 0, RetryAt(ENDED_AT + wait(1, 6), "interrupted", 1, 0)),
            (1, 2, RetryAt(ENDED_AT, "interrupted", 2, 2)),
            (2, 2, Exhausted()),
        ],
    )
    def test_the_third_in_a_row_uses_up_a_planned_attempt(
        self, interrupted: int, used: int, decision: Decision
    ) -> None:
        receiver = Receiver(URL, "active", SCHEDULE)
        assert decide.after_interruption(DELIVERY, 5, used, interrupted, ENDED_AT, receiver) == decision

    @pytest.mark.parametrize(("status", "ends"), [("disabled", False), ("removed", True)])
    def test_of_an_endpoint_that_stands_still(self, status: str, ends: bool) -> None:
        found = decide.after_interruption(DELIVERY, 1, 0, 0, ENDED_AT, Receiver(URL, status, SCHEDULE))
        assert found == (Removed() if ends else RetryAt(ENDED_AT, "interrupted", 0, 1))

    def test_what_kills_every_worker_is_not_for_ever(self) -> None:
        receiver, used, interrupted, number = Receiver(URL, "active", SCHEDULE), 0, 0, 1
        while isinstance(
            found := decide.after_interruption(DELIVERY, number, used, interrupted, ENDED_AT, receiver), RetryAt
        ):
            used, interrupted, number = found.used, found.interrupted, number + 1
        assert (found, number) == (Exhausted(), 3 * (len(SCHEDULE) + 1))


@pytest.mark.parametrize("code", [None, 200, 404, 429, 500, 503])
@pytest.mark.parametrize("failure", [None, *FAILURES])
def test_what_makes_us_send_one_at_a_time(code: int | None, failure: str | None) -> None:
    """429, and what says that the receiver is not there; not an answer, however bad, nor what we refused ourselves."""
    there = failure in (None, "body", "blocked_target", "redirect")
    assert decide.is_overloaded(code, failure) == (not there or code == 429)


def test_every_reason_has_its_words() -> None:
    outcomes = [attempted(code, retry_after="600") for code in (200, 410, 429, 503, None)]
    found = [after(each, status, schedule) for each in outcomes for status in ("active", "removed")
             for schedule in ([], SCHEDULE)]  # fmt: skip
    assert {each.reason for each in found if not isinstance(each, RetryAt | Released)} <= set(ENDS)
    assert {each.because for each in found if isinstance(each, RetryAt)} <= set(BECAUSE)


class TestNotSent:
    """Each attempt that was not sent has a number, and uses up nothing of the schedule."""

    @pytest.mark.parametrize("status", ["active", "disabled", "removed"])
    @pytest.mark.parametrize("schedule", [[], SCHEDULE])
    def test_it_returns_to_the_queue_in_every_state_of_the_endpoint(self, status: str, schedule: list[int]) -> None:
        made = attempted(None, number=3, used=1, interrupted=2)._replace(sent=False)
        assert after(made, status, schedule) == Released(ENDED_AT, "released", 1, 2)
        assert after(made, status, schedule) == decide.release(1, 2, ENDED_AT)

    def test_the_pause_after_a_shortage_doubles_up_to_a_minute(self) -> None:
        def pause(number: int, used: int) -> int:
            short = attempted(None, number=number, used=used)._replace(sent=False, shortage="files")
            found = after(short)
            assert isinstance(found, Released)
            assert (found.because, found.used, found.planned_at) == ("shortage", used, found.at)
            return found.at - ENDED_AT

        expected = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
        assert [pause(number, 2) for number in range(3, 12)] == expected
        assert pause(10**9, 0) == 60_000

    @pytest.mark.parametrize("status", ["active", "disabled", "removed"])
    @pytest.mark.parametrize("schedule", [[], SCHEDULE])
    def test_a_success_does_not_depend_on_the_endpoint(self, status: str, schedule: list[int]) -> None:
        assert after(attempted(204), status, schedule) == Delivered()


def test_decisions_that_carry_nothing_differ() -> None:
    ends = [Delivered(), Exhausted(), Gone(), Removed()]
    assert all((one == other) == (one is other) for one in ends for other in ends)
