"""Builds the documentation site: `make docs` writes static HTML to build/site.

The pages are Markdown that reads well by itself; the API reference is made from gatepost/openapi.json. The navigation
is docs/index.md. A page that it does not lead to, or a link that leads to no file, is an error. The site needs no
server: it works from the file system, and without JavaScript all but search and the copy buttons.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
import api_reference
from site_markdown import Heading, Rendered, SiteError, code_block, render

from gatepost import __version__

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SITE = ROOT / "build" / "site"
INDEX = DOCS / "index.md"
OUTSIDE_DOCS = {  # pages that are not in docs/, and where they are in the site
    ROOT / "README.md": "readme.html",
    ROOT / "CHANGELOG.md": "changelog.html",
    ROOT / "CONTRIBUTING.md": "contributing.html",
    ROOT / "SECURITY.md": "security-policy.html",
    ROOT / "examples" / "README.md": "examples/index.html",
    api_reference.OPENAPI: "reference/api.html",
}
IMAGES = {".svg", ".png"}
ASSETS = ("site.css", "site.js")


class NavLink(NamedTuple):
    """An entry of the navigation; `children` are the entries of a page that is itself a list of pages."""

    page: Path
    text: str
    children: tuple["NavLink", ...] = ()


class NavSection(NamedTuple):
    title: str
    links: tuple[NavLink, ...]


# --- where files are in the site


def every_page() -> list[Path]:
    return [*sorted(DOCS.rglob("*.md")), *OUTSIDE_DOCS]


def target(file: Path) -> str:
    """Return the path of a file in the site. A file that is neither page nor image is shown as text."""
    if file in OUTSIDE_DOCS:
        return OUTSIDE_DOCS[file]
    if file.suffix == ".md":
        return file.relative_to(DOCS).with_suffix(".html").as_posix()
    if file.suffix in IMAGES:
        return file.relative_to(DOCS).as_posix()
    return f"files/{file.relative_to(ROOT).as_posix()}.html"


def relative_url(source: Path, to: Path) -> str:
    return Path(os.path.relpath(target(to), Path(target(source)).parent)).as_posix()


# --- the navigation


def navigation(index: Path = INDEX) -> list[NavSection]:
    """Read the lists of links of a page, one section for each heading."""
    sections: list[NavSection] = []
    title = ""
    for line in index.read_text("utf-8").splitlines():
        if line.startswith("## "):
            title = line.removeprefix("## ")
        link = re.match(r"- \[(.+?)\]\((.+?)\)", line)
        if link:
            page = (index.parent / link[2]).resolve()
            is_list = page.name == "index.md" and page != index
            children = tuple(child for section in navigation(page) for child in section.links) if is_list else ()
            if not sections or sections[-1].title != title:
                sections.append(NavSection(title, ()))
            sections[-1] = sections[-1]._replace(links=(*sections[-1].links, NavLink(page, link[1], children)))
    return sections


def reading_order(sections: list[NavSection]) -> Iterator[NavLink]:
    yield NavLink(INDEX, "Documentation")
    for section in sections:
        for link in section.links:
            yield link
            yield from link.children


def _nav_html(sections: list[NavSection], page: Path) -> str:
    lists = "".join(
        f"<h2>{escape(section.title)}</h2>\n<ul>\n{''.join(_nav_item(link, page) for link in section.links)}</ul>\n"
        for section in sections
    )
    return f'<nav id="navigation" aria-label="All pages">\n{lists}</nav>\n'


def _nav_item(link: NavLink, page: Path) -> str:
    current = ' aria-current="page"' if link.page == page else ""
    anchor = f'<a href="{relative_url(page, link.page)}"{current}>{escape(link.text)}</a>'
    if not link.children:
        return f"<li>{anchor}</li>\n"
    opened = " open" if page in {link.page, *(child.page for child in link.children)} else ""
    items = "".join(_nav_item(child, page) for child in link.children)
    summary = f"{len(link.children)} pages"
    return f"<li>{anchor}<details{opened}><summary>{summary}</summary><ul>\n{items}</ul></details></li>\n"


def _neighbours(sections: list[NavSection], page: Path) -> str:
    """Return the links to the previous and the next page of the navigation."""
    links = list(reading_order(sections))
    place = next((number for number, link in enumerate(links) if link.page == page), None)
    if place is None:
        return ""
    found = ""
    for number, rel, label in ((place - 1, "prev", "Previous"), (place + 1, "next", "Next")):
        if 0 <= number < len(links):
            url, text = relative_url(page, links[number].page), escape(links[number].text)
            found += f'<a rel="{rel}" href="{url}"><small>{label}</small> {text}</a>'
    return f'<nav class="neighbours" aria-label="Previous and next page">{found}</nav>\n'


# --- whole pages


def _html(source: Path, title: str, body: str, sections: list[NavSection], headings: Sequence[Heading] = ()) -> str:
    items = "".join(
        f'<li><a href="#{heading.id}">{escape(heading.text)}</a></li>' for heading in headings if heading.level == 2
    )
    inline = f'<details class="contents"><summary>On this page</summary><ul>{items}</ul></details>' if items else ""
    aside = f'<aside aria-label="On this page"><p>On this page</p><ul>{items}</ul></aside>\n' if items else ""
    root = Path(os.path.relpath(".", Path(target(source)).parent)).as_posix()
    body = body.replace("</h1>\n", f"</h1>\n{inline}", 1)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}{"" if "Gatepost" in title else " · Gatepost"}</title>
<link rel="stylesheet" href="{root}/site.css">
<script src="{root}/site.js" data-root="{root}" defer></script>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header>
<a class="home" href="{relative_url(source, INDEX)}">Gatepost</a>
<form class="search" role="search" hidden>
<input type="search" aria-label="Search the documentation" placeholder="Search" autocomplete="off" spellcheck="false">
<div class="results" hidden><p role="status"></p><ul></ul></div>
</form>
<a class="menu" href="#navigation">Menu</a>
</header>
<div class="frame">
<main id="content">
{body}<footer>
{_neighbours(sections, source)}<p>Gatepost {__version__}</p>
</footer>
</main>
{aside}{_nav_html(sections, source)}</div>
</body>
</html>
"""


def _rendered(page: Path) -> Rendered:
    text = api_reference.markdown() if page == api_reference.OPENAPI else page.read_text("utf-8")
    return render(text, page, relative_url)


def _file_html(file: Path, sections: list[NavSection]) -> str:
    name = file.relative_to(ROOT).as_posix()
    language = {".py": "python"}.get(file.suffix, "")
    return _html(file, name, f"<h1>{escape(name)}</h1>\n{code_block(file.read_text('utf-8'), language)}", sections)


def search_index(pages: dict[Path, Rendered]) -> str:
    """Return a script: browsers do not let a page that was opened from a file fetch JSON.

    A page is `[url, title, sections]`, a section `[anchor, heading, text]`.
    """
    entries = [
        [target(page), rendered.headings[0].text, [[head.id, head.text, text] for head, text in rendered.sections]]
        for page, rendered in pages.items()
    ]
    return f"window.gatepostSearchIndex = {json.dumps(entries, ensure_ascii=False, separators=(',', ':'))}\n"


def build(site: Path = SITE) -> list[Path]:
    """Write the whole site and return the files written."""
    sections = navigation()
    linked = {link.page for link in reading_order(sections)}
    missing = [str(page.relative_to(ROOT)) for page in every_page() if page not in linked]
    if missing:
        raise SiteError(f"docs/index.md does not link to {', '.join(missing)}")
    shutil.rmtree(site, ignore_errors=True)
    pages = {link.page: _rendered(link.page) for link in reading_order(sections)}
    written = [
        _write(site / target(page), _html(page, rendered.headings[0].text, rendered.html, sections, rendered.headings))
        for page, rendered in pages.items()
    ]
    for file in sorted({file for rendered in pages.values() for file in rendered.linked_files}.difference(pages)):
        if file.suffix in IMAGES:
            written.append(_copy(file, site / target(file)))
        else:
            written.append(_write(site / target(file), _file_html(file, sections)))
    written.append(_write(site / "search-index.js", search_index(pages)))
    return written + [_copy(DOCS / name, site / name) for name in ASSETS]


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
    except SiteError as problem:
        raise SystemExit(str(problem)) from None
    sys.stdout.write(f"{len(written)} files; open {site / 'index.html'}\n")


if __name__ == "__main__":
    main()
