"""Raw HTTP for requests that no library would send, and checks that apply to every error response."""

import contextlib
import itertools
import re
import socket
from http.client import HTTPResponse
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from gatepost.core.errors import ERRORS
from gatepost.web.responses import VERSION
from tests.waiting import LIMIT

_addresses = itertools.count(2)
_ASCII = re.compile(r"[ !#-\[\]-~]+")  # RFC 6749, section 5.2
PATH_WITHOUT_CORS = "/oauth/authorize"  # the one path without CORS
_EXPOSED = {"WWW-Authenticate", "DPoP-Nonce", "Retry-After", "Gatepost-Event", "X-Request-Id"}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def exchange(url: str, request: bytes) -> Answer:
    """Send these bytes and read one response. The server may respond before it has read all of them."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=LIMIT) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(request)
        method = request.split(b" ", 1)[0].decode("ascii", "replace")
        with HTTPResponse(connection, method=method) as response:
            response.begin()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers, response.read())


def head(line: str, *fields: str) -> bytes:
    """Return a request line with header fields and the empty line after them."""
    return "\r\n".join([line, "Host: gatepost.test", *fields, "", ""]).encode("latin-1")


def request(line: str, *fields: str, body: bytes = b"") -> bytes:
    return head(line, *fields, f"Content-Length: {len(body)}") + body


def session_from_new_address() -> requests.Session:
    """Return a session with its own loopback address, so that the rate limits of other tests do not affect it."""
    number = next(_addresses)
    session = requests.Session()
    session.mount("http://", _From(f"127.0.{1 + number // 250}.{1 + number % 250}"))
    return session


class _From(HTTPAdapter):
    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options, source_address=(self._address, 0))


def check_refusal(answer: requests.Response | Answer, path: str, code: str, *words: str) -> None:
    """Check the status, headers and members of an error response, and that its description contains these words."""
    status, body, headers = _parts(answer)
    assert status == ERRORS[code].status, (status, body)
    check_every_answer(headers, cors=path != PATH_WITHOUT_CORS)
    assert headers["cache-control"] == "no-store"
    if path.startswith("/oauth/"):
        assert headers["content-type"] == "application/json"
        assert set(body) == {"error", "error_description"}
        found, description = body["error"], body["error_description"]
        assert _ASCII.fullmatch(description), description
    else:
        assert headers["content-type"] == "application/problem+json"
        assert body["type"] == f"urn:gatepost:error:{code}"
        assert set(body) - {"errors"} == {"type", "title", "status", "detail", "code"}
        assert body["status"] == status
        assert all(set(each) == {"pointer", "detail"} for each in body.get("errors", []))
        found, description = body["code"], body["detail"]
    assert found == code, description
    assert len(description) < 3000
    missing = [word for word in words if word not in description]
    assert not missing, (missing, description)


def check_every_answer(headers: dict[str, str], *, cors: bool = True) -> None:
    assert re.fullmatch(r"req_[0-9a-v]{26}", headers["x-request-id"])
    assert headers["gatepost-version"] == VERSION
    if not cors:
        assert not [name for name in headers if name.startswith("access-control-")]
        return
    assert headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in headers
    assert set(headers["access-control-expose-headers"].split(", ")) == _EXPOSED


def _parts(answer: requests.Response | Answer) -> tuple[int, dict[str, Any], dict[str, str]]:
    if isinstance(answer, Answer):
        import json

        return answer.status, json.loads(answer.body), answer.headers
    return answer.status_code, answer.json(), {name.lower(): value for name, value in answer.headers.items()}
