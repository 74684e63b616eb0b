"""From where a lane is read: no delivery is passed over, and what has ended is not read again."""

from gatepost.webhooks.schedule import Schedule
from gatepost.webhooks.schedule_state import LATE
from tests.unit.scheduling import NOW, end, key, wait_for


class TestPosition:
    def test_a_lane_is_read_from_where_the_last_claim_ended_while_more_is_due(self) -> None:
        schedule = Schedule()
        wait_for(schedule, key(), due=NOW - 60_000)
        [turn] = schedule.turns(NOW)
        assert turn.after == (NOW - 60_000 - LATE, b"")
        last = (NOW - 50_000, b"last")
        schedule.claimed(turn, 1, last, NOW, NOW)
        end(schedule, key(), succeeded=False)
        [turn] = schedule.turns(NOW)
        assert turn.after == last

    def test_a_lane_with_nothing_due_is_read_from_just_before_its_next_delivery(self) -> None:
        schedule = Schedule()
        wait_for(schedule, key(), due=NOW - 60_000)
        [turn] = schedule.turns(NOW)
        schedule.claimed(turn, 1, (NOW - 60_000, b"last"), NOW + 5000, NOW)
        end(schedule, key(), succeeded=False)
        [turn] = schedule.turns(NOW + 5000)
        assert turn.after == (NOW + 5000 - LATE, b"")

    def test_a_delivery_reported_during_a_claim_is_not_passed_over(self) -> None:
        """It was committed after the claim, and is due before the last delivery that was claimed."""
        schedule = Schedule()
        wait_for(schedule, key())
        [turn] = schedule.turns(NOW)
        wait_for(schedule, key(), due=NOW - 3000)
        schedule.claimed(turn, 1, (NOW, b"last"), NOW, NOW)
        end(schedule, key(), succeeded=False)
        [turn] = schedule.turns(NOW)
        assert turn.after == (NOW - 3000 - LATE, b"")

    def test_after_a_failed_claim_a_lane_is_read_from_the_same_position(self) -> None:
        schedule = Schedule()
        wait_for(schedule, key(), due=NOW - 60_000)
        [turn] = schedule.turns(NOW)
        schedule.not_claimed([turn], NOW)
        [again] = schedule.turns(NOW)
        assert again.after == turn.after

    def test_if_all_that_was_read_had_expired_leases_the_same_position_is_read_again(self) -> None:
        schedule = Schedule()
        wait_for(schedule, key(), due=NOW - 60_000)
        [turn] = schedule.turns(NOW)
        schedule.claimed(turn, 0, None, NOW, NOW)
        [again] = schedule.turns(NOW)
        assert again.after == turn.after
