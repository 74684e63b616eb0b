"""Keeps the documentation true: what it lists is what the code has, and what it tells to type works."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click
import jwt
import msgspec
import psycopg
import pytest
import requests

from gatepost import __version__, accounts, chores, clients, clock, discovery, keys, scopes, settings
from gatepost.cli.main import commands
from gatepost.errors import ERRORS
from gatepost.grants import GRANTS
from gatepost.ledger import entries
from gatepost.ops import plane
from gatepost.secrets import SERVER_KEYS
from gatepost.store import sqlite, work
from gatepost.tokens import jws
from gatepost.units import authenticate
from gatepost.web import answers, definitions, process
from gatepost.web import requests as web_requests
from gatepost.web.app import ROUTES
from tests import postgres, service
from tests.service import Client, Service

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
DEFAULT_URL = settings.Settings().issuer
JOSE = "jose@6.2.17"


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=named)


# --- reading pages


class Block(NamedTuple):
    language: str
    text: str


_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *languages: str) -> list[str]:
    found = [Block(*match) for match in _FENCED.findall(page.read_text("utf-8"))]
    return [block.text for block in found if block.language in languages]


def prose(page: Path) -> str:
    return _FENCED.sub("", page.read_text("utf-8"))


def inline_code(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def rows(page: Path, *heads: str) -> list[list[str]]:
    """The rows of the table whose first columns have these heads: each cell as text, code marks taken off."""
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
    """The one JSON block of the page that has this member at its top."""
    [found] = [each for each in json_blocks(page) if member in each]
    return found


# --- links, words, blocks


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> set[str]:
    text = prose(page)
    return {slug(each) for each in re.findall(r"^#+ (.+)$", text, re.MULTILINE)} | set(
        re.findall(r'<a id="(.+?)">', text)
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
def test_no_machine_of_ours_shows(page: Path) -> None:
    assert not re.search(r"/(work|root|home|tmp|Users)/|localhost:\d", page.read_text("utf-8"))


def test_the_license_is_whole() -> None:
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
    assert set(re.findall(r"(?<!before )`(\d{4}-\d\d-\d\d)`", text)) <= {answers.VERSION}


@pytest.mark.parametrize("page", sorted((DOCS / "decisions").glob("0*.md")), ids=named)
def test_a_decision_is_half_a_page(page: Path) -> None:
    text = page.read_text("utf-8")
    parts = [heading.split()[0] for heading in re.findall(r"^## (.+)$", text, re.MULTILINE)]
    assert parts == ["Context", "Options", "Decision", "Cost"]
    assert len(text.split()) <= 350
    assert re.search(rf"\[{page.name[:4]} .+\]\({page.name}\)", (DOCS / "decisions" / "index.md").read_text("utf-8"))


# --- the command


def command_words(page: Path) -> Iterator[list[str]]:
    """Every command line of ours that a page names, in words; also `audit verify`, without `gatepost` before it."""
    shell = "\n".join(blocks(page, "sh", "text")).replace("\\\n", " ")
    for code in [*inline_code(page), *shell.splitlines()]:
        for found in re.findall(r"(?<![\w/.-])(?:\.venv/bin/)?gatepost((?: +[^\s|;&)`]+)+)", code):
            yield found.split()
    for code in inline_code(page):
        first, *rest = code.split()
        if rest and isinstance(commands.commands.get(first), click.Group):
            yield [first, *rest]


def every_flag() -> set[str]:
    found = {"--help", "--version"}
    for command in commands.commands.values():
        inner = command.commands.values() if isinstance(command, click.Group) else [command]
        found |= {flag for each in inner for option in each.params for flag in option.opts}
    return found


@every_page
def test_commands_exist(page: Path) -> None:
    for words in command_words(page):
        command: click.Command = commands
        for word in words:
            if isinstance(command, click.Group) and not word.startswith("-"):
                assert word in command.commands, f"{named(page)}: there is no gatepost {' '.join(words)}"
                command = command.commands[word]
        flags = {"--help", "--version", *(flag for option in command.params for flag in option.opts)}
        for word in words:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in flags, f"{named(page)}: no {word} in gatepost {' '.join(words)}"


@every_page
def test_flags_exist(page: Path) -> None:
    named_flags = [code.split()[0] for code in inline_code(page) if code.startswith("--")]
    assert set(named_flags) <= every_flag()


@every_page
def test_variables_are_settings(page: Path) -> None:
    known = {settings.PREFIX + name.upper() for name in [*settings.NAMES, "config"]}
    assert set(re.findall(r"\bGATEPOST_[A-Z_]*[A-Z]", page.read_text("utf-8"))) <= known


@every_page
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shell = "\n".join(blocks(page, "sh"))
    assert {code.split()[1] for code in inline_code(page) if code.startswith("make ")} <= targets
    assert set(re.findall(r"^make ([a-z-]+)", shell, re.MULTILINE)) <= targets


@pytest.mark.parametrize(("target", "runs"), [("serve", "gatepost serve --dev"), ("test", "python -m pytest")])
def test_make_does_what_the_readme_says(target: str, runs: str) -> None:
    """Asked without doing it, and as if everything were installed."""
    stamps = [f"--old-file=.venv/{name}.stamp" for name in ("run", "test")]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    told = subprocess.run(
        ["make", "--dry-run", *stamps, target], cwd=ROOT, env=clean, check=True, capture_output=True, text=True
    )
    assert told.stdout.startswith(f".venv/bin/{runs}"), told.stdout
    assert target in first_column(ROOT / "README.md", "command", "what it does")[["serve", "test"].index(target)]


# --- reference tables


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize("page", sorted(REFERENCE.glob("*.md")), ids=named)
def test_generated_parts_are_current(page: Path) -> None:
    text = page.read_text("utf-8")
    assert generator().current(text) == text, "run: .venv/bin/python docs/generate.py"


def test_service_settings() -> None:
    defaults = msgspec.structs.asdict(settings.Settings())
    told = {bare(row[0]): row for row in rows(REFERENCE / "settings.md", "setting", "default", "flag")}
    assert list(told) == list(defaults)
    for name, (_, default, flag, meaning) in told.items():
        text = "" if default == "none" else bare(default)
        assert settings.load({}, {settings.PREFIX + name.upper(): text} if text else {}) == settings.Settings()
        assert bool(text) == (defaults[name] not in ("", [])), name
        assert flag == "–" or bare(flag) in {opt for each in commands.commands["serve"].params for opt in each.opts}
        assert meaning, f"{name}: say what it means"


def test_account_settings() -> None:
    """A default as the table has it is, once parsed, the default of the code; bounds are word for word."""
    told = {bare(row[0]): row for row in rows(REFERENCE / "settings.md", "setting", "default", "bounds")}
    assert list(told) == list(accounts.SETTINGS)
    for name, (_, default, bounds, meaning) in told.items():
        setting = accounts.SETTINGS[name]
        assert bounds == setting.bounds
        assert meaning, f"{name}: say what it means"
        if default == "none":
            assert setting.default is None
        else:
            assert setting.parse(bare(default), False) == setting.default


def test_settings_without_effect_have_none() -> None:
    """Once something reads one of them, the table must say what it does."""
    source = {path: path.read_text("utf-8") for path in (ROOT / "gatepost").rglob("*.py")}
    checked = {"accounts.py", "clients.py", "openapi.py"}
    told = rows(REFERENCE / "settings.md", "setting", "default", "bounds")
    idle = [bare(row[0]) for row in told if row[3].startswith("No effect yet")]
    assert idle
    for name in idle:
        readers = [path.name for path, text in source.items() if f'"{name}"' in text and path.name not in checked]
        assert not readers, f"{name} has an effect in {readers}"


def test_errors() -> None:
    page = REFERENCE / "errors.md"
    told = {bare(row[0]): (int(row[1]), row[2]) for row in rows(page, "code", "status", "meaning")}
    assert told == ERRORS
    assert set(ERRORS) <= anchors(page)
    where = urlsplit(answers.DOCS)
    assert (ROOT / f"{where.path.lstrip('/')}.md").samefile(page)
    assert answers.DOCS.endswith("#")


def test_reserved_errors_are_not_used() -> None:
    [told] = re.findall(
        r"^One code is reserved and not used in this release: (.+)\.$", prose(REFERENCE / "errors.md"), re.MULTILINE
    )
    listing = ("errors.py", "openapi.py")
    source = "".join(path.read_text() for path in (ROOT / "gatepost").rglob("*.py") if path.name not in listing)
    assert {code for code in ERRORS if f'"{code}"' not in source} == set(re.findall(r"`(\w+)`", told))


def test_event_types() -> None:
    told = first_column(REFERENCE / "events.md", "type", "subject")
    assert told == list(entries.TYPES)
    operations = [each for each in vars(definitions).values() if isinstance(each, definitions.Operation)]
    assert len(operations) == 5
    code = inline_code(REFERENCE / "events.md")
    assert {f"{each.noun}.refused" for each in operations} <= set(code)
    assert {prefix for prefix in code if prefix.endswith(".")} == set(entries.RESERVED)


def test_paths() -> None:
    told = rows(REFERENCE / "http.md", "method", "path", "what it is", "the token must hold")
    assert {bare(row[1]): row[0] for row in told} == {path: next(iter(ROUTES[path].methods)) for path in ROUTES}
    operations = [each for each in vars(definitions).values() if isinstance(each, definitions.Operation)]
    needed = {bare(row[3]): "501" in row[2] for row in told if "`" in row[3]}
    assert needed == {each.scope: each.define is None for each in operations}
    assert first_column(REFERENCE / "http.md", "scope", "lets its holder") == list(scopes.OPERATIONS)


def test_operations_plane_paths() -> None:
    text = prose(REFERENCE / "http.md").partition("Operations plane, ")[2].partition("\nThe operations plane")[0]
    told = re.findall(r"^\| GET \| `(.+?)` \|", text, re.MULTILINE)
    assert told == re.findall(r'"(/[a-z./]+)": self', Path(plane.__file__).read_text())


def test_members() -> None:
    page = REFERENCE / "http.md"
    client, scope = _tables(page, "member", "value", "default")
    assert set(client) == {*clients.MEMBERS, "client_id", "grants", "rotate_secret"}
    assert set(scope) == set(scopes.MEMBERS)
    grant = next(each for each in _tables(page, "member", "value") if "grant_type" in each)
    assert tuple(grant) == clients.GRANT_MEMBERS
    text = prose(page)
    assert all(f"`{grant_type}`" in text for grant_type in clients.GRANT_TYPES)
    assert list(GRANTS) == [bare(row[1]) for row in rows(page, "parameter", "value") if bare(row[0]) == "grant_type"]


def _tables(page: Path, *heads: str) -> list[list[str]]:
    """The first columns of all tables with exactly these heads."""
    text = prose(page)
    line = re.escape(f"| {' | '.join(heads)} |\n")
    return [
        [bare(cells(row)[0]) for row in body.strip().splitlines()]
        for body in re.findall(rf"^{line}\|[-| ]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    ]


def test_member_defaults() -> None:
    """Defaults that are a value are those of the code."""
    blank = clients.Client("", "", clock.EPOCH, clock.EPOCH)
    for row in rows(REFERENCE / "http.md", "member", "value", "default"):
        name, default = bare(row[0]), re.fullmatch(r"`([^`]+)`", row[2])
        if default and name in clients.MEMBERS:
            assert json.dumps(getattr(blank, name)).strip('"') == default[1], name


def test_rules() -> None:
    told = first_column(REFERENCE / "http.md", "rule", "refuses with")
    rules = GRANTS["client_credentials"].rules
    assert told == [rule.__name__ for rule in rules]
    example = json_with(REFERENCE / "http.md", "decision")["rules"]
    meant = {rule.__name__: " ".join((rule.__doc__ or "").split()) for rule in rules}
    assert [(each["rule"], each["means"]) for each in example] == list(meant.items())[: len(example)]


def test_metadata() -> None:
    page = REFERENCE / "http.md"
    assert json_with(page, "issuer") == discovery.authorization_server(DEFAULT_URL)
    assert json_with(page, "authorization_servers") == discovery.protected_resource(DEFAULT_URL)


def test_error_examples() -> None:
    for page in PAGES:
        for example in json_blocks(page):
            if "error_uri" in example:
                assert example["error_uri"] == answers.DOCS + example["error"]
            if "code" in example:
                code = example["code"]
                assert (example["status"], example["title"]) == ERRORS[code]
                assert example["type"] == answers.DOCS + code


def test_limits() -> None:
    told = {
        row[0]: [int(number) for number in re.findall(r"\d+", row[1])]
        for row in rows(REFERENCE / "http.md", "limit", "value")
    }
    window = int(authenticate.WINDOW.total_seconds())
    assert told["body"][0] == web_requests.MAX_BODY
    assert told["form parameters"] == [web_requests._MOST_PARAMETERS]
    assert told["JSON nesting"] == [web_requests._DEEPEST]
    assert told["assertion or bearer token"] == [jws.MAX_BYTES]
    assert told["failed authentications of one client and address"] == [authenticate.FAILURES, window]
    assert told["commit"][0] == work.PATIENCE
    longest, hours = told["Idempotency-Key"]
    assert definitions._KEY.fullmatch("k" * longest)
    assert not definitions._KEY.fullmatch("k" * (longest + 1))
    assert hours == 24


def test_key_lives() -> None:
    """Words in the pages that follow from constants."""
    told = {row[0]: row[2] for row in rows(DOCS / "how-to" / "rotate-secrets-and-keys.md", "status", "in the key set")}
    assert told["announced"] == f"at least {keys.ANNOUNCE.total_seconds() / 3600:.0f} hours"
    assert told["active"].startswith(f"{keys.ROTATE.days} days")
    age, longest = keys.JWKS_MAX_AGE.total_seconds() / 60, keys.LONGEST_TOKEN.total_seconds() / 3600
    assert told["retired"].startswith(f"{longest:.0f} hours and {age:.0f} minutes")
    assert f"max-age={age * 60:.0f}" in " ".join(inline_code(DOCS / "how-to" / "verify-tokens.md"))
    assert len(SERVER_KEYS) == 3, "the pages say three"
    assert clients.OVERLAP.total_seconds() == 24 * 3600
    assert clients.MAX_OVERLAP.days == 30


def test_chores() -> None:
    told = {
        row[0]: float(row[1].removesuffix(" s"))
        for row in rows(DOCS / "explanation" / "architecture.md", "chore", "every")
    }
    assert told["seal"] == chores.SEAL_EVERY
    assert told["keep keys"] == chores.KEEP_EVERY
    assert told["prune"] == chores.PRUNE_EVERY
    assert told["checkpoint"] == chores.CHECKPOINT_EVERY
    scheduled = re.findall(r"\(\w+(?:\.\d)?, (\w+)\),", Path(chores.__file__).read_text())
    assert {name.replace("_", " ") for name in scheduled} == set(told)
    assert sqlite.MOST_UNITS == 200
    assert sqlite.LONGEST == 0.010
    assert process.WRITE_USES_EVERY < 60, "last_used_at is exact to the minute"


def test_forwarded_headers_must_agree() -> None:
    """Why the proxy page asks to remove the header that the proxy does not set."""
    both = {"forwarded": "for=198.51.100.1", "x-forwarded-for": "203.0.113.1"}
    for header, value in both.items():
        assert web_requests.source("10.0.0.1", {header: value}, ("10.0.0.0/8",)) == value.removeprefix("for=")
    assert web_requests.source("10.0.0.1", both, ("10.0.0.0/8",)) == "10.0.0.1"
    assert web_requests.source("192.0.2.1", both, ("10.0.0.0/8",)) == "192.0.2.1"


# --- what the pages tell to type


class Reader:
    """Somebody who types what the pages say, in a directory with a service that was just started there."""

    def __init__(self, directory: Path, running: Service) -> None:
        self.directory = directory
        self.service = running
        (directory / ".venv").symlink_to(sys.prefix)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GATEPOST_")}
        ports = {"GATEPOST_PORT": urlsplit(running.url).port, "GATEPOST_OPS_PORT": urlsplit(running.ops).port}
        self.environment = kept | {name: str(port) for name, port in ports.items()}

    def types(self, page: Path, before: str = "", **replaced: str) -> str:
        """Run the shell blocks of a page from top to bottom in one shell, and give back what was printed."""
        typed = [
            text
            for text in blocks(page, "sh")
            if not all(line.startswith("make ") for line in text.split("\n") if line)
        ]
        assert typed
        script = "\n".join([before, *typed]).replace(DEFAULT_URL, self.service.url)
        for old, new in replaced.items():
            assert old in script
            script = script.replace(old, new)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.directory, env=self.environment, check=False, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, f"{named(page)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def prepares(self, name: str, first: Client) -> str:
        """The variables that a how-to page takes from the tutorial, with a client of its own."""
        admin = self.service.token(first, "gatepost:clients gatepost:scopes")
        self.service.post("/oauth/scopes", admin, {"name": "read", "resource": f"https://{name}.example.com"})
        client = self.service.define_client(admin, client_name=name, scope="read")
        token = jwt.decode(self.service.token(client, "read"), options={"verify_signature": False})["jti"]
        values = {"URL": self.service.url, "ADMIN_TOKEN": admin, "CLIENT_ID": client.id, "TOKEN_ID": token}
        return "\n".join(f"{variable}={value}" for variable, value in values.items())


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    directory = tmp_path_factory.mktemp("reader")
    with service.running(directory / "gatepost-data") as running:
        yield Reader(directory, running)


@pytest.fixture(scope="module")
def first(reader: Reader) -> Client:
    found = reader.service.first
    assert found is not None, "the first start prints a client"
    return found


pytestmark = pytest.mark.xdist_group("docs")


def test_readme_is_true(reader: Reader) -> None:
    printed = reader.types(ROOT / "README.md")
    assert "error_uri" not in printed
    assert re.search(r"^verified: cli_\w+ may invoices:read$", printed, re.MULTILINE)
    assert re.search(r"oauth\.token\.issued .* tok_", printed)
    assert re.search(r"^acme: intact: ", printed, re.MULTILINE)


def test_tutorial_is_true(reader: Reader, first: Client) -> None:
    page = DOCS / "tutorial" / "first-token.md"
    printed = reader.types(page, **{"cli_…": first.id, "gps_…": first.secret})
    [refused] = json_blocks(page)
    assert json.dumps(refused, indent=4) in printed
    assert printed.count("error_uri") == 2, "only the two refusals that the tutorial shows"
    assert re.search(r"^gatepost-event: evt_", printed, re.MULTILINE | re.IGNORECASE)
    assert '"rule": "scopes_are_granted",\n            "held": false' in printed
    claims = json.loads("{" + re.findall(r'^\{\n(  "iss".*?)^\}$', printed, re.MULTILINE | re.DOTALL)[0] + "}")
    assert claims["exp"] - claims["iat"] == 300
    assert f"evt_{claims['jti'].removeprefix('tok_')}" in printed
    assert re.search(r"^default: intact: ", printed, re.MULTILINE)


def test_the_first_start_says_what_the_pages_say(reader: Reader) -> None:
    """The lines shown are those printed, but for ids and secrets."""
    from gatepost.app import welcome
    from gatepost.secrets import Secret
    from gatepost.units.accounts import Created

    account = accounts.Account("acc_…", accounts.FIRST, clock.EPOCH)
    said = welcome(Created(account, "cli_…", Secret("gps_…"))) + f"ready {DEFAULT_URL}\n"
    assert said in blocks(ROOT / "README.md", "text")
    assert said in blocks(DOCS / "tutorial" / "first-token.md", "text")


def test_rotating_is_true(reader: Reader, first: Client) -> None:
    page = DOCS / "how-to" / "rotate-secrets-and-keys.md"
    printed = reader.types(page, reader.prepares("rotating", first))
    assert "error_uri" not in printed
    assert printed.count("gps_") == 2, "one by HTTP and one by the command"
    assert "laptop stolen" in printed
    assert "3 server keys rewrapped." in printed


def test_reading_the_ledger_is_true(reader: Reader, first: Client) -> None:
    printed = reader.types(DOCS / "how-to" / "read-the-ledger.md", reader.prepares("reading", first))
    *_, last = (reader.directory / "ledger.jsonl").read_text().splitlines()
    assert json.loads(last)["head"]["text"] in printed or last in printed
    assert printed.count(": intact: ") >= 3
    assert "2555d" in printed or str(2555 * 86400) in printed


def test_running_behind_a_proxy_is_true(reader: Reader) -> None:
    assert "is for this machine only" in reader.types(DOCS / "how-to" / "run-behind-a-proxy.md")


def test_metrics_are_as_told(reader: Reader) -> None:
    served = requests.get(f"{reader.service.ops}/metrics", timeout=10).text
    told = first_column(REFERENCE / "http.md", "metric", "counts")
    found = set(re.findall(r"^# TYPE (gatepost_\w+)", served, re.MULTILINE))
    assert {name for name in found if not name.endswith("_created")} == set(told)
    elsewhere = requests.get(f"{reader.service.ops}/metrics", headers={"Host": "gatepost.example"}, timeout=10)
    assert elsewhere.status_code == ERRORS["misdirected_request"].status


def test_settings_page_is_true(reader: Reader) -> None:
    assert "access_token_lifetime" in reader.types(REFERENCE / "settings.md")


def test_postgresql_is_true(reader: Reader, postgres_server: postgres.Server, tmp_path: Path) -> None:
    page = DOCS / "how-to" / "use-postgresql.md"
    [prepared] = blocks(page, "sql")
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        for statement in re.sub(r"\bgatepost\b", "documented", prepared).strip().split("\n"):
            connection.execute(statement.encode())
    [url] = re.findall(r"postgresql://\S+", "\n".join(blocks(page, "sh")))
    assert urlsplit(url).scheme == "postgresql"
    real = postgres_server.url("documented").replace(f"{postgres.OWNER}@", "documented@")
    printed = reader.types(page, f"export GATEPOST_DATA={tmp_path}", **{url: f"'{real}'"})
    assert "applied foundation" in printed
    assert "client_secret  gps_" in printed
    assert "ledger of gatepost: intact" in printed
    assert not list(tmp_path.iterdir()), "nothing beside the database"
    postgres_server.drop_database("documented")


def test_python_verifies_as_told(reader: Reader) -> None:
    [snippet] = blocks(DOCS / "how-to" / "verify-tokens.md", "python")
    known: dict[str, Any] = {}
    exec(compile(snippet.replace(DEFAULT_URL, reader.service.url), "verify-tokens.md", "exec"), known)
    token, other = tokens_to_verify(reader.service, "verify-python")
    known["AUDIENCE"] = "https://verify-python.example.com"
    claims = known["verify"](token, "read")
    assert claims["scope"] == "read write"
    assert claims["client_id"] == claims["sub"]
    for wrong, scope in ((token, "delete"), (other, "read"), (token[:-8] + "AAAAAAAA", "read")):
        with pytest.raises(jwt.PyJWTError):
            known["verify"](wrong, scope)


def test_node_verifies_as_told(reader: Reader, tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("Node is not on this machine; the service does not need it")
    command = ["npm", "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", JOSE]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    [snippet] = blocks(DOCS / "how-to" / "verify-tokens.md", "js")
    audience = "https://verify-node.example.com"
    told = snippet.replace(DEFAULT_URL, reader.service.url).replace("https://api.example.com", audience)
    each = "console.log(await verify(token, scope).then((it) => it.scope, () => 'refused'));"
    tell = f"for (const [token, scope] of JSON.parse(process.argv[2])) {each}\n"
    (tmp_path / "verify.mjs").write_text(told + tell)
    token, other = tokens_to_verify(reader.service, "verify-node")
    tried = [(token, "read"), (token, "delete"), (other, "read"), (token[:-8] + "AAAAAAAA", "read")]
    done = subprocess.run(
        ["node", "verify.mjs", json.dumps(tried)], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == ["read write", "refused", "refused", "refused"]


def tokens_to_verify(running: Service, name: str) -> tuple[str, str]:
    """A token for the API of that name, and one for another API."""
    _, admin = running.account(name)
    token = running.token(admin, "gatepost:clients gatepost:scopes")
    for scope, host in (("read", name), ("write", name), ("elsewhere", f"not-{name}")):
        running.post("/oauth/scopes", token, {"name": scope, "resource": f"https://{host}.example.com"})
    client = running.define_client(token, scope="read write elsewhere")
    return running.token(client, "read write"), running.token(client, "elsewhere")


# --- what the pages show


class Seen(NamedTuple):
    """What a service answered and recorded when everything that has an entry was done once."""

    client: dict[str, Any]
    scope: dict[str, Any]
    token: dict[str, Any]
    explained: dict[str, Any]
    entries: list[dict[str, Any]]
    refused: Mapping[str, str]


@pytest.fixture(scope="module")
def seen(reader: Reader) -> Seen:
    running = reader.service
    _, first = running.account("seen", "access_token_lifetime=600")
    running.cli("account", "set", "seen", "access_token_lifetime=900")
    running.cli("account", "suspend", "seen", "--reason", "unpaid")
    running.cli("account", "resume", "seen")
    admin = running.token(first, "gatepost:clients gatepost:scopes")
    scope = running.post("/oauth/scopes", admin, {"name": "read", "resource": "https://seen.example.com"}).json()
    running.post("/oauth/scopes", admin, {"name": "old"})
    assert running.post("/oauth/scopes", admin, {"name": "old", "status": "retired", "redefine": True}).ok
    assert running.post("/oauth/scopes", admin, {"name": "old", "status": "active"}).status_code == 409
    machine = {"client_name": "Billing", "grant_types": ["client_credentials"], "scope": "read"}
    client = running.post("/oauth/clients", admin, machine).json()
    assert running.post("/oauth/clients", admin, machine | {"scope": "unknown"}).status_code == 400
    shown = Client(client["client_id"], client["client_secret"])
    token = running.token_answer(shown, "read").json()
    assert running.token_answer(shown, "write").status_code == 400
    explained = running.token_answer(shown, "read", {"Prefer": "explain"}).json()
    assert running.post("/oauth/clients", admin, {"client_id": shown.id, "status": "disabled"}).ok
    refused = {path: str(without_scope(running, path, admin)) for path in ROUTES if path.startswith("/webhooks/")}
    running.cli("key", "rotate", "--alg", "EdDSA", "--now")
    active = next(
        key["id"] for key in running.cli_json("key", "list") if (key["alg"], key["status"]) == ("EdDSA", "active")
    )
    running.cli("key", "revoke", active, "--reason", "compromised", "--yes")
    found = [
        *running.cli_json("audit", "list", "--account", "seen", "--limit", "1000"),
        *running.cli_json("audit", "list", "--account", accounts.OPERATOR, "--limit", "1000"),
    ]
    return Seen(client, scope, token, explained, found, refused)


def without_scope(running: Service, path: str, token: str) -> str | None:
    """The entry that records a call without the operation's scope."""
    method = next(iter(ROUTES[path].methods))
    answer = requests.request(
        method, running.url + path, headers={"Authorization": f"Bearer {token}"}, json={}, timeout=10
    )
    assert answer.status_code == 403
    return answer.headers.get("Gatepost-Event")


SUBJECTS = {"account": "acc_", "client": "cli_", "caller": "cli_", "token": "tok_", "key": "key_", "scope's": ""}


def test_entries_are_as_shown(seen: Seen) -> None:
    page = REFERENCE / "events.md"
    assert {each["type"] for each in seen.entries} >= set(entries.TYPES)
    for kind, subject, example in [
        (bare(row[0]), row[1], json.loads(bare(row[2]))) for row in rows(page, "type", "subject")
    ]:
        recorded = [each for each in seen.entries if each["type"] == kind]
        assert set(example) in [set(each["data"]) for each in recorded], f"{kind}: {recorded}"
        prefix = SUBJECTS[subject.split()[1].rstrip(",")]
        assert all(each["subject"].startswith(prefix) for each in recorded), kind
    whole = json_with(page, "matched")
    assert list(whole) == list(seen.entries[0]) == first_column(page, "member", "value")
    assert next(list(each["data"]) for each in seen.entries if each["type"] == whole["type"]) == list(whole["data"])


def test_webhook_refusals_are_recorded_as_told(seen: Seen) -> None:
    recorded = {each["id"]: each for each in seen.entries}
    types = {recorded[event]["type"] for event in seen.refused.values()}
    told = {
        code
        for code in inline_code(REFERENCE / "events.md")
        if code.startswith("webhook.") and code.endswith(".refused")
    }
    assert types == told


def test_webhook_operations_are_not_built(reader: Reader) -> None:
    _, client = reader.service.account("not-built")
    operations = [each for each in vars(definitions).values() if isinstance(each, definitions.Operation)]
    token = reader.service.token(client, " ".join(each.scope for each in operations))
    for path in ROUTES:
        if path.startswith("/webhooks/"):
            method = next(iter(ROUTES[path].methods))
            answer = requests.request(
                method, reader.service.url + path, headers={"Authorization": f"Bearer {token}"}, json={}, timeout=10
            )
            assert answer.status_code == 501
            assert answer.json() == json_with(REFERENCE / "http.md", "code")
            assert answer.headers["Gatepost-Event"].startswith("evt_")


def test_answers_are_as_shown(seen: Seen) -> None:
    page = REFERENCE / "http.md"
    assert list(seen.client) == list(json_with(page, "client_id_issued_at"))
    assert list(seen.scope) == list(json_with(page, "max_lifetime"))
    assert list(seen.token) == list(json_with(page, "access_token"))
    issued = {"decision", "rules", "grant", "scope", "expires_in", "header", "claims"}
    assert set(seen.explained) == issued
    assert [rule["rule"] for rule in seen.explained["rules"]] == first_column(page, "rule", "refuses with")
    claims = jwt.decode(seen.token["access_token"], options={"verify_signature": False})
    assert list(claims) == first_column(page, "claim", "value")
    header = jwt.get_unverified_header(seen.token["access_token"])
    assert set(header) == {"alg", "typ", "kid"}
    assert header["typ"] == "at+jwt"
