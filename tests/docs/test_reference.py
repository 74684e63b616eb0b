"""The reference is true: what its tables list is what the code has."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from gatepost import (
    accounts,
    chores,
    clients,
    clock,
    discovery,
    keys,
    scopes,
    settings,
    strict,
)
from gatepost.cli.main import commands
from gatepost.errors import ERRORS
from gatepost.grants import GRANTS
from gatepost.ledger import entries
from gatepost.ops import intake, plane
from gatepost.secrets import SERVER_KEYS
from gatepost.store import listing, sqlite, work
from gatepost.tokens import jws
from gatepost.units import authenticate
from gatepost.web import answers, definitions, deliveries, process
from gatepost.web import requests as web_requests
from gatepost.web.app import ROUTES
from tests.docs.pages import (
    DEFAULT_URL,
    DOCS,
    HOW_TO,
    PAGES,
    REFERENCE,
    ROOT,
    anchors,
    bare,
    first_column,
    inline_code,
    json_blocks,
    json_with,
    named,
    numbers,
    prose,
    rows,
    tables,
)

HTTP, EVENTS = (REFERENCE / f"{name}.md" for name in ("http", "events"))


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
    checked = {"accounts.py", "clients.py"}
    source = {path: path.read_text("utf-8") for path in code_files()}
    told = rows(REFERENCE / "settings.md", "setting", "default", "bounds")
    idle = [bare(row[0]) for row in told if row[3].startswith("No effect yet")]
    assert idle
    for name in idle:
        readers = [path.name for path, text in source.items() if f'"{name}"' in text and path.name not in checked]
        assert not readers, f"{name} has an effect in {readers}"


def code_files() -> list[Path]:
    """Without those that only describe the others."""
    described = ROOT / "gatepost" / "openapi"
    return [path for path in (ROOT / "gatepost").rglob("*.py") if described not in path.parents]


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
    source = "".join(path.read_text() for path in code_files() if path.name != "errors.py")
    assert {code for code in ERRORS if f'"{code}"' not in source} == set(re.findall(r"`(\w+)`", told))


def test_event_types() -> None:
    told = first_column(EVENTS, "type", "subject")
    assert told == list(entries.TYPES)
    operations = [each for each in vars(definitions).values() if isinstance(each, definitions.Operation)]
    assert len(operations) == 4
    code = inline_code(EVENTS)
    assert {f"{each.noun}.refused" for each in operations} <= set(code)
    assert {"webhook.delivery.refused", "webhook.event.refused"} <= set(code)
    assert {prefix for prefix in code if prefix.endswith(".")} == set(entries.RESERVED)


def test_paths() -> None:
    told = rows(HTTP, "method", "path", "what it is", "the token must hold")
    assert {bare(row[1]): row[0] for row in told} == {path: next(iter(ROUTES[path].methods)) for path in ROUTES}
    operations = [each for each in vars(definitions).values() if isinstance(each, definitions.Operation)]
    needed = {bare(row[3]) for row in told if "`" in row[3]}
    assert needed == {*(each.scope for each in operations), deliveries.SCOPE}
    assert needed | {intake.SCOPE} == set(scopes.OPERATIONS)
    assert first_column(HTTP, "scope", "lets its holder") == list(scopes.OPERATIONS)
    six = first_column(ROOT / "README.md", "operation", "for")
    assert six == [
        f"{method} {path}" for path, route in ROUTES.items() if route.surface == "six" for method in route.methods
    ]


def test_operations_plane_paths() -> None:
    text = prose(HTTP).partition("Operations plane, ")[2].partition("\nThe operations plane")[0]
    told = re.findall(r"^\| GET \| `(.+?)` \|", text, re.MULTILINE)
    source = Path(plane.__file__).read_text()
    assert told == re.findall(r'"(/[a-z./]+)": self', source)
    assert re.findall(r"^\| POST \| `(.+?)` \|", text, re.MULTILINE) == re.findall(r'"(/[a-z./]+)": intake', source)
    assert intake.SCOPE in text


def test_members() -> None:
    page = HTTP
    client, scope = tables(page, "member", "value", "default")
    assert set(client) == {*clients.MEMBERS, "client_id", "grants", "rotate_secret"}
    assert set(scope) == set(scopes.MEMBERS)
    grant = next(each for each in tables(page, "member", "value") if "grant_type" in each)
    assert tuple(grant) == clients.GRANT_MEMBERS
    text = prose(page)
    assert all(f"`{grant_type}`" in text for grant_type in clients.GRANT_TYPES)
    assert list(GRANTS) == [bare(row[1]) for row in rows(page, "parameter", "value") if bare(row[0]) == "grant_type"]


def test_member_defaults() -> None:
    """Defaults that are a value are those of the code."""
    blank = clients.Client("", "", clock.EPOCH, clock.EPOCH)
    for row in rows(HTTP, "member", "value", "default"):
        name, default = bare(row[0]), re.fullmatch(r"`([^`]+)`", row[2])
        if default and name in clients.MEMBERS:
            assert json.dumps(getattr(blank, name)).strip('"') == default[1], name


def test_rules() -> None:
    told = first_column(HTTP, "rule", "refuses with")
    rules = GRANTS["client_credentials"].rules
    assert told == [rule.__name__ for rule in rules]
    example = json_with(HTTP, "decision")["rules"]
    meant = {rule.__name__: " ".join((rule.__doc__ or "").split()) for rule in rules}
    assert [(each["rule"], each["means"]) for each in example] == list(meant.items())[: len(example)]


def test_metadata() -> None:
    page = HTTP
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
    told = numbers(HTTP, "limit", "value")
    window = int(authenticate.WINDOW.total_seconds())
    assert told["body"][0] == web_requests.MAX_BODY
    assert told["form parameters"] == [web_requests._MOST_PARAMETERS]
    assert told["JSON nesting"] == [strict._DEEPEST]
    assert told["assertion or bearer token"] == [jws.MAX_BYTES]
    assert told["failed authentications of one client and address"] == [authenticate.FAILURES, window]
    assert told["commit"][0] == work.PATIENCE
    longest, hours = told["Idempotency-Key"]
    assert definitions._KEY.fullmatch("k" * longest)
    assert not definitions._KEY.fullmatch("k" * (longest + 1))
    assert hours == 24
    assert told["body of `/events`"][:2] == [intake.MAX_BODY, intake.MOST]
    assert told["records that a page of deliveries examines"] == [listing.EXAMINED]


def test_key_lives() -> None:
    """Words in the pages that follow from constants."""
    told = {row[0]: row[2] for row in rows(HOW_TO / "rotate-secrets-and-keys.md", "status", "in the key set")}
    assert told["announced"] == f"at least {keys.ANNOUNCE.total_seconds() / 3600:.0f} hours"
    assert told["active"].startswith(f"{keys.ROTATE.days} days")
    age, longest = keys.JWKS_MAX_AGE.total_seconds() / 60, keys.LONGEST_TOKEN.total_seconds() / 3600
    assert told["retired"].startswith(f"{longest:.0f} hours and {age:.0f} minutes")
    assert f"max-age={age * 60:.0f}" in " ".join(inline_code(HOW_TO / "verify-tokens.md"))
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
    assert told["roll up"] == chores.ROLL_UP_EVERY
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
