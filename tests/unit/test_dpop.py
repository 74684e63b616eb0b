"""Proofs of possession: RFC 9449, section 4.3, rule by rule; the nonces that bound their life; thumbprints."""

import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey

from gatepost.core.errors import Refusal
from gatepost.core.jose import MAX_BYTES, unb64
from gatepost.oauth import dpop
from gatepost.oauth.dpop import MAX_AGE, MAX_SKEW, NONCE_LIFE, USED_FOR, Proof
from tests.assertions import b64, signed
from tests.proofs import hash_of, proof, public, thumbprint
from tests.rsa_keys import rsa_key

NOW = datetime(2026, 11, 15, 8, 0, 0, 500_000, tzinfo=UTC)
SECOND = int(NOW.timestamp())
URL = "https://gatepost.example/oauth/tokens"
SERVER, OTHER_SERVER = b"k" * 32, b"o" * 32
TOKEN = "an.access.token"

EC = ECKey.generate_key("P-256")
OTHER = ECKey.generate_key("P-256")
RSA = rsa_key()
SMALL_RSA = {"kty": "RSA", "e": "AQAB", "n": b64(b"\x9b" + bytes(126) + b"\x01")}
ED = OKPKey.generate_key("Ed25519")
P384 = ECKey.generate_key("P-384")


def made(key: Any = EC, header: Any = None, **changes: Any) -> str:
    right: dict[str, Any] = {"iat": SECOND, "nonce": dpop.nonce(SERVER, NOW)}
    return proof(key, "POST", URL, header=header, **(right | changes))


def check(text: str, *, token: str | None = None, method: str = "POST", url: str = URL) -> Proof | Refusal:
    return dpop.check(text, method=method, urls=[url], key=SERVER, at=NOW, access_token=token)


def accepted(text: str, **given: Any) -> Proof:
    found = check(text, **given)
    assert isinstance(found, Proof), found
    return found


def refused(text: str, **given: Any) -> Refusal:
    found = check(text, **given)
    assert isinstance(found, Refusal), found
    assert (found.pointer, found.status) == ("DPoP", 400)
    return found


class TestRight:
    @pytest.mark.parametrize(
        ("key", "alg"), [(EC, "ES256"), (RSA, "RS256"), (RSA, "PS256"), (ED, "EdDSA"), (ED, "Ed25519")]
    )
    def test_every_algorithm(self, key: Any, alg: str) -> None:
        found = accepted(made(key, {"alg": alg}, jti="the id"))
        assert found == Proof(thumbprint(public(key)), "the id", alg)

    @pytest.mark.parametrize(
        "changes",
        [
            {"iat": SECOND + MAX_SKEW},
            {"iat": SECOND - MAX_AGE + 1},
            {"iat": SECOND + 0.25},
            {"jti": "j" * 256},
            {"jti": "a jti, not an id"},
            {"exp": SECOND - 1},  # RFC 9449 has no exp, and what is unknown is ignored
            {"ath": "anything, where no token is sent"},
            {"more": {"claims": [1]}},
        ],
    )
    def test_what_may_be(self, changes: Any) -> None:
        accepted(made(**changes))

    def test_the_public_key_may_say_more(self) -> None:
        output = public(EC) | {"kid": "any", "use": "sig", "alg": "ES256", "key_ops": ["verify"]}
        assert accepted(made(header={"jwk": output})).thumbprint == thumbprint(public(EC))
        assert accepted(made(header={"kid": "nobody's"})).thumbprint == thumbprint(public(EC))

    def test_with_an_access_token(self) -> None:
        accepted(made(ath=hash_of(TOKEN)), token=TOKEN)

    @pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
    def test_the_method_of_the_request(self, method: str) -> None:
        accepted(made(htm=method), method=method)

    def test_an_id_is_kept_for_as_long_as_its_proof_is_valid(self) -> None:
        assert USED_FOR >= MAX_AGE + MAX_SKEW


def without_signature(text: str) -> str:
    return text.rpartition(".")[0] + "."


def by_secret(secret: bytes, **header: Any) -> str:
    """HS256 by something that everybody knows."""
    shown = {"typ": "dpop+jwt", "alg": "HS256", "jwk": public(EC)} | header
    claims = {"jti": "a", "htm": "POST", "htu": URL, "iat": SECOND, "nonce": dpop.nonce(SERVER, NOW)}
    message = f"{b64(json.dumps(shown).encode())}.{b64(json.dumps(claims).encode())}"
    return f"{message}.{b64(hmac.digest(secret, message.encode(), 'sha256'))}"


# What is wrong, in the order of section 4.3, and a word of what is said.
WRONG: dict[str, tuple[Callable[[], str], str]] = {
    "two in one header": (lambda: f"{made()}, {made()}", "one proof"),
    "nothing": (lambda: "", "one proof"),
    "no JWT": (lambda: "proof", "one proof"),
    "no JSON": (lambda: "e30.!.e30", "one proof"),
    "two parts": (lambda: made().rpartition(".")[0], "one proof"),
    "five parts": (lambda: made() + ".a.b", "one proof"),
    "not ASCII": (lambda: made() + "\xe9", "one proof"),
    "too long": (lambda: made(padding="a" * MAX_BYTES), "one proof"),
    "no jwk": (lambda: made(header={"jwk": None}), "public key in its header"),
    "jwk is text": (lambda: made(header={"jwk": json.dumps(public(EC))}), "public key in its header"),
    "jwk is a list": (lambda: made(header={"jwk": [public(EC)]}), "public key in its header"),
    "jwk is empty": (lambda: made(header={"jwk": {}}), "must be a public key"),
    "jwk by address": (lambda: made(header={"jwk": None, "jku": "https://keys.example/"}), "public key in its header"),
    "no typ": (lambda: made(header={"typ": None}), "typ"),
    "typ of any JWT": (lambda: made(header={"typ": "JWT"}), "typ"),
    "typ of an access token": (lambda: made(header={"typ": "at+jwt"}), "typ"),
    "typ in capitals": (lambda: made(header={"typ": "DPOP+JWT"}), "typ"),
    "alg none": (lambda: without_signature(by_secret(b"", alg="none")), "cannot be verified"),
    "alg none, signed": (lambda: by_secret(b"", alg="none"), "cannot be verified"),
    "HS256 by the public key": (lambda: by_secret(json.dumps(public(EC)).encode()), "cannot be verified"),
    "HS256 by the PEM": (lambda: by_secret(EC.as_bytes("PEM", private=False)), "cannot be verified"),
    "a secret as jwk": (
        lambda: by_secret(b"s" * 32, jwk=OctKey.import_key(b"s" * 32).as_dict(private=True)),
        "must be a public key",
    ),
    "alg of another kind of key": (lambda: made(header={"jwk": public(RSA)}), "cannot be verified"),
    "the private key too": (lambda: made(header={"jwk": EC.as_dict(private=True)}), "must be a public key"),
    "the private RSA key too": (lambda: made(RSA, {"jwk": RSA.as_dict(private=True)}), "must be a public key"),
    "a private part alone": (lambda: made(header={"jwk": public(EC) | {"d": ""}}), "must be a public key"),
    "RSA of 1024 bits": (lambda: made(RSA, {"jwk": SMALL_RSA}), "must be a public key"),
    "RSA with a huge exponent": (
        lambda: made(RSA, {"jwk": public(RSA) | {"e": b64(b"\x01" + bytes(200) + b"\x01")}}),
        "must be a public key",
    ),
    "another curve": (lambda: made(P384, {"alg": "ES384"}), "must be a public key"),
    "a point that is not on the curve": (
        lambda: made(header={"jwk": public(EC) | {"y": public(OTHER)["y"]}}),
        "must be a public key",
    ),
    "a key for something else": (lambda: made(header={"jwk": public(EC) | {"use": "enc"}}), "cannot be verified"),
    "a key for another algorithm": (lambda: made(header={"jwk": public(EC) | {"alg": "HS256"}}), "public key"),
    "signed by another key": (lambda: made(header={"jwk": public(OTHER)}), "cannot be verified"),
    "no signature": (lambda: without_signature(made()), "cannot be verified"),
    "claims of another proof": (
        lambda: ".".join((made().split(".")[0], made(jti="b").split(".")[1], made().split(".")[2])),
        "cannot be verified",
    ),
    "crit": (lambda: made(header={"crit": ["x"], "x": 1}), "cannot be verified"),
    "unencoded payload": (lambda: made(header={"crit": ["b64"], "b64": False}), "cannot be verified"),
    "claims are a list": (lambda: signed(EC, b"[]", typ="dpop+jwt", jwk=public(EC), kid=None), "one proof"),
    "claims are deep": (
        lambda: signed(EC, b'{"a": %s}' % (b"[" * 600 + b"]" * 600), typ="dpop+jwt", jwk=public(EC), kid=None),
        "cannot be verified",
    ),
    "no jti": (lambda: made(jti=None), "jti"),
    "empty jti": (lambda: made(jti=""), "jti"),
    "jti is a number": (lambda: made(jti=5), "jti"),
    "jti is too long": (lambda: made(jti="j" * 257), "jti"),
    "no htm": (lambda: made(htm=None), "htm must be POST"),
    "htm of another method": (lambda: made(htm="GET"), "htm must be POST"),
    "htm in small letters": (lambda: made(htm="post"), "htm must be POST"),
    "htm is a list": (lambda: made(htm=["POST"]), "htm must be POST"),
    "no htu": (lambda: made(htu=None), "htu must be"),
    "htu is a list": (lambda: made(htu=[URL]), "htu must be"),
    "htu is empty": (lambda: made(htu=""), "htu must be"),
    "no iat": (lambda: made(iat=None), "iat"),
    "iat is text": (lambda: made(iat=str(SECOND)), "iat"),
    "iat is true": (lambda: made(iat=True), "iat"),
    "iat is huge": (lambda: made(iat=10**30), "iat"),
    "iat is negative": (lambda: made(iat=-1), "iat"),
    "iat too long ago": (lambda: made(iat=SECOND - MAX_AGE), "iat"),
    "iat too far ahead": (lambda: made(iat=SECOND + MAX_SKEW + 1), "iat"),
    "iat in milliseconds": (lambda: made(iat=SECOND * 1000), "iat"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_proof(name: str) -> None:
    make, word = WRONG[name]
    found = refused(make())
    assert found.code == "invalid_dpop_proof"
    assert word in found.detail, found.detail
    assert len(found.detail) < 200


@pytest.mark.parametrize(
    "ath", [None, "", hash_of("another"), hash_of(TOKEN) + "=", TOKEN, [hash_of(TOKEN)], hash_of(TOKEN).upper()]
)
def test_the_hash_of_the_access_token(ath: Any) -> None:
    found = refused(made(ath=ath), token=TOKEN)
    assert found.code == "invalid_dpop_proof"
    assert "ath" in found.detail


# --- the address: RFC 9449, section 4.3 (9), by RFC 3986, sections 6.2.2 and 6.2.3

SAME_ADDRESS = [
    URL,
    "https://gatepost.example/oauth/tokens?a=b",
    "https://gatepost.example/oauth/tokens?",
    "https://gatepost.example/oauth/tokens#part",
    "https://gatepost.example:443/oauth/tokens",
    "https://gatepost.example:/oauth/tokens",
    "HTTPS://gatepost.example/oauth/tokens",
    "https://GatePost.Example/oauth/tokens",
]
OTHER_ADDRESS = [
    "http://gatepost.example/oauth/tokens",
    "https://gatepost.example:8443/oauth/tokens",
    "https://gatepost.example:80/oauth/tokens",
    "https://gatepost.example.evil.example/oauth/tokens",
    "https://evil.example/oauth/tokens",
    "https://gatepost.example@evil.example/oauth/tokens",
    "https://somebody@gatepost.example/oauth/tokens",
    "https://@gatepost.example/oauth/tokens",
    "https://gatepost.example/oauth/\ttokens",
    "https://gatepost.example/oauth/tokens\n",
    "https://gatepost.example/oauth/tokens/",
    "https://gatepost.example/oauth/Tokens",
    "https://gatepost.example/oauth/token",
    "https://gatepost.example//oauth/tokens",
    "https://gatepost.example/oauth/par",
    "https://gatepost.example/",
    "https://gatepost.example",
    "https://gatepost.example?/oauth/tokens",
    "https://gatepost.example:port/oauth/tokens",
    "https://gatepost.example:99999/oauth/tokens",
    "https://[gatepost.example/oauth/tokens",
    "//gatepost.example/oauth/tokens",
    "/oauth/tokens",
    "gatepost.example/oauth/tokens",
    "a" * 17_000,
    " ",
]


@pytest.mark.parametrize("htu", SAME_ADDRESS)
def test_the_same_address_written_otherwise(htu: str) -> None:
    accepted(made(htu=htu))


@pytest.mark.parametrize("htu", OTHER_ADDRESS, ids=range(len(OTHER_ADDRESS)))
def test_another_address(htu: str) -> None:
    if len(htu) < MAX_BYTES // 2:
        assert "htu must be" in refused(made(htu=htu)).detail
    assert dpop._normalized(htu) != dpop._normalized(URL)


@pytest.mark.parametrize(
    ("url", "htu"),
    [
        ("http://127.0.0.1:8080/oauth/tokens", "http://127.0.0.1:8080/oauth/tokens"),
        ("http://[::1]:8080/oauth/tokens", "http://[::1]:8080/oauth/tokens"),
        ("http://localhost/oauth/tokens", "http://localhost:80/oauth/tokens"),
        ("https://gatepost.example:443/oauth/tokens", "https://gatepost.example/oauth/tokens"),
    ],
)
def test_addresses_of_other_issuers(url: str, htu: str) -> None:
    accepted(made(htu=htu), url=url)
    refused(made(htu=htu.replace("http", "https", 1)), url=url)


# --- nonces


class TestNonces:
    def test_is_asked_for_only_when_all_else_is_right(self) -> None:
        found = refused(made(nonce=None))
        assert found.code == "use_dpop_nonce"
        assert "DPoP-Nonce" in found.detail
        assert refused(made(nonce=None, htm="GET")).code == "invalid_dpop_proof"
        assert refused(made(nonce=None), token=TOKEN).code == "invalid_dpop_proof"

    @pytest.mark.parametrize("age", [-MAX_SKEW, -1, 0, 1, NONCE_LIFE - 1, NONCE_LIFE])
    def test_is_good_for_its_life(self, age: int) -> None:
        accepted(made(nonce=dpop.nonce(SERVER, NOW - timedelta(seconds=age))))

    @pytest.mark.parametrize("age", [-MAX_SKEW - 1, NONCE_LIFE + 1, 86_400, SECOND - 1])
    def test_is_not_good_before_and_after(self, age: int) -> None:
        assert refused(made(nonce=dpop.nonce(SERVER, NOW - timedelta(seconds=age)))).code == "use_dpop_nonce"

    def test_of_another_server(self) -> None:
        assert refused(made(nonce=dpop.nonce(OTHER_SERVER, NOW))).code == "use_dpop_nonce"

    def test_a_fresh_time_with_an_old_tag(self) -> None:
        old = unb64(dpop.nonce(SERVER, NOW - timedelta(days=1)))
        fresh = unb64(dpop.nonce(SERVER, NOW))
        assert not dpop.is_fresh(SERVER, b64(fresh[:5] + old[5:]), NOW)

    def test_every_other_bit_counts(self) -> None:
        right = unb64(dpop.nonce(SERVER, NOW))
        assert len(right) == 18
        for place in range(len(right) * 8):
            forged = bytearray(right)
            forged[place // 8] ^= 1 << place % 8
            assert not dpop.is_fresh(SERVER, b64(bytes(forged)), NOW)

    @pytest.mark.parametrize("length", range(18))
    def test_a_part_of_one(self, length: int) -> None:
        right = unb64(dpop.nonce(SERVER, NOW))
        assert not dpop.is_fresh(SERVER, b64(right[:length]), NOW)

    @pytest.mark.parametrize(
        "text", [None, "", " ", "=", "a", "é" * 24, "a" * 24, "a" * 10_000, 5, True, [], {}, "\ud800"]
    )
    def test_something_else(self, text: Any) -> None:
        assert not dpop.is_fresh(SERVER, text, NOW)

    def test_has_one_spelling(self) -> None:
        right = dpop.nonce(SERVER, NOW)
        for other in (right + "=", right + "\n", " " + right, right[:4] + "\n" + right[4:], right + "AAAA"):
            assert not dpop.is_fresh(SERVER, other, NOW)

    def test_can_stand_in_a_header_and_in_json(self) -> None:
        assert set(dpop.nonce(SERVER, NOW)) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


# --- thumbprints

MODULUS = (
    "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3"
    "oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdA"
    "ZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-"
    "kEgU8awapJzKnqDKgw"
)
KNOWN = {  # RFC 7638, section 3.1; RFC 9449, section 6.1
    "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs": {"kty": "RSA", "n": MODULUS, "e": "AQAB", "alg": "RS256"},
    "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I": {
        "kty": "EC",
        "crv": "P-256",
        "x": "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",
        "y": "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA",
    },
}


class TestThumbprints:
    @pytest.mark.parametrize("known", KNOWN)
    def test_those_of_the_standards(self, known: str) -> None:
        assert dpop.thumbprint(KNOWN[known]) == thumbprint(KNOWN[known]) == known

    @pytest.mark.parametrize("key", [EC, RSA, ED], ids=["EC", "RSA", "OKP"])
    def test_only_what_makes_the_key_counts(self, key: Any) -> None:
        plain = public(key)
        decorated = {"kid": "a", "use": "sig", "x5t": "b"} | dict(reversed(plain.items()))
        assert dpop.thumbprint(decorated) == dpop.thumbprint(plain) == thumbprint(plain)

    def test_each_key_has_its_own(self) -> None:
        assert len({dpop.thumbprint(public(key)) for key in (EC, OTHER, RSA, ED)}) == 4

    @pytest.mark.parametrize("jwk", [{}, {"kty": "EC"}, {"kty": "?"}, {"kty": "EC", "crv": "P-256", "x": 1, "y": 2}])
    def test_none_of_what_is_no_key(self, jwk: Any) -> None:
        assert dpop.thumbprint(jwk) == ""

    def test_one_is_told_by_its_form(self) -> None:
        assert all(dpop.is_thumbprint(each) for each in (*KNOWN, thumbprint(public(EC)), "A" * 43))

    @pytest.mark.parametrize(
        "text", ["", "A" * 42, "A" * 44, "A" * 42 + "=", "A" * 42 + "+", "A" * 43 + "\n", "é" * 43]
    )
    def test_what_has_not_the_form(self, text: str) -> None:
        assert not dpop.is_thumbprint(text)
