"""Every path of the public listener: the methods it takes, what a browser may do with it, the version it speaks."""

import pytest
import requests

from gatepost.web.app import ROUTES
from gatepost.web.responses import VERSION
from tests.service import Service
from tests.wire import PATH_WITHOUT_CORS, check_every_answer, check_refusal, exchange, request

UNKNOWN = [
    "/", "/oauth", "/oauth/", "/oauth/client", "/oauth/clients/", "/oauth/clients/cli_1", "/OAUTH/clients",
    "//oauth/clients", "/oauth/clients;x", "/oauth/%ff", "/oauth/%00", "/oauth/../oauth/clients", "/webhooks/",
    "/webhooks/endpoints/ep_1", "/events", "/metrics", "/healthz", "/openapi.json", "/console/", "/favicon.ico",
]  # fmt: skip


def lower(answer: requests.Response) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


@pytest.mark.parametrize("path", UNKNOWN)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_an_unknown_path(sqlite_gatepost: Service, method: str, path: str) -> None:
    answer = exchange(sqlite_gatepost.url, request(f"{method} {path} HTTP/1.1"))
    check_refusal(answer, path, "not_found", "no such path")


@pytest.mark.parametrize("path", ["/oauth%2Fjwks", "/oauth%2fclients", "/%2Foauth/tokens", "/oauth%2Fauthorize"])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_an_encoded_slash_does_not_separate(sqlite_gatepost: Service, method: str, path: str) -> None:
    assert exchange(sqlite_gatepost.url, request(f"{method} {path} HTTP/1.1")).status == 404


SCRIPTABLE = [path for path in ROUTES if path != PATH_WITHOUT_CORS]
EVERY = [(path, method) for path, route in ROUTES.items() for method in route.methods]
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW")
OTHER = [(path, method) for path, route in ROUTES.items() for method in METHODS if method not in route.methods]


@pytest.mark.parametrize(("path", "method"), OTHER)
def test_another_method(sqlite_gatepost: Service, path: str, method: str) -> None:
    answer = sqlite_gatepost.session.request(method, f"{sqlite_gatepost.url}{path}")
    check_refusal(answer, path, "method_not_allowed")
    allowed = {*ROUTES[path].methods} | ({"HEAD"} if "GET" in ROUTES[path].methods else set())
    allowed |= set() if path == PATH_WITHOUT_CORS else {"OPTIONS"}
    assert set(answer.headers["Allow"].split(", ")) == allowed


# What a bare GET of a path that takes one is answered with.
BARE = {
    "/webhooks/deliveries": 401,
    "/oauth/userinfo": 401,
    "/oauth/authorize": 400,
    "/oauth/jwks": 200,
    "/.well-known/openid-configuration": 200,
    "/.well-known/oauth-authorization-server": 200,
    "/.well-known/oauth-protected-resource": 200,
}


@pytest.mark.parametrize("path", ROUTES)
def test_head_is_get_without_the_body(sqlite_gatepost: Service, path: str) -> None:
    head = sqlite_gatepost.session.head(f"{sqlite_gatepost.url}{path}")
    get = sqlite_gatepost.session.get(f"{sqlite_gatepost.url}{path}")
    assert head.status_code == get.status_code
    assert head.content == b""
    differ = ("x-request-id", "date")
    result, shown = lower(head), lower(get)
    assert {name: result[name] for name in result if name not in differ} == {
        name: shown[name] for name in shown if name not in differ
    }
    assert (path in BARE) == ("GET" in ROUTES[path].methods)
    assert head.status_code == BARE.get(path, 405)


@pytest.mark.parametrize("path", SCRIPTABLE)
def test_a_browser_may_ask_from_anywhere_but_without_credentials(sqlite_gatepost: Service, path: str) -> None:
    asked = {
        "Origin": "https://app.example.com",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type, idempotency-key",
    }
    preflight = sqlite_gatepost.session.options(f"{sqlite_gatepost.url}{path}", headers=asked)
    assert preflight.status_code == 204
    assert preflight.content == b""
    check_every_answer(lower(preflight))
    assert preflight.headers["Access-Control-Allow-Methods"] == ", ".join(ROUTES[path].methods)
    allowed = {name.strip().lower() for name in preflight.headers["Access-Control-Allow-Headers"].split(",")}
    assert {"authorization", "content-type", "dpop", "idempotency-key", "prefer", "gatepost-version"} <= allowed
    for method in ROUTES[path].methods:
        answer = sqlite_gatepost.session.request(
            method, f"{sqlite_gatepost.url}{path}", headers={"Origin": "https://app.example.com", "Cookie": "a=b"}
        )
        check_every_answer(lower(answer))
        assert "Set-Cookie" not in answer.headers


def test_no_script_of_another_site_reads_the_authorization_endpoint(sqlite_gatepost: Service) -> None:
    """Browsers are sent there; a page that could ask from a script might read where they are sent back to."""
    url, asked = f"{sqlite_gatepost.url}{PATH_WITHOUT_CORS}", {"Origin": "https://app.example.com"}
    preflight = sqlite_gatepost.session.options(url, headers=asked | {"Access-Control-Request-Method": "POST"})
    check_refusal(preflight, PATH_WITHOUT_CORS, "method_not_allowed")
    assert preflight.headers["Allow"] == "GET, POST, HEAD"
    for method in ROUTES[PATH_WITHOUT_CORS].methods:
        answer = sqlite_gatepost.session.request(method, url, headers=asked)
        check_refusal(answer, PATH_WITHOUT_CORS, "invalid_request")
        assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(("path", "method"), EVERY)
@pytest.mark.parametrize("version", ["2026-11-14", "1", "latest", "", "\xe9", VERSION + " x"])
def test_an_unknown_version(sqlite_gatepost: Service, path: str, method: str, version: str) -> None:
    answer = sqlite_gatepost.session.request(
        method, f"{sqlite_gatepost.url}{path}", headers={"Gatepost-Version": version}
    )
    check_refusal(answer, path, "unsupported_version", VERSION)


@pytest.mark.parametrize(("path", "method"), EVERY)
def test_the_version_it_speaks(sqlite_gatepost: Service, path: str, method: str) -> None:
    answer = sqlite_gatepost.session.request(
        method, f"{sqlite_gatepost.url}{path}", headers={"Gatepost-Version": VERSION}
    )
    assert "unsupported_version" not in answer.text
    check_every_answer(lower(answer), cors=path != PATH_WITHOUT_CORS)


@pytest.mark.parametrize(
    "raw",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /oauth/jwks HTTP/9.9\r\nHost: a\r\n\r\n",
        request("GET /oauth/jwks HTTP/1.1", "X-Nul: a\0b"),
        request("GET /oauth/jwks\0 HTTP/1.1"),
        b"POST /oauth/tokens HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"POST /oauth/tokens HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"POST /oauth/tokens HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ],
)
def test_what_is_not_http(sqlite_gatepost: Service, raw: bytes) -> None:
    """Refused by the HTTP server or by us, and the service lives on."""
    assert exchange(sqlite_gatepost.url, raw).status == 400
    assert sqlite_gatepost.session.get(f"{sqlite_gatepost.url}/oauth/jwks").status_code == 200


@pytest.mark.parametrize(
    "field",
    [
        "Host: evil.example",
        "X-Forwarded-Host: evil.example",
        "Forwarded: host=evil.example;proto=https",
        "X-Forwarded-Proto: https",
    ],
)
@pytest.mark.parametrize("document", ["oauth-authorization-server", "openid-configuration"])
def test_headers_change_no_link(sqlite_gatepost: Service, document: str, field: str) -> None:
    name, _, value = field.partition(": ")
    url = f"{sqlite_gatepost.url}/.well-known/{document}"
    plain = sqlite_gatepost.session.get(url)
    assert plain.json()["issuer"] == sqlite_gatepost.url
    assert sqlite_gatepost.session.get(url, headers={name: value}).content == plain.content
