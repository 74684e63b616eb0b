"""The Go client behaves as the conformance table says, and works with the service."""

import json
import re
from pathlib import Path

import pytest

from tests.clients.toolchains import CLIENTS, compile_go, run
from tests.docs.pages import HOW_TO, blocks
from tests.service import Service

SOURCE = CLIENTS / "go"
PAGE = HOW_TO / "use-the-go-client.md"

pytestmark = pytest.mark.xdist_group("client-go")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tests of the Go package in one program."""
    return compile_go(SOURCE, tmp_path_factory.mktemp("go") / "gatepost.test", "test", "-c", "-vet=off")


def test_conformance(program: Path) -> None:
    printed = run([str(program), "-test.run", "^Test(Webhooks|Tokens|Operations)$", "-test.v"], SOURCE)
    assert len(re.findall(r"^    --- PASS", printed, re.MULTILINE)) >= 200


def test_limits(program: Path) -> None:
    printed = run([str(program), "-test.run", "^TestLimit", "-test.v"], SOURCE)
    assert len(re.findall(r"^--- PASS", printed, re.MULTILINE)) == 3


def test_with_the_service(program: Path, sqlite_gatepost: Service, account_name: str) -> None:
    _, client = sqlite_gatepost.account(account_name)
    live = {
        "url": sqlite_gatepost.url,
        "eventsUrl": sqlite_gatepost.ops,
        "clientId": client.id,
        "clientSecret": client.secret,
        "resource": f"https://api.example.com/{account_name}",
    }
    printed = run([str(program), "-test.run", "^TestLive$", "-test.v"], SOURCE, GATEPOST=json.dumps(live))
    assert "--- PASS: TestLive" in printed


def test_the_code_on_the_page_compiles(tmp_path: Path) -> None:
    for number, text in enumerate(blocks(PAGE, "go")):
        (tmp_path / f"page_{number}.go").write_text(text, "utf-8")
    module = "module example.com/app\n\ngo 1.24\n\nrequire gatepost.example/client v0.0.0\n\n"
    (tmp_path / "go.mod").write_text(f"{module}replace gatepost.example/client => {SOURCE}\n")
    compile_go(tmp_path, tmp_path / "app")


def test_the_module_has_no_dependencies() -> None:
    assert "require" not in (SOURCE / "go.mod").read_text("utf-8")
    assert not (SOURCE / "go.sum").exists()
