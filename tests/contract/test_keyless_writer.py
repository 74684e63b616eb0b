"""An attacker who can write to the database, but has no key, cannot change the history of an account unnoticed.

Each test is a row of the table in docs/explanation/ledger-and-seals.md. The service goes on sealing afterwards.
"""

import hashlib
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from gatepost import accounts
from gatepost.accounts import account_rows, server_keys
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting
from gatepost.core.secrets import SERVER_KEYS, Box
from gatepost.ledger import (
    chain,
    chain_rows,
    chains,
    entries,
    heads,
    retention,
    seal,
    seal_rows,
    sealing,
    verification,
)
from gatepost.ledger.chain import BrokenChain, Chain
from gatepost.ledger.checkpoint import Signer
from gatepost.ledger.entries import Entry, Origin
from gatepost.ledger.seal import Head
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx
from tests.contract import make
from tests.contract.backends import Backend, FakeClock
from tests.contract.make import KEY

SIGNER = Signer(b"c" * 32)
BASE = "https://gatepost.example"
TABLES = (
    "accounts", "entries", "unsealed", "seals", "anchors", "prunings", "chains", "tree_seals", "tree_nodes",
    "pruned_trees", "checkpoints",
)  # fmt: skip


class World(NamedTuple):
    """The operator's account and two others, each with three seals whose heads are in the operator's ledger."""

    store: Store
    backend: Backend
    watch: FakeClock
    operator: str
    ours: str
    theirs: str

    def work(self) -> None:
        """What a minute brings: entries, their seals, and the heads."""
        for account in (self.ours, self.theirs):
            self.store.run_now(lambda tx, account=account: [make.record(tx, account, str(n)) for n in range(3)])  # type: ignore[misc]
        self.seal()
        self.record_heads()
        self.watch.forward(timedelta(minutes=1))

    def seal(self) -> None:
        for account in (self.operator, self.ours, self.theirs):
            try:
                self.store.run_now(lambda tx, account=account: sealing.seal_batch(tx, KEY, account))  # type: ignore[misc]
            except BrokenChain:
                continue  # the service logs it, and seals the others

    def record_heads(self) -> None:
        due = self.store.read_now(lambda tx: heads.due(tx, KEY, SIGNER, BASE))
        self.store.run_now(lambda tx: heads.record_heads(tx, KEY, due.chains))

    def problems(self) -> dict[str, str]:
        found = heads.check_heads(self.store, KEY)
        for account in (self.operator, self.ours, self.theirs):
            problem = verification.verify(self.store, KEY, account).problem
            if problem:
                found[account] = problem
        return found

    def snapshot(self, *of: str) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of these accounts."""
        raw = {ids.raw(account) for account in of}
        return {
            table: [row for row in self.backend.execute(f"SELECT * FROM {table}") if bytes(row[0]) in raw]
            for table in TABLES
        }

    def restore(self, rows: dict[str, list[tuple[Any, ...]]], *of: str) -> None:
        for table in reversed(TABLES):
            column = "id" if table == "accounts" else "account"
            for account in of:
                self.backend.execute(f"DELETE FROM {table} WHERE {column} = ?", ids.raw(account))
        for table in TABLES:
            for row in rows[table]:
                self.backend.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", *row)

    def execute(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.backend.execute(statement, *parameters)


@pytest.fixture
def world(store: Store, backend: Backend, watch: FakeClock) -> World:
    made = [accounts.new(name, watch()) for name in (accounts.OPERATOR, "ours", "theirs")]
    for each in made:
        store.run_now(lambda tx, each=each: make.account(tx, each))  # type: ignore[misc]
    found = World(store, backend, watch, *(each.id for each in made))
    for _ in range(3):
        found.work()
    assert found.problems() == {}
    return found


def forged(world: World, *, at: int | None = None, raw_id: bytes | None = None) -> Entry:
    """Insert a forged entry into the table and into the queue of the sealer."""
    now = clock.milliseconds(world.watch())
    made = entries.new(
        "invoice.paid", account=world.ours, origin=Origin("operator"), subject="forged", data={"forged": True},
        at=world.watch(), keep_days=30, raw_id=raw_id or now.to_bytes(6, "big") + ids.new_raw()[6:],
    )  # fmt: skip
    made = made if at is None else made._replace(at=at)
    row = (ids.raw(made.account), *made[1:])
    world.execute(f"INSERT INTO entries VALUES ({', '.join('?' * len(row))})", *row)
    world.execute("INSERT INTO unsealed VALUES (?, ?)", ids.raw(world.ours), made.id)
    return made


def test_the_intact_world_goes_on(world: World) -> None:
    world.work()
    assert world.problems() == {}


# --- a history written anew


def rewrite(world: World) -> None:
    """Take away every seal, and let changed entries be sealed as if they were new."""
    raw = ids.raw(world.ours)
    world.execute("DELETE FROM seals WHERE account = ?", raw)
    world.execute("UPDATE entries SET subject = 'changed' WHERE account = ?", raw)
    world.execute("INSERT INTO unsealed SELECT account, id FROM entries WHERE account = ?", raw)


@pytest.mark.parametrize(
    "records",
    [(), ("chains",), ("chains", "checkpoints"), ("chains", "checkpoints", "tree_seals", "tree_nodes", "pruned_trees")],
    ids=["seals", "and chain record", "and checkpoint", "and tree"],
)
def test_a_history_that_starts_again(world: World, records: tuple[str, ...]) -> None:
    rewrite(world)
    for table in records:
        world.execute(f"DELETE FROM {table} WHERE account = ?", ids.raw(world.ours))
    world.seal()
    world.store.run_now(lambda tx: chains.create_missing(tx, KEY))
    world.work()
    assert world.problems()[world.ours]
    numbers = world.execute("SELECT number FROM seals WHERE account = ? ORDER BY number", ids.raw(world.ours))
    assert not numbers or numbers[0][0] > 3, "a chain never starts again at zero"


def test_a_history_that_starts_again_with_the_record_of_its_beginning(world: World) -> None:
    """The record of an empty chain was once genuine, so it can be put back: the operator's heads show it."""
    rewrite(world)
    raw, begun = ids.raw(world.ours), Chain()
    world.execute("DELETE FROM chains WHERE account = ?", raw)
    world.execute("DELETE FROM tree_seals WHERE account = ?", raw)
    world.execute(
        "INSERT INTO chains VALUES (?, ?, ?, 0, 0, ?, 0, ?)", raw, 0, seal.START, b"",
        chain.chain_proof(KEY, world.ours, begun),
    )  # fmt: skip
    world.work()
    assert "the chain was cut off or rewritten" in heads.check_heads(world.store, KEY)[world.ours]


# --- an older state put back


@pytest.mark.parametrize("grown", [0, 1, 5], ids=["at once", "after a minute", "after five"])
def test_an_account_rolled_back(world: World, grown: int) -> None:
    before = world.snapshot(world.ours)
    world.work()
    world.restore(before, world.ours)
    for _ in range(grown):
        world.work()
    assert "cut off or rewritten" in world.problems()[world.ours]


@pytest.mark.parametrize("grown", [0, 1, 5], ids=["at once", "after a minute", "after five"])
def test_the_operator_rolled_back(world: World, grown: int) -> None:
    before = world.snapshot(world.operator)
    world.work()
    world.work()
    world.restore(before, world.operator)
    for _ in range(grown):
        world.work()
    assert "no longer in the operator's chain" in world.problems()[world.theirs]


def test_an_account_and_the_operator_rolled_back(world: World) -> None:
    before = world.snapshot(world.operator, world.ours)
    world.work()
    world.work()
    world.restore(before, world.operator, world.ours)
    assert "no longer in the operator's chain" in world.problems()[world.theirs]


def test_everything_rolled_back_is_not_noticed(world: World) -> None:
    """Only a kept head or checkpoint shows this, as the docs say."""
    everybody = (world.operator, world.ours, world.theirs)
    before = world.snapshot(*everybody)
    world.work()
    head = verification.verify(world.store, KEY, world.ours).head
    world.restore(before, *everybody)
    assert world.problems() == {}
    assert "its tail was cut off" in verification.verify(world.store, KEY, world.ours, head).problem


# --- an account removed


@pytest.mark.parametrize("tables", [("accounts",), TABLES], ids=["its row", "everything"])
def test_an_account_removed(world: World, tables: tuple[str, ...]) -> None:
    for table in reversed(tables):
        column = "id" if table == "accounts" else "account"
        world.execute(f"DELETE FROM {table} WHERE {column} = ?", ids.raw(world.ours))
    assert "the account was removed" in heads.check_heads(world.store, KEY)[world.ours]


def test_the_operators_account_removed(world: World) -> None:
    for table in reversed(TABLES):
        column = "id" if table == "accounts" else "account"
        world.execute(f"DELETE FROM {table} WHERE {column} = ?", ids.raw(world.operator))
    assert "there is no operator's account" in verification.verify(world.store, KEY, world.theirs).problem


def test_an_account_rolled_back_with_the_heads_erased(world: World) -> None:
    """Anybody can compute the hash of the data, so the seals of the operator's ledger stay valid."""
    before = world.snapshot(world.ours)
    world.work()
    world.seal()
    last = _heads_entry(world)
    [(data,)] = world.execute("SELECT data FROM entries WHERE id = ?", last)
    world.restore(before, world.ours)
    assert "the chain was cut off" in world.problems()[world.ours]
    hash_ = hashlib.sha256(data.encode()).digest()
    world.execute("UPDATE entries SET data = NULL, data_hash = ? WHERE id = ?", hash_, last)
    name = ids.text("evt", last)
    assert f"entry {name}" in world.problems()[world.operator]
    assert "which recorded heads, has no data" in world.problems()[world.operator]
    assert heads.check_heads(world.store, KEY) == {world.operator: f"the heads in entry {name} were erased or altered"}


@pytest.mark.parametrize("data", [None, "x", "[]", '{"heads": 1}'])
def test_a_chain_is_not_created_while_heads_are_unknown(world: World, data: str | None) -> None:
    """They may name the account, whose chain would start again at zero."""
    world.execute("UPDATE entries SET data = ? WHERE type = ?", data, heads.HEADS)
    for table in ("chains", "checkpoints"):
        world.execute(f"DELETE FROM {table} WHERE account = ?", ids.raw(world.ours))
    assert world.store.run_now(lambda tx: chains.create_missing(tx, KEY)) == [world.ours]


@pytest.mark.parametrize("table", ["entries", "unsealed", "seals"])
def test_rows_of_an_account_that_does_not_exist(world: World, table: str) -> None:
    stranger = ids.new("acc")
    short = bytes(15)
    for account, name in ((ids.raw(stranger), stranger), (short, f"account {short!r}")):
        row = {
            "entries": (account, ids.new_raw(), "invoice.paid", 0, "", "", "{}", None, 0, 30, "", ""),
            "unsealed": (account, ids.new_raw()),
            "seals": (account, 1, 0, b"", bytes(32)),
        }[table]
        world.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", *row)
        assert world.problems() == {name: "the account was removed, but its entries or seals still exist"}
        world.execute(f"DELETE FROM {table} WHERE account = ?", account)


# --- entries added


def test_an_entry_dated_back(world: World) -> None:
    old = clock.milliseconds(world.watch() - timedelta(days=3))
    made = forged(world, at=old, raw_id=old.to_bytes(6, "big") + ids.new_raw()[6:])
    world.work()
    assert "does not fit its seal" in world.problems()[world.ours]
    assert made.name in world.problems()[world.ours]


def test_an_entry_dated_ahead(world: World) -> None:
    late = clock.milliseconds(world.watch() + timedelta(days=3))
    forged(world, at=late, raw_id=late.to_bytes(6, "big") + ids.new_raw()[6:])
    world.work()
    assert "does not fit its seal" in world.problems()[world.ours]


def test_an_entry_whose_time_is_not_its_ids(world: World) -> None:
    forged(world, at=clock.milliseconds(world.watch() - timedelta(days=3)))
    world.work()
    assert "does not fit its seal" in world.problems()[world.ours]


def test_a_late_seal_is_no_fault(world: World) -> None:
    """The service was stopped for a day between a commit and its seal, with more to seal than one seal takes."""
    world.store.run_now(lambda tx: [make.record(tx, world.ours, str(n)) for n in range(seal.BATCH + 10)])
    world.watch.forward(timedelta(days=1))
    world.seal()
    world.seal()
    assert world.problems() == {}


def test_an_entry_put_back_to_be_sealed_twice(world: World) -> None:
    [(raw_id,)] = world.execute("SELECT id FROM entries WHERE account = ? ORDER BY id LIMIT 1", ids.raw(world.ours))
    world.execute("INSERT INTO unsealed VALUES (?, ?)", ids.raw(world.ours), bytes(raw_id))
    world.seal()
    assert "inserted again to be sealed again" in world.problems()[world.ours]


def test_entries_moved_to_another_account(world: World) -> None:
    world.execute("UPDATE entries SET account = ? WHERE account = ?", ids.raw(world.theirs), ids.raw(world.ours))
    assert "missing before its retention ended" in world.problems()[world.ours]
    assert "never sealed" in world.problems()[world.theirs]


# --- the service's own records


def _own_chain(world: World) -> Chain:
    found = world.store.read_now(lambda tx: chain_rows.load(tx, KEY, world.ours))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE chains SET number = number - 1 WHERE account = ?", "chain record"),
        ("UPDATE chains SET size = size - 1 WHERE account = ?", "chain record"),
        ("UPDATE chains SET edge = mac WHERE account = ?", "chain record"),
        ("UPDATE chains SET linked = 99 WHERE account = ?", "chain record"),
        ("DELETE FROM chains WHERE account = ?", "no chain record"),
        ("UPDATE checkpoints SET number = 99 WHERE account = ?", "checkpoint record was altered"),
        ("UPDATE checkpoints SET note = 'x' WHERE account = ?", "checkpoint record was altered"),
        ("UPDATE tree_seals SET first = first + 1 WHERE number = 2 AND account = ?", "position of seal 2 in the tree"),
        ("DELETE FROM tree_seals WHERE number = 2 AND account = ?", "position of seal 2 in the tree"),
    ],
)
def test_an_altered_record(world: World, statement: str, told: str) -> None:
    world.execute(statement, ids.raw(world.ours))
    assert told in world.problems()[world.ours]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE chains SET number = 'x' WHERE account = ?", "chain record"),
        ("UPDATE chains SET edge = 0 WHERE account = ?", "chain record"),
        ("UPDATE chains SET proof = 'x' WHERE account = ?", "chain record"),
        ("UPDATE checkpoints SET entry = 'x' WHERE account = ?", "checkpoint record was altered"),
        ("UPDATE checkpoints SET proof = 'x' WHERE account = ?", "checkpoint record was altered"),
        ("UPDATE entries SET data = x'7b7d' WHERE account = ?", "differs from what was sealed"),
        ("UPDATE entries SET data = NULL, data_hash = 'x' WHERE account = ?", "differs from what was sealed"),
    ],
)
def test_a_value_of_another_type(world: World, statement: str, told: str) -> None:
    """SQLite stores it. Verification reports it, and the other accounts are still sealed."""
    world.execute(statement, ids.raw(world.ours))
    world.seal()
    problems = world.problems()
    assert told in problems.pop(world.ours)
    assert problems == {}


def test_an_altered_subtree(world: World) -> None:
    world.store.run_now(lambda tx: [make.record(tx, world.ours, str(n)) for n in range(300)])
    world.seal()
    assert world.problems() == {}
    world.execute("UPDATE tree_nodes SET hash = ?", bytes(32))
    assert "a subtree of seal 4" in world.problems()[world.ours]


def test_the_record_of_another_account(world: World) -> None:
    raw, other = ids.raw(world.ours), ids.raw(world.theirs)
    world.execute("DELETE FROM chains WHERE account = ?", raw)
    world.execute("UPDATE chains SET account = ? WHERE account = ?", raw, other)
    assert "chain record" in world.problems()[world.ours]


def test_an_older_record_is_brought_up_to_date(world: World) -> None:
    """It was genuine once; the seals after it are genuine too, so the next seal moves it on."""
    before = world.snapshot(world.ours)["chains"]
    world.store.run_now(lambda tx: [make.record(tx, world.ours, str(n)) for n in range(3)])
    world.seal()
    world.execute("DELETE FROM chains WHERE account = ?", ids.raw(world.ours))
    world.execute(f"INSERT INTO chains VALUES ({', '.join('?' * 8)})", *before[0])
    world.store.run_now(lambda tx: make.record(tx, world.ours, "next"))
    world.seal()
    while world.store.run_now(lambda tx: chains.grow_tree(tx, KEY, world.ours)):
        pass
    found = _own_chain(world)
    assert found.grown == found.head.number == 5
    assert world.problems() == {}


def test_a_forged_seal_in_the_way(world: World) -> None:
    world.execute("INSERT INTO seals VALUES (?, 4, 0, ?, ?)", ids.raw(world.ours), b"", b"x" * 32)
    world.work()
    assert "seal 4 was altered" in world.problems()[world.ours]


def test_a_pruning_mark_ahead_of_its_time(world: World) -> None:
    world.execute("INSERT INTO prunings VALUES (?, 30, ?)", ids.raw(world.ours), b"\x7f" + b"\xff" * 15)
    assert "mark of pruning" in world.problems()[world.ours]


@pytest.mark.parametrize("statement", ["DELETE FROM pruned_trees", "UPDATE pruned_trees SET size = size + 1"])
def test_the_tree_of_what_was_pruned(world: World, statement: str) -> None:
    world.watch.forward(timedelta(days=31))
    while world.store.run_now(lambda tx: retention.prune_batch(tx, KEY, world.ours)).examined:
        pass
    world.store.run_now(lambda tx: make.record(tx, world.ours, "later"))
    world.seal()
    assert world.problems() == {}
    world.execute(f"{statement} WHERE account = ?", ids.raw(world.ours))
    assert "the tree of what was pruned" in world.problems()[world.ours]


# --- the heads


def _heads_entry(world: World) -> bytes:
    rows = world.execute("SELECT id FROM entries WHERE type = ? ORDER BY id DESC LIMIT 1", heads.HEADS)
    return bytes(rows[0][0])


def test_heads_altered(world: World) -> None:
    world.execute("UPDATE entries SET data = '{}' WHERE type = ?", heads.HEADS)
    assert "differs from what was sealed" in world.problems()[world.operator]


def test_heads_removed_before_their_seal(world: World) -> None:
    """Where a trigger in the database drops each of them, nothing else would be missed."""
    for _ in range(2):
        world.store.run_now(lambda tx: make.record(tx, world.ours, "next"))
        world.seal()
        world.record_heads()
        victim = _heads_entry(world)
        for table in ("entries", "unsealed"):
            world.execute(f"DELETE FROM {table} WHERE id = ?", victim)
        assert "which recorded heads, is missing" in world.problems()[world.operator]


def test_heads_removed_before_their_seal_with_a_shorter_retention(world: World) -> None:
    """The settings of an account are not sealed."""
    victim = _heads_entry(world)
    for table in ("entries", "unsealed"):
        world.execute(f"DELETE FROM {table} WHERE id = ?", victim)
    settings = '"name":', '"settings":{"audit_retention":0},"name":'
    raw = ids.raw(world.operator)
    world.execute("UPDATE accounts SET document = replace(document, ?, ?) WHERE id = ?", *settings, raw)
    other = world.backend.open()
    operator = other.read_now(lambda tx: account_rows.load(tx, world.operator))
    assert operator is not None
    assert operator.seconds("audit_retention") == 0
    assert "which recorded heads, is missing" in heads.check_heads(other, KEY)[world.operator]


def test_the_record_of_the_last_heads_removed(world: World) -> None:
    """Then they are recorded again."""
    world.execute("DELETE FROM checkpoints")
    world.record_heads()
    world.seal()
    assert world.problems() == {}


# --- the beginning of the records


@pytest.mark.parametrize("pruned", [False, True])
def test_an_account_of_an_earlier_release_is_adopted(world: World, *, pruned: bool) -> None:
    """Its tree is built in slices while sealing goes on, and one leaf stands for what was pruned before."""
    older = accounts.new("older", world.watch())
    world.store.run_now(lambda tx: account_rows.add(tx, older))
    last = Head(0, seal.START)
    for number in range(1, 11):
        last = world.store.run_now(lambda tx, last=last: _sealed_as_before(tx, older.id, last))  # type: ignore[misc]
        if pruned and number == 4:
            made = world.store.read_now(lambda tx: seal_rows.page(tx, older.id, 3, 1))[0]
            world.execute("DELETE FROM seals WHERE account = ?", ids.raw(older.id))
            world.execute("DELETE FROM entries WHERE account = ?", ids.raw(older.id))
            world.store.run_now(lambda tx, made=made: seal_rows.add(tx, [(older.id, made)]))  # type: ignore[misc]
            anchor = seal.anchor(KEY, older.id, made)
            world.store.run_now(lambda tx, anchor=anchor: seal_rows.delete_oldest(tx, older.id, anchor))  # type: ignore[misc]
    world.execute("DELETE FROM unsealed WHERE account = ?", ids.raw(older.id))
    assert "no chain record" in verification.verify(world.store, KEY, older.id).problem
    world.store.run_now(lambda tx: make.record(tx, older.id, "meanwhile"))
    with pytest.raises(BrokenChain):
        world.store.run_now(lambda tx: sealing.seal_batch(tx, KEY, older.id))
    assert world.store.run_now(lambda tx: chains.create_missing(tx, KEY)) == []
    assert world.store.read_now(lambda tx: chain_rows.accounts_with_incomplete_tree(tx, 10)) == [older.id]
    assert world.store.run_now(lambda tx: sealing.seal_batch(tx, KEY, older.id)) == 1
    slices = 1
    while world.store.run_now(lambda tx: chains.grow_tree(tx, KEY, older.id)):
        slices += 1
    assert slices > 1
    found = world.store.read_now(lambda tx: chain_rows.load(tx, KEY, older.id))
    assert found is not None
    assert (found.tree.size, found.grown) == (1 + 12 + 1 if pruned else 21, 11)
    assert verification.verify(world.store, KEY, older.id).problem == ""
    world.work()
    assert world.problems() == {}


def _sealed_as_before(tx: Tx, account: str, last: Head) -> Head:
    """Two entries and their seal, as a release without chain records made them."""
    made = [make.record(tx, account, str(number)) for number in range(2)]
    sealed = seal.new(KEY, account, last, map(seal.leaf, made), clock.milliseconds(tx.at))
    seal_rows.add(tx, [(account, sealed)])
    return Head(sealed.number, sealed.mac)


def test_a_removed_record_is_not_adopted(world: World) -> None:
    world.execute("DELETE FROM chains WHERE account = ?", ids.raw(world.ours))
    assert world.store.run_now(lambda tx: chains.create_missing(tx, KEY)) == [world.ours]
    world.execute("DELETE FROM chains WHERE account = ?", ids.raw(world.operator))
    refused = world.store.run_now(lambda tx: chains.create_missing(tx, KEY))
    assert sorted(refused) == sorted([world.ours, world.operator])


# --- the keys


@pytest.mark.parametrize("name", ["seal", "data", "hash", None])
def test_a_removed_server_key_is_not_made_again(world: World, name: str | None) -> None:
    """A new seal key would let everything be sealed anew."""
    master = Box([bytes(range(32))])
    with pytest.raises(BadSetting, match="removed from the store"):
        world.store.run_now(lambda tx: server_keys.open_keys(tx, master, make=True))
    for each in SERVER_KEYS:
        wrapped = master.encrypt(b"k" * 32, f"server key {each}")
        world.execute("INSERT INTO server_keys VALUES (?, ?)", each, wrapped)
    world.store.run_now(lambda tx: server_keys.open_keys(tx, master, make=True))
    for each in [name] if name else SERVER_KEYS:
        world.execute("DELETE FROM server_keys WHERE name = ?", each)
    with pytest.raises(BadSetting, match="removed from the store"):
        world.store.run_now(lambda tx: server_keys.open_keys(tx, master, make=True))
