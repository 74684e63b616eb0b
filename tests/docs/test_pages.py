"""The pages are consistent: links resolve, code blocks parse, and commands exist."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest

from gatepost import __version__, settings
from gatepost.cli.main import all_commands
from gatepost.web import responses
from tests.docs.pages import (
    DOCS,
    EXAMPLES,
    PAGES,
    ROOT,
    anchors,
    blocks,
    every_page,
    first_column,
    inline_code,
    json_blocks,
    named,
    prose,
)


@every_page
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        assert not urlsplit(path).scheme, f"{target}: the docs stand by themselves"
        there = (page.parent / path).resolve() if path else page
        assert there.is_file(), target
        assert not anchor or anchor in anchors(there), target


def test_every_page_is_reachable() -> None:
    found, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page not in found and page.suffix == ".md":
            found.add(page)
            linked = re.findall(r"\]\(([^)#\s]+)", prose(page))
            todo += [(page.parent / target).resolve() for target in linked]
    assert set(PAGES) == found


@every_page
def test_json_parses(page: Path) -> None:
    json_blocks(page)


@every_page
def test_toml_is_settings(page: Path, tmp_path: Path) -> None:
    for text in blocks(page, "toml"):
        (tmp_path / "gatepost.toml").write_text(text)
        settings.load({}, {}, str(tmp_path / "gatepost.toml"))


@every_page
def test_no_local_paths(page: Path) -> None:
    assert not re.search(r"/(work|root|home|tmp|Users)/|localhost:\d", page.read_text("utf-8"))


def test_the_license_is_complete() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert text.split()[:5] == ["Apache", "License", "Version", "2.0,", "January"]
    assert "END OF TERMS AND CONDITIONS" in text
    assert "APPENDIX: How to apply the Apache License to your work." in text


def test_the_changelog_has_this_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert __version__ in headings


@every_page
def test_versions_are_current(page: Path) -> None:
    text = page.read_text("utf-8")
    assert set(re.findall(r"\brelease (\d+\.\d+\.\d+)", text)) <= {__version__}
    assert set(re.findall(r"(?<!before )`(\d{4}-\d\d-\d\d)`", text)) <= {responses.VERSION}


@pytest.mark.parametrize("page", sorted((DOCS / "decisions").glob("0*.md")), ids=named)
def test_a_decision_is_half_a_page(page: Path) -> None:
    text = page.read_text("utf-8")
    parts = [heading.split()[0] for heading in re.findall(r"^## (.+)$", text, re.MULTILINE)]
    assert parts == ["Context", "Options", "Decision", "Cost"]
    assert len(text.split()) <= 350
    assert re.search(rf"\[{page.name[:4]} .+\]\({page.name}\)", (DOCS / "decisions" / "index.md").read_text("utf-8"))


# --- the command


def command_words(page: Path) -> Iterator[list[str]]:
    """Yield the words of every command line on a page, also of `audit verify` without `gatepost` before it."""
    shell = "\n".join(blocks(page, "sh", "text")).replace("\\\n", " ")
    for code in [*inline_code(page), *shell.splitlines()]:
        for found in re.findall(r"(?<![\w/.-])(?:\.venv/bin/)?gatepost((?: +[^\s|;&)`]+)+)", code):
            yield found.split()
    for code in inline_code(page):
        first, *rest = code.split()
        if rest and isinstance(all_commands().commands.get(first), click.Group):
            yield [first, *rest]


def every_flag() -> set[str]:
    """Return the options of the command and of the programs in examples/."""
    programs = "".join(each.read_text("utf-8") for each in EXAMPLES.glob("*.py"))
    found = {"--help", "--version", *re.findall(r'add_argument\("(--[a-z-]+)"', programs)}
    for command in all_commands().commands.values():
        inner = command.commands.values() if isinstance(command, click.Group) else [command]
        found |= {flag for each in inner for option in each.params for flag in option.opts}
    return found


@every_page
def test_commands_exist(page: Path) -> None:
    for words in command_words(page):
        command: click.Command = all_commands()
        for word in words:
            if isinstance(command, click.Group) and not word.startswith("-"):
                name = word if word in command.commands else getattr(command, "default", word)
                assert name in command.commands, f"{named(page)}: there is no gatepost {' '.join(words)}"
                command = command.commands[name]
        flags = {"--help", "--version", *(flag for option in command.params for flag in option.opts)}
        for word in words:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in flags, f"{named(page)}: no {word} in gatepost {' '.join(words)}"


@every_page
def test_flags_exist(page: Path) -> None:
    named_flags = [code.split()[0] for code in inline_code(page) if code.startswith("--")]
    assert set(named_flags) <= every_flag()


@every_page
def test_environment_variables_exist(page: Path) -> None:
    of_commands = ("account", "remote", "profile", "client_id", "client_secret")
    known = {settings.PREFIX + name.upper() for name in [*settings.NAMES, *of_commands, "config", "test_citus"]}
    assert set(re.findall(r"\bGATEPOST_[A-Z_]*[A-Z]", page.read_text("utf-8"))) <= known


@every_page
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shell = "\n".join(blocks(page, "sh"))
    assert {code.split()[1] for code in inline_code(page) if code.startswith("make ")} <= targets
    assert set(re.findall(r"^make ([a-z-]+)", shell, re.MULTILINE)) <= targets


@pytest.mark.parametrize(("target", "runs"), [("serve", "gatepost serve --dev"), ("test", "python -m pytest")])
def test_make_does_what_the_readme_says(target: str, runs: str) -> None:
    """Compared with a dry run, as if everything were installed."""
    stamps = [f"--old-file=.venv/{name}.stamp" for name in ("run", "test")]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    result = subprocess.run(
        ["make", "--dry-run", *stamps, target], cwd=ROOT, env=clean, check=True, capture_output=True, text=True
    )
    assert result.stdout.startswith(f".venv/bin/{runs}"), result.stdout
    assert target in first_column(ROOT / "README.md", "command", "what it does")[["serve", "test"].index(target)]
