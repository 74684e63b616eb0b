"""Seals: the chain detects changed, moved, missing and added entries."""

from typing import Any

import pytest

from gatepost.ledger import seal
from gatepost.ledger.entries import Entry, data_hash
from gatepost.ledger.seal import START, Head, Leaf, Seal, anchor, leaf, mac, new, pack, parse_head, unpack

KEY = bytes(range(32))
RAW = bytes.fromhex("019a8f5c1e2b7c3d8e4f5a6b7c8d9eaf")
ENTRY = Entry("acc_1", RAW, "invoice.paid", 1000, "cli_1", "inv_1", '{"a":1}', None, 2, 30, "req_1", "192.0.2.1")
CHANGED: dict[str, Any] = {
    "account": "acc_2",
    "id": RAW[:-1] + b"\0",
    "type": "invoice.paidx",
    "at": 1001,
    "actor": "cli_2",
    "subject": "",
    "data": '{"a":2}',
    "matched": 3,
    "keep_days": 31,
    "request": "",
    "source": "192.0.2.2",
}


def entry(number: int) -> Entry:
    return ENTRY._replace(id=number.to_bytes(16, "big"), subject=f"inv_{number}")


class TestLeaf:
    def test_it_keeps_the_id_and_the_days(self) -> None:
        assert leaf(ENTRY)[:2] == (RAW, 30)
        assert len(leaf(ENTRY).hash) == 32

    @pytest.mark.parametrize("field", CHANGED)
    def test_any_change_to_any_field_changes_it(self, field: str) -> None:
        assert leaf(ENTRY._replace(**{field: CHANGED[field]})).hash != leaf(ENTRY).hash

    def test_every_field_was_changed(self) -> None:
        """But the hash of data that is there, which is not kept."""
        assert set(CHANGED) == set(Entry._fields) - {"data_hash"}

    def test_fields_do_not_run_into_each_other(self) -> None:
        one = ENTRY._replace(actor="a", subject="bc", request='","')
        other = ENTRY._replace(actor="ab", subject="c", request='","')
        assert leaf(one).hash != leaf(other).hash

    def test_erasing_data_leaves_it(self) -> None:
        erased = ENTRY._replace(data=None, data_hash=data_hash(ENTRY))
        assert leaf(erased) == leaf(ENTRY)
        assert leaf(erased._replace(data_hash=b"\0" * 32)).hash != leaf(ENTRY).hash

    def test_until_when_it_must_be_there(self) -> None:
        assert leaf(ENTRY).kept_until() == 0x019A8F5C1E2B + 30 * 86_400_000


class TestPacking:
    def test_leaves_come_back_in_order(self) -> None:
        leaves = [leaf(entry(number)) for number in (3, 1, 2)]
        assert list(unpack(pack(leaves))) == leaves
        assert len(pack(leaves)) == 150
        assert list(unpack(b"")) == []

    @pytest.mark.parametrize("days", [0, 1, 7, 30, 400, 2555, 65_535])
    def test_days(self, days: int) -> None:
        assert list(unpack(pack([Leaf(RAW, days, b"h" * 32)]))) == [Leaf(RAW, days, b"h" * 32)]


class TestChain:
    def test_a_seal_follows_the_one_before(self) -> None:
        one = new(KEY, "acc_1", Head(0, START), map(leaf, [entry(1), entry(2)]), 5000)
        assert (one.number, one.at) == (1, 5000)
        assert list(unpack(one.leaves)) == [leaf(entry(1)), leaf(entry(2))]
        assert one.mac == mac(KEY, "acc_1", START, 1, 5000, one.leaves)
        two = new(KEY, "acc_1", Head(one.number, one.mac), map(leaf, [entry(3)]), 6000)
        assert two == Seal(2, 6000, pack([leaf(entry(3))]), mac(KEY, "acc_1", one.mac, 2, 6000, two.leaves))

    def test_it_depends_on_everything(self) -> None:
        leaves = pack([leaf(entry(1)), leaf(entry(2))])
        swapped = pack([leaf(entry(2)), leaf(entry(1))])
        macs = [
            mac(KEY, "acc_1", START, 1, 5000, leaves),
            mac(KEY[::-1], "acc_1", START, 1, 5000, leaves),
            mac(KEY, "acc_2", START, 1, 5000, leaves),
            mac(KEY, "acc_1", b"\1" * 32, 1, 5000, leaves),
            mac(KEY, "acc_1", START, 2, 5000, leaves),
            mac(KEY, "acc_1", START, 1, 5001, leaves),
            mac(KEY, "acc_1", START, 1, 5000, swapped),
            mac(KEY, "acc_1", START, 1, 5000, leaves[:50]),
            mac(KEY, "acc_1", START, 1, 5000, leaves + leaves[:50]),
            mac(KEY, "acc_1", START, 1, 5000, b""),
        ]
        assert len(set(macs)) == len(macs)

    def test_the_same_entries_in_two_batches_are_another_chain(self) -> None:
        together = new(KEY, "acc_1", Head(0, START), map(leaf, [entry(1), entry(2)]), 5000)
        first = new(KEY, "acc_1", Head(0, START), map(leaf, [entry(1)]), 5000)
        second = new(KEY, "acc_1", Head(first.number, first.mac), map(leaf, [entry(2)]), 5000)
        assert len({together.mac, first.mac, second.mac}) == 3


class TestAnchor:
    def test_it_says_where_verification_starts(self) -> None:
        last = new(KEY, "acc_1", Head(6, b"m" * 32), map(leaf, [entry(1)]), 5000)
        made = anchor(KEY, "acc_1", last)
        assert (made.number, made.mac) == (7, last.mac)
        assert anchor(KEY, "acc_1", made) == made

    def test_its_proof_depends_on_everything_and_is_no_seal(self) -> None:
        last = Seal(7, 5000, b"", b"m" * 32)
        proofs = [
            anchor(KEY, "acc_1", last).proof,
            anchor(KEY[::-1], "acc_1", last).proof,
            anchor(KEY, "acc_2", last).proof,
            anchor(KEY, "acc_1", last._replace(number=8)).proof,
            anchor(KEY, "acc_1", last._replace(mac=b"n" * 32)).proof,
            mac(KEY, "acc_1", b"m" * 32, 7, 5000, b""),
        ]
        assert len(set(proofs)) == len(proofs)


class TestHead:
    def test_it_is_written_and_read(self) -> None:
        head = Head(42, bytes(range(32)))
        assert str(head) == "42:" + bytes(range(32)).hex()
        assert parse_head(str(head)) == head
        assert parse_head(f"  {head}\n".upper()) == head

    @pytest.mark.parametrize(
        "text",
        [
            "", ":", "42", "42:", ":" + "0" * 64, "42:" + "0" * 63, "42:" + "0" * 65, "42:" + "g" * 64,
            "-1:" + "0" * 64, "4 2:" + "0" * 64, "1" * 19 + ":" + "0" * 64, "42:" + "0" * 64 + ":1", "٤:" + "0" * 64,
            "42:" + "0" * 32 + "\n" + "0" * 32,
        ],
    )  # fmt: skip
    def test_what_is_no_head(self, text: str) -> None:
        assert parse_head(text) is None


def test_a_batch_fits_into_a_row() -> None:
    assert len(pack([leaf(ENTRY)] * seal.BATCH)) == seal.BATCH * 50
