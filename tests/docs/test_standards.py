"""The table of standards is correct: files cite the documents, tests exist, and no citation is missing."""

import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.differential.requests_to_send import REQUESTS
from tests.docs.pages import DOCS, ROOT
from tests.test_checks import names_in

CODE = sorted([*(ROOT / "gatepost").rglob("*.py"), *(ROOT / "gatepost").rglob("*.sql")])
SECTION = r"(?:[0-9]+(?:\.[0-9]+)*|[A-Z](?![A-Za-z0-9]))"
NAMED = r"OIDC (?:Core|Discovery) 1\.0|Form Post Response Mode|FAPI 2\.0|OAuth 2\.1|Standard Webhooks|CloudEvents 1\.0"
CITATION = re.compile(
    rf"(?P<names>RFC [0-9]{{4,5}}(?:bis)?(?:, [0-9]{{4,5}})*|{NAMED})"
    rf"(?:,? sections? (?P<sections>{SECTION}(?:(?:, | and | to ){SECTION})*))?"
)


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("standards", DOCS / "standards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STANDARDS = generator()
DOCUMENTS = STANDARDS.documents()
CLAUSES = [(document, clause) for document in DOCUMENTS for clause in document.clauses]
every_clause = pytest.mark.parametrize(
    ("document", "clause"),
    CLAUSES,
    ids=[f"{clause.document} {clause.section} {clause.file} {number}" for number, (_, clause) in enumerate(CLAUSES)],
)


def cited(text: str) -> Iterator[tuple[str, str]]:
    """Yield each cited document with each cited section, or with an empty section."""
    for found in CITATION.finditer(text):
        first, *more = found["names"].split(", ")
        for name in (first, *(f"RFC {each}" for each in more)):
            for section in re.findall(SECTION, found["sections"] or "") or [""]:
                yield name, section


@cache
def text_of(file: str) -> str:
    return (ROOT / file).read_text("utf-8")


@cache
def names(file: str) -> set[str]:
    return names_in(ROOT / file)


@every_clause
def test_the_file_cites_the_document(document: Any, clause: Any) -> None:
    output = {name for name, _ in cited(text_of(clause.file))}
    assert clause.document in output or any(word in text_of(clause.file) for word in document.cited)


@every_clause
def test_the_test_exists(document: Any, clause: Any) -> None:
    file, _, name = clause.test.partition("::")
    function, _, case = name.partition("[")
    assert function in names(file)
    assert not case or case.removesuffix("]") in REQUESTS


@pytest.mark.parametrize("file", CODE, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_cited_document_is_listed(file: Path) -> None:
    sections = {(clause.document, clause.section.rpartition(" ")[2]) for _, clause in CLAUSES}
    sections |= {(document.name, "") for document in DOCUMENTS}
    assert not [each for each in cited(file.read_text("utf-8")) if each not in sections]


def test_a_cited_section_has_a_clause_in_that_file() -> None:
    """At least one clause of the section names that file."""
    shown: dict[tuple[str, str], set[str]] = {}
    for _, clause in CLAUSES:
        shown.setdefault((clause.document, clause.section), set()).add(clause.file)
    for section, files in shown.items():
        citing = {str(file.relative_to(ROOT)) for file in CODE if section in set(cited(text_of(str(file))))}
        assert not citing or citing & files, section


def test_citations_are_parsed() -> None:
    text = (
        "RFC 6749, sections 3.2 and B, S256; RFC 8725, sections 3.1 to 3.11. (RFC 6749, 6750) OIDC Core 1.0 section 5.3"
    )
    assert list(cited(text)) == [
        ("RFC 6749", "3.2"), ("RFC 6749", "B"), ("RFC 8725", "3.1"), ("RFC 8725", "3.11"), ("RFC 6749", ""),
        ("RFC 6750", ""), ("OIDC Core 1.0", "5.3"),
    ]  # fmt: skip


def test_no_clause_is_repeated() -> None:
    output = [(clause.document, clause.section, clause.does) for _, clause in CLAUSES]
    assert len(output) == len(set(output)) >= 120


def test_sections_are_in_order() -> None:
    for document in DOCUMENTS:
        numbers = [[int(part) for part in clause.section.split(".")] for clause in document.clauses if plain(clause)]
        assert numbers == sorted(numbers), document.name


def plain(clause: Any) -> bool:
    return bool(re.fullmatch(r"[0-9.]+", clause.section))


def test_the_page_is_current() -> None:
    assert STANDARDS.PAGE.read_text("utf-8") == STANDARDS.page()
