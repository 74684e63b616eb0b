"""Ids for any sixteen bytes, and any text that is not one."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from gatepost.core import clock, ids

RAW = st.binary(min_size=16, max_size=16)
PREFIX = st.sampled_from(["acc", "cli", "evt", "tok", "key", "ep"])
INSTANT = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001


@given(PREFIX, RAW)
def test_round_trip(prefix: str, raw: bytes) -> None:
    text = ids.text(prefix, raw)
    assert ids.parse(prefix, text) == raw
    assert ids.raw(text) == raw


@given(RAW, RAW)
def test_ids_sort_as_their_bytes(one: bytes, other: bytes) -> None:
    assert (ids.text("evt", one) < ids.text("evt", other)) == (one < other)


@given(RAW, st.integers(0, 29), st.characters(codec="utf-8"))
def test_one_character_changed_is_another_id_or_none(raw: bytes, place: int, character: str) -> None:
    """And never the same one: an id that has two spellings has two owners."""
    known = ids.text("evt", raw)
    changed = known[:place] + character + known[place + 1 :]
    found = ids.parse("evt", changed)
    if changed == known:
        assert found == raw
    else:
        assert found != raw
        assert found is None or ids.text("evt", found) == changed


@given(PREFIX, st.one_of(st.text(), st.from_regex(r"(acc|cli|evt|tok|key|ep)_[0-9a-vA-W_=]{24,28}", fullmatch=True)))
def test_what_parses_is_the_one_spelling(prefix: str, text: str) -> None:
    found = ids.parse(prefix, text)
    assert found is None or ids.text(prefix, found) == text


@given(INSTANT, st.binary(min_size=10, max_size=10))
def test_an_id_says_when_it_was_made(at: datetime, rest: bytes) -> None:
    stored = clock.milliseconds(at)
    assert ids.made_at(stored.to_bytes(6, "big") + rest) == clock.from_milliseconds(stored)


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=70))
def test_several_ids_are_encoded_like_each_of_them(raws: list[bytes]) -> None:
    assert ids.texts("dlv", raws) == [ids.text("dlv", raw) for raw in raws]
