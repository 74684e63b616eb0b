"""Members of clients and scopes that are not acceptable: refused by name, when creating and when redefining."""

from typing import Any

import pytest
import requests
from joserfc.jwk import ECKey, OctKey, RSAKey

from gatepost.oauth.scopes import OPERATIONS, PROTOCOL_CLAIMS
from tests.service import Client, Service
from tests.wire import check_refusal

MACHINE: dict[str, Any] = {"grant_types": ["client_credentials"]}
KEY = dict(ECKey.generate_key("P-256").as_dict(private=False))
PRIVATE = dict(ECKey.generate_key("P-256").as_dict(private=True))
RSA = dict(RSAKey.generate_key(2048).as_dict(private=False))
SHORT_RSA = RSA | {"n": str(RSA["n"])[:171]}
SHARED = dict(OctKey.generate_key(256).as_dict(private=True))
GRANT: dict[str, Any] = {"grant_type": "client_credentials", "scopes": []}
EXCHANGE: dict[str, Any] = {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "scopes": []}
NO_EXCHANGE: list[dict[str, Any]] = [{"exchange": how} for how in ("", "both", "Delegation", 5, 0, True)]
NO_LIFETIMES: list[Any] = [0, -1, 59, 86_401, 10**15, True, False, 3600.0, 60.5, "3600", "", [], {}]


class Definer:
    def __init__(self, gatepost: Service) -> None:
        self.gatepost = gatepost
        _, first = gatepost.account("bad-definitions")
        self.token = gatepost.token(first, " ".join(OPERATIONS))
        self.known: Client = gatepost.define_client(self.token, client_name="known")

    def client(self, body: dict[str, Any]) -> requests.Response:
        return self.gatepost.post("/oauth/clients", self.token, body)

    def scope(self, body: dict[str, Any]) -> requests.Response:
        return self.gatepost.post("/oauth/scopes", self.token, body)

    def shown(self) -> dict[str, Any]:
        return dict(self.client({"client_id": self.known.id}).json())


@pytest.fixture(scope="module")
def definer(gatepost: Service) -> Definer:
    return Definer(gatepost)


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
    "scope": ["nobody:knows", "a  b", " a", 'a"b', "é", "a" * 129, 5, ["a"], "openid"],
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
    "serves": ["https://a.example", [5], ["api"], ["https://nobody.example"], ["x:#y"]],
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
    "jwks_uri": [
        "", 5, [], {"keys": [KEY]}, "a.example/jwks", "ftp://a.example/", "file:///etc/passwd", "javascript:alert(1)",
        "https://user@a.example/", "https://a.example/#x", "https://a b.example/", "https://é.example/", "https://",
        "http://169.254.169.254/", "https://[fd00:ec2::254]/", "https://metadata.google.internal/", "https://0/",
        "https://2130706433/", "https://a.example:22/", "https://a.example/".ljust(2049, "a"),
    ],
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


@pytest.mark.parametrize(("member", "value"), [(name, value) for name, bad in BAD_CLIENT.items() for value in bad])
def test_a_client_member(definer: Definer, member: str, value: Any) -> None:
    """The same in both cases: what is refused when creating is refused when redefining, and changes nothing."""
    before = definer.shown()
    code = "invalid_client_metadata"
    check_refusal(definer.client(MACHINE | {member: value}), "/oauth/clients", code, member)
    check_refusal(definer.client({"client_id": definer.known.id, member: value}), "/oauth/clients", code, member)
    assert definer.shown() == before


@pytest.mark.parametrize(
    "uri",
    [
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
    ],
)  # fmt: skip
def test_a_redirect_uri(definer: Definer, uri: str) -> None:
    for members in ({}, {"application_type": "web"}):
        answer = definer.client({"redirect_uris": ["https://app.example.com/cb", uri]} | members)
        check_refusal(answer, "/oauth/clients", "invalid_redirect_uri", "redirect_uris")


@pytest.mark.parametrize(
    "uris", ["https://a.example", [5], [None], [["https://a.example"]], {}, ["https://a.example"] * 2]
)
def test_redirect_uris_are_a_list_of_different_texts(definer: Definer, uris: Any) -> None:
    check_refusal(definer.client({"redirect_uris": uris}), "/oauth/clients", "invalid_redirect_uri", "redirect_uris")


@pytest.mark.parametrize("uri", ["myapp:/cb", "javascript:x", "com.example.App:/cb", "a.b:/cb#x", ".a:/cb", "a.b"])
def test_a_native_redirect_uri(definer: Definer, uri: str) -> None:
    answer = definer.client({"redirect_uris": [uri], "application_type": "native"})
    check_refusal(answer, "/oauth/clients", "invalid_redirect_uri", "redirect_uris")


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
def test_good_redirect_uris_are_kept_as_they_are(definer: Definer, uri: str, kind: str) -> None:
    answer = definer.client({"redirect_uris": [uri], "application_type": kind})
    assert answer.status_code == 201, answer.text
    assert answer.json()["redirect_uris"] == [uri]


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
def test_a_whole_client(definer: Definer, body: dict[str, Any], member: str) -> None:
    answer = definer.client(body)
    assert answer.status_code == 400
    assert answer.json()["error_description"].startswith(f"{member}: ")


@pytest.mark.parametrize(
    "member", ["client_secret", "account", "owner", "id", "secrets", "created_at", "explicit_grants", "é", "a" * 500]
)
def test_an_unknown_member_is_ignored_when_creating_and_named_when_redefining(definer: Definer, member: str) -> None:
    created = definer.client(MACHINE | {member: "acc_00000000000000000000000000"})
    assert created.status_code == 201
    assert created.json().get(member) != "acc_00000000000000000000000000"
    answer = definer.client({"client_id": created.json()["client_id"], member: "x"})
    named = member[:64] if member.isascii() else "?"
    check_refusal(answer, "/oauth/clients", "invalid_client_metadata", f"{named}: unknown member")


@pytest.mark.parametrize(
    "client_id", [None, "", "cli_", 5, [], {}, "https://app.example.com", "cli_" + "0" * 26, "CLI_0"]
)
def test_a_client_id_is_never_chosen_by_the_caller(definer: Definer, client_id: Any) -> None:
    answer = definer.client(MACHINE | {"client_id": client_id})
    check_refusal(answer, "/oauth/clients", "not_found", "client_id")


BAD_SCOPE: dict[str, list[Any]] = {
    "name": ["", "a b", 'a"', "a\\", "é", "a" * 129, "openid", "offline_access", "gatepost:x", None, 5, []],
    "description": ["a" * 501, 5, []],
    "resource": [
        "", "api", "https://", "https://a#b", "https://a b", "HTTPS://a", "https://A.example", "https://a.example:443",
        "http://a.example:80", "https://a:x", "//a.example", "urn:gatepost:acc_x", "{base_url}", "{base_url}/",
        "a" * 513, 5, [],
    ],
    "claims": ["email", [5], [""], ["a"] * 51, ["sub"], ["email", "aud"], ["a\n"], {}],
    "max_lifetime": NO_LIFETIMES,
    "status": ["active ", "disabled", 5, []],
    "redefine": [None, 0, 1, "true"],
    **{unknown: ["x"] for unknown in ("id", "account", "owner", "é", "a" * 500)},
}  # fmt: skip


@pytest.mark.parametrize(("member", "value"), [(name, value) for name, bad in BAD_SCOPE.items() for value in bad])
def test_a_scope_member(definer: Definer, member: str, value: Any) -> None:
    if isinstance(value, str):
        value = value.replace("{base_url}", definer.gatepost.url)
    named = member[:64] if member.isascii() else "?"
    answer = definer.scope({"name": "bad:scope"} | {member: value})
    check_refusal(answer, "/oauth/scopes", "invalid_request", f"{named}: ")
    unknown = definer.client(MACHINE | {"scope": "bad:scope"})
    check_refusal(unknown, "/oauth/clients", "invalid_client_metadata", "bad:scope is not a scope of the account")
