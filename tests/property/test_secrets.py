"""The box, for any value, row and change."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gatepost.core.errors import BadSetting
from gatepost.core.secrets import Box, Secret, WrongKey, digest, parse_master_keys

KEY = st.binary(min_size=32, max_size=32)
BOX = Box([bytes(range(32))])


@given(st.lists(KEY, min_size=1, max_size=4, unique=True), st.binary(max_size=500), st.text(max_size=50))
def test_any_of_the_keys_given_opens_what_one_of_them_closed(keys: list[bytes], value: bytes, row: str) -> None:
    for key in keys:
        assert Box(keys).decrypt(Box([key]).encrypt(value, row), row) == value


@given(st.binary(max_size=100), st.text(max_size=20), st.text(max_size=20))
def test_a_value_opens_in_its_row_only(value: bytes, row: str, other: str) -> None:
    assume(row != other)
    with pytest.raises(WrongKey):
        BOX.decrypt(BOX.encrypt(value, row), other)


@given(st.binary(max_size=200))
def test_nothing_that_was_not_closed_opens(sealed: bytes) -> None:
    for forged in (sealed, b"\x01" + BOX.current_key_id + sealed):
        with pytest.raises(WrongKey):
            BOX.decrypt(forged, "row")


@given(KEY, st.text(), st.text())
def test_two_secrets_have_two_digests(key: bytes, one: str, other: str) -> None:
    assert (digest(key, one) == digest(key, other)) == (one == other)


@given(st.text(st.characters(exclude_characters="*"), min_size=1))
def test_a_secret_never_prints(value: str) -> None:
    secret = Secret(value)
    assert {repr(secret), str(secret), f"{secret}", f"{secret!r:>3}"} == {"***"}


@given(st.text())
def test_a_master_key_is_accepted_or_refused_in_words(text: str) -> None:
    try:
        keys = parse_master_keys(text)
    except BadSetting:
        return
    assert all(len(key) == 32 for key in keys)
