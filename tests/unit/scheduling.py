"""Steps of a schedule for the tests: endpoints begin to wait, deliveries are claimed, attempts end."""

from collections.abc import Iterable

from gatepost.store.pending import Key
from gatepost.webhooks.queue_rows import Lane
from gatepost.webhooks.schedule import Schedule, Turn

NOW = 1_794_729_600_000
MANY = 10_000


def key(endpoint: int = 0, account: int = 0) -> Key:
    return bytes([account]) * 16, endpoint.to_bytes(16, "big")


def wait_for(schedule: Schedule, *keys: Key, lane: int = 0, due: int = NOW, now: int = NOW) -> None:
    for each in keys:
        schedule.lane_found(Lane(*each, lane, due), now)


def claim(
    schedule: Schedule, turn: Turn, count: int | None = None, left: int | None = NOW, now: int = NOW
) -> tuple[int, bytes]:
    """As if so many were there, and more of them until `left`; the last position."""
    positions = [
        (turn.lane.due, number.to_bytes(16, "big")) for number in range(turn.limit if count is None else count)
    ]
    schedule.claimed(turn, len(positions), positions[-1] if positions else None, left, now)
    return positions[-1] if positions else turn.after


def end(
    schedule: Schedule, *keys: Key, lane: int = 0, succeeded: bool = True, overloaded: bool = False, now: int = NOW
) -> None:
    for each in keys:
        schedule.attempt_ended(each, lane, succeeded=succeeded, overloaded=overloaded, now=now)


def warm(schedule: Schedule, keys: Iterable[Key], window: int, rate: int | None = None) -> None:
    """Let endpoints answer well, some time ago, until their window is so wide."""
    for each in keys:
        for now in range(NOW - MANY, NOW - MANY + 1000 * window.bit_length(), 1000):
            wait_for(schedule, each, due=now, now=now)
            [turn] = schedule.turns(now)
            schedule.set_limits(each, window, rate)
            claim(schedule, turn, 1, None, now)
            end(schedule, each, now=now)


def limits(turns: Iterable[Turn]) -> dict[Key, int]:
    return {(turn.lane.account, turn.lane.endpoint): turn.limit for turn in turns}
