"""Scopes: every member right and wrong, what may be redefined, and which resources a scope may be for."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gatepost.core.errors import Refusal
from gatepost.ledger.operations import OPERATIONS
from gatepost.oauth import resources, scopes
from gatepost.oauth.scopes import PROTOCOL_CLAIMS, Scope

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
BASE_URL = "https://gatepost.example"
ACCOUNT = "acc_06d8un0u5du3r3ifb9lnp3culs"
OWN = f"urn:gatepost:{ACCOUNT}"
FULL = {
    "name": "invoices:read",
    "description": "Read invoices.",
    "resource": "https://api.example.com",
    "claims": ["email"],
    "max_lifetime": 600,
    "status": "retired",
}


def define(sent: dict[str, Any], known: Scope | None = None, at: datetime = NOW) -> Scope | Refusal:
    return scopes.define(sent, known, account=ACCOUNT, base_url=BASE_URL, at=at)


def defined(sent: dict[str, Any], known: Scope | None = None, at: datetime = NOW) -> Scope:
    found = define({"name": "invoices:read"} | sent, known, at)
    assert isinstance(found, Scope), found
    return found


def refused(sent: dict[str, Any], known: Scope | None = None) -> Refusal:
    found = define({"name": "invoices:read"} | sent, known, LATER)
    assert isinstance(found, Refusal), found
    return found


class TestCreating:
    def test_a_name_alone_is_enough(self) -> None:
        made = defined({})
        assert made == Scope(ACCOUNT, "invoices:read", OWN, NOW, NOW)
        assert (made.description, made.claims, made.max_lifetime, made.status) == ("", [], None, "active")

    def test_every_member_is_kept_and_shown(self) -> None:
        assert scopes.render(defined(FULL)) == FULL | {
            "account": ACCOUNT,
            "created_at": "2026-11-15T08:00:00.000Z",
            "updated_at": "2026-11-15T08:00:00.000Z",
        }

    @pytest.mark.parametrize("name", ["a", "!", "~", "a" * 128, "a:b/c?d=e", "*", "Gatepost:x", "["])
    def test_names(self, name: str) -> None:
        assert defined({"name": name}).name == name

    @pytest.mark.parametrize(
        "name", [None, "", 5, [], {}, True, "a" * 129, "a b", " a", "a\t", 'a"b', "a\\b", "é", "a\0", "a\n", "a\x7f"]
    )
    def test_what_is_no_name(self, name: Any) -> None:
        found = refused({"name": name})
        assert (found.code, found.pointer) == ("invalid_request", "/name")

    def test_the_name_may_not_be_missing(self) -> None:
        for known in (None, defined(FULL)):
            found = define({"description": "x"}, known)
            assert isinstance(found, Refusal)
            assert found.pointer == "/name"

    @pytest.mark.parametrize("name", ["openid", "offline_access", *OPERATIONS, "gatepost:", "gatepost:anything"])
    def test_built_in_and_reserved_names(self, name: str) -> None:
        found = refused({"name": name})
        assert (found.code, found.pointer) == ("invalid_request", "/name")
        assert "reserved" in found.detail

    @pytest.mark.parametrize("member", ["owner", "account", "created_at", "id", "Name", "", "expires_in"])
    def test_an_unknown_member_is_named(self, member: str) -> None:
        found = refused({member: "x"})
        assert (found.code, found.pointer) == ("invalid_request", f"/{member}")
        assert found.detail.startswith(f"{member}: unknown member; a scope has name, description, resource")

    def test_a_long_member_is_named_in_short(self) -> None:
        assert len(refused({"x" * 5000: 1}).detail) < 250


RIGHT: list[tuple[str, Any]] = [
    ("description", ""), ("description", "a" * 500), ("description", "größer"),
    ("claims", []), ("claims", ["a"] * 50), ("claims", ["a" * 128]), ("claims", ["https://example.com/claim"]),
    ("max_lifetime", 60), ("max_lifetime", 86_400),
    ("status", "active"), ("status", "retired"),
]  # fmt: skip
WRONG: list[tuple[str, Any]] = [
    ("description", "a" * 501), ("description", 5), ("description", ["a"]), ("description", False),
    ("claims", ["a"] * 51), ("claims", ["a" * 129]), ("claims", [""]), ("claims", [5]), ("claims", "email"),
    ("claims", {"email": 1}), ("claims", ["a\nb"]), ("claims", [None]),
    ("max_lifetime", 59), ("max_lifetime", 86_401), ("max_lifetime", 0), ("max_lifetime", -60), ("max_lifetime", True),
    ("max_lifetime", 60.0), ("max_lifetime", "60"), ("max_lifetime", [60]),
    ("status", "disabled"), ("status", "Active"), ("status", ""), ("status", 1), ("status", ["active"]), ("status", {}),
    ("resource", 5), ("resource", ["https://api.example.com"]), ("resource", {}), ("resource", True),
    ("redefine", None), ("redefine", 1), ("redefine", "true"),
]  # fmt: skip


class TestMembers:
    @pytest.mark.parametrize(("member", "value"), RIGHT)
    def test_right(self, member: str, value: Any) -> None:
        assert getattr(defined({member: value}), member) == value

    @pytest.mark.parametrize(("member", "value"), WRONG)
    def test_wrong(self, member: str, value: Any) -> None:
        found = refused({member: value})
        assert (found.code, found.pointer) == ("invalid_request", f"/{member}")
        assert re.match(rf"{member}: (item \d+ )?must ", found.detail)

    @pytest.mark.parametrize("claim", sorted(PROTOCOL_CLAIMS))
    def test_protocol_claims_are_the_services_own(self, claim: str) -> None:
        found = refused({"claims": ["email", claim]})
        assert found.detail.startswith("claims: item 2 must be a claim name")

    def test_what_tokens_hold_is_protocol(self) -> None:
        """RFC 9068 section 2.2, RFC 7662 section 2.2, OIDC Core section 2, and ours."""
        assert {
            "iss", "sub", "aud", "exp", "iat", "nbf", "jti", "client_id", "scope", "account", "grant", "auth_time",
            "acr", "amr", "azp", "nonce", "at_hash", "c_hash", "cnf", "act", "active", "token_type", "username",
        } <= PROTOCOL_CLAIMS  # fmt: skip


# OIDC Core 1.0, section 5.4.
OIDC_CLAIMS = {
    "profile": {
        "name", "family_name", "given_name", "middle_name", "nickname", "preferred_username", "profile", "picture",
        "website", "gender", "birthdate", "zoneinfo", "locale", "updated_at",
    },
    "email": {"email", "email_verified"},
    "address": {"address"},
    "phone": {"phone_number", "phone_number_verified"},
}  # fmt: skip


@pytest.mark.parametrize("name", OIDC_CLAIMS)
class TestClaimsOfOpenID:
    def test_a_scope_of_that_name_takes_them(self, name: str) -> None:
        assert set(defined({"name": name}).claims) == OIDC_CLAIMS[name]

    def test_unless_it_says_which(self, name: str) -> None:
        assert defined({"name": name, "claims": ["nickname"]}).claims == ["nickname"]
        assert defined({"name": name, "claims": []}).claims == []

    def test_and_again_when_what_it_said_is_removed(self, name: str) -> None:
        known = defined({"name": name, "claims": []})
        again = defined({"name": name, "claims": None, "redefine": True}, known)
        assert set(again.claims) == OIDC_CLAIMS[name]


class TestRedefining:
    def test_the_same_definition_again_is_the_same_scope(self) -> None:
        known = defined(FULL)
        assert defined(FULL, known, LATER) == known
        assert defined(FULL | {"redefine": True}, known, LATER) == known

    def test_the_name_alone_changes_nothing(self) -> None:
        known = defined(FULL)
        assert defined({}, known, LATER) == known

    @pytest.mark.parametrize(
        ("member", "value"),
        [
            ("description", "Other."), ("resource", "https://other.example"), ("claims", []), ("max_lifetime", 601),
            ("status", "active"),
        ],
    )  # fmt: skip
    def test_another_definition_needs_to_be_meant(self, member: str, value: Any) -> None:
        known = defined(FULL)
        for sent in ({member: value}, FULL | {member: value}, {member: value, "redefine": False}):
            found = refused(sent, known)
            assert (found.code, found.status, found.pointer) == ("conflict", 409, "/name")
        changed = defined({member: value, "redefine": True}, known, LATER)
        assert scopes.render(changed) == scopes.render(known) | {
            member: value,
            "updated_at": "2026-11-15T09:00:00.000Z",
        }

    @pytest.mark.parametrize(
        ("member", "default"),
        [("description", ""), ("resource", OWN), ("claims", []), ("max_lifetime", None), ("status", "active")],
    )
    def test_null_removes(self, member: str, default: Any) -> None:
        known = defined(FULL)
        assert getattr(defined({member: None, "redefine": True}, known), member) == default
        assert refused({member: None}, known).code == "conflict"
        assert getattr(defined({member: None}), member) == default

    def test_a_wrong_member_is_refused_though_redefined(self) -> None:
        assert refused({"max_lifetime": 5, "redefine": True}, defined(FULL)).pointer == "/max_lifetime"
        assert refused({"redefine": "yes"}, defined(FULL)).pointer == "/redefine"


class TestResources:
    @pytest.mark.parametrize(
        "resource",
        [
            "https://api.example.com", "https://api.example.com/", "https://api.example.com/v1/Invoices?all=yes",
            "https://api.example.com:8443", "http://internal.example", "https://192.0.2.1", "https://[2001:db8::1]:8443",
            "urn:example:api", "urn:gatepostal:x", "tag:example.com,2026:api", "api:orders", "com.example.app://orders",
            "https://a/" + "a" * 502, "https://sub.gatepost.example", "https://gatepost.example/api",
            "https://gatepost.example:8443", "http://gatepost.example",
        ],
    )  # fmt: skip
    def test_right(self, resource: str) -> None:
        assert resources.problem(resource, BASE_URL) == ""
        assert defined({"resource": resource}).resource == resource

    @pytest.mark.parametrize(
        "resource",
        [
            "", "api", "/api", "//api.example.com", "?a", "api.example.com", "https:", "https://", "https:///path",
            "https:api.example.com", "https://:443", "urn:", "x:", ":x", "1:x", "ht tp://a", "https://a b",
            "https://api.example.com#", "https://api.example.com#fragment", "urn:example:a#b",
            "https://api.example.com\n", " https://api.example.com", "https://api.example.com\0", "https://äpi.example",
            "HTTPS://api.example.com", "https://API.example.com", "Urn:example:api", "https://api.example.com:443",
            "http://api.example.com:80", "https://api.example.com:0443", "https://api.example.com:",
            "https://api.example.com:99999", "https://api.example.com:x", "https://[::1", "https://a/" + "a" * 503,
        ],
    )  # fmt: skip
    def test_what_is_no_absolute_uri_in_its_one_form(self, resource: str) -> None:
        found = refused({"resource": resource})
        assert (found.code, found.pointer) == ("invalid_request", "/resource")
        assert found.detail.startswith("resource: must ")

    @pytest.mark.parametrize("resource", [BASE_URL, BASE_URL + "/", BASE_URL + "//"])
    def test_the_base_url_is_for_the_service_itself(self, resource: str) -> None:
        assert "base URL" in refused({"resource": resource}).detail

    @pytest.mark.parametrize("resource", [OWN, "urn:gatepost:acc_other", "urn:gatepost:", "urn:GatePost:acc_other"])
    def test_default_resources_are_never_named(self, resource: str) -> None:
        assert "urn:gatepost" in refused({"resource": resource}).detail

    def test_a_trailing_slash_makes_no_other_owner(self) -> None:
        assert resources.owned_as("https://api.example.com/") == resources.owned_as("https://api.example.com")
        assert resources.owned_as("https://api.example.com/a") != resources.owned_as("https://api.example.com")


@pytest.mark.parametrize("name", OIDC_CLAIMS)
def test_a_standard_scope_is_what_defining_its_name_alone_gives(name: str) -> None:
    found = scopes.standard(ACCOUNT, name)
    assert found is not None
    assert found.definition() == defined({"name": name}).definition() | {"description": found.description}
    assert found.description


@pytest.mark.parametrize("name", ["openid", "offline_access", "gatepost:clients", "Profile", "profile ", "read", ""])
def test_no_other_name_is_standard(name: str) -> None:
    assert scopes.standard(ACCOUNT, name) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [("", []), ("a", ["a"]), ("a b", ["a", "b"]), ("b a b", ["b", "a"]), ("a  b", ["a", "", "b"]), (" ", [""])],
)
def test_names_in_a_scope_value(text: str, names: list[str]) -> None:
    """The text between two spaces is a name, too, even if it is empty and therefore never granted."""
    assert scopes.split(text) == names


def test_the_built_in_scopes_are_the_contracts() -> None:
    assert set(OPERATIONS) == {
        "gatepost:clients", "gatepost:scopes", "gatepost:endpoints", "gatepost:subscriptions", "gatepost:deliveries",
        "gatepost:events",
    }  # fmt: skip
    assert set(scopes.BUILT_IN) == {"openid", "offline_access", *OIDC_CLAIMS, *OPERATIONS}
    assert all(scopes.BUILT_IN.values())
