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
from gatepost.store.interface import Store
from gatepost.store.pending import Key
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import endpoint_rows, health_rows, publish, replay, replay_rows, sweep

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
    """Publish all rows of the outbox, in slices. A slice can be short although there are more rows."""
    moved = None
    while moved is None or moved.published or moved.refused:
        moved = await store.run(publish.from_outbox)
        progress()
        OUTBOX_REFUSED.inc(len(moved.refused))
        for number, problem in moved.refused:
            log.error("outbox row refused", seq=number, error=problem)


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
