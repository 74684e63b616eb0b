"""Parses the pages: code blocks, tables and inline code."""

import importlib.util
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gatepost import settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
HOW_TO = DOCS / "how-to"
EXAMPLES = ROOT / "examples"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
AT_THE_ROOT = [ROOT / "README.md", ROOT / "CHANGELOG.md", CONTRIBUTING, ROOT / "SECURITY.md"]
PAGES = [*AT_THE_ROOT, EXAMPLES / "README.md", *sorted(DOCS.rglob("*.md"))]
DEFAULT_URL = settings.Settings().issuer
DEFAULT_OPS = f"http://{settings.Settings().ops_host}:{settings.Settings().ops_port}"


def script(name: str) -> Any:
    """Load a program of docs/, which is not a package, as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=named)


class Block(NamedTuple):
    language: str
    text: str


_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *languages: str) -> list[str]:
    found = [Block(*match) for match in _FENCED.findall(page.read_text("utf-8"))]
    return [block.text for block in found if block.language in languages]


def prose(page: Path) -> str:
    return _FENCED.sub("", page.read_text("utf-8"))


def section(page: Path, heading: str) -> str:
    """Return the text under a heading, up to the next heading of the same or a higher level."""
    text = prose(page)
    found = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert found, f"{named(page)} has no heading {heading!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def inline_code(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def rows(page: Path, *heads: str) -> list[list[str]]:
    """Return the cells of the table whose first columns have these headings."""
    lines = iter(prose(page).splitlines())
    for line in lines:
        if cells(line)[: len(heads)] == list(heads):
            next(lines)
            found = []
            for row in lines:
                if not row.startswith("|"):
                    break
                found.append(cells(row))
            return found
    raise AssertionError(f"{named(page)} has no table {heads}")


def tables(page: Path, *heads: str) -> list[list[str]]:
    """Return the first column of every table with exactly these headings."""
    text = prose(page)
    line = re.escape(f"| {' | '.join(heads)} |\n")
    return [
        [bare(cells(row)[0]) for row in body.strip().splitlines()]
        for body in re.findall(rf"^{line}\|[-| ]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    ]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def bare(cell: str) -> str:
    found = re.search(r"`([^`]+)`", cell)
    return found[1] if found else cell


def first_column(page: Path, *heads: str) -> list[str]:
    return [bare(row[0]) for row in rows(page, *heads)]


def json_blocks(page: Path) -> list[Any]:
    return [json.loads(text) for text in blocks(page, "json")]


def json_with(page: Path, member: str) -> Any:
    """Return the only JSON block of the page that has this top-level member."""
    [found] = [each for each in json_blocks(page) if member in each]
    return found


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> set[str]:
    text = prose(page)
    return {slug(each) for each in re.findall(r"^#+ (.+)$", text, re.MULTILINE)} | set(
        re.findall(r'<a id="(.+?)">', text)
    )
