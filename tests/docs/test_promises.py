"""Every row of the pages on guarantees and exclusions names tests that exist. A few of those tests are here."""

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from gatepost.store import sql_loader
from gatepost.web import app, authorize, error_page
from tests.docs.pages import DOCS, ROOT, named, prose
from tests.test_checks import names_in

NEVER = DOCS / "explanation" / "what-we-never-do.md"
GUARANTEES = DOCS / "explanation" / "guarantees.md"


def promises(page: Path) -> list[tuple[str, str]]:
    """Return for each row what it promises, and the cell that names its tests."""
    lines = [line for line in prose(page).splitlines() if line.startswith("| **")]
    return [(line.split("**")[1], line.rstrip("| ").rpartition("|")[2]) for line in lines]


EVERY = [(page, *promise) for page in (NEVER, GUARANTEES) for promise in promises(page)]


@pytest.mark.parametrize(("page", "promise", "shown_by"), EVERY, ids=[f"{named(each[0])}: {each[1]}" for each in EVERY])
def test_the_named_tests_exist(page: Path, promise: str, shown_by: str) -> None:
    tests = re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", shown_by)
    assert tests, f"{promise}: name the test that shows it"
    for file, name in tests:
        assert name in names_in(ROOT / file), f"{file}::{name}"


def test_every_row_is_checked() -> None:
    assert len(promises(NEVER)) >= 15
    assert len(promises(GUARANTEES)) >= 20
    tables = [line for page in (NEVER, GUARANTEES) for line in prose(page).splitlines() if line.startswith("| ")]
    assert len([line for line in tables if "shown by" not in line]) == len(EVERY), "every row is a promise"


def test_no_html_page_asks_for_input() -> None:
    """Two responses are HTML: a form that only continues the flow, and an error page."""
    sources = {path: path.read_text("utf-8") for path in (ROOT / "gatepost" / "web").glob("*.py")}
    pages = {path.name for path, source in sources.items() if "text/html" in source}
    assert pages == {"authorize.py", "error_page.py"}
    assert not re.search(r"<(a|form|input|button|script|select|textarea)\b", inspect.getsource(error_page))
    form = inspect.getsource(authorize._form_post)
    assert inspect.getsource(authorize).count("text/html") == form.count("text/html") == 1
    assert set(re.findall(r'<input type="(\w+)"', form)) == {"hidden"}
    assert not re.search(r"<(select|textarea)", form)
    assert not [path for path in app.ROUTES if re.search("log(in|out)|session|register|password|user$", path)]


def test_no_table_stores_people() -> None:
    """Checked by the names of tables and columns in both dialects."""
    for dialect in get_args(sql_loader.Dialect):
        schema = "\n".join(each.text for each in sql_loader.migrations(dialect)).lower()
        tables = set(re.findall(r"create table (?:if not exists )?(\w+)", schema))
        assert {"clients", "consents", "families"} <= tables
        assert not [name for name in tables if re.search("user|person|people|session|identit|profile|credential", name)]
        assert not re.search(r"^\s+(password|email|phone|birthdate|session)\w* (text|blob|bytea)", schema, re.MULTILINE)
