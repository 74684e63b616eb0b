"""/oauth/authorize before the sign-in: redirects with their parameters, and error pages."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
from joserfc import jws
from joserfc.jwk import KeySet

from tests import service
from tests.login import CALLBACK, LOGIN_URL, Browser, Platform, decode_jwt, redirect_target
from tests.service import Service
from tests.waiting import LIMIT
from tests.wire import exchange, request

PLAIN = "default-src 'none'; frame-ancestors 'none'"
ASCII = re.compile(r"[ !#-\[\]-~]+")  # RFC 6749, section 4.1.2.1


@pytest.fixture(scope="module")
def platform(sqlite_gatepost: Service) -> Platform:
    return Platform(sqlite_gatepost, "authorize")


@pytest.fixture(scope="module")
def other(sqlite_gatepost: Service) -> Platform:
    return Platform(sqlite_gatepost, "authorize-other")


def check_headers(answer: requests.Response, policy: str = PLAIN) -> None:
    """Check the headers of all responses to browsers, which have no CORS headers."""
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"] == policy
    assert re.fullmatch(r"req_[0-9a-v]{26}", answer.headers["X-Request-Id"])
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


def check_nowhere(answer: requests.Response, *words: str) -> None:
    """A plain 400: no redirect, no cookie, no page."""
    assert answer.status_code == 400, (answer.status_code, answer.headers.get("Location"))
    check_headers(answer)
    assert "Location" not in answer.headers
    assert "Set-Cookie" not in answer.headers
    assert answer.headers["Content-Type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error", "error_description"}
    assert body["error"] == "invalid_request"
    assert ASCII.fullmatch(body["error_description"])
    missing = [word for word in words if word not in body["error_description"]]
    assert not missing, (missing, body)


HTML = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def check_page(answer: requests.Response, status: int, *words: str) -> None:
    """Check the error page, which a browser gets instead of a redirect."""
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Vary"] == "Accept"
    assert not {"Location", "Set-Cookie"} & set(answer.headers)
    assert answer.headers["X-Request-Id"] in answer.text, "so that people can quote it"
    assert not [word for word in words if word not in answer.text]


def test_a_browser_gets_an_error_page_for_errors_that_are_not_redirected(platform: Platform) -> None:
    url, evil = f"{platform.url}/oauth/authorize", "https://evil.example/<script>"
    wrong: list[tuple[dict[str, Any], str]] = [
        (platform.auth_request(redirect_uri=evil), "redirect_uri"),
        (platform.auth_request(redirect_uri=None), "redirect_uri"),
        (platform.auth_request() | {"client_id": "<b>"}, "client_id"),
        ({"handoff": "<b>"}, "handoff"),
        ({"handoff": "x", "state": "<b>"}, "handoff"),
        ({"state": "\0"}, "NUL"),
        ({"redirect_uri": [CALLBACK, evil]}, "redirect_uri"),
    ]
    for parameters, word in wrong:
        answers = [
            requests.get(url, parameters, headers=HTML, allow_redirects=False, timeout=LIMIT),
            requests.post(url, parameters, headers=HTML, allow_redirects=False, timeout=LIMIT),
        ]
        for answer in answers:
            check_page(answer, 400, word, "invalid_request")
            assert "<b>" not in answer.text
            assert "evil" not in answer.text
        check_nowhere(requests.get(url, parameters, timeout=LIMIT), word)
    put = requests.put(url, headers=HTML, timeout=LIMIT)
    check_page(put, 405, "method_not_allowed")
    assert put.headers["Allow"] == "GET, POST, HEAD"
    check_page(requests.post(url, "x" * 70_000, headers=HTML, timeout=LIMIT), 413, "request_too_large")
    check_page(requests.get(url, headers=HTML | {"Gatepost-Version": "1"}, timeout=LIMIT), 400, "unsupported_version")
    elsewhere = requests.get(f"{platform.url}/oauth/userinfo", headers=HTML, timeout=LIMIT)
    assert elsewhere.headers["Content-Type"] == "application/json"


def check_back(answer: requests.Response, platform: Platform, error: str, *words: str, state: str = "a state") -> None:
    """To the client's own URI, with the error, the state and the issuer."""
    where, query = redirect_target(answer)
    check_headers(answer)
    assert where == CALLBACK
    assert query.pop("error") == error, query
    description = query.pop("error_description")
    assert ASCII.fullmatch(description)
    assert all(word in description for word in words), description
    assert query == {"state": state, "iss": platform.url}
    assert "Set-Cookie" not in answer.headers


def cookie_of(answer: requests.Response) -> tuple[str, str, set[str]]:
    pair, *attributes = answer.headers["Set-Cookie"].split("; ")
    name, _, value = pair.partition("=")
    return name, value, set(attributes)


# --- to the login application


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_browser_goes_to_the_login_application(platform: Platform, method: str) -> None:
    sent: dict[str, Any] = {
        "data" if method == "POST" else "params": platform.auth_request(prompt="login", max_age="60")
    }
    address = f"{platform.url}/oauth/authorize"
    answer = requests.request(method, address, allow_redirects=False, **sent)
    assert answer.status_code == 303
    assert answer.content == b""
    check_headers(answer)
    where, query = redirect_target(answer)
    assert where == LOGIN_URL
    assert set(query) == {"interaction"}
    assert len(query["interaction"]) <= 6 * 1024
    keys = KeySet.import_key_set(platform.gatepost.session.get(f"{platform.url}/oauth/jwks").json())
    read = jws.deserialize_compact(query["interaction"], keys, algorithms=["ES256"])
    assert read.headers()["typ"] == "gatepost-interaction+jwt"
    claims = json.loads(read.payload)
    assert claims.pop("exp") == claims.pop("iat") + 600
    assert re.fullmatch(r"int_[0-9a-v]{26}", claims.pop("jti"))
    assert claims == {
        "iss": platform.url,
        "aud": LOGIN_URL,
        "account": platform.account,
        "client_id": platform.client.id,
        "client_name": "The app",
        "scopes": [
            {"name": "openid", "description": "Sign in: an ID token and userinfo."},
            {"name": "offline_access", "description": "Stay signed in: a refresh token."},
            {"name": "things:read", "description": "May things:read"},
        ],
        "prompt": "login",
        "max_age": 60,
    }


def test_the_query_of_the_login_url_is_preserved(sqlite_gatepost: Service) -> None:
    mine = Platform(sqlite_gatepost, "authorize-query", "login_url=https://login.example/start?tenant=1")
    location = mine.authorize(Browser(), mine.auth_request()).headers["Location"]
    assert location.startswith("https://login.example/start?tenant=1&interaction=ey")
    assert decode_jwt(location.partition("interaction=")[2])[1]["aud"] == "https://login.example/start?tenant=1"


@pytest.mark.parametrize("settings", [("login_url=", "login_jwks="), ("login_url=",), ("login_jwks=",)])
def test_without_a_login_application_the_client_gets_an_error(
    sqlite_gatepost: Service, account_name: str, settings: tuple[str, ...]
) -> None:
    mine = Platform(sqlite_gatepost, f"no-login-{account_name}", *settings)
    check_back(mine.authorize(Browser(), mine.auth_request()), mine, "server_error", "login_url", "login_jwks")


def test_a_request_that_is_too_large_for_an_interaction(platform: Platform) -> None:
    """Which goes through an address bar: 6 KiB at most."""
    wanted = {"userinfo": {f"a_claim_of_a_long_name_{n:03}" * 4: None for n in range(35)}}
    sent = platform.auth_request(
        claims=json.dumps(wanted), login_hint="a" * 512, acr_values="a" * 512, ui_locales="a" * 256
    )
    assert len(sent["claims"]) <= 4096
    words = ("too large", "request fewer scopes or claims")
    check_back(platform.authorize(Browser(), sent), platform, "invalid_request", *words)


def test_long_descriptions_of_scopes_are_left_out(sqlite_gatepost: Service, account_name: str) -> None:
    mine = Platform(sqlite_gatepost, account_name)
    names = ["one", "two", "three"]
    for name in names:
        mine.define_scope(name=name, resource=mine.api, description="請" * 500)
    mine.client = mine.define(scope=" ".join(["openid", *names]))
    result = mine.interaction(Browser(), mine.auth_request(scope=" ".join(["openid", *names])))
    assert [each["name"] for each in result["scopes"]] == ["openid", *names]
    assert [len(each["description"]) for each in result["scopes"]] == [34, 0, 500, 500]


# --- the cookie


def test_the_cookie_of_a_loopback_issuer(platform: Platform) -> None:
    """All ports of a host share cookies: so the port is in its name."""
    name, value, attributes = cookie_of(platform.authorize(Browser(), platform.auth_request()))
    assert name == f"gatepost_{platform.url.rpartition(':')[2]}"
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", value)
    assert attributes == {"Path=/", "HttpOnly", "SameSite=Lax"}


def test_the_cookie_of_an_https_issuer(tmp_path: Path) -> None:
    with service.running(tmp_path / "data", base_url="https://gatepost.example", only="web") as gatepost:
        address = f"http://127.0.0.1:{gatepost.environment['GATEPOST_PORT']}/oauth/authorize"
        gatepost.url = address.removesuffix("/oauth/authorize")
        mine = Platform(gatepost, "https")
        answer = Browser().open(address, mine.auth_request())
    name, value, attributes = cookie_of(answer)
    assert name == "__Host-gatepost"
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", value)
    assert attributes == {"Path=/", "HttpOnly", "Secure", "SameSite=None"}
    assert decode_jwt(redirect_target(answer)[1]["interaction"])[1]["iss"] == "https://gatepost.example"


def test_a_browser_has_one_cookie(platform: Platform) -> None:
    browser = Browser()
    given = {cookie_of(platform.authorize(browser, platform.auth_request()))[1] for _ in range(3)}
    assert len(given) == 1
    assert cookie_of(platform.authorize(Browser(), platform.auth_request()))[1] not in given


@pytest.mark.parametrize("value", ["", "short", "a" * 42, "a" * 44, "é" * 43, '"' + "a" * 41])
def test_a_cookie_that_gatepost_did_not_set_is_replaced(platform: Platform, value: str) -> None:
    name = f"gatepost_{platform.url.rpartition(':')[2]}"
    headers = {"Cookie": f"{name}={value}".encode()}
    answer = Browser().open(f"{platform.url}/oauth/authorize", platform.auth_request(), headers=headers)
    assert cookie_of(answer)[1] != value


@pytest.mark.parametrize(
    "neighbour", ['prefs={"theme": "dark"}', "a[b]=c", 'broken="', "=", ";;", "ünï=cödé", "a=b=c", "expires=x"]
)
def test_other_cookies_of_the_host_are_ignored(platform: Platform, neighbour: str) -> None:
    first = platform.authorize(Browser(), platform.auth_request())
    name, value, _ = cookie_of(first)
    interaction = decode_jwt(redirect_target(first)[1]["interaction"])[1]
    for cookies in (f"{neighbour}; {name}={value}", f"{name}={value}; {neighbour}"):
        answer = Browser().open(
            f"{platform.url}/oauth/authorize", platform.auth_request(), headers={"Cookie": cookies.encode()}
        )
        assert cookie_of(answer)[1] == value
    back = Browser().open(
        f"{platform.url}/oauth/authorize", {"handoff": platform.handoff(interaction)},
        headers={"Cookie": f"{neighbour}; {name}={value}".encode()},
    )  # fmt: skip
    assert "code" in redirect_target(back)[1]


# --- nowhere

FAULTS: dict[str, dict[str, Any]] = {
    "nothing else": {},
    "response_type": {"response_type": "token"},
    "scope": {"scope": "nothing"},
    "prompt": {"prompt": "none"},
    "response_mode": {"response_mode": "form_post"},
    "request": {"request": "a.b.c"},
    "challenge": {"code_challenge": None},
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", [None, "", "x", "cli_", "cli_" + "0" * 26, "CLI", "é"])
def test_an_unknown_client_is_not_redirected(platform: Platform, name: str | None, fault: str) -> None:
    sent = platform.auth_request(client_id=name, **FAULTS[fault])
    check_nowhere(platform.authorize(Browser(), sent), "client_id")
    check_nowhere(Browser().send(f"{platform.url}/oauth/authorize", sent), "client_id")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "uri",
    [
        None, "", "https://evil.example/callback", f"{CALLBACK}?x=1", f"{CALLBACK};x=1", f"{CALLBACK}#",
        f"{CALLBACK}#x", f"{CALLBACK}/", "https://app.example/CALLBACK", "https://app.example/x/..;/callback",
        "https://app.example/x/%2e%2e/callback", "https://user@app.example/callback", "JavaScript:alert(1)",
        "http://localhost:80@evil.example/", f"{CALLBACK}\r\nSet-Cookie: a=b",
    ],
)  # fmt: skip
def test_an_unknown_redirect_uri_is_not_redirected_to(platform: Platform, uri: str | None, fault: str) -> None:
    """Whatever else is wrong."""
    sent = platform.auth_request(**(FAULTS[fault] | {"redirect_uri": uri}))
    check_nowhere(platform.authorize(Browser(), sent), "redirect_uri")


def test_a_disabled_client_gets_the_response_of_an_unknown_one(platform: Platform) -> None:
    client = platform.define(status="disabled")
    answer = platform.authorize(Browser(), platform.auth_request(client))
    check_nowhere(answer, "client_id")
    assert answer.content == platform.authorize(Browser(), platform.auth_request(client_id="cli_" + "0" * 26)).content


def test_a_client_of_a_suspended_account_gets_the_response_of_an_unknown_one(sqlite_gatepost: Service) -> None:
    mine = Platform(sqlite_gatepost, "authorize-suspended")
    assert mine.interaction(Browser(), mine.auth_request())
    sqlite_gatepost.cli("account", "suspend", mine.name)
    check_nowhere(mine.authorize(Browser(), mine.auth_request()), "client_id")


@pytest.mark.parametrize("name", ["client_id", "redirect_uri"])
@pytest.mark.parametrize("second", ["the same", "another"])
def test_client_id_and_redirect_uri_must_be_sent_once(platform: Platform, name: str, second: str) -> None:
    sent = platform.auth_request()
    pairs = [*sent.items(), (name, sent[name] if second == "the same" else "x")]
    check_nowhere(platform.authorize(Browser(), pairs), name, "more than once")
    check_nowhere(Browser().send(f"{platform.url}/oauth/authorize", pairs), name, "more than once")


@pytest.mark.parametrize("name", ["response_type", "scope", "code_challenge", "nonce", "prompt", "response_mode"])
@pytest.mark.parametrize("second", ["the same", "another"])
def test_a_parameter_that_is_sent_twice(platform: Platform, name: str, second: str) -> None:
    """RFC 6749, section 4.1.2.1: the error goes to the client, because its id and redirect URI are valid."""
    sent = platform.auth_request(prompt="login", response_mode="query")
    pairs = [*sent.items(), (name, sent[name] if second == "the same" else "x")]
    check_back(platform.authorize(Browser(), pairs), platform, "invalid_request", name, "more than once")
    by_form = Browser().send(f"{platform.url}/oauth/authorize", pairs)
    check_back(by_form, platform, "invalid_request", name, "more than once")


def test_a_repeated_state_is_not_returned(platform: Platform) -> None:
    _, query = redirect_target(platform.authorize(Browser(), [*platform.auth_request().items(), ("state", "another")]))
    assert query["error"] == "invalid_request"
    assert "state" not in query


def test_a_resource_may_be_sent_more_than_once(platform: Platform) -> None:
    pairs = [*platform.auth_request().items(), ("resource", platform.api), ("resource", platform.api)]
    assert platform.interaction(Browser(), pairs)


@pytest.mark.parametrize(
    "query",
    [
        "", "&&&", "client_id", "=", "client_id=%00", "%00=x", "client_id=%ff", "client_id=%ed%a0%80", "\xff",
        "&".join(f"a{n}=1" for n in range(101)), "client_id=" + "a" * 10_000, "handoff", "request_uri=x",
    ],
)  # fmt: skip
def test_malformed_requests(platform: Platform, query: str) -> None:
    answer = Browser().open(f"{platform.url}/oauth/authorize?{query}")
    check_nowhere(answer)


@pytest.mark.parametrize("value", ["%00", "%ff", "a%00b"])
@pytest.mark.parametrize("name", ["state", "nonce", "scope", "unknown"])
def test_characters_that_no_parameter_may_contain(platform: Platform, name: str, value: str) -> None:
    sent = urlencode(platform.auth_request(**{name: None}))
    check_nowhere(Browser().open(f"{platform.url}/oauth/authorize?{sent}&{name}={value}"))


def test_a_form_is_read_as_a_form(platform: Platform) -> None:
    address, sent = f"{platform.url}/oauth/authorize", platform.auth_request()
    check_nowhere(requests.post(address, json=sent, allow_redirects=False), "application/x-www-form-urlencoded")
    check_nowhere(requests.post(address, params=sent, allow_redirects=False))
    in_both = requests.post(address, params={"client_id": "x"}, data=sent, allow_redirects=False)
    assert redirect_target(in_both)[0] == LOGIN_URL, "what stands in the address of a form is not a parameter"
    large = requests.post(address, data=sent | {"state": "a" * 70_000}, allow_redirects=False)
    assert large.status_code == 413


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_unsupported_methods_and_cross_origin_requests(platform: Platform, method: str) -> None:
    """No preflight is answered: a script has no business here."""
    headers = {"Origin": "https://app.example", "Access-Control-Request-Method": "GET"}
    answer = requests.request(method, f"{platform.url}/oauth/authorize", headers=headers)
    assert answer.status_code == 405
    assert set(answer.headers["Allow"].split(", ")) == {"GET", "POST", "HEAD"}
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


# --- back to the client

BACK: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "no scope": ({"scope": None}, "invalid_scope", ("scope",)),
    "scope not granted": ({"scope": "openid nothing"}, "invalid_scope", ("nothing",)),
    "scope of the service": ({"scope": "gatepost:clients"}, "invalid_scope", ("gatepost:clients",)),
    "scope that is not ASCII": ({"scope": 'é"\\'}, "invalid_scope", ("scope",)),
    "offline_access alone": ({"scope": "offline_access"}, "invalid_scope", ("offline_access",)),
    "no response_type": ({"response_type": None}, "invalid_request", ("response_type",)),
    "token": ({"response_type": "token"}, "unsupported_response_type", ("code",)),
    "id_token": ({"response_type": "id_token token"}, "unsupported_response_type", ("code",)),
    "fragment": ({"response_mode": "fragment"}, "invalid_request", ("response_mode",)),
    "request object": ({"request": "a.b.c"}, "request_not_supported", ("request",)),
    "registration": ({"registration": "{}"}, "registration_not_supported", ("registration",)),
    "no challenge": ({"code_challenge": None, "code_challenge_method": None}, "invalid_request", ("PKCE",)),
    "plain": ({"code_challenge_method": "plain"}, "invalid_request", ("S256",)),
    "no method": ({"code_challenge_method": None}, "invalid_request", ("S256",)),
    "resource": ({"resource": "https://elsewhere.example"}, "invalid_target", ("resource",)),
    "prompt": ({"prompt": "none login"}, "invalid_request", ("prompt",)),
    "max_age": ({"max_age": "-1"}, "invalid_request", ("max_age",)),
    "claims": ({"claims": "x"}, "invalid_request", ("claims",)),
    "dpop_jkt": ({"dpop_jkt": "x"}, "invalid_request", ("dpop_jkt",)),
    "display": ({"display": "fax"}, "invalid_request", ("display",)),
    "id_token_hint": ({"id_token_hint": "x"}, "invalid_request", ("id_token_hint",)),
    "long nonce": ({"nonce": "a" * 513}, "invalid_request", ("nonce",)),
}


@pytest.mark.parametrize("name", BACK)
def test_other_errors_are_redirected_to_the_client(platform: Platform, name: str) -> None:
    changes, error, words = BACK[name]
    check_back(platform.authorize(Browser(), platform.auth_request(**changes)), platform, error, *words)


def test_a_client_without_the_grant(platform: Platform) -> None:
    client = platform.define(
        scope="openid",
        grants=[
            {"grant_type": "authorization_code", "scopes": ["openid"], "status": "disabled"},
            {"grant_type": "refresh_token", "scopes": ["openid"]},
        ],
    )
    check_back(platform.authorize(Browser(), platform.auth_request(client)), platform, "unauthorized_client")


def test_the_issuer_of_a_response_is_that_of_the_metadata(platform: Platform) -> None:
    """Byte for byte, in success and error: RFC 9207, section 2.4."""
    issuer = platform.gatepost.session.get(f"{platform.url}/.well-known/oauth-authorization-server").json()["issuer"]
    browser = Browser()
    _, refused = redirect_target(platform.authorize(browser, platform.auth_request(scope=None)))
    interaction = platform.interaction(browser, platform.auth_request())
    _, completed = redirect_target(platform.submit_handoff(browser, platform.handoff(interaction)))
    assert refused["iss"] == completed["iss"] == interaction["iss"] == issuer


@pytest.mark.parametrize("state", ["a", "a b&c=d", "é", "%41", "\r\nSet-Cookie: a=b", "#x", "a" * 3000, '"><script>'])
def test_state_is_returned_unchanged(platform: Platform, state: str) -> None:
    answer = platform.authorize(Browser(), platform.auth_request(scope=None, state=state))
    assert redirect_target(answer)[1]["state"] == state
    assert "Set-Cookie" not in answer.headers
    assert answer.headers["Location"].isascii()


@pytest.mark.parametrize("state", [None, ""])
def test_without_a_state_none_is_returned(platform: Platform, state: str | None) -> None:
    _, query = redirect_target(platform.authorize(Browser(), platform.auth_request(scope=None, state=state)))
    assert "state" not in query


def test_the_query_of_a_redirect_uri_is_preserved(platform: Platform) -> None:
    client = platform.define(redirect_uris=["https://app.example/callback?a=b"])
    sent = platform.auth_request(client, redirect_uri="https://app.example/callback?a=b", scope=None, state="s")
    location = platform.authorize(Browser(), sent).headers["Location"]
    assert location.startswith("https://app.example/callback?a=b&error=invalid_scope&")
    check_nowhere(platform.authorize(Browser(), sent | {"redirect_uri": CALLBACK}), "redirect_uri")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_a_loopback_redirect_may_have_any_port(platform: Platform, host: str) -> None:
    client = platform.define(redirect_uris=[f"http://{host}/cb?a=b"], application_type="native")
    sent = platform.auth_request(client, redirect_uri=f"http://{host}:49152/cb?a=b")
    browser = Browser()
    back = platform.submit_handoff(browser, platform.handoff(platform.interaction(browser, sent)))
    assert back.headers["Location"].startswith(f"http://{host}:49152/cb?a=b&code=")
    for uri in (f"http://{host}:49152/cb?a=c", f"http://{host}:49152/cb", f"http://{host}:80@evil.example/cb?a=b"):
        check_nowhere(platform.authorize(browser, sent | {"redirect_uri": uri}), "redirect_uri")


def test_headers_of_a_proxy_change_neither_issuer_nor_links(platform: Platform) -> None:
    path = f"/oauth/authorize?{urlencode(platform.auth_request())}"
    forged = (
        "X-Forwarded-Host: evil.example", "X-Forwarded-Proto: https", "X-Forwarded-Port: 443",
        "Forwarded: host=evil.example;proto=https", "X-Forwarded-Prefix: /evil", "X-Original-URL: /evil",
    )  # fmt: skip
    raw = request(f"GET {path} HTTP/1.1", *forged).replace(b"gatepost.test", b"evil.example")
    answer = exchange(platform.url, raw)
    assert answer.status == 303
    assert "evil" not in json.dumps(answer.headers)
    result = decode_jwt(answer.headers["location"].partition("interaction=")[2])[1]
    assert (result["iss"], result["aud"]) == (platform.url, LOGIN_URL)


# --- by a form that posts itself


class Form(HTMLParser):
    """What a browser would find in the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action = self.method = self.script = ""
        self.inputs: dict[str, str] = {}
        self.tags: list[str] = []
        self._in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self._in_script = tag == "script"
        if tag == "form":
            self.action, self.method = found["action"], found["method"]
        if tag == "input":
            assert found["type"] == "hidden"
            self.inputs[found["name"]] = found["value"]

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.script += data

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False


@pytest.mark.parametrize("state", ["a state", '"><script>alert(1)</script>', "</form>&amp;'é\n"])
def test_an_error_by_form_post(platform: Platform, state: str) -> None:
    sent = platform.auth_request(response_mode="form_post", scope='"><script>alert(2)</script>', state=state)
    page = check_form(platform.authorize(Browser(), sent))
    assert page.inputs.pop("error_description").startswith("scope: ")
    assert page.inputs == {"error": "invalid_scope", "state": state, "iss": platform.url}


def test_a_code_by_form_post(platform: Platform) -> None:
    browser = Browser()
    interaction = platform.interaction(browser, platform.auth_request(response_mode="form_post"))
    page = check_form(platform.submit_handoff(browser, platform.handoff(interaction)))
    assert set(page.inputs) == {"code", "state", "iss"}
    assert platform.redeem(page.inputs["code"]).status_code == 200


def check_form(answer: requests.Response) -> Form:
    """One form to the client and one script, ours; nothing else can run or be sent elsewhere."""
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    page = Form(answer.content.decode())
    script = base64.b64encode(hashlib.sha256(page.script.encode()).digest()).decode()
    check_headers(
        answer,
        f"default-src 'none'; script-src 'sha256-{script}'; frame-ancestors 'none'",
    )
    assert (page.action, page.method) == (CALLBACK, "post")
    assert [page.tags.count(tag) for tag in ("form", "script", "noscript", "button")] == [1, 1, 1, 1]
    return page


# --- hints of who is expected


def id_token(platform: Platform, client: str, typ: str = "JWT", **changes: Any) -> str:
    """An ID token such as the service signs, but for the changes."""
    store, made = platform.gatepost.opened.store, platform.gatepost.opened.service
    key = store.read_now(lambda tx: made.active_key(tx, "RS256"))
    claims = {"iss": platform.url, "sub": f"{platform.account}.ada", "aud": client, "iat": 1, "exp": 2} | changes
    return made.ring.sign(key, json.dumps(claims).encode(), typ).decode()


def test_an_expired_id_token_is_accepted_as_hint(platform: Platform) -> None:
    browser = Browser()
    for hint in (platform.tokens()["id_token"], id_token(platform, platform.client.id)):
        assert platform.interaction(browser, platform.auth_request(id_token_hint=hint))["sub"] == "ada"
    assert "sub" not in platform.interaction(browser, platform.auth_request())


def test_an_id_token_hint_that_is_not_an_id_token_of_this_client(platform: Platform, other: Platform) -> None:
    own, second = platform.client.id, platform.define().id
    wrong = {
        "of another client": id_token(platform, second),
        "of another account": id_token(platform, own, sub=f"{other.account}.ada"),
        "of another issuer": id_token(platform, own, iss="https://evil.example"),
        "an access token": platform.tokens()["access_token"],
        "with another type": id_token(platform, own, typ="at+jwt"),
        "of another key": platform.handoff({"jti": "x", "scopes": []}, aud=own, header={"typ": "JWT"}),
        "altered": id_token(platform, own)[:-8] + "AAAAAAAA",
    }
    for name, hint in wrong.items():
        answer = platform.authorize(Browser(), platform.auth_request(id_token_hint=hint))
        assert redirect_target(answer)[1]["error"] == "invalid_request", name
        check_back(answer, platform, "invalid_request", "id_token_hint")


def test_claims_may_name_the_person(platform: Platform, other: Platform) -> None:
    def wanted(subject: str) -> dict[str, str]:
        return platform.auth_request(claims=json.dumps({"id_token": {"sub": {"value": subject}}}))

    assert platform.interaction(Browser(), wanted(f"{platform.account}.ada"))["sub"] == "ada"
    for subject in ("ada", f"{other.account}.ada", f"{platform.account}."):
        check_back(platform.authorize(Browser(), wanted(subject)), platform, "invalid_request", "claims")
