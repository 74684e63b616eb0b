"""Whose turn it is: the worker's view of all endpoints with something to send, in memory and without I/O.

Due deliveries are taken round robin by account, then by endpoint. In its turn an account has some of several endpoints,
for these lie together in the store; but one that has not had a turn for a round does not wait for those of the others.
An endpoint has a window, its own limits, and no more than its share of the slots; first attempts and retries have
shares too. What is here is a guess that the claim makes true: losing all of it costs one look at the queue.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from gatepost.store.pending import Key
from gatepost.webhooks.queue_rows import Lane

SLOTS = 512  # attempts in flight at once
BATCH = 128  # claimed in one commit
_AT_ONCE = 8  # of one endpoint in one turn, however many wait for theirs
_FROM_START = 10_000  # milliseconds after which a lane is read from its beginning again
_STILL = 1_000  # milliseconds before an endpoint that stood still is looked at again
_WELL = 10_000  # milliseconds for which an endpoint is believed to have no row of bad health
_START: tuple[int, bytes] = (-1, b"")

Lanes = tuple[int, int]


class Turn(NamedTuple):
    """Some of one lane, to be claimed after a position."""

    lane: Lane
    limit: int
    after: tuple[int, bytes]
    waited_for: str


class _Lane:
    __slots__ = ("after", "due", "read_at")

    def __init__(self) -> None:
        self.due: int | None = None  # when the first of it is; None when it is empty, or being claimed
        self.after = _START
        self.read_at = 0


class _Line:
    """One endpoint: its two lanes, and how much it may have in flight."""

    __slots__ = (
        "allowance", "allowance_at", "blocked", "failed_at", "in_flight", "inactive_until", "key", "lanes", "later",
        "max_in_flight", "queued", "rate_limit", "well_until", "window",
    )  # fmt: skip

    def __init__(self, key: Key) -> None:
        self.key = key
        self.lanes = (_Lane(), _Lane())
        self.window = 1
        self.max_in_flight = 1
        self.rate_limit: int | None = None
        self.allowance = 1.0
        self.allowance_at = 0
        self.in_flight = 0
        self.inactive_until = 0  # not looked at before: it was not active, or its account was not
        self.well_until = 0
        self.failed_at = -_WELL
        self.blocked = ""
        self.queued = False  # stands in the ring
        self.later: list[int] = []  # times at which it is looked at again, the first of them last

    def due(self) -> int | None:
        return _earlier(self.lanes[0].due, self.lanes[1].due)

    def allowed(self, now: int) -> float:
        """How many the rate limit lets through now: a tenth of a second's worth can gather."""
        passed, self.allowance_at = max(0, now - self.allowance_at), now
        if self.rate_limit is None:
            return float(SLOTS)
        most = max(1.0, self.rate_limit / 10)
        self.allowance = min(most, self.allowance + passed * self.rate_limit / 1000)
        return self.allowance


class _Batch:
    """What is to be claimed in one commit: how many more, and how many accounts have yet to have a turn in it."""

    __slots__ = ("left", "now", "passed_over", "rivals", "turns")

    def __init__(self, now: int, left: int, rivals: int) -> None:
        self.now = now
        self.left = left
        self.rivals = rivals
        self.turns: list[Turn] = []
        self.passed_over: list[_Line] = []  # there is no room in a share


class Schedule:
    def __init__(self, slots: int = SLOTS) -> None:
        self._slots = slots
        self._lines: dict[Key, _Line] = {}
        self._fresh: deque[bytes] = deque()  # accounts with somebody ready that are not in the ring
        self._ring: deque[bytes] = deque()  # those that wait for a turn, or had one and keep their place
        self._ready: dict[bytes, deque[_Line]] = {}
        self._later: list[tuple[int, Key]] = []
        self._not_before: dict[Key, int] = {}  # a copy of what the store has; a claim reads the store's
        self._accounts: dict[bytes, int] = {}  # in flight, by account
        self._flying = [0, 0]  # in flight, by lane
        self._slow = 0  # in flight, of endpoints with a window of one
        self._slow_of: dict[bytes, int] = {}  # the same, by account

    @property
    def in_flight(self) -> int:
        return self._flying[0] + self._flying[1]

    # --- what becomes known

    def found(self, lane: Lane, now: int) -> None:
        """Something waits in this lane, the first of it at `lane.due`."""
        line = self._line((lane.account, lane.endpoint))
        own = line.lanes[lane.lane]
        own.due = _earlier(own.due, lane.due)
        self._consider(line, now)

    def heard(self, key: Key, now: int) -> None:
        """A delivery was made for this endpoint just now."""
        self.found(Lane(*key, 0, now), now)

    def postpone(self, key: Key, until: int) -> None:
        """The endpoint asked for no attempts until then."""
        self._not_before[key] = max(self._not_before.get(key, 0), until)

    def postponed(self, not_before: dict[Key, int]) -> None:
        """Replace the copy of every Retry-After with what the store has."""
        self._not_before = not_before

    def limits(self, key: Key, max_in_flight: int, rate_limit: int | None) -> None:
        line = self._line(key)
        line.max_in_flight, line.rate_limit = max_in_flight, rate_limit
        self._set_window(line, min(line.window, max_in_flight))

    def forget(self) -> None:
        """Start from nothing, but for what is in flight."""
        self._lines = {key: line for key, line in self._lines.items() if line.in_flight}
        for line in self._lines.values():
            line.lanes, line.queued, line.later = (_Lane(), _Lane()), False, []
            line.well_until = 0
        self._ring.clear()
        self._fresh.clear()
        self._ready.clear()
        self._later.clear()

    def _line(self, key: Key) -> _Line:
        found = self._lines.get(key)
        if found is None:
            found = self._lines[key] = _Line(key)
        return found

    def _consider(self, line: _Line, now: int) -> None:
        """Put the endpoint into the ring if it could send now."""
        if not line.queued and self._could_send(line, now):
            line.queued = True
            account = line.key[0]
            if account not in self._ready:
                self._ready[account] = deque()
                self._fresh.append(account)
            self._ready[account].append(line)

    def _could_send(self, line: _Line, now: int) -> bool:
        """Now; else it is remembered when to look at it again, or forgotten if nothing is to be remembered of it."""
        due = line.due()
        if due is None:
            if not line.in_flight and line.window == 1 and line.inactive_until <= now and line.rate_limit is None:
                self._lines.pop(line.key, None)
            return False
        not_before = self._not_before.get(line.key, 0)
        at = max(due, not_before, line.inactive_until)
        if at > now:
            line.blocked = "retry_after" if not_before > due else ""
            self._look_again(line, at)
        elif line.in_flight >= min(line.window, self._slots // 2):
            line.blocked = "window"  # looked at again when one of them ends
        elif line.allowed(now) < 1:
            line.blocked = "rate_limit"
            wait = (1 - line.allowance) * 1000 / (line.rate_limit or 1)
            self._look_again(line, now + int(wait) + 1)
        else:
            return True
        return False

    def _look_again(self, line: _Line, at: int) -> None:
        if not line.later or at < line.later[-1]:
            line.later.append(at)
            heapq.heappush(self._later, (at, line.key))

    # --- whose turn it is

    def next_at(self) -> int | None:
        """When something becomes due, as far as known."""
        return self._later[0][0] if self._later else None

    def turns(self, now: int, most: int = BATCH) -> list[Turn]:
        """What to claim now. Each endpoint has one turn; `claimed` says what came of it."""
        while self._later and self._later[0][0] <= now:
            at, key = heapq.heappop(self._later)
            line = self._lines.get(key)
            if line is not None:
                if at in line.later[-1:]:
                    line.later.pop()
                self._consider(line, now)
        batch = _Batch(now, min(most, self._slots - self.in_flight), sum(map(bool, self._ready.values())))
        if batch.left > 0:
            self._fill(batch)
        for waiting in self._ready.values():
            for line in waiting:
                line.blocked = line.blocked or "turn"
        return batch.turns

    def _fill(self, batch: _Batch) -> None:
        """Fresh accounts come first; if others wait, with half of what there is. Those that this leaves wait too."""
        for_others = batch.left // 2 if self._ring else 0
        served: list[bytes] = []
        while batch.left > for_others and self._fresh:
            served.append(self._fresh.popleft())
            self._serve(served[-1], _AT_ONCE, batch)
        self._ring.extend([*self._fresh, *served])
        self._fresh.clear()
        while batch.left > 0 and self._ring:
            account = self._ring.popleft()
            if self._ready[account]:
                self._serve(account, max(_AT_ONCE, self._slots // 8), batch)
                self._ring.append(account)
            else:
                del self._ready[account]
        if batch.passed_over:
            self._put_back(batch)

    def _serve(self, account: bytes, least: int, batch: _Batch) -> None:
        """The turn of an account: it may take so many, however many others wait for theirs."""
        waiting = self._ready[account]
        fair = batch.left // max(1, batch.rivals)
        batch.rivals -= 1
        share = min(batch.left, max(least, fair))
        for _ in range(len(waiting)):
            if not share:
                break
            line = waiting.popleft()
            line.queued = False
            if line.window == 1 and self._slow >= self._slots // 4:  # quickly: there may be thousands
                batch.passed_over.append(line)
            elif self._could_send(line, batch.now):  # it could when it was put here
                own = min(share, max(_AT_ONCE, fair), self._slots * 3 // 4 - self._accounts.get(account, 0))
                taken = self._take(line, own, batch.now, batch.turns)
                share -= taken
                batch.left -= taken
                if not taken:
                    batch.passed_over.append(line)

    def _put_back(self, batch: _Batch) -> None:
        """Those passed over, in front of their account's others. An account that had nothing is first the next time."""
        for line in reversed(batch.passed_over):
            line.queued, line.blocked = True, "turn"
            self._ready.setdefault(line.key[0], deque()).appendleft(line)
        had = {turn.lane.account for turn in batch.turns}
        accounts = dict.fromkeys(line.key[0] for line in batch.passed_over)
        first = dict.fromkeys(account for account in accounts if account not in had)
        self._fresh.extend(first)
        self._ring = deque(account for account in dict.fromkeys([*self._ring, *accounts]) if account not in first)

    def _take(self, line: _Line, share: int, now: int, turns: list[Turn]) -> int:
        """The turns of one endpoint, and how many slots they take: these are in flight until `claimed`."""
        room = min(share, min(line.window, self._slots // 2) - line.in_flight, int(line.allowed(now)))
        if line.window == 1:
            own = max(4, self._slots // 8) - self._slow_of.get(line.key[0], 0)  # so that no account takes all of it
            room = min(room, self._slots // 4 - self._slow, own)
        taken = 0
        for number, lane in enumerate(line.lanes):
            if lane.due is None or lane.due > now:
                continue
            count = min(room - taken, self._slots * 3 // 4 - self._flying[number])
            if count <= 0:
                continue
            if now - lane.read_at > _FROM_START:
                lane.after, lane.read_at = _START, now
            turns.append(Turn(Lane(*line.key, number, lane.due), count, lane.after, line.blocked or "plan"))
            lane.due = None
            self._fly(line, number, count)
            taken += count
        if taken:
            line.blocked = ""
        return taken

    def _fly(self, line: _Line, lane: int, count: int) -> None:
        line.in_flight += count
        self._flying[lane] += count
        account = line.key[0]
        left = self._accounts.get(account, 0) + count
        if left:
            self._accounts[account] = left
        else:
            self._accounts.pop(account, None)
        if line.window == 1:
            self._count_slow(account, count)

    def _count_slow(self, account: bytes, count: int) -> None:
        self._slow += count
        left = self._slow_of.get(account, 0) + count
        if left:
            self._slow_of[account] = left
        else:
            self._slow_of.pop(account, None)

    # --- what came of it

    def claimed(
        self, turn: Turn, count: int, last: tuple[int, bytes] | None, next_due: int | None, now: int,
        not_before: int = 0,
    ) -> None:  # fmt: skip
        """So many were claimed, the last at this position; `next_due` is the first due time left in the lane.

        `not_before`: the endpoint asked for no attempts until then, which may be news to us.
        """
        key = (turn.lane.account, turn.lane.endpoint)
        if not_before > now:
            self.postpone(key, not_before)
        line = self._line(key)
        self._fly(line, turn.lane.lane, count - turn.limit)
        if line.rate_limit is not None:
            line.allowance -= count
        if not count and turn.waited_for != "plan":
            line.blocked = turn.waited_for  # nothing was there to claim: the endpoint's other lane waited just as long
        own = line.lanes[turn.lane.lane]
        own.due = _earlier(own.due, next_due)  # what was heard of since may be newer than the claim
        own.after = last if last is not None and next_due is not None and next_due <= now else _START
        self._consider(line, now)

    def stood_still(self, turn: Turn, now: int) -> None:
        """The endpoint is not active: nothing of it is due for now, whatever the queue says."""
        line = self._line((turn.lane.account, turn.lane.endpoint))
        self._fly(line, turn.lane.lane, -turn.limit)
        line.lanes[turn.lane.lane].due = None
        self._set_window(line, 1)
        line.inactive_until = now + _STILL
        self._consider(line, now)

    def given_up(self, turns: Iterable[Turn], now: int) -> None:
        """The store did not answer: nothing was claimed, and nothing settled."""
        for line in self._lines.values():
            line.well_until = 0
        for turn in turns:
            line = self._line((turn.lane.account, turn.lane.endpoint))
            self._fly(line, turn.lane.lane, -turn.limit)
            own = line.lanes[turn.lane.lane]
            own.due = _earlier(own.due, turn.lane.due)
            self._consider(line, now)

    def ended(self, key: Key, lane: int, *, well: bool, trouble: bool, now: int) -> None:
        """An attempt is over. One success doubles the window; trouble makes it one."""
        line = self._line(key)
        self._fly(line, lane, -1)
        if well and line.window != line.max_in_flight:
            self._set_window(line, min(line.window * 2, line.max_in_flight))
        elif trouble:
            self._set_window(line, 1)
        if not well:
            line.well_until, line.failed_at = 0, now
        self._consider(line, now)

    def _set_window(self, line: _Line, window: int) -> None:
        if (line.window == 1) != (window == 1):
            self._count_slow(line.key[0], line.in_flight if window == 1 else -line.in_flight)
        line.window = max(1, window)

    def retry_at(self, key: Key, due: int, now: int) -> None:
        self.found(Lane(*key, 1, due), now)

    def well(self, keys: Iterable[Key], now: int) -> frozenset[Key]:
        """Of these endpoints, those known to have no bad health on record; the others are known from now on.

        But for one that failed just now: that may be settled together with this success, or after it.
        """
        known = set()
        for key in keys:
            line = self._line(key)
            if line.well_until > now:
                known.add(key)
            elif now - line.failed_at >= _WELL:
                line.well_until = now + _WELL
        return frozenset(known)


def _earlier(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
