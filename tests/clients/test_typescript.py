"""The TypeScript client behaves as the conformance table says, and works with the service."""

import json
import re
from pathlib import Path

import pytest

from gatepost import __version__
from tests.clients.toolchains import CLIENTS, TYPESCRIPT, compile_typescript, run
from tests.docs.pages import HOW_TO, blocks
from tests.interop import npm
from tests.service import Service

SOURCE = CLIENTS / "typescript"
PAGE = HOW_TO / "use-the-typescript-client.md"

pytestmark = pytest.mark.xdist_group("client-typescript")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_typescript(tmp_path_factory.mktemp("typescript"))


def test_conformance(package: Path) -> None:
    printed = run(["node", "test/conformance.mjs"], package)
    assert re.fullmatch(r"\s*[1-9][0-9]{2} cases, 0 failures\n", printed)


def test_limits(package: Path) -> None:
    assert run(["node", "test/limits.mjs"], package) == "ok\n"


def test_with_the_service(package: Path, sqlite_gatepost: Service, account_name: str) -> None:
    _, client = sqlite_gatepost.account(account_name)
    live = {
        "url": sqlite_gatepost.url,
        "eventsUrl": sqlite_gatepost.ops,
        "clientId": client.id,
        "clientSecret": client.secret,
        "resource": f"https://api.example.com/{account_name}",
    }
    assert run(["node", "test/live.mjs"], package, GATEPOST=json.dumps(live)) == "ok\n"


def test_the_code_on_the_page_compiles(package: Path, tmp_path: Path) -> None:
    (tmp_path / "node_modules" / "@gatepost").mkdir(parents=True)
    (tmp_path / "node_modules" / "@gatepost" / "client").symlink_to(package)
    (tmp_path / "page.mts").write_text("".join(blocks(PAGE, "ts")), "utf-8")
    settings = {"extends": str(package / "tsconfig.json"), "compilerOptions": {"noEmit": True, "rootDir": "/"}}
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings | {"include": ["page.mts"]}))
    run([str(npm.installed(TYPESCRIPT) / "node_modules" / ".bin" / "tsc"), "--project", "."], tmp_path)


def test_the_package() -> None:
    """It has no dependencies, uses only what every runtime has, and its lock file names no registry."""
    package = json.loads((SOURCE / "package.json").read_text("utf-8"))
    assert "dependencies" not in package
    assert package["version"] == __version__
    for file in (SOURCE / "src").glob("*.ts"):
        assert not re.search(r'from "(?!\./)|\b(require\(|process\.\w|Buffer\.|node:)', file.read_text("utf-8")), file
    lock = (SOURCE / "package-lock.json").read_text("utf-8")
    assert '"resolved"' not in lock
    assert json.loads(lock)["version"] == __version__
