"""What is wrong with a request is said in a 4xx of the right form, naming the part at fault; never by a 5xx."""

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from gatepost.core import ids
from gatepost.ledger.operations import OPERATIONS
from gatepost.web.tokens import ASSERTION_TYPE
from tests.service import Client, Service
from tests.waiting import LIMIT
from tests.wire import check_refusal, exchange, request, session_from_new_address

FORM = "application/x-www-form-urlencoded"
DEFINING = ("/oauth/clients", "/oauth/scopes")
ASKING = b"grant_type=client_credentials&scope=gatepost:clients"
MACHINE = {"grant_types": ["client_credentials"]}


class Caller:
    """The first client of an account, with a token for everything."""

    def __init__(self, gatepost: Service, name: str) -> None:
        self.gatepost, self.url = gatepost, gatepost.url
        _, self.client = gatepost.account(name)
        self.token = gatepost.token(self.client, " ".join(OPERATIONS))

    def ask(self, body: bytes, content_type: str = FORM, **headers: str) -> requests.Response:
        sent = {"Authorization": self.client.basic, "Content-Type": content_type} | headers
        return self.gatepost.session.post(f"{self.url}/oauth/tokens", data=body, headers=sent)

    def define(self, path: str, body: bytes | dict[str, Any], **headers: str) -> requests.Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"} | headers
        return self.gatepost.session.post(f"{self.url}{path}", data=data, headers=sent)


@pytest.fixture(scope="module")
def caller(sqlite_gatepost: Service) -> Iterator[Caller]:
    yield Caller(sqlite_gatepost, "bad-input")
    log = sqlite_gatepost.directory.with_name(f"{sqlite_gatepost.directory.name}.log").read_text()
    assert '"event": "defect"' not in log


# --- token requests


@pytest.mark.parametrize(
    ("body", "code", "word"),
    [
        (b"", "invalid_request", "grant_type"),
        (b"grant_type=&scope=a", "invalid_request", "grant_type"),
        (b"scope=gatepost:clients", "invalid_request", "grant_type"),
        (b"grant_type=password&username=a&password=b", "unsupported_grant_type", "grant_type"),
        (b"grant_type=implicit", "unsupported_grant_type", "grant_type"),
        (b"grant_type=client_credentials%20", "unsupported_grant_type", "grant_type"),
        (b"grant_type=client_credentials", "invalid_scope", "scope"),
        (b"grant_type=client_credentials&scope=", "invalid_scope", "scope"),
        (b"grant_type=client_credentials&scope=*", "invalid_scope", "scope"),
        (b"grant_type=client_credentials&scope=" + b"a" * 60_000, "invalid_scope", "scope"),
        (ASKING + b"%20%20gatepost:scopes", "invalid_scope", "scope"),
        (ASKING + b"&scope=gatepost:clients", "invalid_request", "scope"),
        (ASKING + b"&grant_type=client_credentials", "invalid_request", "grant_type"),
        (ASKING + b"&unknown=1&unknown=2", "invalid_request", "unknown"),
        (ASKING + b"&%C3%A9=1&%C3%A9=2", "invalid_request", "more than once"),
        (ASKING + b"&resource=https://a.example&resource=https://b.example", "invalid_target", "resource"),
        (ASKING + b"&resource=https://nobody.example", "invalid_target", "resource"),
        (ASKING + b"&resource=%01", "invalid_target", "resource"),
        (ASKING + b"%00", "invalid_request", "scope"),
        (ASKING + b"&a%00b=1", "invalid_request", "NUL"),
        (ASKING + b"&a\0b=1", "invalid_request", "NUL"),
        (ASKING + b"&state=\xff\xfe", "invalid_request", "UTF-8"),
        (ASKING + b"&state=%FF", "invalid_request", "UTF-8"),
        (ASKING + b"&state=%C0%AF", "invalid_request", "UTF-8"),
        (ASKING + b"&state=%ED%A0%80", "invalid_request", "UTF-8"),
        (ASKING + b"".join(b"&p%d=1" % n for n in range(100)), "invalid_request", "parameters"),
        (ASKING + b"&client_id=cli_00000000000000000000000000", "invalid_request", "client_id"),
    ],
)
def test_a_wrong_token_request(caller: Caller, body: bytes, code: str, word: str) -> None:
    check_refusal(caller.ask(body), "/oauth/tokens", code, word)


@pytest.mark.parametrize("body", [ASKING + b"&unknown=1", ASKING + b"&state=&state=", ASKING + b"&&x=%E2%82%AC"])
def test_unknown_and_empty_parameters_are_ignored(caller: Caller, body: bytes) -> None:
    assert caller.ask(body).status_code == 200


@pytest.mark.parametrize(
    "content_type", ["application/json", "text/plain", "multipart/form-data; boundary=x", "", "a/b/c", "\xe9"]
)
def test_a_token_request_is_a_form(caller: Caller, content_type: str) -> None:
    check_refusal(caller.ask(ASKING, content_type), "/oauth/tokens", "invalid_request", FORM)


@pytest.mark.parametrize(
    "authorization",
    [
        "Basic",
        "Basic ",
        "Basic !!!",
        "Basic Y2xp",
        f"Basic {b64encode(b'no colon').decode()}",
        f"Basic {b64encode(bytes([0xFF, 0xFE])).decode()}",
        f"Basic {b64encode(b'a:%FF').decode()}",
        f"Basic {b64encode(b':').decode()}",
        f"Basic {b64encode(bytes(200)).decode()}",
        *[
            f"Basic {b64encode(name + b':x').decode()}"
            for name in (b"keys", b"operator", b"gatepost", b"throttle 00 1")
        ],
        f"Basic {b64encode(b'a' * 20_000 + b':b').decode()}",
        "Bearer abc",
        "Digest username=a",
        "\xe9",
    ],
)
def test_bad_credentials_in_the_header(caller: Caller, authorization: str) -> None:
    answer = caller.ask(ASKING, Authorization=authorization)
    check_refusal(answer, "/oauth/tokens", "invalid_client", "client authentication failed")
    assert answer.headers["WWW-Authenticate"] == 'Basic realm="gatepost"'
    assert "Gatepost-Event" not in answer.headers


@pytest.mark.parametrize(
    ("basic", "more"),
    [
        (True, {"client_secret": "x"}),
        (True, {"client_assertion": "a.b.c", "client_assertion_type": ASSERTION_TYPE}),
        (False, {"client_secret": "x", "client_assertion": "a.b.c", "client_assertion_type": ASSERTION_TYPE}),
    ],
)
def test_two_ways_to_authenticate_at_once(caller: Caller, basic: bool, more: dict[str, str]) -> None:
    form = {"grant_type": "client_credentials", "scope": "gatepost:clients", "client_id": caller.client.id} | more
    headers = {"Authorization": caller.client.basic} if basic else {}
    answer = caller.gatepost.session.post(f"{caller.url}/oauth/tokens", data=form, headers=headers)
    check_refusal(answer, "/oauth/tokens", "invalid_request", "one method")


@pytest.mark.parametrize(
    "assertion",
    [
        "", "a", "a.b", "a.b.c.d", "....", "é.é.é", "a" * 30_000, "e30.eyJzdWIiOltdfQ.x",
        "e30.eyJzdWIiOiJcdWQ4MDAifQ.x",
        "e30." + b64encode(b'{"sub": ' + b"[" * 5000 + b"]" * 5000 + b"}").decode() + ".x",
    ],
)  # fmt: skip
def test_what_is_no_assertion(caller: Caller, assertion: str) -> None:
    form = {"grant_type": "client_credentials", "scope": "a", "client_assertion_type": ASSERTION_TYPE}
    with session_from_new_address() as session:
        answer = session.post(f"{caller.url}/oauth/tokens", data=form | {"client_assertion": assertion})
    check_refusal(answer, "/oauth/tokens", "invalid_client", "client authentication failed")


# --- JSON


def deep(inside: bytes, opening: bytes, closing: bytes, count: int) -> bytes:
    return b'{"name": "a", "claims": ' + opening * count + inside + closing * count + b"}"


@pytest.mark.parametrize("path", DEFINING)
@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"{,}", "JSON"),
        (b"{'name': 1}", "JSON"),
        (b'{"name": "a",}', "JSON"),
        (b'{"name": NaN}', "NaN"),
        (b'{"max_lifetime": -Infinity}', "Infinity"),
        (b"\xef\xbb\xbf{}", "JSON"),
        ('{"name": "a"}'.encode("utf-16"), "UTF-8"),
        (b'{"name": "\xff"}', "UTF-8"),
        (b'{"name": "\xed\xa0\x80"}', "UTF-8"),
        (b"[]", "object"),
        (b"null", "object"),
        (b'"name"', "object"),
        (b"5", "object"),
        (b'{"name": "a", "name": "a"}', "name"),
        (b'{"name": "a", "claims": {"x": {"twice": 1, "twice": 2}}}', "repeated"),
        (b'{"\\ud800": 1, "\\ud800": 2}', "repeated"),
        (b'{"name": "a\\u0000b"}', "/name"),
        (b'{"name": "a\0b"}', "JSON"),
        (b'{"a\\u0000b": 1}', "NUL"),
        (b'{"name": "\\ud800"}', "/name"),
        (b'{"name": "\\udc00\\ud800"}', "/name"),
        (b'{"claims": ["\\udfff"]}', "/claims/0"),
        (b'{"metadata": {"\\ud800": "a"}}', "/metadata"),
        (b'{"max_lifetime": 1' + b"0" * 30 + b"}", "/max_lifetime"),
        (b'{"max_lifetime": -1' + b"0" * 9000 + b"}", "/max_lifetime"),
        (b'{"max_lifetime": 1e999}', "/max_lifetime"),
        (deep(b"1", b"[", b"]", 40), "/claims/0/0"),
        (deep(b"1", b"[", b"]", 900), "nested"),
        (deep(b"1", b"[", b"]", 30_000), "nested"),
        (deep(b"1", b'{"a": ', b"}", 900), "/claims/a/a"),
    ],
)
def test_what_is_not_acceptable_json(caller: Caller, path: str, body: bytes, word: str) -> None:
    answer = caller.define(path, body)
    check_refusal(answer, path, "invalid_request", word)
    assert answer.headers["Gatepost-Event"].startswith("evt_")


@pytest.mark.parametrize("path", DEFINING)
@pytest.mark.parametrize("content_type", [FORM, "text/json", "application/json+x", "", "application/jsonp"])
def test_a_definition_is_json(caller: Caller, path: str, content_type: str) -> None:
    answer = caller.define(path, b'{"name": "a"}', **{"Content-Type": content_type})
    check_refusal(answer, path, "unsupported_media_type", "application/json")


@pytest.mark.parametrize("key", ["", "a" * 256, "\xe9"])
def test_an_idempotency_key_is_short_ascii(caller: Caller, key: str) -> None:
    answer = caller.define("/oauth/clients", MACHINE, **{"Idempotency-Key": key})
    check_refusal(answer, "/oauth/clients", "invalid_request", "Idempotency-Key")


# --- sizes


def chunked(body: bytes) -> bytes:
    pieces = [body[start : start + 8192] for start in range(0, len(body), 8192)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize("path", [*DEFINING, "/oauth/tokens", "/webhooks/endpoints", "/webhooks/subscriptions"])
@pytest.mark.parametrize("size", [65_537, 1_000_000])
@pytest.mark.parametrize("declared", [True, False])
def test_a_body_may_have_64_kib(caller: Caller, path: str, size: int, declared: bool) -> None:
    fields = [f"Authorization: Bearer {caller.token}", "Content-Type: application/json"]
    body = b'{"name": "' + b"a" * (size - 12) + b'"}'
    line = f"POST {path} HTTP/1.1"
    if declared:
        raw = request(line, *fields, body=body)
    else:
        raw = request(line, *fields, "Transfer-Encoding: chunked", body=b"").replace(b"Content-Length: 0\r\n", b"")
        raw += chunked(body)
    check_refusal(exchange(caller.url, raw), path, "request_too_large", "65536")


def test_a_body_of_64_kib_is_read(caller: Caller) -> None:
    body = json.dumps({"name": "a"}).encode()
    answer = caller.define("/oauth/scopes", body + b" " * (65_536 - len(body)))
    assert answer.status_code == 201, answer.text


def test_a_long_token_is_read_and_huge_headers_are_not(caller: Caller) -> None:
    line, json_type = "POST /oauth/clients HTTP/1.1", "Content-Type: application/json"
    long = exchange(caller.url, request(line, json_type, f"Authorization: Bearer {'a' * 40_000}", body=b"{}"))
    check_refusal(long, "/oauth/clients", "invalid_token", "verified")
    for fields in ([f"X-Long: {'a' * 600_000}"], [f"X-{number}: 1" for number in range(2000)]):
        # The HTTP server itself refuses these, before there is a request that could be answered in our form.
        assert exchange(caller.url, request(line, json_type, *fields, body=b"{}")).status == 431


# --- headers


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/oauth/tokens", ["Authorization: Basic {basic}", "Authorization: Basic {basic}"]),
        ("/oauth/tokens", ["Authorization: Basic AAAA", "Authorization: Basic {basic}"]),
        ("/oauth/clients", ["Authorization: Bearer {token}", "Authorization: Bearer {token}"]),
        ("/webhooks/endpoints", ["Authorization: Bearer {token}", "authorization: Basic {basic}"]),
        ("/oauth/clients", ["Authorization: Bearer {token}", "Idempotency-Key: a", "Idempotency-Key: b"]),
        ("/oauth/clients", ["Authorization: Bearer {token}", "Content-Type: text/plain"]),
    ],
)
def test_headers_that_may_not_repeat(caller: Caller, path: str, fields: list[str]) -> None:
    basic = caller.client.basic.removeprefix("Basic ")
    sent = [field.format(basic=basic, token=caller.token) for field in fields]
    content_type = f"Content-Type: {FORM if path == '/oauth/tokens' else 'application/json'}"
    body = ASKING if path == "/oauth/tokens" else b"{}"
    answer = exchange(caller.url, request(f"POST {path} HTTP/1.1", content_type, *sent, body=body))
    check_refusal(answer, path, "invalid_request", "more than once")


@pytest.mark.parametrize("path", [*DEFINING, "/webhooks/endpoints"])
@pytest.mark.parametrize("authorization", [None, "Bearer", "Bearer ", "Basic abc", "Token abc", "\xe9"])
def test_an_operation_without_a_token(caller: Caller, path: str, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = requests.post(f"{caller.url}{path}", json={}, headers=headers, timeout=LIMIT)
    check_refusal(answer, path, "invalid_token", "Bearer")
    challenge = answer.headers["WWW-Authenticate"]
    assert challenge.startswith("Bearer resource_metadata=")  # RFC 6750, section 3.1: no error code without credentials
    assert f'scope="gatepost:{path.split("/")[2]}"' in challenge


def jwt(header: bytes, claims: bytes = b"{}") -> str:
    return b".".join(b64encode(part).rstrip(b"=") for part in (header, claims, b"0" * 64)).decode()


@pytest.mark.parametrize(
    "token",
    [
        "a", "a.b.c", "...", "é", "a b", "a" * 20_000, jwt(b"[]"), jwt(b"\xff"), jwt(b"{}"), jwt(b'{"alg": 5}'),
        jwt(b'{"alg": "none"}'), jwt(b'{"alg": "none"}').rpartition(".")[0] + ".", jwt(b'{"alg": "HS256"}'),
        jwt(b'{"alg": "ES256", "kid": []}'), jwt(b'{"alg": "ES256", "kid": ' + b"[" * 4000 + b"]" * 4000 + b"}"),
    ],
)  # fmt: skip
def test_what_is_no_token(caller: Caller, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}".encode()}
    answer = requests.post(f"{caller.url}/oauth/clients", json={}, headers=headers, timeout=LIMIT)
    check_refusal(answer, "/oauth/clients", "invalid_token", "cannot be verified")
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]


def test_a_stranger_cannot_make_the_ledger_grow(caller: Caller) -> None:
    """Only refusals of an authenticated caller are recorded, and only they return the id of an entry."""
    nobody = Client(ids.new("cli"), "gps_x")
    stranger = caller.gatepost.token_answer(nobody, "a")
    assert stranger.status_code == 401
    assert "Gatepost-Event" not in stranger.headers
    assert caller.ask(b"grant_type=x").headers["Gatepost-Event"].startswith("evt_")
