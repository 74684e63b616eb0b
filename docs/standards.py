"""Writes the page of standards from docs/standards.toml: `.venv/bin/python docs/standards.py`."""

import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent
TABLE = DOCS / "standards.toml"
PAGE = DOCS / "reference" / "standards.md"
_HEAD = """# Standards

What Gatepost claims of each document, clause by clause: the file that obeys it, and a test that shows it.
A test of its own keeps this table true: the files cite the document, the tests exist, and nothing that the code cites
is missing here. How the whole behaves beside another server is in [differences](differences.md).
"""


class Clause(NamedTuple):
    document: str
    section: str
    does: str
    file: str
    test: str


class Document(NamedTuple):
    name: str
    title: str
    cited: tuple[str, ...]
    clauses: tuple[Clause, ...]


def documents() -> list[Document]:
    table = tomllib.loads(TABLE.read_text("utf-8"))
    return [
        Document(
            name,
            told["title"],
            tuple(told.get("cited", [name])),
            tuple(
                Clause(name, section, does, f"gatepost/{file}", f"tests/{test}")
                for section, does, file, test in told["clauses"]
            ),
        )
        for name, told in table.items()
    ]


def page() -> str:
    text = _HEAD
    for document in documents():
        title = document.title if document.title.startswith(document.name) else f"{document.name}: {document.title}"
        text += f"\n## {title}\n\n| section | what Gatepost does | where | shown by |\n| --- | --- | --- | --- |\n"
        for each in document.clauses:
            text += f"| {each.section} | {each.does} | `{each.file}` | `{each.test}` |\n"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
