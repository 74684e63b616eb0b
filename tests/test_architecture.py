"""The shape of the code: imports go one way, clocks and dice are arguments, the surface is the contract's."""

import ast
import asyncio
import json
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest

from gatepost.ledger import entries
from gatepost.store import sql_loader
from gatepost.web.app import ROUTES, Application
from gatepost.web.context import Context
from gatepost.web.ops import operator

PACKAGE = Path(__file__).parents[1] / "gatepost"

# The folders from the lowest to the highest: none imports a folder of its own line or of a later one.
FOLDERS = [
    ("core",),
    ("verify",),
    ("store",),
    ("accounts",),
    ("egress",),
    ("ledger",),
    ("oauth", "webhooks"),
    ("archive",),
    ("settings",),
    ("web",),
    ("ingest",),
    ("run",),
    ("cli",),
    ("__main__",),
]

# The contract's table of the kinds of routes: a route that is not here is not served.
SIX = {
    "/oauth/clients": "POST",
    "/oauth/scopes": "POST",
    "/oauth/tokens": "POST",
    "/webhooks/endpoints": "POST",
    "/webhooks/subscriptions": "POST",
    "/webhooks/deliveries": "GET",
}
ALWAYS = {
    "/oauth/jwks",
    "/.well-known/oauth-authorization-server",
    "/.well-known/oauth-protected-resource",
}
STANDARD = {
    "/.well-known/openid-configuration",
    "/oauth/authorize",
    "/oauth/par",
    "/oauth/userinfo",
    "/oauth/introspect",
    "/oauth/revoke",
}
OPERATIONS_PLANE = {
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
    "/checkpoints",
    "/",
    "/console",
    "/console/",
    "/events",
}
# Only with the setting operator_console.
OPERATOR = {
    "/operator",
    "/operator/",
    "/operator/overview",
    "/operator/accounts",
    "/operator/account",
    "/operator/clients",
    "/operator/scopes",
    "/operator/tokens",
    "/operator/entries",
    "/operator/entry",
}


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def floor(folder: str) -> int:
    found = [number for number, folders in enumerate(FOLDERS) if folder in folders]
    assert found, f"{folder} is not in FOLDERS: say where it belongs"
    return found[0]


@cache
def imported(path: Path) -> set[str]:
    """Modules of ours that a file imports, at any depth of the file."""
    found: set[str] = set()
    known = modules()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "gatepost":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "gatepost"]
        for name in names:
            module = name.removeprefix("gatepost").removeprefix(".")
            while module and module not in known:
                module = module.rpartition(".")[0]
            if module:
                found.add(module)
    return found


def test_imports_go_one_way() -> None:
    against: dict[tuple[str, str], list[str]] = {}
    for module, path in modules().items():
        own = module.partition(".")[0]
        for other in imported(path) if own else ():
            folder = other.partition(".")[0]
            if folder != own and floor(folder) >= floor(own):
                against.setdefault((own, folder), []).append(f"{module} imports {other}")
    assert not against


def test_no_import_cycles() -> None:
    graph = {name: imported(path) - {name} for name, path in modules().items()}
    done: set[str] = set()

    def walk(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"cycle: {' -> '.join([*trail[trail.index(name) :], name])}"
        if name in done:
            return
        for other in graph[name]:
            walk(other, (*trail, name))
        done.add(name)

    for name in graph:
        walk(name, ())


BANNED = {
    "core.clock": r"datetime\.now|datetime\.utcnow|time\.time\b|time\.time_ns",
    "core.ids": r"\buuid[147]\b|uuid_utils",
    "core.secrets": r"\bimport random\b|token_bytes|token_urlsafe|token_hex|os\.urandom|^import secrets",
}


@pytest.mark.parametrize("home", BANNED)
def test_clock_and_dice_have_one_home(home: str) -> None:
    for name, path in modules().items():
        if name != home:
            found = re.search(BANNED[home], path.read_text(), re.MULTILINE)
            assert not found, f"{name} uses {found and found[0]}: that is {home}'s to give"


def test_the_ban_finds_what_it_bans() -> None:
    assert all(re.search(pattern, modules()[home].read_text(), re.MULTILINE) for home, pattern in BANNED.items())


def test_every_public_route_is_in_the_contract() -> None:
    assert {path: next(iter(route.methods)) for path, route in ROUTES.items() if route.kind == "operation"} == SIX
    assert all(len(route.methods) == 1 for route in ROUTES.values() if route.kind == "operation")
    assert {path for path, route in ROUTES.items() if route.kind == "metadata"} == ALWAYS
    assert {path for path, route in ROUTES.items() if route.kind == "standard"} == STANDARD
    assert not any("{" in path or "<" in path for path in ROUTES), "no path parameters"


Protocol = Literal["full", "six"]
UNSERVED = OPERATIONS_PLANE | OPERATOR | {"/", "/oauth"}  # by the public listener


def answered(protocol: Protocol, method: str, path: str) -> tuple[int, bytes]:
    """Status and body that the application gives, with nothing behind it but its base URL."""
    context = cast(Context, SimpleNamespace(service=SimpleNamespace(base_url="https://gatepost.example")))
    application = Application(context, protocol=protocol)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"host", b"gatepost.example")]
    scope = {"type": "http", "method": method, "path": path, "headers": headers, "query_string": b""}
    asyncio.run(application(scope, receive, send))
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize(
    ("protocol", "served"), [("six", SIX.keys() | ALWAYS), ("full", SIX.keys() | ALWAYS | STANDARD)]
)
def test_what_each_protocol_serves(protocol: Protocol, served: set[str]) -> None:
    """No path has the method TRACE: one that is served says so with 405, one that is not is unknown."""
    asked = {path: answered(protocol, "TRACE", path)[0] for path in ROUTES.keys() | UNSERVED}
    assert {path for path, status in asked.items() if status == 405} == served
    assert {status for path, status in asked.items() if path not in served} == {404}


@pytest.mark.parametrize("protocol", ["six", "full"])
def test_no_document_names_what_is_not_served(protocol: Protocol) -> None:
    documents = [path for path in ALWAYS | STANDARD if path.startswith("/.well-known/")]
    found = [answered(protocol, "GET", path) for path in documents]
    reported = [json.loads(body) for status, body in found if status == 200]
    assert len(reported) == {"six": 2, "full": 3}[protocol]
    urls = {value for document in reported for name, value in document.items() if name.endswith(("_endpoint", "_uri"))}
    assert {"https://gatepost.example/oauth/tokens", "https://gatepost.example/oauth/jwks"} <= urls
    for url in urls:
        assert answered(protocol, "TRACE", url.removeprefix("https://gatepost.example"))[0] == 405, url


def test_every_operations_route_is_in_the_contract() -> None:
    source = (PACKAGE / "web" / "ops" / "plane.py").read_text()
    served = set(re.findall(r'^            "(/[^"]*)":', source, re.MULTILINE))
    assert served
    assert served <= OPERATIONS_PLANE
    assert operator.VIEWS.keys() | {"/operator", "/operator/"} == OPERATOR


def test_every_recorded_type_is_in_the_table() -> None:
    named = set()
    for path in modules().values():
        named |= set(re.findall(r'"((?:account|oauth|webhook)\.[a-z]+(?:\.[a-z]+)?)"', path.read_text()))
    nouns = {f"oauth.{noun}" for noun in ("client", "scope")} | {
        f"webhook.{noun}" for noun in ("endpoint", "subscription", "delivery")
    }
    assert named - nouns == set(entries.TYPES)


def test_every_statement_is_used_by_the_module_beside_it() -> None:
    for file in PACKAGE.rglob("*.sql"):
        if file.parent.name != "migrations":
            used = file.with_suffix(".py").read_text()
            names = re.findall(r"^-- name: (\w+)$", file.read_text(), re.MULTILINE)
            assert [name for name in names if f'"{name}"' not in used] == [], file.name


def test_both_stores_have_the_same_statements() -> None:
    assert sql_loader.statements("sqlite").keys() == sql_loader.statements("postgres").keys()
    assert not any("/*" in statement for statement in sql_loader.statements("postgres").values())
    for statement in sql_loader.statements("sqlite").values():
        given = statement.startswith("/*given: ")
        assert "/*" not in (sql_loader.for_rows(statement, 1) if given else statement)


def test_files_stay_small() -> None:
    long = {name: count for name, path in modules().items() if (count := len(path.read_text().splitlines())) >= 450}
    assert not long, "split the file by noun"


def test_classes_stay_small() -> None:
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                assert (node.end_lineno or 0) - node.lineno < 250, f"{name}.{node.name}: split the class"
