"""The page of standards, from docs/standards.toml. `make docs` writes it."""

import tomllib
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent
TABLE = DOCS / "standards.toml"
PAGE = DOCS / "reference" / "standards.md"
_HEAD = """# Standards

The standards that Gatepost implements, clause by clause, with the file that implements each clause and a test that
covers it. A test checks this page: the files cite the document, the tests exist, and every document that the code cites
is listed. [Differences](differences.md) compares the responses to invalid requests with another server.
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
            entry["title"],
            tuple(entry.get("cited", [name])),
            tuple(
                Clause(name, section, does, f"gatepost/{file}", f"tests/{test}")
                for section, does, file, test in entry["clauses"]
            ),
        )
        for name, entry in table.items()
    ]


def page() -> str:
    text = _HEAD
    for document in documents():
        title = document.title if document.title.startswith(document.name) else f"{document.name}: {document.title}"
        text += f"\n## {title}\n\n| section | what Gatepost does | where | tested by |\n| --- | --- | --- | --- |\n"
        for clause in document.clauses:
            text += f"| {clause.section} | {clause.does} | `{clause.file}` | `{clause.test}` |\n"
    return text
