"""`gatepost store backup` and `store restore`: a consistent copy of a busy store, and what ends when it is put back."""

import json
import re
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import apsw
import pytest

from gatepost.cli import show
from gatepost.oauth import operator_tokens
from gatepost.run.app import open_for_use
from gatepost.settings import load
from gatepost.store import backup as files
from gatepost.store import marker
from tests import command, service
from tests.command import Alone
from tests.flows import shop
from tests.login import Platform
from tests.receiver import OK
from tests.service import Service
from tests.waiting import wait_until


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def gatepost(data: Path) -> Iterator[Service]:
    """Without a delivery process, which no test that uses it needs."""
    with service.running(data, only="web") as found:
        yield found


def refusal(where: Alone | Service, *arguments: str) -> str:
    done = where.cli(*arguments, check=False)
    assert done.returncode in {2, 3, 4, 5}, done.stdout + done.stderr
    return done.stderr


def alone(data: Path, **settings: str) -> Alone:
    return command.alone(data, **settings)


def problems(where: Alone) -> list[str]:
    done = where.cli("store", "check", "--json", check=False)
    return [each["check"] for each in json.loads(done.stdout) if each["status"] == "problem"]


@pytest.mark.parametrize("keep", [False, True])
def test_a_restore_ends_every_token_unless_tokens_are_kept(
    gatepost: Service, data: Path, tmp_path: Path, *, keep: bool
) -> None:
    people = Platform(gatepost, "acme")
    before = people.tokens()
    machine = gatepost.token(people.first, "gatepost:clients")
    gatepost.cli("store", "backup", str(tmp_path / "backup.db"))
    # What the backup does not know: a refresh token was replaced, and a token was revoked.
    replaced = people.refresh(before["refresh_token"])
    assert replaced.status_code == 200
    gatepost.cli("token", "revoke", "--account", "acme", "--client", people.first.id)
    later = people.tokens()
    assert gatepost.post("/oauth/clients", machine, {"client_id": people.client.id}).status_code == 401
    gatepost.stop()

    options = ["--keep-tokens"] if keep else []
    done = alone(data).cli_json("store", "restore", str(tmp_path / "backup.db"), *options)
    assert done["tokens"] == ("kept" if keep else "ended")
    assert done["consents_ended"] == (0 if keep else 1)
    assert done["lost_entries"]["oauth.token.revoked"] >= 1
    assert Path(done["aside"]).exists()

    with service.running(data, base_url=gatepost.url, port=gatepost.url.rpartition(":")[2], only="web") as again:
        people.gatepost = again
        works = again.post("/oauth/clients", machine, {"client_id": people.client.id}).status_code == 200
        assert works is keep
        assert people.introspect(before["access_token"])["active"] is keep
        assert people.introspect(later["access_token"])["active"] is False
        assert people.refresh(before["refresh_token"]).status_code == (200 if keep else 400)
        assert people.refresh(later["refresh_token"]).status_code == 400
        assert people.tokens()  # and everything begins again
        operator = again.cli_json("audit", "list", "--account", "gatepost", "--type", "account.store.restored")
        assert [each["data"]["tokens"] for each in operator] == ["kept" if keep else "ended"]
    assert problems(alone(data)) == []


@pytest.mark.parametrize("keep", [False, True])
def test_a_restore_ends_operator_tokens_unless_tokens_are_kept(data: Path, tmp_path: Path, *, keep: bool) -> None:
    store, file = alone(data), str(tmp_path / "backup.db")
    store.cli("store", "migrate")
    revoked, active = (store.cli_json("operator", "token", "--lifetime", "8h") for _ in range(2))
    store.cli("store", "backup", file)
    store.cli("operator", "revoke", revoked["id"])
    later = store.cli_json("operator", "token", "--lifetime", "8h")
    assert [accepted(store, token) for token in (revoked, active, later)] == [False, True, True]

    store.cli("store", "restore", file, *(["--keep-tokens"] if keep else []))
    assert [accepted(store, token) for token in (revoked, active, later)] == [keep, keep, False]
    ended = store.cli_json("audit", "list", "--account", "gatepost", "--type", "oauth.token.revoked")
    assert {entry["subject"] for entry in ended} == (set() if keep else {revoked["id"], active["id"]})
    assert {entry["data"]["reason"] for entry in ended} == (set() if keep else {"store_restored"})
    assert accepted(store, store.cli_json("operator", "token"))
    assert problems(store) == []


def accepted(store: Alone, token: dict[str, str]) -> bool:
    """Whether the operator's view accepts the token."""
    runtime = open_for_use(load({}, store.environment))
    with closing(runtime.store):
        verify = partial(operator_tokens.verify, service=runtime.service, text=token["token"])
        return runtime.store.read_now(verify) is not None


def test_a_restore_shows_one_progress_bar_at_a_time(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two bars would write over the same line of the terminal."""
    steps, open_bars = [], 0

    @contextmanager
    def progress(description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        nonlocal open_bars
        assert not open_bars
        steps.append(description)
        open_bars += 1
        yield lambda _count: None
        open_bars -= 1

    store = alone(data)
    store.cli("store", "migrate")
    store.cli("store", "backup", str(tmp_path / "backup.db"))
    monkeypatch.setattr(show, "progress", progress)
    store.cli("store", "restore", str(tmp_path / "backup.db"))
    assert steps == ["pages", "ledger entries", "consents"]
    assert not open_bars


def test_unfinished_deliveries_are_sent_after_a_restore(data: Path, tmp_path: Path) -> None:
    with service.running(data) as gatepost, shop.opening(gatepost, "acme", OK) as open_shop:
        gatepost.cli("endpoint", "disable", "--account", "acme", open_shop.endpoint)
        waiting = open_shop.publish()
        made = gatepost.cli_json("store", "backup", str(tmp_path / "backup.db"))
        assert made["unfinished_deliveries"] == 1
        gatepost.stop()
        done = alone(data).cli_json("store", "restore", str(tmp_path / "backup.db"))
        assert done["unfinished_deliveries"] == 1
        with service.running(data) as again:
            again.cli("endpoint", "enable", "--account", "acme", open_shop.endpoint)
            wait_until(
                lambda: again.cli_json("delivery", "show", "--account", "acme", waiting)["status"] == "succeeded"
            )


def test_a_backup_is_consistent_while_others_write(data: Path, tmp_path: Path) -> None:
    """Every entry in the copy has its deliveries and its seal, even if others commit during the backup."""
    with service.running(data) as gatepost, shop.opening(gatepost, "acme", OK) as open_shop:
        stop = threading.Event()

        def publish() -> None:
            while not stop.is_set():
                open_shop.publish()

        writing = threading.Thread(target=publish)
        writing.start()
        try:
            for number in range(3):
                gatepost.cli("store", "backup", str(tmp_path / f"{number}.db"))
        finally:
            stop.set()
            writing.join()
        for number in range(3):
            file = tmp_path / f"{number}.db"
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert not list(tmp_path.glob(f"{number}.db-*"))
            copy = tmp_path / f"copy-{number}"
            copy.mkdir(0o700)
            shutil.copy(data / "master.key", copy / "master.key")
            alone(copy).cli("store", "restore", str(file))
            assert problems(alone(copy)) == []


# --- refusals


def test_a_running_service_refuses_a_restore(gatepost: Service, data: Path, tmp_path: Path) -> None:
    gatepost.cli("store", "backup", str(tmp_path / "backup.db"))
    assert "stop it first" in refusal(gatepost, "store", "restore", str(tmp_path / "backup.db"))
    assert gatepost.first is not None
    gatepost.token(gatepost.first, "gatepost:clients")


def test_files_that_cannot_be_used(data: Path, tmp_path: Path) -> None:
    store = alone(data)
    store.cli("store", "migrate")
    good = tmp_path / "good.db"
    store.cli("store", "backup", str(good))
    before = store.cli_json("account", "list")
    assert "exists already" in refusal(store, "store", "backup", str(good))
    assert "not a directory" in refusal(store, "store", "backup", str(tmp_path / "none" / "backup.db"))
    (tmp_path / "link.db").symlink_to(tmp_path / "unmounted" / "backup.db")
    assert "exists already" in refusal(store, "store", "backup", str(tmp_path / "link.db"))
    assert "does not exist" in refusal(store, "store", "restore", str(tmp_path / "none.db"))
    assert "--after-pitr" in refusal(store, "store", "restore")

    damaged = tmp_path / "damaged.db"
    content = bytearray(good.read_bytes())
    for place in range(8192, len(content), 4096):
        content[place : place + 64] = b"\xff" * 64
    damaged.write_bytes(content)
    assert "cannot be used" in refusal(store, "store", "restore", str(damaged))
    (tmp_path / "text.db").write_text("no database at all" * 1000)
    assert "cannot be used" in refusal(store, "store", "restore", str(tmp_path / "text.db"))

    other = alone(tmp_path / "other")
    other.cli("store", "migrate")
    assert "master key" in refusal(other, "store", "restore", str(good))
    assert store.cli_json("account", "list") == before
    assert not [each for each in data.iterdir() if "replaced" in each.name]


def test_a_backup_whose_ledger_was_altered_is_refused(data: Path, tmp_path: Path) -> None:
    store, file = alone(data), tmp_path / "backup.db"
    store.cli("store", "migrate")
    store.cli("event", "publish", "--account", "default", "--type", "invoice.paid", "--data", '{"invoice": 17}')
    store.cli("audit", "export", "--account", "default")  # seals every entry
    store.cli("store", "backup", str(file))
    with closing(apsw.Connection(str(file))) as database:
        database.execute("UPDATE entries SET data = replace(data, '17', '99') WHERE type = 'invoice.paid'")
        assert database.changes() == 1
    error = refusal(store, "store", "restore", str(file))
    assert "the ledger of default" in error
    assert "differs from what was sealed" in error
    assert sorted(each.name for each in data.glob("gatepost.*")) == ["gatepost.db"]
    assert problems(store) == []
    assert "only --after-pitr" in refusal(store, "store", "restore", "--after-pitr", "--skip-ledger-check")
    assert "not verified" in store.cli("store", "restore", str(file), "--skip-ledger-check").stdout
    assert problems(store) == ["ledger of default"]


def test_a_restore_that_was_interrupted_is_not_served(data: Path, tmp_path: Path) -> None:
    store = alone(data)
    store.cli("store", "migrate")
    store.cli("store", "backup", str(tmp_path / "backup.db"))
    marker.put(data / "master.key", data / "gatepost.db", restoring=True)
    (data / "gatepost.db").unlink()
    assert "interrupted" in refusal(store, "serve")
    store.cli("store", "restore", str(tmp_path / "backup.db"))
    assert problems(store) == []


def test_a_copy_made_by_other_tools_can_be_restored(data: Path, tmp_path: Path) -> None:
    store = alone(data)
    store.cli("store", "migrate")
    store.execute(f"VACUUM INTO '{tmp_path / 'copy.db'}'")
    assert files.made_at(tmp_path / "copy.db") is not None
    store.cli("store", "restore", str(tmp_path / "copy.db"))
    assert problems(store) == []


# --- PostgreSQL


def published(gatepost: Service) -> set[str]:
    return {each["kid"] for each in gatepost.session.get(f"{gatepost.url}/oauth/jwks").json()["keys"]}


def test_on_postgresql_its_own_tools_are_named(postgres_url: str, tmp_path: Path) -> None:
    store = command.alone(tmp_path / "data", postgres_url)
    store.cli("store", "migrate")
    assert "pg_dump" in refusal(store, "store", "backup", str(tmp_path / "backup.db"))
    assert "--after-pitr" in refusal(store, "store", "restore", str(tmp_path / "backup.db"))


def view(gatepost: Service, token: str) -> int:
    """The status with which the operator's view responds to the token."""
    headers = {"Authorization": f"Bearer {token}"}
    return gatepost.session.get(f"{gatepost.ops}/operator/accounts", headers=headers).status_code


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_after_a_restore_by_other_means_every_token_ends(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    with service.running(tmp_path / "data", database, only="web", operator_console="true") as gatepost:
        people = Platform(gatepost, "acme")
        tokens = people.tokens()
        operator = gatepost.cli_json("operator", "token", "--lifetime", "8h")["token"]
        assert view(gatepost, operator) == 200
        old = {each["id"] for each in gatepost.cli_json("key", "list") if each["status"] in ("active", "announced")}
        output = gatepost.cli("store", "restore", "--after-pitr").stdout
        assert re.search(r"Revoked 1 consents", output)
        assert people.introspect(tokens["access_token"]) == {"active": False}
        assert people.refresh(tokens["refresh_token"]).status_code == 400
        assert view(gatepost, operator) == 401
        new = {each["id"] for each in gatepost.cli_json("key", "list") if each["status"] in ("active", "announced")}
        assert not old & new
        wait_until(lambda: published(gatepost) == new)  # the key set is served from memory, and renewed
        assert people.introspect(people.tokens()["access_token"])["active"] is True
