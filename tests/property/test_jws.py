"""Foreign tokens of any text, and any change to a right one: claims come out of what our keys signed, or nothing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.core.jose import InvalidJwt, numeric_date
from tests.property.test_clients import JSON, TEXT
from tests.unit.foreign import CLAIMS, EC, OTHER_EC, encoded, token
from tests.unit.test_jws import ES256, read

HEADER = st.dictionaries(
    st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk", "jku", "zip", "x5c", "cty"]) | TEXT,
    st.sampled_from(["ES256", "none", "HS256", "ec", "JWT"]) | JSON,
    max_size=5,
)
PART = st.binary(max_size=50).map(encoded)


@given(st.text() | st.lists(PART, min_size=2, max_size=4).map(".".join))
def test_no_text_is_a_token(text: str) -> None:
    with pytest.raises(InvalidJwt):
        read(text)


@given(HEADER, st.dictionaries(TEXT, JSON, max_size=3))
def test_a_header_never_chooses_the_key(header: dict[str, Any], claims: dict[str, Any]) -> None:
    for key in (OTHER_EC, b"", b"secret"):
        with pytest.raises(InvalidJwt):
            read(token(ES256 | header, claims, key))


@given(HEADER)
def test_a_right_signature_is_read_or_refused(header: dict[str, Any]) -> None:
    try:
        found = read(token(ES256 | header, CLAIMS, EC))
    except InvalidJwt:
        return
    assert found == CLAIMS
    assert {"crit", "b64"}.isdisjoint(header)
    assert (ES256 | header)["typ"] == "JWT"
    assert (ES256 | header)["alg"] == "ES256"


@given(st.binary(max_size=100) | JSON.map(lambda value: json.dumps(value).encode()))
def test_only_an_object_is_claims(payload: bytes) -> None:
    try:
        found = read(token(ES256, payload))
    except InvalidJwt:
        return
    assert found == json.loads(payload)
    assert isinstance(found, dict)


@given(JSON)
def test_an_instant_is_a_number_in_range_or_refused(value: Any) -> None:
    try:
        found = numeric_date({"exp": value}, "exp")
    except InvalidJwt:
        assert value is not None
        return
    if value is None:
        assert found is None
    else:
        assert not isinstance(value, bool)
        assert found == value
        assert 0 <= value < 1 << 40
