"""The person's part of a flow: a browser goes where the client's application sends it, and brings back an answer."""

from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import requests

from tests.login import LOGIN_URL, Browser, Platform, decode_jwt, redirect_target


def sign_in(platform: Platform, url: str, **said: Any) -> dict[str, Any]:
    """Where the browser ends, and the form it posts there, if one. `said` changes what the login application says."""
    browser = Browser()
    answer = browser.open(url)
    if answer.headers.get("Location", "").startswith(LOGIN_URL):
        _, query = redirect_target(answer)
        answer = platform.submit_handoff(browser, platform.handoff(decode_jwt(query["interaction"])[1], **said))
    return _form(answer) if answer.status_code == 200 else {"url": _location(answer)}


def altered(back: dict[str, Any], **changes: str | None) -> dict[str, Any]:
    """The same with other parameters in its query; a change to None takes one away."""
    parts = urlsplit(back["url"])
    parameters = dict(parse_qsl(parts.query)) | changes
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    return {"url": urlunsplit(parts._replace(query=query))}


def _location(answer: requests.Response) -> str:
    redirect_target(answer)
    return answer.headers["Location"]


def _form(answer: requests.Response) -> dict[str, Any]:
    page = _Page()
    page.feed(answer.text)
    assert page.method == "post", answer.text
    return {"url": page.action, "form": page.inputs}


class _Page(HTMLParser):
    """The one form of a page."""

    method, action = "", ""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.method, self.action = found["method"], found["action"]
        elif tag == "input":
            self.inputs[found["name"]] = found["value"]
