"""Receipts: every entry has a proof that verifies with the public key alone, before and after pruning."""

from datetime import timedelta
from typing import NamedTuple

import pytest

from gatepost import accounts
from gatepost.core import ids
from gatepost.core.errors import BadSetting
from gatepost.ledger import (
    checkpoint,
    checkpoint_rows,
    heads,
    merkle,
    proofs,
    receipt,
    retention,
    seal,
    seal_rows,
    sealing,
    verification,
)
from gatepost.ledger.checkpoint import Signer, Verifier
from gatepost.ledger.entries import Entry
from gatepost.store.interface import Store
from tests.contract import make
from tests.contract.backends import FakeClock
from tests.contract.make import KEY

SIGNER = Signer(b"c" * 32)
BASE = "https://gatepost.example"


class Book(NamedTuple):
    store: Store
    account: str

    @property
    def key(self) -> Verifier:
        return SIGNER.verifier(checkpoint.origin(BASE, self.account))

    def write(self, count: int, keep_days: int = 30) -> list[Entry]:
        made = self.store.run_now(
            lambda tx: [make.record(tx, self.account, str(number), keep_days=keep_days) for number in range(count)]
        )
        while self.store.run_now(lambda tx: sealing.seal_batch(tx, KEY, self.account)):
            pass
        return made

    def publish(self) -> str:
        due = self.store.read_now(lambda tx: heads.due(tx, KEY, SIGNER, BASE))
        self.store.run_now(lambda tx: heads.record_heads(tx, KEY, due.chains))
        notes = self.store.read_now(lambda tx: checkpoint_rows.notes(tx, "", 10))
        return next(note for account, _, note in notes if account == self.account)

    def proof(self, entry: Entry) -> str:
        found = self.store.read_now(lambda tx: proofs.prove(tx, KEY, self.account, entry.id))
        assert found is not None
        return found.text()


@pytest.fixture
def book(store: Store, account: str, watch: FakeClock) -> Book:
    operator = accounts.new(accounts.OPERATOR, watch())
    store.run_now(lambda tx: make.account(tx, operator))
    return Book(store, account)


def test_every_entry_is_proved(book: Book) -> None:
    made = [entry for count in (1, 2, 300, 7, 700, 3) for entry in book.write(count)]
    book.publish()
    places = []
    for entry in [*made[:10], *made[250:270], *made[505:520], *made[-5:]]:
        found = receipt.check(book.proof(entry), book.key)
        assert found.entry == entry
        assert found.checkpoint.size == len(made)
        places.append(found.number)
    assert len(set(places)) == len(places)


def test_an_entry_newer_than_the_checkpoint_has_no_proof_yet(book: Book) -> None:
    book.write(3)
    book.publish()
    [late] = book.write(1)
    assert book.store.read_now(lambda tx: proofs.prove(tx, KEY, book.account, late.id)) is None
    book.publish()
    assert receipt.check(book.proof(late), book.key).number == 3
    with pytest.raises(BadSetting, match="there is no entry"):
        book.store.read_now(lambda tx: proofs.prove(tx, KEY, book.account, ids.new_raw()))


def test_what_is_left_after_pruning_is_still_proved(book: Book, watch: FakeClock) -> None:
    for count in (5, 260, 3):
        book.write(count, 7)
    kept = [entry for count in (4, 300, 1) for entry in book.write(count, 90)]
    note = book.publish()
    before = [book.proof(entry) for entry in (kept[0], kept[5], kept[-1])]
    watch.forward(timedelta(days=8))
    while book.store.run_now(lambda tx: retention.prune_batch(tx, KEY, book.account)).examined:
        pass
    anchor = book.store.read_now(lambda tx: seal_rows.anchor(tx, book.account))
    assert anchor is not None
    assert [book.proof(entry) for entry in (kept[0], kept[5], kept[-1])] == before
    book.write(10, 90)
    book.publish()
    for entry in (kept[0], kept[100], kept[-1]):
        assert receipt.check(book.proof(entry), book.key).entry == entry
    found = checkpoint.open_note(note, book.key)
    assert verification.verify(book.store, KEY, book.account, saved=found).problem == ""


def test_a_kept_checkpoint_shows_whether_the_tree_extends_it(book: Book) -> None:
    book.write(5)
    kept = checkpoint.open_note(book.publish(), book.key)
    book.write(5)
    assert verification.verify(book.store, KEY, book.account, saved=kept).problem == ""
    other = kept._replace(root=bytes(32))
    assert "it was rewritten" in verification.verify(book.store, KEY, book.account, saved=other).problem
    longer = kept._replace(size=99)
    assert "its tail was cut off" in verification.verify(book.store, KEY, book.account, saved=longer).problem


def test_an_altered_proof_is_refused(book: Book) -> None:
    one, two, *_ = book.write(9)
    book.publish()
    proof = book.proof(one)
    parsed, other = checkpoint.parse_proof(proof), checkpoint.parse_proof(book.proof(two))
    wrong = [
        parsed._replace(leaf=1), parsed._replace(extra=other.extra), parsed._replace(path=other.path),
        parsed._replace(path=parsed.path[:-1]), parsed._replace(extra=b"{}"), parsed._replace(extra=b"[]"),
        parsed._replace(extra=parsed.extra.replace(b"invoice.paid", b"invoice.void")),
        parsed._replace(note=parsed.note.replace("\n9\n", "\n8\n")),
    ]  # fmt: skip
    for each in wrong:
        with pytest.raises(BadSetting):
            receipt.check(each.text(), book.key)
    with pytest.raises(BadSetting, match="not signed"):
        receipt.check(proof, Signer(b"o" * 32).verifier(book.key.name))
    assert receipt.check(proof, book.key).entry == one


def test_neighbours_hashes_do_not_give_their_contents_away(book: Book) -> None:
    """Whoever guesses a neighbour's entry whole, with its id, still lacks the blinding."""
    one, two = book.write(2)
    book.publish()
    [sibling] = checkpoint.parse_proof(book.proof(one)).path
    guesses = [merkle.leaf_hash(seal.leaf(two).hash), merkle.leaf_hash(bytes(16) + seal.leaf(two).hash)]
    assert sibling not in guesses
