"""The tables of the reference pages agree with the code."""

import inspect
import json
import re
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from gatepost import accounts, settings
from gatepost.cli.main import all_commands
from gatepost.core import clock, jwk_sets, secret_rotation
from gatepost.core.errors import ERRORS
from gatepost.core.secrets import SERVER_KEYS
from gatepost.ingest import http
from gatepost.ledger import entries, idempotency, operations, search
from gatepost.oauth import client_grants, clients, discovery, scopes, signing_keys
from gatepost.oauth.authorize import flow as authorize_units
from gatepost.oauth.authorize import request
from gatepost.oauth.grants import GRANTS
from gatepost.run import chores, operations_process, web_process
from gatepost.store import sqlite
from gatepost.web import authorize as web_authorize
from gatepost.web import body, definitions, responses
from gatepost.web import deliveries as web_deliveries
from gatepost.web import requests as web_requests
from gatepost.web.app import ROUTES
from gatepost.web.ops import operator, operator_views, pages, plane
from gatepost.webhooks import deliveries, endpoints
from gatepost.webhooks import listing_query as listing
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
    prose,
    rows,
    script,
    section,
    tables,
)

HTTP, EVENTS = (REFERENCE / f"{name}.md" for name in ("http", "events"))


GENERATE, LIMITS = script("generate"), REFERENCE / "limits.md"


@pytest.mark.parametrize("page", GENERATE.pages(), ids=named)
def test_generated_parts_are_current(page: Path) -> None:
    text = page.read_text("utf-8")
    assert GENERATE.current(text) == text, "run: make docs"


@pytest.mark.parametrize("name", GENERATE.diagrams.PICTURES)
def test_diagrams_are_current(name: str) -> None:
    drawn = GENERATE.diagrams.PICTURES[name]()
    assert (DOCS / "images" / f"{name}.svg").read_text("utf-8") == drawn, "run: make docs"
    ET.fromstring(drawn)


def test_every_generated_part_is_used() -> None:
    used = {part for page in GENERATE.pages() for part in re.findall(r"<!-- generated: (.+?) -->", page.read_text())}
    assert used == set(GENERATE.PARTS)


def test_diagrams_show_their_tables() -> None:
    states = (DOCS / "images" / "delivery-states.svg").read_text("utf-8")
    arrows = {tuple(each.split("-")) for each in re.findall(r'data-arrow="(.+?)"', states)}
    assert arrows == {
        (state, to) for state, others in deliveries.TRANSITIONS.items() if state != "held" for to in others
    }
    checks = (DOCS / "images" / "authorize.svg").read_text("utf-8")
    assert re.findall(r">\d+\. (\w+)<", checks) == [check.__name__ for check in request.CHECKS]


def test_the_picture_shows_the_current_demo() -> None:
    """docs/picture.py writes it. It shows the steps of the program and loads nothing."""
    picture = (DOCS / "images" / "demo.svg").read_text("utf-8")
    shown = re.sub(r"<[^>]+>", "", picture).replace("&#160;", " ").replace("&#x27;", "'")
    program = (ROOT / "examples" / "demo.py").read_text("utf-8")
    steps = re.findall(r"\[bold\](\d)\.\[/\] ([A-Z][a-z ]+)", program) + re.findall(
        r'"(\d)\. ([A-Z][^"]+)", "', program
    )
    assert len(steps) == 6
    assert not [words for _, words in steps if words not in shown]
    assert not re.search(r"@font-face|<image|url\(http", picture)


def test_service_settings() -> None:
    defaults = msgspec.structs.asdict(settings.Settings())
    result = {bare(row[0]): row for row in rows(REFERENCE / "settings.md", "setting", "default", "flag")}
    assert list(result) == list(defaults)
    for name, (_, default, flag, meaning) in result.items():
        text = "" if default == "none" else bare(default)
        assert settings.load({}, {settings.PREFIX + name.upper(): text} if text else {}) == settings.Settings()
        assert bool(text) == (defaults[name] not in ("", [], {})), name
        assert flag == "–" or bare(flag) in {
            opt for each in all_commands().commands["serve"].params for opt in each.opts
        }
        assert meaning, f"{name}: say what it means"


def test_account_settings() -> None:
    """The default in the table parses to the default in the code, and the bounds are the same text."""
    result = {bare(row[0]): row for row in rows(REFERENCE / "settings.md", "setting", "default", "bounds")}
    assert list(result) == list(accounts.SETTINGS)
    for name, (_, default, bounds, meaning) in result.items():
        setting = accounts.SETTINGS[name]
        assert bounds == setting.bounds
        assert meaning, f"{name}: say what it means"
        if default == "none":
            assert setting.default is None
        else:
            assert setting.parse(bare(default), False) == setting.default


def test_every_setting_and_member_has_an_effect() -> None:
    """The code reads each of them, and no page says otherwise."""
    where_defined = {"accounts.py", "clients.py", "entries.py", "scopes.py"}
    source = "".join(path.read_text("utf-8") for path in code_files() if path.name not in where_defined)
    for name in accounts.SETTINGS:
        if name != "profile":  # read as Account.strict
            assert f'"{name}"' in source, f"{name} has no effect"
    assert ".strict" in source
    assert not [named(page) for page in PAGES if "no effect yet" in prose(page).lower()]


def code_files() -> list[Path]:
    """Return the source files without the OpenAPI descriptions."""
    described = ROOT / "gatepost" / "web" / "openapi"
    return [path for path in (ROOT / "gatepost").rglob("*.py") if described not in path.parents]


def test_errors() -> None:
    page = REFERENCE / "errors.md"
    result = {bare(row[0]): (int(row[1]), row[2]) for row in rows(page, "code", "status", "meaning")}
    assert result == ERRORS
    assert set(ERRORS) <= anchors(page)
    path, _, fragment = responses.ERRORS_PAGE.partition("#")
    assert (path.removesuffix(".html"), fragment) == (f"/{page.relative_to(DOCS).with_suffix('').as_posix()}", "")


def test_every_error_is_used() -> None:
    source = "".join(path.read_text() for path in code_files() if path.name != "errors.py")
    assert not {code for code in ERRORS if f'"{code}"' not in source}


def test_event_types() -> None:
    result = rows(EVENTS, "type", "about", "written when")
    assert [bare(row[0]) for row in result] == list(entries.TYPES)
    assert all(row[1] and row[2] for row in result), "say what it is about, and when it is written"
    assert set(entries.TYPES) <= anchors(EVENTS)
    examples = {bare(row[0]): json.loads(bare(row[1])) for row in rows(EVENTS, "type", "example of `data`")}
    assert examples == entries.TYPES
    defining = [each for each in vars(definitions).values() if isinstance(each, definitions.Operation)]
    assert len(defining) == 4
    code = inline_code(EVENTS)
    assert {f"{each.noun}.refused" for each in defining} <= set(code)
    assert {prefix for prefix in code if prefix.endswith(".")} == set(entries.RESERVED)


def test_paths() -> None:
    six = rows(HTTP, "method", "path", "what it is", "required scope")
    rest = rows(HTTP, "method", "path", "what it is", "who may call it")
    result = {bare(row[1]): row[0].split(", ") for row in [*six, *rest]}
    assert result == {path: list(route.methods) for path, route in ROUTES.items()}
    assert [bare(row[1]) for row in six] == [path for path, route in ROUTES.items() if route.kind == "operation"]
    assert [bare(row[1]) for row in rest[-3:]] == [path for path, route in ROUTES.items() if route.kind == "metadata"]
    defining = [each for each in vars(definitions).values() if isinstance(each, definitions.Operation)]
    needed = {bare(row[3]) for row in six if "`" in row[3]}
    assert needed == {*(each.scope for each in defining), web_deliveries.SCOPE}
    assert needed | {http.SCOPE} == set(operations.OPERATIONS)
    assert first_column(HTTP, "scope", "permits the holder to") == list(operations.OPERATIONS)
    assert first_column(ROOT / "README.md", "operation", "for") == [f"{row[0]} {bare(row[1])}" for row in six]


def test_operations_plane_paths() -> None:
    result = {bare(row[1]): row[0] for row in rows(HTTP, "method", "path", "purpose")}
    source = Path(plane.__file__).read_text()
    served = dict.fromkeys(re.findall(r'"(/[a-z./]+)": (?:self|_TO_CONSOLE|console)', source), "GET")
    taken = re.findall(r'"(/[a-z./]+)": intake', Path(operations_process.__file__).read_text())
    assert taken
    assert result == served | dict.fromkeys(taken, "POST") | {pages.OPERATOR: "GET"}
    assert http.SCOPE in section(HTTP, "Paths")


def test_the_paths_of_the_operators_view() -> None:
    page = HOW_TO / "use-the-operator-view.md"
    listed = {
        path: tuple(re.findall(r"`(\w+)`", row[2]))
        for row in rows(page, "path", "shows", "parameters")
        for path in re.findall(r"`(/[a-z/]+)`", row[0])
    }
    assert listed == {path: (*view.required, *view.accepted) for path, view in operator.VIEWS.items()}
    text = page.read_text("utf-8")
    assert f"{operator_views.DEFAULT_LIMIT} by default and {operator_views.MAX_LIMIT} at most" in text
    assert f"examines at most {search.MAX_EXAMINED} entries" in text
    assert f"searched {operator_views.ACCOUNTS_SEARCHED} at a time" in text


def test_members() -> None:
    page = HTTP
    shown = tables(page, "member", "value", "default", "meaning")
    assert shown == [list(each.request) for each in (clients.MEMBERS, client_grants.GRANT_MEMBERS, scopes.MEMBERS)]
    text = prose(page)
    assert all(f"`{grant_type}`" in text for grant_type in client_grants.GRANT_TYPES)


def test_grant_types() -> None:
    result = {bare(row[0]): row for row in rows(HTTP, "grant_type", "takes", "for")}
    assert list(result) == list(GRANTS)
    for name, way in GRANTS.items():
        assert set(way.parameters) <= set(re.findall(r"`(\w+)`", " ".join(result[name]))), name
    common = {"grant_type", "scope", "resource", "client_id", "client_secret", "client_assertion"}
    assert set(first_column(HTTP, "parameter", "value")) == {*common, "client_assertion_type"}


def test_authorization_parameters() -> None:
    lines = [line for line in section(HTTP, "Authorization").splitlines() if line.startswith("| `")]
    table = lines[: next(place for place, line in enumerate(lines) if line.startswith("| `request`, ")) + 1]
    result = {name for line in table for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    source = inspect.getsource(request) + inspect.getsource(authorize_units)
    read = set(re.findall(r'(?:request|parameters)\.get\("(\w+)"', source)) | set(request.MAX_LENGTHS) | {"resource"}
    assert result == read | {"display", "request_uri", "handoff"}


def test_the_cookie() -> None:
    result = rows(HTTP, "base URL", "cookie")
    names = [web_authorize.cookie_name(each) for each in ("https://auth.example.com", DEFAULT_URL)]
    assert [bare(row[1]) for row in result] == names
    source = inspect.getsource(web_authorize)
    for row in result:
        [kind] = re.findall(r"`Path=/; HttpOnly; (.+?)`", row[1])
        assert f'"{kind}"' in source


def test_rules() -> None:
    result = first_column(HTTP, "rule", "condition")
    rules = GRANTS["client_credentials"].rules
    names = [rule.__name__ for rule in rules]
    assert [name for name in result if name in names] == names
    example = json_with(HTTP, "decision")["rules"]
    meant = {rule.__name__: " ".join((rule.__doc__ or "").split()) for rule in rules}
    assert [(each["rule"], each["means"]) for each in example] == list(meant.items())[: len(example)]


def test_metadata() -> None:
    openid, other = discovery.openid_configuration(DEFAULT_URL), discovery.authorization_server(DEFAULT_URL)
    assert json_with(HTTP, "token_endpoint") == openid
    assert json_with(HTTP, "authorization_servers") == discovery.protected_resource(DEFAULT_URL)
    [output] = re.findall(r"OpenID Connect's own: (.+?)\. ", section(HTTP, "Discovery"))
    assert sorted(re.findall(r"`(\w+)`", output)) == sorted(name for name in openid if name not in other)


def test_error_examples() -> None:
    for page in PAGES:
        for example in json_blocks(page):
            assert "error_uri" not in example, "it depends on a setting"
            if "code" in example:
                code = example["code"]
                assert (example["status"], example["title"]) == ERRORS[code]
                assert example["type"] == f"urn:gatepost:error:{code}"


def limit(words: str) -> list[int]:
    """Return the numbers of the limit whose row begins with these words."""
    lines = [line for line in prose(LIMITS).splitlines() if line.startswith(f"| {words}")]
    assert len(lines) == 1, words
    return [int(number) for number in re.findall(r"\d+", lines[0].split("|")[2])]


def test_limits() -> None:
    """Most limits are generated from constants. Those that are literals in the code are tested here."""
    longest, hours = limit("`Idempotency-Key`")
    assert definitions._KEY.fullmatch("k" * longest)
    assert not definitions._KEY.fullmatch("k" * (longest + 1))
    assert timedelta(hours=hours) == idempotency.KEPT
    assert limit("body of a request") == [body.MAX_BODY // 1024]
    assert limit("body of `POST /events`") == [http.MAX_BODY // 1024, http.MAX_BATCH]
    assert limit("records that a page examines") == [listing.MAX_EXAMINED]
    key = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    [most_keys] = limit("keys in a client's `jwks`")
    sets = [{"keys": [key | {"kid": str(number)} for number in range(count)]} for count in (most_keys, most_keys + 1)]
    assert [bool(jwk_sets.jwks_problem(each)) for each in sets] == [False, True]
    usual, most = limit("one attempt, from start to the last byte")
    assert endpoints.Endpoint("", "", "", clock.EPOCH, clock.EPOCH).timeout == usual
    assert [bool(endpoints.MEMBERS.problem("timeout", value)) for value in (most, most + 1)] == [False, True]


def test_key_lifetimes() -> None:
    """Numbers in the text that depend on constants."""
    result = {row[0]: row[2] for row in rows(HOW_TO / "rotate-secrets-and-keys.md", "status", "in the key set")}
    assert result["announced"] == f"at least {signing_keys.ANNOUNCE.total_seconds() / 3600:.0f} hours"
    assert result["active"].startswith(f"{signing_keys.ROTATE.days} days")
    age, longest = signing_keys.JWKS_MAX_AGE.total_seconds() / 60, signing_keys.LONGEST_TOKEN.total_seconds() / 3600
    assert result["retired"].startswith(f"{longest:.0f} hours and {age:.0f} minutes")
    assert f"max-age={age * 60:.0f}" in " ".join(inline_code(HOW_TO / "verify-tokens.md"))
    assert len(SERVER_KEYS) == 3, "the pages say three"
    assert secret_rotation.OVERLAP.total_seconds() == 24 * 3600
    assert clients.MAX_OVERLAP.days == 30


def test_chores() -> None:
    page = DOCS / "explanation" / "architecture.md"
    result = {bare(row[0]): row for row in rows(page, "chore", "every", "does")}
    assert result["seal"][1] == f"{chores.SEAL_EVERY} s"
    assert all(row[2] for row in result.values()), "say what a chore does"
    assert all(row[1] for row in rows(page, "in `gatepost/`", "contents")), "describe each folder and file"
    assert sqlite.MOST_UNITS == 200
    assert sqlite.LONGEST == 0.010
    assert web_process.WRITE_USES_EVERY < 60, "last_used_at is exact to the minute"


def test_forwarded_headers_must_agree() -> None:
    """The reason why the proxy guide asks to remove the header that the proxy does not set."""
    both = {"forwarded": "for=198.51.100.1", "x-forwarded-for": "203.0.113.1"}
    for header, value in both.items():
        assert web_requests.source("10.0.0.1", {header: value}, ("10.0.0.0/8",)) == value.removeprefix("for=")
    assert web_requests.source("10.0.0.1", both, ("10.0.0.0/8",)) == "10.0.0.1"
    assert web_requests.source("192.0.2.1", both, ("10.0.0.0/8",)) == "192.0.2.1"
