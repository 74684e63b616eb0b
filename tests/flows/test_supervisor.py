"""The processes that the supervisor starts: on a machine that is short of files, and in any directory."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests import service
from tests.waiting import LIMIT, wait_until


@contextmanager
def no_files_left(process: int) -> Iterator[None]:
    """The process cannot open another file, and so no pipe to a child."""
    before = resource.prlimit(process, resource.RLIMIT_NOFILE)
    resource.prlimit(process, resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_NOFILE, before)


def test_no_process_imports_modules_of_the_working_directory(tmp_path: Path) -> None:
    imported, output = tmp_path / "imported", tmp_path / "output"
    for name in ("resource", "apsw", "uvloop"):
        (tmp_path / f"{name}.py").write_text(f"open({str(imported)!r}, 'w').close()\nraise SystemExit")
    port, ops_port = service.free_ports(2)
    variables = service.environment(tmp_path / "data", "", port=str(port), ops_port=str(ops_port), dev="true")
    command = [str(Path(sys.executable).with_name("gatepost")), "serve"]
    with output.open("w") as file, subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=file) as process:
        try:
            wait_until(lambda: imported.exists() or "ready " in output.read_text(), "the service to be ready")
        finally:
            process.terminate()
    assert not imported.exists()
    assert process.returncode == 0


def test_a_process_that_could_not_be_started_is_started_later(tmp_path: Path) -> None:
    log = tmp_path / "data.log"
    with service.running(tmp_path / "data") as running:
        count = len(running.web_processes())
        with no_files_left(running.process.pid):
            os.kill(running.web_processes()[0], signal.SIGKILL)
            wait_until(lambda: log.read_text().count("process not started") >= 2, "two attempts to start it")
            assert len(running.web_processes()) == count - 1
        wait_until(lambda: len(running.web_processes()) == count, "another process")
        wait_until(lambda: _is_ready(running), "the service to be ready")
        assert running.stop() == 0


@pytest.mark.parametrize("kind", ["web", "operations"])
def test_a_service_with_a_process_that_makes_no_progress_is_not_ready(kind: str, tmp_path: Path) -> None:
    """The other process of this kind responds, but every second connection is with the one that is stopped."""
    log = tmp_path / "data.log"
    with service.running(tmp_path / "data", workers="2") as running:
        stopped, _ = running.web_processes() if kind == "web" else running.operations_processes()
        os.kill(stopped, signal.SIGSTOP)
        try:
            because = f"a process for {kind} makes no progress"
            wait_until(lambda: because in _readiness(running), f"/readyz to say that {because}")
        finally:
            os.kill(stopped, signal.SIGCONT)
        wait_until(lambda: _is_ready(running), "the service to be ready")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        silent = [(line["kind"], line["process"]) for line in lines if line["event"] == "process makes no progress"]
        assert (kind, stopped) in silent


def _readiness(running: service.Service) -> str:
    """The response of /readyz, or "" if the connection is with a process that does not respond."""
    try:
        answer = requests.get(f"{running.ops}/readyz", timeout=2)
    except requests.RequestException:
        return ""
    return answer.text if answer.status_code == 503 else ""


def _is_ready(running: service.Service) -> bool:
    try:
        return requests.get(f"{running.ops}/readyz", timeout=LIMIT).ok
    except requests.ConnectionError:
        return False
