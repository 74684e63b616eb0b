"""The site that `make docs` builds is complete and needs no server, no JavaScript and nothing from another host."""

import json
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

from gatepost.core.errors import ERRORS
from tests.docs.pages import DOCS, PAGES, ROOT, anchors, named, script

SITE = script("site")
OPENAPI = SITE.api_reference.OPENAPI
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """A page of the site: its elements, ids and links. Every tag must be closed."""

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


def test_every_page_is_written(site: Path) -> None:
    written = {file.relative_to(site).as_posix() for file in site.rglob("*.html")}
    assert written >= {SITE.target(page) for page in [*PAGES, OPENAPI]}


def test_links_and_anchors_resolve(site: Path) -> None:
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
    """A link that works where the Markdown is shown works in the site."""
    for page in PAGES:
        assert anchors(page) <= set(read(site / SITE.target(page)).ids), named(page)


def test_every_page_is_in_the_navigation_of_every_other_page(site: Path) -> None:
    expected = {(site / SITE.target(page)).resolve() for page in [*PAGES, OPENAPI]} - {site / "index.html"}
    for page in pages(site):
        menu = page.text.partition('<nav id="navigation"')[2].partition("</nav>")[0]
        found = {(page.file.parent / link).resolve() for link in re.findall(r'href="([^"#]+)"', menu)}
        assert found == expected, page.file


def test_the_navigation_marks_the_current_page(site: Path) -> None:
    for page in [*PAGES, OPENAPI]:
        rendered = read(site / SITE.target(page))
        marked = [link for link in rendered.with_tag("a") if link.get("aria-current") == "page"]
        if page == SITE.INDEX:
            assert not marked
        else:
            [link] = marked
            assert (rendered.file.parent / str(link["href"])).resolve() == rendered.file


def test_previous_and_next_follow_the_navigation(site: Path) -> None:
    order = [site / SITE.target(link.page) for link in SITE.reading_order(SITE.navigation())]
    for number, file in enumerate(order):
        page = read(file)
        found = {
            str(link["rel"]): (file.parent / str(link["href"])).resolve()
            for link in page.with_tag("a")
            if "rel" in link
        }
        expected = {"prev": order[number - 1]} if number else {}
        assert found == expected | ({"next": order[number + 1]} if number + 1 < len(order) else {})


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in pages(site):
        scripts = [(page.file.parent / str(script["src"])).resolve() for script in page.with_tag("script")]
        assert scripts == [site / "site.js"]
        assert not re.search(r"<[^>]+ (on\w+|style)=", page.text), page.file
        for loaded in page.loads:
            assert not urlsplit(loaded).scheme, loaded
            assert (page.file.parent / loaded).is_file(), f"{page.file}: {loaded}"
    assert "url(" not in (site / "site.css").read_text()
    assert "://" not in (site / "site.js").read_text()


def test_pages_are_accessible(site: Path) -> None:
    for page in pages(site):
        assert page.with_tag("html") == [{"lang": "en"}]
        assert len(page.with_tag("h1")) == 1, page.file
        assert "width=device-width" in page.text
        assert all(image.get("alt") for image in page.with_tag("img")), page.file
        for element, container in (
            ("<table", '<div class="table" tabindex="0"'),
            ("<pre", '<div class="code"><pre tab'),
        ):
            assert page.text.count(container) == page.text.count(element), (
                f"{page.file}: {element} must scroll by itself"
            )
        levels = [int(tag[1]) for tag, _ in page.seen if re.fullmatch("h[1-6]", tag)]
        assert all(after - before <= 1 for before, after in pairwise(levels)), page.file
    style = (site / "site.css").read_text()
    assert "prefers-color-scheme: dark" in style


def test_code_blocks_are_complete(site: Path) -> None:
    for page in PAGES:
        shown = unescape(re.sub(r"<[^>]+>", "", read(site / SITE.target(page)).text))
        for block in re.findall(r"^```(?:sh|text)\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            assert block.strip("\n") in shown, f"{named(page)}: {block}"


def test_the_search_index_leads_to_every_section(site: Path) -> None:
    text = (site / "search-index.js").read_text("utf-8")
    index = json.loads(text.removeprefix("window.gatepostSearchIndex = "))
    assert {url for url, *_ in index} == {SITE.target(page) for page in [*PAGES, OPENAPI]}
    for url, title, sections in index:
        assert title == sections[0][1]
        assert {anchor for anchor, _, _ in sections} <= set(read(site / url).ids), url
    words = {
        anchor: text for url, _, sections in index for anchor, _, text in sections if url == "tutorial/first-token.html"
    }
    assert any("make serve" in text for text in words.values()), "code can be found too"


def test_the_api_reference_is_complete(site: Path) -> None:
    """Every operation with its parameters, members and error codes, and every object, has an anchor."""
    page, document = read(site / "reference" / "api.html"), json.loads(OPENAPI.read_text("utf-8"))
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert len(operations) == 6
    for operation in operations:
        name = operation["operationId"]
        parameters = {parameter["$ref"].rpartition("/")[2] for parameter in operation["parameters"]}
        assert {name, f"{name}-errors", *(f"{name}.{parameter}" for parameter in parameters)} <= set(page.ids)
        section = page.text.partition(f'<h2 id="{name}"')[2].partition("<h2 ")[0]
        codes = set(re.findall(r"- `(\w+)`: ", json.dumps(operation["responses"])))
        assert codes == set(re.findall(r'errors\.html#(\w+)"', section))
        assert codes <= set(ERRORS)
        for content in operation.get("requestBody", {}).get("content", {}).values():
            members = set(every_member(document, content["schema"]))
            assert members
            assert all(f"<code>{member}</code>" in section for member in members)
    for schema in ("Client", "Scope", "Token", "Endpoint", "Subscription", "Delivery", "Problem", "OAuthError"):
        members = set(document["components"]["schemas"][schema]["properties"])
        assert {schema, *(f"{schema}.{member}" for member in members)} <= set(page.ids)


def every_member(document: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    """The names of the top-level members of a body, of all its variants."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    yield from schema.get("properties", ())
    for variant in schema.get("anyOf", ()):
        yield from every_member(document, variant)


def test_a_page_without_a_link_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def one_more() -> list[Path]:
        return [*PAGES, DOCS / "how-to" / "lost.md"]

    monkeypatch.setattr(SITE, "every_page", one_more)
    with pytest.raises(SITE.SiteError, match=r"does not link to docs/how-to/lost\.md"):
        SITE.build(tmp_path)


@pytest.mark.parametrize("link", ["nowhere.md", "../images/nowhere.svg"])
def test_a_link_to_no_file_is_an_error(link: str) -> None:
    with pytest.raises(SITE.SiteError, match="leads to no file"):
        SITE.render(f"# Title\n\n[there]({link})", DOCS / "how-to" / "x.md", SITE.relative_url)


def test_make_docs_generates_and_builds() -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    commands = subprocess.run(
        ["make", "--dry-run", "--old-file=.venv/run.stamp", "docs"], cwd=ROOT, env=clean, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert commands.stdout == ".venv/bin/python docs/generate.py\n.venv/bin/python docs/site.py\n"
    assert SITE.SITE == ROOT / "build" / "site"
