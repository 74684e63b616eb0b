"""The processes that the supervisor starts: on a machine that is short of files, and in any directory."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def _is_ready(running: service.Service) -> bool:
    try:
        return requests.get(f"{running.ops}/readyz", timeout=LIMIT).ok
    except requests.ConnectionError:
        return False
