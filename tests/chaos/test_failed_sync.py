"""SQLite: if the sync of a commit fails, the process ends, and no caller gets a success."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from gatepost.store.lost import LOST_CODE
from tests import service
from tests.waiting import LIMIT, wait_until

# Python runs this at the start of every process of the service: the disk fails once for a process of the kind that the
# file names.
SITE = """
import errno, os, pathlib, sys
flag, real = pathlib.Path(__file__).with_name("fail"), os.fdatasync

def sync(file):
    modules = {
        "web": "gatepost.run.web_process", "deliveries": "gatepost.run.delivery_process",
        "operations": "gatepost.run.operations_process",
    }
    kind = next((kind for kind, module in modules.items() if module in sys.orig_argv), "supervisor")
    if flag.exists() and flag.read_text() == kind:
        flag.unlink()
        raise OSError(errno.EIO, "Input/output error")
    real(file)

os.fdatasync = sync
"""


@pytest.fixture
def flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    monkeypatch.setenv("PYTHONPATH", str(site))
    return site / "fail"


@pytest.fixture
def gatepost(flag: Path, tmp_path: Path) -> Iterator[service.Service]:
    with service.running(tmp_path / "data") as found:
        yield found


def fail(flag: Path, kind: str) -> None:
    fresh = flag.with_suffix(".new")
    fresh.write_text(kind)
    fresh.rename(flag)


def test_a_web_process_is_started_again(gatepost: service.Service, flag: Path) -> None:
    assert gatepost.first is not None
    before = gatepost.web_processes()
    gatepost.token(gatepost.first, "gatepost:clients")
    fail(flag, "web")
    with pytest.raises(requests.ConnectionError):  # no answer at all: neither a token nor a refusal
        requests.post(
            f"{gatepost.url}/oauth/tokens", headers={"Authorization": gatepost.first.basic},
            data={"grant_type": "client_credentials", "scope": "gatepost:clients"}, timeout=LIMIT,
        )  # fmt: skip
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            gatepost.token(gatepost.first, "gatepost:clients")
            break
        except requests.ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert gatepost.web_processes() != before
    log = (gatepost.directory.parent / "data.log").read_text()
    assert "the disk failed to keep what was written" in log


def test_a_supervisor_ends_and_takes_its_children_along(gatepost: service.Service, flag: Path) -> None:
    assert gatepost.first is not None
    children = [*gatepost.web_processes(), *gatepost.delivery_processes(), *gatepost.operations_processes()]
    fail(flag, "supervisor")
    gatepost.token(gatepost.first, "gatepost:clients")  # the supervisor seals the entry
    assert gatepost.process.wait(LIMIT) == LOST_CODE
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children), "the children to end")


def test_a_command_says_so_and_fails(gatepost: service.Service, flag: Path) -> None:
    gatepost.stop()
    fail(flag, "supervisor")  # a process that is neither of the others
    done = subprocess.run(
        [sys.executable, "-m", "gatepost", "account", "create", "acme", "--json"], env=gatepost.environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == LOST_CODE
    assert done.stdout == ""
    assert "the disk failed to keep what was written" in done.stderr
