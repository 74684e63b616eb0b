"""Signing keys rotated and revoked under a running server, and the master key changed at every point of the way."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from click.testing import CliRunner

from gatepost.accounts import server_keys
from gatepost.cli.main import commands
from gatepost.core import clock
from gatepost.core.secrets import new_master_key
from gatepost.oauth.signing_keys import ANNOUNCE
from gatepost.run import app
from tests import command, service
from tests.command import Alone
from tests.service import Client, Service
from tests.waiting import wait_until

SCOPE = "gatepost:scopes"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Service]:
    with service.running(tmp_path / "data", only="web") as running:
        yield running


def first(own: Service) -> Client:
    assert own.first is not None
    return own.first


def key_set(own: Service) -> jwt.PyJWKSet:
    return jwt.PyJWKSet.from_dict(own.session.get(f"{own.url}/oauth/jwks").json())


def verified(own: Service, token: str) -> dict[str, Any]:
    """Verify a token with another library and the current key set. KeyError if the key is not in it."""
    key = key_set(own)[jwt.get_unverified_header(token)["kid"]]
    return jwt.decode(token, key, algorithms=["ES256", "RS256", "EdDSA"], audience=own.url, issuer=own.url)


def accepted(own: Service, token: str) -> bool:
    """Whether the service takes its own token."""
    answer = own.post("/oauth/scopes", token, {"name": "probe"})
    assert answer.status_code in {200, 201, 401}, answer.text
    return answer.status_code != 401


def signer(token: str) -> str:
    return str(jwt.get_unverified_header(token)["kid"])


def keys(own: Service | Alone, alg: str = "ES256") -> dict[str, str]:
    """Status by id, of one algorithm."""
    return {each["id"]: each["status"] for each in own.cli_json("key", "list") if each["alg"] == alg}


# --- rotate


@pytest.fixture
def store(tmp_path: Path) -> Alone:
    """A migrated store without a service, for what only commands show."""
    found = command.alone(tmp_path / "data")
    found.cli("store", "migrate")
    return found


def test_rotate_is_refused_until_the_next_key_was_announced_long_enough(store: Alone) -> None:
    before = keys(store)
    ended = store.cli("key", "rotate", "--alg", "ES256", check=False)
    assert ended.returncode == 4
    assert "24 h" in ended.stderr
    assert "--now" in ended.stderr
    assert keys(store) == before


def test_rotate_now_signs_with_the_announced_key(own: Service) -> None:
    token = own.token(first(own), SCOPE)
    [announced] = [key for key, status in keys(own).items() if status == "announced"]
    others = keys(own, "RS256"), keys(own, "EdDSA")
    ended = own.cli("key", "rotate", "--alg", "ES256", "--now", "--json")
    assert "unknown kid" in ended.stderr
    assert {each["alg"] for each in json.loads(ended.stdout)} == {"ES256"}
    after = own.token(first(own), SCOPE)
    assert signer(after) == announced
    assert verified(own, after)["client_id"] == first(own).id
    assert verified(own, token), "what the retired key signed verifies until it expires"
    assert accepted(own, token)
    assert keys(own)[signer(token)] == "retired"
    assert sorted(keys(own).values()) == ["active", "announced", "retired"]
    assert (keys(own, "RS256"), keys(own, "EdDSA")) == others
    types = [each["type"] for each in own.cli_json("audit", "list", "--account", "gatepost", "--limit", "3")]
    assert sorted(types) == ["oauth.key.activated", "oauth.key.announced", "oauth.key.retired"]


def test_rotate_all_once_the_next_keys_are_known(tmp_path: Path) -> None:
    store = command.alone(tmp_path / "data")
    store.cli("store", "migrate")
    for raw_id, text in store.execute("SELECT id, document FROM signing_keys"):
        long_ago = clock.rfc3339(clock.now() - ANNOUNCE)
        document = json.dumps(json.loads(text) | {"announced_at": long_ago})
        store.execute("UPDATE signing_keys SET document = ? WHERE id = ?", document, raw_id)
    announced = {each["id"] for each in store.cli_json("key", "list") if each["status"] == "announced"}
    ended = store.cli("key", "rotate", "--json")
    assert ended.stderr == "", "nothing was broken, so nothing is said"
    assert {each["id"] for each in store.cli_json("key", "list") if each["status"] == "active"} == announced
    assert len(announced) == 3


# --- revoke


def test_revoke_removes_the_key(own: Service) -> None:
    token = own.token(first(own), SCOPE)
    assert verified(own, token)
    revoked = own.cli_json("key", "revoke", signer(token), "--yes", "--reason", "stolen")
    assert [each["status"] for each in revoked if each["id"] == signer(token)] == ["revoked"]
    wait_until(lambda: signer(token) not in {key.key_id for key in key_set(own).keys})  # web processes reload it
    with pytest.raises(KeyError):
        verified(own, token)
    assert not accepted(own, token)
    after = own.token(first(own), SCOPE)
    assert signer(after) != signer(token)
    assert verified(own, after)["sub"] == first(own).id
    assert accepted(own, after)
    [entry] = own.cli_json("audit", "list", "--account", "gatepost", "--type", "oauth.key.revoked")
    assert entry["subject"] == signer(token)
    assert entry["data"] == {"alg": "ES256", "reason": "stolen"}
    assert entry["actor"] == "operator"


def test_revoke_asks_first(store: Alone) -> None:
    [active] = [key for key, status in keys(store).items() if status == "active"]
    for answer in ("n\n", "\n", ""):
        ended = store.cli("key", "revoke", active, check=False, stdin=answer)
        assert ended.returncode == 1
        assert "tokens that it signed become invalid" in ended.stderr
        assert keys(store)[active] == "active"
    assert store.cli("key", "revoke", active, stdin="y\n").returncode == 0
    assert keys(store)[active] == "revoked"
    for key in (active, "key_nobody"):
        ended = store.cli("key", "revoke", key, "--yes", check=False)
        assert ended.returncode == 3
        assert "gatepost key list" in ended.stderr


def test_revoking_an_announced_key_announces_another(own: Service) -> None:
    [announced] = [key for key, status in keys(own).items() if status == "announced"]
    token = own.token(first(own), SCOPE)
    own.cli("key", "revoke", announced, "--yes")
    assert verified(own, token)
    assert sorted(keys(own).values()) == ["active", "announced", "revoked"]


# --- rewrap


def opens(store: Alone, **settings: str) -> bool:
    ended = store.cli("account", "list", check=False, **settings)
    assert ended.returncode == 0 or "does not open this store" in ended.stderr, ended
    return ended.returncode == 0


def test_rewrap_new_under_a_running_server(own: Service) -> None:
    path = own.directory / "master.key"
    old = path.read_text()
    output = own.cli("key", "rewrap", "--new").stdout
    assert "3 server keys" in output
    assert f"Existing backups still need the old key, which is now in {path}.replaced-" in output
    assert old.strip() not in output
    assert path.read_text() != old
    assert len(path.read_text().split()) == 1
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().strip() not in output, "no key is printed"
    token = own.token(first(own), SCOPE)
    assert verified(own, token), "the server that ran through it goes on"
    here = Alone(own.directory, "", own.environment)
    assert opens(here)
    assert not opens(here, master_key=old.strip())
    own.stop()
    with service.running(own.directory, only="web") as again:
        assert accepted(again, again.token(first(own), SCOPE))
    path.write_text(old)
    ended = here.cli("serve", check=False)
    assert ended.returncode == 2
    assert "does not open this store" in ended.stderr


class Crash(Exception):
    """The end of the process, for who only looks at what it left behind."""


@pytest.mark.parametrize("cut_at", ["write 1", "rename 1", "rewrap 1", "write 2", "rename 2", "write 3", "rename 3"])
def test_rewrap_can_be_cut_short_anywhere(cut_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = command.alone(tmp_path / "data")
    store.cli("store", "migrate")
    step, number = cut_at.split()
    home, name = {
        "write": (app, "write_key_file"),
        "rename": (Path, "replace"),
        "rewrap": (server_keys, "rewrap"),
    }[step]
    whole, calls = getattr(home, name), 0

    def cut(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == int(number):
            raise Crash
        return whole(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(home, name, cut)
        for variable, value in store.environment.items():
            patched.setenv(variable, value)
        with pytest.raises(Crash):
            CliRunner().invoke(commands, ["key", "rewrap", "--new"], catch_exceptions=False)
    assert opens(store)
    assert store.cli_json("store", "migrate") == {"applied": []}, "it opens the store as serve does"
    assert store.cli_json("key", "rewrap", "--new")["rewrapped"] == 3
    assert len((store.directory / "master.key").read_text().split()) == 1
    assert opens(store)


def test_rewrap_finishes_what_was_cut_short(tmp_path: Path) -> None:
    store = command.alone(tmp_path / "data")
    store.cli("store", "migrate")
    old, new = (store.directory / "master.key").read_text().strip(), new_master_key()
    app.write_key_file(store.directory / "master.key", f"{new}\n{old}")
    assert "key rewrap" in store.cli("doctor").stdout
    finished = store.cli_json("key", "rewrap")
    kept = Path(finished.pop("old_key_file"))
    assert finished == {"rewrapped": 3, "keys_left_out": 1, "endpoints_encrypted": 0}
    assert (kept.parent, kept.read_text().strip(), kept.stat().st_mode & 0o777) == (store.directory, old, 0o600)
    assert (store.directory / "master.key").read_text().strip() == new
    unchanged = {"rewrapped": 0, "keys_left_out": 0, "endpoints_encrypted": 0, "old_key_file": None}
    assert store.cli_json("key", "rewrap") == unchanged
    assert opens(store)
    assert not opens(store, master_key=old)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create files for another user")
def test_what_root_creates_belongs_to_the_owner_of_the_data_directory(tmp_path: Path) -> None:
    store = command.alone(tmp_path / "data")
    store.directory.mkdir()
    os.chown(store.directory, 12345, 12346)
    store.cli("store", "migrate")
    store.cli("key", "rewrap", "--new")
    store.cli("store", "backup", str(tmp_path / "backup"))
    store.cli("key", "rewrap", "--new")
    key = store.directory / "master.key"
    key.write_text(
        key.read_text() + "".join(path.read_text() for path in store.directory.glob("master.key.replaced-*"))
    )
    store.cli("store", "restore", str(tmp_path / "backup"))
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in store.directory.iterdir()}
    assert {"master.key", "master.lock", "gatepost.db", "write.lock", "service.lock"} <= owners.keys()
    assert set(owners.values()) == {(12345, 12346)}, owners


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_rewrap_with_keys_from_the_environment(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if database == "postgres" else ""
    old, new = new_master_key(), new_master_key()
    store = command.alone(tmp_path / "data", url, master_key=old)
    store.cli("store", "migrate")
    assert opens(store, master_key=f"{new},{old}")
    assert not opens(store, master_key=new)
    refused = store.cli("key", "rewrap", "--new", check=False)
    assert refused.returncode == 2
    assert "GATEPOST_MASTER_KEY" in refused.stderr
    output = store.cli("key", "rewrap", master_key=f"{new},{old}").stdout
    assert "3 server keys" in output
    assert "remove all but the first key" in output
    assert "Existing backups still need the old key" in output
    assert opens(store, master_key=new)
    assert opens(store, master_key=f"{old},{new}")
    assert not opens(store, master_key=old)
    assert not (store.directory / "master.key").exists(), "no file is written where the environment has the key"


def test_rewrap_of_a_file_elsewhere_leaves_it_alone(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    old, new = new_master_key(), new_master_key()
    app.write_key_file(file, old)
    store = command.alone(tmp_path / "data", master_key_file=str(file))
    store.cli("store", "migrate")
    app.write_key_file(file, f"{new},{old}")
    assert str(file) in store.cli("key", "rewrap").stdout
    assert file.read_text() == f"{new},{old}\n"
    app.write_key_file(file, new)
    assert opens(store)
    assert not opens(store, master_key=old)


def test_a_wrong_first_key_does_not_get_in(tmp_path: Path) -> None:
    store = command.alone(tmp_path / "data", master_key=new_master_key())
    store.cli("store", "migrate")
    stranger = store.cli("key", "rewrap", check=False, master_key=new_master_key())
    assert stranger.returncode == 2
    assert "does not open this store" in stranger.stderr
    assert opens(store)
