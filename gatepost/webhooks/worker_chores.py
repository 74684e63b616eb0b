"""Chores of a delivery worker beside sending: the outbox, replays, deliveries that have to end, and old health rows.

Several workers may run them at once: the statements decide which of them does the work.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count

from gatepost.accounts import account_rows
from gatepost.core import ids
from gatepost.core.errors import Unavailable
from gatepost.core.logging import log
from gatepost.core.metrics import OUTBOX_REFUSED
from gatepost.core.repeat import progress
from gatepost.ledger import outbox_rows
from gatepost.store.interface import Store
from gatepost.store.pending import Key
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import endpoint_rows, health_rows, publish, replay, replay_rows, sweep
from gatepost.webhooks.publish import MAX_TRIES, SLICE, OutboxSlice

RETRY_PAUSE = 0.5  # seconds before rows of the outbox with internal errors are tried again
_PAGE = 100
_ALL_ENDPOINTS = 100_000  # more than an account can have


def listed(store: Store) -> list[tuple[str, float, Callable[[], Awaitable[None]]]]:
    """The chores: name, interval in seconds, and work."""
    return [
        ("health", 60.0, partial(delete_recovered_health, store)),
        ("outbox", 0.1 if store.dialect == "postgres" else 3600.0, partial(publish_outbox, store)),
        ("replay", 1.0, partial(run_replays, store)),
        ("sweep", 5.0, partial(sweep_inactive, store)),
        ("sweep suspended", 60.0, partial(sweep_suspended, store)),
    ]


async def publish_outbox(store: Store) -> None:
    """Publish all rows of the outbox, in slices. A slice can be short although there are more rows.

    A row that causes an internal error is left out of the slices, tried by itself, and refused after MAX_TRIES errors.
    """
    errors: dict[int, int] = {}  # internal errors by row
    while True:
        while len(errors) < SLICE and await _publish_slice(store, errors):
            pass
        if not errors:
            return
        await asyncio.sleep(RETRY_PAUSE)
        for number in list(errors):
            await _publish_row(store, number, errors)


async def _publish_slice(store: Store, errors: dict[int, int]) -> bool:
    """Publish a slice, row by row after an error. Returns whether it did anything, so that there may be more to do."""
    try:
        moved = await store.run(partial(publish.from_outbox, without=list(errors)))
    except Unavailable:
        raise
    except Exception:  # noqa: BLE001 (an error in one row must not stop the others)
        log.exception("rows of the outbox could not be published")
        numbers = await store.read(partial(outbox_rows.waiting, limit=SLICE, without=list(errors)))
        return any([await _publish_row(store, number, errors) for number in numbers])
    return _report(moved)


async def _publish_row(store: Store, number: int, errors: dict[int, int]) -> bool:
    """Publish one row, or refuse it if this is its last try. Returns whether it did anything."""
    try:
        moved = await store.run(partial(publish.row_from_outbox, number=number))
    except Unavailable:
        raise
    except Exception:  # noqa: BLE001 (it is retried, and the other rows continue)
        log.exception("row of the outbox could not be published", seq=number)
        errors[number] = errors.get(number, 0) + 1
        if errors[number] < MAX_TRIES:
            return True
        moved = await store.run(partial(publish.refuse_row, number=number))
    errors.pop(number, None)
    return _report(moved)


def _report(moved: OutboxSlice) -> bool:
    """Log and count refused rows. Returns whether the slice has any rows."""
    progress()
    OUTBOX_REFUSED.inc(len(moved.refused))
    for number, problem in moved.refused:
        log.error("outbox row refused", seq=number, error=problem)
    return bool(moved.published or moved.refused)


async def run_replays(store: Store) -> None:
    """Run a slice of one replay of each account in turn, so that no replay delays those of other accounts.

    The replays of an account take turns, so neither a long replay nor a failing one delays the account's others.
    """
    ended: set[tuple[str, str]] = set()
    for turn in count():
        by_account: dict[str, list[str]] = {}
        for account, job in await store.read(replay_rows.running):
            if (account, job) not in ended:
                by_account.setdefault(account, []).append(job)
        for account, jobs in by_account.items():
            job = jobs[turn % len(jobs)]
            if not await _run_slice(store, account, job):
                ended.add((account, job))
        if not by_account:
            return
        progress()


async def _run_slice(store: Store, account: str, replay_id: str) -> bool:
    try:
        return await store.run(lambda tx: replay.run_slice(tx, account, replay_id))
    except Unavailable:
        raise
    except Exception:  # noqa: BLE001 (the other replays continue)
        log.exception("replay failed", replay=replay_id)
        return False


async def sweep_inactive(store: Store) -> None:
    """End deliveries of removed endpoints, and of endpoints that were disabled for too long."""
    after: Key = (LOWEST, LOWEST)
    while keys := await store.read(partial(endpoint_rows.inactive_with_deliveries, after=after, limit=_PAGE)):
        await _sweep(store, keys)
        after = keys[-1]


async def sweep_suspended(store: Store) -> None:
    """End deliveries of accounts that were suspended for too long."""
    after = ""
    while accounts := await store.read(partial(account_rows.page, after=after, limit=_PAGE)):
        for account in accounts:
            if not account.active and (store.shards is None or store.shards.is_reachable(ids.raw(account.id))):
                await _sweep(store, await store.read(partial(_endpoints, account=account.id)))
        after = accounts[-1].name


def _endpoints(tx: Tx, account: str) -> list[Key]:
    raw = ids.raw(account)
    return [(raw, ids.raw(endpoint.id)) for endpoint in endpoint_rows.page(tx, account, LOWEST, _ALL_ENDPOINTS)]


async def _sweep(store: Store, keys: list[Key]) -> None:
    """Sweep these endpoints. It reads first, because a unit that finds nothing to end would still cost a commit."""
    for key in await store.read(partial(sweep.to_sweep, keys=keys)):
        while await store.run(partial(sweep.sweep, key=key)):
            progress()
            await asyncio.sleep(0)


async def delete_recovered_health(store: Store) -> None:
    """Delete old health rows. It reads first, because most of the time there is nothing to delete."""
    if await store.read(health_rows.has_recovered):
        await store.run(health_rows.delete_recovered)
