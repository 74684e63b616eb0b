"""The console's files as the operations plane serves them. No browser is needed for this."""

import re
import socket

import pytest

from tests.service import Service
from tests.waiting import LIMIT

pytestmark = pytest.mark.xdist_group("browser")


def raw(service: Service, path: str) -> int:
    """Return the status of a request whose path is sent unchanged."""
    host, port = service.ops.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT) as stream:
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        return int(stream.makefile("rb").readline().split()[1])


def test_the_page(sqlite_gatepost: Service) -> None:
    answer = sqlite_gatepost.session.get(f"{sqlite_gatepost.ops}/console/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert f'<meta name="gatepost-base-url" content="{sqlite_gatepost.url}">' in answer.text
    assert f"connect-src {sqlite_gatepost.url} 'self';" in answer.headers["content-security-policy"]


def test_the_files_it_names(sqlite_gatepost: Service) -> None:
    page = sqlite_gatepost.session.get(f"{sqlite_gatepost.ops}/console/").text
    named = re.findall(r'(?:src|href)="\./([^"]+)"', page)
    assert {each.rpartition(".")[2] for each in named} == {"js", "css", "svg"}
    for each in named:
        answer = sqlite_gatepost.session.get(f"{sqlite_gatepost.ops}/console/{each}")
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"
        head = sqlite_gatepost.session.head(f"{sqlite_gatepost.ops}/console/{each}")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(answer.content))


def test_other_methods(sqlite_gatepost: Service) -> None:
    answer = sqlite_gatepost.session.post(f"{sqlite_gatepost.ops}/console/", data="x")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path",
    [
        "/console/index.html", "/console/built.json", "/console/assets/", "/console/assets/none.js",
        "/console/../healthz", "/console/assets/../index.html", "/console/%2e%2e/pages.py", "/console//",
        "/console/..%2fpages.py", "/console/assets/..%5c..%5cpages.py", "//console/", "/console/%00",
    ],
)  # fmt: skip
def test_nothing_else_is_served(sqlite_gatepost: Service, path: str) -> None:
    assert raw(sqlite_gatepost, path) in (400, 404)


def test_another_name_is_refused(sqlite_gatepost: Service) -> None:
    answer = sqlite_gatepost.session.get(f"{sqlite_gatepost.ops}/console/", headers={"Host": "evil.example"})
    assert answer.status_code in (400, 421)
    assert "gatepost-base-url" not in answer.text
