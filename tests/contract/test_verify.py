"""Verification detects all changes of the ledger by an attacker who has the database, but not the key."""

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pytest

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import clock, ids
from gatepost.ledger import entry_rows, retention, seal, seal_rows, sealing, verification
from gatepost.ledger.entries import Entry, data_hash
from gatepost.ledger.seal import Head, Seal
from gatepost.store.interface import Store
from tests.contract import make
from tests.contract.backends import Backend, FakeClock

KEY = b"k" * 32
NOBODY = ids.raw(ids.new("acc"))


class Ledger(NamedTuple):
    """Four seals of five entries each, and three entries that wait for theirs."""

    store: Store
    backend: Backend
    account: str
    entries: list[Entry]
    waiting: list[Entry]

    def seals(self) -> list[Seal]:
        return self.store.read_now(lambda tx: seal_rows.page(tx, self.account, 0, 100))

    def problem(self, expected: Head | None = None) -> str:
        return verification.verify(self.store, KEY, self.account, expected).problem

    def execute(self, statement: str, *parameters: object) -> None:
        self.backend.execute(statement, *parameters)


@pytest.fixture
def intact(store: Store, backend: Backend, account: str) -> Ledger:
    entries: list[Entry] = []
    for _ in range(4):
        entries += store.run_now(lambda tx: [make.record(tx, account, str(number)) for number in range(5)])
        store.run_now(lambda tx: sealing.seal_batch(tx, KEY, account))
    waiting = store.run_now(lambda tx: [make.record(tx, account, "waiting") for _ in range(3)])
    made = Ledger(store, backend, account, entries, waiting)
    assert made.problem() == ""
    return made


# --- entries


@pytest.mark.parametrize("value", [
    "type = 'invoice.unpaid'", "at = at + 1", "actor = 'somebody'", "subject = 'else'", "data = '{}'", "matched = 1",
    "keep_days = 7", "request = 'req_2'", "source = '192.0.2.2'", "data = NULL",
])  # fmt: skip
def test_an_altered_entry(intact: Ledger, value: str) -> None:
    victim = intact.entries[7]
    intact.execute(f"UPDATE entries SET {value} WHERE id = ?", victim.id)
    assert intact.problem() == f"entry {victim.name} (seal 2) differs from what was sealed"


def test_the_first_of_several_altered_entries_is_named(intact: Ledger) -> None:
    for number in (17, 3, 12):
        intact.execute("UPDATE entries SET subject = 'x' WHERE id = ?", intact.entries[number].id)
    assert intact.problem() == f"entry {intact.entries[3].name} (seal 1) differs from what was sealed"


def _erase(made: Ledger, entry: Entry) -> None:
    make.erase_data(made.backend, entry, data_hash(entry))


def test_erased_data(intact: Ledger) -> None:
    for entry in intact.entries[2:7]:
        _erase(intact, entry)
    names = ", ".join(entry.name for entry in intact.entries[2:5])
    assert intact.problem() == f"data was erased, but not by the service: {names} (and 2 more)"


def test_erased_data_of_an_entry_that_waits(intact: Ledger) -> None:
    _erase(intact, intact.waiting[1])
    expected = f"data was erased, but not by the service: {intact.waiting[1].name}"
    assert intact.problem() == expected
    intact.store.run_now(lambda tx: sealing.seal_batch(tx, KEY, intact.account))
    assert intact.problem() == expected


def test_the_hash_of_erased_data_beside_the_data(intact: Ledger) -> None:
    """It would take effect when the data is removed later."""
    for hash_ in (b"\0", data_hash(intact.entries[7])):
        intact.execute("UPDATE entries SET data_hash = ? WHERE id = ?", hash_, intact.entries[7].id)
        name = f"entry {intact.entries[7].name} (seal 2)"
        assert intact.problem() == f"{name} has its data and a hash of erased data"


def test_a_removed_entry(intact: Ledger) -> None:
    victim = intact.entries[7]
    intact.execute("DELETE FROM entries WHERE id = ?", victim.id)
    assert intact.problem() == f"entry {victim.name} (seal 2) is missing before its retention ended"


@pytest.mark.parametrize("column", ["id", "account"])
def test_an_entry_under_another_name(intact: Ledger, column: str) -> None:
    victim = intact.entries[7]
    intact.execute(f"UPDATE entries SET {column} = ? WHERE id = ?", NOBODY, victim.id)
    assert intact.problem() == f"entry {victim.name} (seal 2) is missing before its retention ended"


def _copy(made: Ledger, raw_id: object) -> None:
    """An entry that never came through the service."""
    made.execute(
        "INSERT INTO entries SELECT account, ?, type, at, actor, subject, data, data_hash, matched, keep_days, "
        "request, source FROM entries WHERE id = ?", raw_id, made.entries[0].id,
    )  # fmt: skip


def test_a_forged_entry(intact: Ledger) -> None:
    raw_id = ids.new_raw()
    _copy(intact, raw_id)
    assert intact.problem() == f"entry {ids.text('evt', raw_id)} was never sealed: it did not come through the service"


NEVER_SEALED = "was never sealed: it did not come through the service"
LINK = bytes(8) + (1).to_bytes(8, "big")  # the id of a leaf that names the operator's head
MALFORMED = [b"", bytes(15), bytes(16), bytes(40), LINK, ids.new_raw()[:15], b"\x01" * 17, b"\xff" * 16, b"\xff" * 20]


def _waits(made: Ledger, raw_id: object) -> None:
    made.execute("INSERT INTO unsealed VALUES (?, ?)", ids.raw(made.account), raw_id)


def test_a_forged_entry_with_an_id_that_no_entry_has(intact: Ledger) -> None:
    for raw_id in MALFORMED:
        _copy(intact, raw_id)
        assert intact.problem() == f"entry with the id x'{raw_id.hex()}' {NEVER_SEALED}"
        _waits(intact, raw_id)
        assert intact.problem() == f"entry with the id x'{raw_id.hex()}' {NEVER_SEALED}"
        for table in ("entries", "unsealed"):
            intact.execute(f"DELETE FROM {table} WHERE id = ?", raw_id)
    assert intact.problem() == ""


def test_an_entry_with_an_id_that_no_entry_has_is_not_sealed(intact: Ledger) -> None:
    """The leaves of a seal have a fixed length, and one of a link to the operator's head starts with zeros."""
    for raw_id in MALFORMED:
        _copy(intact, raw_id)
        _waits(intact, raw_id)
    assert intact.store.run_now(lambda tx: sealing.seal_batch(tx, KEY, intact.account)) == len(intact.waiting)
    assert intact.problem() == f"entry with the id x'' {NEVER_SEALED}"


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize("raw_id", ["x" * 16, 17, 1.5])
def test_a_forged_entry_with_an_id_of_another_type(intact: Ledger, raw_id: object) -> None:
    """SQLite stores values of any type in any column."""
    _copy(intact, raw_id)
    assert intact.problem() == f"entry with the id {raw_id!r} {NEVER_SEALED}"
    _waits(intact, raw_id)
    assert intact.store.run_now(lambda tx: sealing.seal_batch(tx, KEY, intact.account)) == len(intact.waiting)
    assert intact.problem() == f"entry with the id {raw_id!r} {NEVER_SEALED}"


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize("statement", [
    "UPDATE seals SET number = 'two' WHERE number = 2",
    "UPDATE seals SET at = 'now' WHERE number = 2",
    "UPDATE seals SET leaves = 'none' WHERE number = 2",
    "UPDATE seals SET mac = 'text' WHERE number = 2",
    "INSERT INTO anchors SELECT account, 'one', 'text', 'text' FROM chains",
    "INSERT INTO prunings SELECT account, 'seven', 'text' FROM chains",
    "UPDATE chains SET proof = 'text'",
])  # fmt: skip
def test_a_value_of_another_type_in_the_records_of_the_service(intact: Ledger, statement: str) -> None:
    intact.execute(statement)
    assert intact.problem()


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize("stored", ["nobody", 17, b"short"])
def test_entries_of_an_account_that_cannot_exist_do_not_keep_others_from_their_seals(
    intact: Ledger, stored: object
) -> None:
    intact.execute("INSERT INTO unsealed VALUES (?, ?)", stored, ids.new_raw())
    assert intact.store.read_now(seal_rows.unsealed_accounts) == [intact.account]


def test_a_forged_entry_while_the_service_prunes(intact: Ledger, watch: FakeClock) -> None:
    """Pruned entries do not make up for it in a comparison of numbers."""
    raw_id = ids.new_raw()
    _copy(intact, raw_id)
    watch.forward(timedelta(days=31))
    victims = iter(intact.entries)

    def prune(_entries: int) -> None:
        intact.execute("DELETE FROM entries WHERE id = ?", next(victims).id)

    problem = verification.verify(intact.store, KEY, intact.account, None, prune).problem
    assert problem == f"entry {ids.text('evt', raw_id)} {NEVER_SEALED}"


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_second_row_of_an_entry(intact: Ledger) -> None:
    """PostgreSQL accepts one with another retention, because it is in another partition."""
    problems = {
        intact.entries[7]: "(seal 2) differs from what was sealed",
        intact.waiting[1]: "(not sealed yet) has 2 rows: the service wrote only one of them",
    }
    for entry, problem in problems.items():
        intact.execute(
            "INSERT INTO entries SELECT account, id, 'invoice.unpaid', at, actor, subject, data, data_hash, matched, "
            "90, request, source FROM entries WHERE id = ?", entry.id,
        )  # fmt: skip
        assert intact.problem() == f"entry {entry.name} {problem}"
        intact.execute("DELETE FROM entries WHERE id = ? AND keep_days = 90", entry.id)
    assert intact.problem() == ""


def test_a_forged_entry_in_a_seal_before_the_start_of_the_chain(intact: Ledger, watch: FakeClock) -> None:
    """Verification starts from the anchor, so it cannot check such a seal."""
    watch.forward(timedelta(days=31))
    while len(intact.seals()) > 1:
        intact.store.run_now(lambda tx: retention.prune_batch(tx, KEY, intact.account))
    assert intact.problem() == ""
    for number in (3, 1, 0, -1):
        leaves = seal.pack([seal.leaf(intact.entries[0]._replace(id=ids.new_raw()))])
        intact.execute("INSERT INTO seals VALUES (?, ?, 0, ?, ?)", ids.raw(intact.account), number, leaves, bytes(32))
        assert intact.problem() == f"seal {number} is before the start of the chain: the service did not write it"
        intact.execute("DELETE FROM seals WHERE number = ?", number)


def test_an_entry_that_waits_and_has_an_earlier_time(intact: Ledger, watch: FakeClock) -> None:
    """The sealer need not run for that."""
    old = clock.milliseconds(watch() - timedelta(days=3)).to_bytes(6, "big") + ids.new_raw()[6:]
    _copy(intact, old)
    _waits(intact, old)
    assert "(not sealed yet) has a time that does not fit its seal" in intact.problem()


def test_an_entry_that_waits_and_was_sealed(intact: Ledger) -> None:
    _waits(intact, intact.entries[19].id)
    assert "(not sealed yet) was sealed twice" in intact.problem()


def test_a_forged_entry_hidden_by_a_false_count(intact: Ledger) -> None:
    _copy(intact, ids.new_raw())
    intact.execute("INSERT INTO unsealed VALUES (?, ?)", ids.raw(intact.account), ids.new_raw())
    assert intact.problem() != ""


def test_a_forged_entry_in_place_of_a_waiting_one(intact: Ledger) -> None:
    _copy(intact, ids.new_raw())
    intact.execute("DELETE FROM entries WHERE id = ?", intact.waiting[0].id)
    assert intact.problem() != ""


def test_a_waiting_entry_removed(intact: Ledger) -> None:
    intact.execute("DELETE FROM entries WHERE id = ?", intact.waiting[1].id)
    assert intact.problem() == f"entry {intact.waiting[1].name} was removed before it was sealed"


def test_a_waiting_entry_that_no_longer_waits(intact: Ledger) -> None:
    intact.execute("DELETE FROM unsealed WHERE id = ?", intact.waiting[1].id)
    assert intact.waiting[1].name in intact.problem()


def test_an_altered_entry_put_back_to_be_sealed_again(intact: Ledger) -> None:
    victim = intact.entries[7]
    intact.execute("UPDATE entries SET subject = 'x' WHERE id = ?", victim.id)
    intact.execute("INSERT INTO unsealed VALUES (?, ?)", ids.raw(intact.account), victim.id)
    intact.store.run_now(lambda tx: sealing.seal_batch(tx, KEY, intact.account))
    assert intact.problem() == f"entry {victim.name} (seal 2) differs from what was sealed"


# --- seals


def _without_a_leaf(made: Ledger) -> None:
    leaves = made.seals()[1].leaves[seal.LEAF :]
    made.execute("UPDATE seals SET leaves = ? WHERE number = 2", leaves)
    made.execute("DELETE FROM entries WHERE id = ?", made.entries[5].id)


def _leaf_of_an_altered_entry(made: Ledger) -> None:
    made.execute("UPDATE entries SET subject = 'x' WHERE id = ?", made.entries[5].id)
    altered = made.store.read_now(lambda tx: entry_rows.load(tx, made.account, made.entries[5].id))
    assert altered is not None
    made.execute(
        "UPDATE seals SET leaves = ? WHERE number = 2", seal.pack(map(seal.leaf, [altered, *made.entries[6:10]]))
    )


def _another_mac(made: Ledger) -> None:
    made.execute("UPDATE seals SET mac = ? WHERE number = 2", b"x" * 32)


def _another_time(made: Ledger) -> None:
    made.execute("UPDATE seals SET at = at + 1 WHERE number = 2")


def _two_exchanged(made: Ledger) -> None:
    for before, after in ((2, 99), (3, 2), (99, 3)):
        made.execute("UPDATE seals SET number = ? WHERE number = ?", after, before)


@pytest.mark.parametrize(
    "tamper", [_without_a_leaf, _leaf_of_an_altered_entry, _another_mac, _another_time, _two_exchanged]
)
def test_an_altered_seal(intact: Ledger, tamper: Callable[[Ledger], None]) -> None:
    tamper(intact)
    assert intact.problem() == "seal 2 was altered, or the chain before it was"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_removed_seal(intact: Ledger, number: int) -> None:
    intact.execute("DELETE FROM seals WHERE number = ?", number)
    assert intact.problem() == f"seal {number} is missing"


def test_a_removed_seal_with_the_others_moved_up(intact: Ledger) -> None:
    intact.execute("DELETE FROM seals WHERE number = 2")
    for number in (3, 4):
        intact.execute("UPDATE seals SET number = ? WHERE number = ?", number - 1, number)
    assert intact.problem() == "seal 2 was altered, or the chain before it was"


def test_a_chain_made_anew_with_another_key(intact: Ledger) -> None:
    intact.execute("UPDATE entries SET subject = 'x' WHERE id = ?", intact.entries[5].id)
    entries = intact.store.read_now(
        lambda tx: [entry_rows.load(tx, intact.account, each.id) for each in intact.entries]
    )
    previous = Head(0, seal.START)
    for start in range(0, 20, 5):
        those = [entry for entry in entries[start : start + 5] if entry]
        made = seal.new(b"another key".ljust(32), intact.account, previous, map(seal.leaf, those), 0)
        intact.execute(
            "UPDATE seals SET at = 0, leaves = ?, mac = ? WHERE number = ?", made.leaves, made.mac, made.number
        )
        previous = Head(made.number, made.mac)
    assert intact.problem() == "seal 1 was altered, or the chain before it was"


def test_the_seals_of_another_account(intact: Ledger, watch: FakeClock) -> None:
    """The chain of one account does not verify as that of another."""
    other = accounts.new("other", watch())
    intact.store.run_now(lambda tx: account_rows.add(tx, other))
    for table in ("entries", "unsealed", "seals"):
        intact.execute(f"UPDATE {table} SET account = ?", ids.raw(other.id))
    assert verification.verify(intact.store, KEY, other.id).problem == "seal 1 was altered, or the chain before it was"


# --- the end of the chain


CUT = "the chain ends at seal 3, but the service made 4: its tail was cut off"


def test_a_tail_cut_off(intact: Ledger) -> None:
    intact.execute("DELETE FROM seals WHERE number = 4")
    assert intact.problem() == CUT


def test_a_tail_cut_off_with_its_entries(intact: Ledger) -> None:
    head = verification.verify(intact.store, KEY, intact.account).head
    _cut_the_end(intact)
    assert intact.problem() == CUT
    assert intact.problem(head) == ("the chain ends at seal 3, before the exported head 4: its tail was cut off")


def test_a_chain_goes_on_from_its_last_seal_even_if_that_was_cut_off(intact: Ledger) -> None:
    _cut_the_end(intact)
    intact.store.run_now(lambda tx: sealing.seal_batch(tx, KEY, intact.account))
    assert [each.number for each in intact.seals()] == [1, 2, 3, 5]
    assert intact.problem() == "seal 4 is missing"


def _cut_the_end(made: Ledger) -> None:
    made.execute("DELETE FROM seals WHERE number = 4")
    for entry in made.entries[15:]:
        made.execute("DELETE FROM entries WHERE id = ?", entry.id)


def test_everything_removed_shows_against_an_exported_head(intact: Ledger) -> None:
    head = verification.verify(intact.store, KEY, intact.account).head
    for table in ("entries", "unsealed", "seals"):
        intact.execute(f"DELETE FROM {table}")
    assert intact.problem(head).startswith("the chain ends at seal 0, before the exported head 4")


def test_an_older_exported_head_is_still_good(intact: Ledger) -> None:
    for each in intact.seals():
        assert intact.problem(Head(each.number, each.mac)) == ""


# --- the start of the chain


def _cut_the_start(made: Ledger) -> Seal:
    first = made.seals()[0]
    made.execute("DELETE FROM seals WHERE number = 1")
    for entry in made.entries[:5]:
        made.execute("DELETE FROM entries WHERE id = ?", entry.id)
    return first


def test_a_start_cut_off(intact: Ledger) -> None:
    _cut_the_start(intact)
    assert intact.problem() == "seal 1 is missing"


def test_a_start_cut_off_with_a_forged_anchor(intact: Ledger) -> None:
    first = _cut_the_start(intact)
    for proof in (b"", b"x" * 32, seal.anchor(b"another key".ljust(32), intact.account, first).proof):
        intact.execute("DELETE FROM anchors")
        intact.execute(
            "INSERT INTO anchors VALUES (?, ?, ?, ?)", ids.raw(intact.account), first.number, first.mac, proof
        )
        assert intact.problem() == "the seals up to 1 were removed, but not by pruning"


def test_an_anchor_removed_or_moved(intact: Ledger, watch: FakeClock) -> None:
    watch.forward(timedelta(days=31))
    while len(intact.seals()) > 1:
        intact.store.run_now(lambda tx: retention.prune_batch(tx, KEY, intact.account))
    assert intact.problem() == ""
    intact.execute("UPDATE anchors SET number = 2")
    assert intact.problem() == "the seals up to 2 were removed, but not by pruning"
    intact.execute("DELETE FROM anchors")
    assert intact.problem() == "seal 1 is missing"


def test_a_seal_altered_to_end_sooner_is_not_pruned(intact: Ledger) -> None:
    """Who has the database but not the key cannot make the service delete entries and sign for it."""
    first = intact.seals()[0]
    sooner = seal.pack(leaf._replace(keep_days=0) for leaf in seal.unpack(first.leaves))
    intact.execute("UPDATE seals SET leaves = ? WHERE number = ?", sooner, first.number)
    assert not intact.store.read_now(lambda tx: retention.is_due(tx, KEY, intact.account))
    assert intact.store.run_now(lambda tx: retention.prune_batch(tx, KEY, intact.account)).examined == 0
    assert f"seal {first.number} was altered" in intact.problem()
