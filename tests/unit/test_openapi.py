"""openapi.json is what the code says, describes the six operations and no other, and agrees with the code's checks."""

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jsonschema_rs
import pytest
from joserfc.jwk import ECKey

import gatepost
from gatepost.core import ids
from gatepost.core.errors import ERRORS, Refusal
from gatepost.egress.address_guard import Policy, url_problem
from gatepost.ledger import entries, operations
from gatepost.oauth import client_grants, client_rules, clients, scopes
from gatepost.oauth.authorize import handoff
from gatepost.oauth.client_grants import GRANT_TYPES, JWT_BEARER, TOKEN_EXCHANGE
from gatepost.oauth.client_rules import ClientDefinition
from gatepost.oauth.grants import GRANTS
from gatepost.oauth.grants.token_exchange import ACCESS_TOKEN, JWT
from gatepost.web import deliveries, openapi
from gatepost.web.app import ROUTES
from gatepost.web.tokens import ASSERTION_TYPE
from gatepost.webhooks import endpoint_rules, endpoints, subscriptions
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.listing import Query
from gatepost.webhooks.subscriptions import Subscription
from tests.unit.clients import PLAIN_MEMBERS

DOCUMENT = openapi.document()
SIX = {
    ("post", "/oauth/clients"), ("post", "/oauth/scopes"), ("post", "/oauth/tokens"),
    ("post", "/webhooks/endpoints"), ("post", "/webhooks/subscriptions"), ("get", "/webhooks/deliveries"),
}  # fmt: skip
KEY = dict(ECKey.generate_key("P-256").as_dict(private=False))
NOW = datetime(2026, 11, 15, tzinfo=UTC)
BASE_URL = "https://gatepost.example"


@cache
def schema(name: str) -> jsonschema_rs.Draft202012Validator:
    reference = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(reference)


def test_the_committed_file_is_the_document_of_the_code() -> None:
    committed = Path(gatepost.__file__).with_name("openapi.json").read_text("utf-8")
    assert committed == openapi.text(), "run: make openapi"


def test_exactly_the_six_operations() -> None:
    described = {(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    served = {(m.lower(), path) for path, route in ROUTES.items() if route.kind == "operation" for m in route.methods}
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
    assert described >= PLAIN_MEMBERS
    assert described - PLAIN_MEMBERS <= {
        "client_id", "client_id_issued_at", "client_secret", "client_secret_expires_at", "account", "secrets",
        "grants", "rotate_secret",
    }  # fmt: skip


def test_every_grant_and_scope_member_is_described() -> None:
    registration = DOCUMENT["components"]["schemas"]["ClientRegistration"]["properties"]
    assert set(registration["grants"]["items"]["properties"]) == set(client_grants.GRANT_MEMBERS.request)
    assert set(DOCUMENT["components"]["schemas"]["ScopeDefinition"]["properties"]) == set(scopes.MEMBERS.request)


def test_every_endpoint_and_subscription_member_is_described() -> None:
    described = {name: set(each.get("properties", {})) for name, each in DOCUMENT["components"]["schemas"].items()}
    assert described["EndpointCreation"] == set(endpoints.MEMBERS.request) - {"id"}
    assert described["EndpointRedefinition"] == set(endpoints.MEMBERS.request) - {"secret"}
    assert described["SubscriptionCreation"] == set(subscriptions.MEMBERS.request) - {"id"}
    assert described["SubscriptionRedefinition"] == set(subscriptions.MEMBERS.request)
    assert described["Replay"] == set(subscriptions.REPLAY_MEMBERS.request)


def test_every_parameter_is_described() -> None:
    [operation] = DOCUMENT["paths"]["/webhooks/deliveries"].values()
    described = [each["$ref"].rpartition("/")[2] for each in operation["parameters"]]
    assert described == ["Gatepost-Version", "DPoP", *deliveries.PARAMETERS]
    assert all(DOCUMENT["components"]["parameters"][name]["in"] == "query" for name in deliveries.PARAMETERS)


def test_operations_require_the_scope_that_they_check() -> None:
    secured = [found for methods in DOCUMENT["paths"].values() for found in methods.values()]
    required = [each["security"][0]["token"] for each in secured if "token" in each["security"][0]]
    assert required == [[name] for name in operations.OPERATIONS if name != "gatepost:events"]
    assert set(DOCUMENT["components"]["securitySchemes"]) == {"client", "token"}


AUTHORIZE = {*handoff.ERRORS, "unsupported_response_type", "request_not_supported", "registration_not_supported"}


def test_refusals_are_those_of_the_table() -> None:
    """Except codes that belong to no operation, and those of /oauth/authorize and /oauth/par."""
    result = {code for operation in openapi.OPERATIONS.values() for code in operation.codes}
    not_of_one_operation = {"method_not_allowed", "server_error", "misdirected_request"}
    assert result == set(ERRORS) - not_of_one_operation - (AUTHORIZE - {"temporarily_unavailable"})
    for (method, path), operation in openapi.OPERATIONS.items():
        answers = DOCUMENT["paths"][path][method.lower()]["responses"]
        shown = {(code, status) for status in answers if status >= "400" for code in codes(answers[status])}
        assert shown == {(code, str(status_at(path, code))) for code in operation.codes}


def codes(answer: dict[str, Any]) -> list[str]:
    [content] = answer["content"].values()
    [member] = content["schema"]["allOf"][1]["properties"].values()
    found: list[str] = member["enum"]
    return found


def status_at(path: str, code: str) -> int:
    """RFC 9449: at the token endpoint a proof that does not do is 400, with a token it is 401 as section 7.1 has it."""
    by_token = path != "/oauth/tokens" and code in ("invalid_dpop_proof", "use_dpop_nonce")
    return 401 if by_token else ERRORS[code].status


def test_proofs_and_nonces_are_described_everywhere() -> None:
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            assert {"$ref": "#/components/parameters/DPoP"} in operation["parameters"]
            assert all("DPoP-Nonce" in answer["headers"] for answer in operation["responses"].values())
    assert "required" not in DOCUMENT["components"]["headers"]["DPoP-Nonce"]
    assert DOCUMENT["components"]["schemas"]["Token"]["properties"]["token_type"]["enum"] == ["Bearer", "DPoP"]


REFUSED_PARAMETERS = {"actor_token", "actor_token_type"}  # read only to be refused


def test_every_grant_type_has_its_form() -> None:
    forms = DOCUMENT["components"]["schemas"]["TokenRequest"]["anyOf"]
    assert [each["properties"]["grant_type"]["const"] for each in forms] == list(GRANTS) == list(GRANT_TYPES)
    shared = set.intersection(*(set(each["properties"]) for each in forms))
    assert shared == {
        "grant_type", "scope", "resource", "client_id", "client_secret", "client_assertion", "client_assertion_type",
    }  # fmt: skip
    for form, (grant_type, way) in zip(forms, GRANTS.items(), strict=True):
        own = set(way.parameters) - REFUSED_PARAMETERS | ({"audience"} if grant_type == TOKEN_EXCHANGE else set())
        assert set(form["properties"]) - shared == own
        assert set(form["required"]) <= set(form["properties"])


AS_CLIENT = {"grant_type": "client_credentials", "scope": "a b"}
BY_CODE = {"grant_type": "authorization_code", "code": "c", "redirect_uri": "https://a.example/b"}
BY_REFRESH = {"grant_type": "refresh_token", "refresh_token": "gpr_x"}
BY_ASSERTION = {"grant_type": JWT_BEARER, "assertion": "a.b.c", "scope": "a"}
BY_EXCHANGE = {
    "grant_type": TOKEN_EXCHANGE, "subject_token": "a.b.c", "subject_token_type": ACCESS_TOKEN, "scope": "a",
}  # fmt: skip
RIGHT_FORMS = [
    AS_CLIENT, BY_CODE, BY_REFRESH, BY_ASSERTION, BY_EXCHANGE, BY_CODE | {"code_verifier": "v" * 43},
    BY_CODE | {"client_id": "cli_1"}, BY_REFRESH | {"scope": "a"}, BY_REFRESH | {"resource": "https://a.example"},
    BY_EXCHANGE | {"audience": "https://a.example", "requested_token_type": ACCESS_TOKEN},
    BY_EXCHANGE | {"subject_token_type": JWT}, AS_CLIENT | {"anything": "else"},
    AS_CLIENT | {"client_assertion": "a.b.c", "client_assertion_type": ASSERTION_TYPE},
]  # fmt: skip
WRONG_FORMS = [
    {}, {"scope": "a"}, AS_CLIENT | {"grant_type": "password"}, AS_CLIENT | {"grant_type": "implicit"},
    AS_CLIENT | {"scope": ""}, AS_CLIENT | {"scope": "a  b"}, AS_CLIENT | {"client_assertion": "a.b.c"},
    AS_CLIENT | {"client_assertion": "a.b.c", "client_assertion_type": "other"},
    BY_CODE | {"code_verifier": "v" * 42}, BY_EXCHANGE | {"subject_token_type": "urn:other"},
    *({name: value for name, value in form.items() if name != left_out}
      for form in (AS_CLIENT, BY_CODE, BY_REFRESH, BY_ASSERTION, BY_EXCHANGE) for left_out in form),
]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "right"), [*((form, True) for form in RIGHT_FORMS), *((form, False) for form in WRONG_FORMS)]
)
def test_a_form_is_right_when_nothing_is_missing(form: dict[str, str], right: bool) -> None:
    assert schema("TokenRequest").is_valid(form) == right


@pytest.mark.parametrize("left_out", ["access_token", "token_type", "expires_in", "scope"])
def test_what_every_token_answer_has(left_out: str) -> None:
    answer = {"access_token": "a.b.c", "token_type": "DPoP", "expires_in": 60, "scope": "openid"}
    more = {"refresh_token": "gpr_x", "id_token": "a.b.c", "issued_token_type": ACCESS_TOKEN}
    assert schema("Token").is_valid(answer)
    assert schema("Token").is_valid(answer | more)
    assert not schema("Token").is_valid({name: value for name, value in (answer | more).items() if name != left_out})
    for wrong in ({"token_type": "dpop"}, {"refresh_token": ""}, {"refresh_token": "x"}, {"issued_token_type": "jwt"}):
        assert not schema("Token").is_valid(answer | more | wrong)


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
             {"keys": [KEY | {"alg": "ES256", "kid": "1"}]}, {"keys": [KEY | {"x": 5}]},
             *({"keys": [KEY | {"use": use}]} for use in ["sig", "enc", "", ["sig"]]),
             *({"keys": [KEY | {"key_ops": uses}]} for uses in [["verify"], ["sign", "verify"], ["sign"], []])],
    "jwks_uri": ["https://a.example", "https://a.example/jwks?a=b", "http://127.0.0.1:8080/jwks", "https://[::1]/jwks",
                 "HTTPS://a.example", "ftp://a.example", "a.example", "//a.example", "https://", "https:///jwks", "",
                 "https://a.example#b", "https://user@a.example", "https://a b.example", "https://é.example", 5,
                 ["https://a.example"], "https://a.example/".ljust(2048, "a"), "https://a.example/".ljust(2049, "a")],
    "client_uri": ["https://a.example", "http://a/b?c#d", "https://[::1]:8/", "ftp://a", "javascript:alert(1)",
                   "https://", "https://a b", "https://é.example", "//a", "", 5, "https://a/" + "a" * 2048],
    "application_type": ["web", "native", "Web", "", None, 5],
    "id_token_signed_response_alg": ["RS256", "ES256", "EdDSA", "none", "HS256", 5],
    "id_token_claims": [False, True, None, 0, 1, "true"],
    "dpop_bound_access_tokens": [False, True, 0, 1, None, "false"],
    "max_tokens_per_minute": [1, 1_000_000, 0, 1_000_001, -1, True, 1.5, "1"],
    "max_concurrent_token_requests": [1, 10_000, 0, 10_001, True, "1"],
    "access_token_lifetime": [60, 86_400, 59, 86_401, 0, -1, True, 60.5, "60", 1 << 70, [60]],
    "refresh_token_lifetime": [3600, 365 * 86_400, 3599, 365 * 86_400 + 1, -3600, False, "3600"],
    "serves": [[], ["https://api.example.com"], ["urn:x:y"], ["api"], [""], ["https://a#b"], "https://a", [5],
               ["https://a"] * 51, ["https://a b"], ["https://" + "a" * 512]],
    "claims": [{}, {"a": 1}, {"": 1}, {"a" * 128: 1}, {"a" * 129: 1}, {str(n): 1 for n in range(20)},
               {str(n): 1 for n in range(21)}, [], "a", *({name: 1} for name in sorted(scopes.PROTOCOL_CLAIMS))],
    "require_pkce": [True, False, 1, 0, "true"],
    "require_nonce": [True, False, None, 1, 0, "false"],
    "status": ["active", "disabled", "deleted", 1],
    "metadata": [{}, {"a": "b"}, {"a": 1}, {"": "a"}, {"a" * 65: ""}, {"a": "b" * 513}, {"a": None}, [],
                 {str(n): "" for n in range(51)}],
}  # fmt: skip
AGREEMENT |= dict.fromkeys(["logo_uri", "tos_uri", "policy_uri"], AGREEMENT["client_uri"])
AGREEMENT |= {"redirect_uris": [[], ["https://a/b"], ["https://a/b"] * 2, "https://a/b", [5], [""]]}
SHOWN_ONE_BY_ONE = [(member, value) for member, values in AGREEMENT.items() for value in values]


def test_no_client_member_is_left_out_below() -> None:
    assert set(AGREEMENT) == PLAIN_MEMBERS


@pytest.mark.parametrize(("member", "value"), SHOWN_ONE_BY_ONE)
def test_schema_and_check_agree_on_a_member(member: str, value: Any) -> None:
    """What is fetched from is also the guard's to judge, as the operation does."""
    accepted = value is None or clients.MEMBERS.problem(member, value) == ""
    if accepted and member == "jwks_uri" and value is not None:
        accepted = url_problem(Policy(dev=True), value) == ""
    assert schema(f"ClientRegistration/properties/{member}").is_valid(value) == accepted


MACHINE = {"grant_types": ["client_credentials"]}
WEB = {"redirect_uris": ["https://app.example.com/callback"]}
NATIVE = {"redirect_uris": ["com.example.app:/callback"], "application_type": "native"}
EXCHANGE = {"grants": [{"grant_type": TOKEN_EXCHANGE, "scopes": []}]}
PUBLIC = {"token_endpoint_auth_method": "none"}
KEYED = {"token_endpoint_auth_method": "private_key_jwt"}
JWKS_URI = {"jwks_uri": "https://a.example/jwks"}


def exchanging(grant_type: str, how: Any) -> dict[str, Any]:
    return {"grants": [{"grant_type": grant_type, "scopes": [], "exchange": how}]}


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
        (MACHINE | JWKS_URI, True),
        (MACHINE | JWKS_URI | {"jwks": None}, True),
        (MACHINE | {"jwks": {"keys": [KEY]}, "jwks_uri": None}, True),
        (MACHINE | {"dpop_bound_access_tokens": True}, True),
        (WEB | PUBLIC | {"dpop_bound_access_tokens": True}, True),
        (MACHINE | PUBLIC, False),
        (EXCHANGE | PUBLIC, False),
        (WEB | PUBLIC, True),
        (WEB | PUBLIC | {"require_pkce": False}, False),
        (WEB | {"require_pkce": False}, True),
        (WEB | {"require_pkce": False, "require_nonce": False}, True),
        (WEB | {"require_pkce": False, "require_nonce": None}, True),
        *[(WEB | {"require_pkce": pkce, "require_nonce": False}, False) for pkce in (True, None)],
        (WEB | {"require_nonce": False}, False),
        (WEB | PUBLIC | {"require_pkce": False, "require_nonce": False}, False),
        (WEB | PUBLIC | {"rotate_secret": True}, False),
        (MACHINE | KEYED, False),
        (MACHINE | KEYED | {"jwks": None}, False),
        (MACHINE | KEYED | {"jwks": {"keys": [KEY]}}, True),
        (MACHINE | KEYED | JWKS_URI, True),
        (MACHINE | KEYED | JWKS_URI | {"jwks": None}, True),
        (MACHINE | KEYED | JWKS_URI | {"jwks": {"keys": [KEY]}}, False),
        (MACHINE | KEYED | {"jwks_uri": None}, False),
        (MACHINE | KEYED | JWKS_URI | {"rotate_secret": True}, False),
        (MACHINE | {"rotate_secret": {"overlap": 0}}, True),
        (MACHINE | {"rotate_secret": {"overlap": -1}}, False),
        (MACHINE | {"rotate_secret": {"overlap": 60, "more": 1}}, False),
        (MACHINE | {"rotate_secret": "yes"}, False),
        (NATIVE | {"application_type": "web"}, False),
        (MACHINE | {"grants": []}, False),
        (MACHINE | {"grants": [{"grant_type": "client_credentials", "scopes": [], "secret": 1}]}, False),
        *[(exchanging(TOKEN_EXCHANGE, how), True) for how in ("delegation", "impersonation", None)],
        *[(exchanging(TOKEN_EXCHANGE, how), False) for how in ("both", "", "Delegation", True, ["delegation"])],
        *[(exchanging(other, None), True) for other in ("client_credentials", JWT_BEARER)],
        *[(exchanging(other, "delegation"), False) for other in ("client_credentials", JWT_BEARER)],
    ],
)
def test_schema_and_rules_agree_on_a_whole_client(body: dict[str, Any], right: bool) -> None:
    defined = client_rules.define(body, None, account="acc", base_url=BASE_URL, at=NOW)
    assert isinstance(defined, ClientDefinition) == right, defined
    assert schema("ClientDefinition").is_valid(body) == right


@pytest.mark.parametrize("body", [MACHINE, WEB, WEB | PUBLIC])
def test_two_key_sets_of_who_shows_no_key_only_the_rules_refuse(body: dict[str, Any]) -> None:
    """The schema does not express this rule, because generators of data do not cope with more alternatives."""
    both = body | JWKS_URI | {"jwks": {"keys": [KEY]}}
    found = client_rules.define(both, None, account="acc", base_url=BASE_URL, at=NOW)
    assert isinstance(found, Refusal)
    assert found.pointer == "/jwks_uri"
    assert schema("ClientDefinition").is_valid(both)


@pytest.mark.parametrize(
    "body",
    [MACHINE, WEB, WEB | PUBLIC, MACHINE | KEYED | JWKS_URI, EXCHANGE, exchanging(TOKEN_EXCHANGE, "impersonation")],
)
def test_a_client_is_shown_as_described(body: dict[str, Any]) -> None:
    account = ids.text("acc", b"a" * 16)
    defined = client_rules.define(body, None, account=account, base_url=BASE_URL, at=NOW)
    assert isinstance(defined, ClientDefinition)
    shown = clients.render(defined.client, {})
    assert schema("Client").is_valid(shown)
    assert set(shown) <= set(DOCUMENT["components"]["schemas"]["Client"]["properties"])
    for grant in shown["grants"]:
        assert ("exchange" in grant) == (grant["grant_type"] == TOKEN_EXCHANGE)


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


HOOK = "https://example.com/hooks"
ENDPOINT = Endpoint(ids.text("ep", b"e" * 16), "acc", HOOK, NOW, NOW, headers={"x-token": "kept"})
WEEK = 7 * 86_400
PAIRS = AGREEMENT["metadata"]
ENDPOINT_AGREEMENT: dict[str, list[Any]] = {
    "id": [None, "", "ep_1", 5],
    "url": ["https://example.com", "https://example.com:8443/a/b?c=d%20[e]", "http://127.0.0.1:8080/x", "https://[::1]/",
            "HTTPS://example.com", "ftp://example.com", "example.com", "//example.com", "https://", "https:///a", "",
            "https://example.com#a", "https://example.com/a#", "https://user@example.com", "https://a b.example/",
            "https://example.com/\\a", "https://example.com/é", "https://é.example", "https://example.com:123456/",
            "https://example.com:/", "https://example.com/\n", 5, None, [HOOK],
            "https://example.com/".ljust(2048, "a"), "https://example.com/".ljust(2049, "a")],
    "description": [None, "", "é" * 500, "a" * 501, 5, ["a"]],
    "headers": [None, {}, {"x-tenant": "acme"}, {"x": " a"}, {"x": "a "}, {"x": ""}, {"x": "a b"}, {"x": "é"}, {"x": 5},
                {"x": "a\r\nb"}, {"x": "a" * 1024}, {"x": "a" * 1025}, {"": "a"}, {"a b": "a"}, {"a:": "a"}, {"é": "a"},
                {"a" * 128: "a"}, {"a" * 129: "a"}, {f"x-{n}": "a" for n in range(20)}, [], "x: a",
                {f"x-{n}": "a" for n in range(21)}, {"hosts": "a"}, {"x-webhook-id": "a"}, {"webhook": "a"},
                *({name: "a"} for name in ("Webhook-Id", "webhook-", "HOST", "content-type", "Content-Language", "te",
                  "Authorization", "connection", "Keep-Alive", "trailer", "transfer-encoding", "Upgrade", "expect",
                  "proxy-authorization", "User-Agent", "cookie"))],
    "timeout": [None, 1, 30, 0, 31, -1, True, 1.5, "15", [15]],
    "max_in_flight": [None, 1, 1000, 0, 1001, False, "1"],
    "max_retry_after": [None, 1, 86_400, 0, 86_401, True, 0.5, "1"],
    "rate_limit": [None, 1, 10_000, 0, 10_001, True, 0.5, "1"],
    "retry_schedule": [None, [], [1], [WEEK], [1] * 24, [1] * 25, [0], [WEEK + 1], [True], ["1"], [1.5], 5, "1,2"],
    "signing": [None, "v1", "v1a", "v2", "", 5, ["v1"]],
    "format": [None, "standard", "cloudevents", "xml", "", 5],
    "status": [None, "active", "disabled", "removed", "", 5],
    "metadata": [None, *PAIRS],
    "secret": [None, "", "whsec_", 5, "whpk_" + "A" * 32, "A" * 32, "whsec_" + "A" * 31 + "!",
               *("whsec_" + "A" * length for length in (31, 32, 33, 34, 35, 80, 84, 85, 86, 87, 88)),
               *("whsec_" + "A" * length + end for length, end in ((34, "=="), (35, "="), (86, "=="), (30, "==")))],
    "rotate_secret": [None, True, False, {"overlap": 0}, {"overlap": WEEK}, {"overlap": WEEK + 1}, {"overlap": -1},
                      {"overlap": True}, {"overlap": "1"}, {}, {"overlap": 1, "more": 1}, {"more": 1}, 1, "true", []],
    "owner": ["me", None],
}  # fmt: skip


def test_no_endpoint_member_is_left_out_below() -> None:
    assert set(ENDPOINT_AGREEMENT) == {*endpoints.MEMBERS.request, "owner"}


def defines_endpoint(body: dict[str, Any], known: Endpoint | None) -> bool:
    """Whether the rules accept it. The id is looked up before they are asked."""
    if known is None and "id" in body:
        return False
    found = endpoint_rules.define(
        body, known, account="acc", at=NOW, url_problem=lambda url: url_problem(Policy(dev=True), url)
    )
    return isinstance(found, endpoint_rules.EndpointDefinition)


@pytest.mark.parametrize(
    ("member", "value"), [(member, value) for member, values in ENDPOINT_AGREEMENT.items() for value in values]
)
def test_schema_and_rules_agree_on_a_member_of_an_endpoint(member: str, value: Any) -> None:
    body = {"url": HOOK} | {member: value}
    assert schema("EndpointDefinition").is_valid(body) == defines_endpoint(body, None)
    if member != "id":
        changed = {"id": ENDPOINT.id, member: value}
        assert schema("EndpointDefinition").is_valid(changed) == defines_endpoint(changed, ENDPOINT)


GIVEN = {"secret": "whsec_" + "A" * 32}


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ({}, False),
        ({"description": "a"}, False),
        ({"url": HOOK} | GIVEN, True),
        ({"url": HOOK, "signing": "v1"} | GIVEN, True),
        ({"url": HOOK, "signing": "v1a"} | GIVEN, False),
        ({"url": HOOK, "signing": "v1a", "secret": None}, True),
        ({"url": HOOK, "rotate_secret": True} | GIVEN, False),
        ({"url": HOOK, "rotate_secret": {"overlap": 0}} | GIVEN, False),
        ({"url": HOOK, "rotate_secret": False} | GIVEN, True),
        ({"url": HOOK, "rotate_secret": True, "secret": None}, True),
        ({"id": ENDPOINT.id}, True),
        ({"id": ENDPOINT.id} | GIVEN, False),
        ({"id": ENDPOINT.id, "status": "removed"}, True),
        ({"id": ENDPOINT.id, "status": "removed", "rotate_secret": False}, True),
        ({"id": ENDPOINT.id, "status": "removed", "rotate_secret": True}, False),
        ({"id": ENDPOINT.id, "status": "disabled", "rotate_secret": True}, True),
        ({"id": ENDPOINT.id, "headers": {"x-token": endpoints.HIDDEN}}, True),
    ],
)
def test_schema_and_rules_agree_on_a_whole_endpoint(body: dict[str, Any], right: bool) -> None:
    assert defines_endpoint(body, ENDPOINT if "id" in body else None) == right
    assert schema("EndpointDefinition").is_valid(body) == right


SUBSCRIPTION = Subscription(ids.text("sub", b"s" * 16), "acc", ENDPOINT.id, ["invoice.paid"], NOW, NOW)
EVENT = ids.text("evt", b"v" * 16)
EVENTS = [ids.text("evt", bytes([number]) * 16) for number in range(101)]
BELOW = ["account.*", "oauth.*", "oauth.token.*", "webhook.*", "webhook.endpoint.*"]
SUBSCRIPTION_AGREEMENT: dict[str, list[Any]] = {
    "id": [None, "", "sub_1", 5],
    "endpoint_id": [None, "", "ep_1", 5],
    "events": [None, [], ["invoice.paid"], ["invoice.paid"] * 2, ["invoice.*"], ["a.b.c.*"], ["*"],
               ["*", "oauth.token.*"], "invoice.paid", [5], [None], [""], ["invoice"], ["Invoice.paid"], ["invoice."],
               [".paid"], ["*.paid"],
               ["invoice.*.paid"], ["invoice.**"], ["invoice..paid"], ["invoice.paid\n"], ["a b.c"], ["accounts.a"],
               [f"{'a' * 253}.bc"], [f"{'a' * 254}.bc"], [f"{'a' * 254}.*"], [f"{'a' * 255}.*"],
               [f"a.b{n}" for n in range(100)], [f"a.b{n}" for n in range(101)], ["oauth"], ["oauth.none"],
               ["oauth.none.*"], ["oauth.token.issued.*"], ["webhook.a.b"], ["account.*.*"],
               *([each] for each in BELOW), *([each] for each in entries.TYPES)],
    "filter": [None, {}, {"/a": "b"}, {"/a/b": None}, {"/": 1}, {"/a~0b~1c": True}, {"/a": 1.5}, {"": 1}, {"a": 1},
               {"/a~": 1}, {"/a~2": 1}, {"/a": []}, {"/a": {}}, {"/a": "b" * 1024}, {"/a": "b" * 1025}, [], "/a",
               {"/" + "a" * 255: 1}, {"/" + "a" * 256: 1}, {f"/{n}": 1 for n in range(10)},
               {f"/{n}": 1 for n in range(11)}],
    "status": [None, "active", "disabled", "removed", "", 5],
    "description": [None, "", "é" * 500, "a" * 501, 5, ["a"]],
    "replay": [None, {}, {"from": "2026-11-15T08:00:00Z"}, {"until": "2026-11-15T08:00:00.123+01:00"}, {"from": None},
               {"only": "failed"}, {"only": "all"}, {"only": None}, {"from": 5}, {"event_ids": [EVENT]},
               {"event_ids": []}, {"event_ids": [EVENT] * 2}, {"event_ids": ["evt_1"]}, {"event_ids": EVENT},
               {"event_ids": EVENTS[:100]}, {"event_ids": EVENTS},
               {"event_ids": [EVENT], "only": "failed"}, {"event_ids": [EVENT], "only": None, "from": None},
               {"event_ids": None}, {"event_ids": None, "only": "failed"}, {"to": "2026-11-15T08:00:00Z"},
               {"from": "2026-11-15T08:00:00Z", "until": "2026-11-15T09:00:00Z", "only": "failed"}, [], "failed"],
    "owner": ["me", None],
}  # fmt: skip


def test_no_subscription_member_is_left_out_below() -> None:
    assert set(SUBSCRIPTION_AGREEMENT) == {*subscriptions.MEMBERS.request, "owner"}


def defines_subscription(body: dict[str, Any], known: Subscription | None) -> bool:
    if known is None and "id" in body:
        return False
    exists = ENDPOINT.id.__eq__
    at = NOW + timedelta(days=1)  # a replay begins in the past, which is beyond a schema
    found = subscriptions.define(body, known, account="acc", at=at, endpoint_exists=exists)
    return isinstance(found, subscriptions.SubscriptionDefinition)


@pytest.mark.parametrize(
    ("member", "value"), [(member, value) for member, values in SUBSCRIPTION_AGREEMENT.items() for value in values]
)
def test_schema_and_rules_agree_on_a_member_of_a_subscription(member: str, value: Any) -> None:
    body = {"endpoint_id": ENDPOINT.id, "events": ["invoice.paid"]} | {member: value}
    assert schema("SubscriptionDefinition").is_valid(body) == defines_subscription(body, None)
    if member != "id":
        changed = {"id": SUBSCRIPTION.id, member: value}
        assert schema("SubscriptionDefinition").is_valid(changed) == defines_subscription(changed, SUBSCRIPTION)


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ({}, False),
        ({"endpoint_id": ENDPOINT.id}, False),
        ({"events": ["*"]}, False),
        ({"id": SUBSCRIPTION.id}, True),
        ({"id": SUBSCRIPTION.id, "endpoint_id": ENDPOINT.id}, True),
        ({"id": SUBSCRIPTION.id, "status": "removed"}, True),
        ({"id": SUBSCRIPTION.id, "status": "removed", "replay": None}, True),
        ({"id": SUBSCRIPTION.id, "status": "removed", "replay": {"only": "failed"}}, False),
        ({"id": SUBSCRIPTION.id, "status": "disabled", "replay": {"only": "failed"}}, True),
    ],
)
def test_schema_and_rules_agree_on_a_whole_subscription(body: dict[str, Any], right: bool) -> None:
    assert defines_subscription(body, SUBSCRIPTION if "id" in body else None) == right
    assert schema("SubscriptionDefinition").is_valid(body) == right


DELIVERY = ids.text("dlv", b"d" * 16)
INSTANTS = ["2026-11-15T08:00:00Z", "2026-11-15T08:00:00.123+01:00", "2026-11-15", "08:00:00Z", "now", "1794729600"]
PARAMETER_AGREEMENT: dict[str, list[Any]] = {
    "id": [DELIVERY, DELIVERY.upper(), DELIVERY + "0", "dlv_", EVENT, "dlv_" + "v" * 26],
    "endpoint_id": [ENDPOINT.id, DELIVERY, "ep_1"],
    "subscription_id": [SUBSCRIPTION.id, ENDPOINT.id, "sub_1"],
    "event_id": [EVENT, DELIVERY, "evt_1"],
    "event_type": ["invoice.paid", "oauth.token.issued", "invoice", "invoice.*", "*", "Invoice.paid", ".", "a..b",
                   f"{'a' * 253}.bc", f"{'a' * 254}.bc"],
    "status": ["pending", "held", "in_flight", "succeeded", "failed", "cancelled", "ended", "Pending"],
    "response_code": ["503", "5xx", "100", "599", "600", "999", "6xx", "099", "50", "5x", "xxx", "5XX", "50x", "5033"],
    "failure": ["dns", "timeout", "redirect", "http", "DNS"],
    "created_after": INSTANTS,
    "created_before": INSTANTS,
    "due_before": INSTANTS,
    "limit": [1, 50, 200, 0, 201, -1, 1.5, "a"],
    "cursor": ["a", "A" * 128],
    "order": ["newest", "oldest", "due"],
    "include": ["payload", "responses", "payload,responses", "responses,payload", "payload,payload", "payload,", "all"],
    "view": ["summary", "endpoints", "deliveries", "all"],
    "interval": ["hour", "day", "minute", "week"],
}  # fmt: skip


def test_no_parameter_is_left_out_below() -> None:
    assert set(PARAMETER_AGREEMENT) == set(deliveries.PARAMETERS)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in PARAMETER_AGREEMENT.items() for value in values]
)
def test_schema_and_reader_agree_on_a_parameter(name: str, value: Any) -> None:
    sent = {name: value} | ({"view": "summary"} if name == "interval" else {})
    accepted = isinstance(deliveries.query(urlencode(sent).encode()), Query)
    reference = {"$ref": f"#/components/parameters/{name}/schema", "components": DOCUMENT["components"]}
    described = jsonschema_rs.Draft202012Validator(reference, validate_formats=True)
    assert described.is_valid(value) == accepted
