"""The script of a history: the operations and faults of each day, which the seed determines in advance.

The script does not depend on the responses of the service, so a seed gives both stores the same operations and faults,
in the same order, at the same times of the day and with the same random values. The command prints the digest of the
script.

The outcome may differ between stores. Commits are scheduled differently, so these can differ: the commit in which a
planned fault occurs, the response of a flaky receiver, ids, and a random choice among existing objects. A day with too
few deliveries, tokens or faults continues with further moments of its script. The invariants hold for every outcome.
"""

import hashlib
from contextvars import ContextVar
from random import Random
from typing import NamedTuple

DAY = 86_400.0
MOMENTS = 6  # of every day

# the operations of tenants, operators and receivers, and their weights
OPERATIONS = {
    "publish": 6, "publish_many": 1, "machine_token": 6, "refused_token": 1, "sign_in": 1, "refresh": 4,
    "refresh_together": 2, "reuse": 0.5, "revoke": 1, "new_endpoint": 0.2, "pause": 0.5, "resume": 1.5,
    "change_limits": 0.5, "rotate_endpoint_secret": 0.2, "remove_endpoint": 0.1, "replay": 0.3, "suspend": 0.6,
    "operator_acts": 0.5, "change_mood": 4, "all_well": 1, "read_plans": 1,
}  # fmt: skip
FAULTS = {
    "crash_worker": 2, "crash_web": 1, "crash_supervisor": 1, "crash_in_commit": 3, "lose_answers": 4, "stall": 2,
    "freeze": 1, "freeze_worker": 3, "silence_bell": 1, "run_short": 0.5, "set_clock": 0.5, "second_worker": 1,
    "restart_into_news": 2,
}  # fmt: skip

_drawing: ContextVar[Random] = ContextVar("drawing")


class Step(NamedTuple):
    """An operation or a fault. Its own seed determines its other random values."""

    after: float  # seconds since the beginning of the moment
    name: str
    seed: str


class Moment(NamedTuple):
    at: float  # seconds since the beginning of the day
    steps: list[Step]


def random() -> Random:
    """Return the random generator of the current step."""
    return _drawing.get()


def draw_from(seed: str) -> None:
    """Set the random generator of the current context."""
    _drawing.set(Random(seed))


def moment(seed: int, day: int, number: int) -> Moment:
    """Draw the steps of a moment."""
    dice = Random(f"{seed} day {day} moment {number}")
    at = dice.uniform(0, DAY * 0.9)
    steps = [(0.0, OPERATIONS)] * dice.randint(3, 6)
    steps += [(dice.uniform(0, 3), OPERATIONS) for _ in range(dice.randint(0, 2))]
    if dice.random() < 0.9:
        steps.append((dice.uniform(0, 0.02), FAULTS))
    drawn = [
        Step(after, dice.choices(list(kinds), list(kinds.values()))[0], f"{seed} {day} {number} {place}")
        for place, (after, kinds) in enumerate(steps)
    ]
    return Moment(at, sorted(drawn, key=lambda step: step.after))


def moments(seed: int, day: int) -> list[Moment]:
    """Return the moments that every day has, in order."""
    return sorted((moment(seed, day, number) for number in range(MOMENTS)), key=lambda each: each.at)


def digest(seed: int, days: int) -> str:
    """Return the digest of all operations and faults of this many days."""
    drawn = repr([moments(seed, day) for day in range(days)])
    return hashlib.sha256(drawn.encode()).hexdigest()[:16]
