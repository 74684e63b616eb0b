"""Node and Go for the tests of the clients and their examples, with the programs that these tests compile.

Where one is missing the tests are skipped, unless `CLIENT_TESTS=required` says that it must be there.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop import npm
from tests.waiting import LIMIT

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "clients"
TYPESCRIPT = "typescript@7.0.2"
# The first test compiles the standard library, which takes less time without cgo, HTTP/2 and inlining.
GO = {
    "CGO_ENABLED": "0",
    "GOCACHE": str(ROOT / ".cache" / "go"),
    "GOFLAGS": "-mod=mod -tags=nethttpomithttp2 -gcflags=all=-l -ldflags=-s",
    "GOPROXY": "off",
    "GOTOOLCHAIN": "local",
}


def require(*names: str) -> None:
    """Skip the test if a program is missing."""
    for name in names:
        if shutil.which(name) is None:
            if os.environ.get("CLIENT_TESTS") == "required":
                pytest.fail(f"there is no {name} on this machine, and CLIENT_TESTS says that there must be one")
            pytest.skip(f"there is no {name} on this machine; the service does not need it")


def run(command: list[str], directory: Path, *, timeout: float = LIMIT, **environment: str) -> str:
    """Run a command that must succeed, and return what it prints."""
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compile_typescript(directory: Path) -> Path:
    """Compile a copy of the TypeScript client in this directory, and return the folder of the package."""
    require("node", "npm")
    package = directory / "typescript"
    shutil.copytree(CLIENTS / "typescript", package, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (directory / "conformance").symlink_to(CLIENTS / "conformance")
    compiler = npm.installed(TYPESCRIPT) / "node_modules" / ".bin" / "tsc"
    run([str(compiler), "--project", "."], package)
    return package


def compile_go(package: Path, program: Path, *command: str) -> Path:
    """Compile a Go package with `go build`, or another command, into a program."""
    require("go")
    assert not run(["gofmt", "-l", "."], package), "the code is formatted"
    run(["go", *(command or ("build",)), "-o", str(program), "."], package, timeout=10 * LIMIT, **GO)
    return program
