"""Renders the Markdown of the pages as HTML: headings with anchors, links, highlighted code, tables that scroll."""

import re
from collections.abc import Callable, Sequence
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

_LONG_CODE = 40  # inline code with more characters may break at any of them
_EXPLICIT_ID = re.compile(r" \{#([\w.-]+)\}$")
_FORMATTER = HtmlFormatter(nowrap=True)


class SiteError(Exception):
    """A page cannot be built as it is written."""


class Heading(NamedTuple):
    level: int
    id: str
    text: str


class Section(NamedTuple):
    """The text between a heading and the next one, for the search index."""

    heading: Heading
    text: str


class Rendered(NamedTuple):
    html: str
    sections: list[Section]
    linked_files: list[Path]

    @property
    def headings(self) -> list[Heading]:
        return [section.heading for section in self.sections]


def render(text: str, page: Path, relative_url: Callable[[Path, Path], str]) -> Rendered:
    """Render the text of `page`. A link that leads to no file is an error."""
    parser = MarkdownIt("commonmark", {"html": True}, renderer_cls=Renderer).enable("table")
    tokens = parser.parse(text)
    sections = _sections(tokens)
    if [section.heading.level for section in sections].count(1) != 1:
        raise SiteError(f"{page}: a page must have exactly one heading of level 1")
    links: list[Path] = []
    env = {
        "page": page,
        "relative_url": relative_url,
        "headings": iter([section.heading for section in sections]),
        "links": links,
    }
    return Rendered(parser.renderer.render(tokens, parser.options, env), sections, links)


def slug(text: str) -> str:
    """Return the anchor that GitHub gives to a heading, so that a link works there and in the site."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def _sections(tokens: Sequence[Token]) -> list[Section]:
    """Split a page at its headings. `{#id}` at the end of a heading sets its anchor and is removed from the text."""
    sections: list[Section] = []
    seen: dict[str, int] = {}
    for before, token in pairwise(tokens):
        if before.type == "heading_open":
            explicit = _EXPLICIT_ID.search(token.content)
            if explicit and token.children:
                token.children[-1].content = _EXPLICIT_ID.sub("", token.children[-1].content)
            name = explicit[1] if explicit else slug(token.content)
            seen[name] = seen.get(name, -1) + 1
            anchor = f"{name}-{seen[name]}" if seen[name] else name
            sections.append(Section(Heading(int(before.tag[1]), anchor, _plain_text(token)), ""))
        elif sections and token.type in {"inline", "fence"}:
            words = token.content if token.type == "fence" else _plain_text(token)
            sections[-1] = sections[-1]._replace(text=" ".join(f"{sections[-1].text} {words}".split()))
    return sections


def _plain_text(inline: Token) -> str:
    return "".join(
        " " if child.type == "softbreak" else "" if child.type == "html_inline" else child.content
        for child in inline.children or ()
    )


class Renderer(RendererHTML):
    """HTML for one page. `render` says what `env` holds."""

    def heading_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        tokens[idx].attrSet("id", next(env["headings"]).id)
        return self.renderToken(tokens, idx, options, env)

    def heading_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        opening = next(token for token in reversed(tokens[:idx]) if token.type == "heading_open")
        link = f' <a class="anchor" href="#{opening.attrGet("id")}" aria-label="Link to this section">#</a>'
        return ("" if opening.tag == "h1" else link) + self.renderToken(tokens, idx, options, env)

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        tokens[idx].attrSet("href", _resolve(str(tokens[idx].attrGet("href")), env))
        return self.renderToken(tokens, idx, options, env)

    def image(self, tokens: Sequence[Token], idx: int, _options: Any, env: Any) -> str:
        source = _resolve(str(tokens[idx].attrGet("src")), env)
        return f'<img src="{escape(source)}" alt="{escape(tokens[idx].content)}" loading="lazy">'

    def table_open(self, *_: Any) -> str:
        return '<div class="table" tabindex="0" role="group" aria-label="Table"><table>\n'

    def table_close(self, *_: Any) -> str:
        return "</table></div>\n"

    def code_inline(self, tokens: Sequence[Token], idx: int, _options: Any, _env: Any) -> str:
        text = tokens[idx].content
        attribute = ' class="long"' if len(text) > _LONG_CODE else ""
        return f"<code{attribute}>{escape(text)}</code>"

    def fence(self, tokens: Sequence[Token], idx: int, _options: Any, _env: Any) -> str:
        return code_block(tokens[idx].content, tokens[idx].info.strip())


def _resolve(link: str, env: Any) -> str:
    parts = urlsplit(link)
    if parts.scheme:
        return link
    page: Path = env["page"]
    file = (page.parent / parts.path).resolve() if parts.path else page
    if not file.is_file():
        raise SiteError(f"{page}: the link {link} leads to no file")
    env["links"].append(file)
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    same_page = file == page and fragment
    return fragment if same_page else env["relative_url"](page, file) + fragment


def code_block(text: str, language: str) -> str:
    """Return a block of code. Long lines scroll inside it; the script adds the copy button."""
    try:
        highlighted = highlight(text, get_lexer_by_name({"sh": "bash"}.get(language, language or "text")), _FORMATTER)
    except ClassNotFound:
        highlighted = escape(text)
    label = escape(f"Code: {language}" if language else "Code")
    pre = f'<pre tabindex="0" role="group" aria-label="{label}"><code>{highlighted}</code></pre>'
    return f'<div class="code">{pre}</div>\n'
