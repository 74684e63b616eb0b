"""Ends deliveries that wait for an endpoint that is removed, or that was inactive for longer than `hold_limit`."""

from collections.abc import Iterable
from datetime import timedelta

from gatepost.core import clock, ids
from gatepost.store.pending import Key
from gatepost.store.transaction import Tx
from gatepost.webhooks import endings, endpoint_rows, queue_rows

_SLICE = 100


def to_sweep(tx: Tx, keys: Iterable[Key]) -> list[Key]:
    """The endpoints among these with deliveries that have to end."""
    return [key for key in keys if (expired := _expired(tx, key)) and queue_rows.has_older(tx, key, expired[0])]


def sweep(tx: Tx, key: Key) -> int:
    """End some of the deliveries of an endpoint that have to end. Returns how many it examined."""
    expired = _expired(tx, key)
    if expired is None:
        return 0
    before, reason = expired
    page = queue_rows.of_endpoint(tx, key, before, _SLICE)
    endings.end_unclaimed(tx, page, reason)
    return len(page)


def _expired(tx: Tx, key: Key) -> tuple[bytes, str] | None:
    """The id before which deliveries have to end, and the reason. None if none has to end."""
    account, endpoint = endpoint_rows.load_with_account(tx, key)
    if account is None or endpoint is None:
        return None
    if endpoint.status == "removed":
        return b"\xff" * 16, "endpoint_removed"
    since = min((at for at in (endpoint.disabled_at, account.suspended_at) if at is not None), default=None)
    limit = tx.at - timedelta(seconds=account.seconds("hold_limit"))
    if since is None or since > limit:
        return None
    return ids.lowest_at(clock.milliseconds(limit)), "held_too_long"
