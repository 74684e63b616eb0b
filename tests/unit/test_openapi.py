"""openapi.json is what the code says, describes the six operations and no other, and agrees with the code's checks."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from joserfc.jwk import ECKey

import gatepost
from gatepost import clients, openapi, scopes
from gatepost.clients import TOKEN_EXCHANGE, Definition
from gatepost.errors import ERRORS
from gatepost.web.app import ROUTES

DOCUMENT = openapi.document()
SIX = {
    ("post", "/oauth/clients"), ("post", "/oauth/scopes"), ("post", "/oauth/tokens"),
    ("post", "/webhooks/endpoints"), ("post", "/webhooks/subscriptions"), ("get", "/webhooks/deliveries"),
}  # fmt: skip
KEY = dict(ECKey.generate_key("P-256").as_dict(private=False))
NOW = datetime(2026, 11, 15, tzinfo=UTC)
BASE_URL = "https://gatepost.example"


def schema(name: str) -> jsonschema_rs.Draft202012Validator:
    reference = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(reference)


def test_the_committed_file_is_the_document_of_the_code() -> None:
    committed = Path(gatepost.__file__).with_name("openapi.json").read_text("utf-8")
    assert committed == openapi.text(), "run: make openapi"


def test_exactly_the_six_operations() -> None:
    described = {(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    served = {(m.lower(), path) for path, route in ROUTES.items() if route.surface == "six" for m in route.methods}
    assert described == SIX
    assert served == SIX


def test_every_reference_leads_somewhere() -> None:
    references = set(re.findall(r'"\$ref": "#/([^"]+)"', openapi.text()))
    assert references
    for reference in references:
        found: Any = DOCUMENT
        for step in reference.split("/"):
            found = found[step]


@pytest.mark.parametrize("body", ["ClientRegistration", "ClientRedefinition", "Client"])
def test_every_client_member_is_described(body: str) -> None:
    described = set(DOCUMENT["components"]["schemas"][body]["properties"])
    assert set(clients.MEMBERS) <= described
    assert described - set(clients.MEMBERS) <= {
        "client_id", "client_id_issued_at", "client_secret", "client_secret_expires_at", "account", "secrets",
        "grants", "rotate_secret", "jwks_uri",
    }  # fmt: skip


def test_every_grant_and_scope_member_is_described() -> None:
    assert set(openapi.GRANT) == set(clients.GRANT_MEMBERS)
    assert set(DOCUMENT["components"]["schemas"]["ScopeDefinition"]["properties"]) == set(scopes.MEMBERS)


def test_operations_require_the_scope_that_they_check() -> None:
    operations = [found for methods in DOCUMENT["paths"].values() for found in methods.values()]
    required = [each["security"][0]["token"] for each in operations if "token" in each["security"][0]]
    assert required == [[name] for name in scopes.OPERATIONS if name != "gatepost:events"]
    assert set(DOCUMENT["components"]["securitySchemes"]) == {"client", "token"}


def test_refusals_are_those_of_the_table() -> None:
    told = {code for operation in openapi.OPERATIONS.values() for code in operation.codes}
    not_of_one_operation = {"method_not_allowed", "server_error", "misdirected_request"}
    assert told == set(ERRORS) - not_of_one_operation - {"invalid_grant"}  # of grants to come
    for (method, path), operation in openapi.OPERATIONS.items():
        statuses = set(DOCUMENT["paths"][path][method.lower()]["responses"])
        assert {str(ERRORS[code].status) for code in operation.codes} <= statuses


TEXT = [None, "", "a", "é" * 200, "a" * 201, 5, ["a"]]
AGREEMENT: dict[str, list[Any]] = {
    "client_name": TEXT,
    "software_id": TEXT,
    "software_version": TEXT,
    "contacts": [[], ["a@example.com"], ["a"] * 20, ["a"] * 21, [""], ["a" * 321], "a@example.com", [5]],
    "grant_types": [[], ["client_credentials"], ["client_credentials"] * 2, ["password"], ["implicit"], [[]], "code"],
    "response_types": [["code"], [], ["token"], ["code", "code"], ["code", "id_token"], "code"],
    "scope": ["", "a", "a b", " a", "a ", "a  b", 'a"b', "a\\b", "é", "a\tb", "a" * 128, "a" * 129, 5, ["a"]],
    "token_endpoint_auth_method": ["none", "client_secret_jwt", "", 5, None],
    "jwks": [{"keys": [KEY]}, {"keys": []}, {}, [], "x", {"keys": [{}]}, {"keys": [KEY | {"d": "AA"}]},
             {"keys": [KEY | {"kty": "oct"}]}, {"keys": [KEY | {"crv": "P-384"}]}, {"keys": [KEY | {"alg": "HS256"}]},
             {"keys": [KEY | {"alg": "ES256", "kid": "1"}]}, {"keys": [KEY | {"x": 5}]}],
    "client_uri": ["https://a.example", "http://a/b?c#d", "https://[::1]:8/", "ftp://a", "javascript:alert(1)",
                   "https://", "https://a b", "https://é.example", "//a", "", 5, "https://a/" + "a" * 2048],
    "application_type": ["web", "native", "Web", "", None, 5],
    "id_token_signed_response_alg": ["RS256", "ES256", "EdDSA", "none", "HS256", 5],
    "dpop_bound_access_tokens": [False, True, 0, 1, None, "false"],
    "access_token_lifetime": [60, 86_400, 59, 86_401, 0, -1, True, 60.5, "60", 1 << 70, [60]],
    "refresh_token_lifetime": [3600, 365 * 86_400, 3599, 365 * 86_400 + 1, -3600, False, "3600"],
    "serves": [[], ["https://api.example.com"], ["urn:x:y"], ["api"], [""], ["https://a#b"], "https://a", [5],
               ["https://a"] * 51, ["https://a b"], ["https://" + "a" * 512]],
    "claims": [{}, {"a": 1}, {"": 1}, {"a" * 128: 1}, {"a" * 129: 1}, {str(n): 1 for n in range(20)},
               {str(n): 1 for n in range(21)}, [], "a", *({name: 1} for name in sorted(scopes.PROTOCOL_CLAIMS))],
    "require_pkce": [True, False, 1, 0, "true"],
    "status": ["active", "disabled", "deleted", 1],
    "metadata": [{}, {"a": "b"}, {"a": 1}, {"": "a"}, {"a" * 65: ""}, {"a": "b" * 513}, {"a": None}, [],
                 {str(n): "" for n in range(51)}],
}  # fmt: skip
AGREEMENT |= dict.fromkeys(["logo_uri", "tos_uri", "policy_uri"], AGREEMENT["client_uri"])
AGREEMENT |= {"redirect_uris": [[], ["https://a/b"], ["https://a/b"] * 2, "https://a/b", [5], [""]]}
SHOWN_ONE_BY_ONE = [(member, value) for member, values in AGREEMENT.items() for value in values]


def test_no_client_member_is_left_out_below() -> None:
    assert set(AGREEMENT) == set(clients.MEMBERS)


@pytest.mark.parametrize(("member", "value"), SHOWN_ONE_BY_ONE)
def test_schema_and_check_agree_on_a_member(member: str, value: Any) -> None:
    accepted = value is None or clients.MEMBERS[member](value) == ""
    assert schema(f"ClientRegistration/properties/{member}").is_valid(value) == accepted


MACHINE = {"grant_types": ["client_credentials"]}
WEB = {"redirect_uris": ["https://app.example.com/callback"]}
NATIVE = {"redirect_uris": ["com.example.app:/callback"], "application_type": "native"}
EXCHANGE = {"grants": [{"grant_type": TOKEN_EXCHANGE, "scopes": []}]}
PUBLIC = {"token_endpoint_auth_method": "none"}
KEYED = {"token_endpoint_auth_method": "private_key_jwt"}


@pytest.mark.parametrize(
    ("body", "right"),
    [
        (MACHINE, True),
        (MACHINE | {"anything": "else"}, True),
        (WEB, True),
        (NATIVE, True),
        (EXCHANGE, True),
        ({}, False),
        ({"grant_types": None}, False),
        ({"grants": [{"grant_type": "authorization_code", "scopes": []}]}, False),
        (MACHINE | {"jwks_uri": "https://a.example/jwks"}, False),
        (MACHINE | PUBLIC, False),
        (EXCHANGE | PUBLIC, False),
        (WEB | PUBLIC, True),
        (WEB | PUBLIC | {"require_pkce": False}, False),
        (WEB | {"require_pkce": False}, True),
        (WEB | PUBLIC | {"rotate_secret": True}, False),
        (MACHINE | KEYED, False),
        (MACHINE | KEYED | {"jwks": None}, False),
        (MACHINE | KEYED | {"jwks": {"keys": [KEY]}}, True),
        (MACHINE | {"rotate_secret": {"overlap": 0}}, True),
        (MACHINE | {"rotate_secret": {"overlap": -1}}, False),
        (MACHINE | {"rotate_secret": {"overlap": 60, "more": 1}}, False),
        (MACHINE | {"rotate_secret": "yes"}, False),
        (NATIVE | {"application_type": "web"}, False),
        (MACHINE | {"grants": []}, False),
        (MACHINE | {"grants": [{"grant_type": "client_credentials", "scopes": [], "secret": 1}]}, False),
    ],
)
def test_schema_and_rules_agree_on_a_whole_client(body: dict[str, Any], right: bool) -> None:
    defined = clients.define(body, None, account="acc", base_url=BASE_URL, at=NOW)
    assert isinstance(defined, Definition) == right, defined
    assert schema("ClientDefinition").is_valid(body) == right


@pytest.mark.parametrize(
    ("members", "right"),
    [
        ({}, True),
        ({"name": "a" * 128}, True),
        *[({"name": name}, False) for name in ("", "a b", "é", "a" * 129, 'a"', "openid", "gatepost:x", None, 5)],
        ({"description": "a" * 500, "claims": ["email"], "max_lifetime": 60, "status": "retired"}, True),
        ({"description": None, "resource": None, "claims": None, "max_lifetime": None, "status": None}, True),
        *[({"description": text}, False) for text in ("a" * 501, 5)],
        *[({"resource": text}, False) for text in ("api", "https://a#b", "https://a b", "HTTPS://a", "", 5)],
        *[({"claims": names}, False) for names in (["sub"], [""], ["a"] * 51, "email", [5])],
        *[({"max_lifetime": seconds}, False) for seconds in (59, 86_401, -60, True, 60.5, "60")],
        *[({"status": status}, False) for status in ("disabled", 5)],
        *[({"redefine": flag}, False) for flag in (None, 1, "true")],
        ({"owner": "me"}, False),
    ],
)
def test_schema_and_rules_agree_on_a_scope(members: dict[str, Any], right: bool) -> None:
    body = {"name": "invoices:read"} | members
    defined = scopes.define(body, None, account="acc", base_url=BASE_URL, at=NOW)
    assert isinstance(defined, scopes.Scope) == right, defined
    assert schema("ScopeDefinition").is_valid(body) == right
