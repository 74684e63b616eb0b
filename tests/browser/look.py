"""A browser on the console of a running service, and the errors that the browser reports.

Chromium is the machine's own. Where there is none the tests are skipped, unless `BROWSER_TESTS=required` says that
they must run: then they fail.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    expect,
    sync_playwright,
)

from tests.service import Client, Service
from tests.waiting import LIMIT_MS, wait_until

NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE = (1280, 860)
PHONE = (390, 844)
# All pages of a context share one renderer: a new process for each page takes half a second of CPU.
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-site-isolation-trials", "--renderer-process-limit=1")
CALM = "Failed to load resource"  # how Chromium tells of an answer that is an error: the test says when one is due

_TELL_VIOLATIONS = """
document.addEventListener('securitypolicyviolation', (event) =>
  console.error(`violation of ${event.violatedDirective} by ${event.blockedURI}`))
"""

_VIOLATIONS = """async (rules) => {
  const options = rules.length ? {runOnly: {type: 'rule', values: rules}} : {}
  return (await axe.run({...options, resultTypes: ['violations']})).violations
}"""


@contextmanager
def browser() -> Iterator[Browser]:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        words = f"there is no browser on this machine: none of {', '.join(NAMES)}"
        if os.environ.get("BROWSER_TESTS") == "required":
            pytest.fail(f"{words}, and BROWSER_TESTS says that there must be one")
        pytest.skip(words)
    expect.set_options(timeout=LIMIT_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield started
        started.close()


class Contexts:
    """Browser contexts that tests reuse, each with a blank page, because a new one takes a second of CPU."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: dict[tuple[int, int], list[BrowserContext]] = {}

    def take(self, size: tuple[int, int]) -> BrowserContext:
        """Return an unused context with empty storage."""
        free = self._free.setdefault(size, [])
        return free.pop() if free else self.new(size)

    def new(self, size: tuple[int, int]) -> BrowserContext:
        context = self._browser.new_context(
            viewport={"width": size[0], "height": size[1]}, timezone_id="UTC",
            has_touch=size == PHONE, is_mobile=size == PHONE, reduced_motion="reduce",
        )  # fmt: skip
        context.set_default_timeout(LIMIT_MS)
        context.add_init_script(_TELL_VIOLATIONS)
        context.new_page()
        return context

    def give_back(self, context: BrowserContext, size: tuple[int, int], origin: str) -> None:
        """Clear the storage of the page, and make it blank, which keeps the renderer alive."""
        context.unroute_all()
        context.clear_permissions()
        page = context.pages[-1]
        page.goto("about:blank")
        session = context.new_cdp_session(page)
        session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
        session.detach()
        context.clear_cookies()
        self._free[size].append(context)


class Look:
    """A page with its own session."""

    def __init__(self, context: BrowserContext, service: Service, theme: Any) -> None:
        self.service = service
        self.context = context
        self.said: list[str] = []
        self.asked: list[Request] = []
        blank = context.pages[0]
        self.page: Page = context.new_page()
        blank.close()
        self.page.emulate_media(color_scheme=theme)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", self._note)

    def _hear(self, message: ConsoleMessage) -> None:
        self.said.append(f"{message.type}: {message.text}")

    def _note(self, request: Request) -> None:
        self.asked.append(request)

    def heard(self) -> str:
        """Return all messages of the browser. They arrive only during a call."""
        self.page.evaluate("0")
        return "\n".join(self.said)

    def complaints(self) -> list[str]:
        return [each for each in self.said if CALM not in each]

    # --- going

    def open(self, place: str = "") -> None:
        self.page.goto(f"{self.service.ops}/console/{place}")

    def go(self, place: str) -> None:
        """Navigate within the page, which keeps the session."""
        self.page.evaluate("place => { location.hash = place }", place)

    def enter(self, client: Client, place: str = "") -> None:
        """Open the page and sign in with a client's secret."""
        self.open(place)
        self.give(client)
        self.page.locator(".head").wait_for()

    def give(self, client: Client) -> None:
        self.page.get_by_label("Client ID").fill(client.id)
        self.page.get_by_label("Client secret").fill(client.secret)
        self.page.get_by_role("button", name="Sign in").click()

    # --- seeing

    @property
    def place(self) -> str:
        found: str = self.page.evaluate("location.hash")
        return found

    def rows(self) -> list[str]:
        """Return the ids of the deliveries in the list when it matches the current filters."""
        self.settled()
        found: list[str] = self.page.locator("tr[data-id]").evaluate_all("rows => rows.map(row => row.dataset.id)")
        return found

    def settled(self) -> None:
        """Wait until the page shows the result of the last request."""
        self.page.locator(".pages").wait_for(state="attached")
        self.until("!document.querySelector('[aria-busy=true]')")

    def until(self, expression: str) -> None:
        """Wait until an expression is true. The policy of the page forbids `wait_for_function`, which uses eval."""
        wait_until(lambda: bool(self.page.evaluate(expression)), expression)

    def heading(self, name: str) -> Locator:
        return self.page.get_by_role("heading", name=name)

    def tokens_asked_for(self) -> int:
        return sum(each.url.endswith("/oauth/tokens") for each in self.asked)

    def serious(self, *rules: str) -> list[str]:
        """Return the serious violations that axe finds, with all its rules or with these."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
        violations = self.page.evaluate(_VIOLATIONS, list(rules))
        return [
            f"{each['id']} ({each['impact']}): {each['help']}: {[node['target'] for node in each['nodes']]}"
            for each in violations
            if each["impact"] in ("serious", "critical")
        ]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than its window."""
        found: int = self.page.evaluate("document.documentElement.scrollWidth")
        return found - (self.page.viewport_size or {"width": 0})["width"]
