"""Errors link to the documentation only where the operator says where it is, and then to a row that exists."""

from pathlib import Path

import requests

from gatepost.core.errors import ERRORS
from tests.docs.pages import DOCS, anchors
from tests.service import running
from tests.waiting import LIMIT


def test_errors_link_to_the_documentation(tmp_path: Path) -> None:
    with running(tmp_path / "data", docs_url="https://docs.example.com/gatepost", only="web") as gatepost:
        refused = {
            f"{gatepost.url}/oauth/nothing": "error_uri",
            f"{gatepost.url}/webhooks/deliveries": "type",
            f"{gatepost.ops}/nothing": "type",
        }
        for url, member in refused.items():
            answer = requests.get(url, timeout=LIMIT)
            link, _, anchor = answer.json()[member].partition("#")
            assert link == "https://docs.example.com/gatepost/reference/errors.html"
            assert anchor in anchors(DOCS / "reference" / "errors.md")
            assert int(answer.headers["Content-Length"]) == len(answer.content)
        browser = {"Accept": "text/html"}
        page = requests.get(f"{gatepost.url}/oauth/authorize", headers=browser, timeout=LIMIT)
        assert (page.status_code, page.headers["Content-Type"]) == (400, "text/html; charset=utf-8")
        assert "error_uri" not in requests.get(f"{gatepost.url}/oauth/jwks", timeout=LIMIT).json()


def test_every_code_has_its_row() -> None:
    assert set(ERRORS) <= anchors(DOCS / "reference" / "errors.md")
