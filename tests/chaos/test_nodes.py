"""Several nodes on one PostgreSQL: killed, restarted one after the other, and upgraded, under load."""

import os
import random
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path

import pytest

from tests import postgres
from tests.chaos.nodes import Node, NodeLoad, check_everything, platform_on, running_nodes
from tests.receiver import receiver
from tests.service import free_ports

pytestmark = pytest.mark.xdist_group("nodes")
ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("GATEPOST_TEST_KILLS", "1"))
# A delivery that was claimed when its node stopped is given back, and another node sends it.
SENT_ONCE = {"succeeded", "not_sent succeeded"}
OF_PREVIOUS_RELEASE = {"interrupted succeeded"}  # release 0.3.0 could leave without giving such a delivery back


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a killed service leaves files there
    with postgres.running() as server:
        yield server.create_database("nodes")


def test_nodes_killed_under_load(tmp_path: Path, database: str) -> None:
    """`make soak` kills two hundred."""
    chance = random.Random(7)
    with receiver() as found, running_nodes(tmp_path, database, 3) as nodes:
        platform = platform_on(nodes[0], found.url)
        with NodeLoad(platform, nodes) as load:
            for _ in range(KILLS):
                load.wait_for(10)
                victim = nodes[chance.randrange(3)]
                victim.kill()
                load.wait_for(5)
                victim.start()
            load.wait_for(10)
        outcomes = check_everything(platform, load, found)
    assert outcomes["succeeded"] > 0


# --- rolling restarts and upgrades


def test_nodes_restarted_one_after_the_other(tmp_path: Path, database: str) -> None:
    with receiver() as found, running_nodes(tmp_path, database, 3) as nodes:
        platform = platform_on(nodes[0], found.url)
        with NodeLoad(platform, nodes) as load:
            for node in nodes:
                load.wait_for(10)
                node.stop()
                load.wait_for(10)
                node.start()
            load.wait_for(10)
        outcomes = check_everything(platform, load, found)
    assert set(outcomes) <= SENT_ONCE
    assert len(found.requests) == sum(outcomes.values()), "each was sent once"


def test_nodes_upgraded_one_after_the_other(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of the previous release goes on while the first new one migrates the store, and until it is replaced."""
    previous = _previous_release(tmp_path / "previous")
    (port,) = free_ports(1)
    old, new = (Node(tmp_path / name, database, f"http://127.0.0.1:{port}") for name in ("old", "new"))
    with receiver() as found, ExitStack() as stack:
        with monkeypatch.context() as environment:
            environment.setenv("PYTHONPATH", str(previous))
            environment.setenv("PYTHONSAFEPATH", "1")
            environment.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
            stack.callback(old.stop)
            old.start()
        assert list(previous.rglob("*.pyc")), "the previous release runs"
        stack.callback(new.stop)
        new.start()
        platform = platform_on(new, found.url)
        with NodeLoad(platform, [old, new]) as load:
            load.wait_for(10)
            old.stop()
            load.wait_for(10)
            old.start()
            load.wait_for(10)
        outcomes = check_everything(platform, load, found)
    assert set(outcomes) <= SENT_ONCE | OF_PREVIOUS_RELEASE
    assert len(found.requests) == sum(outcomes.values()), "each was sent once"


def _previous_release(directory: Path) -> Path:
    """The source of the release that the newest tag or release commit names."""

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True).stdout

    try:
        commit = git("log", "-1", "--format=%H", "--grep=^Release [0-9]").decode().strip()
        archive = git("archive", commit, "gatepost") if commit else b""
    except (OSError, subprocess.CalledProcessError):
        commit = ""
    if not commit:
        pytest.skip("the history of the repository is not available")
    with tarfile.open(fileobj=BytesIO(archive)) as source:
        source.extractall(directory, filter="data")
    return directory
