"""Reading foreign tokens: the algorithm, the kind and the key are ours to choose, never the token's."""

import zlib
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from gatepost.core import jose
from gatepost.core.jose import MAX_BYTES, InvalidJwt, audiences, decode_unverified, is_time_valid, numeric_date, unb64
from gatepost.core.jwk_sets import ASSERTION_ALGORITHMS, jwks_problem
from tests.unit.foreign import CLAIMS, EC, ED, OTHER_EC, RSA, encoded, pem, public, token

KEYS = {"keys": [public(EC, kid="ec"), public(RSA, kid="rsa"), public(ED, kid="ed")]}
ES256 = {"alg": "ES256", "kid": "ec", "typ": "JWT"}
RS256 = {"alg": "RS256", "kid": "rsa", "typ": "JWT"}


def read(text: str, keys: dict[str, Any] = KEYS) -> dict[str, Any]:
    return jose.verify_jws(text, keys, algorithms=ASSERTION_ALGORITHMS, typ=("JWT",))


def unreadable(text: str, keys: dict[str, Any] = KEYS) -> str:
    with pytest.raises(InvalidJwt) as raised:
        read(text, keys)
    assert len(str(raised.value)) < 100
    return str(raised.value)


class TestRight:
    @pytest.mark.parametrize(
        ("alg", "kid", "key"),
        [("ES256", "ec", EC), ("RS256", "rsa", RSA), ("PS256", "rsa", RSA), ("EdDSA", "ed", ED), ("Ed25519", "ed", ED)],
    )
    def test_every_algorithm(self, alg: str, kid: str, key: Any) -> None:
        assert read(token({"alg": alg, "kid": kid, "typ": "JWT"}, key=key)) == CLAIMS

    def test_one_key_needs_no_kid(self) -> None:
        assert read(token({"alg": "ES256", "typ": "JWT"}), {"keys": [public(EC)]}) == CLAIMS

    @pytest.mark.parametrize("accepted", [("JWT", None), (None, "JWT"), (None,)])
    def test_no_kind_where_none_is_accepted(self, accepted: tuple[str | None, ...]) -> None:
        text = token({"alg": "ES256", "kid": "ec"})
        assert jose.verify_jws(text, KEYS, algorithms=("ES256",), typ=accepted) == CLAIMS

    def test_a_token_as_large_as_may_be(self) -> None:
        assert MAX_BYTES == 16 * 1024
        fill = (MAX_BYTES - len(token(ES256, CLAIMS | {"fill": ""}))) * 3 // 4
        large = token(ES256, CLAIMS | {"fill": "a" * fill})
        assert MAX_BYTES - 4 <= len(large) <= MAX_BYTES
        assert read(large)["fill"] == "a" * fill

    def test_a_header_as_large_as_may_be(self) -> None:
        """Some issuers send their certificates in `x5c`."""
        fill = (MAX_BYTES - len(token(ES256 | {"x5c": [""]}))) * 3 // 4
        large = token(ES256 | {"x5c": ["a" * fill]})
        assert MAX_BYTES - 4 <= len(large) <= MAX_BYTES
        assert read(large) == CLAIMS

    def test_an_rsa_key_of_any_size_that_may_be_registered(self) -> None:
        first, second, exponent = 2**4423 - 1, 2**3217 - 1, 65537  # primes, so that none has to be generated
        inverse = pow(exponent, -1, (first - 1) * (second - 1))
        numbers = rsa.RSAPrivateNumbers(
            first, second, inverse, inverse % (first - 1), inverse % (second - 1), pow(second, -1, first),
            rsa.RSAPublicNumbers(exponent, first * second),
        )  # fmt: skip
        key = numbers.private_key(unsafe_skip_rsa_key_validation=True)
        keys = {"keys": [public(key, kid="rsa")]}
        assert key.key_size == 7640
        assert jwks_problem(keys) == ""
        for alg in ("PS256", "RS256"):
            assert read(token(RS256 | {"alg": alg}, key=key), keys) == CLAIMS


class TestStoredKeys:
    """Keys may have been stored before there were bounds for them: they are judged again when they are used."""

    @pytest.fixture(autouse=True)
    def bounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(jose, "RSA_BITS", (3072, 8192))

    def test_an_rsa_key_out_of_bounds_verifies_nothing(self) -> None:
        unreadable(token(RS256, key=RSA))
        unreadable(token(RS256, key=RSA), {"keys": [public(RSA, kid="rsa")]})

    def test_the_other_keys_of_its_set_do(self) -> None:
        assert read(token(ES256)) == CLAIMS


class TestAlgorithms:
    @pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE", ""])
    @pytest.mark.parametrize("key", [b"", EC])
    def test_none(self, alg: str, key: Any) -> None:
        unreadable(token(ES256 | {"alg": alg}, key=key))

    def test_no_signature(self) -> None:
        signed = token(ES256).rpartition(".")[0]
        unreadable(signed + ".")

    @pytest.mark.parametrize("alg", ["HS256", "HS384", "HS512"])
    @pytest.mark.parametrize("private", [EC, RSA])
    def test_a_public_key_is_no_hmac_secret(self, alg: str, private: Any) -> None:
        for kid in ("ec", "rsa"):
            for secret in (pem(private), pem(private).strip(), str(public(private)).encode()):
                unreadable(token({"alg": alg, "kid": kid, "typ": "JWT"}, key=secret))

    @pytest.mark.parametrize("alg", ["ES384", "RS1", "RS384", "HS1", "A128KW", "dir", "es256", "ES256 ", "ES256K"])
    def test_unknown(self, alg: str) -> None:
        unreadable(token(ES256 | {"alg": alg}))

    @pytest.mark.parametrize("alg", [None, 5, [], ["ES256"], {}, True])
    def test_what_is_no_name(self, alg: Any) -> None:
        unreadable(token(ES256 | {"alg": alg}))

    def test_only_those_that_the_caller_named(self) -> None:
        with pytest.raises(InvalidJwt):
            jose.verify_jws(token(RS256, key=RSA), KEYS, algorithms=("ES256",), typ=("JWT",))

    @pytest.mark.parametrize(("alg", "kid"), [("RS256", "ec"), ("ES256", "rsa"), ("EdDSA", "ec"), ("ES256", "ed")])
    def test_the_key_must_be_of_the_algorithms_type(self, alg: str, kid: str) -> None:
        for key in (EC, RSA, ED):
            unreadable(token({"alg": alg, "kid": kid, "typ": "JWT"}, key=key))


class TestKeys:
    def test_another_key(self) -> None:
        unreadable(token(ES256, key=OTHER_EC))

    @pytest.mark.parametrize("kid", ["rsa", "EC", "", "unknown", None, 5, [], {"kid": "ec"}, "../../dev/null"])
    def test_another_kid(self, kid: Any) -> None:
        unreadable(token(ES256 | {"kid": kid}))

    def test_no_kid_among_several_keys(self) -> None:
        unreadable(token({"alg": "ES256", "typ": "JWT"}))

    @pytest.mark.parametrize("keys", [{}, {"keys": []}, {"keys": [{}]}, {"keys": [{"kty": "unknown"}]}])
    def test_no_keys(self, keys: dict[str, Any]) -> None:
        unreadable(token(ES256), keys)

    @pytest.mark.parametrize(
        "header",
        [
            {"jwk": public(OTHER_EC)},
            {"jwk": public(OTHER_EC, kid="ec")},
            {"jku": "https://evil.example/jwks"},
            {"x5u": "https://evil.example/certificate"},
            {"x5c": ["MIIB"]},
            {"x5t#S256": "AAAA"},
        ],
    )
    def test_a_key_that_the_token_brings_is_never_used(self, header: dict[str, Any]) -> None:
        unreadable(token(ES256 | header, key=OTHER_EC))

    @pytest.mark.parametrize("header", [{"jwk": public(OTHER_EC)}, {"jku": "https://evil.example/jwks"}])
    def test_nor_looked_at(self, header: dict[str, Any]) -> None:
        assert read(token(ES256 | header)) == CLAIMS


class TestHeaders:
    @pytest.mark.parametrize("typ", ["at+jwt", "jwt", "JWT ", "dpop+jwt", "", None, 5, [], ["JWT"]])
    def test_another_kind(self, typ: Any) -> None:
        unreadable(token(ES256 | {"typ": typ}))

    def test_no_kind(self) -> None:
        unreadable(token({"alg": "ES256", "kid": "ec"}))

    @pytest.mark.parametrize("crit", [[], ["exp"], ["b64"], ["alg"], ["unknown"], "b64", None, {}, [[]]])
    def test_crit(self, crit: Any) -> None:
        for header in ({"crit": crit}, {"crit": crit, "b64": True}, {"crit": crit, "unknown": 1}):
            unreadable(token(ES256 | header))

    @pytest.mark.parametrize("b64", [True, False, None, "false"])
    def test_b64(self, b64: Any) -> None:
        unreadable(token(ES256 | {"b64": b64}))

    def test_compression(self) -> None:
        squeezed = zlib.compress(b'{"a":"' + b"a" * 1_000_000 + b'"}')
        unreadable(token(ES256 | {"zip": "DEF"}, squeezed))

    @pytest.mark.parametrize("header", [b"", b"{", b"[]", b"null", b'"ES256"', b"5", b"{}", b'{"typ":"JWT"}', b"\xff"])
    def test_what_is_no_header(self, header: bytes) -> None:
        unreadable(token(header))

    def test_a_header_that_is_nested_deeply(self) -> None:
        unreadable(token(b'{"alg":' + b"[" * 5000))


class TestForm:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            ".",
            "..",
            "...",
            "a",
            "a.b",
            "a.b.c",
            "a.b.c.d",
            "a.b.c.d.e",
            "é.é.é",
            "\0.\0.\0",
            " . . ",
            "=.=.=",
            "%.%.%",
        ],
    )
    def test_not_three_parts_of_base64url(self, text: str) -> None:
        unreadable(text)

    def test_parts_too_many_or_too_few(self) -> None:
        right = token(ES256)
        for text in (right.rpartition(".")[0], right + ".", right + ".a", "." + right, right.replace(".", "", 1)):
            assert unreadable(text) == "not a compact JWS"

    def test_json_serialization(self) -> None:
        head, body, sign = token(ES256).split(".")
        unreadable(f'{{"protected":"{head}","payload":"{body}","signature":"{sign}"}}')

    def test_a_token_too_large_is_not_even_decoded(self) -> None:
        assert unreadable(token(ES256, CLAIMS | {"fill": "a" * MAX_BYTES})) == "not a compact JWS"
        assert unreadable("a" * MAX_BYTES + ".b.c") == "not a compact JWS"
        assert unreadable("a.b.c" + "d" * 10_000_000) == "not a compact JWS"

    def test_no_byte_may_change(self) -> None:
        right = token(ES256)
        ends = {part for part in range(len(right)) if right[part + 1 : part + 2] in (".", "")}
        for place in set(range(len(right))) - ends:
            other = "A" if right[place] != "A" else "B"
            if right[place] != ".":
                unreadable(right[:place] + other + right[place + 1 :])


class TestPayload:
    @pytest.mark.parametrize(
        "payload", [b"", b"[]", b"null", b"5", b'"a"', b"true", b"{", b"\xff", b'{"a":NaN}', b"{}x"]
    )
    def test_what_is_no_object(self, payload: bytes) -> None:
        unreadable(token(ES256, payload))

    def test_what_is_nested_deeply(self) -> None:
        unreadable(token(ES256, b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"))

    def test_the_payload_is_read_after_the_signature(self) -> None:
        assert unreadable(token(ES256, b"{", key=OTHER_EC)) == unreadable(token(ES256, b"{}", key=OTHER_EC))


class TestInstants:
    @pytest.mark.parametrize(("value", "found"), [(0, 0.0), (1_794_729_600, 1_794_729_600.0), (1.5, 1.5), (None, None)])
    def test_right(self, value: Any, found: float | None) -> None:
        assert numeric_date({"exp": value}, "exp") == found

    def test_absent(self) -> None:
        assert numeric_date({}, "exp") is None

    @pytest.mark.parametrize(
        "value",
        [
            True, False, "1794729600", "", [], [1], {}, -1, -0.5, 1 << 40, 1 << 70, 1e300, float("inf"), float("-inf"),
            float("nan"),
        ],
    )  # fmt: skip
    def test_wrong(self, value: Any) -> None:
        for name in ("exp", "nbf", "iat"):
            with pytest.raises(InvalidJwt, match=f"^{name} is not a time$"):
                numeric_date({name: value}, name)
            with pytest.raises(InvalidJwt):
                is_time_valid({"exp": 2_000_000_000} | {name: value}, NOW)


NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
AT = 1_794_729_600


class TestLive:
    @pytest.mark.parametrize(
        ("claims", "live"),
        [
            ({}, False),
            ({"exp": None}, False),
            ({"exp": AT + 1}, True),
            ({"exp": AT + 0.001}, True),
            ({"exp": AT}, False),
            ({"exp": AT - 1}, False),
            ({"exp": 0}, False),
            ({"exp": AT + 60, "iat": AT - 60, "nbf": AT - 60}, True),
            ({"exp": AT + 60, "iat": AT + 10}, True),
            ({"exp": AT + 60, "iat": AT + 11}, False),
            ({"exp": AT + 60, "nbf": AT + 10}, True),
            ({"exp": AT + 60, "nbf": AT + 10.5}, False),
            ({"exp": AT + 600, "iat": AT + 60}, False),
            ({"iat": AT}, False),
        ],
    )
    def test_until_exp_and_from_a_little_before_nbf_and_iat(self, claims: dict[str, Any], live: bool) -> None:
        assert is_time_valid(claims, NOW) == live


@pytest.mark.parametrize(
    ("claims", "found"), [({"aud": "a"}, ["a"]), ({"aud": ["a", "b"]}, ["a", "b"]), ({"aud": []}, []), ({}, [None])]
)
def test_audiences(claims: dict[str, Any], found: list[Any]) -> None:
    assert audiences(claims) == found


def test_base64url_has_no_padding() -> None:
    for length in range(5):
        assert jose.b64(b"\xff" * length).decode() == encoded(b"\xff" * length)


class TestBase64url:
    """RFC 7515, appendix C; and bytes have one spelling, so that no two texts are the same token."""

    @pytest.mark.parametrize(
        ("text", "raw"),
        [("", b""), ("AA", b"\0"), ("AAA", b"\0\0"), ("AAAA", b"\0\0\0"), ("_-8", b"\xff\xef"), ("__8", b"\xff\xff")],
    )
    def test_right(self, text: str, raw: bytes) -> None:
        assert unb64(text) == raw
        assert jose.b64(raw).decode() == text

    def test_every_byte_comes_back(self) -> None:
        for length in range(1, 70):
            raw = bytes(range(256))[-length:]
            assert unb64(jose.b64(raw).decode()) == raw

    @pytest.mark.parametrize(
        "text",
        [
            "A", "AAAAA", "=", "==", "AA=", "AA==", "AAA=", "AAAA=", "AAAA====", "+-8", "_/8", "/+8", " AA", "AA ",
            "A A", "AA\n", "\nAA", "A\r\nA", "AA\0", "A.A", "AA.", "%41A", "AÄ", "ＡＡ", "\ud800A", "*", "AA=AA",
        ],
    )  # fmt: skip
    def test_wrong(self, text: str) -> None:
        with pytest.raises(ValueError):
            unb64(text)

    @pytest.mark.parametrize(("text", "others"), [("AA", "BCDEFGHIJKLMNOP"), ("AAA", "BCD")])
    def test_bits_that_mean_nothing_are_zero(self, text: str, others: str) -> None:
        unb64(text)
        for char in others:
            with pytest.raises(ValueError):
                unb64(text[:-1] + char)


class TestPeek:
    """Unverified, and so nothing but a hint: what cannot be read is nothing."""

    def test_both_parts_whoever_signed(self) -> None:
        for key in (EC, OTHER_EC, b"", b"secret"):
            assert decode_unverified(token(ES256, key=key)) == (ES256, CLAIMS)

    @pytest.mark.parametrize("signature", ["", "A", "=", "not base64"])
    def test_the_signature_is_not_looked_at(self, signature: str) -> None:
        front = token(ES256).rpartition(".")[0]
        assert decode_unverified(f"{front}.{signature}") == (ES256, CLAIMS)

    @pytest.mark.parametrize(
        "text",
        [
            "", ".", "..", "...", "a", "a.b", "a.b.c", "a.b.c.d", "é.é.é", "\0.\0.\0", "=.=.=", "%.%.%", "\ud800.a.b",
            "e30", "e30.e30", "e30.e30.e30.e30", "e30=.e30.", "e30.e30=.", " e30.e30.", "e30.e30\n.", "e30 .e30.",
        ],
    )  # fmt: skip
    def test_what_is_no_token(self, text: str) -> None:
        assert decode_unverified(text) == ({}, {})

    def test_no_token_of_empty_objects_is_mistaken_for_that(self) -> None:
        assert decode_unverified("e30.e30.") == ({}, {})
        assert decode_unverified(token({"kid": "a"}, b"{}", b"")) == ({"kid": "a"}, {})

    @pytest.mark.parametrize("part", [b"", b"[]", b"null", b"5", b'"a"', b"true", b"{", b"{}x", b"\xff", b'{"a":NaN}'])
    def test_each_part_is_an_object(self, part: bytes) -> None:
        assert decode_unverified(token(part, CLAIMS)) == ({}, {})
        assert decode_unverified(token(ES256, part)) == ({}, {})

    def test_what_is_nested_deeply(self) -> None:
        deep = b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"
        assert decode_unverified(token(deep, CLAIMS)) == ({}, {})
        assert decode_unverified(token(ES256, deep)) == ({}, {})

    def test_what_is_too_large_is_not_even_decoded(self) -> None:
        fill = (MAX_BYTES - len(token(ES256, CLAIMS | {"fill": ""}))) * 3 // 4
        assert decode_unverified(token(ES256, CLAIMS | {"fill": "a" * fill}))[0] == ES256
        assert decode_unverified(token(ES256, CLAIMS | {"fill": "a" * MAX_BYTES})) == ({}, {})
        assert decode_unverified(token(ES256) + "A" * MAX_BYTES) == ({}, {})
