"""Which shard and database node an account is on, and which units share a commit then."""

from datetime import UTC, datetime

import pytest

from gatepost.core.errors import Unavailable
from gatepost.store import commit_groups
from gatepost.store.cache import Cache
from gatepost.store.pending import PendingWrites
from gatepost.store.shards import Node, Shards, hash_bytes
from gatepost.store.transaction import Engine, Hints, Precomputed, Prefetch, Tx
from gatepost.store.work import Work

FIRST, SECOND = (1, "db1", 5432), (2, "db2", 5432)
QUARTER = 2**30
ROWS = [(-2 * QUARTER, *FIRST), (-QUARTER, *SECOND), (0, *FIRST), (QUARTER, *SECOND)]
ACCOUNTS = [bytes([number]) * 16 for number in range(32)]
AT = datetime(2026, 11, 17, tzinfo=UTC)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"", -1477818771), (b"acme", -1850687378), (b"x" * 12, 631527812), (bytes(range(16)), -1339686672),
        (b"\xff" * 37, 978876738),
    ],
)  # fmt: skip
def test_the_hash_is_that_of_postgresql(key: bytes, expected: int) -> None:
    assert hash_bytes(key) == expected


def test_an_account_is_on_the_node_of_its_shard() -> None:
    shards = Shards(ROWS)
    for account in ACCOUNTS:
        number = shards.shard(account)
        assert ROWS[number][0] <= hash_bytes(account) < ROWS[number][0] + QUARTER
        assert shards.node(account) == Node(*ROWS[number][1:])
    assert {shards.shard(account) for account in ACCOUNTS} == {0, 1, 2, 3}
    assert [node.name for node in shards.nodes] == ["db1:5432", "db2:5432"]


def test_only_accounts_of_a_node_that_is_down_are_unavailable() -> None:
    shards = Shards(ROWS)
    shards.update(ROWS, [Node(*SECOND)])
    for account in ACCOUNTS:
        assert shards.is_reachable(account) == (shards.node(account) == Node(*FIRST))
    shards.require(next(account for account in ACCOUNTS if shards.is_reachable(account)))
    with pytest.raises(Unavailable, match="database node db2:5432"):
        shards.require(next(account for account in ACCOUNTS if not shards.is_reachable(account)))


def test_an_account_follows_its_shard_to_another_node() -> None:
    shards = Shards(ROWS)
    account = next(account for account in ACCOUNTS if shards.shard(account) == 1)
    shards.update([ROWS[0], (-QUARTER, *FIRST), *ROWS[2:]], [Node(*SECOND)])
    assert shards.is_reachable(account)


def work_of(*accounts: bytes) -> Work:
    """A unit that was precomputed, and appends an entry for each of these accounts."""
    work, pending = Work(lambda _tx: None), PendingWrites()
    pending.append("insert_unsealed", [(account, b"entry") for account in accounts])
    work.precomputed = Precomputed(object(), None, pending)
    return work


def batches(works: list[Work], shards: Shards | None) -> list[list[Work]]:
    return list(commit_groups.batches(works, shards, Cache(), Engine(lambda _tx, _entry: [], 0), AT))


class TestCommitGroups:
    def test_one_commit_for_all_accounts_unless_the_store_is_distributed(self) -> None:
        works = [work_of(account) for account in ACCOUNTS]
        assert batches(works, None) == [works]

    def test_one_commit_for_each_node(self) -> None:
        shards = Shards(ROWS)
        works = [work_of(account) for account in ACCOUNTS]
        groups = batches(works, shards)
        assert {id(work) for group in groups for work in group} == set(map(id, works))
        assert len(groups) == 2
        for group in groups:
            accounts = {account for work in group for account in work.precomputed.pending.accounts}  # type: ignore[union-attr]
            assert len({shards.node(account) for account in accounts}) == 1

    def test_a_unit_whose_node_is_not_known_is_alone(self) -> None:
        shards = Shards(ROWS)
        several = {shards.node(account): account for account in ACCOUNTS}
        alone = [Work(lambda _tx: None), work_of(*several.values())]
        works = [work_of(ACCOUNTS[0]), *alone, work_of(ACCOUNTS[0])]
        assert batches(works, shards) == [[alone[0]], [alone[1]], [works[0], works[3]]]

    def test_a_unit_is_known_once_another_has_filled_the_cache(self) -> None:
        cache: list[bool] = []

        def unit(tx: Tx) -> None:
            if not cache:
                tx.rows("account_by_id")
            tx.pending.append("insert_unsealed", [(ACCOUNTS[0], b"entry")])

        works = [Work(unit) for _ in range(3)]
        found = commit_groups.batches(works, Shards(ROWS), Cache(), Engine(lambda _tx, _entry: [], 0), AT)
        assert next(found) == works[:1]
        cache.append(True)
        assert list(found) == [works[1:]]

    def test_the_node_of_a_unit_that_prefetches_a_row_is_known(self) -> None:
        def prefetch(_tx: Tx) -> Prefetch:
            return Prefetch("families_and_consents", (ACCOUNTS[0], b"family"))

        works = [work_of(ACCOUNTS[0]), Work(lambda _tx: None, None, Hints(append_only=True, prefetch=prefetch))]
        assert batches(works, Shards(ROWS)) == [works]
