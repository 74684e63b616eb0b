"""State of the schedule: endpoints with their lanes and windows, slots in use, and endpoints waiting for a share."""

import heapq
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gatepost.store.pending import Key

_HEALTHY_FOR = 10_000  # milliseconds for which an endpoint is assumed to have no failures on record
_UNLIMITED = 1e9

Position = tuple[int, bytes]  # in a lane: when a delivery is due, and its id
_END: Position = (2**62, b"")
LATE = 2_000  # milliseconds that a delivery may be due before the time at which it was reported to be due


@dataclass(slots=True, eq=False)
class LaneState:
    """What is known of one lane of an endpoint.

    A lane is read from just before the first delivery that is known of, not from its beginning: PostgreSQL keeps the
    rows of ended deliveries there for as long as any transaction may see them, and reading past them takes time.
    """

    due: int | None = None  # of its first delivery; None if it is empty, or is being claimed
    after: Position = _END  # where to read

    def add(self, due: int | None) -> None:
        if due is not None:
            self.due = due if self.due is None else min(self.due, due)
            self.read_from((due - LATE, b""))

    def read_from(self, position: Position) -> None:
        self.after = min(self.after, position)

    def clear(self) -> None:
        self.due, self.after = None, _END


@dataclass(slots=True, eq=False)
class EndpointState:
    """The two lanes of an endpoint, and how many attempts it may have in flight."""

    key: Key
    lanes: tuple[LaneState, LaneState] = field(default_factory=lambda: (LaneState(), LaneState()))
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
    queued_in: int = 0  # the number of batches before it was queued
    parked: int | None = None  # the share that it waits for, of `Parked`
    checks: list[int] = field(default_factory=list)  # times of its entries in the heap, the earliest last

    def due(self) -> int | None:
        return _earlier(self.lanes[0].due, self.lanes[1].due)

    def lanes_by_due(self) -> tuple[tuple[int, LaneState], tuple[int, LaneState]]:
        """The lanes with their numbers, the one that was due earlier first, so that neither can starve the other."""
        first, retries = self.lanes
        if retries.due is not None and (first.due is None or retries.due < first.due):
            return (1, retries), (0, first)
        return (0, first), (1, retries)

    def forget(self) -> None:
        """Forget everything but the attempts in flight and what limits them."""
        self.lanes, self.queued, self.checks = (LaneState(), LaneState()), False, []
        self.healthy_until, self.parked = 0, None

    def is_initial(self, now: int) -> bool:
        """Whether an endpoint without deliveries is in the state in which a new one begins."""
        idle = not self.in_flight and self.window == 1 and self.inactive_until <= now
        return idle and self.rate_limit is None

    def failures_cleared(self, now: int) -> None:
        """A commit cleared the failures on record, so the endpoint is known to have none.

        After a recent failure it is not, because that failure may have been settled in the same commit, or later.
        """
        if now - self.failed_at >= _HEALTHY_FOR:
            self.healthy_until = now + _HEALTHY_FOR

    def allowed_at(self, now: int) -> int:
        """When the rate limit allows the next attempt, if it allows none now."""
        return now + int((1 - self.allowance) * 1000 / (self.rate_limit or 1)) + 1

    def allowed(self, now: int) -> float:
        """How many attempts the rate limit allows now. Up to a tenth of a second's worth can accumulate."""
        passed, self.allowance_at = max(0, now - self.allowance_at), now
        if self.rate_limit is None:
            return _UNLIMITED
        most = max(1.0, self.rate_limit / 10)
        self.allowance = min(most, self.allowance + passed * self.rate_limit / 1000)
        return self.allowance


class Slots:
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

    def window(self, endpoint: EndpointState) -> int:
        return min(endpoint.window, self.total // 2)

    def free_in_lane(self, lane: int) -> int:
        return self.total * 3 // 4 - self.by_lane[lane]

    def free_for_account(self, account: bytes, lane: int) -> int:
        """How many attempts the account may have in addition in this lane.

        An account can have three quarters of all slots. The last eighth of the lane, and of all slots, is for accounts
        with few attempts: each may have as many of these as it leaves free. So receivers that do not respond leave room
        for other accounts, whatever their windows are.
        """
        used = self._by_account.get(account, 0)
        free = min(self.free_in_lane(lane), self.total - self.in_flight)
        kept = self.total // 8
        beside = max(free - kept, (min(free, kept) - used) // 2, 0 if used else min(free, 1))
        return min(self.total * 3 // 4 - used, beside)

    def rooms(self, account: bytes) -> tuple[bool, bool]:
        """Whether the account may have more attempts in each lane."""
        return self.free_for_account(account, 0) > 0, self.free_for_account(account, 1) > 0

    def waits_for_account(self, endpoint: EndpointState, now: int) -> bool:
        """Whether only first attempts of the endpoint are due, and may wait for their account, but for no share."""
        retries = endpoint.lanes[1].due
        return endpoint.window > 1 and (retries is None or retries > now) and self.free_in_lane(0) > 0

    def free_for(self, endpoint: EndpointState) -> int:
        """How many attempts the endpoint may have in addition, whatever its account and its lanes have."""
        free = self.window(endpoint) - endpoint.in_flight
        return min(free, self.free_for_slow(endpoint.key[0])) if endpoint.window == 1 else free

    def room(self, endpoint: EndpointState, share: int, now: int) -> tuple[int, str]:
        """How many deliveries the endpoint may take in a turn with this share, and what the others wait for."""
        window, allowed = self.free_for(endpoint), int(endpoint.allowed(now))
        room = min(share, window, allowed)
        return room, "window" if room == window else "rate_limit" if room == allowed else "turn"

    @property
    def free_slow(self) -> int:
        return self.total // 4 - self._slow

    def free_for_slow(self, account: bytes) -> int:
        """How many slots for endpoints with a window of one an account may take in addition.

        An account can have as many as it leaves free, and the last of them are for accounts that have none, so that
        receivers which never respond leave room for the next account.
        """
        used = self._slow_by_account.get(account, 0)
        return self.free_slow - used - self.total // 32 if used else self.free_slow

    def add(self, endpoint: EndpointState, lane: int, count: int) -> None:
        endpoint.in_flight += count
        self.by_lane[lane] += count
        _count(self._by_account, endpoint.key[0], count)
        if endpoint.window == 1:
            self._add_slow(endpoint.key[0], count)

    def set_window(self, endpoint: EndpointState, window: int) -> None:
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


class Ready:
    """Endpoints that wait for a turn, by account, and the order in which accounts have their turns."""

    def __init__(self) -> None:
        self.new_accounts: deque[bytes] = deque()  # with endpoints that can send, and not in the ring yet
        self.ring: deque[bytes] = deque()
        self.accounts = 0  # that have endpoints here
        self._by_account: dict[bytes, deque[EndpointState]] = {}

    def add(self, endpoint: EndpointState) -> None:
        account = endpoint.key[0]
        if account not in self._by_account:
            self._by_account[account] = deque()
            self.new_accounts.append(account)
        self.accounts += not self._by_account[account]
        self._by_account[account].append(endpoint)

    def add_again(self, endpoint: EndpointState) -> None:
        """Add an endpoint that had to be passed over, after the others of its account."""
        endpoint.queued, endpoint.blocked = True, "turn"
        self.add(endpoint)

    def count(self, account: bytes) -> int:
        return len(self._by_account[account])

    def take(self, account: bytes) -> EndpointState:
        """Take the next endpoint of an account that has one."""
        endpoint = self._by_account[account].popleft()
        self.accounts -= not self._by_account[account]
        return endpoint

    def next_in_ring(self) -> bytes | None:
        """Take the next account with an endpoint out of the ring."""
        while self.ring:
            account = self.ring.popleft()
            if self._by_account[account]:
                return account
            del self._by_account[account]
        return None

    def had_turn(self, account: bytes) -> None:
        """Put an account into the ring, so that it is not new when an endpoint of it is added."""
        if account not in self._by_account:
            self._by_account[account] = deque()
            self.ring.append(account)

    def clear(self) -> None:
        for waiting in (self.new_accounts, self.ring, self._by_account):
            waiting.clear()
        self.accounts = 0


class Parked:
    """Endpoints that wait for room in a share: of first attempts (0), of retries (1), or of those with window 1 (2).

    They are not looked at before the share has room, because there may be 100,000. Their accounts take turns.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._shares: tuple[dict[bytes, deque[EndpointState]], ...] = ({}, {}, {})

    def add_if_full(self, endpoint: EndpointState, now: int) -> bool:
        """Park the endpoint if it has to wait for a share without room."""
        share = self._full_share(endpoint, now)
        if share is None:
            return False
        endpoint.queued, endpoint.parked, endpoint.blocked = True, share, "turn"
        self._shares[share].setdefault(endpoint.key[0], deque()).append(endpoint)
        return True

    def _full_share(self, endpoint: EndpointState, now: int) -> int | None:
        if endpoint.window == 1 and self._slots.free_for_slow(endpoint.key[0]) <= 0:
            return 2
        due = [number for number, lane in enumerate(endpoint.lanes) if lane.due is not None and lane.due <= now]
        full = [number for number in due if self._slots.free_in_lane(number) <= 0]
        return full[0] if full and full == due else None

    def take(self) -> EndpointState | None:
        """Take the next endpoint whose share has room. Only accounts with attempts in flight can be without room."""
        slots = self._slots
        for share, free in enumerate((slots.free_in_lane(0), slots.free_in_lane(1), slots.free_slow)):
            by_account, full = self._shares[share], 0
            while free > 0 and full < len(by_account):
                account = next(iter(by_account))
                waiting = by_account.pop(account)
                while waiting and waiting[0].parked != share:  # it has left
                    waiting.popleft()
                if share < 2:
                    has_room = slots.free_for_account(account, share) > 0
                else:
                    has_room = slots.free_for_slow(account) > 0 and any(slots.rooms(account))
                found = waiting.popleft() if waiting and has_room else None
                if waiting:
                    by_account[account] = waiting  # after the others
                    full += not has_room
                if found is not None:
                    found.queued, found.parked = False, None
                    return found
        return None

    def leave(self, endpoint: EndpointState, now: int) -> int | None:
        """Let an endpoint leave if only one of its lanes waits for a share and the other one can send.

        Returns when the other lane is due, if that is later.
        """
        if endpoint.parked not in (0, 1):
            return None
        other = 1 - endpoint.parked
        due = endpoint.lanes[other].due
        if due is not None and due <= now and self._slots.free_for_account(endpoint.key[0], other) > 0:
            endpoint.queued, endpoint.parked = False, None
        return due if due is not None and due > now else None

    def clear(self) -> None:
        for by_account in self._shares:
            by_account.clear()


class Checks:
    """Times at which to look at an endpoint again."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, Key]] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_at(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def add(self, endpoint: EndpointState, at: int) -> None:
        if not endpoint.checks or at < endpoint.checks[-1]:
            endpoint.checks.append(at)
            heapq.heappush(self._heap, (at, endpoint.key))

    def due(self, endpoints: Mapping[Key, EndpointState], now: int) -> Iterator[EndpointState]:
        """Remove the times that have come, and yield those of the endpoints that are still known."""
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            endpoint = endpoints.get(key)
            if endpoint is not None:
                if at in endpoint.checks[-1:]:
                    endpoint.checks.pop()
                yield endpoint

    def clear(self) -> None:
        self._heap.clear()


def _earlier(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
