"""Makes a site of the pages: `make docs` writes build/site, static HTML that needs no server and no script.

The pages stay what they are, Markdown that reads well by itself. The navigation is docs/index.md; a page that it does
not lead to, or a link that leads nowhere, is an error. Pictures are copied, and other files that a page links to are
shown as text.
"""  # noqa: INP001 (docs are no package)

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from pygments import highlight  # type: ignore[import-untyped]
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.util import ClassNotFound  # type: ignore[import-untyped]

from gatepost import __version__

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SITE = ROOT / "build" / "site"
INDEX = DOCS / "index.md"
ELSEWHERE = {  # pages that are not in docs/
    ROOT / "README.md": "readme.html",
    ROOT / "CHANGELOG.md": "changelog.html",
    ROOT / "examples" / "README.md": "examples/index.html",
}
PICTURES = {".svg", ".png"}
_LONG = 40  # characters of code in a line of text: more may be broken anywhere
_PLAIN = HtmlFormatter(nowrap=True)


class BrokenSite(Exception):
    """Said to whoever builds it."""


class Heading(NamedTuple):
    level: int
    id: str
    text: str


class Place(NamedTuple):
    """An entry of the navigation; `inner` are those of a page that is itself a list of pages."""

    page: Path
    text: str
    inner: tuple["Place", ...] = ()


class Part(NamedTuple):
    title: str
    places: tuple[Place, ...]


# --- where things are


def every_page() -> list[Path]:
    return [*sorted(DOCS.rglob("*.md")), *ELSEWHERE]


def target(file: Path) -> str:
    """Where a file is in the site."""
    if file in ELSEWHERE:
        return ELSEWHERE[file]
    if file.suffix == ".md":
        return file.relative_to(DOCS).with_suffix(".html").as_posix()
    if file.suffix in PICTURES:
        return file.relative_to(DOCS).as_posix()
    return f"files/{file.relative_to(ROOT).as_posix()}.html"


def way(source: Path, to: Path) -> str:
    """From one page of the site to another file of it."""
    return Path(os.path.relpath(target(to), Path(target(source)).parent)).as_posix()


# --- Markdown


def parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}, renderer_cls=Renderer).enable("table")


def slug(text: str) -> str:
    """As those who show Markdown have it, so that a link works in both."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def headings(tokens: Sequence[Token]) -> list[Heading]:
    """Every heading with its anchor; a text that comes again gets a number."""
    found: list[Heading] = []
    seen: dict[str, int] = {}
    for token, inline in pairwise(tokens):
        if token.type == "heading_open":
            text = "".join(each.content for each in inline.children or ())
            name = slug(inline.content)
            seen[name] = seen.get(name, -1) + 1
            found.append(Heading(int(token.tag[1]), f"{name}-{seen[name]}" if seen[name] else name, text))
    return found


class Renderer(RendererHTML):
    """HTML for one page. `env` holds the page, its headings in order, and the files that it links to."""

    def heading_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        heading: Heading = env["ahead"].pop(0)
        tokens[idx].attrSet("id", heading.id)
        return self.renderToken(tokens, idx, options, env)

    def heading_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        opened = next(each for each in reversed(tokens[:idx]) if each.type == "heading_open")
        name = opened.attrGet("id")
        sign = f' <a class="anchor" href="#{name}" aria-label="Link to this part">#</a>' if opened.tag != "h1" else ""
        return sign + self.renderToken(tokens, idx, options, env)

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        tokens[idx].attrSet("href", self._resolved(str(tokens[idx].attrGet("href")), env))
        return self.renderToken(tokens, idx, options, env)

    def image(self, tokens: Sequence[Token], idx: int, _options: Any, env: Any) -> str:
        source = self._resolved(str(tokens[idx].attrGet("src")), env)
        return f'<img src="{escape(source)}" alt="{escape(tokens[idx].content)}" loading="lazy">'

    def table_open(self, *_: Any) -> str:
        return '<div class="table" tabindex="0" role="group" aria-label="Table"><table>\n'

    def table_close(self, *_: Any) -> str:
        return "</table></div>\n"

    def code_inline(self, tokens: Sequence[Token], idx: int, _options: Any, _env: Any) -> str:
        text = tokens[idx].content
        kind = ' class="long"' if len(text) > _LONG else ""
        return f"<code{kind}>{escape(text)}</code>"

    def fence(self, tokens: Sequence[Token], idx: int, _options: Any, _env: Any) -> str:
        return code(tokens[idx].content, tokens[idx].info.strip())

    @staticmethod
    def _resolved(link: str, env: Any) -> str:
        parts = urlsplit(link)
        if parts.scheme:
            return link
        page: Path = env["page"]
        there = (page.parent / parts.path).resolve() if parts.path else page
        if not there.is_file():
            raise BrokenSite(f"{page.relative_to(ROOT)}: {link} leads nowhere")
        env["links"].append(there)
        anchor = f"#{parts.fragment}" if parts.fragment else ""
        return (way(page, there) if there != page or not anchor else "") + anchor


def code(text: str, language: str) -> str:
    """A block of code; what is long scrolls inside it."""
    try:
        shown = highlight(text, get_lexer_by_name({"sh": "bash"}.get(language, language or "text")), _PLAIN)
    except ClassNotFound:
        shown = escape(text)
    label = f"Code: {language}" if language else "Code"
    return f'<pre tabindex="0" role="group" aria-label="{escape(label)}"><code>{shown}</code></pre>\n'


# --- the navigation


def navigation(index: Path = INDEX) -> list[Part]:
    """The lists of a page of links, by the heading above each."""
    parts: list[Part] = []
    title = ""
    for line in index.read_text("utf-8").splitlines():
        if line.startswith("## "):
            title = line.removeprefix("## ")
        found = re.match(r"- \[(.+?)\]\((.+?)\)", line)
        if found:
            page = (index.parent / found[2]).resolve()
            lists = page.name == "index.md" and page != index
            inner = tuple(place for part in navigation(page) for place in part.places) if lists else ()
            if not parts or parts[-1].title != title:
                parts.append(Part(title, ()))
            parts[-1] = parts[-1]._replace(places=(*parts[-1].places, Place(page, found[1], inner)))
    return parts


def in_order(parts: list[Part]) -> Iterator[Place]:
    for part in parts:
        for place in part.places:
            yield place
            yield from place.inner


def _menu(parts: list[Part], page: Path) -> str:
    shown = "".join(
        f"<h2>{escape(part.title)}</h2>\n<ul>\n{''.join(_entry(place, page) for place in part.places)}</ul>\n"
        for part in parts
    )
    return f'<nav id="navigation" aria-label="All pages">\n{shown}</nav>\n'


def _entry(place: Place, page: Path) -> str:
    here = ' aria-current="page"' if place.page == page else ""
    link = f'<a href="{way(page, place.page)}"{here}>{escape(place.text)}</a>'
    if not place.inner:
        return f"<li>{link}</li>\n"
    opened = " open" if page in {place.page, *(each.page for each in place.inner)} else ""
    inner = "".join(_entry(each, page) for each in place.inner)
    return f"<li>{link}<details{opened}><summary>Each of them</summary><ul>\n{inner}</ul></details></li>\n"


# --- whole pages


def _frame(source: Path, title: str, body: str, parts: list[Part], contents: Sequence[Heading] = ()) -> str:
    order = [Place(INDEX, "Documentation"), *in_order(parts)]
    places = [place.page for place in order]
    at = places.index(source) if source in places else -1
    near = []
    for step, words in ((-1, "Before"), (1, "Next")):
        if at >= 0 and 0 <= at + step < len(order):
            other = order[at + step]
            near.append(f'<a href="{way(source, other.page)}"><small>{words}</small> {escape(other.text)}</a>')
    listed = [each for each in contents if each.level == 2]
    items = "".join(f'<li><a href="#{each.id}">{escape(each.text)}</a></li>' for each in listed)
    inside = f'<details class="contents"><summary>On this page</summary><ul>{items}</ul></details>' if items else ""
    beside = (
        f'<aside aria-label="On this page"><p>On this page</p><ul>{items}</ul></aside>' if items else "<aside></aside>"
    )
    home = way(source, INDEX)
    style = Path(os.path.relpath("style.css", Path(target(source)).parent)).as_posix()
    body = body.replace("</h1>\n", f"</h1>\n{inside}", 1)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}{"" if "Gatepost" in title else " · Gatepost"}</title>
<link rel="stylesheet" href="{style}">
</head>
<body>
<a class="skip" href="#content">Skip to the page</a>
<header><a class="home" href="{home}">Gatepost</a> <a class="all" href="#navigation">All pages</a></header>
<div class="frame">
<main id="content">
{body}<footer><nav class="near" aria-label="Nearby">{"".join(near)}</nav>
<p>Gatepost {__version__}</p></footer>
</main>
{beside}
{_menu(parts, source)}</div>
</body>
</html>
"""


def _page(page: Path, parts: list[Part]) -> tuple[str, list[Path]]:
    """A page as HTML, and the files that it links to."""
    markdown = parser()
    tokens = markdown.parse(page.read_text("utf-8"))
    found = headings(tokens)
    if [each.level for each in found].count(1) != 1:
        raise BrokenSite(f"{page.relative_to(ROOT)}: a page has one title")
    links: list[Path] = []
    body = markdown.renderer.render(tokens, markdown.options, {"page": page, "ahead": list(found), "links": links})
    return _frame(page, found[0].text, body, parts, found), links


def _file(file: Path, parts: list[Part]) -> str:
    name = file.relative_to(ROOT).as_posix()
    language = {".py": "python"}.get(file.suffix, "")
    return _frame(file, name, f"<h1>{escape(name)}</h1>\n{code(file.read_text('utf-8'), language)}", parts)


def build(site: Path = SITE) -> list[Path]:
    """Write the whole site, and give back what was written."""
    parts = navigation()
    placed = {INDEX, *(place.page for place in in_order(parts))}
    lost = [page for page in every_page() if page not in placed]
    if lost:
        raise BrokenSite(f"docs/index.md does not lead to {', '.join(str(each.relative_to(ROOT)) for each in lost)}")
    shutil.rmtree(site, ignore_errors=True)
    written, files = [], set()
    for page in every_page():
        text, links = _page(page, parts)
        written.append(_write(site / target(page), text))
        files.update(links)
    for file in sorted(files.difference(every_page())):
        if file.suffix in PICTURES:
            written.append(_copy(file, site / target(file)))
        else:
            written.append(_write(site / target(file), _file(file, parts)))
    written.append(_copy(DOCS / "site.css", site / "style.css"))
    return written


def _write(to: Path, text: str) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(text, "utf-8")
    return to


def _copy(file: Path, to: Path) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(file, to))


def main() -> None:
    site = Path(sys.argv[1]) if len(sys.argv) > 1 else SITE
    try:
        written = build(site)
    except BrokenSite as problem:
        raise SystemExit(str(problem)) from None
    sys.stdout.write(f"{len(written)} files; open {site / 'index.html'}\n")


if __name__ == "__main__":
    main()
