"""Background work of the service: seal the ledger, rotate keys, prune, and aggregate counts.

Every chore is safe to run in several processes and on several machines at once, because its writes decide races.
"""

import asyncio
from functools import partial
from pathlib import Path

import msgspec

from gatepost.accounts import Account, account_rows
from gatepost.core import files, ids
from gatepost.core.logging import log
from gatepost.core.repeat import Chore, Chores, progress
from gatepost.core.supervisor_metrics import RECOUNTED, SEALED, UNACCOUNTED, UNSEALED
from gatepost.ledger import chain_rows, chains, checkpoint_rows, heads, idempotency, seal_rows, sealing
from gatepost.ledger.chain import BrokenChain
from gatepost.ledger.retention import PruningPosition
from gatepost.ledger.seal import BATCH
from gatepost.oauth import expiry, key_rotation, refusal_counts, refusals
from gatepost.run.app import Runtime
from gatepost.store.interface import Store
from gatepost.store.transaction import LOWEST, Tx, Unit
from gatepost.webhooks import pruning, recount, tallies

SEAL_EVERY = 0.5
SEALED_TOGETHER = (25, 5, 1)  # ledgers in one commit: first many, then fewer with more entries each
GROW_EVERY = 5.0
RECORD_HEADS_EVERY = 60.0
KEEP_EVERY = 60.0
PARTITIONS_EVERY = 60.0
DEAD_ROWS_EVERY = 10.0
PRUNE_EVERY = 300.0
FORGET_EVERY = 60.0
ADD_LOGGED_EVERY = 2.0
ROLL_UP_EVERY = 60.0
CHECKPOINT_EVERY = 1.0
RECOUNT_EVERY = 2.0
RECOUNT_SECONDS = 0.02  # per run, to the end of a page: about a hundredth of a core
_TALLIES = 500
_LOGGED = 50  # rows of the log, of which each may have the counts of many endpoints


async def run(runtime: Runtime, chores: Chores | None = None) -> None:
    """Run until cancelled. A chore that fails is logged and retried, and does not affect the others."""
    chores = chores or Chores()
    for every, chore in (
        (SEAL_EVERY, seal),
        (GROW_EVERY, grow_trees),
        (RECORD_HEADS_EVERY, record_heads),
        (KEEP_EVERY, keep_keys),
        (PARTITIONS_EVERY, maintain_partitions),
        (DEAD_ROWS_EVERY, remove_dead_rows),
        (PRUNE_EVERY, prune),
        (FORGET_EVERY, forget),
        (ADD_LOGGED_EVERY, add_logged_counts),
        (ROLL_UP_EVERY, roll_up),
        (CHECKPOINT_EVERY, checkpoint),
        (10.0, sum_up_refusals),
        (RECOUNT_EVERY, Recounting().recount),
    ):
        chores.start(Chore(chore.__name__.replace("_", " "), every, partial(chore, runtime)))
    await chores.run()


async def seal(runtime: Runtime) -> None:
    """Seal the entries of every ledger that has unsealed entries."""
    store, full = runtime.store, True
    while full:
        full = await _seal_each(runtime)
        oldest = await store.read(seal_rows.oldest_unsealed)
        UNSEALED.set(0 if oldest is None else max(0.0, (store.now() - oldest).total_seconds()))


async def _seal_each(runtime: Runtime) -> bool:
    """Add one seal to every ledger that has unsealed entries. Returns whether a commit was full, so that more may wait.

    Several ledgers share a commit. Those with too many entries for that follow with fewer others, and then alone. In a
    distributed store, every ledger has its own commit, which concerns one database node.
    """
    store, key = runtime.store, runtime.service.keys.seal
    accounts, full = await store.read(seal_rows.unsealed_accounts), False
    for ledgers in SEALED_TOGETHER if store.shards is None else (1,):
        larger: list[str] = []
        for start in range(0, len(accounts), ledgers):
            group = accounts[start : start + ledgers]
            prepared = await store.read(partial(sealing.prepare, key=key, accounts=group))
            larger += prepared.larger
            for account, error in prepared.broken.items():  # the other ledgers are still sealed
                log.error("ledger not sealed", account=account, error=str(error))
            if prepared.seals:
                sealed = await store.run(partial(sealing.add, key=key, prepared=prepared.seals))
                SEALED.inc(sealed)
                full = full or sealed == BATCH
            progress()
        accounts = larger
    return full


async def grow_trees(runtime: Runtime) -> None:
    """After an upgrade, build the trees of ledgers that were sealed before there were trees, in slices."""
    key = runtime.service.keys.seal
    for account in await runtime.store.read(lambda tx: chain_rows.accounts_with_incomplete_tree(tx, 100)):
        try:
            while await runtime.store.run(partial(chains.grow_tree, key=key, account=account)):
                await asyncio.sleep(0)
        except BrokenChain as error:
            log.error("ledger tree not built", account=account, error=str(error))


async def record_heads(runtime: Runtime) -> None:
    """Write the changed heads to the operator's ledger, and sign a checkpoint of each."""
    store, service = runtime.store, runtime.service
    key, after = service.keys.seal, ""
    while True:
        due = await store.read(
            partial(heads.due, key=key, signer=service.signer, base_url=service.base_url, after=after)
        )
        if due.chains:
            await store.run(partial(heads.record_heads, key=key, grown=due.chains))
        after = due.next
        if not after:
            break
    if runtime.checkpoints is not None:
        await _write_checkpoints(store, runtime.checkpoints)


async def _write_checkpoints(store: Store, path: Path) -> None:
    """Write a line per account, as in `GET /checkpoints`. The file is replaced atomically, and only if it changed."""
    lines, after = [], ""
    while page := await store.read(partial(checkpoint_rows.notes, after=after, limit=500)):
        lines += [
            msgspec.json.encode({"account": account, "size": size, "checkpoint": note}) + b"\n"
            for account, size, note in page
            if note
        ]
        after = page[-1][0]
    await asyncio.to_thread(_replace, path, b"".join(lines))


def _replace(path: Path, content: bytes) -> None:
    try:
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # with PostgreSQL, nothing else is in it
            files.replace(path, content, mode=0o666)  # the umask decides who can read it
    except OSError as error:
        log.error("checkpoints not written", file=str(path), error=str(error))


async def keep_keys(runtime: Runtime) -> None:
    """Announce, activate, retire and purge signing keys when it is time."""
    changes = await runtime.store.run(lambda tx: key_rotation.advance(tx, runtime.service, key_rotation.BY_SERVICE))
    for change in changes:
        log.info("signing key", key=change.key.id, alg=change.key.alg, status=change.key.status)


async def maintain_partitions(runtime: Runtime) -> None:
    """On PostgreSQL, make partitions ahead, and drop those whose retention has ended."""
    if runtime.store.dialect != "postgres":
        return
    classes = await runtime.store.read(account_rows.retention_classes)
    done = await asyncio.to_thread(runtime.store.maintain_partitions, classes)
    for name in done.dropped:
        log.info("partition dropped", table=name)
    for name, reason in done.waiting.items():
        log.warning("partition not changed", table=name, reason=reason)


async def remove_dead_rows(runtime: Runtime) -> None:
    """On PostgreSQL, remove dead rows that VACUUM has to leave because of an old transaction."""
    await asyncio.to_thread(runtime.store.remove_dead_rows)


async def prune(runtime: Runtime) -> None:
    """A read unit examines a hundred accounts. Only accounts that have something to prune are written to."""
    store, key, after = runtime.store, runtime.service.keys.seal, ""
    while page := await store.read(partial(account_rows.page, after=after, limit=100)):
        for account in await store.read(partial(_due_for_pruning, key=key, page=_reachable(store, page))):
            position: PruningPosition | None = pruning.START
            while position is not None:
                position = (await store.run(pruning.prune_slice(key, account, position))).next
                progress()
                await asyncio.sleep(0)
        after = page[-1].name


def _due_for_pruning(tx: Tx, key: bytes, page: list[Account]) -> list[str]:
    return [account.id for account in page if pruning.is_due(tx, key, account.id)]


def _reachable(store: Store, accounts: list[Account]) -> list[Account]:
    """Leave out the accounts on a database node that is down."""
    shards = store.shards
    return [each for each in accounts if shards is None or shards.is_reachable(ids.raw(each.id))]


async def _run_slices(store: Store, unit: Unit[int], full: int) -> None:
    """Run the unit until it handles fewer rows than a full slice has. Other work gets its turn in between."""
    while await store.run(unit) >= full:
        progress()
        await asyncio.sleep(0)


async def forget(runtime: Runtime) -> None:
    """Delete expired rows in slices. Anyone can add such rows, so this runs more often than `prune`."""
    await _run_slices(runtime.store, _delete_expired, 200)


def _delete_expired(tx: Tx) -> int:
    return max(expiry.delete_expired(tx), idempotency.delete_expired(tx), tx.delete_old_changes())


async def add_logged_counts(runtime: Runtime) -> None:
    """Add up the counts of endpoints that commits have appended to the log."""
    await _run_slices(runtime.store, partial(tallies.add_logged, limit=_LOGGED), _LOGGED)


async def roll_up(runtime: Runtime) -> None:
    """Turn counts by the minute into counts by the hour, and delete old counts by the hour."""
    oldest = tallies.oldest_minute(runtime.store.now())
    for roll_up in (tallies.roll_up, tallies.roll_up_endpoints):
        await _run_slices(runtime.store, partial(roll_up, before=oldest, limit=_TALLIES), _TALLIES)
    for delete_old in (tallies.delete_old, tallies.delete_old_of_endpoints):
        await _run_slices(runtime.store, partial(delete_old, limit=_TALLIES), _TALLIES)


async def sum_up_refusals(runtime: Runtime) -> None:
    """Record the counts of refusals whose window has ended."""
    await _run_slices(runtime.store, _sum_up_refusals, 200)


def _sum_up_refusals(tx: Tx) -> int:
    ended = refusal_counts.end(tx, tx.at - refusals.WINDOW)
    refusals.sum_up(tx, ended)
    return len(ended)


class Recounting:
    """Checks continuously, page by page, that the deliveries which entries say they created exist."""

    def __init__(self) -> None:
        self._accounts: list[Account] = []
        self._after = LOWEST
        self._missing = 0

    async def recount(self, runtime: Runtime) -> None:
        """Check the next pages for a limited time, and not beyond the end of a round."""
        loop = asyncio.get_running_loop()
        until = loop.time() + RECOUNT_SECONDS
        await self._page(runtime)
        while self._accounts and loop.time() < until:
            await self._page(runtime)

    async def _page(self, runtime: Runtime) -> None:
        if not self._accounts:
            self._accounts = _reachable(runtime.store, await runtime.store.read(_every_account))
            self._missing, self._after = 0, LOWEST
        elif not _reachable(runtime.store, self._accounts[:1]):
            self._accounts.pop(0)
            self._after = LOWEST
        if not self._accounts:
            return
        account, after = self._accounts[0].id, self._after
        page = await runtime.store.read(lambda tx: recount.count_missing(tx, account, after))
        RECOUNTED.inc(page.entries)
        self._missing += page.deliveries
        self._after = page.next or LOWEST
        if page.next is None:
            self._accounts.pop(0)
            if not self._accounts:  # every account was counted
                UNACCOUNTED.set(self._missing)


def _every_account(tx: Tx) -> list[Account]:
    accounts: list[Account] = []
    while page := account_rows.page(tx, accounts[-1].name if accounts else "", 200):
        accounts += page
    return accounts


async def checkpoint(runtime: Runtime) -> None:
    """Make a checkpoint of the database: SQLite moves its write-ahead log into the file."""
    await asyncio.to_thread(runtime.store.checkpoint)
