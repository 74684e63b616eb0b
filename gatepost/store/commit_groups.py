"""Which units that only append share a commit on PostgreSQL."""

from collections.abc import Iterator
from datetime import datetime

from gatepost.store.cache import Cache
from gatepost.store.pending import PendingWrites, Row
from gatepost.store.shards import Node, Shards
from gatepost.store.transaction import Engine, precompute
from gatepost.store.work import Work

MOST_UNITS = 200
_MOST_ROWS = 1500  # rows inserted by one commit, unless a single unit inserts more
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
        if len(batch) == MOST_UNITS or rows > _MOST_ROWS or not keys.isdisjoint(of_work.keys):
            yield batch
            batch, keys, rows = [], set(), 0
        batch.append(work)
        keys |= of_work.keys
        rows += of_work.size
    if batch:
        yield batch
