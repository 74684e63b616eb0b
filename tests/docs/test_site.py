"""The site that `make docs` builds: whole, and readable without a script, a server or anything from elsewhere."""

import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, anchors, named, script

SITE = script("site")
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """A page of the site: what it has, what it links to, and whether its tags are closed."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.text = file.read_text("utf-8")
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(self.text)
        self.close()
        assert not self._open, (file, self._open)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.seen.append((tag, found))
        if tag not in VOID:
            self._open.append(tag)
        if found.get("id"):
            self.ids.append(found["id"] or "")
        if tag == "a" and "href" in found:
            self.links.append(found["href"] or "")
        self.loads += [found[name] or "" for name in ("src", "srcset", "data") if name in found]
        self.loads += [found["href"] or ""] if tag == "link" else []

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, (self.file, tag)

    def with_tag(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.seen if name == tag]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("site")
    SITE.build(found)
    return found


@cache
def read(file: Path) -> Page:
    return Page(file)


def pages(site: Path) -> Iterator[Page]:
    for file in sorted(site.rglob("*.html")):
        yield read(file)


def test_every_page_is_there(site: Path) -> None:
    assert {file.relative_to(site).as_posix() for file in site.rglob("*.html")} >= {SITE.target(page) for page in PAGES}


def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    for page in pages(site):
        assert len(page.ids) == len(set(page.ids)), page.file
        for link in page.links:
            url = urlsplit(link)
            assert not url.scheme, f"{page.file}: {link}"
            there = (page.file.parent / unquote(url.path)).resolve() if url.path else page.file
            assert there.is_file(), f"{page.file}: {link}"
            if url.fragment:
                assert unquote(url.fragment) in read(there).ids, f"{page.file}: {link}"


def test_anchors_are_those_of_the_markdown(site: Path) -> None:
    """A link that works where Markdown is shown works here."""
    for page in PAGES:
        assert anchors(page) <= set(read(site / SITE.target(page)).ids), named(page)


def test_every_page_is_in_the_navigation_of_every_other(site: Path) -> None:
    wanted = {(site / SITE.target(page)).resolve() for page in PAGES} - {site / "index.html"}
    for page in pages(site):
        menu = page.text.partition('<nav id="navigation"')[2].partition("</nav>")[0]
        found = {(page.file.parent / link).resolve() for link in re.findall(r'href="([^"#]+)"', menu)}
        assert found == wanted, page.file


def test_a_page_knows_where_it_is(site: Path) -> None:
    for page in PAGES:
        marked = [each for each in read(site / SITE.target(page)).with_tag("a") if "aria-current" in each]
        assert len(marked) == (page.name != "index.md" or page.parent != DOCS), named(page)


def test_nothing_runs_and_nothing_comes_from_elsewhere(site: Path) -> None:
    for page in pages(site):
        assert not page.with_tag("script")
        assert not re.search(r"<[^>]+ (on\w+|style)=", page.text), page.file
        for loaded in page.loads:
            assert not urlsplit(loaded).scheme, loaded
            assert (page.file.parent / loaded).is_file(), f"{page.file}: {loaded}"
    assert "url(" not in (site / "style.css").read_text()


def test_a_page_can_be_read_by_anybody(site: Path) -> None:
    for page in pages(site):
        assert page.with_tag("html") == [{"lang": "en"}]
        assert len(page.with_tag("h1")) == 1, page.file
        assert "width=device-width" in page.text
        assert all(image.get("alt") for image in page.with_tag("img")), page.file
        wide = page.text.count("<table")
        assert page.text.count('<div class="table" tabindex="0"') == wide, "a wide table scrolls in its own place"
        levels = [int(tag[1]) for tag, _ in page.seen if re.fullmatch("h[1-6]", tag)]
        assert all(after - before <= 1 for before, after in pairwise(levels)), page.file
    style = (site / "style.css").read_text()
    assert "prefers-color-scheme: dark" in style


def test_the_words_of_the_pages_are_there(site: Path) -> None:
    """Nothing is swallowed: code comes through as it was."""
    for page in PAGES:
        shown = unescape(re.sub(r"<[^>]+>", "", read(site / SITE.target(page)).text))
        for block in re.findall(r"^```(?:sh|text)\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            assert block.strip("\n") in shown, f"{named(page)}: {block}"


def test_a_lost_page_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def one_more() -> list[Path]:
        return [*PAGES, DOCS / "how-to" / "lost.md"]

    monkeypatch.setattr(SITE, "every_page", one_more)
    with pytest.raises(SITE.BrokenSite, match=r"does not lead to docs/how-to/lost\.md"):
        SITE.build(tmp_path)


@pytest.mark.parametrize("link", ["nowhere.md", "../images/nowhere.svg"])
def test_a_link_that_leads_nowhere_is_an_error(link: str) -> None:
    markdown = SITE.parser()
    environment: dict[str, Any] = {"page": DOCS / "how-to" / "x.md", "ahead": [], "links": []}
    with pytest.raises(SITE.BrokenSite, match="leads nowhere"):
        markdown.render(f"[there]({link})", environment)


def test_one_target_builds_it() -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    told = subprocess.run(
        ["make", "--dry-run", "--old-file=.venv/run.stamp", "docs"], cwd=ROOT, env=clean, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert told.stdout == ".venv/bin/python docs/site.py\n"
    assert SITE.SITE == ROOT / "build" / "site"
