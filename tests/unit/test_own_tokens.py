"""Reading tokens of our own: exactly what we signed, with a key that still counts, as the kind it was made for."""

from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import load_der_private_key
from joserfc.jwk import ECKey, OKPKey, RSAKey

from gatepost.core.jose import MAX_BYTES, InvalidJwt, b64
from gatepost.core.secrets import Box
from gatepost.oauth import signing_keys
from gatepost.oauth.signing_keys import ALGORITHMS, PUBLISHED, GeneratedKey, KeyRing, SigningKey, StoredKey
from tests.unit.foreign import encoded, pem, signature

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
BOX = Box([bytes(range(32))])
CLAIMS = {"sub": "cli_1", "n": 1}
KINDS = ("at+jwt", "JWT", "gatepost-interaction+jwt")


@pytest.fixture(scope="module", params=ALGORITHMS)
def made(request: pytest.FixtureRequest) -> GeneratedKey:
    return signing_keys.generate(request.param, NOW)


@pytest.fixture(scope="module")
def es256() -> GeneratedKey:
    return signing_keys.generate("ES256", NOW)


@pytest.fixture(scope="module")
def every() -> dict[str, GeneratedKey]:
    return {alg: signing_keys.generate(alg, NOW) for alg in ALGORITHMS}


@cache
def loaded(private: bytes) -> Any:
    """To read an RSA key takes a while."""
    return load_der_private_key(private, None)


SIGNING = KeyRing(BOX)


def signed(made: GeneratedKey, claims: Any = CLAIMS, typ: str = "at+jwt") -> str:
    SIGNING.load(StoredKey(made.key, BOX.encrypt(made.private, made.key.id)))
    return SIGNING.sign(made.key, msgspec.json.encode(claims), typ).decode()


def forged(made: GeneratedKey, head: bytes, payload: bytes | None = None, sign: bytes | None = None) -> str:
    """With any header and payload, and a signature that is right unless another is given."""
    body = msgspec.json.encode(CLAIMS) if payload is None else payload
    text = f"{encoded(head)}.{encoded(body)}"
    right = signature(made.key.alg, loaded(made.private), text.encode()) if sign is None else sign
    return f"{text}.{encoded(right)}"


def head(made: GeneratedKey, **changes: Any) -> dict[str, Any]:
    return {"alg": made.key.alg, "typ": "at+jwt", "kid": made.key.id} | changes


def read(text: str, *published: SigningKey, typ: str = "at+jwt") -> dict[str, Any]:
    """By another process, which has no private key."""
    return KeyRing(BOX).read(text, published, typ)


def unreadable(text: str, *published: SigningKey, typ: str = "at+jwt") -> None:
    with pytest.raises(InvalidJwt) as raised:
        read(text, *published, typ=typ)
    assert len(str(raised.value)) < 100


class TestRight:
    def test_what_was_signed_is_read(self, made: GeneratedKey) -> None:
        for claims in (CLAIMS, {}, {"text": "größer ≥ 😀", "list": [1, None, {"a": []}], "exp": 1_794_729_600}):
            assert read(signed(made, claims), made.key) == claims

    def test_the_forger_of_these_tests_can_make_a_right_one(self, made: GeneratedKey) -> None:
        assert read(forged(made, msgspec.json.encode(head(made))), made.key) == CLAIMS

    def test_among_several_keys(self, every: dict[str, GeneratedKey]) -> None:
        published = [each.key for each in every.values()]
        for each in every.values():
            assert read(signed(each), *published) == CLAIMS
            assert SIGNING.read(signed(each), published, "at+jwt") == CLAIMS

    def test_up_to_the_largest_size(self, es256: GeneratedKey) -> None:
        fill = (MAX_BYTES - len(signed(es256, {"fill": ""}))) * 3 // 4
        large = signed(es256, {"fill": "a" * fill})
        assert MAX_BYTES - 4 <= len(large) <= MAX_BYTES
        assert read(large, es256.key) == {"fill": "a" * fill}
        unreadable(signed(es256, {"fill": "a" * (fill + 4)}), es256.key)

    @pytest.mark.parametrize("typ", KINDS)
    @pytest.mark.parametrize("size", [6000, 6001, 6002, 6003])
    def test_the_claims_that_fit(self, made: GeneratedKey, typ: str, size: int) -> None:
        most = SIGNING.max_claims(made.key, typ, size)
        for count, fits in ((most, True), (most + 1, False)):
            assert (len(signed(made, "a" * (count - len('""')), typ)) <= size) is fits


class TestKeys:
    @pytest.mark.parametrize("status", ["announced", "active", "retired", "revoked", "purged"])
    def test_it_counts_as_long_as_its_key_is_published(self, made: GeneratedKey, status: Any) -> None:
        key = msgspec.structs.replace(made.key, status=status)
        published = [each for each in [key] if each.status in PUBLISHED]
        if status in ("announced", "active", "retired"):
            assert read(signed(made), *published) == CLAIMS
        else:
            unreadable(signed(made), *published)

    def test_what_was_read_before_is_not_remembered_when_its_key_is_gone(self, made: GeneratedKey) -> None:
        ring, other = SIGNING, signing_keys.generate(made.key.alg, NOW)
        assert ring.read(signed(made), [made.key], "at+jwt") == CLAIMS
        for published in ([], [other.key]):
            with pytest.raises(InvalidJwt):
                ring.read(signed(made), published, "at+jwt")
        assert ring.read(signed(made), [other.key, made.key], "at+jwt") == CLAIMS

    def test_another_key_of_the_same_kind(self, made: GeneratedKey) -> None:
        """Under its own name, and under that of ours."""
        other = signing_keys.generate(made.key.alg, NOW)
        unreadable(signed(other), made.key)
        unreadable(forged(other, msgspec.json.encode(head(made))), made.key)
        unreadable(signed(made), msgspec.structs.replace(other.key, id=made.key.id))

    def test_a_key_of_another_kind(self, every: dict[str, GeneratedKey]) -> None:
        published = [each.key for each in every.values()]
        for one in every.values():
            for other in every.values():
                if one is not other:
                    unreadable(forged(one, msgspec.json.encode(head(other))), *published)
                    unreadable(forged(one, msgspec.json.encode(head(one, kid=other.key.id))), *published)
                    unreadable(forged(one, msgspec.json.encode(head(one, alg=other.key.alg))), *published)

    def test_no_keys_at_all(self, made: GeneratedKey) -> None:
        unreadable(signed(made))

    @pytest.mark.parametrize("alg", ["HS256", "HS384", "HS512"])
    def test_a_public_key_is_no_hmac_secret(self, made: GeneratedKey, alg: str) -> None:
        kinds: Any = {"ES256": ECKey, "RS256": RSAKey, "EdDSA": OKPKey}
        public = kinds[made.key.alg].import_key(made.key.public)
        private = loaded(made.private)
        header = msgspec.json.encode(head(made, alg=alg))
        text = f"{encoded(header)}.{encoded(msgspec.json.encode(CLAIMS))}"
        for secret in (pem(private), pem(private).strip(), msgspec.json.encode(public.as_dict(private=False))):
            unreadable(forged(made, header, sign=signature("HS256", secret, text.encode())), made.key)


OTHER: dict[str, list[Any]] = {
    "alg": ["none", "None", "", "HS256", "ES384", "PS256", "Ed25519", "es256", None, 5, ["ES256"]],
    "typ": ["JWT", "at+JWT", "AT+JWT", "application/at+jwt", "dpop+jwt", "", None, 5, []],
    "kid": ["", "key_1", None, 5, [], {}, "../../dev/null"],
}
HEADERS: list[dict[str, Any]] = [
    *({name: value} for name, values in OTHER.items() for value in values),
    {"crit": []}, {"crit": ["exp"]}, {"b64": True}, {"b64": False}, {"zip": "DEF"}, {"cty": "JWT"},
    {"jku": "https://evil.example/jwks"}, {"x5u": "https://evil.example/"}, {"x5c": ["MIIB"]}, {"nonce": "1"},
    {"": ""}, {"a": "b"},
]  # fmt: skip


class TestHeaders:
    """A header must equal one that the service writes. Any other is refused, even with a valid signature."""

    @pytest.mark.parametrize("changes", HEADERS)
    def test_changed(self, made: GeneratedKey, changes: dict[str, Any]) -> None:
        unreadable(forged(made, msgspec.json.encode(head(made, **changes))), made.key)

    @pytest.mark.parametrize("left_out", ["alg", "typ", "kid"])
    def test_left_out(self, made: GeneratedKey, left_out: str) -> None:
        rest = {name: value for name, value in head(made).items() if name != left_out}
        unreadable(forged(made, msgspec.json.encode(rest)), made.key)

    def test_a_key_that_the_token_brings(self, made: GeneratedKey) -> None:
        other = signing_keys.generate(made.key.alg, NOW)
        for bearing in (made, other):
            unreadable(forged(bearing, msgspec.json.encode(head(made, jwk=bearing.key.public))), made.key)

    def test_written_otherwise(self, made: GeneratedKey) -> None:
        right = msgspec.json.encode(head(made))
        twice = right[:-1] + b',"alg":"none"}'
        turned = msgspec.json.encode(dict(reversed(head(made).items())))
        for raw in (twice, turned, right.replace(b":", b": "), b" " + right, right + b"\n", b"", b"{}", b"[]", b"\xff"):
            unreadable(forged(made, raw), made.key)

    def test_for_every_kind_of_token_only_itself(self, made: GeneratedKey) -> None:
        for kind in KINDS:
            for other in KINDS:
                if kind == other:
                    assert read(signed(made, typ=kind), made.key, typ=other) == CLAIMS
                else:
                    unreadable(signed(made, typ=kind), made.key, typ=other)


class TestDamaged:
    def test_every_bit(self, made: GeneratedKey) -> None:
        right = signed(made)
        ring = KeyRing(BOX)
        assert ring.read(right, [made.key], "at+jwt") == CLAIMS
        for place, char in enumerate(right):
            for bit in range(8):
                wrong = right[:place] + chr(ord(char) ^ 1 << bit) + right[place + 1 :]
                with pytest.raises(InvalidJwt):
                    ring.read(wrong, [made.key], "at+jwt")

    def test_every_truncation(self, made: GeneratedKey) -> None:
        right = signed(made)
        for length in range(len(right)):
            unreadable(right[:length], made.key)
            unreadable(right[length + 1 :], made.key)

    def test_something_added(self, made: GeneratedKey) -> None:
        right = signed(made)
        for more in ("A", "=", "==", ".", ".A", " ", "\n", "\0", "é", ".".join(["", *right.split(".")])):
            unreadable(right + more, made.key)
            unreadable(more + right, made.key)
        for number in range(3):
            parts = right.split(".")
            parts[number] += "="
            unreadable(".".join(parts), made.key)

    @pytest.mark.parametrize("text", ["", ".", "..", "...", "a", "a.b", "a.b.c", "é.é.é", "\0.\0.\0", "\ud800.a.b"])
    def test_what_is_no_token(self, made: GeneratedKey, text: str) -> None:
        unreadable(text, made.key)

    def test_no_signature(self, made: GeneratedKey) -> None:
        front = signed(made).rpartition(".")[0]
        for text in (front, front + "."):
            unreadable(text, made.key)

    def test_the_signature_of_another_token(self, made: GeneratedKey) -> None:
        one, other = signed(made), signed(made, CLAIMS | {"sub": "cli_2"})
        unreadable(f"{one.rpartition('.')[0]}.{other.rpartition('.')[2]}", made.key)

    def test_a_signature_of_another_form(self, es256: GeneratedKey) -> None:
        """RFC 7518, section 3.4: two numbers of 32 bytes, each within the order of the curve."""
        order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
        largest = order.to_bytes(32, "big")
        header = msgspec.json.encode(head(es256))
        text = f"{encoded(header)}.{encoded(msgspec.json.encode(CLAIMS))}"
        right = signature("ES256", loaded(es256.private), text.encode())
        first, second = right[:32], right[32:]
        wrong = [
            b"", bytes(64), bytes(32) + second, first + bytes(32), largest * 2, first + largest, b"\xff" * 64,
            second + first, b"\0" + first + second, first + b"\0" + second, right[:63], right + b"\0", right * 2,
        ]  # fmt: skip
        assert read(forged(es256, header, sign=right), es256.key) == CLAIMS
        for sign in wrong:
            unreadable(forged(es256, header, sign=sign), es256.key)


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"5", b'"a"', b"{", b"{}x", b"\xff", b'{"a":NaN}'])
def test_only_an_object_is_claims(made: GeneratedKey, payload: bytes) -> None:
    unreadable(forged(made, msgspec.json.encode(head(made)), payload), made.key)


def test_our_own_header_is_what_it_is_compared_with(made: GeneratedKey) -> None:
    assert signed(made).partition(".")[0] == b64(msgspec.json.encode(head(made))).decode()
