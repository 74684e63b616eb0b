"""Members of clients and scopes that are refused by name, when a client is created and when it is redefined.

The tables are also the source of the requests in tests/flows/test_bad_definitions.py, which sends one value of each
member over HTTP.
"""

from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey

from gatepost.core.errors import Refusal
from gatepost.egress.address_guard import Policy, url_problem
from gatepost.oauth import scopes
from gatepost.oauth.scopes import PROTOCOL_CLAIMS
from tests.rsa_keys import rsa_key
from tests.unit.clients import ACCOUNT, BASE_URL, MACHINE, NOW, defined, refused

KEY = dict(ECKey.generate_key("P-256").as_dict(private=False))
PRIVATE = dict(ECKey.generate_key("P-256").as_dict(private=True))
RSA = dict(rsa_key().as_dict(private=False))
SHORT_RSA = RSA | {"n": str(RSA["n"])[:171]}
SHARED = dict(OctKey.generate_key(256).as_dict(private=True))
GRANT: dict[str, Any] = {"grant_type": "client_credentials", "scopes": []}
EXCHANGE: dict[str, Any] = {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "scopes": []}
NO_EXCHANGE: list[dict[str, Any]] = [{"exchange": how} for how in ("", "both", "Delegation", 5, 0, True)]
NO_LIFETIMES: list[Any] = [0, -1, 59, 86_401, 10**15, True, False, 3600.0, 60.5, "3600", "", [], {}]


def key_with(member: str, *values: Any) -> list[Any]:
    return [{"keys": [KEY | {member: value}]} for value in values]


def grant_with(member: str, *values: Any) -> list[Any]:
    return [[GRANT | {member: value}] for value in values]


BAD_CLIENT: dict[str, list[Any]] = {
    "access_token_lifetime": NO_LIFETIMES,
    "refresh_token_lifetime": [3599, 365 * 86_400 + 1, 0, -3600, True, 3600.0, "3600", [], {}],
    "client_name": ["", "a" * 201, 5, [], {}],
    "grant_types": [[], ["password"], ["implicit"], ["client_credentials"] * 2, [[]], "client_credentials", 5],
    "response_types": [["token"], ["code", "id_token"], ["code", "code"], [5], {}, "", "code"],
    "scope": ["a  b", " a", 'a"b', "é", "a" * 129, 5, ["a"], "openid"],
    "token_endpoint_auth_method": ["client_secret_jwt", "tls_client_auth", "", 5, ["none"]],
    "contacts": ["a@b.example", [5], [""], ["a"] * 21],
    "client_uri": ["javascript:alert(1)", "data:text/html,x", "/home", "https://", "", 5],
    "logo_uri": ["JavaScript:alert(1)", "https://a b", "file:///etc/passwd"],
    "tos_uri": ["ftp://a.example", "https://" + "a" * 2048],
    "policy_uri": ["https:a.example", "https://é.example"],
    "software_id": ["", "a" * 201, 5],
    "software_version": ["", 1.0],
    "application_type": ["desktop", 5],
    "id_token_signed_response_alg": ["none", "HS256", 5],
    "id_token_claims": [0, 1, "true", [], {}],
    "dpop_bound_access_tokens": [0, 1, "false", "true", [], {}],
    "serves": ["https://a.example", [5], ["api"], ["x:#y"]],
    "claims": [[], "a", {"": 1}, {str(n): n for n in range(21)}, {"a": "b" * 4096}, *[{n: 1} for n in PROTOCOL_CLAIMS]],
    "require_pkce": [0, 1, "true", []],
    "require_nonce": [0, 1, "true", [], False],
    "status": ["deleted", "suspended", 5, []],
    "metadata": [{"a": 1}, {"": "a"}, {"a": "b" * 513}, {str(n): "" for n in range(51)}, []],
    "rotate_secret": [1, "yes", {}, *[{"overlap": n} for n in (-1, True, 2_592_001, 0.5, "60", None, 10**15)]],
    "jwks": [
        {}, {"keys": []}, [], "x", {"keys": [KEY] * 2}, *[{"keys": [key]} for key in ({}, PRIVATE, SHARED, SHORT_RSA)],
        *key_with("x", 5, "", "AAAA", None, []), *key_with("kid", 5, [], {}), *key_with("alg", "HS256", "none", 5, []),
    ],
    "jwks_uri": ["", 5, [], {"keys": [KEY]}, "https://a.example/".ljust(2049, "a")],
    "grants": [
        [], {}, "x", [5], [None], [[]], [{}], [GRANT] * 2,
        *grant_with("grant_type", "password", [], {}, 5, None),
        *grant_with("scopes", "a", [5], [""], ["a b"], None, ["openid"]),
        *grant_with("status", [], "x", None),
        *grant_with("id", "grt_1", 5, []),
        *grant_with("access_token_lifetime", -1, True, [], "60"),
        *grant_with("exchange", "delegation", "impersonation", "both", 5, []),
        *[[EXCHANGE | how] for how in NO_EXCHANGE],
        *grant_with("secret", "x"), [{"grant_type": "refresh_token", "scopes": ["gatepost:clients"]}],
    ],
}  # fmt: skip

BAD_JWKS_URIS = [
    "a.example/jwks", "ftp://a.example/", "file:///etc/passwd", "javascript:alert(1)",
    "https://user@a.example/", "https://a.example/#x", "https://a b.example/", "https://é.example/", "https://",
    "http://169.254.169.254/", "https://[fd00:ec2::254]/", "https://metadata.google.internal/", "https://0/",
    "https://2130706433/", "https://a.example:22/",
]  # fmt: skip
BAD_REDIRECT_URIS = [
        "javascript:alert(1)", "JavaScript:alert(1)", "javascript://app.example.com/%0aalert(1)", "data:text/html,x",
        "vbscript:x", "file:///etc/passwd", "urn:ietf:wg:oauth:2.0:oob", "about:blank", "mailto:a@b.example",
        "https://app.example.com/cb#", "https://app.example.com/cb#frag", "https://app.example.com#", "https://#",
        "https://user@app.example.com/cb", "https://user:pw@app.example.com/cb", "https://@app.example.com/cb",
        "http://localhost:80@evil.example/", "http://127.0.0.1@evil.example/", "https://app.example.com@evil.example",
        "http://app.example.com/cb", "http://127.0.0.1.evil.example/", "http://localhost.evil.example/",
        "http://127.1/", "http://2130706433/", "http://0177.0.0.1/", "http://0.0.0.0/", "http://[::]/", "http://[::2]/",
        "https://", "https:///cb", "https:app.example.com", "https:/app.example.com", "//app.example.com/cb", "/cb",
        "app.example.com/cb", "", " ", "https://app.example.com/ cb", " https://app.example.com/cb",
        "https://app.example.com/cb\n", "https://app.example.com/\tcb", "https://app.example.com\\@evil.example/",
        "https:\\\\app.example.com", "https://*.example.com/cb", "https://*/cb", "https://é.example/cb", "https://a%2e/",
        "HTTPS://app.example.com/cb", "https://app.example.com:99999/", "https://app.example.com:x/", "https://[::1",
        "https://[x]/", "com.example.app:/cb", "https://app.example.com/" + "a" * 2048, "*", "https://a,b.example/",
    ]  # fmt: skip
BAD_SCOPE: dict[str, list[Any]] = {
    "name": ["", "a b", 'a"', "a\\", "é", "a" * 129, "openid", "offline_access", "gatepost:x", None, 5, []],
    "description": ["a" * 501, 5, []],
    "resource": [
        "", "api", "https://", "https://a#b", "https://a b", "HTTPS://a", "https://A.example", "https://a.example:443",
        "http://a.example:80", "https://a:x", "//a.example", "urn:gatepost:acc_x", BASE_URL, f"{BASE_URL}/",
        "a" * 513, 5, [],
    ],
    "claims": ["email", [5], [""], ["a"] * 51, ["sub"], ["email", "aud"], ["a\n"], {}],
    "max_lifetime": NO_LIFETIMES,
    "status": ["active ", "disabled", 5, []],
    "redefine": [None, 0, 1, "true"],
    **{unknown: ["x"] for unknown in ("id", "account", "owner", "é", "a" * 500)},
}  # fmt: skip


@pytest.mark.parametrize(("member", "value"), [(name, value) for name, bad in BAD_CLIENT.items() for value in bad])
def test_a_client_member_is_refused_by_name(member: str, value: Any) -> None:
    for refusal in (refused(MACHINE | {member: value}), refused({member: value}, defined(MACHINE))):
        assert refusal.code == "invalid_client_metadata"
        assert member in refusal.detail


@pytest.mark.parametrize("uri", BAD_JWKS_URIS)
def test_the_address_guard_refuses_a_jwks_uri(uri: str) -> None:
    assert url_problem(Policy(), uri)


@pytest.mark.parametrize("members", [{}, {"application_type": "web"}])
@pytest.mark.parametrize("uri", BAD_REDIRECT_URIS)
def test_a_redirect_uri_is_refused(uri: str, members: dict[str, Any]) -> None:
    refusal = refused({"redirect_uris": ["https://app.example.com/cb", uri]} | members)
    assert refusal.code == "invalid_redirect_uri"
    assert "redirect_uris" in refusal.detail


@pytest.mark.parametrize(
    "uris", ["https://a.example", [5], [None], [["https://a.example"]], {}, ["https://a.example"] * 2]
)
def test_redirect_uris_are_a_list_of_distinct_strings(uris: Any) -> None:
    refusal = refused({"redirect_uris": uris})
    assert refusal.code == "invalid_redirect_uri"
    assert "redirect_uris" in refusal.detail


@pytest.mark.parametrize("uri", ["myapp:/cb", "javascript:x", "com.example.App:/cb", "a.b:/cb#x", ".a:/cb", "a.b"])
def test_a_redirect_uri_of_a_native_application_is_refused(uri: str) -> None:
    refusal = refused({"redirect_uris": [uri], "application_type": "native"})
    assert refusal.code == "invalid_redirect_uri"
    assert "redirect_uris" in refusal.detail


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("https://app.example.com/cb?x=1&y=%2F", "web"),
        ("https://app.example.com:8443", "web"),
        ("http://localhost/cb", "web"),
        ("http://127.0.0.1:3000/cb", "native"),
        ("http://[::1]/cb", "native"),
        ("com.example.app:/cb", "native"),
    ],
)
def test_an_accepted_redirect_uri_is_stored_unchanged(uri: str, kind: str) -> None:
    assert defined({"redirect_uris": [uri], "application_type": kind}).redirect_uris == [uri]


@pytest.mark.parametrize(
    ("body", "member"),
    [
        ({}, "redirect_uris"),
        ({"grant_types": ["authorization_code"]}, "redirect_uris"),
        (MACHINE | {"token_endpoint_auth_method": "none"}, "grant_types"),
        (MACHINE | {"token_endpoint_auth_method": "private_key_jwt"}, "jwks"),
        (
            {"redirect_uris": ["https://a.example"], "token_endpoint_auth_method": "none", "require_pkce": False},
            "require_pkce",
        ),
        (
            {"redirect_uris": ["https://a.example"], "token_endpoint_auth_method": "none", "rotate_secret": True},
            "rotate_secret",
        ),
        (MACHINE | {"scope": "offline_access"}, "scope"),
        ({"redirect_uris": ["https://a.example"], "scope": "gatepost:clients"}, "scope"),
    ],
)
def test_members_that_do_not_fit_together_are_refused(body: dict[str, Any], member: str) -> None:
    refusal = refused(body)
    assert refusal.status == 400
    assert refusal.detail.startswith(f"{member}: ")


@pytest.mark.parametrize(("member", "value"), [(name, value) for name, bad in BAD_SCOPE.items() for value in bad])
def test_a_scope_member_is_refused_by_name(member: str, value: Any) -> None:
    refusal = scopes.define({"name": "bad:scope"} | {member: value}, None, account=ACCOUNT, base_url=BASE_URL, at=NOW)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "invalid_request"
    assert refusal.detail.startswith(f"{member[:64]}: ")
