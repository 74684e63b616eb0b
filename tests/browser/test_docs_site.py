"""The documentation site in a browser, opened from the file system: search, copy buttons, the menu, and the layout."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.look import PHONE, WIDE
from tests.docs.pages import script
from tests.waiting import LIMIT_MS

pytestmark = pytest.mark.xdist_group("browser")

NARROW_PAGES = ("index", "readme", "reference/http", "reference/api", "reference/cli", "tutorial/first-token")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("site")
    script("site").build(found)
    return found


@pytest.fixture(scope="module")
def wide_context(chromium: Browser) -> Iterator[BrowserContext]:
    yield from _context(chromium, WIDE, "light")


@pytest.fixture(scope="module")
def phone_context(chromium: Browser) -> Iterator[BrowserContext]:
    yield from _context(chromium, PHONE, "dark")


def _context(chromium: Browser, size: tuple[int, int], theme: Literal["light", "dark"]) -> Iterator[BrowserContext]:
    """The context of all pages of one size, since the site stores nothing. Its blank page keeps the renderer alive."""
    context = chromium.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
    context.set_default_timeout(LIMIT_MS)
    context.new_page()
    yield context
    context.close()


@pytest.fixture
def wide(wide_context: BrowserContext) -> Iterator[Page]:
    yield from _page(wide_context)


@pytest.fixture
def phone(phone_context: BrowserContext) -> Iterator[Page]:
    yield from _page(phone_context)


def _page(context: BrowserContext) -> Iterator[Page]:
    """Open a page. It must report no error by the end of the test."""
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    page.close()
    context.clear_permissions()
    assert problems == []


def test_search_leads_to_a_section(wide: Page, site: Path) -> None:
    wide.goto((site / "how-to" / "replay-a-day.html").as_uri())
    wide.keyboard.press("/")
    search = wide.get_by_role("searchbox")
    expect(search).to_be_focused()
    search.fill("token-exchange subject_token")
    expect(wide.get_by_role("status")).to_contain_text("result")
    wide.keyboard.press("ArrowDown")
    first = wide.locator(".results a").first
    expect(first).to_be_focused()
    wide.keyboard.press("Enter")
    wide.wait_for_url(re.compile(r"file://.*\.html"))
    assert wide.locator("main").inner_text().find("subject_token") > 0


def test_a_page_is_found_by_its_title(wide: Page, site: Path) -> None:
    wide.goto((site / "index.html").as_uri())
    wide.get_by_role("searchbox").fill("your first webhook")
    expect(wide.locator(".results a").first).to_have_attribute("href", "./tutorial/first-webhook.html")
    wide.keyboard.press("Escape")
    expect(wide.locator(".results")).to_be_hidden()


def test_search_says_that_nothing_was_found(wide: Page, site: Path) -> None:
    wide.goto((site / "index.html").as_uri())
    wide.get_by_role("searchbox").fill("(no[such*word")
    expect(wide.get_by_role("status")).to_have_text("No results. Try fewer or shorter words.")


def test_the_copy_button_copies_the_block(wide: Page, site: Path) -> None:
    wide.context.grant_permissions(["clipboard-read", "clipboard-write"])
    wide.goto((site / "tutorial" / "first-token.html").as_uri())
    block = wide.locator(".code").first
    block.hover()
    block.get_by_role("button", name="Copy").click()
    expect(block.get_by_role("button")).to_have_text("Copied")
    assert wide.evaluate("navigator.clipboard.readText()") == block.locator("code").text_content()


def test_the_current_page_is_visible_in_the_navigation(wide: Page, site: Path) -> None:
    wide.goto((site / "explanation" / "glossary.html").as_uri())
    expect(wide.locator("#navigation [aria-current=page]")).to_be_in_viewport()


@pytest.mark.parametrize("name", NARROW_PAGES)
def test_nothing_is_wider_than_a_phone(phone: Page, site: Path, name: str) -> None:
    phone.goto((site / f"{name}.html").as_uri())
    assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_the_menu_opens_on_a_phone(phone: Page, site: Path) -> None:
    phone.goto((site / "reference" / "errors.html").as_uri())
    phone.get_by_role("button", name="Menu").click()
    expect(phone.locator("#navigation [aria-current=page]")).to_be_in_viewport()
    phone.get_by_role("link", name="Limits", exact=True).click()
    phone.wait_for_url("**/reference/limits.html")
    expect(phone.get_by_role("button", name="Menu")).to_be_visible()
