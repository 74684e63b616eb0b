"""Redirect URIs: what may be registered. RFC 9700 section 4.1, RFC 8252 section 7, and what other servers fell to."""

from typing import Any

import pytest

from gatepost.oauth import redirect_uris
from tests.unit.clients import NATIVE, WEB, defined, refused

RIGHT = [
    "https://app.example.com",
    "https://app.example.com/",
    "https://app.example.com/callback",
    "https://app.example.com/CALLBACK?a=b&c=d",
    "https://app.example.com:8443/callback",
    "https://APP.example.com/callback",  # compared as it is
    "https://app.example.com/a@b",
    "https://192.0.2.1/callback",
    "https://[2001:db8::1]:8443/callback",
    "http://127.0.0.1/callback",
    "http://127.0.0.1:3000/callback",
    "http://[::1]:3000/callback",
    "http://localhost:3000/callback",
    "https://a/" + "b" * 2038,
]
NATIVE_ONLY = ["com.example.app:/callback", "com.example.app://callback", "com.example.app:/oauth2/callback?a=b"]
WRONG = [
    "callback",
    "/callback",
    "//app.example.com/callback",
    "?a=b",
    ":callback",
    "https:",
    "https://",
    "https:///callback",
    "https:app.example.com",
    "https:/app.example.com",
    # userinfo: CVE-2020-15234 and its kind
    "https://user@app.example.com/callback",
    "https://user:password@app.example.com/callback",
    "https://@app.example.com/callback",
    "https://app.example.com@evil.example/callback",
    "http://localhost:80@evil/",
    "http://127.0.0.1:80@evil.example/",
    "http://[::1]@evil.example/",
    # fragments, even empty ones
    "https://app.example.com/callback#",
    "https://app.example.com/callback#a=b",
    "https://app.example.com#",
    "http://127.0.0.1/#",
    # http elsewhere than on loopback
    "http://app.example.com/callback",
    "http://localhost.evil.example/",
    "http://127.0.0.1.evil.example/",
    "http://evil.example/127.0.0.1",
    "http://127.0.0.2/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0.0.0.0/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::]/",
    "http://10.0.0.1/",
    # schemes that run or reach something
    "javascript:alert(1)",
    "JavaScript:alert(1)",
    "javascript://app.example.com/%0aalert(1)",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc/passwd",
    "ftp://app.example.com/",
    "ws://app.example.com/",
    "HTTPS://app.example.com/callback",
    "Http://127.0.0.1/",
    # what parsers disagree about
    "https://app.example.com\\@evil.example/",
    "https:\\\\app.example.com/",
    "https://app.example.com/a\\b",
    "https://app.example.com\t/callback",
    "https://app.example.com/call\nback",
    "https://app.example.com/\r\nLocation: https://evil.example",
    " https://app.example.com/callback",
    "https://app.example.com/callback ",
    "https://app.example.com/a b",
    "https://app.example.com/\0",
    "https://äpp.example/callback",
    "https://app.example.com/größe",
    "https://app。example.com/",
    "https://*.example.com/callback",
    "https://*/",
    "https://app.example.com,evil.example/",
    "https://app.example.com;evil.example/",
    "https://app.example.com%2eevil.example/",
    "https://[::1/",
    "https://::1/",
    "https://[app.example.com]/",
    "https://app.example.com:/callback",
    "https://app.example.com:99999/",
    "https://app.example.com:-1/",
    "https://app.example.com:a/",
    "https://app.example.com:443:443/",
    "https://a/" + "b" * 2039,
]


@pytest.mark.parametrize("application_type", ["web", "native"])
@pytest.mark.parametrize("uri", RIGHT)
def test_right(uri: str, application_type: str) -> None:
    made = defined({"redirect_uris": [uri], "application_type": application_type})
    assert made.redirect_uris == [uri]


@pytest.mark.parametrize("application_type", ["web", "native"])
@pytest.mark.parametrize("uri", WRONG)
def test_wrong(uri: str, application_type: str) -> None:
    for others in ([], ["https://app.example.com/callback"]):
        found = refused({"redirect_uris": [*others, uri], "application_type": application_type})
        assert (found.code, found.status, found.pointer) == ("invalid_redirect_uri", 400, "/redirect_uris")
        assert found.detail.startswith("redirect_uris: ")
        assert len(found.detail) < 500


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("/callback", "must be an absolute URI, such as https://app.example.com/callback"),
        ("callback", "must be an absolute URI, such as https://app.example.com/callback"),
        ("https://app.example.com/a\\b", "must have no backslash"),
        ("https://app.example.com/a b", "must have no space"),
        ("HTTPS://app.example.com/", "must have its scheme in lower case, since redirect URIs are compared as strings"),
    ],
)
@pytest.mark.parametrize("native", [False, True])
def test_the_problem_is_named(uri: str, problem: str, native: bool) -> None:
    assert redirect_uris.problem(uri, native=native) == problem


@pytest.mark.parametrize("uri", NATIVE_ONLY)
def test_private_use_schemes_are_for_native_applications(uri: str) -> None:
    assert defined(NATIVE | {"redirect_uris": [uri]}).redirect_uris == [uri]
    assert redirect_uris.problem(uri, native=False) != ""
    assert refused(WEB | {"redirect_uris": [uri]}).code == "invalid_redirect_uri"


@pytest.mark.parametrize("uri", ["myapp:/callback", "com-example-app:/callback", "Com.Example.App:/callback", ".:/a"])
def test_a_private_use_scheme_has_a_dot_and_one_spelling(uri: str) -> None:
    assert refused(NATIVE | {"redirect_uris": [uri]}).code == "invalid_redirect_uri"


@pytest.mark.parametrize("uri", ["com.example.app:/callback#", "com.example.app://user@callback"])
def test_private_use_schemes_have_no_fragment_nor_user_either(uri: str) -> None:
    assert refused(NATIVE | {"redirect_uris": [uri]}).code == "invalid_redirect_uri"


@pytest.mark.parametrize(
    "value",
    [
        "https://app.example.com/callback", {}, [5], [None], [""], [["https://app.example.com"]],
        ["https://app.example.com/callback"] * 2, [f"https://app.example.com/{n}" for n in range(51)],
    ],
)  # fmt: skip
def test_they_are_a_list_all_different(value: Any) -> None:
    found = refused({"redirect_uris": value})
    assert (found.code, found.pointer) == ("invalid_redirect_uri", "/redirect_uris")


def test_up_to_fifty_in_the_order_given() -> None:
    uris = [f"https://app.example.com/{n}" for n in reversed(range(50))]
    assert defined({"redirect_uris": uris}).redirect_uris == uris


def test_a_machine_may_have_some_too_and_they_are_checked() -> None:
    machine = {"grant_types": ["client_credentials"]}
    assert defined(machine | WEB).redirect_uris == WEB["redirect_uris"]
    assert refused(machine | {"redirect_uris": ["http://evil.example/"]}).code == "invalid_redirect_uri"
