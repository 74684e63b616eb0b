"""The rows of replays."""

from typing import Any, NamedTuple

import msgspec

from gatepost.core import ids
from gatepost.store.transaction import Tx
from gatepost.webhooks.subscriptions import Replay

_replay = msgspec.json.Decoder(Replay)
_encode = msgspec.json.Encoder().encode


class ReplayJob(NamedTuple):
    """A replay: its progress, and what was requested. `made` counts the deliveries that it created."""

    account: str
    id: str
    subscription: str
    state: str
    position: bytes
    examined: int
    made: int
    request: Replay


def count_running(tx: Tx) -> tuple[int, int, int]:
    """The number of running replays, and the sums of the events examined and the deliveries created."""
    [(running, examined, made)] = tx.rows("count_replays")
    return running, int(examined), int(made)


def add(tx: Tx, account: str, replay: str, subscription: str, request: Replay, position: bytes) -> None:
    """Insert a replay that starts at this position in the ledger."""
    tx.write(
        "insert_replay", account=ids.raw(account), id=ids.raw(replay), subscription=ids.raw(subscription),
        position=position, document=_encode(request).decode(),
    )  # fmt: skip


def running(tx: Tx) -> list[tuple[str, str]]:
    """The account and the id of running replays, of each account the ten that were started first."""
    return [
        (ids.text("acc", account), ids.text("rpl", raw_id)) for account, raw_id in sorted(tx.rows("running_replays"))
    ]


def lock(tx: Tx, account: str, replay: str) -> ReplayJob | None:
    """Lock a running replay. None if it has ended, or another worker has locked it."""
    row = tx.one("lock_replay", account=ids.raw(account), id=ids.raw(replay))
    return _job(row) if row else None


def latest(tx: Tx, account: str, subscription: str) -> ReplayJob | None:
    """Load the latest replay of a subscription."""
    row = tx.one("last_replay", account=ids.raw(account), subscription=ids.raw(subscription))
    return _job(row) if row else None


def update(tx: Tx, replay: ReplayJob) -> None:
    """Write the progress of a replay."""
    tx.write(
        "move_replay", account=ids.raw(replay.account), id=ids.raw(replay.id), state=replay.state,
        position=replay.position, examined=replay.examined, made=replay.made,
    )  # fmt: skip


def _job(row: tuple[Any, ...]) -> ReplayJob:
    account, raw_id, subscription, state, position, examined, made, document = row
    return ReplayJob(
        ids.text("acc", account), ids.text("rpl", raw_id), ids.text("sub", subscription), state, position,
        examined, made, _replay.decode(document),
    )  # fmt: skip
