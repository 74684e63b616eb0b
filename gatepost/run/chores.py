"""Background work of the service: seal the ledger, rotate keys, prune, and aggregate counts.

Every chore is safe to run in several processes and on several machines at once, because its writes decide races.
"""

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec

from gatepost.accounts import Account, account_rows
from gatepost.core import clock
from gatepost.core.logging import log
from gatepost.core.repeat import Chore, Chores, progress
from gatepost.core.supervisor_metrics import RECOUNTED, SEALED, UNACCOUNTED, UNSEALED
from gatepost.ledger import (
    chain_rows,
    chains,
    checkpoint_rows,
    heads,
    idempotency,
    seal_rows,
    sealing,
)
from gatepost.ledger.chain import BrokenChain, Chain
from gatepost.ledger.heads import DueHeads
from gatepost.ledger.seal import BATCH
from gatepost.ledger.sealing import PreparedSeal
from gatepost.oauth import expiry, key_rotation, refusal_counts, refusals
from gatepost.oauth.service import Service
from gatepost.run.app import Runtime
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import pruning, tallies
from gatepost.webhooks.pruning import PruningPosition

SEAL_EVERY = 0.5
GROW_EVERY = 5.0
RECORD_HEADS_EVERY = 60.0
KEEP_EVERY = 60.0
PRUNE_EVERY = 300.0
FORGET_EVERY = 60.0
ROLL_UP_EVERY = 60.0
CHECKPOINT_EVERY = 1.0
RECOUNT_EVERY = 2.0
RECOUNT_ENTRIES, RECOUNT_PAGES = 2500, 25  # per run: less than a hundredth of a core
MINUTES_KEPT = timedelta(hours=2)  # before counts by the minute become counts by the hour
HOURS_KEPT = timedelta(days=400)
_TALLIES = 500


async def run(runtime: Runtime, chores: Chores | None = None) -> None:
    """Run until cancelled. A chore that fails is logged and retried, and does not affect the others."""
    chores = chores or Chores()
    for every, chore in (
        (SEAL_EVERY, seal),
        (GROW_EVERY, grow_trees),
        (RECORD_HEADS_EVERY, record_heads),
        (KEEP_EVERY, keep_keys),
        (PRUNE_EVERY, prune),
        (FORGET_EVERY, forget),
        (ROLL_UP_EVERY, roll_up),
        (CHECKPOINT_EVERY, checkpoint),
        (10.0, sum_up_refusals),
        (RECOUNT_EVERY, Recounting().recount),
    ):
        chores.start(Chore(chore.__name__.replace("_", " "), every, partial(chore, runtime)))
    await chores.run()


async def seal(runtime: Runtime) -> None:
    store = runtime.store
    for account in await store.read(seal_rows.unsealed_accounts):
        try:
            while prepared := await store.read(_prepare(runtime.service.keys.seal, account)):
                SEALED.inc(await store.run(_add(account, prepared)))
                progress()
                if len(prepared.entries) < BATCH:
                    break
        except BrokenChain as error:  # the other ledgers are still sealed
            log.error("ledger not sealed", account=account, error=str(error))
    oldest = await store.read(seal_rows.oldest_unsealed)
    UNSEALED.set(0 if oldest is None else max(0.0, (store.now() - oldest).total_seconds()))


async def grow_trees(runtime: Runtime) -> None:
    """After an upgrade, build the trees of ledgers that were sealed before there were trees, in slices."""
    key = runtime.service.keys.seal
    for account in await runtime.store.read(lambda tx: chain_rows.behind(tx, 100)):
        try:
            while await runtime.store.run(_grow(key, account)):
                await asyncio.sleep(0)
        except BrokenChain as error:
            log.error("ledger tree not built", account=account, error=str(error))


def _grow(key: bytes, account: str) -> Callable[[Tx], bool]:
    return lambda tx: chains.grow_some(tx, key, account)


async def record_heads(runtime: Runtime) -> None:
    """Write the changed heads to the operator's ledger, and sign a checkpoint of each."""
    service, after = runtime.service, ""
    while True:
        due = await runtime.store.read(_due(service, after))
        if due.chains:
            await runtime.store.run(_record(service.keys.seal, due.chains))
        after = due.next
        if not after:
            break
    if runtime.checkpoints is not None:
        await _write_checkpoints(runtime, runtime.checkpoints)


async def _write_checkpoints(runtime: Runtime, path: Path) -> None:
    """Write a line per account, as in `GET /checkpoints`. The file is replaced atomically, and only if it changed."""
    lines, after = [], ""
    while page := await runtime.store.read(_notes(after)):
        lines += [
            msgspec.json.encode({"account": account, "size": size, "checkpoint": note}) for account, size, note in page
        ]
        after = page[-1][0]
    await asyncio.to_thread(_replace, path, b"".join(line + b"\n" for line in lines))


def _notes(after: str) -> Callable[[Tx], list[tuple[str, int, str]]]:
    return lambda tx: [row for row in checkpoint_rows.notes(tx, after, 500) if row[2]]


def _replace(path: Path, content: bytes) -> None:
    try:
        if path.exists() and path.read_bytes() == content:
            return
        part = path.with_name(path.name + ".part")
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        log.error("checkpoints not written", file=str(path), error=str(error))


def _due(service: Service, after: str) -> Callable[[Tx], DueHeads]:
    return lambda tx: heads.due(tx, service.keys.seal, service.signer, service.base_url, after)


def _record(key: bytes, moved: list[tuple[str, Chain, str]]) -> Callable[[Tx], int]:
    return lambda tx: heads.record_heads(tx, key, moved)


def _prepare(key: bytes, account: str) -> Callable[[Tx], PreparedSeal | None]:
    return lambda tx: sealing.prepare(tx, key, account)


def _add(account: str, prepared: PreparedSeal) -> Callable[[Tx], int]:
    return lambda tx: sealing.add(tx, account, prepared)


async def keep_keys(runtime: Runtime) -> None:
    changes = await runtime.store.run(lambda tx: key_rotation.advance(tx, runtime.service, key_rotation.by_service()))
    for change in changes:
        log.info("signing key", key=change.key.id, alg=change.key.alg, status=change.key.status)


async def prune(runtime: Runtime) -> None:
    """A read unit examines a hundred accounts. Only accounts that have something to prune are written to."""
    store, key, after = runtime.store, runtime.service.keys.seal, ""
    while page := await store.read(_accounts(after)):
        for account in await store.read(_with_something_due(key, page)):
            position: PruningPosition | None = pruning.START
            while position is not None:
                position = (await store.run(pruning.prune_slice(key, account, position))).next
                progress()
                await asyncio.sleep(0)
        after = page[-1].name


async def forget(runtime: Runtime) -> None:
    """Delete expired rows in slices. Anyone can add such rows, so this runs more often than `prune`."""
    while await runtime.store.run(_delete_expired) >= 200:
        progress()
        await asyncio.sleep(0)


def _delete_expired(tx: Tx) -> int:
    return max(expiry.delete_expired(tx), idempotency.delete_expired(tx), tx.delete_old_changes())


def _accounts(after: str) -> Callable[[Tx], list[Account]]:
    return lambda tx: account_rows.page(tx, after, 100)


def _with_something_due(key: bytes, page: list[Account]) -> Callable[[Tx], list[str]]:
    return lambda tx: [account.id for account in page if pruning.is_due(tx, key, account.id)]


async def roll_up(runtime: Runtime) -> None:
    """Turn counts by the minute into counts by the hour, and delete old counts by the hour."""
    now = runtime.store.now()
    hour = clock.seconds(now - MINUTES_KEPT) // 3600 * 3600
    while await runtime.store.run(lambda tx: tallies.roll_up(tx, hour, _TALLIES)) == _TALLIES:
        progress()
        await asyncio.sleep(0)
    last = clock.seconds(now - HOURS_KEPT)
    while await runtime.store.run(lambda tx: tallies.delete_before(tx, last, _TALLIES)) == _TALLIES:
        progress()
        await asyncio.sleep(0)


async def sum_up_refusals(runtime: Runtime) -> None:
    def unit(tx: Tx) -> int:
        ended = refusal_counts.end(tx, tx.at - refusals.WINDOW)
        refusals.sum_up(tx, ended)
        return len(ended)

    while await runtime.store.run(unit) >= 200:
        progress()
        await asyncio.sleep(0)


class Recounting:
    """Checks continuously, page by page, that the deliveries which entries say they created exist."""

    def __init__(self) -> None:
        self._accounts: list[str] = []
        self._after = LOWEST
        self._missing = 0

    async def recount(self, runtime: Runtime) -> None:
        entries = 0
        for _ in range(RECOUNT_PAGES):
            entries += await self._page(runtime)
            if entries >= RECOUNT_ENTRIES or not self._accounts:
                return

    async def _page(self, runtime: Runtime) -> int:
        if not self._accounts:
            self._accounts = await runtime.store.read(_every_account)
            self._missing, self._after = 0, LOWEST
        account, after = self._accounts[0], self._after
        page = await runtime.store.read(lambda tx: pruning.count_missing(tx, account, after))
        RECOUNTED.inc(page.entries)
        self._missing += page.deliveries
        self._after = page.next or LOWEST
        if page.next is None:
            self._accounts.pop(0)
            if not self._accounts:  # every account was counted
                UNACCOUNTED.set(self._missing)
        return page.entries


def _every_account(tx: Tx) -> list[str]:
    account_ids: list[str] = []
    after = ""
    while page := account_rows.page(tx, after, 200):
        account_ids += [account.id for account in page]
        after = page[-1].name
    return account_ids


async def checkpoint(runtime: Runtime) -> None:
    await asyncio.to_thread(runtime.store.checkpoint)
