"""Every event, metric, setting, member and file that a page names exists."""

import re
from functools import cache
from pathlib import Path

from gatepost import accounts, settings
from gatepost.ledger import entries
from gatepost.webhooks.subscriptions import matches_type
from tests.docs.pages import EXAMPLES, ROOT, blocks, every_page, inline_code, json_blocks, named

PLACES = ("gatepost", "clients", "examples", "console/src", "bench", "tests/conformance")
# Words of other programs, and words that a page describes as unsupported or ignored.
ELSEWHERE = {"synchronous_commit", "full_page_writes", "repository_id"} | {
    "max_prepared_statements", "server_login_retry", "query_wait_timeout",
    "end_session_endpoint", "check_session_iframe", "token_type_hint",
    "shared_preload_libraries", "shard_count", "recover_2pc_interval", "citus_create_restore_point",
}  # fmt: skip


@every_page
def test_events_exist(page: Path) -> None:
    """Event types of the service, and patterns that match at least one."""
    text = re.sub(r"^```(?:python|js|go)\n.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for name in re.findall(
        r"(?<![\w./-])((?:account|oauth|webhook)(?:\.[a-z_]+)+(?:\.\*)?|(?:oauth|webhook)\.\*)", text
    ):
        known = name in entries.TYPES or any(matches_type([name], kind) for kind in entries.TYPES)
        assert known, f"{named(page)}: there is no event {name}"


@cache
def every_metric() -> set[str]:
    """Return the metrics that the code names, with the suffixes of counters and histograms."""
    source = "".join(path.read_text("utf-8") for path in (ROOT / "gatepost").rglob("*.py"))
    found = set(re.findall(r'"(gatepost_[a-z_]+)"', source))
    return found | {f"{name}_{part}" for name in found for part in ("total", "bucket", "count", "sum")}


@every_page
def test_metrics_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    result = set(re.findall(r"(?<![\w/])gatepost_[a-z_]+[a-z]", text)) - {"gatepost_outbox", "gatepost_client"}
    assert result <= every_metric(), named(page)


@every_page
def test_settings_exist(page: Path) -> None:
    """Account settings that a page sets with the command, and service settings that it names."""
    shell = "\n".join(blocks(page, "sh", "text")).replace("\\\n", " ")
    for line in re.findall(r"\baccount (?:set|create) \S+((?: +\S+)*)", shell):
        for name in re.findall(r" ([a-z_]+)=", line):
            assert name in accounts.SETTINGS, f"{named(page)}: there is no account setting {name}"
    for name in re.findall(r"`([a-z_]+) = ", page.read_text("utf-8")):
        assert name in settings.NAMES, f"{named(page)}: there is no setting {name}"


@cache
def names_in_the_code() -> set[str]:
    """Return every identifier in the source files."""
    found: set[str] = set()
    for place in PLACES:
        for path in (ROOT / place).rglob("*"):
            if (
                path.suffix in {".py", ".sql", ".json", ".mjs", ".ts", ".tsx", ".toml"}
                and "node_modules" not in path.parts
            ):
                found.update(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", path.read_text("utf-8")))
    return found


@every_page
def test_names_in_code_marks_exist(page: Path) -> None:
    """Inline code that looks like a member, parameter, reason or rule is one."""
    own = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", "\n".join(blocks(page, "sh", "python", "js", "go", "sql", "yaml"))))
    for code in (code for code in inline_code(page) if not code.startswith("tests/")):
        for word in re.findall(
            r"(?<![\w-])[a-z]+(?:_[a-z0-9]+)+(?![\w-])", re.sub(r"\bgatepost_\w+|[a-z]+_…|cli_\w+", "", code)
        ):
            assert word in names_in_the_code() | own | ELSEWHERE, f"{named(page)}: {word} is nowhere in the code"


@every_page
def test_files_exist(page: Path) -> None:
    """Files of the repository that a page names."""
    for name in re.findall(
        r"(?<![\w/.])((?:tests|gatepost|docs|examples|bench|console|deploy)/[\w/.-]+\.\w+)", page.read_text("utf-8")
    ):
        assert (ROOT / name).exists(), f"{named(page)}: there is no {name}"


@every_page
def test_urls_exist(page: Path) -> None:
    """URLs such as `/oauth/…` that a page names are served."""
    from gatepost.web.app import ROUTES

    text = page.read_text("utf-8")
    result = set(re.findall(r"(?<![\w.])(/(?:oauth|webhooks|\.well-known)/[a-z-]+)", text))
    elsewhere = {"/.well-known/jwks"} | ({"/oauth/authorization"} if "differences" in page.name else set())
    assert result - elsewhere <= set(ROUTES), f"{named(page)}: {result - set(ROUTES)}"


def test_the_checks_can_fail() -> None:
    assert not any(matches_type(["oauth.token.lost"], kind) for kind in entries.TYPES)
    assert "gatepost_attempts_total" in every_metric()
    assert "gatepost_attempts_lost" not in every_metric()
    assert "no_such_" + "member" not in names_in_the_code()
    assert json_blocks(EXAMPLES / "README.md") == []
