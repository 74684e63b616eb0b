"""Sealing several ledgers in one commit: the same seals as one by one, and a race that is lost costs one ledger."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gatepost import accounts
from gatepost.core import ids
from gatepost.ledger import chain, chain_rows, chains, heads, seal, seal_rows, sealing, verification
from gatepost.ledger.checkpoint import Signer
from gatepost.ledger.seal import Head
from gatepost.run import chores
from gatepost.run.app import Runtime
from gatepost.store.interface import Store
from gatepost.store.transaction import APPEND_ONLY, Hints, Tx, Unit
from tests.contract import make, parallel
from tests.contract.backends import Backend, FakeClock
from tests.contract.make import KEY

WRITTEN = ("seals", "chains", "tree_seals", "tree_nodes", "unsealed")


def create(store: Store, watch: FakeClock, count: int) -> list[str]:
    """Create accounts with a chain, in the order of their ids."""
    made = [accounts.new(f"ledger-{number}", watch()) for number in range(count)]
    store.run_now(lambda tx: [make.account(tx, each) for each in made])
    return sorted(each.id for each in made)


def record(store: Store, account: str, count: int) -> None:
    store.run_now(lambda tx: [make.record(tx, account, str(number)) for number in range(count)])


def seal_alone(store: Store, account: str) -> int:
    return store.run_now(lambda tx: sealing.seal_batch(tx, KEY, account))


def prepare(store: Store, ledgers: Sequence[str]) -> sealing.Prepared:
    return store.read_now(lambda tx: sealing.prepare(tx, KEY, ledgers))


def add(store: Store, prepared: sealing.Prepared) -> int:
    return store.run_now(lambda tx: sealing.add(tx, KEY, prepared.seals))


def numbers(store: Store, account: str) -> list[int]:
    return [each.number for each in store.read_now(lambda tx: seal_rows.page(tx, account, 0, 100))]


def problems(store: Store, ledgers: Sequence[str]) -> set[str]:
    return {verification.verify(store, KEY, account).problem for account in ledgers}


def runtime(store: Any) -> Runtime:
    return cast(Runtime, SimpleNamespace(store=store, service=SimpleNamespace(keys=SimpleNamespace(seal=KEY))))


# --- the same seals


class RolledBack(Exception):
    pass


def test_several_ledgers_get_the_seals_that_each_would_get_alone(
    store: Store, backend: Backend, watch: FakeClock
) -> None:
    """New ledgers, and such with seals, with a subtree to complete, with a tree that is behind, and the operator's."""
    ledgers = create(store, watch, 6)
    operator = accounts.new(accounts.OPERATOR, watch())
    store.run_now(lambda tx: make.account(tx, operator))
    _, sealed, complete, behind, followed, empty = ledgers
    for account, count in ((operator.id, 2), (sealed, 7), (complete, 250), (followed, 3)):
        record(store, account, count)
        seal_alone(store, account)
    due = store.read_now(lambda tx: heads.due(tx, KEY, Signer(b"c" * 32), "https://gatepost.example"))
    store.run_now(lambda tx: heads.record_heads(tx, KEY, due.chains))
    _seal_without_chain(store, followed)
    _seal_without_chain(store, behind)
    for account in ledgers[:5]:
        record(store, account, 10)
    order = [*ledgers, operator.id]

    def written(tx: Tx) -> dict[str, list[Any]]:
        return {table: sorted(tx.select(f"SELECT * FROM {table}", {})) for table in WRITTEN}

    together: list[Any] = []

    def rolled_back(tx: Tx) -> None:
        together.append(sealing.add(tx, KEY, sealing.prepare(tx, KEY, order).seals))
        together.append(written(tx))
        raise RolledBack

    before = store.read_now(written)
    with pytest.raises(RolledBack):
        store.run_now(rolled_back)
    assert store.read_now(written) == before
    alone = [store.run_now(lambda tx, account=account: sealing.seal_batch(tx, KEY, account)) for account in order]  # type: ignore[misc]
    assert alone == [10, 10, 10, 10, 10, 0, 1]
    after = store.read_now(written)
    assert together[-2:] == [sum(alone), after]
    assert all(len(after[table]) > len(before[table]) for table in ("seals", "tree_seals", "tree_nodes"))
    assert numbers(store, empty) == []
    while store.run_now(lambda tx: chains.grow_tree(tx, KEY, behind)):
        pass
    while store.run_now(lambda tx: chains.grow_tree(tx, KEY, followed)):
        pass
    assert problems(store, order) == {""}


def _seal_without_chain(store: Store, account: str) -> None:
    """Seal an entry as a release without chain records did."""

    def unit(tx: Tx) -> bytes:
        last = seal_rows.last(tx, account) or Head(0, seal.START)
        entry = make.record(tx, account, "earlier")
        seal_rows.add(tx, [(account, seal.new(KEY, account, last, [seal.leaf(entry)], tx.now))])
        return entry.id

    raw_id = store.run_now(unit)
    store.run_now(lambda tx: seal_rows.unseal(tx, [(ids.raw(account), raw_id)]))


def test_ledgers_are_sealed_while_the_database_node_of_the_operator_is_down(
    store: Store, watch: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their seals name no head of the operator until its ledger can be read again."""
    [account] = create(store, watch, 1)
    operator = accounts.new(accounts.OPERATOR, watch())
    store.run_now(lambda tx: make.account(tx, operator))
    record(store, operator.id, 1)
    seal_alone(store, operator.id)
    record(store, account, 2)
    read: list[str] = []
    load_many = chain_rows.load_many

    def recording(tx: Tx, key: bytes, names: Sequence[str]) -> Any:
        read.extend(names)
        return load_many(tx, key, names)

    with monkeypatch.context() as patched:
        patched.setattr(chain_rows, "load_many", recording)
        patched.setattr(Tx, "shards", SimpleNamespace(is_reachable=lambda raw: raw != ids.raw(operator.id)))
        prepared = prepare(store, [account])
    assert read == [account]
    assert add(store, prepared) == 2
    record(store, account, 1)
    assert seal_alone(store, account) == 1
    seals = store.read_now(lambda tx: seal_rows.page(tx, account, 0, 10))
    assert [chain.linked_head(each.leaves) is not None for each in seals] == [False, True]
    assert problems(store, [account, operator.id]) == {""}


# --- a race that is lost


def test_a_ledger_that_another_process_sealed_first_is_left_out(store: Store, other: Store, watch: FakeClock) -> None:
    ledgers = create(store, watch, 4)
    for account in ledgers:
        record(store, account, 3)
    prepared = prepare(store, ledgers)
    assert seal_alone(other, ledgers[1]) == 3
    assert add(store, prepared) == 9
    assert add(store, prepared) == 0
    assert [numbers(store, account) for account in ledgers] == [[1]] * 4
    assert store.read_now(seal_rows.unsealed_accounts) == []
    assert problems(store, ledgers) == {""}


def test_a_ledger_with_an_entry_that_no_longer_exists_is_left_out(
    store: Store, backend: Backend, watch: FakeClock
) -> None:
    """It was pruned meanwhile, or the snapshot was of a server that was replaced by a standby without the entry."""
    ledgers = create(store, watch, 3)
    for account in ledgers:
        record(store, account, 3)
    prepared = prepare(store, ledgers)
    for table in ("entries", "unsealed"):
        backend.execute(
            f"DELETE FROM {table} WHERE account = ? AND id = ?", ids.raw(ledgers[0]), prepared.seals[0].keys[1][1]
        )
    assert prepared.seals[0].account == ledgers[0]
    assert add(store, prepared) == 6
    assert [numbers(store, account) for account in ledgers] == [[], [1], [1]]
    assert add(store, prepare(store, ledgers)) == 2, "its other entries still wait"
    assert problems(store, ledgers) == {""}


def test_a_ledger_that_an_earlier_release_sealed_first_is_left_out(store: Store, watch: FakeClock) -> None:
    ledgers = create(store, watch, 3)
    for account in ledgers:
        record(store, account, 3)
    prepared = prepare(store, ledgers)
    stored = store.read_now(lambda tx: chain_rows.load(tx, KEY, ledgers[2]))
    _seal_without_chain(store, ledgers[2])
    assert add(store, prepared) == 6
    assert store.read_now(lambda tx: chain_rows.load(tx, KEY, ledgers[2])) == stored
    assert add(store, prepare(store, ledgers)) == 3
    assert numbers(store, ledgers[2]) == [1, 2]


def test_a_ledger_whose_tree_grew_meanwhile_is_left_out(store: Store, watch: FakeClock) -> None:
    ledgers = create(store, watch, 2)
    _seal_without_chain(store, ledgers[0])
    for account in ledgers:
        record(store, account, 3)
    assert add(store, prepare(store, ledgers)) == 6
    for account in ledgers:
        record(store, account, 3)
    prepared = prepare(store, ledgers)
    assert not store.run_now(lambda tx: chains.grow_tree(tx, KEY, ledgers[0]))
    assert add(store, prepared) == 3
    assert numbers(store, ledgers[0]) == [1, 2]
    assert add(store, prepare(store, ledgers)) == 3
    assert problems(store, ledgers) == {""}


def test_a_broken_chain_does_not_stop_the_others(store: Store, backend: Backend, watch: FakeClock) -> None:
    ledgers = create(store, watch, 4)
    for account in ledgers:
        record(store, account, 3)
        seal_alone(store, account)
        record(store, account, 2)
    backend.execute("UPDATE chains SET linked = 99 WHERE account = ?", ids.raw(ledgers[0]))
    backend.execute("DELETE FROM chains WHERE account = ?", ids.raw(ledgers[1]))
    forged = seal.new(b"x" * 32, ledgers[2], Head(1, seal.START), [], 0)
    store.run_now(lambda tx: seal_rows.add(tx, [(ledgers[2], forged)]))
    prepared = prepare(store, ledgers)
    assert [str(prepared.broken[account]) for account in ledgers[:3]] == [
        f"the chain record of {ledgers[0]} was altered",
        f"{ledgers[1]} has no chain record: it was removed, or another release of the service created the account",
        f"seal 2 of {ledgers[2]} does not follow the last seal of the service",
    ]
    assert add(store, prepared) == 2
    assert numbers(store, ledgers[3]) == [1, 2]


def test_several_sealers_of_several_ledgers_make_one_chain_each(store: Store, other: Store, watch: FakeClock) -> None:
    ledgers, count = create(store, watch, 6), 480  # no ledger ever has too many for a shared commit
    recording = [
        lambda tx, number=number: make.record(tx, ledgers[number % len(ledgers)], str(number))
        for number in range(count)
    ]
    sealed: list[int] = []

    def record_all() -> None:
        assert parallel.failures(parallel.run(store, recording, hints=APPEND_ONLY)) == []

    def keep_sealing(by: Store, order: list[str]) -> None:
        while sum(sealed) < count:
            sealed.append(add(by, prepare(by, order)))
            sealed.append(seal_alone(by, order[0]))

    parallel.in_threads([record_all, lambda: keep_sealing(store, ledgers), lambda: keep_sealing(other, ledgers[::-1])])
    assert sum(sealed) == count
    assert problems(store, ledgers) == {""}
    leaves = [
        leaf.id
        for account in ledgers
        for each in store.read_now(lambda tx, account=account: seal_rows.page(tx, account, 0, 10_000))  # type: ignore[misc]
        for leaf in seal.unpack(each.leaves)
    ]
    assert len(leaves) == len(set(leaves)) == count


# --- the chore


def test_the_age_of_what_waits_is_reported_while_a_backlog_is_sealed(
    store: Store, account: str, watch: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(store, account, 1001)
    watch.forward(timedelta(hours=1))
    reported: list[float] = []
    monkeypatch.setattr(chores, "UNSEALED", SimpleNamespace(set=reported.append))
    asyncio.run(chores.seal(runtime(store)))
    assert [age > 60 for age in reported] == [True, True, False]


class Counting:
    """A store that counts the ledgers and entries of each commit that seals."""

    def __init__(self, store: Store, shards: object = None) -> None:
        self._store = store
        self.shards = shards
        self.now = store.now
        self.commits: list[tuple[int, int]] = []

    async def read(self, unit: Unit[Any], hints: Hints = Hints()) -> Any:  # noqa: B008
        return await self._store.read(unit, hints)

    async def run(self, unit: Any) -> Any:
        seals = unit.keywords["prepared"]
        self.commits.append((len(seals), sum(len(each.keys) for each in seals)))
        return await self._store.run(unit)


def test_the_chore_seals_many_ledgers_with_few_commits_of_limited_size(store: Store, watch: FakeClock) -> None:
    """A ledger with many waiting entries comes after the others, and its seals are as large as they would be alone."""
    ledgers = create(store, watch, 32)
    for number, account in enumerate(ledgers):
        record(store, account, {0: 1100, 1: 60, 2: 50, 3: 21}.get(number, 20 if number < 20 else 1))
    counting = Counting(store, store.shards)
    asyncio.run(chores.seal(runtime(counting)))
    assert store.read_now(seal_rows.unsealed_accounts) == []
    assert store.read_now(seal_rows.oldest_unsealed) is None
    sizes = [
        [len(each.leaves) // seal.LEAF for each in store.read_now(lambda tx, a=account: seal_rows.page(tx, a, 0, 9))]  # type: ignore[misc]
        for account in ledgers[:5]
    ]
    assert sizes == [[500, 500, 100], [60], [50], [21], [20]]
    assert problems(store, ledgers) == {""}
    if store.shards is None:
        assert counting.commits == [(21, 16 * 20 + 5), (7, 7), (3, 131), (1, 500), (1, 500), (1, 100)]


def test_in_a_distributed_store_every_ledger_has_its_own_commit(store: Store, watch: FakeClock) -> None:
    for account in create(store, watch, 5):
        record(store, account, 2)
    counting = Counting(store, shards=object())
    asyncio.run(chores.seal(runtime(counting)))
    assert counting.commits == [(1, 2)] * 5
