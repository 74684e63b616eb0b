"""The schedule beside a queue that it never sees: limits hold at every step, and nothing waits for ever."""

from itertools import groupby
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gatepost.store.pending import Key
from gatepost.webhooks.queue_rows import Lane
from gatepost.webhooks.schedule import Schedule, Turn

LEASE = 45_000
SUCCEEDED = {"succeeded": True, "overloaded": False}
OUTCOMES = st.sampled_from(
    [SUCCEEDED, SUCCEEDED, {"succeeded": False, "overloaded": False}, {"succeeded": False, "overloaded": True}]
)


def key(account: int, endpoint: int) -> Key:
    return bytes([account]) * 16, bytes([endpoint]) * 16


KEYS = [key(account, endpoint) for account in range(3) for endpoint in range(3)]
RATES = dict(zip(KEYS, [None, 1, 20] * 3, strict=True))


class Attempt(NamedTuple):
    key: Key
    lane: int
    id: bytes


class Model:
    """What the schedule should know of one endpoint, and how it is defined."""

    def __init__(self) -> None:
        self.window = 1
        self.max_in_flight = 4
        self.told = 1  # of max_in_flight, at the last claim
        self.not_before = 0
        self.inactive_until = 0
        self.active = True
        self.allowance = 2.0
        self.allowance_at = 0


class Turns(RuleBasedStateMachine):
    """A worker's view: the queue, what is in flight, and a schedule that hears of some of it."""

    @initialize(slots=st.sampled_from([4, 8, 16]))
    def start(self, slots: int) -> None:
        self.slots = slots
        self.schedule = Schedule(slots)
        self.now = 1_000_000
        self.queue: dict[tuple[Key, int], dict[bytes, int]] = {(each, lane): {} for each in KEYS for lane in (0, 1)}
        self.open: set[tuple[Key, bytes]] = set()  # rows with an attempt open
        self.flying: list[Attempt] = []
        self.turns: list[Turn] = []
        self.models = {each: Model() for each in KEYS}
        self.made = 0

    # --- what happens elsewhere

    @rule(endpoint=st.sampled_from(KEYS), count=st.integers(1, 12), told=st.booleans())
    def publish(self, endpoint: Key, count: int, told: bool) -> None:
        for _ in range(count):
            self.made += 1
            self.queue[endpoint, 0][self.made.to_bytes(16, "big")] = self.now
        if told:
            self.schedule.delivery_created(endpoint, self.now)

    @rule(endpoint=st.sampled_from(KEYS), active=st.booleans(), most=st.integers(1, 12))
    def redefine(self, endpoint: Key, active: bool, most: int) -> None:
        self.models[endpoint].active, self.models[endpoint].max_in_flight = active, most

    @rule(milliseconds=st.sampled_from([1, 30, 500, 1000, 11_000, 60_000]))
    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds

    # --- what the worker does

    @rule()
    def look(self) -> None:
        for (endpoint, lane), rows in self.queue.items():
            if rows:
                self.schedule.lane_found(Lane(*endpoint, lane, min(rows.values())), self.now)

    @rule()
    def forget(self) -> None:
        for endpoint, model in self.models.items():
            if not self.in_flight([endpoint]):
                model.window = model.told = 1
                model.inactive_until = 0
                model.allowance = max(model.allowance, 1)
        self.schedule.reset()

    @precondition(lambda self: not self.turns)
    @rule(most=st.sampled_from([1, 3, 128]))
    def take_turns(self, most: int) -> None:
        self.turns = self.schedule.turns(self.now, most)
        assert sum(turn.limit for turn in self.turns) <= most
        assert len({turn.lane[:3] for turn in self.turns}) == len(self.turns), "one turn each"
        for turn in self.turns:
            self.may_have(turn)
            self.spend(turn.lane[:2], turn.limit)

    def may_have(self, turn: Turn) -> None:
        endpoint, slots = turn.lane[:2], self.slots
        model = self.models[endpoint]
        assert turn.limit > 0
        assert turn.lane.due <= self.now
        assert max(model.not_before, model.inactive_until) <= self.now
        assert self.in_flight() <= slots
        assert self.in_flight([endpoint]) <= min(model.window, slots // 2)
        assert self.in_flight([each for each in KEYS if each[0] == turn.lane.account]) <= slots * 3 // 4
        assert self.in_flight(lane=turn.lane.lane) <= slots * 3 // 4
        if model.window == 1:
            assert self.in_flight([each for each in KEYS if self.models[each].window == 1]) <= slots // 4

    @precondition(lambda self: self.turns)
    @rule(answers=st.sampled_from([True, True, True, False]))
    def claim(self, answers: bool) -> None:
        turns, self.turns = self.turns, []
        if not answers:
            self.schedule.not_claimed(turns, self.now)
            for turn in turns:
                self.models[turn.lane[:2]].allowance += turn.limit
            return
        pages = [self.page(turn) for turn in turns]
        for turn, page in zip(turns, pages, strict=True):
            endpoint = turn.lane[:2]
            model = self.models[endpoint]
            if not model.active:
                self.schedule.endpoint_inactive(turn, self.now)
                model.allowance += turn.limit
                model.window, model.inactive_until = 1, self.now + 1000
                continue
            positions = [(due, each) for due, each in page if (endpoint, each) not in self.open]
            expired = [each for _, each in page if (endpoint, each) in self.open]
            rows = self.queue[endpoint, turn.lane.lane]
            for _, each in positions:
                rows[each] = self.now + LEASE
                self.open.add((endpoint, each))
                self.flying.append(Attempt(endpoint, turn.lane.lane, each))
            for each in expired:
                del rows[each]
                self.queue[endpoint, 1][each] = self.now
                self.open.discard((endpoint, each))
            if positions:
                self.schedule.set_limits(endpoint, model.max_in_flight, RATES[endpoint])
                model.told, model.window = model.max_in_flight, min(model.window, model.max_in_flight)
            model.allowance += turn.limit - len(positions)
            left = self.now if len(page) == turn.limit else min(rows.values(), default=None)
            last = positions[-1] if positions else None
            self.schedule.claimed(turn, len(positions), last, left, self.now)

    def page(self, turn: Turn) -> list[tuple[int, bytes]]:
        rows = sorted((due, each) for each, due in self.queue[turn.lane[:2], turn.lane.lane].items() if due <= self.now)
        return [each for each in rows if each > turn.after][: turn.limit]

    def spend(self, endpoint: Key, count: int) -> None:
        """A tenth of a second's worth can gather, and never less than one."""
        rate, model = RATES[endpoint], self.models[endpoint]
        if rate is None:
            return
        gathered = model.allowance + (self.now - model.allowance_at) * rate / 1000
        model.allowance = min(max(1.0, rate / 10), gathered) - count
        model.allowance_at = self.now
        assert model.allowance > -1e-6, "more than the rate limit lets through"

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), outcome=OUTCOMES, delay=st.sampled_from([None, 0, 5000]), asked=st.sampled_from([0, 0, 2000]))
    def end(self, data: Any, outcome: dict[str, bool], delay: int | None, asked: int) -> None:
        which = data.draw(st.integers(0, len(self.flying) - 1))
        self.ended(self.flying.pop(which), outcome)
        attempt, model = self.last, self.models[self.last.key]
        if (attempt.key, attempt.id) not in self.open:
            return  # overtaken
        self.open.discard((attempt.key, attempt.id))
        for lane in (0, 1):
            self.queue[attempt.key, lane].pop(attempt.id, None)
        if asked:
            self.schedule.postpone(attempt.key, self.now + asked)
            model.not_before = max(model.not_before, self.now + asked)
        if not outcome["succeeded"] and delay is not None:
            self.queue[attempt.key, 1][attempt.id] = self.now + delay
            self.schedule.retry_planned(attempt.key, self.now + delay, self.now)

    def ended(self, attempt: Attempt, outcome: dict[str, bool]) -> None:
        self.last, model = attempt, self.models[attempt.key]
        self.schedule.attempt_ended(attempt.key, attempt.lane, **outcome, now=self.now)
        if outcome["succeeded"]:
            model.window = min(2 * model.window, model.told)
        elif outcome["overloaded"]:
            model.window = 1

    # --- what is always true

    def in_flight(self, endpoints: list[Key] = KEYS, lane: int | None = None) -> int:
        flying = [each for each in self.flying if each.key in endpoints and lane in (None, each.lane)]
        taking = [turn.limit for turn in self.turns if turn.lane[:2] in endpoints and lane in (None, turn.lane.lane)]
        return len(flying) + sum(taking)

    @invariant()
    def it_counts_right(self) -> None:
        if hasattr(self, "schedule"):
            assert self.schedule.in_flight == self.in_flight()
            assert self.schedule._slots.by_lane == [self.in_flight(lane=lane) for lane in (0, 1)]
            at_one = [each for each in KEYS if self.models[each].window == 1]
            assert self.schedule._slots._slow == self.in_flight(at_one)
            assert len(self.schedule._checks) <= 4 * len(KEYS)

    def teardown(self) -> None:
        """When every endpoint is active and answers, all that waits is sent, and nothing is left behind."""
        if not hasattr(self, "schedule"):
            return
        if self.turns:
            self.claim(answers=True)
        for model in self.models.values():
            model.active = True
        waiting = sum(len(rows) for rows in self.queue.values())
        for _ in range(70 + 4 * waiting):
            while self.flying:
                self.end_with_success()
            if not any(self.queue.values()):
                break
            self.look()
            self.take_turns(128)
            if self.turns:
                self.claim(answers=True)
            self.now += 1000
        assert not any(self.queue.values()), "something that is due was forgotten"
        assert (self.schedule.in_flight, self.schedule._slots._slow, self.schedule._slots._by_account) == (0, 0, {})

    def end_with_success(self) -> None:
        attempt = self.flying.pop()
        self.ended(attempt, SUCCEEDED)
        if (attempt.key, attempt.id) in self.open:
            self.open.discard((attempt.key, attempt.id))
            for lane in (0, 1):
                self.queue[attempt.key, lane].pop(attempt.id, None)


TestTurns = Turns.TestCase
TestTurns.settings = settings(max_examples=80, stateful_step_count=40)


class Crowd:
    """Accounts that always have more to send, at all their endpoints."""

    def __init__(self, endpoints: list[int], window: int) -> None:
        self.schedule, self.now = Schedule(32), 1_000_000
        self.greedy = [key(account, each) for account, count in enumerate(endpoints, 1) for each in range(count)]
        self.flying: list[tuple[Key, int]] = []
        for each in self.greedy:
            for _ in range(window.bit_length()):
                self.schedule.delivery_created(each, self.now)
                [turn] = self.schedule.turns(self.now)
                self.schedule.set_limits(each, window, None)
                self.schedule.claimed(turn, 1, (0, b""), None, self.now)
                self.schedule.attempt_ended(each, 0, **SUCCEEDED, now=self.now)
        for each in self.greedy:
            for lane in (0, 1):
                self.schedule.lane_found(Lane(*each, lane, self.now), self.now)

    def send(self, most: int) -> list[Key]:
        """Who had a turn for first attempts, in their order."""
        turns = self.schedule.turns(self.now, most)
        for turn in turns:
            last = (turn.lane.due, (turn.limit - 1).to_bytes(2, "big"))
            self.schedule.claimed(turn, turn.limit, last, self.now, self.now)
            self.flying += [(turn.lane[:2], turn.lane.lane)] * turn.limit
        return [turn.lane[:2] for turn in turns if turn.lane.lane == 0]

    def end(self, which: int) -> None:
        endpoint, lane = self.flying.pop(which % len(self.flying))
        self.schedule.attempt_ended(endpoint, lane, **SUCCEEDED, now=self.now)


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.sampled_from([2, 4, 8]),
    st.lists(st.tuples(st.sampled_from([1, 4, 128]), st.lists(st.integers(0, 31), max_size=3)), max_size=12),
    st.integers(0, 6),
)
def test_a_backlog_of_others_delays_a_delivery_by_at_most_one_round(
    endpoints: list[int], window: int, steps: list[tuple[int, list[int]]], comes_at: int
) -> None:
    """Once an account has something to send, every other has at most one turn before it."""
    crowd, newcomer = Crowd(endpoints, window), key(9, 0)
    before: list[bytes] = []
    waiting = False
    for number, (most, ends) in enumerate([*steps, *[(1, [0])] * 40]):
        if number == comes_at:
            crowd.schedule.delivery_created(newcomer, crowd.now)
            waiting = True
        had = crowd.send(most)
        if waiting:
            others = had[: had.index(newcomer)] if newcomer in had else had
            before += [account for account, _ in groupby(each[0] for each in others)]  # a turn may be of many endpoints
            if newcomer in had:
                break
        for which in ends:
            if crowd.flying:
                crowd.end(which)
    else:
        raise AssertionError("it never had its turn")
    assert len(set(before)) == len(before)
