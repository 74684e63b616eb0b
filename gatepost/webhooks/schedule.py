"""Decides which endpoints send next: the worker's view of all endpoints with deliveries, in memory and without I/O.

Accounts take turns, and within an account its endpoints. An account that has not had a turn in this round comes before
the others. A window, its own limits and a share of the slots limit the attempts in flight to an endpoint; first
attempts and retries have shares too. An endpoint that waits for a full share is parked, so that it is not looked at
before the share has room: there may be 100,000. A claim checks everything against the store, so losing this state costs
one read of the queue.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from gatepost.store.pending import Key
from gatepost.webhooks.queue_rows import Lane
from gatepost.webhooks.schedule_state import Checks, EndpointState, Parked, Position, Ready, Slots

SLOTS = 512  # attempts in flight at once
BATCH = 128  # claimed in one commit
_MIN_TURN = 8  # deliveries of one endpoint in one turn, however many endpoints wait
_INACTIVE_FOR = 1_000  # milliseconds before an inactive endpoint is tried again
_MOST_INACTIVE = 60_000  # the same after claims that failed
_MAX_PASSED_OVER = 8  # of an account in one turn: the others come first the next time
_MAX_PARKED = 2000  # in one batch, so that the event loop does not wait for long


class Turn(NamedTuple):
    """A number of deliveries to claim from one lane, after a position."""

    lane: Lane
    limit: int
    after: Position
    waited_for: str
    limited_by: str  # what the deliveries that it leaves in the lane wait for


@dataclass(slots=True)
class _Batch:
    """The turns of one commit."""

    now: int
    left: int  # deliveries that it can still take
    accounts: int  # that have not had a turn in it yet
    parked: int = 0
    passed_over: int = 0  # in the present turn
    turns: list[Turn] = field(default_factory=list)

    @property
    def has_enough(self) -> bool:
        """Whether so many endpoints could not send that the turn ends."""
        return self.parked >= _MAX_PARKED or self.passed_over >= _MAX_PASSED_OVER


class Schedule:
    """The endpoints that wait, and the attempts in flight."""

    def __init__(self, slots: int = SLOTS) -> None:
        self._slots = Slots(slots)
        self._endpoints: dict[Key, EndpointState] = {}
        self._ready = Ready()
        self._parked = Parked(self._slots)
        self._batches = 0
        self._checks = Checks()
        self._not_before: dict[Key, int] = {}  # a copy of what the store has; a claim reads the store

    @property
    def in_flight(self) -> int:
        return self._slots.in_flight

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
            endpoint.forget()
        for waiting in (self._ready, self._parked, self._checks):
            waiting.clear()

    def _endpoint(self, key: Key) -> EndpointState:
        return self._endpoints.get(key) or self._endpoints.setdefault(key, EndpointState(key))

    def _enqueue(self, endpoint: EndpointState, now: int) -> None:
        """Queue the endpoint for a turn if it can send now."""
        if endpoint.parked is not None and (due := self._parked.leave(endpoint, now)) is not None:
            self._checks.add(endpoint, due)
        if not endpoint.queued and self._can_send(endpoint, now):
            endpoint.queued, endpoint.queued_in = True, self._batches
            self._ready.add(endpoint)

    def _can_send(self, endpoint: EndpointState, now: int) -> bool:
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
            self._checks.add(endpoint, at)
        elif endpoint.in_flight >= self._slots.window(endpoint):
            endpoint.blocked = "window"  # checked again when an attempt ends
        elif endpoint.allowed(now) < 1:
            endpoint.blocked = "rate_limit"
            self._checks.add(endpoint, endpoint.allowed_at(now))
        else:
            return True
        return False

    # --- turns

    def next_at(self) -> int | None:
        """When to call `turns` again if nothing happens before; None if nothing waits."""
        return self._checks.next_at

    def turns(self, now: int, most: int = BATCH) -> list[Turn]:
        """What to claim now. Each endpoint has one turn, whose result is reported with `claimed`."""
        for endpoint in self._checks.due(self._endpoints, now):
            self._enqueue(endpoint, now)
        batch = _Batch(now, min(most, self._slots.total - self.in_flight), self._ready.accounts)
        if batch.left > 0:
            self._fill(batch)
        self._batches += 1
        return batch.turns

    def _fill(self, batch: _Batch) -> None:
        """Parked endpoints come first, then new accounts. Both take at most half of the batch if others wait."""
        ready = self._ready
        self._serve_parked(batch)
        for_others = batch.left // 2 if ready.ring else 0
        served: list[bytes] = []
        while batch.left > for_others and ready.new_accounts and batch.parked < _MAX_PARKED:
            served.append(ready.new_accounts.popleft())
            self._serve(served[-1], _MIN_TURN, batch)
        ready.ring.extend([*ready.new_accounts, *served])
        ready.new_accounts.clear()
        without_room: list[bytes] = []
        while batch.left > 0 and batch.parked < _MAX_PARKED and (account := ready.next_in_ring()) is not None:
            taken = self._serve(account, max(_MIN_TURN, self._slots.total // 8), batch)
            (ready.ring if taken else without_room).append(account)
        ready.ring.extendleft(reversed(without_room))

    def _serve_parked(self, batch: _Batch) -> None:
        """Give a turn to endpoints that waited for a share which has room now."""
        for_others = batch.left // 2 if self._ready.accounts else 0
        while batch.left > for_others and (endpoint := self._parked.take()) is not None:
            self._ready.had_turn(endpoint.key[0])
            if self._can_send(endpoint, batch.now):
                self._take_or_park(endpoint, min(batch.left - for_others, _MIN_TURN), batch)

    def _take_or_park(self, endpoint: EndpointState, share: int, batch: _Batch) -> int:
        """Take up to `share` deliveries of an endpoint, or park it. Returns how many were taken."""
        if self._parked.add_if_full(endpoint, batch.now):
            self._enqueue(endpoint, batch.now)  # plans a check if its other lane is due later
            batch.parked += 1
            return 0
        taken = self._take(endpoint, share, batch)
        batch.left -= taken
        if not taken:  # its account has no room in the lane that is due
            self._ready.add_again(endpoint)
            batch.passed_over += 1
        return taken

    def _serve(self, account: bytes, least: int, batch: _Batch) -> int:
        """Give an account its turn. It may take `least` deliveries, however many accounts wait. Returns how many."""
        fair = batch.left // max(1, batch.accounts)
        batch.accounts -= 1
        share = min(batch.left, max(least, fair))
        left, batch.passed_over = batch.left, 0
        rooms = self._slots.rooms(account)
        for _ in range(self._ready.count(account)):
            if not share or batch.has_enough or not any(rooms):
                break
            endpoint = self._ready.take(account)
            if not rooms[0] and self._slots.waits_for_account(endpoint, batch.now):
                batch.passed_over += 1
                self._ready.add_again(endpoint)
                continue
            endpoint.queued = False
            if not endpoint.blocked and endpoint.queued_in < self._batches:
                endpoint.blocked = "turn"
            if self._can_send(endpoint, batch.now):  # it could when it was queued
                if taken := self._take_or_park(endpoint, min(share, max(_MIN_TURN, fair)), batch):
                    rooms = self._slots.rooms(account)
                share -= taken
        return left - batch.left

    def _take(self, endpoint: EndpointState, share: int, batch: _Batch) -> int:
        """Add the turns of one endpoint. Returns how many slots they take: these count as in flight until `claimed`."""
        room, limited_by = self._slots.room(endpoint, share, batch.now)
        waited_for, taken, left_out = endpoint.blocked or "plan", 0, False
        for number, lane in endpoint.lanes_by_due():
            if lane.due is None or lane.due > batch.now:
                continue
            count = min(room - taken, free := self._slots.free_for_account(endpoint.key[0], number))
            if count <= 0:
                left_out = True
                continue
            found = Lane(*endpoint.key, number, lane.due)
            batch.turns.append(Turn(found, count, lane.after, waited_for, "turn" if count == free else limited_by))
            lane.clear()
            self._slots.add(endpoint, number, count)
            taken += count
        if taken:  # a lane that is left out goes on waiting for the same, or for this turn's attempts
            endpoint.blocked = endpoint.blocked or limited_by if left_out else ""
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
        if next_due is not None and next_due <= now:
            lane.read_from(turn.after if last is None else last)
            if count == turn.limit:
                endpoint.blocked = endpoint.blocked or turn.limited_by
        self._enqueue(endpoint, now)

    def endpoint_inactive(self, turn: Turn, now: int, *, failed: bool = False) -> None:
        """Nothing was claimed, because the endpoint is not active, or because the claim `failed`, as it would again."""
        endpoint = self._endpoint(turn.lane[:2])
        self._slots.add(endpoint, turn.lane.lane, -turn.limit)
        endpoint.lanes[turn.lane.lane].clear()
        self._slots.set_window(endpoint, 1)
        endpoint.failed_claims = endpoint.failed_claims + 1 if failed else 0
        endpoint.inactive_until = now + min(_INACTIVE_FOR * 2**endpoint.failed_claims, _MOST_INACTIVE)
        self._enqueue(endpoint, now)

    def not_claimed(self, turns: Iterable[Turn], now: int) -> None:
        """The store failed: nothing was claimed, and nothing settled."""
        for endpoint in self._endpoints.values():
            endpoint.healthy_until = 0
        for turn in turns:
            endpoint = self._endpoint(turn.lane[:2])
            self._slots.add(endpoint, turn.lane.lane, -turn.limit)
            endpoint.lanes[turn.lane.lane].add(turn.lane.due)
            endpoint.lanes[turn.lane.lane].read_from(turn.after)
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
        return frozenset(key for key in keys if self._endpoint(key).healthy_until > now)

    def failures_cleared(self, keys: Iterable[Key], now: int) -> None:
        """A success was committed at endpoints that were not known to be healthy, which cleared their failures."""
        for key in keys:
            self._endpoint(key).failures_cleared(now)
