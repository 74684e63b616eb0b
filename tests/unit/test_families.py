"""Refresh tokens: how one looks, what is not one, and what showing one means."""

import re
import string
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta

import pytest

from gatepost.core import ids
from gatepost.oauth import refresh_tokens
from gatepost.oauth.refresh_tokens import (
    MAX_NUMBER,
    PREFIX,
    Decision,
    Family,
    Inactive,
    RefreshToken,
    Repeat,
    Reused,
    Rotate,
    Stay,
)

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TICK = timedelta(milliseconds=1)
GRACE = 10 * SECOND
KEY = bytes(range(32))
OTHER_KEY = KEY[::-1]
FAMILY = "fam_06d8un0u5du3r3ifb9lnp3culs"
OTHER_FAMILY = "fam_06d8un0u5du3r3ifb9lnp3culo"
FIRST = refresh_tokens.first(FAMILY, b"s" * 32)
SECOND_ONE = refresh_tokens.successor(KEY, FIRST)
THIRD = refresh_tokens.successor(KEY, SECOND_ONE)
TOKEN = refresh_tokens.serialize(KEY, FIRST)


class TestFormat:
    def test_a_token_can_be_found_in_a_heap_of_text_and_has_no_padding(self) -> None:
        assert re.fullmatch(r"gpr_[A-Za-z0-9_-]{84}", TOKEN)

    @pytest.mark.parametrize(
        "shown",
        [
            FIRST,
            SECOND_ONE,
            THIRD,
            RefreshToken(FAMILY, MAX_NUMBER + 1, bytes(32)),
            RefreshToken(OTHER_FAMILY, 0, b"\xff" * 32),
        ],
        ids=["first", "second", "third", "last", "another family"],
    )
    def test_what_was_written_is_read(self, shown: RefreshToken) -> None:
        assert refresh_tokens.read(KEY, refresh_tokens.serialize(KEY, shown)) == shown
        assert refresh_tokens.family_in(refresh_tokens.serialize(OTHER_KEY, shown)) == ids.raw(shown.family)

    @pytest.mark.parametrize(
        "text", ["", "gpr_", TOKEN[:-1], TOKEN + "A", TOKEN[:-4], "gpr_" + "é" * 84, "gpr_" + "!" * 84]
    )
    def test_what_names_no_family(self, text: str) -> None:
        assert refresh_tokens.family_in(text) is None

    def test_nobody_else_can_make_one(self) -> None:
        assert refresh_tokens.read(OTHER_KEY, TOKEN) is None
        assert refresh_tokens.serialize(OTHER_KEY, FIRST)[:70] == TOKEN[:70]
        assert refresh_tokens.serialize(OTHER_KEY, FIRST) != TOKEN

    def test_every_truncation(self) -> None:
        assert [cut for cut in range(len(TOKEN)) if refresh_tokens.read(KEY, TOKEN[:cut])] == []
        assert [cut for cut in range(1, len(TOKEN)) if refresh_tokens.read(KEY, TOKEN[cut:])] == []

    def test_every_single_bit(self) -> None:
        raw = TOKEN.encode()
        flipped = [
            (raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :]).decode("latin-1")
            for place in range(len(raw))
            for bit in range(8)
        ]
        assert len(set(flipped)) == 8 * len(TOKEN)
        assert [each for each in flipped if refresh_tokens.read(KEY, each)] == []

    def test_every_character_left_out_doubled_or_another(self) -> None:
        others = string.ascii_letters + string.digits + "-_"
        for place in range(len(TOKEN)):
            before, at, after = TOKEN[:place], TOKEN[place], TOKEN[place + 1 :]
            changed = [before + after, before + at + at + after]
            changed += [before + each + after for each in others if each != at]
            assert [each for each in changed if refresh_tokens.read(KEY, each)] == []

    @pytest.mark.parametrize(
        "text",
        [
            "",
            PREFIX,
            TOKEN + "=",
            TOKEN + "==",
            TOKEN + "A",
            TOKEN + TOKEN,
            " " + TOKEN,
            TOKEN + "\n",
            TOKEN[:40] + "\n" + TOKEN[40:],
            TOKEN[:40] + "!" + TOKEN[40:],
            TOKEN.removeprefix(PREFIX),
            PREFIX + TOKEN,
            TOKEN.upper(),
            TOKEN.replace("gpr_", "gps_"),
            TOKEN.replace("-", "+").replace("_", "/"),
            TOKEN + "é",
            "gpr_" + "é" * 84,
            "gpr_" + "\ud800" * 84,
            "gpr_" + "\0" * 84,
            "gpr_" + "A" * 84,
            "gpr_" + "A" * 60_000,
            "a.b.c",
        ],
        ids=lambda text: ascii(text)[:24],
    )
    def test_what_is_not_one(self, text: str) -> None:
        assert refresh_tokens.read(KEY, text) is None

    def test_what_is_kept_is_not_a_token_nor_part_of_one(self) -> None:
        """Who reads the store can make nothing of what is in it."""
        kept = refresh_tokens.leaf(FIRST)
        plain = ids.raw(FAMILY) + bytes(3) + kept
        tried = [kept.hex(), PREFIX + kept.hex()]
        tried += [
            PREFIX + urlsafe_b64encode(raw).decode() for raw in (kept, plain, plain + bytes(12), plain + kept[:12])
        ]
        assert [each for each in tried if refresh_tokens.read(KEY, each)] == []
        assert len({refresh_tokens.leaf(each) for each in (FIRST, SECOND_ONE, THIRD)}) == 3


class TestSuccessor:
    def test_it_is_derived_so_that_a_retry_gets_the_same_one(self) -> None:
        assert refresh_tokens.successor(KEY, FIRST) == SECOND_ONE
        assert (SECOND_ONE.family, SECOND_ONE.number) == (FAMILY, 1)
        assert SECOND_ONE.secret != FIRST.secret

    def test_the_key_is_needed_to_derive_it(self) -> None:
        assert refresh_tokens.successor(OTHER_KEY, FIRST).secret != SECOND_ONE.secret

    @pytest.mark.parametrize(
        "other",
        [FIRST._replace(family=OTHER_FAMILY), FIRST._replace(number=1), FIRST._replace(secret=b"t" * 32)],
        ids=["family", "number", "secret"],
    )
    def test_it_depends_on_all_of_the_token(self, other: RefreshToken) -> None:
        assert refresh_tokens.successor(KEY, other).secret != SECOND_ONE.secret

    def test_the_last_number_is_not_passed(self) -> None:
        last = RefreshToken(FAMILY, MAX_NUMBER + 1, b"s" * 32)
        assert refresh_tokens.successor(KEY, last).number == MAX_NUMBER + 1
        assert refresh_tokens.read(KEY, refresh_tokens.serialize(KEY, refresh_tokens.successor(KEY, last))) is not None


def family(live: RefreshToken, thumbprint: str = "", ended: str | None = None) -> Family:
    """Rotated to this token just now; idle for an hour ends it, and so does a day."""
    return Family(
        "acc", FAMILY, "cli", "con", live.number, refresh_tokens.leaf(live), thumbprint, NOW, NOW + 3600 * SECOND,
        NOW + 86_400 * SECOND, NOW if ended else None, ended,
    )  # fmt: skip


def decide(
    row: Family,
    shown: RefreshToken,
    *,
    after: timedelta = SECOND,
    thumbprint: str = "",
    grace: timedelta = GRACE,
    rotates: bool = True,
    may_be_done: bool = False,
) -> Decision:
    return refresh_tokens.decide(
        row, shown, KEY, thumbprint=thumbprint, grace=grace, rotates=rotates, at=NOW + after, may_be_done=may_be_done
    )


AT_THE_END = RefreshToken(FAMILY, MAX_NUMBER, b"s" * 32)
FORGED = SECOND_ONE._replace(secret=b"f" * 32)

# The current token, the presented token with its time and key → the decision.
TABLE: dict[str, tuple[Decision, Decision]] = {
    "the live one": (decide(family(FIRST), FIRST), Rotate(SECOND_ONE)),
    "the live one, later": (decide(family(SECOND_ONE), SECOND_ONE), Rotate(THIRD)),
    "the live one at the last moment": (decide(family(FIRST), FIRST, after=3600 * SECOND - TICK), Rotate(SECOND_ONE)),
    "the live one, idle for too long": (decide(family(FIRST), FIRST, after=3600 * SECOND), Inactive()),
    "the live one with another key": (decide(family(FIRST, "a"), FIRST, thumbprint="b"), Rotate(SECOND_ONE)),
    "the live one without a grace": (decide(family(FIRST), FIRST, grace=timedelta()), Rotate(SECOND_ONE)),
    "the live one, of those that stay": (decide(family(FIRST), FIRST, rotates=False), Stay()),
    "the live one after the most rotations": (decide(family(AT_THE_END), AT_THE_END), Stay()),
    "the one before, at once": (decide(family(SECOND_ONE), FIRST, after=timedelta()), Repeat(SECOND_ONE)),
    "the one before, in the grace": (decide(family(SECOND_ONE), FIRST, after=GRACE - TICK), Repeat(SECOND_ONE)),
    "the one before, after the grace": (decide(family(SECOND_ONE), FIRST, after=GRACE), Reused()),
    "the one before, without a grace": (
        decide(family(SECOND_ONE), FIRST, after=timedelta(), grace=timedelta()), Reused(),
    ),
    "the one before, replaced by this request": (
        decide(family(SECOND_ONE), FIRST, grace=timedelta(), may_be_done=True), Repeat(SECOND_ONE),
    ),
    "two before, after a commit with an unknown outcome": (decide(family(THIRD), FIRST, may_be_done=True), Reused()),
    "the one before with the same key": (
        decide(family(SECOND_ONE, "a"), FIRST, thumbprint="a"), Repeat(SECOND_ONE),
    ),
    "the one before with another key": (decide(family(SECOND_ONE, "a"), FIRST, thumbprint="b"), Reused()),
    "the one before with no key": (decide(family(SECOND_ONE, "a"), FIRST), Reused()),
    "the one before with a key of late": (decide(family(SECOND_ONE), FIRST, thumbprint="a"), Reused()),
    "the one before, since tokens stay": (decide(family(SECOND_ONE), FIRST, rotates=False), Repeat(SECOND_ONE)),
    "two before, in the grace": (decide(family(THIRD), FIRST), Reused()),
    "the one before, when its successor was used": (
        decide(family(refresh_tokens.successor(KEY, THIRD)), SECOND_ONE), Reused(),
    ),
    "one that is still to come": (decide(family(FIRST), SECOND_ONE), Reused()),
    "another with the number of the live one": (decide(family(SECOND_ONE), FORGED), Reused()),
    "another with the number of the one before": (
        decide(family(SECOND_ONE), FIRST._replace(secret=b"f" * 32)), Reused(),
    ),
    "the last one after the last": (decide(family(AT_THE_END), AT_THE_END._replace(number=MAX_NUMBER + 1)), Reused()),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_what_showing_a_token_means(name: str) -> None:
    decided, right = TABLE[name]
    assert decided == right
    assert type(decided) is type(right)


@pytest.mark.parametrize("shown", [FIRST, SECOND_ONE, THIRD, FORGED], ids=["before", "live", "next", "forged"])
@pytest.mark.parametrize("rotates", [True, False])
@pytest.mark.parametrize(
    ("ended", "after"), [("revoked", SECOND), (None, 3600 * SECOND), (None, 86_400 * SECOND)], ids=str
)
def test_nothing_comes_of_a_family_that_is_over(
    shown: RefreshToken, rotates: bool, ended: str | None, after: timedelta
) -> None:
    assert isinstance(decide(family(SECOND_ONE, ended=ended), shown, after=after, rotates=rotates), Inactive)


def test_a_family_ends_at_the_earlier_of_its_two_ends() -> None:
    row = family(FIRST)
    assert row.is_active(NOW + 3600 * SECOND - TICK)
    assert not row.is_active(NOW + 3600 * SECOND)
    kept = row._replace(idle_ends_at=NOW + 30 * 86_400 * SECOND)
    assert kept.is_active(NOW + 86_400 * SECOND - TICK)
    assert not kept.is_active(NOW + 86_400 * SECOND)
    assert not kept._replace(ended_at=NOW, ended_reason="revoked").is_active(NOW)
