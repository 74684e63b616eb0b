"""Packages of npm, in the versions named here, and scripts that use them: each line that is spoken is one JSON object.

A script is told what to do, asks for a browser where it needs one, and says what came of it: see talk.mjs.
"""

import atexit
import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from tests.waiting import LIMIT

PACKAGES = ("jose@6.2.17", "oauth4webapi@3.8.8", "openid-client@6.8.9")
SCRIPTS = Path(__file__).parent
CACHE = SCRIPTS.parents[1] / ".cache"

Browse = Callable[[str], dict[str, Any]]


def node(script: str) -> list[str]:
    """The command that runs a script of this folder, with the packages where it looks for them."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("Node is not on this machine; the service does not need it")
    folder = installed(*PACKAGES)
    return ["node", "--preserve-symlinks", "--preserve-symlinks-main", str(folder / "scripts" / script)]


_idle: dict[str, subprocess.Popen[str]] = {}  # by script: starting one takes longer than most of what is asked of it


def run_scenario(script: str, asked: dict[str, Any], browse: Browse | None = None) -> dict[str, Any]:
    """Have a script do what is asked, and be its browser."""
    process = _idle.pop(script, None) or subprocess.Popen(
        node(script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    deadline = Timer(LIMIT, process.kill)
    deadline.start()
    try:
        output: dict[str, Any] = {}
        answer = asked
        while "done" not in output:
            process.stdin.write(json.dumps(answer) + "\n")
            process.stdin.flush()
            output = json.loads(process.stdout.readline() or '{"failed": "it ended without a word, or was too slow"}')
            assert "failed" not in output, output["failed"]
            if "open" in output:
                assert browse is not None, "this test has no browser"
                answer = browse(output["open"])
    except BaseException:
        _end(process)
        raise
    finally:
        deadline.cancel()
    _idle[script] = process
    found: dict[str, Any] = output["done"]
    return found


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@atexit.register
def _end_all() -> None:
    for process in _idle.values():
        _end(process)


def installed(*packages: str) -> Path:
    """Install packages once for these versions, by whichever process comes first. They are in `node_modules`."""
    folder = CACHE / f"npm-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="npm-", ignore_cleanup_errors=True) as made:
        command = ["npm", "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run([*command, *packages], cwd=made, check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        (Path(made) / "scripts").symlink_to(Path("../..") / SCRIPTS.relative_to(CACHE.parent), target_is_directory=True)
        try:
            Path(made).rename(folder)
        except OSError:
            if not folder.exists():  # another process was first
                raise
    return folder
