"""Decides which endpoints send next: the worker's view of all endpoints with deliveries, in memory and without I/O.

Accounts take turns, and within an account its endpoints. An account that has not had a turn in this round comes before
the others. A window, its own limits and a share of the slots limit the attempts in flight to an endpoint; first
attempts and retries have shares too. A claim checks everything against the store, so losing this state costs one read
of the queue.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from gatepost.store.pending import Key
from gatepost.webhooks.queue_rows import Lane

SLOTS = 512  # attempts in flight at once
BATCH = 128  # claimed in one commit
_MIN_TURN = 8  # deliveries of one endpoint in one turn, however many endpoints wait
_REREAD_AFTER = 10_000  # milliseconds after which a lane is read from its beginning again
_INACTIVE_FOR = 1_000  # milliseconds before an inactive endpoint is tried again
_MOST_INACTIVE = 60_000  # the same after claims that failed
_HEALTHY_FOR = 10_000  # milliseconds for which an endpoint is assumed to have no failures on record

Position = tuple[int, bytes]  # in a lane: when a delivery is due, and its id
_START: Position = (-1, b"")


class Turn(NamedTuple):
    """A number of deliveries to claim from one lane, after a position."""

    lane: Lane
    limit: int
    after: Position
    waited_for: str


@dataclass(slots=True, eq=False)
class _LaneState:
    due: int | None = None  # of its first delivery; None if it is empty, or is being claimed
    after: Position = _START
    read_at: int = 0

    def add(self, due: int | None) -> None:
        self.due = _earlier(self.due, due)


@dataclass(slots=True, eq=False)
class _EndpointState:
    """The two lanes of an endpoint, and how many attempts it may have in flight."""

    key: Key
    lanes: tuple[_LaneState, _LaneState] = field(default_factory=lambda: (_LaneState(), _LaneState()))
    window: int = 1
    max_in_flight: int = 1
    rate_limit: int | None = None
    allowance: float = 1.0
    allowance_at: int = 0
    in_flight: int = 0
    inactive_until: int = 0
    failed_claims: int = 0  # in a row
    healthy_until: int = 0
    failed_at: int = -_HEALTHY_FOR
    blocked: str = ""  # the last obstacle
    queued: bool = False  # waits for a turn
    checks: list[int] = field(default_factory=list)  # times of its entries in the heap, the earliest last

    def due(self) -> int | None:
        return _earlier(self.lanes[0].due, self.lanes[1].due)

    def is_initial(self, now: int) -> bool:
        """Whether an endpoint without deliveries is in the state in which a new one begins."""
        idle = not self.in_flight and self.window == 1 and self.inactive_until <= now
        return idle and self.rate_limit is None

    def is_healthy(self, now: int) -> bool:
        """Whether the endpoint is known to have no failures on record. If it is not, a success now makes it known.

        After a recent failure it does not, because that failure may be settled together with this success, or later.
        """
        if self.healthy_until > now:
            return True
        if now - self.failed_at >= _HEALTHY_FOR:
            self.healthy_until = now + _HEALTHY_FOR
        return False

    def allowed(self, now: int) -> float:
        """How many attempts the rate limit allows now. Up to a tenth of a second's worth can accumulate."""
        passed, self.allowance_at = max(0, now - self.allowance_at), now
        if self.rate_limit is None:
            return float(SLOTS)
        most = max(1.0, self.rate_limit / 10)
        self.allowance = min(most, self.allowance + passed * self.rate_limit / 1000)
        return self.allowance


class _Slots:
    """The attempts in flight, and the share of an endpoint, an account, a lane, and of endpoints with window 1."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.by_lane = [0, 0]
        self._by_account: dict[bytes, int] = {}
        self._slow = 0  # of endpoints with a window of one
        self._slow_by_account: dict[bytes, int] = {}

    @property
    def in_flight(self) -> int:
        return self.by_lane[0] + self.by_lane[1]

    @property
    def slow_full(self) -> bool:
        return self._slow >= self.total // 4

    def window(self, endpoint: _EndpointState) -> int:
        return min(endpoint.window, self.total // 2)

    def free_for_account(self, account: bytes) -> int:
        return self.total * 3 // 4 - self._by_account.get(account, 0)

    def free_in_lane(self, lane: int) -> int:
        return self.total * 3 // 4 - self.by_lane[lane]

    def free_for_slow(self, account: bytes) -> int:
        """No account takes all of the slots for endpoints with a window of one."""
        return min(self.total // 4 - self._slow, max(4, self.total // 8) - self._slow_by_account.get(account, 0))

    def add(self, endpoint: _EndpointState, lane: int, count: int) -> None:
        endpoint.in_flight += count
        self.by_lane[lane] += count
        _count(self._by_account, endpoint.key[0], count)
        if endpoint.window == 1:
            self._add_slow(endpoint.key[0], count)

    def set_window(self, endpoint: _EndpointState, window: int) -> None:
        if (endpoint.window == 1) != (window == 1):
            self._add_slow(endpoint.key[0], endpoint.in_flight if window == 1 else -endpoint.in_flight)
        endpoint.window = max(1, window)

    def _add_slow(self, account: bytes, count: int) -> None:
        self._slow += count
        _count(self._slow_by_account, account, count)


def _count(counts: dict[bytes, int], account: bytes, count: int) -> None:
    left = counts.get(account, 0) + count
    if left:
        counts[account] = left
    else:
        counts.pop(account, None)


@dataclass(slots=True)
class _Batch:
    """The turns of one commit."""

    now: int
    left: int  # deliveries that it can still take
    accounts: int  # that have not had a turn in it yet
    turns: list[Turn] = field(default_factory=list)
    passed_over: list[_EndpointState] = field(default_factory=list)  # a share had no room for them


class Schedule:
    """The endpoints that wait, and the attempts in flight."""

    def __init__(self, slots: int = SLOTS) -> None:
        self._slots = _Slots(slots)
        self._endpoints: dict[Key, _EndpointState] = {}
        self._new_accounts: deque[bytes] = deque()  # with endpoints that can send, and not in the ring yet
        self._ring: deque[bytes] = deque()  # accounts in the order of their turns
        self._ready: dict[bytes, deque[_EndpointState]] = {}
        self._checks: list[tuple[int, Key]] = []  # a heap of times at which to check an endpoint again
        self._not_before: dict[Key, int] = {}  # a copy of what the store has; a claim reads the store

    @property
    def in_flight(self) -> int:
        return self._slots.in_flight

    # --- changes

    def lane_found(self, lane: Lane, now: int) -> None:
        """A lane has deliveries, the first of them due at `lane.due`."""
        endpoint = self._endpoint(lane[:2])
        endpoint.lanes[lane.lane].add(lane.due)
        self._enqueue(endpoint, now)

    def delivery_created(self, key: Key, now: int) -> None:
        """An endpoint has a new delivery, due now."""
        self.lane_found(Lane(*key, 0, now), now)

    def retry_planned(self, key: Key, due: int, now: int) -> None:
        """An endpoint has a retry that is due at this time."""
        self.lane_found(Lane(*key, 1, due), now)

    def postpone(self, key: Key, until: int) -> None:
        """The endpoint asked for no attempts until then."""
        self._not_before[key] = max(self._not_before.get(key, 0), until)

    def set_retry_afters(self, not_before: dict[Key, int]) -> None:
        """Replace the copy of every Retry-After with what the store has."""
        self._not_before = not_before

    def set_limits(self, key: Key, max_in_flight: int, rate_limit: int | None) -> None:
        """Set the limits of an endpoint as it is defined now."""
        endpoint = self._endpoint(key)
        endpoint.max_in_flight, endpoint.rate_limit = max_in_flight, rate_limit
        self._slots.set_window(endpoint, min(endpoint.window, max_in_flight))

    def reset(self) -> None:
        """Forget everything but the attempts in flight."""
        self._endpoints = {key: endpoint for key, endpoint in self._endpoints.items() if endpoint.in_flight}
        for endpoint in self._endpoints.values():
            endpoint.lanes, endpoint.queued, endpoint.checks = (_LaneState(), _LaneState()), False, []
            endpoint.healthy_until = 0
        for waiting in (self._ring, self._new_accounts, self._ready, self._checks):
            waiting.clear()

    def _endpoint(self, key: Key) -> _EndpointState:
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            endpoint = self._endpoints[key] = _EndpointState(key)
        return endpoint

    def _enqueue(self, endpoint: _EndpointState, now: int) -> None:
        """Queue the endpoint for a turn if it can send now."""
        if not endpoint.queued and self._can_send(endpoint, now):
            endpoint.queued = True
            account = endpoint.key[0]
            if account not in self._ready:
                self._ready[account] = deque()
                self._new_accounts.append(account)
            self._ready[account].append(endpoint)

    def _can_send(self, endpoint: _EndpointState, now: int) -> bool:
        """Whether the endpoint can send now. If not, plan when to check it again, or forget it if nothing is due."""
        due = endpoint.due()
        if due is None:
            if endpoint.is_initial(now):
                self._endpoints.pop(endpoint.key, None)
            return False
        not_before = self._not_before.get(endpoint.key, 0)
        at = max(due, not_before, endpoint.inactive_until)
        if at > now:
            endpoint.blocked = "retry_after" if not_before > due else ""
            self._check_at(endpoint, at)
        elif endpoint.in_flight >= self._slots.window(endpoint):
            endpoint.blocked = "window"  # checked again when an attempt ends
        elif endpoint.allowed(now) < 1:
            endpoint.blocked = "rate_limit"
            wait = (1 - endpoint.allowance) * 1000 / (endpoint.rate_limit or 1)
            self._check_at(endpoint, now + int(wait) + 1)
        else:
            return True
        return False

    def _check_at(self, endpoint: _EndpointState, at: int) -> None:
        if not endpoint.checks or at < endpoint.checks[-1]:
            endpoint.checks.append(at)
            heapq.heappush(self._checks, (at, endpoint.key))

    # --- turns

    def next_at(self) -> int | None:
        """When to call `turns` again if nothing happens before; None if nothing waits."""
        return self._checks[0][0] if self._checks else None

    def turns(self, now: int, most: int = BATCH) -> list[Turn]:
        """What to claim now. Each endpoint has one turn, whose result is reported with `claimed`."""
        while self._checks and self._checks[0][0] <= now:
            at, key = heapq.heappop(self._checks)
            endpoint = self._endpoints.get(key)
            if endpoint is not None:
                if at in endpoint.checks[-1:]:
                    endpoint.checks.pop()
                self._enqueue(endpoint, now)
        batch = _Batch(now, min(most, self._slots.total - self.in_flight), sum(map(bool, self._ready.values())))
        if batch.left > 0:
            self._fill(batch)
        for endpoint in chain.from_iterable(self._ready.values()):
            endpoint.blocked = endpoint.blocked or "turn"
        return batch.turns

    def _fill(self, batch: _Batch) -> None:
        """New accounts come first, but take at most half of the batch if others wait."""
        for_others = batch.left // 2 if self._ring else 0
        served: list[bytes] = []
        while batch.left > for_others and self._new_accounts:
            served.append(self._new_accounts.popleft())
            self._serve(served[-1], _MIN_TURN, batch)
        self._ring.extend([*self._new_accounts, *served])
        self._new_accounts.clear()
        while batch.left > 0 and self._ring:
            account = self._ring.popleft()
            if self._ready[account]:
                self._serve(account, max(_MIN_TURN, self._slots.total // 8), batch)
                self._ring.append(account)
            else:
                del self._ready[account]
        if batch.passed_over:
            self._put_back(batch)

    def _serve(self, account: bytes, least: int, batch: _Batch) -> None:
        """Give an account its turn. It may take `least` deliveries, however many accounts wait."""
        waiting = self._ready[account]
        fair = batch.left // max(1, batch.accounts)
        batch.accounts -= 1
        share = min(batch.left, max(least, fair))
        for _ in range(len(waiting)):
            if not share:
                break
            endpoint = waiting.popleft()
            endpoint.queued = False
            if endpoint.window == 1 and self._slots.slow_full:  # checked first: there may be thousands
                batch.passed_over.append(endpoint)
            elif self._can_send(endpoint, batch.now):  # it could when it was queued
                own = min(share, max(_MIN_TURN, fair), self._slots.free_for_account(account))
                taken = self._take(endpoint, own, batch)
                share -= taken
                batch.left -= taken
                if not taken:
                    batch.passed_over.append(endpoint)

    def _put_back(self, batch: _Batch) -> None:
        """Queue the endpoints that were passed over first. An account without a turn is the first of the next batch."""
        for endpoint in reversed(batch.passed_over):
            endpoint.queued, endpoint.blocked = True, "turn"
            self._ready.setdefault(endpoint.key[0], deque()).appendleft(endpoint)
        served = {turn.lane.account for turn in batch.turns}
        accounts = dict.fromkeys(endpoint.key[0] for endpoint in batch.passed_over)
        first = dict.fromkeys(account for account in accounts if account not in served)
        self._new_accounts.extend(first)
        self._ring = deque(account for account in dict.fromkeys([*self._ring, *accounts]) if account not in first)

    def _take(self, endpoint: _EndpointState, share: int, batch: _Batch) -> int:
        """Add the turns of one endpoint. Returns how many slots they take: these count as in flight until `claimed`."""
        room = min(share, self._slots.window(endpoint) - endpoint.in_flight, int(endpoint.allowed(batch.now)))
        if endpoint.window == 1:
            room = min(room, self._slots.free_for_slow(endpoint.key[0]))
        taken, left_out = 0, False
        for number, lane in enumerate(endpoint.lanes):
            if lane.due is None or lane.due > batch.now:
                continue
            count = min(room - taken, self._slots.free_in_lane(number))
            if count <= 0:
                left_out = True
                continue
            if batch.now - lane.read_at > _REREAD_AFTER:
                lane.after, lane.read_at = _START, batch.now
            claimed = Lane(*endpoint.key, number, lane.due)
            batch.turns.append(Turn(claimed, count, lane.after, endpoint.blocked or "plan"))
            lane.due = None
            self._slots.add(endpoint, number, count)
            taken += count
        if taken:  # a lane that is left out goes on waiting for the same, or for this turn's attempts
            endpoint.blocked = endpoint.blocked or "window" if left_out else ""
        return taken

    # --- results

    def claimed(
        self, turn: Turn, count: int, last: Position | None, next_due: int | None, now: int, not_before: int = 0
    ) -> None:
        """`count` deliveries were claimed, the last at position `last`; `next_due` is the first due time in the lane.

        `not_before` is the stored Retry-After of the endpoint, 0 if there is none.
        """
        if not_before > now:
            self.postpone(turn.lane[:2], not_before)
        endpoint = self._endpoint(turn.lane[:2])
        endpoint.failed_claims = 0
        self._slots.add(endpoint, turn.lane.lane, count - turn.limit)
        if endpoint.rate_limit is not None:
            endpoint.allowance -= count
        lane = endpoint.lanes[turn.lane.lane]
        lane.add(next_due)  # a delivery may have been created since the claim
        lane.after = last if last is not None and next_due is not None and next_due <= now else _START
        self._enqueue(endpoint, now)

    def endpoint_inactive(self, turn: Turn, now: int) -> None:
        """Nothing was claimed, because the endpoint or its account is not active."""
        endpoint = self._endpoint(turn.lane[:2])
        self._slots.add(endpoint, turn.lane.lane, -turn.limit)
        endpoint.lanes[turn.lane.lane].due = None
        self._slots.set_window(endpoint, 1)
        endpoint.inactive_until = now + _INACTIVE_FOR
        self._enqueue(endpoint, now)

    def claim_failed(self, turn: Turn, now: int) -> None:
        """The claim failed for itself, and would again. The endpoint is tried again later, and later each time."""
        endpoint = self._endpoint(turn.lane[:2])
        endpoint.failed_claims += 1
        self.endpoint_inactive(turn, now)
        endpoint.inactive_until = now + min(_INACTIVE_FOR * 2**endpoint.failed_claims, _MOST_INACTIVE)

    def not_claimed(self, turns: Iterable[Turn], now: int) -> None:
        """The store failed: nothing was claimed, and nothing settled."""
        for endpoint in self._endpoints.values():
            endpoint.healthy_until = 0
        for turn in turns:
            endpoint = self._endpoint(turn.lane[:2])
            self._slots.add(endpoint, turn.lane.lane, -turn.limit)
            endpoint.lanes[turn.lane.lane].add(turn.lane.due)
            self._enqueue(endpoint, now)

    def attempt_ended(self, key: Key, lane: int, *, succeeded: bool, overloaded: bool, now: int) -> None:
        """An attempt ended. A success doubles the window; an overloaded receiver gets one attempt at a time."""
        endpoint = self._endpoint(key)
        self._slots.add(endpoint, lane, -1)
        if succeeded and endpoint.window != endpoint.max_in_flight:
            self._slots.set_window(endpoint, min(endpoint.window * 2, endpoint.max_in_flight))
        elif overloaded:
            self._slots.set_window(endpoint, 1)
        if not succeeded:
            endpoint.healthy_until, endpoint.failed_at = 0, now
        self._enqueue(endpoint, now)

    def healthy(self, keys: Iterable[Key], now: int) -> frozenset[Key]:
        """Of endpoints where an attempt succeeded, those that are known to have no failures on record."""
        return frozenset(key for key in keys if self._endpoint(key).is_healthy(now))


def _earlier(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
