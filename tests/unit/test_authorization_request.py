"""The authorization request: where an answer may go at all, and each check right and wrong, in its order."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gatepost.accounts import Account
from gatepost.core.errors import Refusal
from gatepost.core.jose import b64
from gatepost.oauth.authorize import request
from gatepost.oauth.authorize.request import CHECKS, MAX_LENGTHS, Authorization, AuthorizationRequest, redirect_target
from gatepost.oauth.client_grants import Grant
from gatepost.oauth.clients import Client
from gatepost.oauth.redirect_uris import matches
from tests.unit.drafts import ACCOUNT, API, NOW, OTHER, SCOPES

CALLBACK = "https://app.example/callback"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
THUMBPRINT = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
STRICT = msgspec.structs.replace(ACCOUNT, settings={"profile": "fapi2"})
GRANTED = ["openid", "offline_access", "read", "write", "other", "retired", "theirs", "undefined"]
CLIENT = Client(
    "cli_1", ACCOUNT.id, NOW, NOW, grants=[Grant("grt_1", "authorization_code", GRANTED)], redirect_uris=[CALLBACK]
)
WITHOUT_A_GRANT = msgspec.structs.replace(CLIENT, grants=[Grant("grt_1", "client_credentials", GRANTED)])
DISABLED_GRANT = msgspec.structs.replace(
    CLIENT, grants=[Grant("grt_1", "authorization_code", GRANTED, status="disabled")]
)
EXCUSED = msgspec.structs.replace(CLIENT, require_pkce=False)
WITHOUT_NONCE = msgspec.structs.replace(EXCUSED, require_nonce=False)
RIGHT = {
    "client_id": "cli_1",
    "response_type": "code",
    "redirect_uri": CALLBACK,
    "scope": "openid read",
    "code_challenge": CHALLENGE,
    "code_challenge_method": "S256",
}


def decide(
    sent: dict[str, Any] | None = None, *, client: Client = CLIENT, account: Account = ACCOUNT, **known: Any
) -> Authorization | Refusal:
    """A right request but for what is sent; None leaves a parameter out."""
    parameters = {name: value for name, value in (RIGHT | (sent or {})).items() if value is not None}
    to = redirect_target(parameters, CLIENT)
    assert isinstance(to, Authorization)
    return request.decide(
        to, AuthorizationRequest(parameters, known.pop("resources", ()), client, account, SCOPES, **known)
    )


def decided(sent: dict[str, Any] | None = None, **known: Any) -> Authorization:
    found = decide(sent, **known)
    assert isinstance(found, Authorization), found
    return found


def refused(sent: dict[str, Any] | None = None, **known: Any) -> Refusal:
    found = decide(sent, **known)
    assert isinstance(found, Refusal), found
    return found


class TestWhereAnAnswerGoes:
    @pytest.mark.parametrize(
        "client", [None, msgspec.structs.replace(CLIENT, status="disabled")], ids=["unknown", "disabled"]
    )
    def test_no_client_is_there(self, client: Client | None) -> None:
        found = redirect_target(RIGHT, client)
        assert isinstance(found, Refusal)
        assert (found.code, found.pointer) == ("invalid_request", "client_id")
        assert found == redirect_target(RIGHT, None), "and nobody can tell which"

    def test_it_must_be_said_even_where_there_is_one(self) -> None:
        found = redirect_target({"client_id": "cli_1"}, CLIENT)
        assert isinstance(found, Refusal)
        assert found.pointer == "redirect_uri"

    def test_a_client_without_any_has_no_answer(self) -> None:
        assert isinstance(redirect_target(RIGHT, msgspec.structs.replace(CLIENT, redirect_uris=[])), Refusal)

    def test_any_of_several(self) -> None:
        client = msgspec.structs.replace(CLIENT, redirect_uris=["https://one.example", CALLBACK, "https://two.example"])
        assert redirect_target(RIGHT, client) == Authorization(CALLBACK)

    @pytest.mark.parametrize(
        "sent",
        [
            "", f"{CALLBACK}?x=1", f"{CALLBACK}?", f"{CALLBACK};x=1", f"{CALLBACK}/", f"{CALLBACK}#", f"{CALLBACK}#x",
            f"{CALLBACK} ", f" {CALLBACK}", f"{CALLBACK}\n", f"{CALLBACK}\0", f"{CALLBACK}%00", f"{CALLBACK}%20",
            f"{CALLBACK}\\", f"{CALLBACK}/../callback", "https://app.example/CALLBACK", "https://app.example/%63allback",
            "https://app.example/x/..;/callback", "https://app.example/x/%2e%2e/callback", "https://app.example//callback",
            "https://user@app.example/callback", "https://app.example@evil.example/callback",
            "https://app.example:443/callback", "https://app.example:80@evil.example/callback",
            "https://app.example\\@evil.example/callback", "https://app.example.evil.example/callback",
            "https://APP.example/callback", "HTTPS://app.example/callback", "http://app.example/callback",
            "https://app.example./callback", "https://app.example", "https://app.example/", "//app.example/callback",
            "/callback", "https:/app.example/callback", "https:app.example/callback", "JavaScript:alert(1)",
            "javascript:alert(1)//https://app.example/callback", "data:text/html,x", f"https://evil.example/?{CALLBACK}",
            f"{CALLBACK},{CALLBACK}", f"{CALLBACK} {CALLBACK}", "https://аpp.example/callback", "*", "null",
        ],
    )  # fmt: skip
    def test_only_the_exact_text_will_do(self, sent: str) -> None:
        found = redirect_target(RIGHT | {"redirect_uri": sent}, CLIENT)
        assert isinstance(found, Refusal)
        assert (found.code, found.pointer) == ("invalid_request", "redirect_uri")
        assert sent == "" or sent not in found.detail, "it is not repeated to whoever sees the page"

    @pytest.mark.parametrize(
        ("registered", "sent"),
        [
            ("http://127.0.0.1/cb", "http://127.0.0.1:1/cb"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:65535/cb"),
            ("http://127.0.0.1:3000/cb", "http://127.0.0.1/cb"),
            ("http://127.0.0.1:3000/cb", "http://127.0.0.1:4000/cb"),
            ("http://127.0.0.1", "http://127.0.0.1:4000"),
            ("http://127.0.0.1?a=b", "http://127.0.0.1:4000?a=b"),
            ("http://127.0.0.1/cb?a=b", "http://127.0.0.1:4000/cb?a=b"),
            ("http://[::1]/cb", "http://[::1]:4000/cb"),
            ("http://localhost/cb", "http://localhost:4000/cb"),
            ("http://localhost:3000/cb?a=b", "http://localhost/cb?a=b"),
            ("http://localhost", "http://localhost:1"),
        ],
    )
    def test_a_loopback_address_may_have_any_port(self, registered: str, sent: str) -> None:
        assert matches(sent, registered)
        client = msgspec.structs.replace(CLIENT, redirect_uris=[registered])
        assert redirect_target(RIGHT | {"redirect_uri": sent}, client) == Authorization(sent)

    @pytest.mark.parametrize(
        ("registered", "sent"),
        [
            ("http://127.0.0.1/cb", "http://127.0.0.1:4000/CB"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:4000/cb/"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:4000/cb?a=b"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:4000/cb#a"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:4000/cb\n"),
            ("http://127.0.0.1/cb?a=b", "http://127.0.0.1:4000/cb"),
            ("http://127.0.0.1/cb?a=b", "http://127.0.0.1:4000/cb?a=c"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:/cb"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:123456/cb"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:-1/cb"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:80@evil.example/cb"),
            ("http://127.0.0.1/cb", "http://127.0.0.1@evil.example/cb"),
            ("http://127.0.0.1/cb", "http://user@127.0.0.1:4000/cb"),
            ("http://127.0.0.1/cb", "http://127.0.0.1.evil.example/cb"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:4000.evil.example/cb"),
            ("http://127.0.0.1", "http://127.0.0.1.evil.example"),
            ("http://127.0.0.1/cb", "https://127.0.0.1:4000/cb"),
            ("http://127.0.0.1/cb", "HTTP://127.0.0.1:4000/cb"),
            ("http://127.0.0.1/cb", "http://127.1:4000/cb"),
            ("http://127.0.0.1/cb", "http://127.0.0.2/cb"),
            ("http://127.0.0.1/cb", "http://127x0x0x1:4000/cb"),
            ("http://127.0.0.1/cb", "http://[::1]:4000/cb"),
            ("http://127.0.0.1/cb", "http://localhost:4000/cb"),
            ("http://[::1]/cb", "http://[0::1]:4000/cb"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:65536/cb"),
            ("http://localhost/cb", "http://127.0.0.1:4000/cb"),
            ("http://localhost/cb", "http://[::1]:4000/cb"),
            ("http://localhost/", "http://localhost:80@evil/"),
            ("http://localhost/", "http://localhost@evil/"),
            ("http://localhost/", "http://localhost:80#@evil/"),
            ("http://localhost/", "http://localhost:80\\@evil/"),
            ("http://localhost/", "http://localhost:80%40evil/"),
            ("http://localhost", "http://localhost:80.evil"),
            ("http://localhost:80/cb", "http://localhost:80@evil.example/cb"),
            ("http://localhost/cb", "http://localhost.evil.example:4000/cb"),
            ("http://localhost/cb", "http://localhost.:4000/cb"),
            ("http://localhost/cb", "http://evil.localhost:4000/cb"),
            ("http://localhost/cb", "http://LOCALHOST:4000/cb"),
            ("http://localhost/cb", "https://localhost:4000/cb"),
            ("https://localhost/cb", "https://localhost:4000/cb"),
            ("http://localhost/cb", "http://localhost:4000/CB"),
            ("http://localhost/cb", "http://localhost:4000/cb?a=b"),
            ("http://localhost/cb", "http://localhost:4000/cb;a=b"),
            ("http://localhost/cb", "http://localhost:4000/cb#"),
            ("http://localhost/cb", "http://localhost:4000/x/..;/cb"),
            ("http://localhost/cb", "http://localhost:4000/%2e%2e/cb"),
            ("http://localhost/cb", "http://localhost:65536/cb"),
            ("http://localhost/cb", "JavaScript://localhost:4000/cb"),
            ("https://127.0.0.1/cb", "https://127.0.0.1:4000/cb"),
            ("https://app.example/cb", "https://app.example:4000/cb"),
            ("com.example.app:/cb", "com.example.app://cb"),
        ],
    )
    def test_and_nothing_else_may_differ(self, registered: str, sent: str) -> None:
        assert not matches(sent, registered)
        client = msgspec.structs.replace(CLIENT, redirect_uris=[registered])
        assert isinstance(redirect_target(RIGHT | {"redirect_uri": sent}, client), Refusal)

    @pytest.mark.parametrize(
        ("sent", "kept"), [(None, "query"), ("query", "query"), ("form_post", "form_post"), ("fragment", "query")]
    )
    def test_the_way_it_goes(self, sent: str | None, kept: str) -> None:
        """An unknown one is refused later, and that refusal has to go somehow."""
        found = redirect_target(RIGHT | ({"response_mode": sent} if sent else {}), CLIENT)
        assert isinstance(found, Authorization)
        assert found.response_mode == kept

    @pytest.mark.parametrize(
        ("inside", "outside", "kept"),
        [
            ({"response_mode": "form_post"}, None, "form_post"),
            ({"response_mode": "form_post"}, "query", "query"),
            ({"response_mode": "query"}, "form_post", "form_post"),
            ({"response_mode": "fragment"}, None, "query"),
            ({"response_mode": ["form_post"]}, None, "query"),
            ({"response_mode": {"form_post": 1}}, None, "query"),
            ({"redirect_uri": "https://evil.example", "state": "inside"}, None, "query"),
        ],
    )
    def test_a_request_object_may_say_how_its_refusal_is_sent(
        self, inside: dict[str, Any], outside: str | None, kept: str
    ) -> None:
        """And nothing else: its redirect_uri and state are not read."""
        parts = (b64(json.dumps(each).encode()).decode() for each in ({"alg": "none"}, inside))
        sent = RIGHT | {"request": ".".join(parts) + "."} | ({"response_mode": outside} if outside else {})
        assert redirect_target(sent, CLIENT) == Authorization(CALLBACK, kept)

    @pytest.mark.parametrize("sent", ["x", "..", "e30.W10.", "e30.e30", "é.é.", "e30." + "W" * 20_000 + "."])
    def test_what_is_no_request_object_is_refused_by_query(self, sent: str) -> None:
        assert redirect_target(RIGHT | {"request": sent}, CLIENT) == Authorization(CALLBACK)

    def test_state_goes_with_it(self) -> None:
        found = redirect_target(RIGHT | {"state": " a&b=c é "}, CLIENT)
        assert found == Authorization(CALLBACK, state=" a&b=c é ")


class TestARightRequest:
    def test_the_plainest(self) -> None:
        assert decided() == Authorization(CALLBACK, scope=["openid", "read"], challenge=CHALLENGE)

    def test_with_everything(self) -> None:
        claims = {"userinfo": {"email": None}, "id_token": {"acr": {"essential": True, "values": ["a"]}}}
        sent = {
            "response_mode": "form_post", "state": "s", "nonce": "n", "prompt": "login consent", "max_age": "0",
            "display": "popup", "login_hint": "ada@example.com", "acr_values": "gold silver", "ui_locales": "de en",
            "claims": json.dumps(claims | {"other": 5}), "dpop_jkt": THUMBPRINT, "unknown": "is left alone",
        }  # fmt: skip
        assert decided(sent, resources=(API, API), hint="ada") == Authorization(
            CALLBACK, "form_post", "s", ["openid", "read"], [API], CHALLENGE, THUMBPRINT, "n", ["login", "consent"], 0,
            "popup", "ada@example.com", "gold silver", "de en", claims, "ada",
        )  # fmt: skip

    @pytest.mark.parametrize(("name", "limit"), MAX_LENGTHS.items())
    def test_each_as_long_as_it_may_be(self, name: str, limit: int) -> None:
        text = '{"' + "a" * (limit - 7) + '":{}}' if name == "claims" else "a" * limit
        assert len(text) == limit
        decided({name: text}, hint="ada" if name == "id_token_hint" else "")

    @pytest.mark.parametrize(
        ("sent", "kept"),
        [
            ("openid", ["openid"]),
            ("read", ["read"]),
            ("read openid read", ["read", "openid"]),
            ("openid offline_access", ["openid", "offline_access"]),
            ("read other", ["read", "other"]),
        ],
    )
    def test_scopes(self, sent: str, kept: list[str]) -> None:
        assert decided({"scope": sent}).scope == kept

    def test_several_resources(self) -> None:
        assert decided({"scope": "read other"}, resources=(OTHER, API, OTHER)).resources == [OTHER, API]

    def test_without_a_challenge_where_that_is_excused(self) -> None:
        sent = {"code_challenge": None, "code_challenge_method": None, "nonce": "n"}
        found = decided(sent, client=EXCUSED)
        assert (found.challenge, found.nonce) == ("", "n")
        assert decided(client=EXCUSED).challenge == CHALLENGE, "one that is sent counts all the same"

    def test_without_challenge_and_nonce_where_both_are_excused(self) -> None:
        bare = {"code_challenge": None, "code_challenge_method": None}
        found = decided(bare, client=WITHOUT_NONCE)
        assert (found.challenge, found.nonce) == ("", None)
        assert decided(bare | {"nonce": "n"}, client=WITHOUT_NONCE).nonce == "n"
        assert decided(client=WITHOUT_NONCE).challenge == CHALLENGE

    def test_pushed_under_fapi2(self) -> None:
        assert decided(account=STRICT, pushed=True).scope == ["openid", "read"]

    @pytest.mark.parametrize("sent", ["none", "login", "consent", "select_account", "login consent select_account"])
    def test_prompts(self, sent: str) -> None:
        assert decided({"prompt": sent}).prompt == sent.split(" ")

    @pytest.mark.parametrize(("sent", "kept"), [("0", 0), ("007", 7), ("999999999", 999_999_999), (None, None)])
    def test_max_age(self, sent: str | None, kept: int | None) -> None:
        assert decided({"max_age": sent}).max_age == kept

    @pytest.mark.parametrize(
        ("sent", "kept"),
        [
            ("{}", None),
            ('{"other": 1}', None),
            ('{"userinfo": {}}', {"userinfo": {}}),
            ('{"id_token": {"acr": null}}', {"id_token": {"acr": None}}),
            ('{"id_token": {"sub": null, "é": {"value": 1}}}', {"id_token": {"sub": None, "é": {"value": 1}}}),
        ],
    )
    def test_claims(self, sent: str, kept: dict[str, Any] | None) -> None:
        assert decided({"claims": sent}).claims == kept

    def test_the_person_may_be_named_by_claims(self) -> None:
        """OIDC Core 1.0, section 3.1.2.2: then another person is not accepted."""
        sent = {"claims": json.dumps({"id_token": {"sub": {"value": "acc_1.ada.lovelace"}}})}
        assert decided(sent).hint == "ada.lovelace"
        assert decided(sent, hint="ada.lovelace").hint == "ada.lovelace"


def claims(**members: Any) -> dict[str, str]:
    return {"claims": json.dumps(members)}


# What is sent and known, the error, its member, and the check that must see it.
Case = tuple[dict[str, Any], dict[str, Any], str, str, str]
WRONG: dict[str, Case] = {
    **{
        f"long {name}": ({name: "a" * (limit + 1)}, {}, "invalid_request", name, "parameters_are_of_a_size")
        for name, limit in MAX_LENGTHS.items()
    },
    "request object": ({"request": "a.b.c"}, {}, "request_not_supported", "request", "request_objects_are_left_out"),
    "request_uri": ({"request_uri": "urn:x"}, {}, "invalid_request", "request_uri", "request_objects_are_left_out"),
    "request_uri inside a pushed request": (
        {"request_uri": "urn:ietf:params:oauth:request_uri:x"}, {"pushed": True}, "invalid_request", "request_uri",
        "request_objects_are_left_out",
    ),
    "registration": (
        {"registration": "{}"}, {}, "registration_not_supported", "registration", "request_objects_are_left_out",
    ),
    "no response_type": ({"response_type": None}, {}, "invalid_request", "response_type", "response_is_a_code"),
    **{
        f"response_type {each}": (
            {"response_type": each}, {}, "unsupported_response_type", "response_type", "response_is_a_code",
        )
        for each in ("token", "id_token", "code id_token", "code token", "none", "Code", "code ", "password")
    },
    **{
        f"response_mode {each}": (
            {"response_mode": each}, {}, "invalid_request", "response_mode", "response_mode_is_known",
        )
        for each in ("fragment", "web_message", "query.jwt", "Query", "jwt")
    },
    "no grant": ({}, {"client": WITHOUT_A_GRANT}, "unauthorized_client", "", "client_may_ask"),
    "grant disabled": ({}, {"client": DISABLED_GRANT}, "unauthorized_client", "", "client_may_ask"),
    "not pushed": ({}, {"account": STRICT}, "invalid_request", "request_uri", "is_pushed_where_it_must_be"),
    "no challenge": (
        {"code_challenge": None, "code_challenge_method": None}, {}, "invalid_request", "code_challenge",
        "challenge_is_there",
    ),
    "no challenge, but a nonce": (
        {"code_challenge": None, "code_challenge_method": None, "nonce": "n"}, {}, "invalid_request",
        "code_challenge", "challenge_is_there",
    ),
    "no challenge under fapi2": (
        {"code_challenge": None, "code_challenge_method": None, "nonce": "n"},
        {"account": STRICT, "client": EXCUSED, "pushed": True}, "invalid_request", "code_challenge",
        "challenge_is_there",
    ),
    "excused, but no nonce": (
        {"code_challenge": None, "code_challenge_method": None}, {"client": EXCUSED}, "invalid_request", "nonce",
        "challenge_is_there",
    ),
    "no challenge and no nonce under fapi2": (
        {"code_challenge": None, "code_challenge_method": None},
        {"account": STRICT, "client": WITHOUT_NONCE, "pushed": True}, "invalid_request", "code_challenge",
        "challenge_is_there",
    ),
    "excused from both, but plain": (
        {"code_challenge_method": "plain"}, {"client": WITHOUT_NONCE}, "invalid_request", "code_challenge_method",
        "challenge_is_there",
    ),
    "excused, but plain": (
        {"code_challenge_method": "plain", "nonce": "n"}, {"client": EXCUSED}, "invalid_request",
        "code_challenge_method", "challenge_is_there",
    ),
    "method without a challenge": (
        {"code_challenge": None}, {}, "invalid_request", "code_challenge", "challenge_is_there",
    ),
    **{
        f"method {each}": (
            {"code_challenge_method": each}, {}, "invalid_request", "code_challenge_method", "challenge_is_there",
        )
        for each in (None, "plain", "s256", "S512", "S256 ")
    },
    **{
        f"challenge {name}": (
            {"code_challenge": each}, {}, "invalid_request", "code_challenge", "challenge_is_there",
        )
        for name, each in {
            "short": CHALLENGE[:-1], "long": CHALLENGE + "A", "padded": CHALLENGE + "=", "not base64url": "+" * 43,
            "with a line break": CHALLENGE + "\n", "not ASCII": "é" * 43,
        }.items()
    },
    **{
        f"scope {name}": ({"scope": each}, {}, "invalid_scope", "scope", "scopes_are_granted")
        for name, each in {
            "missing": None, "not granted": "openid short", "undefined": "undefined", "retired": "read retired",
            "of another account": "theirs", "of the service": "gatepost:clients", "of nothing": "offline_access",
            "two spaces": "openid  read", "space before": " read", "tab": "openid\tread", "star": "*",
            "comma": "openid,read",
        }.items()
    },
    "resource of no scope asked for": ({}, {"resources": (OTHER,)}, "invalid_target", "resource", "resources_fit"),
    "one resource of two": ({}, {"resources": (API, OTHER)}, "invalid_target", "resource", "resources_fit"),
    "resource with a slash": ({}, {"resources": (API + "/",)}, "invalid_target", "resource", "resources_fit"),
    "resource, but openid alone": (
        {"scope": "openid"}, {"resources": (API,)}, "invalid_target", "resource", "resources_fit",
    ),
    **{
        f"dpop_jkt {name}": ({"dpop_jkt": each}, {}, "invalid_request", "dpop_jkt", "key_is_named_right")
        for name, each in {"short": THUMBPRINT[:-1], "long": THUMBPRINT + "A", "padded": THUMBPRINT + "="}.items()
    },
    **{
        f"prompt {each}": ({"prompt": each}, {}, "invalid_request", "prompt", "prompt_is_known")
        for each in ("create", "Login", "none login", "login none", "login  consent", "login,consent")
    },
    **{
        f"max_age {each}": ({"max_age": each}, {}, "invalid_request", "max_age", "max_age_is_a_number")
        for each in ("-1", "1.5", "1e3", "ten", " 1", "1 ", "1000000000", "٣", "0x10", "+1")
    },
    **{
        f"claims {each}": ({"claims": each}, {}, "invalid_request", "claims", "claims_are_readable")
        for each in (
            "x", "[]", "null", "5", '"a"', '{"userinfo": []}', '{"userinfo": null}', '{"id_token": "acr"}',
            '{"id_token": {"acr": true}}', '{"id_token": {"acr": ["a"]}}', '{"id_token": {}, "id_token": {}}',
            '{"userinfo": {"a": {"value": "\\u0000"}}}', '{"userinfo": {"a": {"value": "\\ud800"}}}', '{"userinfo": {}',
            '{"userinfo": {"a": {"value": NaN}}}', '{"id_token": {"acr": {"values": "gold"}}}',
            '{"id_token": {"acr": {"values": null, "value": "gold"}}}', '{"id_token": {"acr": {"essential": "true"}}}',
        )
    },
    "claims too many": (
        claims(userinfo={str(n): None for n in range(51)}), {}, "invalid_request", "claims", "claims_are_readable",
    ),
    "claims deep": (
        {"claims": '{"a":' + "[" * 900 + "]" * 900 + "}"}, {}, "invalid_request", "claims", "claims_are_readable",
    ),
    "hint of another": (
        {}, {"hint": Refusal("invalid_request", "id_token_hint: no", "id_token_hint")}, "invalid_request",
        "id_token_hint", "hint_is_valid",
    ),
    **{
        f"claims name {name}": (
            claims(id_token={"sub": {"value": each}}), {"hint": "ada"}, "invalid_request", "claims", "hint_is_valid",
        )
        for name, each in {
            "another person than the hint": "acc_1.bob", "a person of another account": "acc_2.ada",
            "no account": "ada", "nobody": "acc_1.", "nothing": "", "a number": 5, "a list": ["acc_1.ada"],
        }.items()
    },
    "display": ({"display": "fax"}, {}, "invalid_request", "display", "rest_is_passed_on"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_request(name: str) -> None:
    sent, known, code, member, check = WRONG[name]
    found = refused(sent, **known)
    assert (found.code, found.pointer, found.rule) == (code, member, check)
    assert not member or found.detail.startswith(member)
    assert len(found.detail) < 400


def test_two_spaces_in_the_scope_are_named() -> None:
    assert refused({"scope": "openid  read"}).detail == "scope: names must be separated by single spaces"


def test_every_check_refuses_something() -> None:
    assert {check for *_, check in WRONG.values()} == {check.__name__ for check in CHECKS}


FIRST_OF = {check: name for name, (*_, check) in reversed(WRONG.items())}
ORDER = [  # written out: the table itself is what is tested
    "parameters_are_of_a_size", "request_objects_are_left_out", "response_is_a_code", "response_mode_is_known",
    "client_may_ask", "is_pushed_where_it_must_be", "challenge_is_there", "scopes_are_granted", "resources_fit",
    "key_is_named_right", "prompt_is_known", "max_age_is_a_number", "claims_are_readable", "hint_is_valid",
    "rest_is_passed_on",
]  # fmt: skip
PAIRS = [(FIRST_OF[one], FIRST_OF[other]) for one, other in itertools.combinations(ORDER, 2)]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_of_two_faults_the_one_checked_first_is_reported(one: str, other: str) -> None:
    """So a client mends a request from its beginning, and no check reads what an earlier one would have refused."""
    earlier, later = WRONG[one], WRONG[other]
    found = refused(later[0] | earlier[0], **(later[1] | earlier[1]))
    assert found.rule == earlier[-1]


def test_every_parameter_that_is_read_is_stored_of_a_pushed_request() -> None:
    """A parameter that a check reads, but that is not stored, would be lost after the push."""
    source = Path(request.__file__).read_text()
    read = set(re.findall(r'(?:request|parameters)\.get\("([a-z_]+)"', source)) | set(request.MAX_LENGTHS)
    refused = {"request", "request_uri", "registration"}
    assert read - refused <= set(request.PARAMETERS)
    assert not refused & set(request.PARAMETERS)
