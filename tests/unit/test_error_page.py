"""The page for errors at /oauth/authorize: when a browser gets it, and that nothing in it can be turned against it."""

import hashlib
import re
from base64 import b64encode
from html.parser import HTMLParser

import pytest

from gatepost.core.errors import Refusal
from gatepost.web.error_page import for_browser, prefers_html
from gatepost.web.responses import oauth_error

FIREFOX = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
CHROMIUM = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,"
    "application/signed-exchange;v=b3;q=0.7"
)


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        (FIREFOX, True),
        (CHROMIUM, True),
        ("text/html", True),
        ("TEXT/HTML", True),
        ("text/*", True),
        ("text/html;q=0.1", True),
        ("application/json;q=0.5, text/html;level=1;q=0.6", True),
        ("text/html, application/json;q=0", True),
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("application/json, text/html", False),
        ("application/json, */*;q=0.1", False),
        ("text/html;q=0.4, application/json;q=0.5", False),
        ("text/html;q=0", False),
        ("text/html;q=0, */*", False),
        ("text/html;q=x", False),
        ("text/html;q=nan", False),
        ("text/html;q=inf", False),
        ("text/html;q=-1", False),
        ("text/htmlx", False),
        (",;,;q=,", False),
    ],
)
def test_who_prefers_html(accept: str, html: bool) -> None:
    assert prefers_html(accept) is html


class Page(HTMLParser):
    """The tags and attributes of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_loads_and_runs_nothing() -> None:
    """The page shows parameters as text only (compare CVE-2019-8400)."""
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>&lt;\"'</style><style>"
    error = oauth_error(Refusal("invalid_request", evil), ("content-security-policy", "default-src 'none'"))
    reply = for_browser(error, FIREFOX, "req_<b>")
    assert (reply.status, reply.media_type) == (400, "text/html; charset=utf-8")
    page = Page(reply.body.decode())
    assert set(page.tags) == {
        "html", "head", "meta", "title", "style", "body", "main", "h1", "p", "dl", "dt", "dd", "code",
    }  # fmt: skip
    assert page.attributes == {"lang", "charset", "name", "content"}
    assert page.tags.count("style") == 1
    assert "<script>alert(1)</script>" in page.text
    assert "req_<b>" in page.text
    assert not re.search(r"url\(|@import|https?:", reply.body.decode())


def test_its_headers() -> None:
    error = oauth_error(Refusal("temporarily_unavailable", "later", retry_after=7), ("content-security-policy", "x"))
    reply = for_browser(error, FIREFOX, "req_1")
    headers = dict(reply.headers)
    assert len(headers) == len(reply.headers)
    [style] = re.findall(r"<style>(.*?)</style>", reply.body.decode(), re.DOTALL)
    hashed = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert headers == {
        "cache-control": "no-store",
        "retry-after": "7",
        "vary": "Accept",
        "content-security-policy": f"default-src 'none'; style-src 'sha256-{hashed}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'",
    }
    assert reply.log_fields == error.log_fields
    assert "Wait a little" in reply.body.decode()


def test_everybody_else_gets_json() -> None:
    error = oauth_error(Refusal("invalid_request", "no"))
    assert for_browser(error, "*/*", "req_1") is error
