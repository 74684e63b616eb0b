"""The rows of replays."""

from typing import Any, NamedTuple

import msgspec

from gatepost.core import ids
from gatepost.store.transaction import Tx
from gatepost.webhooks.subscriptions import Replay

_replay = msgspec.json.Decoder(Replay)
_encode = msgspec.json.Encoder().encode


class Running(NamedTuple):
    """A replay: its progress, and what was requested."""

    account: str
    id: str
    subscription: str
    state: str
    position: bytes
    examined: int
    made: int
    asked: Replay


def count_running(tx: Tx) -> tuple[int, int, int]:
    """Replays under way: their number, events examined, and deliveries created."""
    [(running, examined, made)] = tx.rows("count_replays")
    return running, int(examined), int(made)


def add(tx: Tx, account: str, replay: str, subscription: str, asked: Replay, position: bytes) -> None:
    tx.write(
        "insert_replay", account=ids.raw(account), id=ids.raw(replay), subscription=ids.raw(subscription),
        position=position, document=_encode(asked).decode(),
    )  # fmt: skip


def running(tx: Tx) -> list[tuple[str, str]]:
    return [(ids.text("acc", account), ids.text("rpl", raw_id)) for account, raw_id in tx.rows("running_replays")]


def lock(tx: Tx, account: str, replay: str) -> Running | None:
    """None if it has ended, or another worker has locked it."""
    found = tx.one("lock_replay", account=ids.raw(account), id=ids.raw(replay))
    return _running(found) if found else None


def last(tx: Tx, account: str, subscription: str) -> Running | None:
    found = tx.one("last_replay", account=ids.raw(account), subscription=ids.raw(subscription))
    return _running(found) if found else None


def update(tx: Tx, replay: Running) -> None:
    tx.write(
        "move_replay", account=ids.raw(replay.account), id=ids.raw(replay.id), state=replay.state,
        position=replay.position, examined=replay.examined, made=replay.made,
    )  # fmt: skip


def _running(row: tuple[Any, ...]) -> Running:
    account, raw_id, subscription, state, position, examined, made, document = row
    return Running(
        ids.text("acc", account), ids.text("rpl", raw_id), ids.text("sub", subscription), state, position,
        examined, made, _replay.decode(document),
    )  # fmt: skip
