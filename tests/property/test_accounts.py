"""Settings of accounts and of the service by any text: within bounds, or refused in words."""

from hypothesis import given
from hypothesis import strategies as st

from gatepost import accounts, settings
from gatepost.accounts import SETTINGS, parse_duration
from gatepost.core.errors import BadSetting
from tests.unit.test_accounts import ACME

NAME = st.sampled_from(list(SETTINGS))
_CHARACTERS = [*map(chr, range(128)), "é"]
URL = st.builds("{}{}".format, st.sampled_from(["http://", "https://"]), st.text(_CHARACTERS, max_size=30))
VALUE = st.text() | st.from_regex(r"[0-9]{1,12} ?(s|m|min|h|d|)", fullmatch=True) | URL


@given(NAME, VALUE, st.booleans())
def test_a_text_is_a_value_within_bounds_or_refused(name: str, text: str, dev: bool) -> None:
    try:
        changed = accounts.change(ACME, {name: text}, dev=dev)
    except BadSetting:
        return
    if text == "":
        assert changed == ACME
        return
    value = changed[name]
    again = ",".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
    assert accounts.change(ACME, {name: again}, dev=dev) == changed, "what is kept is within the bounds itself"


@given(st.integers(0, 10**9 - 1), st.sampled_from(["", "s", "m", "min", "h", "d"]))
def test_durations(number: int, unit: str) -> None:
    seconds = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}[unit]
    assert parse_duration(f"{number}{unit}").total_seconds() == number * seconds


@given(URL | st.text(), st.booleans())
def test_an_address_can_stand_in_a_header(text: str, dev: bool) -> None:
    try:
        found = accounts.web_url(text, dev)
    except ValueError:
        return
    assert found == text
    assert text.isascii()
    assert text.isprintable()
    assert " " not in text
    assert "#" not in text
    assert text.lower().startswith("https://" if not dev else ("https://", "http://"))


@given(URL | st.text(min_size=1))
def test_a_base_url_can_be_compared_byte_for_byte(text: str) -> None:
    try:
        found = settings.load({"base_url": text}, {}).issuer
    except BadSetting:
        return
    assert found == text == text.lower()
    assert text.isascii()
    assert not set(text.partition("://")[2]) & set('/?#@\\" \t\r\n')
