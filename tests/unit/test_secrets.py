"""Secrets are made at random, never print, and open only with the right key, in the right row, unaltered."""

import base64
import hashlib
import hmac
import json
import logging
from hmac import compare_digest

import msgspec
import pytest

from gatepost.core.errors import BadSetting
from gatepost.core.secrets import (
    SERVER_KEYS,
    Box,
    Secret,
    ServerKeys,
    WrongKey,
    digest,
    key_id,
    mask_secrets,
    new_client_secret,
    new_master_key,
    parse_master_keys,
    random_bytes,
)

ONE, TWO, THREE = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
TEXT = "gps_correct-horse-battery-staple"


class TestSecret:
    def test_reveal_is_the_way_to_the_value(self) -> None:
        assert Secret(TEXT).reveal() == TEXT

    @pytest.mark.parametrize(
        "shown",
        [
            repr(Secret(TEXT)),
            str(Secret(TEXT)),
            format(Secret(TEXT)),
            format(Secret(TEXT), ">40"),
            f"{Secret(TEXT)} {Secret(TEXT)!r} {Secret(TEXT)!s} {Secret(TEXT):10}",
            "%s %r" % (Secret(TEXT), Secret(TEXT)),  # noqa: UP031 (one of the ways to print)
            repr([Secret(TEXT)]),
            str({"client_secret": Secret(TEXT)}),
        ],
    )
    def test_it_never_prints(self, shown: str) -> None:
        assert "***" in shown
        assert "horse" not in shown

    def test_it_never_gets_into_a_log(self, caplog: pytest.LogCaptureFixture) -> None:
        logging.getLogger("test").warning("made %s %r", Secret(TEXT), Secret(TEXT), extra={"secret": Secret(TEXT)})
        assert "made *** ***" in caplog.text
        assert "horse" not in caplog.text

    def test_it_is_not_json(self) -> None:
        with pytest.raises(TypeError):
            msgspec.json.encode({"client_secret": Secret(TEXT)})
        with pytest.raises(TypeError):
            json.dumps({"client_secret": Secret(TEXT)})
        assert "horse" not in json.dumps({"client_secret": Secret(TEXT)}, default=str)

    def test_it_has_no_other_members(self) -> None:
        assert not hasattr(Secret(TEXT), "__dict__")

    def test_a_new_client_secret_has_256_random_bits(self) -> None:
        made = [new_client_secret().reveal() for _ in range(100)]
        assert len(set(made)) == 100
        for each in made:
            assert each.startswith("gps_")
            assert len(base64.urlsafe_b64decode(each.removeprefix("gps_") + "=")) == 32


class TestDigest:
    @pytest.mark.parametrize("length", [0, 1, 32, 63, 64, 65, 200])
    def test_it_is_hmac_sha256(self, length: int) -> None:
        key = (ONE * 7)[:length]
        assert digest(key, TEXT) == hmac.new(key, TEXT.encode(), hashlib.sha256).digest()

    def test_it_depends_on_the_key_and_on_all_of_the_value(self) -> None:
        long = "a" * 200  # bcrypt would have stopped at 72
        values = [
            digest(ONE, long),
            digest(TWO, long),
            digest(ONE, long[:-1]),
            digest(ONE, long + "a"),
            digest(ONE, ""),
        ]
        assert len(set(values)) == len(values)

    def test_half_a_character_pair_has_one_too(self) -> None:
        assert digest(ONE, "\ud800") != digest(ONE, "?")

    def test_the_stored_form_is_not_the_secret(self) -> None:
        stored = digest(ONE, TEXT)
        for sent in (stored.hex(), stored.decode("latin-1"), base64.b64encode(stored).decode()):
            assert not compare_digest(stored, digest(ONE, sent))
        assert compare_digest(stored, digest(ONE, TEXT))


class TestBox:
    @pytest.mark.parametrize("value", [b"", b"\0", b"secret", bytes(range(256)) * 40])
    def test_what_was_closed_opens(self, value: bytes) -> None:
        assert Box([ONE]).decrypt(Box([ONE]).encrypt(value, "key_1"), "key_1") == value

    def test_nothing_of_the_value_shows(self) -> None:
        sealed = Box([ONE]).encrypt(b"secret" * 10, "key_1")
        assert b"secret" not in sealed

    def test_the_same_value_never_looks_the_same(self) -> None:
        box = Box([ONE])
        assert len({box.encrypt(b"secret", "key_1") for _ in range(100)}) == 100

    @pytest.mark.parametrize("row", ["", "key_2", "key_1 ", "KEY_1", "key_11", "key_"])
    def test_it_does_not_open_in_another_row(self, row: str) -> None:
        sealed = Box([ONE]).encrypt(b"secret", "key_1")
        with pytest.raises(WrongKey, match="altered or moved"):
            Box([ONE]).decrypt(sealed, row)

    def test_no_single_bit_may_flip(self) -> None:
        box = Box([ONE])
        sealed = box.encrypt(b"secret", "key_1")
        for place in range(len(sealed) * 8):
            altered = bytearray(sealed)
            altered[place // 8] ^= 1 << place % 8
            with pytest.raises(WrongKey):
                box.decrypt(bytes(altered), "key_1")

    def test_no_end_may_be_cut_off(self) -> None:
        box = Box([ONE])
        sealed = box.encrypt(b"secret", "key_1")
        for length in range(len(sealed)):
            with pytest.raises(WrongKey):
                box.decrypt(sealed[:length], "key_1")
        with pytest.raises(WrongKey):
            box.decrypt(sealed + b"\0", "key_1")

    def test_a_wrong_key_is_said_without_the_value(self) -> None:
        sealed = Box([ONE]).encrypt(b"secret", "key_1")
        with pytest.raises(WrongKey, match=f"key_1 .* {key_id(ONE).hex()}, which is not among") as raised:
            Box([TWO]).decrypt(sealed, "key_1")
        assert "secret" not in str(raised.value)

    def test_the_first_of_several_keys_closes_and_all_open(self) -> None:
        before, after = Box([ONE]), Box([TWO, ONE])
        old, new = before.encrypt(b"old", "r"), after.encrypt(b"new", "r")
        assert after.decrypt(old, "r") == b"old"
        assert after.decrypt(new, "r") == b"new"
        assert Box([TWO]).decrypt(new, "r") == b"new"
        with pytest.raises(WrongKey):
            Box([TWO, THREE]).decrypt(old, "r")
        with pytest.raises(WrongKey):
            before.decrypt(new, "r")

    def test_a_sealed_value_names_its_key(self) -> None:
        box = Box([TWO, ONE])
        assert box.current_key_id == key_id(TWO)
        assert box.key_id_of(box.encrypt(b"new", "r")) == key_id(TWO)
        assert box.key_id_of(Box([ONE]).encrypt(b"old", "r")) == key_id(ONE)

    def test_ids_of_keys_tell_them_apart_and_nothing_else(self) -> None:
        assert len({key_id(ONE), key_id(TWO), key_id(THREE)}) == 3
        assert key_id(ONE) not in ONE
        assert len(key_id(ONE)) == 4


class TestMasterKeys:
    def test_a_made_key_is_accepted(self) -> None:
        made = new_master_key()
        assert parse_master_keys(made) == [base64.b64decode(made)]
        assert new_master_key() != made

    def test_eight_different_bytes_may_be_chance(self) -> None:
        assert parse_master_keys(base64.b64encode(bytes(range(8)) * 4).decode()) == [bytes(range(8)) * 4]

    @pytest.mark.parametrize("between", [",", "\n", ", ", "\r\n", ",\n\n", " "])
    def test_several_keys_keep_their_order(self, between: str) -> None:
        texts = [base64.b64encode(key).decode() for key in (TWO, ONE, THREE)]
        assert parse_master_keys(between.join(texts) + "\n") == [TWO, ONE, THREE]

    @pytest.mark.parametrize(
        ("text", "because"),
        [
            ("", "is empty"),
            (" \n , ", "is empty"),
            ("changeme", "bytes, not 32"),
            ("not base64!", "is not base64"),
            ("ключ", "is not base64"),
            (base64.b64encode(ONE).decode().replace("A", "!A", 1), "is not base64"),
            ("secret", "is not base64"),
            (base64.b64encode(ONE).decode()[:-1], "is not base64"),
            (base64.b64encode(ONE[:16]).decode(), "has 16 bytes, not 32"),
            (base64.b64encode(ONE[:31]).decode(), "has 31 bytes, not 32"),
            (base64.b64encode(ONE + b"!").decode(), "has 33 bytes, not 32"),
            (ONE.hex(), "has 48 bytes, not 32"),
            (base64.b64encode(b"\0" * 32).decode(), "is not random"),
            (base64.b64encode(b"\xff" * 32).decode(), "is not random"),
            (base64.b64encode(b"password" * 4).decode(), "is not random"),
            (base64.b64encode(bytes(range(7)) * 4 + bytes(4)).decode(), "is not random"),
            (base64.b64encode(ONE).decode() + "," + base64.b64encode(b"\0" * 32).decode(), "is not random"),
        ],
    )
    def test_what_is_no_key_is_refused_with_what_to_do(self, text: str, because: str) -> None:
        with pytest.raises(BadSetting, match=because) as raised:
            parse_master_keys(text)
        assert "openssl rand -base64 32" in str(raised.value)
        assert not text.strip(" ,\n") or text not in str(raised.value)


class TestServerKeys:
    def test_each_has_its_use_and_none_prints(self) -> None:
        keys = ServerKeys(dict(zip(SERVER_KEYS, (ONE, TWO, THREE), strict=True)))
        assert (keys.hash, keys.seal) == (ONE, TWO)
        assert Box([THREE]).decrypt(keys.data.encrypt(b"x", "r"), "r") == b"x"
        assert repr(keys) == "ServerKeys(***)"
        assert str(keys) == "ServerKeys(***)"

    def test_none_may_be_missing(self) -> None:
        for missing in SERVER_KEYS:
            with pytest.raises(KeyError):
                ServerKeys({name: ONE for name in SERVER_KEYS if name != missing})


def test_dice_fall_differently() -> None:
    assert len({random_bytes(16) for _ in range(100)}) == 100
    assert len(random_bytes(7)) == 7


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (f"scope: gps_{'a1-_' * 11} is not granted", "scope: gps_*** is not granted"),
        (f"gpr_{'b' * 43}", "gpr_***"),
        ("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD/x=: unknown", "whsec_***: unknown"),
        (f"Bearer eyJhbGciOiJFUzI1NiJ9.eyJ{'c' * 30}.{'d' * 86}", "Bearer eyJ***"),
        ("invoices:read gps_short", "invoices:read gps_short"),
    ],
    ids=["client secret", "refresh token", "signing secret", "token", "nothing"],
)
def test_what_looks_like_a_secret_is_not_repeated(sent: str, told: str) -> None:
    assert mask_secrets(sent) == told
