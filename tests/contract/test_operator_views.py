"""What the operator's view reads of a store: pages of the ledger with a bounded cost, the end of a chain, the nodes."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from gatepost.core import clock, ids
from gatepost.ledger import chain_status, sealing, search
from gatepost.ledger.entries import Entry
from gatepost.ledger.search import EntryFilter
from gatepost.store import nodes
from gatepost.store.interface import Store
from gatepost.store.nodes import Node
from gatepost.store.transaction import HIGHEST
from tests.contract import make
from tests.contract.backends import Backend, FakeClock
from tests.contract.make import KEY


def record(store: Store, account: str, subjects: str) -> list[Entry]:
    return store.run_now(lambda tx: [make.record(tx, account, subject) for subject in subjects])


def pages(store: Store, account: str, wanted: EntryFilter, limit: int) -> list[str]:
    """The subjects of each page, up to the last one."""
    found, before = [], HIGHEST
    while True:
        page = store.read_now(lambda tx, before=before: search.page(tx, account, wanted, before, limit))  # type: ignore[misc]
        found.append("".join(entry.subject for entry in page.entries))
        if page.next is None:
            return found
        before = page.next


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_BATCH", 2)
    monkeypatch.setattr(search, "MAX_EXAMINED", 4)


def test_pages_have_all_entries_once(store: Store, account: str) -> None:
    record(store, account, "abcdefg")
    assert pages(store, account, EntryFilter(), 3) == ["gfe", "dcb", "a"]
    assert pages(store, account, EntryFilter(), 100) == ["gfed", "cba"]


def test_a_page_examines_few_entries_even_if_none_of_them_matches(store: Store, account: str) -> None:
    record(store, account, "abcdefghi")
    assert pages(store, account, EntryFilter(subject="b"), 5) == ["", "b", ""]


def test_a_page_ends_when_it_has_read_much_data(
    store: Store, account: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(search, "MAX_READ", 1)
    record(store, account, "abc")
    assert pages(store, account, EntryFilter(), 5) == ["c", "b", "a", ""]


class TestChain:
    @pytest.fixture
    def status(self, store: Store, account: str) -> Callable[[], dict[str, object]]:
        for subjects in ("ab", "c", "d"):
            record(store, account, subjects)
            store.run_now(lambda tx: sealing.seal_batch(tx, KEY, account))
        record(store, account, "e")
        return lambda: store.read_now(lambda tx: chain_status.render(tx, KEY, account))

    def test_an_intact_chain(self, status: Callable[[], dict[str, object]]) -> None:
        found = status()
        assert (found["problem"], found["seals"], found["entries"], found["unsealed"]) == (None, 3, 4, 1)
        assert str(found["head"]).startswith("3:")
        assert found["sealed_at"]
        assert found["unsealed_since"]
        assert found["checkpoint"] is None

    @pytest.mark.parametrize(
        ("statement", "problem"),
        [
            ("UPDATE seals SET at = at + 1 WHERE account = ? AND number = 3", "seal 3, the last one, was altered"),
            ("UPDATE chains SET number = 2 WHERE account = ?", "the chain record of"),
            ("DELETE FROM seals WHERE account = ? AND number = 3", "seal 3 or the one before it is missing"),
            ("DELETE FROM seals WHERE account = ? AND number = 2", "seal 3 or the one before it is missing"),
            ("DELETE FROM chains WHERE account = ?", "the account has no chain record"),
        ],
    )
    def test_a_change_at_its_end(
        self, status: Callable[[], dict[str, object]], backend: Backend, account: str, statement: str, problem: str
    ) -> None:
        backend.execute(statement, ids.raw(account))
        assert str(status()["problem"]).startswith(problem)


class TestNodes:
    """Nodes on one host. A node that was killed leaves its row."""

    @pytest.fixture
    def start(self, store: Store, watch: FakeClock) -> Callable[..., Node]:
        def start(kind: str = "all", address: str = "127.0.0.1:9090") -> Node:
            watch.forward(timedelta(seconds=1))
            node = nodes.this_node(kind, address, clock.milliseconds(watch()))
            beat(store, node)
            return node

        return start

    def test_a_node_that_is_started_again_replaces_the_one_that_was_killed(
        self, store: Store, start: Callable[..., Node]
    ) -> None:
        start()
        beside, web = start(address="127.0.0.1:9091"), start(kind="web")
        again = start()
        beat(store, beside)
        assert listed(store) == {beside.id, web.id, again.id}

    def test_running_nodes_that_cannot_be_told_apart_are_all_listed(
        self, store: Store, start: Callable[..., Node], watch: FakeClock
    ) -> None:
        """Such as nodes in containers with one host name."""
        running = [start(), start()]
        watch.forward(timedelta(seconds=nodes.BEAT_EVERY))
        for _ in range(2):
            for node in running:
                beat(store, node)
        assert listed(store) == {node.id for node in running}


def beat(store: Store, node: Node) -> None:
    store.run_now(partial(nodes.beat, node=node))


def listed(store: Store) -> set[bytes]:
    return {node.id for node in store.read_now(nodes.load)}
