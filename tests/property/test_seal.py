"""Seals over any entries: a change anywhere shows, and only a change does."""

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from gatepost.ledger.entries import Entry, data_hash
from gatepost.ledger.seal import START, Head, Leaf, leaf, mac, new, pack, parse_head, unpack

KEY = st.binary(min_size=32, max_size=32)
HASH = st.binary(min_size=32, max_size=32)
ID = st.binary(min_size=16, max_size=16)
TEXT = st.text(max_size=20)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "account": TEXT,
    "id": ID,
    "type": TEXT,
    "at": st.integers(0, 1 << 48),
    "actor": TEXT,
    "subject": TEXT,
    "data": TEXT,
    "data_hash": st.none(),
    "matched": st.integers(0, 1 << 31),
    "keep_days": st.integers(0, 65_535),
    "request": TEXT,
    "source": TEXT,
}
ENTRY = st.builds(Entry, **FIELDS)
LEAF = st.builds(Leaf, ID, st.integers(0, 65_535), HASH)


@given(st.lists(LEAF))
def test_leaves_survive_packing(leaves: list[Leaf]) -> None:
    assert list(unpack(pack(leaves))) == leaves


@given(ENTRY, st.data())
def test_a_change_to_any_field_changes_the_leaf(entry: Entry, data: st.DataObject) -> None:
    field = data.draw(st.sampled_from([name for name in FIELDS if name != "data_hash"]))
    value = data.draw(FIELDS[field])
    changed = entry._replace(**{field: value})
    assert (leaf(changed) == leaf(entry)) == (changed == entry)
    assert (leaf(changed).hash == leaf(entry).hash) == (changed == entry)


@given(ENTRY, ENTRY)
def test_two_entries_have_two_leaves(one: Entry, other: Entry) -> None:
    assert (leaf(one).hash == leaf(other).hash) == (one == other)


@given(ENTRY)
def test_erasing_data_changes_nothing(entry: Entry) -> None:
    assert leaf(entry._replace(data=None, data_hash=data_hash(entry))) == leaf(entry)


@given(st.integers(0, 1 << 47), st.binary(min_size=10, max_size=10), st.integers(0, 2555))
def test_an_entry_is_kept_for_its_days_to_the_millisecond(made: int, rest: bytes, days: int) -> None:
    assert Leaf(made.to_bytes(6, "big") + rest, days, b"").kept_until() == made + days * 86_400_000


@given(KEY, TEXT, st.lists(st.lists(ENTRY, min_size=1, max_size=3), min_size=2, max_size=4), st.data())
def test_a_change_to_any_batch_changes_every_seal_from_there_on(
    key: bytes, account: str, batches: list[list[Entry]], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(batches) - 1))
    changed = data.draw(st.permutations(batches[place]) | st.lists(ENTRY, max_size=3))
    assume(changed != batches[place])
    one = chain(key, account, batches)
    other = chain(key, account, [*batches[:place], changed, *batches[place + 1 :]])
    assert [a == b for a, b in zip(one, other, strict=True)] == [number < place for number in range(len(batches))]


def chain(key: bytes, account: str, batches: list[list[Entry]]) -> list[bytes]:
    head, macs = Head(0, START), []
    for number, batch in enumerate(batches):
        made = new(key, account, head, map(leaf, batch), number)
        head = Head(made.number, made.mac)
        macs.append(made.mac)
    return macs


@given(KEY, KEY, TEXT, TEXT, HASH, HASH, st.binary(max_size=100), st.binary(max_size=100))
def test_a_mac_is_of_one_key_account_and_past(
    key: bytes, key_2: bytes, account: str, account_2: str, past: bytes, past_2: bytes, leaves: bytes, leaves_2: bytes
) -> None:
    one, other = (key, account, past, leaves), (key_2, account_2, past_2, leaves_2)
    same = mac(key, account, past, 1, 1, leaves) == mac(key_2, account_2, past_2, 1, 1, leaves_2)
    assert same == (one == other)


@given(st.integers(0, 10**18 - 1), HASH)
def test_a_head_is_read_as_it_was_written(number: int, found: bytes) -> None:
    assert parse_head(str(Head(number, found))) == Head(number, found)


@given(st.text() | st.from_regex(r"\d{1,20}:[0-9a-fA-F]{63,65}"))
def test_what_reads_as_a_head_writes_as_it(text: str) -> None:
    head = parse_head(text)
    assert head is None or str(head).partition(":")[2] == text.strip().lower().partition(":")[2]
