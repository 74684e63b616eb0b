"""What a delivery worker does with one commit: in a distributed store, only what is on one database node.

A node that is down then delays its own accounts, and not the others.
"""

from typing import NamedTuple

from gatepost.store.shards import Node, Shards
from gatepost.webhooks.schedule import Schedule, Turn
from gatepost.webhooks.settle import FinishedAttempt


class Task(NamedTuple):
    """Attempts to settle, and turns to claim, with one commit."""

    attempts: list[FinishedAttempt]
    turns: list[Turn]


def turns(shards: Shards | None, schedule: Schedule, now: int) -> list[Turn]:
    """What to claim now. Endpoints on a node that is down are tried again later."""
    found = schedule.turns(now)
    if shards is None or not shards.down:
        return found
    for turn in found:
        if not shards.is_reachable(turn.lane.account):
            schedule.endpoint_inactive(turn, now)
    return [turn for turn in found if shards.is_reachable(turn.lane.account)]


def take(shards: Shards | None, finished: list[FinishedAttempt], most: int) -> list[FinishedAttempt]:
    """Remove the first attempts that can be settled now, and return them."""
    if shards is None or not shards.down:
        taken = finished[:most]
        del finished[: len(taken)]
        return taken
    taken = [attempt for attempt in finished if shards.is_reachable(attempt.result.claim.key[0])][:most]
    identities = set(map(id, taken))
    finished[:] = [attempt for attempt in finished if id(attempt) not in identities]
    return taken


def split(shards: Shards | None, attempts: list[FinishedAttempt], turns: list[Turn]) -> list[Task]:
    """A task for each node, or one for everything."""
    if shards is None:
        return [Task(attempts, turns)]
    tasks: dict[Node, Task] = {}
    for attempt in attempts:
        tasks.setdefault(shards.node(attempt.result.claim.key[0]), Task([], [])).attempts.append(attempt)
    for turn in turns:
        tasks.setdefault(shards.node(turn.lane.account), Task([], [])).turns.append(turn)
    return list(tasks.values())
