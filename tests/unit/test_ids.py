"""Ids have one spelling each, and say when they were made."""

from base64 import b32hexencode
from datetime import timedelta

import pytest

from gatepost.core import clock, ids

RAW = bytes.fromhex("019a8f5c1e2b7c3d8e4f5a6b7c8d9eaf")
KNOWN = "cli_06d8un0u5du3r3ifb9lnp3culs"


def test_a_known_id() -> None:
    """The standard library's base32hex, without its padding and in lower case, says the same."""
    assert "cli_" + b32hexencode(RAW).decode().rstrip("=").lower() == KNOWN
    assert ids.text("cli", RAW) == KNOWN
    assert ids.parse("cli", KNOWN) == RAW
    assert ids.raw(KNOWN) == RAW


@pytest.mark.parametrize("raw", [b"\0" * 16, b"\xff" * 16, b"\0" * 15 + b"\x01", b"\x80" + b"\0" * 15, RAW])
def test_every_sixteen_bytes_come_back(raw: bytes) -> None:
    text = ids.text("evt", raw)
    assert len(text) == 4 + 26
    assert ids.parse("evt", text) == raw
    assert ids.raw(text) == raw


@pytest.mark.parametrize("prefix", ["acc", "cli", "sec", "grt", "key", "tok", "evt", "req", "ep"])
def test_a_new_id_parses_under_its_prefix_only(prefix: str) -> None:
    made = ids.new(prefix)
    assert made.startswith(f"{prefix}_")
    assert ids.parse(prefix, made) is not None
    assert ids.parse("x" + prefix, made) is None
    assert ids.parse(prefix[:-1], made) is None
    assert ids.parse("", made) is None


@pytest.mark.parametrize(
    "identifier",
    [
        "", "cli", "cli_", KNOWN.removeprefix("cli_"), KNOWN.upper(), KNOWN.replace("cli_", "CLI_"),
        KNOWN.replace("cli_", "clj_"), KNOWN.replace("cli_", "cli-"), KNOWN.replace("cli_", "cli"),
        KNOWN.replace("cli_", "cli0"), "cli" + "0" * 23,
        KNOWN.replace("cli_", "cli__"), KNOWN[:-1], KNOWN + "0", KNOWN + "=", KNOWN + " ", " " + KNOWN, KNOWN + "\n",
        KNOWN + "\0", "cli_" + KNOWN, "cli_cli_" + KNOWN[8:], KNOWN[:-1] + "w", KNOWN[:-2] + "_" + KNOWN[-1],
        KNOWN[:5] + "_" + KNOWN[6:], KNOWN[:5] + "+" + KNOWN[6:], KNOWN[:5] + " " + KNOWN[6:],
        KNOWN[:5] + "\N{ARABIC-INDIC DIGIT SIX}" + KNOWN[6:], KNOWN[:5] + "\N{FULLWIDTH DIGIT SIX}" + KNOWN[6:],
    ],
)  # fmt: skip
def test_no_other_spelling_parses(identifier: str) -> None:
    assert ids.parse("cli", identifier) is None


def test_the_two_spare_bits_must_be_zero() -> None:
    """26 digits hold 130 bits: of the four last digits that mean the same 16 bytes, one is an id."""
    digits = "0123456789abcdefghijklmnopqrstuv"
    parsing = [digit for digit in digits if ids.parse("cli", KNOWN[:-1] + digit) is not None]
    assert parsing == list(digits[::4])


def test_ids_made_later_sort_later() -> None:
    made = [ids.new("evt") for _ in range(1000)]
    assert made == sorted(set(made))
    raw = [ids.new_raw() for _ in range(1000)]
    assert raw == sorted(set(raw))


def test_an_id_says_when_it_was_made() -> None:
    before = clock.from_milliseconds(clock.milliseconds(clock.now()))
    made = ids.made_at(ids.new_raw())
    assert before <= made <= clock.now() + timedelta(milliseconds=1)
    assert ids.made_at(RAW) == clock.from_milliseconds(0x019A8F5C1E2B)


def test_an_id_under_another_prefix_is_the_same_sixteen_bytes() -> None:
    assert ids.with_prefix("evt", "tok_" + KNOWN[4:]) == "evt_" + KNOWN[4:]
    assert ids.parse("evt", ids.with_prefix("evt", ids.text("tok", RAW))) == RAW
