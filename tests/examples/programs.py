"""The examples as processes of their own, and a person at a browser who fills in the forms that they show."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import requests
from joserfc.jwk import ECKey

from tests.docs.pages import ROOT
from tests.login import Platform, redirect_target
from tests.service import Service, free_ports
from tests.waiting import LIMIT

EXAMPLES = ROOT / "examples"
PASSWORD = "correct horse"
LOGIN_PORT, API_PORT = "8090", "8091"  # in the pages, and by default
# A person types the next command when a program has said that it is there.
_CONNECT = "import socket; socket.create_connection(('127.0.0.1', {port})).close()"
STARTED = f'until {sys.executable} -c "{_CONNECT}" 2>/dev/null; do kill -0 $!; sleep 0.05; done'


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]


def run(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """An example that ends by itself."""
    return subprocess.run(
        command(name, *arguments), env=_environment(environment), check=False, capture_output=True, text=True,
        timeout=LIMIT,
    )  # fmt: skip


@contextmanager
def running(name: str, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """An example that serves, once it has said that it does; stopped in the end."""
    process = subprocess.Popen(
        command(name, *arguments), env=_environment(environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], LIMIT)[0], f"{name} prints nothing"
        assert process.stdout.readline(), process.communicate()[1]
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT)


def _environment(more: dict[str, str]) -> dict[str, str]:
    return os.environ | {"PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1"} | more


class LoginApplication(NamedTuple):
    """The example, running, and the account that it signs people in for."""

    platform: Platform
    url: str
    directory: Path

    def offboard(self, person: str) -> None:
        options = ("--account", self.platform.account, "--issuer", self.platform.url, "--data", str(self.directory))
        done = run("login_application", "offboard", person, *options)
        assert done.returncode == 0, done.stderr


@contextmanager
def login_application(gatepost: Service, name: str, directory: Path) -> Iterator[LoginApplication]:
    """With a key set as it prints it."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}/login"
    result = run("login_application", "jwks", "--data", str(directory))
    assert result.returncode == 0, result.stderr
    platform = Platform(gatepost, name, f"login_url={url}", f"login_jwks={result.stdout}", key=key_in(directory))
    options = ("--account", platform.account, "--issuer", gatepost.url, "--port", str(port))
    with running("login_application", "serve", *options, "--data", str(directory)):
        yield LoginApplication(platform, url, directory)


def key_in(directory: Path) -> ECKey:
    return ECKey.import_key(json.loads((directory / "key.json").read_text()))


def take_along(directory: Path, moved: Mapping[str, str]) -> None:
    """The programs, but for the addresses that they have by default: those may be taken on this machine."""
    directory.mkdir()
    for each in EXAMPLES.glob("*.py"):
        text = each.read_text("utf-8")
        for old, new in moved.items():
            text = text.replace(old, new)
        (directory / each.name).write_text(text, "utf-8")


class Form(HTMLParser):
    """The one form of a page."""

    def __init__(self, page: requests.Response) -> None:
        super().__init__()
        self.inputs: list[dict[str, str | None]] = []
        self.buttons: dict[str, str] = {}
        self.method = self.action = ""
        self.feed(page.text)
        assert self.method == "post", page.text
        self.action = urljoin(page.url, self.action)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "form":
            self.method, self.action = found.get("method") or "get", found.get("action") or ""
        elif tag == "input":
            self.inputs.append(found)
        elif tag == "button":
            self.buttons[found["name"] or ""] = found.get("value") or ""

    def values(self) -> list[tuple[str, str]]:
        """What a browser would send of it as it is."""
        sent = [each for each in self.inputs if each.get("type") != "checkbox" or "checked" in each]
        return [(each["name"] or "", each.get("value") or "") for each in sent]

    def names(self) -> set[str]:
        return {each["name"] or "" for each in self.inputs}

    def scopes(self) -> list[str]:
        return [value for name, value in self.values() if name == "scope"]


class Person:
    """At a browser, which keeps cookies for a host whatever the port, and goes where it is sent on this machine."""

    def __init__(self) -> None:
        self.session = requests.Session()

    def goes_to(self, url: str, parameters: Any = None) -> requests.Response:
        return self._follow(self.session.get(url, params=parameters, allow_redirects=False, timeout=LIMIT))

    def presses(self, page: requests.Response, button: str, *without: str, **filled: str) -> requests.Response:
        """Fill in the form of a page, less some of its scopes, and press a button."""
        form = Form(page)
        assert button in form.buttons
        assert set(filled) <= form.names()
        sent = [(name, filled.get(name, value)) for name, value in form.values()]
        sent = [each for each in sent if each[0] != "scope" or each[1] not in without]
        sent.append((button, form.buttons[button]))
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(page.url))
        headers = {"Origin": origin, "Referer": page.url}
        return self._follow(
            self.session.post(form.action, data=sent, headers=headers, allow_redirects=False, timeout=LIMIT)
        )

    def signs_in(self, page: requests.Response, name: str = "ada", password: str = PASSWORD) -> requests.Response:
        return self.presses(page, "allow", name=name, password=password)

    def _follow(self, answer: requests.Response) -> requests.Response:
        """Up to a page, or to a place that is not on this machine."""
        while answer.status_code == 303 and urlsplit(answer.headers["location"]).hostname == "127.0.0.1":
            answer = self.session.get(answer.headers["location"], allow_redirects=False, timeout=LIMIT)
        return answer


def there(url: str, patience: float = 20.0) -> tuple[Person, requests.Response]:
    """Somebody new opens a page; the login application may still be starting."""
    person, end = Person(), time.monotonic() + patience
    while True:
        try:
            return person, person.goes_to(url)
        except requests.ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def main(url: str, wanted: str = "") -> None:
    """As `$BROWSER`: sign in as ada, or as grace if ada cannot. With `code`, print the one that the client gets."""
    person, page = there(url)
    page = person.signs_in(page)
    if "Wrong name or password" in page.text:
        page = person.signs_in(page, "grace")
    if wanted == "code":
        print(redirect_target(page)[1]["code"])
    else:
        assert page.text.startswith("Done."), page.text


if __name__ == "__main__":
    main(*sys.argv[1:])
