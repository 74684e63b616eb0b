"""Which units that only append share a commit on PostgreSQL."""

from collections.abc import Iterator
from datetime import datetime

from gatepost.store.cache import Cache
from gatepost.store.pending import PendingWrites, Row
from gatepost.store.shards import Node, Shards
from gatepost.store.transaction import Connection, Engine, Precomputed, Tx, precompute, prefetch
from gatepost.store.work import Work

MOST_UNITS = 200
MOST_ROWS = 1500  # rows inserted by one commit, unless a single unit inserts more
_NOTHING = PendingWrites()


def batches(
    works: list[Work], shards: Shards | None, cache: Cache, engine: Engine, at: datetime
) -> Iterator[list[Work]]:  # fmt: skip
    """Units that can share a commit. In a distributed store they are of one database node.

    A commit on several nodes takes two phases, and fails if one of them is down. A unit whose node is not known before
    it runs is alone. It comes before the others, since it may load into the cache what they need to be known.
    """
    if shards is None:
        yield from _bounded(works)
        return
    groups: dict[Node, list[Work]] = {}
    for work in works:
        if work.precomputed is None and work.hints.prefetch is None:
            work.precomputed = precompute(work.unit, cache, at, engine)
        nodes = {shards.node(account) for account in _accounts(work, cache, engine, at)}
        if len(nodes) == 1:
            groups.setdefault(nodes.pop(), []).append(work)
        else:
            yield [work]
    for group in groups.values():
        yield from _bounded(group)


def _accounts(work: Work, cache: Cache, engine: Engine, at: datetime) -> set[bytes]:
    """The accounts that a unit writes to, as far as they are known before it runs."""
    if work.precomputed is not None:
        return work.precomputed.pending.accounts
    if work.hints.prefetch is None:
        return set()
    wanted = precompute(work.hints.prefetch, cache, at, engine)
    return {wanted.result.key[0]} if wanted is not None and wanted.result is not None else set()


def _bounded(works: list[Work]) -> Iterator[list[Work]]:
    """Units in groups that do not become too large.

    Two units that must write the same row are in different groups, so that the second one is left out by itself.
    """
    batch: list[Work] = []
    keys: set[Row] = set()
    rows = 0
    for work in works:
        of_work = work.precomputed.pending if work.precomputed is not None else _NOTHING
        if len(batch) == MOST_UNITS or rows > MOST_ROWS or not keys.isdisjoint(of_work.keys):
            yield batch
            batch, keys, rows = [], set(), 0
        batch.append(work)
        keys |= of_work.keys
        rows += of_work.size
    if batch:
        yield batch


def precompute_prefetched(
    connection: Connection, cache: Cache, at: datetime, engine: Engine, batch: list[Work]
) -> None:  # fmt: skip
    """Run the units that prefetch a row, with the rows read for all of them. If one fails, none is precomputed."""
    prefetching = [work for work in batch if work.hints.prefetch is not None]
    if not prefetching:
        return
    group = prefetch(connection, cache, at, engine, [work.hints for work in prefetching])
    computed: list[Precomputed] = []
    for work in prefetching:
        tx = Tx(connection, cache, at, engine, group)
        result = work.unit(tx)
        tx.finish()
        computed.append(Precomputed(cache.mark, result, tx.pending))
    for work, precomputed in zip(prefetching, computed, strict=True):
        work.precomputed = precomputed


def merged(works: list[Work], mark: object) -> PendingWrites | None:
    """The writes of units that ran ahead, if the cache still has this mark. None if one of them must run."""
    pending = PendingWrites()
    for work in works:
        ahead = work.precomputed
        if ahead is None or ahead.mark is not mark or not ahead.pending.is_repeatable:
            return None
        pending.add(ahead.pending)
    return pending


def repeats(batch: list[Work]) -> bool:
    """Whether to repeat a commit with an unknown outcome, once. The units that were part of it may be done."""
    if any(work.may_be_done for work in batch):
        return False
    for work in batch:
        work.may_be_done = work.error is None
    return True
