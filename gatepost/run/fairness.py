"""Fairness between accounts: a simulated deliverer with the real schedule, a heavy-tailed load and a simulated clock.

Nothing is sent and no time is measured. A claim takes as long as the cost that it is given, and receivers respond after
a fixed time. What is random follows from a fixed seed, so the same parameters always give the same result.
"""

import heapq
import math
from array import array
from bisect import bisect
from collections import deque
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from gatepost.store.pending import Key
from gatepost.webhooks.schedule import BATCH, SLOTS, Schedule, Turn

SHAPE = 1.16  # of the Pareto distribution: a fifth of the accounts has about three quarters of the load
MAX_IN_FLIGHT = 16  # of an endpoint, the default
_COMMIT_MS = 3.0  # of a claim, however few deliveries it has
_MASK = (1 << 64) - 1


class Deliverer(NamedTuple):
    """What limits a delivery process: its CPU time for each delivery, and how long receivers take."""

    delivery_us: float
    receiver_ms: float

    @property
    def capacity(self) -> float:
        """Deliveries a second: as many as full batches take, or as the slots allow while a batch is claimed and sent.

        First attempts have three quarters of the slots.
        """
        batch_ms = self.claim_ms(BATCH)
        return 1000 * min(BATCH / batch_ms, SLOTS * 0.75 / (batch_ms + self.receiver_ms))

    def claim_ms(self, count: int) -> float:
        """How long it takes to claim and send so many deliveries."""
        return _COMMIT_MS + count * self.delivery_us / 1000


class Offered(NamedTuple):
    """The load of a scenario, as shares of the deliverer's capacity. `burst` is what the biggest account adds.

    A deliverer that was just started sends one delivery at a time to each endpoint, until one succeeds.
    """

    name: str
    load: float
    burst: float = 0.0
    restarted: bool = False


SCENARIOS = (
    Offered("normal load", 0.6),
    Offered("normal load after a restart", 0.6, restarted=True),
    Offered("overload by the biggest account", 0.6, burst=0.9),
    Offered("overload by all accounts", 1.5),
)


class Lateness(NamedTuple):
    """How long deliveries of some accounts waited, in milliseconds: until they were sent, or until the end.

    Without deliveries there are no times.
    """

    accounts: str
    deliveries: int  # sent
    waiting: int  # at the end
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class Scenario(NamedTuple):
    """The result of a scenario."""

    name: str
    offered: float  # deliveries a second
    sent: float
    lateness: list[Lateness]


def weights(accounts: int) -> list[float]:
    """The share of each account in the load, by the quantiles of a Pareto distribution. The biggest is the first."""
    values = [((rank + 0.5) / accounts) ** (-1 / SHAPE) for rank in range(accounts)]
    total = math.fsum(values)
    return [value / total for value in values]


def simulate(offered: Offered, accounts: int, seconds: float, deliverer: Deliverer) -> Scenario:
    """Run a scenario for these seconds of simulated time. The first quarter is not counted."""
    return _Run(offered, accounts, seconds * 1000, deliverer).run()


class _Dice:
    """Uniform random numbers: the generator splitmix64."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def __call__(self) -> float:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((mixed ^ (mixed >> 31)) >> 11) / (1 << 53)


class _Run:
    """One run. Times are milliseconds."""

    def __init__(self, offered: Offered, accounts: int, end: float, deliverer: Deliverer) -> None:
        self._offered, self._accounts, self._end, self._deliverer = offered, accounts, end, deliverer
        self._rate = deliverer.capacity * (offered.load + offered.burst) / 1000
        shares = weights(accounts)
        total = offered.load + offered.burst
        shares = [share * offered.load / total for share in shares]
        shares[0] += offered.burst / total
        self._cumulative = list(accumulate(shares))
        # An account with a high rate has several endpoints, so that their windows do not limit it.
        self._endpoints = [
            max(1, math.ceil(share * self._rate * deliverer.receiver_ms / (MAX_IN_FLIGHT / 2))) for share in shares
        ]
        self._dice = _Dice(1)
        self._schedule = Schedule()
        self._queues: dict[Key, deque[tuple[float, int]]] = {}
        self._ends: list[tuple[float, Key]] = []
        self._arrivals = self._arrive()
        self._next = next(self._arrivals)
        self._lateness = [array("d"), array("d"), array("d")]
        self._made = self._sent = 0

    def _arrive(self) -> Iterator[tuple[float, int]]:
        """New deliveries: when, and of which account."""
        at = 0.0
        while True:
            at -= math.log(1 - self._dice()) / self._rate
            yield at, min(self._accounts - 1, bisect(self._cumulative, self._dice()))

    def _warm_up(self) -> None:
        """Let a delivery to each endpoint succeed, as in the past of a deliverer that has run for some time."""
        keys = [_key(account, number) for account, count in enumerate(self._endpoints) for number in range(count)]
        for start in range(0, len(keys), 100):
            for key in keys[start : start + 100]:
                self._schedule.delivery_created(key, 0)
            while turns := self._schedule.turns(0):
                for turn in turns:
                    self._schedule.set_limits(turn.lane[:2], MAX_IN_FLIGHT, None)
                    self._schedule.claimed(turn, 1, None, None, 0)
                    self._schedule.attempt_ended(turn.lane[:2], 0, succeeded=True, overloaded=False, now=0)

    def run(self) -> Scenario:
        if not self._offered.restarted:
            self._warm_up()
        now = 0.0
        while now < self._end:
            self._happen(now)
            turns = self._schedule.turns(math.ceil(now))
            if turns:
                now = self._claim(turns, now)
            else:
                check = self._schedule.next_at()
                times = [self._next[0], *(end for end, _ in self._ends[:1]), *([] if check is None else [check])]
                now = max(min(times), now + 1)
        return self._result(now)

    def _happen(self, now: float) -> None:
        """Everything that has happened up to now: new deliveries, and attempts that ended."""
        at = math.ceil(now)
        while self._next[0] <= now:
            created, account = self._next
            key = _key(account, self._made % self._endpoints[account])
            self._queues.setdefault(key, deque()).append((created, account))
            self._schedule.delivery_created(key, at)
            self._made += 1
            self._next = next(self._arrivals)
        while self._ends and self._ends[0][0] <= now:
            _, key = heapq.heappop(self._ends)
            self._schedule.attempt_ended(key, 0, succeeded=True, overloaded=False, now=at)

    def _claim(self, turns: list[Turn], now: float) -> float:
        """Claim and send. Returns when that is done."""
        claims = []
        for turn in turns:
            queue = self._queues.get(turn.lane[:2], deque())
            claims.append([queue.popleft() for _ in range(min(turn.limit, len(queue)))])
        count = sum(map(len, claims))
        now += self._deliverer.claim_ms(count)
        self._happen(now)
        at = math.ceil(now)
        for turn, claimed in zip(turns, claims, strict=True):
            key = turn.lane[:2]
            self._schedule.set_limits(key, MAX_IN_FLIGHT, None)
            waiting = self._queues.get(key)
            next_due = math.ceil(waiting[0][0]) if waiting else None
            if not waiting:
                self._queues.pop(key, None)
            self._schedule.claimed(turn, len(claimed), None, next_due, at)
            for created, account in claimed:
                heapq.heappush(self._ends, (now + self._deliverer.receiver_ms, key))
                self._record(account, created, now)
        return now

    def _record(self, account: int, created: float, now: float) -> None:
        if now >= self._end / 4:
            self._sent += 1
            self._lateness[self._group(account)].append(now - created)

    def _group(self, account: int) -> int:
        if not account:
            return 2
        return 1 if account < self._accounts // 100 else 0

    def _result(self, now: float) -> Scenario:
        ages = [array("d"), array("d"), array("d")]
        for queue in self._queues.values():
            for created, account in queue:
                ages[self._group(account)].append(now - created)
        names = ("99 % with the lowest rates", "1 % with the highest rates", "the biggest one")
        lateness = [_lateness(*group) for group in zip(names, self._lateness, ages, strict=True)]
        return Scenario(
            self._offered.name, self._rate * 1000, self._sent / (self._end * 0.75) * 1000, lateness,
        )  # fmt: skip


def _key(account: int, endpoint: int) -> Key:
    return account.to_bytes(16, "big"), endpoint.to_bytes(16, "big")


def _lateness(name: str, sent: "array[float]", waiting: "array[float]") -> Lateness:
    """The lateness of a group. A delivery that still waits has at least its age."""
    ordered = sorted([*sent, *waiting])
    if not ordered:
        return Lateness(name, 0, 0, None, None, None)
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99))
    return Lateness(name, len(sent), len(waiting), round(p50, 1), round(p99, 1), round(ordered[-1], 1))
