"""CONTRIBUTING.md is true: the files, folders and targets that it names exist."""

import re
from pathlib import Path

import pytest

from gatepost import __version__
from tests.docs.pages import CONTRIBUTING, ROOT, blocks, first_column, inline_code, section, tables

CHANGES = (
    "Add a grant type",
    "Add an event type",
    "Add a client member",
    "Change a retry decision",
    "Add a filter to the deliveries listing",
    "Add a column",
    "Add a command",
)
MOST_FILES = 6  # a change that touches more shows that a rule is in several places


def files_of(change: str) -> list[str]:
    rows = re.findall(r"^\| `([^`]+)` \|", section(CONTRIBUTING, change), re.MULTILINE)
    return [str(row) for row in rows]


@pytest.mark.parametrize("change", CHANGES)
def test_the_files_of_a_change_exist(change: str) -> None:
    files = files_of(change)
    assert 3 <= len(files) <= MOST_FILES
    for name in files:
        path = ROOT / name
        assert path.is_dir() if name.endswith("/") else path.is_file(), name
    assert any(name.startswith("tests/") for name in files)
    assert files[0].startswith("gatepost/")


def test_every_change_is_checked() -> None:
    headings = re.findall(r"^### (.+)$", CONTRIBUTING.read_text("utf-8"), re.MULTILINE)
    assert tuple(headings) == CHANGES


def test_every_folder_of_the_package_is_on_the_map() -> None:
    package = ROOT / "gatepost"
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    assert folders <= set(first_column(CONTRIBUTING, "in `gatepost/`", "contents"))


def test_every_folder_of_the_tests_is_on_the_map() -> None:
    rows = section(CONTRIBUTING, "The folders")
    described = set(re.findall(r"`(tests/[a-z]+)`", rows))
    assert described == {f"tests/{path.parent.name}" for path in (ROOT / "tests").glob("*/__init__.py")}


def test_paths_in_the_text_exist() -> None:
    named = [code for code in inline_code(CONTRIBUTING) if re.fullmatch(r"(?:gatepost|tests|docs)/[\w./-]*", code)]
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_inner_loop_is_made_of_targets() -> None:
    [commands] = tables(CONTRIBUTING, "command", "what it does")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {command.split()[1] for command in commands} <= targets
    assert "make test-fast" in commands


def test_the_release_recipe_tags_this_version() -> None:
    [tagging] = [block for block in blocks(CONTRIBUTING, "sh") if "git tag" in block]
    assert set(re.findall(r"\d+\.\d+\.\d+", tagging)) == {__version__}
    for name in ("pyproject.toml", "gatepost/__init__.py", "CHANGELOG.md"):
        assert Path(ROOT / name).is_file()
        assert f"`{name}`" in section(CONTRIBUTING, "Release")
