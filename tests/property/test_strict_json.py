"""Numbers in JSON: those of 64-bit floating point are accepted however they are written, and others never changed."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from gatepost.core.errors import Refusal
from gatepost.core.strict_json import Json, read_json

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(FLOATS)
def test_a_float_is_accepted_however_it_is_written(number: float) -> None:
    for text in (repr(number), f"{number:.17g}", f"{number:.17e}".replace("e", "E"), f"{number:.30e}"):
        assert read_json(text if "." in text or "E" in text or "e" in text else f"{text}.0") == Json(number), text


@given(st.decimals(allow_nan=False, allow_infinity=False, places=12))
def test_a_number_is_refused_or_has_the_digits_that_were_sent(number: Decimal) -> None:
    text = f"{number:f}"
    found = read_json(text)
    if isinstance(found, Refusal):
        assert len(text) > 16
    else:
        count = len(text.lstrip("-").replace(".", "").lstrip("0")) or 1
        assert Decimal(repr(found.value)) == number or Decimal(f"{found.value:.{count - 1}e}") == number
