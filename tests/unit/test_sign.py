"""Signing: the vectors of Standard Webhooks, several secrets at once, and the text form of secrets."""

from base64 import b64decode, b64encode
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from gatepost.core.webhook_signature import Kind, new_secret, parse_secret, signature, signer

# The vectors that the reference libraries of Standard Webhooks test themselves with.
EVENT, TIMESTAMP, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SEED = b64decode("6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc=")
PUBLIC = b64decode("1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=")
SIGNED: dict[Kind, str] = {
    "v1": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    "v1a": "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
}
V1, V1A = signer("v1", parse_secret(SECRET)), signer("v1a", SEED)


class TestSigning:
    def test_hmac(self) -> None:
        assert signature([V1], EVENT, TIMESTAMP, BODY) == SIGNED["v1"]

    def test_ed25519(self) -> None:
        assert signature([V1A], EVENT, TIMESTAMP, BODY) == SIGNED["v1a"]

    def test_all_secrets_in_their_order(self) -> None:
        assert signature([V1, V1A], EVENT, TIMESTAMP, BODY) == f"{SIGNED['v1']} {SIGNED['v1a']}"
        assert signature([V1A, V1], EVENT, TIMESTAMP, BODY) == f"{SIGNED['v1a']} {SIGNED['v1']}"

    @pytest.mark.parametrize("sign", [V1, V1A])
    def test_a_signer_remembers_nothing(self, sign: Any) -> None:
        first = signature([sign], EVENT, TIMESTAMP, BODY)
        assert signature([sign], EVENT, TIMESTAMP, b"{}") != first
        assert signature([sign], EVENT, TIMESTAMP, BODY) == first

    @pytest.mark.parametrize("sign", [V1, V1A])
    def test_id_time_and_every_byte_count(self, sign: Any) -> None:
        variants = [
            (EVENT, TIMESTAMP, BODY), (EVENT + "x", TIMESTAMP, BODY), (EVENT, TIMESTAMP + 1, BODY),
            (EVENT, TIMESTAMP, BODY + b"\n"), (EVENT, TIMESTAMP, b'{"test":2432232314}'), (EVENT, TIMESTAMP, b""),
            (EVENT, TIMESTAMP, b"\0\xff"),
        ]  # fmt: skip
        assert len({signature([sign], *each) for each in variants}) == len(variants)


class TestNewSecrets:
    def test_hmac(self) -> None:
        made = new_secret("v1")
        assert len(made.raw) == 32
        assert made.shown == "whsec_" + b64encode(made.raw).decode()
        assert made.public == ""
        assert parse_secret(made.shown) == made.raw

    def test_ed25519_tells_the_public_key_only(self) -> None:
        made = new_secret("v1a")
        assert len(made.raw) == 32
        assert made.shown == made.public
        assert b64encode(made.raw).decode() not in made.shown
        key = Ed25519PublicKey.from_public_bytes(b64decode(made.public.removeprefix("whpk_")))
        _, _, text = signature([signer("v1a", made.raw)], EVENT, TIMESTAMP, BODY).partition(",")
        content = b"%b.%d.%b" % (EVENT.encode(), TIMESTAMP, BODY)
        key.verify(b64decode(text), content)
        with pytest.raises(InvalidSignature):
            key.verify(b64decode(text), content + b" ")

    @pytest.mark.parametrize("kind", ["v1", "v1a"])
    def test_no_two_are_the_same(self, kind: Kind) -> None:
        assert len({new_secret(kind).raw for _ in range(20)}) == 20

    @pytest.mark.parametrize("kind", ["v1", "v1a"])
    def test_they_do_not_print(self, kind: Kind) -> None:
        assert repr(new_secret(kind)) == str(new_secret(kind)) == "***"


class TestParsing:
    @pytest.mark.parametrize("size", [24, 25, 32, 63, 64])
    def test_right(self, size: int) -> None:
        raw = bytes(range(size))
        text = b64encode(raw).decode()
        assert parse_secret(f"whsec_{text}") == raw
        assert parse_secret(f"whsec_{text.rstrip('=')}") == raw, "some leave the padding out"

    @pytest.mark.parametrize(
        "text",
        [
            "", "whsec_", SECRET.removeprefix("whsec_"), "WHSEC_" + SECRET[6:], "whpk_" + SECRET[6:], SECRET + "\n",
            " " + SECRET, SECRET[:10] + " " + SECRET[10:], SECRET + "-_-_", "whsec_é" + "A" * 40, "whsec_" + "A" * 37,
            "whsec_" + b64encode(bytes(23)).decode(), "whsec_" + b64encode(bytes(65)).decode(), "whsec_" + "=" * 40,
        ],
    )  # fmt: skip
    def test_wrong_in_words_without_the_secret(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"^must be whsec_ and the base64 of 24 to 64 bytes$"):
            parse_secret(text)
