"""`gatepost store distribute`: what it says, and that the service goes on with the distributed store."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import citus, service
from tests.flows.shop import opening
from tests.waiting import LIMIT


def distribute(directory: Path, url: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gatepost", "store", "distribute", *options],
        env=service.environment(directory, url), capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip


def test_it_needs_citus(tmp_path: Path, postgres_url: str) -> None:
    done = distribute(tmp_path / "data", "")
    assert done.returncode != 0
    assert "only a store on PostgreSQL can be distributed" in done.stderr
    with service.running(tmp_path / "data", postgres_url):
        pass
    done = distribute(tmp_path / "data", postgres_url, "--yes")
    assert done.returncode != 0
    assert "CREATE EXTENSION citus" in done.stderr


@pytest.mark.skipif(not citus.URL, reason="GATEPOST_TEST_CITUS is not set")
def test_a_service_goes_on_after_its_store_was_distributed(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with citus.schema() as url:
        with service.running(directory, url) as gatepost, opening(gatepost, "acme") as shop:
            first = shop.publish()
            shop.status(first, "succeeded")
            running = distribute(directory, url, "--yes")
            assert running.returncode != 0
            assert "stop every `gatepost serve` first" in running.stderr
        told = distribute(directory, url)
        assert "will distribute these tables by account" in told.stdout
        assert "Nothing was changed" in told.stdout
        done = distribute(directory, url, "--yes", "--json")
        assert done.returncode == 0, done.stderr
        assert "deliveries" in json.loads(done.stdout)["tables"]
        assert "All tables are distributed already." in distribute(directory, url).stdout
        with service.running(directory, url) as again:
            found = [record["id"] for record in again.cli_json("delivery", "list", "--account", "acme")]
            assert first in found
            shards = again.opened.store.shards
            assert shards is not None
            assert again.cli_json("account", "show", "acme")["database_node"] in {node.name for node in shards.nodes}
            checks = json.loads(again.cli("doctor", "--json", check=False).stdout)
            assert {each["status"] for each in checks if each["check"] == "database node"} == {"ok"}
            assert again.session.get(f"{again.ops}/readyz").json() == {"status": "ready"}
