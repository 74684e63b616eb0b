"""Clients: every member right and wrong, what is left out, and what must hold for the whole after each change."""

import base64
from typing import Any

import msgspec
import pytest
from joserfc.jwk import OKPKey

from gatepost.core import ids, jwk_sets, secret_rotation
from gatepost.oauth import client_rules, clients
from gatepost.oauth.client_grants import TOKEN_EXCHANGE
from gatepost.oauth.clients import Client
from gatepost.oauth.scopes import PROTOCOL_CLAIMS
from tests.rsa_keys import rsa_key
from tests.unit.clients import (
    ACCOUNT,
    BASE_URL,
    KEY,
    KEYED,
    MACHINE,
    NATIVE,
    NOW,
    PLAIN_MEMBERS,
    PUBLIC,
    WEB,
    defined,
    definition,
    refused,
)

RSA: dict[str, Any] = dict(rsa_key().as_dict(private=False))
OKP: dict[str, Any] = dict(OKPKey.generate_key("Ed25519").as_dict(private=False))
URI: dict[str, Any] = {"jwks_uri": "https://app.example.com/jwks"}
PUBLISHED: dict[str, Any] = KEYED | URI | {"jwks": None}
PAGES = ("client_uri", "logo_uri", "tos_uri", "policy_uri")

RIGHT: list[tuple[str, list[Any]]] = [
    ("client_name", ["a", "Größe 😀", "a" * 200]),
    ("software_id", ["4NRB1-0XZABZI9E6-5SM3R", "a" * 200]),
    ("software_version", ["2.1", "a" * 200]),
    ("contacts", [["ops@example.com"], ["a" * 320] * 20]),
    *[(page, ["https://example.com", "http://example.com/a?b#c", "https://[::1]:8/", "https://e/" + "a" * 2038])
      for page in PAGES],
    ("application_type", ["web", "native"]),
    ("id_token_signed_response_alg", ["RS256", "ES256", "EdDSA"]),
    ("id_token_claims", [True, False]),
    ("dpop_bound_access_tokens", [True, False]),
    ("access_token_lifetime", [60, 86_400]),
    ("max_tokens_per_minute", [1, 1_000_000]),
    ("max_concurrent_token_requests", [1, 10_000]),
    ("refresh_token_lifetime", [3600, 365 * 86_400]),
    ("serves", [["https://api.example.com"], ["urn:example:api", "https://a"], [f"urn:gatepost:{ACCOUNT}"],
                [f"https://a/{n}" for n in range(50)]]),
    ("claims", [{"team": "blue"}, {"a": [1, {"b": None}]}, {str(n): n for n in range(20)}, {"a" * 128: 1},
                {"a": "b" * 4088}]),
    ("require_pkce", [True, False]),
    ("require_nonce", [True]),
    ("status", ["active", "disabled"]),
    ("metadata", [{"a": ""}, {"a" * 64: "b" * 512}, {str(n): "" for n in range(50)}]),
    ("jwks", [{"keys": [KEY]}, {"keys": [RSA]}, {"keys": [OKP]}, {"keys": [KEY | {"alg": "ES256", "use": "sig"}]},
              {"keys": [KEY | {"key_ops": ["verify"]}]},
              {"keys": [KEY | {"kid": "1"}, RSA | {"kid": "2"}, OKP | {"kid": "3"}]},
              {"keys": [KEY | {"kid": str(n)} for n in range(20)]}]),
    ("jwks_uri", ["https://example.com/jwks", "https://example.com/".ljust(2048, "a")]),
    ("token_endpoint_auth_method", ["client_secret_basic", "client_secret_post"]),
]  # fmt: skip
WRONG: list[tuple[str, list[Any]]] = [
    ("client_name", ["", "a" * 201, 5, ["a"], {}, True]),
    ("software_id", ["", "a" * 201, 5]),
    ("software_version", ["", "a" * 201, 2.1]),
    ("contacts", ["ops@example.com", [""], [5], ["a"] * 21, ["a" * 321], {}]),
    *[(page, ["", "example.com", "//example.com", "ftp://example.com", "javascript:alert(1)", "https://", "https://a b",
              "https://user@example.com", "HTTPS://example.com", "https://é.example", "https://a\n", 5,
              "https://example.com/" + "a" * 2048])
      for page in PAGES],
    ("application_type", ["Web", "", "service", 5, ["web"]]),
    ("id_token_signed_response_alg", ["none", "HS256", "rs256", "", 5]),
    ("id_token_claims", [0, 1, "false", [True], {}]),
    ("dpop_bound_access_tokens", [0, 1, "false", "true", [True], {}]),
    ("access_token_lifetime", [59, 86_401, 0, -1, 60.0, "60", True, [60], 1 << 70]),
    ("max_tokens_per_minute", [0, 1_000_001, -1, 60.0, "60", True]),
    ("max_concurrent_token_requests", [0, 10_001, -1, 1.5, "8", False]),
    ("refresh_token_lifetime", [3599, 365 * 86_400 + 1, 0, "3600", False]),
    ("serves", ["https://a", ["api"], [""], [5], ["https://a#b"], ["https://a"] * 51, [BASE_URL], [BASE_URL + "/"],
                ["urn:gatepost:acc_other"], ["urn:gatepost:"], ["urn:Gatepost:acc_other"]]),
    ("claims", [[], "a", {"": 1}, {"a" * 129: 1}, {str(n): n for n in range(21)}, {"a": "b" * 4089}]),
    ("require_pkce", [0, 1, "false", []]),
    ("require_nonce", [0, 1, "false", [], {}]),
    ("status", ["retired", "Active", "", 1]),
    ("metadata", [[], {"a": 1}, {"a": None}, {"": "a"}, {"a" * 65: ""}, {"a": "b" * 513},
                  {str(n): "" for n in range(51)}]),
    ("grant_types", [[], "client_credentials", ["password"], ["implicit"], ["client_credentials"] * 2, [5], [[]]]),
    ("response_types", ["code", ["token"], ["id_token"], ["code", "token"], ["code", "code"], ["code id_token"]]),
    ("scope", [["a"], 5, "a  b", " a", "a ", "a a", 'a"b', "a\\b", "é", "a\tb", "a" * 129, " ",
               " ".join(f"{n:0>128}" for n in range(125))]),
    ("token_endpoint_auth_method", ["client_secret_jwt", "tls_client_auth", "", "None", 5, ["none"]]),
    ("jwks_uri", ["", 5, True, ["https://example.com/jwks"], {"keys": []}, "https://example.com/".ljust(2049, "a")]),
]  # fmt: skip


def flat(table: list[tuple[str, list[Any]]]) -> list[tuple[str, Any]]:
    return [(member, value) for member, values in table for value in values]


class TestMembers:
    @pytest.mark.parametrize(("member", "value"), flat(RIGHT))
    def test_right_is_kept_and_shown(self, member: str, value: Any) -> None:
        made = defined(MACHINE | {member: value})
        assert getattr(made, member) == value
        assert clients.render(made, {})[member] == value

    @pytest.mark.parametrize(("member", "value"), flat(WRONG))
    def test_wrong_is_refused_by_name(self, member: str, value: Any) -> None:
        for known in (None, defined(MACHINE)):
            found = refused(MACHINE | {member: value}, known)
            assert (found.code, found.status, found.pointer) == ("invalid_client_metadata", 400, f"/{member}")
            assert found.detail.startswith(f"{member}: ")
            assert len(found.detail) < 400

    def test_a_bound_that_is_exceeded_is_named(self) -> None:
        names = " ".join(f"{number:0>128}" for number in range(125))
        assert refused(MACHINE | {"scope": names}).detail == (
            "scope: must be scope names separated by single spaces, at most 16,000 characters in all"
        )
        assert refused({"grant_types": []}).detail == "grant_types: must be a list of at least one grant type"

    def test_every_member_stands_in_both_tables(self) -> None:
        """Except members with their own tests."""
        right, wrong = {member for member, _ in RIGHT}, {member for member, _ in WRONG}
        assert PLAIN_MEMBERS - right == {"redirect_uris", "grant_types", "response_types", "scope"}
        assert PLAIN_MEMBERS - wrong == {"redirect_uris", "jwks"}

    @pytest.mark.parametrize("claim", sorted(PROTOCOL_CLAIMS))
    def test_fixed_claims_are_never_protocol_claims(self, claim: str) -> None:
        found = refused(MACHINE | {"claims": {"team": "blue", claim: "x"}})
        assert found.detail.startswith(f"claims: '{claim}' must be a claim name")


def padded(number: bytes) -> str:
    return base64.urlsafe_b64encode(number).rstrip(b"=").decode()


class TestKeys:
    @pytest.mark.parametrize("key", [KEY, RSA, OKP])
    @pytest.mark.parametrize("part", ["d", "k", "p", "q", "dp", "dq", "qi", "oth"])
    def test_private_keys_are_refused(self, key: dict[str, Any], part: str) -> None:
        found = refused(KEYED | {"jwks": {"keys": [key | {part: "AA"}]}})
        assert (found.pointer, found.detail) == ("/jwks", "jwks: must hold public keys only")

    @pytest.mark.parametrize(
        "key",
        [
            {}, {"kty": "oct"}, {"kty": "oct", "alg": "HS256"}, {"kty": "EC"}, KEY | {"crv": "P-384"},
            KEY | {"crv": "secp256k1"}, OKP | {"crv": "Ed448"}, OKP | {"crv": "X25519"}, KEY | {"kty": ["EC"]},
            RSA | {"n": 5}, RSA | {"n": ""}, RSA | {"n": "é" * 400}, {"kty": "RSA", "e": "AQAB"},
            RSA | {"n": padded((1 << 2046 | 1).to_bytes(256, "big"))},
            RSA | {"n": padded(b"\0" * 128 + (1 << 1023 | 1).to_bytes(128, "big"))},
            RSA | {"e": "AQ"}, RSA | {"e": "Ag"}, RSA | {"e": None}, {name: RSA[name] for name in ("kty", "n")},
        ],
    )  # fmt: skip
    def test_weak_and_unknown_keys_are_refused(self, key: dict[str, Any]) -> None:
        found = refused(KEYED | {"jwks": {"keys": [key]}})
        assert found.detail == f"jwks: keys must be {jwk_sets.KEYS}"

    @pytest.mark.parametrize(("bits", "right"), [(2047, False), (2048, True), (8192, True), (8193, False)])
    def test_an_rsa_modulus_has_bounds(self, bits: int, right: bool) -> None:
        modulus = (1 << (bits - 1)) + 1
        key = RSA | {"n": padded(modulus.to_bytes((bits + 7) // 8, "big"))}
        assert (jwk_sets.jwks_problem({"keys": [key]}) == "") == right
        assert (jwk_sets.usable_keys({"keys": [key]}) == [key]) == right

    @pytest.mark.parametrize(
        ("exponent", "right"),
        [
            (1, False),
            (2, False),
            (3, True),
            (4, False),
            (65537, True),
            (2**32 - 1, True),
            (2**32 + 1, False),
            (2**64 + 1, False),
            (2**2047 + 1, False),
            (2**12_000 + 1, False),
        ],
    )
    def test_an_rsa_exponent_has_bounds(self, exponent: int, right: bool) -> None:
        """Verifying costs as many multiplications as the exponent has bits: its owner must not choose that freely."""
        key = RSA | {"e": padded(exponent.to_bytes((exponent.bit_length() + 7) // 8, "big"))}
        assert (jwk_sets.jwks_problem({"keys": [key]}) == "") == right
        assert (jwk_sets.usable_keys({"keys": [key]}) == [key]) == right

    @pytest.mark.parametrize(
        "key",
        [
            KEY | {"x": 5}, KEY | {"x": "AA"}, KEY | {"x": KEY["y"], "y": KEY["x"]}, KEY | {"x": "A" * 5000},
            {name: KEY[name] for name in ("kty", "crv", "x")}, OKP | {"x": "AA"}, OKP | {"x": OKP["x"] + "AA"},
            KEY | {"kid": 5}, KEY | {"kid": []},
        ],
    )  # fmt: skip
    def test_what_is_no_key_is_refused(self, key: dict[str, Any]) -> None:
        assert refused(KEYED | {"jwks": {"keys": [key]}}).detail.startswith("jwks: has a key that cannot be read")

    @pytest.mark.parametrize("alg", ["none", "HS256", "ES384", "RS1", "", 5, ["ES256"]])
    def test_a_key_is_for_an_algorithm_we_take(self, alg: Any) -> None:
        assert refused(KEYED | {"jwks": {"keys": [KEY | {"alg": alg}]}}).detail.startswith("jwks: alg must be one of")

    @pytest.mark.parametrize(
        ("member", "value"),
        [
            ("use", "enc"), ("use", ""), ("use", "SIG"), ("use", None), ("use", 5), ("use", ["sig"]),
            ("key_ops", []), ("key_ops", ["sign"]), ("key_ops", ["encrypt", "wrapKey"]), ("key_ops", "verify"),
            ("key_ops", None), ("key_ops", 5), ("key_ops", {}),
        ],
    )  # fmt: skip
    def test_a_key_is_for_verifying(self, member: str, value: Any) -> None:
        """RFC 7517, sections 4.2 and 4.3."""
        for keys in ([KEY | {member: value}], [KEY | {"kid": "1"}, OKP | {"kid": "2", member: value}]):
            assert refused(KEYED | {"jwks": {"keys": keys}}).detail.startswith(f"jwks: {member} must ")
            assert len(jwk_sets.usable_keys({"keys": keys}) or []) == len(keys) - 1

    def test_a_stored_key_that_is_not_for_verifying_blocks_no_change(self) -> None:
        stored = msgspec.structs.replace(defined(KEYED), jwks={"keys": [KEY | {"use": "enc"}]})
        assert defined({"status": "disabled"}, stored).jwks == stored.jwks

    @pytest.mark.parametrize("jwks", [{}, [], "x", 5, {"keys": []}, {"keys": {}}, {"keys": [5]}, {"keys": [KEY] * 21}])
    def test_what_is_no_key_set_is_refused(self, jwks: Any) -> None:
        assert refused(KEYED | {"jwks": jwks}).detail == "jwks: must be a JWK set with 1 to 20 keys"

    @pytest.mark.parametrize("kids", [["1", "1"], ["1", None], [None, None]])
    def test_several_keys_are_told_apart_by_kid(self, kids: list[str | None]) -> None:
        keys = [KEY | ({"kid": kid} if kid else {}) for kid in kids]
        assert refused(KEYED | {"jwks": {"keys": keys}}).detail == "jwks: several keys need a kid each, all different"

    def test_private_key_jwt_needs_a_key(self) -> None:
        without = {name: value for name, value in KEYED.items() if name != "jwks"}
        for body in (without, KEYED | {"jwks": None}, KEYED | {"jwks": None, "jwks_uri": None}):
            assert (refused(body).pointer, refused(body).detail) == (
                "/jwks", "jwks: required for private_key_jwt, unless jwks_uri is sent"
            )  # fmt: skip
        assert not definition(KEYED).needs_secret
        assert not definition(PUBLISHED).needs_secret

    def test_keys_are_given_or_published_and_never_both(self) -> None:
        """RFC 7591, section 2."""
        for both in (KEYED | URI, MACHINE | {"jwks": {"keys": [KEY]}} | URI, PUBLIC | {"jwks": {"keys": [KEY]}} | URI):
            found = refused(both)
            assert (found.code, found.pointer) == ("invalid_client_metadata", "/jwks_uri")
            assert found.detail == "jwks_uri: send jwks or jwks_uri, not both"
        assert refused(URI, defined(KEYED)).pointer == "/jwks_uri"
        moved = defined(URI | {"jwks": None}, defined(KEYED))
        assert (moved.jwks, moved.jwks_uri) == (None, URI["jwks_uri"])
        assert defined({"jwks_uri": None, "jwks": {"keys": [KEY]}}, moved).jwks_uri is None
        assert refused({"jwks_uri": None}, moved).pointer == "/jwks"


class TestPublishedKeys:
    """The usable keys of a foreign key set."""

    def test_what_we_cannot_use_is_left_out(self) -> None:
        right = [KEY | {"kid": "1"}, RSA | {"kid": "2", "use": "sig"}, OKP | {"alg": "EdDSA"}]
        wrong: list[Any] = [
            KEY | {"use": "enc"}, KEY | {"d": "AA"}, KEY | {"crv": "P-384"}, {"kty": "oct", "k": "AA"}, {}, 5, None,
            KEY | {"alg": "HS256"}, KEY | {"x": "AA"}, KEY | {"kid": 5},
        ]  # fmt: skip
        assert jwk_sets.usable_keys({"keys": [*wrong, *right]}) == right
        assert jwk_sets.usable_keys({"keys": wrong}) == []
        assert jwk_sets.usable_keys({"keys": []}) == []

    @pytest.mark.parametrize("found", [None, 5, "x", [], [KEY], {}, {"keys": None}, {"keys": {}}, {"key": [KEY]}, KEY])
    def test_what_is_no_key_set_is_none(self, found: Any) -> None:
        assert jwk_sets.usable_keys(found) is None

    def test_only_the_first_hundred_are_looked_at(self) -> None:
        """This limits the work that a foreign key set can cause."""
        assert jwk_sets.usable_keys({"keys": [KEY] * 101}) == [KEY] * 100
        assert jwk_sets.usable_keys({"keys": [{}] * 100 + [KEY]}) == []


class TestCreating:
    def test_what_is_left_out(self) -> None:
        """RFC 7591, section 2, and the contract's own defaults."""
        made = defined(WEB)
        assert clients.render(made, {}) == {
            "client_id": made.id,
            "client_id_issued_at": 1_794_729_600,
            "account": ACCOUNT,
            "redirect_uris": ["https://app.example.com/callback"],
            "grant_types": ["authorization_code"],
            "response_types": ["code"],
            "scope": "",
            "token_endpoint_auth_method": "client_secret_basic",
            "application_type": "web",
            "id_token_signed_response_alg": "RS256",
            "id_token_claims": False,
            "dpop_bound_access_tokens": False,
            "require_pkce": True,
            "require_nonce": True,
            "status": "active",
            "grants": [
                {"id": made.grants[0].id, "grant_type": "authorization_code", "scopes": [], "status": "active",
                 "access_token_lifetime": None, "refresh_token_lifetime": None},
            ],
        }  # fmt: skip

    def test_where_a_machine_sends_people_is_said_to_be_nowhere(self) -> None:
        assert clients.render(defined(MACHINE), {})["redirect_uris"] == []

    def test_the_id_is_ours_to_choose(self) -> None:
        made = defined(MACHINE | {"client_id": "https://evil.example", "id": "cli_x", "account": "acc_other"})
        assert ids.parse("cli", made.id) is not None
        assert made.account == ACCOUNT
        assert (made.created_at, made.updated_at) == (NOW, NOW)

    @pytest.mark.parametrize("member", ["secrets", "explicit_grants", "created_at", "first_party", "x", ""])
    def test_unknown_members_are_ignored(self, member: str) -> None:
        made = defined(MACHINE | {member: "x"})
        assert member not in clients.render(made, {})
        assert (made.secrets, made.explicit_grants, made.created_at) == ([], False, NOW)

    @pytest.mark.parametrize("member", sorted(PLAIN_MEMBERS | {"rotate_secret", "grants"}))
    def test_null_is_as_if_left_out(self, member: str) -> None:
        """Ids are new each time; all else is the same."""
        body = WEB if member == "grant_types" else MACHINE
        one, other = defined({**body, member: None}), defined(body)
        same = {"id": "", "grants": []}
        assert msgspec.structs.replace(one, **same) == msgspec.structs.replace(other, **same)

    def test_response_types_are_those_of_the_grant_types(self) -> None:
        """RFC 7591, section 2.1: never inconsistent, so that the answer may differ from what was sent."""
        several: list[dict[str, Any]] = [{}, *({"response_types": each} for each in (["code"], [], None))]
        for sent in several:
            assert defined(WEB | sent).response_types == ["code"]
            assert defined(MACHINE | sent).response_types == []

    @pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
    def test_a_secret_is_made_for_those_who_use_one(self, method: str) -> None:
        assert definition(MACHINE | {"token_endpoint_auth_method": method}).needs_secret
        assert not definition(PUBLIC).needs_secret

    @pytest.mark.parametrize("grant_type", ["client_credentials", TOKEN_EXCHANGE])
    def test_a_public_client_gets_nothing_on_its_own_behalf(self, grant_type: str) -> None:
        for types in ([grant_type], ["authorization_code", grant_type]):
            found = refused(PUBLIC | {"grant_types": types})
            assert (found.code, found.pointer) == ("invalid_client_metadata", "/grant_types")

    def test_the_default_grant_needs_somewhere_to_send_people(self) -> None:
        bodies: list[dict[str, Any]] = [{}, {"redirect_uris": []}, {"redirect_uris": None}]
        for body in [*bodies, {"grant_types": ["authorization_code"]}]:
            found = refused(body)
            assert (found.code, found.pointer) == ("invalid_redirect_uri", "/redirect_uris")

    def test_only_a_client_that_authenticates_may_go_without_pkce(self) -> None:
        assert defined(WEB | {"require_pkce": False}).require_pkce is False
        assert refused(PUBLIC | {"require_pkce": False}).pointer == "/require_pkce"

    def test_a_nonce_is_dispensable_only_beside_pkce(self) -> None:
        neither = {"require_pkce": False, "require_nonce": False}
        assert defined(WEB | neither).require_nonce is False
        assert refused(PUBLIC | neither).pointer == "/require_pkce"
        for sent in ({"require_nonce": False}, {"require_nonce": False, "require_pkce": True}):
            for body in (WEB, PUBLIC, KEYED):
                found = refused(body | sent)
                assert (found.code, found.pointer) == ("invalid_client_metadata", "/require_nonce")
                assert "only if require_pkce is false" in found.detail


class TestRedefining:
    def test_nothing_sent_changes_nothing(self) -> None:
        for body in (MACHINE, WEB, NATIVE, PUBLIC, KEYED, PUBLISHED):
            known = defined(body)
            assert defined({}, known) == known
            assert defined({"client_id": known.id}, known) == known

    @pytest.mark.parametrize(("member", "value"), [(member, values[0]) for member, values in RIGHT])
    def test_only_what_is_sent_changes_and_null_takes_it_back(self, member: str, value: Any) -> None:
        known = defined(MACHINE)
        changed = defined({"client_id": known.id, member: value}, known)
        assert changed == msgspec.structs.replace(known, **{member: value})
        assert defined({member: None}, changed) == known

    def test_what_was_registered_stays(self) -> None:
        known = defined(MACHINE | {"client_name": "Billing", "metadata": {"a": "b"}, "claims": {"team": "blue"}})
        assert defined({"client_name": None}, known) == msgspec.structs.replace(known, client_name=None)

    @pytest.mark.parametrize("member", ["secrets", "id", "account", "explicit_grants", "created_at", "clientname", ""])
    def test_an_unknown_member_is_named(self, member: str) -> None:
        for value in ("x", None):
            found = refused({member: value}, defined(MACHINE))
            assert (found.code, found.pointer) == ("invalid_client_metadata", f"/{member}")
            assert found.detail.startswith(f"{member}: unknown member; a client has client_id, client_name, ")

    @pytest.mark.parametrize(
        ("before", "sent", "pointer"),
        [
            (MACHINE, {"token_endpoint_auth_method": "none"}, "/grant_types"),
            (KEYED, {"token_endpoint_auth_method": "none"}, "/grant_types"),
            (PUBLIC, {"grant_types": ["authorization_code", "client_credentials"]}, "/grant_types"),
            (PUBLIC, {"grants": [{"grant_type": TOKEN_EXCHANGE, "scopes": []}]}, "/grant_types"),
            (MACHINE, {"grant_types": ["authorization_code"]}, "/redirect_uris"),
            (MACHINE, {"grant_types": None}, "/redirect_uris"),
            (WEB, {"redirect_uris": None}, "/redirect_uris"),
            (WEB, {"redirect_uris": []}, "/redirect_uris"),
            (NATIVE, {"application_type": "web"}, "/redirect_uris"),
            (NATIVE, {"application_type": None}, "/redirect_uris"),
            (MACHINE, {"token_endpoint_auth_method": "private_key_jwt"}, "/jwks"),
            (KEYED, {"jwks": None}, "/jwks"),
            (KEYED, URI, "/jwks_uri"),
            (PUBLISHED, {"jwks_uri": None}, "/jwks"),
            (PUBLISHED, {"jwks": {"keys": [KEY]}}, "/jwks_uri"),
            (WEB | {"require_pkce": False}, {"token_endpoint_auth_method": "none"}, "/require_pkce"),
            (
                WEB | {"max_concurrent_token_requests": 8},
                {"token_endpoint_auth_method": "none"},
                "/max_concurrent_token_requests",
            ),
            (PUBLIC, {"require_pkce": False}, "/require_pkce"),
            (WEB, {"require_nonce": False}, "/require_nonce"),
            (WEB | {"require_pkce": False, "require_nonce": False}, {"require_pkce": True}, "/require_nonce"),
            (WEB | {"require_pkce": False, "require_nonce": False}, {"require_pkce": None}, "/require_nonce"),
            (MACHINE | {"scope": "gatepost:clients"}, WEB | {"grant_types": ["authorization_code"]}, "/scope"),
            (WEB | {"scope": "openid"}, MACHINE, "/scope"),
            (PUBLIC, {"rotate_secret": True}, "/rotate_secret"),
            (MACHINE, KEYED | {"rotate_secret": True}, "/rotate_secret"),
        ],
    )  # fmt: skip
    def test_the_client_as_it_would_become_is_checked(
        self, before: dict[str, Any], sent: dict[str, Any], pointer: str
    ) -> None:
        assert refused(sent, defined(before)).pointer == pointer

    def test_a_client_may_change_how_it_authenticates(self) -> None:
        with_secret = clients.with_secret(defined(MACHINE), b"h" * 32, secret_rotation.OVERLAP, NOW)
        keyed = definition(KEYED, with_secret)
        assert keyed.client.secrets == []
        assert not keyed.needs_secret
        back = definition({"token_endpoint_auth_method": None}, keyed.client)
        assert back.client.token_endpoint_auth_method == "client_secret_basic"
        assert back.needs_secret

    def test_response_types_follow_the_grant_types(self) -> None:
        machine = defined(MACHINE)
        by_types = defined(WEB | {"grant_types": ["authorization_code"]}, machine)
        by_grants = defined(WEB | {"grants": [{"grant_type": "authorization_code", "scopes": []}]}, machine)
        assert by_types.response_types == by_grants.response_types == ["code"]
        assert defined(MACHINE, by_types).response_types == []
        given = {"grants": [{"grant_type": "client_credentials", "scopes": []}]}
        assert defined(given, by_types).response_types == []


STRICT: dict[str, Any] = KEYED | {"id_token_signed_response_alg": "ES256"}
PEOPLE: dict[str, Any] = STRICT | WEB | {"grant_types": ["authorization_code"]}
UNFIT: list[tuple[dict[str, Any], str]] = [
    (MACHINE | {"token_endpoint_auth_method": None}, "/token_endpoint_auth_method"),
    (MACHINE | {"token_endpoint_auth_method": "client_secret_post"}, "/token_endpoint_auth_method"),
    (PUBLIC, "/token_endpoint_auth_method"),
    (PEOPLE | {"id_token_signed_response_alg": "RS256"}, "/id_token_signed_response_alg"),
    (STRICT | {"jwks": {"keys": [RSA | {"alg": "RS256"}]}}, "/jwks"),
    (STRICT | {"jwks": {"keys": [KEY | {"kid": "1"}, RSA | {"kid": "2", "alg": "RS256"}]}}, "/jwks"),
    (PEOPLE | {"require_pkce": False}, "/require_pkce"),
    (PEOPLE | {"require_pkce": False, "require_nonce": False}, "/require_pkce"),
    (PEOPLE | {"redirect_uris": ["http://127.0.0.1/callback"]}, "/redirect_uris"),
    (PEOPLE | {"redirect_uris": ["https://app.example.com/", "http://localhost:8080/"]}, "/redirect_uris"),
]


class TestFapi2:
    """The contract, section 2: private_key_jwt only, no RS256, and PKCE always."""

    @pytest.mark.parametrize(
        "body",
        [
            STRICT,
            PEOPLE,
            PUBLISHED,
            STRICT | {"id_token_signed_response_alg": "EdDSA"},
            STRICT | {"id_token_signed_response_alg": "RS256"},  # a machine has no ID tokens
            *(STRICT | {"jwks": {"keys": [RSA | alg]}} for alg in ({"alg": "PS256"}, {})),
            STRICT | {"jwks": {"keys": [OKP | {"alg": "EdDSA"}]}},
            STRICT | {"jwks": {"keys": [KEY | {"alg": "ES256"}]}},
        ],
    )
    def test_fit(self, body: dict[str, Any]) -> None:
        made = defined(body, strict=True)
        assert client_rules.fapi2_violation(made) is None
        assert defined({"client_name": "x"}, made, strict=True).client_name == "x"

    @pytest.mark.parametrize(("body", "pointer"), UNFIT)
    def test_unfit_is_refused_by_name(self, body: dict[str, Any], pointer: str) -> None:
        found = refused(body, strict=True)
        assert found.pointer == pointer
        assert found.code == ("invalid_redirect_uri" if pointer == "/redirect_uris" else "invalid_client_metadata")
        made = defined(body)
        assert "/" + (client_rules.fapi2_violation(made) or ("", ""))[0] == pointer, (
            "so the profile is refused while it is there"
        )

    @pytest.mark.parametrize(("body", "pointer"), UNFIT)
    def test_a_fit_client_does_not_become_unfit(self, body: dict[str, Any], pointer: str) -> None:
        assert refused(body, defined(PEOPLE, strict=True), strict=True).pointer == pointer

    def test_id_tokens_are_signed_by_es256_where_nothing_is_said(self) -> None:
        assert defined(KEYED, strict=True).id_token_signed_response_alg == "ES256"
        chosen = defined(KEYED | {"id_token_signed_response_alg": "EdDSA"}, strict=True)
        assert defined({"client_name": "x"}, chosen, strict=True).id_token_signed_response_alg == "EdDSA"
        assert (
            defined({"id_token_signed_response_alg": None}, chosen, strict=True).id_token_signed_response_alg == "ES256"
        )
        assert defined({"id_token_signed_response_alg": None}, chosen).id_token_signed_response_alg == "RS256"


class TestStatus:
    def test_disabled_and_back(self) -> None:
        known = defined(MACHINE)
        disabled = defined({"status": "disabled"}, known)
        assert (known.active, disabled.active) == (True, False)
        assert defined({"status": "active"}, disabled) == known
        assert defined({"client_name": "x"}, disabled).status == "disabled"

    def test_public_is_who_does_not_authenticate(self) -> None:
        assert defined(PUBLIC).public
        assert not defined(MACHINE).public
        assert not defined(KEYED).public


def test_operations_are_the_scopes_of_the_service_it_can_obtain() -> None:
    assert defined(MACHINE | {"scope": "a gatepost:clients gatepost:events"}).operations() == {
        "gatepost:clients", "gatepost:events"
    }  # fmt: skip
    assert Client("", "", NOW, NOW, scope="gatepost:other gatepost:").operations() == set()
