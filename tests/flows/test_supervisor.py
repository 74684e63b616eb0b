"""The supervisor on a machine that is short of files: what could not be started is started later."""

import os
import resource
import signal
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
