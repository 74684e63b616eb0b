"""Whose turn it is: windows, limits, shares and turns, each by itself."""

from collections.abc import Iterable
from itertools import chain, groupby
from typing import Any

import pytest

from gatepost.store.pending import Key
from gatepost.webhooks.queue_rows import Lane
from gatepost.webhooks.schedule import BATCH, Schedule, Turn
from gatepost.webhooks.schedule_state import LATE
from tests.unit.scheduling import MANY, NOW, claim, end, key, limits, wait_for, warm


class TestWindow:
    def test_an_endpoint_starts_with_one(self) -> None:
        schedule = Schedule()
        wait_for(schedule, key())
        assert schedule.turns(NOW) == [Turn(Lane(*key(), 0, NOW), 1, (NOW - LATE, b""), "plan", "window")]
        assert schedule.turns(NOW) == [], "each has one turn"

    def test_a_success_doubles_it_up_to_what_the_endpoint_takes(self) -> None:
        schedule, seen = Schedule(), []
        wait_for(schedule, key())
        for _ in range(6):
            [turn] = schedule.turns(NOW)
            seen.append(turn.limit)
            schedule.set_limits(key(), 12, None)
            claim(schedule, turn)
            end(schedule, key())
            end(schedule, *[key()] * (turn.limit - 1), succeeded=False)
        assert seen == [1, 2, 4, 8, 12, 12]

    @pytest.mark.parametrize(("overloaded", "window"), [(True, 1), (False, 8)])
    def test_an_overloaded_receiver_gets_one_at_a_time(self, overloaded: bool, window: int) -> None:
        schedule = Schedule()
        warm(schedule, [key()], 8)
        wait_for(schedule, key())
        [turn] = schedule.turns(NOW)
        claim(schedule, turn, 1)
        end(schedule, key(), succeeded=False, overloaded=overloaded)
        [turn] = schedule.turns(NOW)
        assert turn.limit == window

    def test_it_is_full_until_one_ends(self) -> None:
        schedule = Schedule()
        warm(schedule, [key()], 4)
        wait_for(schedule, key())
        [turn] = schedule.turns(NOW)
        claim(schedule, turn)
        assert schedule.turns(NOW) == []
        end(schedule, key())
        assert [(turn.limit, turn.waited_for) for turn in schedule.turns(NOW)] == [(1, "window")]

    @pytest.mark.parametrize("claimed", [0, 1])
    def test_a_lane_that_the_other_one_left_no_room_says_what_it_waited_for(self, claimed: int) -> None:
        schedule = Schedule()
        warm(schedule, [key()], 2)
        for lane in (0, 1):
            wait_for(schedule, key(), lane=lane)
        [turn] = schedule.turns(NOW)
        assert (turn.lane.lane, turn.limit, turn.waited_for) == (0, 2, "plan")
        claim(schedule, turn, claimed, None, NOW + 3000)  # fewer than it had room for
        [turn] = schedule.turns(NOW + 3000)
        assert (turn.lane.lane, turn.waited_for) == (1, "window")

    def test_first_attempts_that_never_end_do_not_starve_a_retry(self) -> None:
        schedule, lanes = Schedule(), []
        wait_for(schedule, key())
        wait_for(schedule, key(), lane=1, due=NOW + 5000)
        for second in range(1, 13):  # one attempt a second, and two new deliveries
            now = NOW + second * 1000
            [turn] = schedule.turns(now)
            lanes.append(turn.lane.lane)
            claim(schedule, turn, 1, NOW + second * 500 if turn.lane.lane == 0 else None, now)
            end(schedule, key(), lane=turn.lane.lane, succeeded=False, now=now)
        assert lanes == [0] * 11 + [1]

    def test_a_retry_that_is_due_goes_before_deliveries_that_may_have_been_created(self) -> None:
        """An endpoint that is active again wakes the worker, which then looks for first attempts too."""
        schedule = Schedule()
        schedule.delivery_created(key(), NOW)
        wait_for(schedule, key(), lane=1, due=NOW - 1)
        [turn] = schedule.turns(NOW)
        assert (turn.lane.lane, turn.waited_for) == (1, "plan")

    def test_what_a_claim_left_waited_for_the_window_although_it_has_room_again(self) -> None:
        schedule = Schedule()
        warm(schedule, [key()], 2)
        wait_for(schedule, key())
        [turn] = schedule.turns(NOW)
        end(schedule, key())  # an earlier attempt ends while the claim is committed
        claim(schedule, turn)
        assert [(turn.limit, turn.waited_for) for turn in schedule.turns(NOW)] == [(1, "window")]

    def test_a_claim_that_leaves_nothing_delays_nothing(self) -> None:
        schedule = Schedule()
        warm(schedule, [key()], 4)
        wait_for(schedule, key())
        [turn] = schedule.turns(NOW)
        claim(schedule, turn, 1)
        assert [(turn.limit, turn.waited_for) for turn in schedule.turns(NOW)] == [(3, "plan")]

    def test_a_definition_that_takes_less_counts_at_once(self) -> None:
        schedule = Schedule(32)
        warm(schedule, [key()], 4)
        wait_for(schedule, key())
        [turn] = schedule.turns(NOW)
        schedule.set_limits(key(), 1, None)
        claim(schedule, turn, left=None)
        end(schedule, *[key()] * 4)
        others = [key(number, 1) for number in range(1, 9)]
        wait_for(schedule, *others)
        assert len(schedule.turns(NOW)) == 4, "half of the quarter for those at one, counted right"


class TestRateLimit:
    def test_a_tenth_of_a_second_can_gather(self) -> None:
        schedule = Schedule()
        warm(schedule, [key()], 64, rate=100)
        wait_for(schedule, key(), now=NOW + MANY)
        [turn] = schedule.turns(NOW + MANY)
        assert turn.limit == 10
        claim(schedule, turn, now=NOW + MANY)
        assert schedule.turns(NOW + MANY) == []
        assert schedule.next_at() == NOW + MANY + 11
        [turn] = schedule.turns(NOW + MANY + 50)
        assert (turn.limit, turn.waited_for) == (5, "rate_limit")

    def test_what_was_not_there_to_claim_is_not_counted(self) -> None:
        schedule = Schedule()
        warm(schedule, [key()], 64, rate=100)
        wait_for(schedule, key(), now=NOW + MANY)
        claim(schedule, schedule.turns(NOW + MANY)[0], 3, now=NOW + MANY)
        assert [turn.limit for turn in schedule.turns(NOW + MANY)] == [7]

    def test_it_holds_for_one_that_has_little_to_send(self) -> None:
        schedule, sent = Schedule(), 0
        for now in range(NOW, NOW + 10_000, 50):
            schedule.delivery_created(key(), now)
            for turn in schedule.turns(now):
                schedule.set_limits(key(), 1, 1)
                claim(schedule, turn, left=None, now=now)
                end(schedule, key(), now=now)
                sent += 1
        assert 9 <= sent <= 11


class TestWaiting:
    def test_what_is_not_due_has_no_turn(self) -> None:
        schedule = Schedule()
        wait_for(schedule, key(), lane=1, due=NOW + 5000)
        assert (schedule.turns(NOW), schedule.next_at()) == ([], NOW + 5000)
        assert schedule.turns(NOW + 4999) == []
        assert [turn.lane.lane for turn in schedule.turns(NOW + 5000)] == [1]

    def test_what_comes_earlier_counts(self) -> None:
        schedule = Schedule()
        for due in (9000, 3000, 6000):
            schedule.retry_planned(key(), NOW + due, NOW)
        assert schedule.next_at() == NOW + 3000

    def test_looking_often_costs_nothing(self) -> None:
        schedule = Schedule()
        for now in range(NOW, NOW + 1000):
            wait_for(schedule, key(), lane=1, due=NOW + MANY, now=now)
        assert len(schedule._checks) == 1

    def test_retries_beside_one_that_is_far_off_leave_nothing_behind(self) -> None:
        schedule = Schedule()
        schedule.retry_planned(key(), NOW + 86_400_000, NOW)
        for now in range(NOW, NOW + 1_000_000, 1000):
            schedule.retry_planned(key(), now + 500, now)
            [turn] = schedule.turns(now + 500)
            claim(schedule, turn, 1, NOW + 86_400_000, now + 500)
            end(schedule, key(), lane=1, succeeded=False, now=now + 500)
        assert len(schedule._checks) == 1

    @pytest.mark.parametrize("already_in_line", [False, True])
    def test_an_endpoint_that_asked_us_to_wait(self, already_in_line: bool) -> None:
        schedule = Schedule()
        if already_in_line:
            wait_for(schedule, key())
        schedule.postpone(key(), NOW + 5000)
        schedule.postpone(key(), NOW + 1000)
        wait_for(schedule, key())
        assert schedule.turns(NOW + 4999) == []
        assert schedule.next_at() == NOW + 5000
        assert [turn.waited_for for turn in schedule.turns(NOW + 5000)] == ["retry_after"]

    def test_a_retry_after_later_than_the_plan_is_what_is_waited_for(self) -> None:
        schedule = Schedule()
        schedule.postpone(key(), NOW + 5000)
        schedule.retry_planned(key(), NOW + 1000, NOW)
        assert schedule.turns(NOW) == []
        assert schedule.next_at() == NOW + 5000
        assert [turn.waited_for for turn in schedule.turns(NOW + 5000)] == ["retry_after"]

    def test_what_the_store_has_of_retry_afters_replaces_what_was_believed(self) -> None:
        """One was lifted, another was set by another worker."""
        schedule = Schedule()
        schedule.postpone(key(0, 0), NOW + 5000)
        schedule.set_retry_afters({key(0, 1): NOW + 7000})
        for each in (key(0, 0), key(0, 1)):
            wait_for(schedule, each)
        assert [turn.lane[:2] for turn in schedule.turns(NOW)] == [key(0, 0)]
        assert schedule.next_at() == NOW + 7000

    def test_a_claim_that_finds_a_retry_after_is_believed(self) -> None:
        schedule = Schedule()
        wait_for(schedule, key())
        [turn] = schedule.turns(NOW)
        schedule.claimed(turn, 0, None, NOW, NOW, NOW + 5000)
        assert (schedule.in_flight, schedule.turns(NOW), schedule.next_at()) == (0, [], NOW + 5000)

    def test_one_that_stands_still_is_looked_at_again_in_a_second(self) -> None:
        schedule = Schedule()
        warm(schedule, [key()], 8)
        wait_for(schedule, key())
        [turn] = schedule.turns(NOW)
        schedule.endpoint_inactive(turn, NOW)
        assert schedule.in_flight == 0
        assert schedule.turns(NOW + MANY) == [], "nothing of it is due, until it is found again"
        wait_for(schedule, key(), now=NOW)
        assert schedule.turns(NOW + 999) == []
        assert [turn.limit for turn in schedule.turns(NOW + 1000)] == [1], "it starts at one again"

    def test_what_is_heard_of_during_a_claim_is_not_lost(self) -> None:
        """The claim may have been made before the delivery was."""
        schedule = Schedule()
        wait_for(schedule, key())
        [turn] = schedule.turns(NOW)
        schedule.delivery_created(key(), NOW + 1)
        claim(schedule, turn, left=None, now=NOW + 2)
        end(schedule, key(), now=NOW + 3)
        assert [turn.lane.lane for turn in schedule.turns(NOW + 3)] == [0]

    def test_what_the_store_did_not_answer_comes_up_again(self) -> None:
        schedule = Schedule()
        wait_for(schedule, key(), key(1))
        turns = schedule.turns(NOW)
        schedule.not_claimed(turns, NOW)
        assert schedule.in_flight == 0
        assert schedule.turns(NOW) == turns

    def test_an_endpoint_whose_claims_fail_is_tried_less_and_less_often(self) -> None:
        schedule = Schedule()
        wait_for(schedule, key(), key(1))
        first, other = schedule.turns(NOW)
        claim(schedule, other, left=None)
        now, pauses = NOW, []
        for _ in range(8):
            schedule.endpoint_inactive(first, now, failed=True)
            schedule.delivery_created(key(), now)
            assert schedule.turns(now) == []
            pauses.append((schedule.next_at() or 0) - now)
            now += pauses[-1]
            [first] = schedule.turns(now)
        assert pauses == [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
        claim(schedule, first, left=None, now=now)
        end(schedule, key(), now=now)
        schedule.delivery_created(key(), now)
        [first] = schedule.turns(now)
        schedule.endpoint_inactive(first, now, failed=True)
        schedule.delivery_created(key(), now)
        assert schedule.next_at() == now + 2_000

    def test_after_forgetting_only_what_is_in_flight_counts(self) -> None:
        schedule = Schedule(16)
        wait_for(schedule, key(), key(1))
        claim(schedule, schedule.turns(NOW)[0])
        schedule.reset()
        assert schedule.turns(NOW) == []
        wait_for(schedule, key(), key(2), key(3))
        assert schedule.in_flight == 2, "one is claimed, one about to be"
        assert schedule.turns(NOW) == [], "and they are what an account has of the quarter of those at one"

    def test_after_forgetting_it_is_known_again_when_to_look(self) -> None:
        schedule = Schedule()
        wait_for(schedule, key())
        claim(schedule, schedule.turns(NOW)[0], left=NOW + 5000)
        schedule.reset()
        assert schedule.next_at() is None
        wait_for(schedule, key(), due=NOW + 5000)
        assert schedule.next_at() == NOW + 5000


class TestTurns:
    def test_by_account_then_by_endpoint(self) -> None:
        schedule = Schedule()
        wait_for(schedule, *(key(number, 1) for number in range(3)), key(0, 2), key(0, 3), key(1, 3))
        order = [(turn.lane.account[0], turn.lane.endpoint[-1]) for turn in schedule.turns(NOW)]
        assert order == [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (3, 1)]

    def test_an_account_has_many_of_its_endpoints_in_one_turn(self) -> None:
        """With ten accounts a fair share of a batch would be a dozen, each a row far from the next."""
        schedule, order = Schedule(512), []
        keys = [key(endpoint, account) for account in range(10) for endpoint in range(10)]
        warm(schedule, keys, 64)
        wait_for(schedule, *keys)
        schedule.turns(NOW, 1)  # from here on all of them are in the ring
        for _ in range(5):
            turns = schedule.turns(NOW, 128)
            assert {turn.limit for turn in turns[:5]} == {12}
            order.append([account for account, _ in groupby(turn.lane.account[0] for turn in turns)])
            for turn in turns:
                claim(schedule, turn)
                end(schedule, *[(turn.lane.account, turn.lane.endpoint)] * turn.limit)
        assert order == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 0]]

    def test_who_comes_anew_does_not_wait_for_those_turns(self) -> None:
        schedule = Schedule()
        greedy = [key(endpoint, account) for account in range(2) for endpoint in range(10)]
        warm(schedule, greedy, 64)
        wait_for(schedule, *greedy)
        schedule.turns(NOW, 1)
        anew = [key(0, account) for account in range(2, 10)]
        wait_for(schedule, *anew)
        turns = schedule.turns(NOW, 12)
        assert [turn.lane.account[0] for turn in turns] == [2, 3, 4, 5, 6, 7, 1], "half is for those in the ring"
        assert {turn.lane.account[0] for turn in schedule.turns(NOW, 12)} == {0}, "the others wait for one turn of each"
        assert [turn.lane.account[0] for turn in schedule.turns(NOW, 12)][:2] == [8, 9]

    def test_who_had_a_turn_is_not_anew_until_it_would_be_its_turn_again(self) -> None:
        schedule, greedy, modest = Schedule(), [key(0, account) for account in range(3)], key(0, 9)
        warm(schedule, greedy, 64)
        wait_for(schedule, *greedy)
        order = []
        for _ in range(12):
            for turn in schedule.turns(NOW, 2):
                order.append(turn.lane.account[0])
                claim(schedule, turn)
                end(schedule, *[(turn.lane.account, turn.lane.endpoint)] * turn.limit, succeeded=False)
            wait_for(schedule, modest)  # it is the only one with nothing under way, each time
        assert order[1:9] == [9, 1, 2, 0] * 2

    def test_who_had_none_is_first_the_next_time(self) -> None:
        schedule, order = Schedule(), []
        wait_for(schedule, *(key(0, account) for account in range(5)))
        for _ in range(4):
            for turn in schedule.turns(NOW, 2):
                order.append(turn.lane.account[0])
                claim(schedule, turn)
                end(schedule, (turn.lane.account, turn.lane.endpoint), succeeded=False)
        assert order == [0, 1, 2, 3, 4, 0, 1, 2]

    def test_who_is_passed_over_keeps_its_place(self) -> None:
        schedule = Schedule(4)
        busy, waiting, healthy = key(0, 1), key(0, 2), [key(0, 3), key(1, 3)]
        warm(schedule, healthy, 2)
        wait_for(schedule, busy)
        claim(schedule, schedule.turns(NOW)[0], left=None)
        wait_for(schedule, waiting, *healthy)
        assert limits(schedule.turns(NOW, 1)) == {healthy[0]: 1}, "those at one have their quarter"
        end(schedule, busy)
        assert limits(schedule.turns(NOW, 1)) == {waiting: 1}

    def test_a_batch_is_shared_among_accounts(self) -> None:
        schedule = Schedule()
        keys = [key(0, account) for account in range(4)]
        warm(schedule, keys, 256)
        wait_for(schedule, *keys)
        assert limits(schedule.turns(NOW)) == dict.fromkeys(keys, BATCH // 4)

    def test_who_waits_for_the_others_says_so(self) -> None:
        schedule = Schedule()
        wait_for(schedule, key(0, 1), key(0, 2))
        schedule.turns(NOW, 1)
        assert [turn.waited_for for turn in schedule.turns(NOW, 1)] == ["turn"]


def in_flight(schedule: Schedule, keys: Iterable[Key], lane: int = 0) -> dict[Key, int]:
    """What each has in flight when it always has more to send, in this lane."""
    found = dict.fromkeys(keys, 0)
    wait_for(schedule, *found, lane=lane)
    while turns := schedule.turns(NOW):
        for turn in turns:
            found[turn.lane.account, turn.lane.endpoint] += turn.limit
            claim(schedule, turn)
    return found


class TestShares:
    def test_nothing_goes_beyond_the_slots(self) -> None:
        schedule = Schedule(16)
        keys = [key(number, number) for number in range(20)]
        warm(schedule, keys, 4)
        assert sum(in_flight(schedule, keys).values()) == 12
        assert sum(in_flight(schedule, keys, lane=1).values()) == 4
        assert schedule.in_flight == 16

    def test_an_endpoint_has_half(self) -> None:
        schedule = Schedule(16)
        warm(schedule, [key()], 8)
        schedule.set_limits(key(), 1000, None)
        wait_for(schedule, key())
        for _ in range(5):
            for turn in schedule.turns(NOW):
                claim(schedule, turn)
                end(schedule, *[key()] * turn.limit)
        assert in_flight(schedule, [key()]) == {key(): 8}

    @pytest.mark.parametrize("lanes", [(0, 1), (1, 0)])
    def test_an_account_has_three_quarters(self, lanes: tuple[int, int]) -> None:
        schedule = Schedule(16)
        keys = [key(number) for number in range(8)]
        warm(schedule, [*keys, key(0, 1), key(0, 2)], 4)
        for lane in lanes:
            in_flight(schedule, keys, lane)
        assert schedule.in_flight == 12
        assert in_flight(schedule, [key(0, 1)], lanes[1]) == {key(0, 1): 2}, "as many as it leaves free"
        assert in_flight(schedule, [key(0, 2)], lanes[1]) == {key(0, 2): 1}

    @pytest.mark.parametrize("accounts", range(5))
    def test_accounts_with_large_windows_leave_room_for_the_next(self, accounts: int) -> None:
        schedule = Schedule()
        hanging = [[key(number, account) for number in range(4)] for account in range(accounts)]
        newcomer = key(0, accounts)
        warm(schedule, [*chain(*hanging), newcomer], 256)
        for keys in hanging:
            in_flight(schedule, keys)
        wait_for(schedule, newcomer)
        [turn] = schedule.turns(NOW)
        assert (turn.lane[:2], turn.lane.lane) == (newcomer, 0)

    @pytest.mark.parametrize("lane", [0, 1])
    def test_first_attempts_and_retries_have_three_quarters_each(self, lane: int) -> None:
        schedule = Schedule(16)
        keys = [key(0, account) for account in range(8)]
        warm(schedule, keys, 4)
        in_flight(schedule, keys, lane)
        assert schedule.in_flight == 12
        in_flight(schedule, keys, 1 - lane)
        assert schedule.in_flight == 16

    def test_endpoints_at_one_share_a_quarter(self) -> None:
        schedule = Schedule(16)
        healthy, never = key(0, 1), [key(number, 2 + number) for number in range(32)]
        warm(schedule, [healthy], 8)
        assert sum(in_flight(schedule, never).values()) == 4
        assert in_flight(schedule, [healthy]) == {healthy: 6}, "two are for others"

    def test_no_account_takes_all_of_that_quarter(self) -> None:
        schedule = Schedule(512)
        silent, other = [key(number, 1) for number in range(200)], key(0, 2)
        assert sum(in_flight(schedule, silent).values()) == 56
        assert in_flight(schedule, [other]) == {other: 1}

    @pytest.mark.parametrize("accounts", [2, 5, 20])
    def test_accounts_whose_receivers_hang_leave_room_for_the_next(self, accounts: int) -> None:
        schedule = Schedule()
        silent = [key(number, 1 + number % accounts) for number in range(100 * accounts)]
        hanging = [each for each, count in in_flight(schedule, silent).items() if count]
        other = key(0, 200)
        for _ in range(3):  # timeouts make room for the next of theirs
            wait_for(schedule, other)
            [turn] = schedule.turns(NOW)
            assert turn.lane[:2] == other
            claim(schedule, turn, 1, None)
            end(schedule, other, succeeded=False, overloaded=True)
            end(schedule, *hanging, succeeded=False, overloaded=True)
            wait_for(schedule, *silent)
            hanging = []
            while turns := schedule.turns(NOW):
                for turn in turns:
                    claim(schedule, turn, 1, None)
                    hanging.append(turn.lane[:2])
            assert len(hanging) > 64
            assert len({account for account, _ in hanging}) == accounts

    def test_of_those_at_one_each_has_its_turn(self) -> None:
        schedule, order = Schedule(16), []
        keys = [key(number, number) for number in range(12)]
        wait_for(schedule, *keys)
        for _ in range(3):
            for turn in schedule.turns(NOW):
                order.append(turn.lane.account[0])
                claim(schedule, turn, left=None)
            end(schedule, *keys[len(order) - 4 : len(order)], succeeded=False, overloaded=True)
        assert order == list(range(12))


class TestParking:
    """Endpoints that wait for a full share are not examined again before it has room."""

    @staticmethod
    def sending(schedule: Schedule, keys: Iterable[Key]) -> list[Key]:
        """Let endpoints send as much as they can, and return those that have attempts in flight."""
        return [each for each, count in in_flight(schedule, keys).items() if count]

    @staticmethod
    def examined(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> int:
        """Return how many endpoints the next batch examines."""
        found: list[Key] = []
        can_send = Schedule._can_send

        def counted(self: Schedule, endpoint: Any, now: int) -> bool:
            found.append(endpoint.key)
            return can_send(self, endpoint, now)

        with monkeypatch.context() as patched:
            patched.setattr(Schedule, "_can_send", counted)
            schedule.turns(NOW)
        return len(found)

    def test_those_at_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        schedule = Schedule(16)
        sent = self.sending(schedule, [key(number, number % 200) for number in range(5000)])
        assert len(sent) == 4
        for _ in range(3):  # a batch parks a limited number
            schedule.turns(NOW)
        assert self.examined(schedule, monkeypatch) == 0
        end(schedule, sent[0], succeeded=False)
        assert self.examined(schedule, monkeypatch) == 2  # the next one, and the one that has room again

    def test_those_whose_lane_is_full(self, monkeypatch: pytest.MonkeyPatch) -> None:
        schedule = Schedule(16)
        busy = [key(number, number) for number in range(8)]
        others = [key(number, number) for number in range(8, 250)]
        warm(schedule, [*busy, *others], 8)
        assert sum(in_flight(schedule, busy).values()) == 12
        wait_for(schedule, *others)
        assert schedule.turns(NOW) == []
        assert self.examined(schedule, monkeypatch) == 0
        served: set[Key] = set()
        end(schedule, *busy[:1] * 4)
        for _ in range(len(others) + 2):
            for turn in schedule.turns(NOW):
                served.add(turn.lane[:2])
                claim(schedule, turn, 1, None)
                end(schedule, turn.lane[:2])
        assert served >= set(others)

    @pytest.mark.parametrize("window", [1, 8])
    def test_those_whose_account_has_its_share(self, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
        schedule = Schedule(16)
        busy, others, one = [key(0), key(1)], [key(number) for number in range(2, 250)], key(0, 1)
        warm(schedule, [*busy, one], 8)
        if window > 1:
            warm(schedule, others, window)
        in_flight(schedule, busy[:1])
        in_flight(schedule, busy[1:], lane=1)
        assert schedule.in_flight == 12, "in both lanes, of which none is full"
        wait_for(schedule, *others)
        assert schedule.turns(NOW) == []
        assert self.examined(schedule, monkeypatch) == 0
        wait_for(schedule, one)
        assert limits(schedule.turns(NOW)) == {one: 2}
        end(schedule, busy[0], succeeded=False)
        assert [turn.lane.account for turn in schedule.turns(NOW)] == [others[0][0]]

    @pytest.mark.parametrize("due", [NOW, NOW + 5])
    def test_a_retry_does_not_wait_for_first_attempts(self, due: int) -> None:
        schedule = Schedule(16)
        busy, one = [key(number, number) for number in range(8)], key(9, 9)
        warm(schedule, [*busy, one], 8)
        assert sum(in_flight(schedule, busy).values()) == 12
        wait_for(schedule, one)
        assert schedule.turns(NOW) == []
        schedule.retry_planned(one, due, NOW)
        if due > NOW:
            assert schedule.turns(NOW) == []
            assert schedule.next_at() == due
        assert [(turn.lane[:2], turn.lane.lane) for turn in schedule.turns(due)] == [(one, 1)]

    def test_those_that_have_left_do_not_hide_the_others(self) -> None:
        schedule = Schedule(64)
        busy, left, one = [key(0, n) for n in range(9)], [key(0, n) for n in range(10, 15)], key(0, 20)
        warm(schedule, [*busy, *left, one], 8)
        assert sum(in_flight(schedule, busy).values()) == 48
        wait_for(schedule, *left, one)
        assert schedule.turns(NOW) == []
        for each in left:
            schedule.retry_planned(each, NOW, NOW)
        for turn in schedule.turns(NOW):
            claim(schedule, turn, 1, None)
        end(schedule, busy[0])
        assert schedule.turns(NOW)[0].lane == Lane(*one, 0, NOW)

    def test_accounts_take_turns(self) -> None:
        schedule = Schedule(16)
        sent = self.sending(schedule, [key(number, number) for number in range(4)])
        wait_for(schedule, *[key(number, account) for account in (5, 6) for number in range(20)])
        assert schedule.turns(NOW) == []
        served = []
        for each in sent:
            end(schedule, each, succeeded=False)
            while turns := schedule.turns(NOW):
                served += [turn.lane.account[0] for turn in turns]
                for turn in turns:
                    claim(schedule, turn, 1, None)
        assert served == [5, 6, 0, 1]

    def test_they_are_forgotten_with_the_rest(self) -> None:
        schedule = Schedule(16)
        keys = [key(number, number) for number in range(12)]
        sent = self.sending(schedule, keys)
        schedule.reset()
        end(schedule, *sent, succeeded=False)
        assert schedule.turns(NOW) == []
        wait_for(schedule, *keys)
        assert len(schedule.turns(NOW)) == 4


class TestWell:
    def test_it_is_believed_for_ten_seconds(self) -> None:
        schedule = Schedule()
        assert schedule.healthy([key()], NOW) == frozenset()
        schedule.failures_cleared([key()], NOW)
        assert schedule.healthy([key(), key(1)], NOW + 9999) == {key()}
        assert schedule.healthy([key()], NOW + 10_000) == frozenset()

    def test_until_something_fails_and_not_soon_after(self) -> None:
        """The failure may be settled together with a success that came before it, or after that."""
        schedule = Schedule()
        wait_for(schedule, key())
        claim(schedule, schedule.turns(NOW)[0])
        schedule.failures_cleared([key()], NOW)
        end(schedule, key(), succeeded=False)
        for now in (NOW, NOW + 1, NOW + 9999, NOW + 10_000):
            assert schedule.healthy([key()], now) == frozenset()
            schedule.failures_cleared([key()], now)
        assert schedule.healthy([key()], NOW + 10_001) == {key()}

    def test_not_before_a_commit(self) -> None:
        """The commit of the first success may fail. Then the next success has to clear the failures."""
        schedule = Schedule()
        assert schedule.healthy([key()], NOW) == frozenset()
        assert schedule.healthy([key()], NOW + 1) == frozenset()

    def test_until_a_commit_fails(self) -> None:
        schedule = Schedule()
        schedule.failures_cleared([key()], NOW)
        schedule.not_claimed([], NOW)
        assert schedule.healthy([key()], NOW) == frozenset()
