"""Verifying at the receiver: what is signed and recent is believed, everything else is refused in words."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gatepost.core.webhook_signature import Kind, new_secret, signature, signer
from gatepost.verify import VerificationError, verify
from tests.unit.test_sign import BODY, EVENT, PUBLIC, SECRET, SIGNED, TIMESTAMP

NOW = datetime.fromtimestamp(TIMESTAMP, UTC)
KEY = "whpk_" + b64encode(PUBLIC).decode()
HEADERS = {"webhook-id": EVENT, "webhook-timestamp": str(TIMESTAMP), "webhook-signature": SIGNED["v1"]}
BY_KEY = HEADERS | {"webhook-signature": SIGNED["v1a"]}
OTHER = "whsec_" + b64encode(bytes(32)).decode()


def verified(
    secret: str | Sequence[str] = SECRET,
    headers: Mapping[str, str] = HEADERS,
    body: bytes | str = BODY,
    *,
    now: datetime = NOW,
) -> Any:
    return verify(secret, headers, body, now=now)


def refused(
    secret: str | Sequence[str] = SECRET,
    headers: Mapping[str, str] = HEADERS,
    body: bytes | str = BODY,
    *,
    now: datetime = NOW,
) -> str:
    with pytest.raises(VerificationError) as raised:
        verified(secret, headers, body, now=now)
    return str(raised.value)


NOT_OURS = "no signature matches a secret"


class TestVectors:
    def test_hmac(self) -> None:
        assert verified() == {"test": 2432232314}

    def test_ed25519(self) -> None:
        assert verified(KEY, BY_KEY) == {"test": 2432232314}

    @pytest.mark.parametrize("kind", ["v1", "v1a"])
    @pytest.mark.parametrize("body", ["{}", '{"a":"größer 😀"}', '{"b":1,"a":1.10e0}', "[ 1 ]\n", '"a.b"'])
    def test_what_we_sign(self, kind: Kind, body: str) -> None:
        made = new_secret(kind)
        signed = signature([signer(kind, made.raw)], EVENT, TIMESTAMP, body.encode())
        headers = HEADERS | {"webhook-signature": signed}
        assert verified(made.shown, headers, body) == verified(made.shown, headers, body.encode())
        assert refused(made.shown, headers, body + " ") == NOT_OURS
        assert refused(new_secret(kind).shown, headers, body) == NOT_OURS


class TestSignatures:
    @pytest.mark.parametrize(
        "signatures",
        [
            f"{SIGNED['v1']} {SIGNED['v1a']}", f"{SIGNED['v1a']} {SIGNED['v1']}", f"v2,abc {SIGNED['v1']}",
            f"v1,abc {SIGNED['v1']}", f"v1 {SIGNED['v1']}", f", {SIGNED['v1']}", f"{SIGNED['v1']} ",
            f"v1,é {SIGNED['v1']}",
        ],
    )  # fmt: skip
    def test_one_right_one_is_enough(self, signatures: str) -> None:
        assert verified(headers=HEADERS | {"webhook-signature": signatures})

    @pytest.mark.parametrize(
        "signatures",
        [
            "v1,", "v1", ",", " ", "abc", SIGNED["v1a"], SIGNED["v1"].replace("v1,", "v2,"),
            SIGNED["v1"].replace("v1,", "v1a,"), SIGNED["v1"].replace("v1,", "V1,"),
            SIGNED["v1"].replace("v1,", "v1,,"), SIGNED["v1"][:-1], SIGNED["v1"] + "=",
            SIGNED["v1"].lower(), "v1,g0hM9SsE", "v1,\ud800",
        ],
    )  # fmt: skip
    def test_wrong(self, signatures: str) -> None:
        assert refused(headers=HEADERS | {"webhook-signature": signatures}) == NOT_OURS

    @pytest.mark.parametrize("signatures", ["v1a,", "v1a,é", "v1a,AAAA", SIGNED["v1"], "v1a," + SIGNED["v1"][3:]])
    def test_wrong_for_a_key(self, signatures: str) -> None:
        assert refused(KEY, HEADERS | {"webhook-signature": signatures}) == NOT_OURS

    @pytest.mark.parametrize("kind", ["v1", "v1a"])
    def test_every_byte_counts(self, kind: Kind) -> None:
        secret, headers = {"v1": (SECRET, HEADERS), "v1a": (KEY, BY_KEY)}[kind]
        for index in range(len(BODY)):
            changed = BODY[:index] + bytes([BODY[index] ^ 1]) + BODY[index + 1 :]
            assert refused(secret, headers, changed) == NOT_OURS
        assert refused(secret, headers | {"webhook-id": "msg_other"}) == NOT_OURS
        assert refused(secret, headers | {"webhook-timestamp": str(TIMESTAMP + 1)}) == NOT_OURS


class TestSecrets:
    @pytest.mark.parametrize("secrets", [[SECRET], [OTHER, SECRET], (SECRET, OTHER), [KEY, SECRET]])
    def test_several(self, secrets: Sequence[str]) -> None:
        assert verified(secrets)

    def test_none_of_several(self) -> None:
        assert refused([OTHER, KEY]) == NOT_OURS

    def test_padding_may_be_left_out(self) -> None:
        assert verified(KEY.rstrip("="), BY_KEY)

    @pytest.mark.parametrize(
        "secret",
        [
            "", "whsec_", "whpk_", "whsec_!", "whsec_=", SECRET + "\n", SECRET[6:], "WHSEC_" + SECRET[6:], "whsk_AAAA",
            [], (), [""], [SECRET, ""], [SECRET, "whsec_"], [KEY, "whpk_"],
        ],
    )  # fmt: skip
    def test_an_empty_or_unreadable_secret_verifies_nothing(self, secret: str | Sequence[str]) -> None:
        found = refused(secret)
        assert "secret" in found
        assert found != NOT_OURS

    def test_an_empty_key_signs_nothing(self) -> None:
        """Anyone can compute an HMAC with an empty key."""
        signed = signature([signer("v1", b"")], EVENT, TIMESTAMP, BODY)
        assert "empty" in refused("whsec_", HEADERS | {"webhook-signature": signed})

    @pytest.mark.parametrize("key", ["whpk_AAAA", "whpk_" + b64encode(bytes(33)).decode()])
    def test_what_is_no_public_key(self, key: str) -> None:
        assert "Ed25519" in refused(key, BY_KEY)

    def test_no_secret_is_in_the_words(self) -> None:
        for secret in (SECRET[6:], SECRET + "!", "whpk_AAAA"):
            assert secret[6:] not in refused(secret)


class TestHeaders:
    @pytest.mark.parametrize("spelt", [str.upper, str.title, str.lower])
    def test_names_in_any_case(self, spelt: Any) -> None:
        assert verified(headers={spelt(name): value for name, value in HEADERS.items()} | {"Host": "a"})

    @pytest.mark.parametrize("name", HEADERS)
    def test_each_is_needed(self, name: str) -> None:
        without = {other: value for other, value in HEADERS.items() if other != name}
        assert refused(headers=without) == f"the {name} header is missing"
        assert refused(headers=HEADERS | {name: ""}) == f"the {name} header is missing"

    def test_an_id_has_no_dot(self) -> None:
        """Else a body that is a number could be cut off: the rest would be the body, and its start the time."""
        body = f"{TIMESTAMP}.5"
        signed = signature([signer("v1", bytes(32))], EVENT, TIMESTAMP, body.encode())
        headers = HEADERS | {"webhook-signature": signed}
        assert verified(OTHER, headers, body) == TIMESTAMP + 0.5
        assert refused(OTHER, headers | {"webhook-id": f"{EVENT}.{TIMESTAMP}"}, "5") == "webhook-id contains a dot"

    @pytest.mark.parametrize(
        "text", ["now", "-5", "+5", "1614265330.0", "1e9", " 1614265330", "１６１４２６５３３０", "9" * 13]
    )
    def test_what_is_no_time(self, text: str) -> None:
        assert refused(headers=HEADERS | {"webhook-timestamp": text}) == "webhook-timestamp is not a number of seconds"


class TestTime:
    @pytest.mark.parametrize("seconds", [-300, -299, 0, 299, 300])
    def test_five_minutes_each_way(self, seconds: int) -> None:
        assert verified(now=NOW + timedelta(seconds=seconds))

    @pytest.mark.parametrize(("seconds", "word"), [(301, "old"), (300.5, "old"), (-301, "new"), (10**9, "old")])
    def test_not_more(self, seconds: float, word: str) -> None:
        assert refused(now=NOW + timedelta(seconds=seconds)) == f"webhook-timestamp is too {word}"

    def test_with_another_tolerance(self) -> None:
        at = NOW + timedelta(hours=1)
        assert verify(SECRET, HEADERS, BODY, tolerance=timedelta(hours=1), now=at)
        with pytest.raises(VerificationError, match="too old"):
            verify(SECRET, HEADERS, BODY, tolerance=timedelta(minutes=59), now=at)

    def test_the_clock_is_the_default(self) -> None:
        with pytest.raises(VerificationError, match="too old"):
            verify(SECRET, HEADERS, BODY)
        timestamp = int(datetime.now(UTC).timestamp())
        signed = signature([signer("v1", bytes(32))], EVENT, timestamp, BODY)
        headers = {"webhook-id": EVENT, "webhook-timestamp": str(timestamp), "webhook-signature": signed}
        assert verify(OTHER, headers, BODY) == {"test": 2432232314}


class TestBody:
    @pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"hello", b"[" * 200_000])
    def test_what_is_no_json_is_refused_though_signed(self, body: bytes) -> None:
        signed = signature([signer("v1", bytes(32))], EVENT, TIMESTAMP, body)
        assert refused(OTHER, HEADERS | {"webhook-signature": signed}, body) == "the body is signed but is not JSON"

    def test_half_a_character_pair(self) -> None:
        assert refused(body='"\ud800"') == NOT_OURS


def test_an_error_is_a_value_error() -> None:
    assert issubclass(VerificationError, ValueError)
