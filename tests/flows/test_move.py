"""A store that outgrew one machine: everything in it goes to PostgreSQL, and the service goes on there."""

import json
import subprocess
import sys
from pathlib import Path

import psycopg

from gatepost.run import app
from gatepost.settings import load
from tests import service
from tests.login import Platform
from tests.service import Service
from tests.waiting import LIMIT

NOWHERE = "http://127.0.0.1:65000/hooks"


def filled(gatepost: Service) -> tuple[Platform, dict[str, str]]:
    platform = Platform(gatepost, "moving")
    tokens = platform.tokens()
    gatepost.cli("event", "publish", "--account", "moving", "--type", "invoice.paid", "--data", "{}")
    return platform, tokens


def move(directory: Path, target: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gatepost", "store", "move", "--to", target, "--json"],
        env=service.environment(directory, "", dev="true"), capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip


def test_everything_goes_on_where_it_was_moved_to(tmp_path: Path, postgres_url: str) -> None:
    directory = tmp_path / "data"
    with service.running(directory) as gatepost:
        platform, tokens = filled(gatepost)
        admin = gatepost.token(platform.first, "gatepost:endpoints gatepost:subscriptions")
        endpoint = gatepost.post("/webhooks/endpoints", admin, {"url": NOWHERE, "status": "disabled"}).json()
        body = {"endpoint_id": endpoint["id"], "events": ["*"]}
        assert gatepost.post("/webhooks/subscriptions", admin, body).status_code == 201
        gatepost.cli("event", "publish", "--account", "moving", "--type", "invoice.late", "--data", "{}")
        before = {entry["id"] for entry in platform.entries()}
        url, port = gatepost.url, gatepost.environment["GATEPOST_PORT"]
    done = move(directory, postgres_url)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["rows"]["entries"] >= len(before)
    assert result["rows"]["queue"] == 1
    assert not (directory / "gatepost.db").exists()
    assert (directory / result["aside"]).exists()
    key = str(directory / "master.key")
    with service.running(tmp_path / "new", postgres_url, port=port, master_key="", master_key_file=key) as moved:
        assert moved.url == url
        platform.gatepost = moved
        again = platform.refresh(tokens["refresh_token"])
        assert again.status_code == 200, again.text
        assert platform.introspect(tokens["access_token"])["active"]
        assert before <= {entry["id"] for entry in platform.entries()}
        checked = moved.cli("store", "check", "--json", check=False)
        assert checked.returncode == 0, checked.stdout


def test_what_cannot_be_moved(tmp_path: Path, postgres_url: str) -> None:
    nothing = move(tmp_path / "none", postgres_url)
    assert nothing.returncode == 5
    assert "there is no SQLite store" in nothing.stderr
    directory = tmp_path / "data"
    with service.running(directory):
        used = move(directory, postgres_url)
        assert used.returncode == 4
        assert "a service runs on" in used.stderr
        assert (directory / "gatepost.db").exists()
    wrong = move(directory, "mysql://db")
    assert "postgresql://" in wrong.stderr
    with service.running(tmp_path / "other", postgres_url):
        pass
    full = move(directory, postgres_url)
    assert full.returncode == 4
    assert "already has accounts" in full.stderr
    assert (directory / "gatepost.db").exists()


def test_a_row_that_does_not_arrive_moves_nothing(tmp_path: Path, postgres_url: str) -> None:
    """A trigger swallows rows: the counts differ, and both stores stay as they were."""
    directory = tmp_path / "data"
    with service.running(directory) as gatepost:
        filled(gatepost)
    store = app.open_store(load({"database": postgres_url}, {}))
    store.migrate()
    store.close()
    with psycopg.connect(postgres_url, autocommit=True) as database:
        database.execute("CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        database.execute("CREATE TRIGGER swallow BEFORE INSERT ON families FOR EACH ROW EXECUTE FUNCTION swallow()")
        done = move(directory, postgres_url)
        assert done.returncode == 2
        assert "families: 1 rows were read, but 0 were written" in done.stderr
        assert database.execute("SELECT count(*) FROM accounts").fetchall() == [(0,)]
    assert (directory / "gatepost.db").exists()
