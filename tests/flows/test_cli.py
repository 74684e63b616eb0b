"""The command beside a running server: what it prints, what it changes, and how it refuses."""

import errno
import json
import os
import re
import shutil
import socket
import stat
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from gatepost.accounts import SETTINGS
from gatepost.cli import output as standard_output
from gatepost.cli.main import all_commands
from gatepost.core.secrets import new_master_key
from tests import command, service
from tests.service import Client, Service

ADMIN = "gatepost:clients gatepost:scopes"


def refusal(gatepost: Service | command.Alone, *arguments: str) -> str:
    """What a command says that cannot do what was asked: one line on standard error, and an exit code."""
    ended = gatepost.cli(*arguments, check=False)
    assert ended.returncode in {2, 3, 4, 5}, ended
    assert ended.stdout == ""
    assert ended.stderr.startswith("gatepost: ")
    assert ended.stderr.count("\n") == 1
    return ended.stderr


def works(gatepost: Service, client: Client) -> bool:
    answer = gatepost.token_answer(client, ADMIN)
    assert answer.status_code in {200, 401}, answer.text
    return answer.status_code == 200


def types(gatepost: Service, account: str) -> list[str]:
    return [each["type"] for each in gatepost.cli_json("audit", "list", "--account", account)]


def test_an_argument_that_is_not_text_is_refused(sqlite_gatepost: Service, account_name: str) -> None:
    sqlite_gatepost.account(account_name)
    for arguments in (
        ("account", "suspend", account_name, "--reason", "\udcff"),
        ("scope", "create", "\udcff", "--account", account_name),
        ("client", "create", "client_name=\udcff", "--account", account_name),
        ("delivery", "list", "--type", "\udcff", "--account", account_name),
    ):
        assert "not UTF-8" in refusal(sqlite_gatepost, *arguments)


@pytest.mark.parametrize("noun", ["audit", "consent", "delivery", "token"])
def test_a_limit_has_a_maximum(sqlite_gatepost: Service, account_name: str, noun: str) -> None:
    sqlite_gatepost.account(account_name)
    command_line = [noun, "show" if noun == "token" else "list", "--account", account_name, "--limit", "9" * 20]
    ended = sqlite_gatepost.cli(*command_line, check=False)
    assert (ended.returncode, "--limit" in ended.stderr) == (2, True), ended


# --- accounts


def test_account_create_prints_a_client_that_works(gatepost: Service, account_name: str) -> None:
    made = gatepost.cli_json("account", "create", account_name, "access_token_lifetime=10m")
    assert set(made) == {"account", "client_id", "client_secret"}
    assert set(made["account"]) == {"id", "name", "status", "created_at", "settings"}
    assert made["account"]["name"] == account_name
    assert made["account"]["settings"] == {name: each.default for name, each in SETTINGS.items()} | {
        "access_token_lifetime": 600
    }
    answer = gatepost.token_answer(Client(made["client_id"], made["client_secret"]), ADMIN)
    assert answer.json()["expires_in"] == 600


def test_account_create_says_the_secret_to_people_too(gatepost: Service, account_name: str) -> None:
    output = gatepost.cli("account", "create", account_name).stdout
    words = {line.split()[0]: line.split()[1] for line in output.splitlines()}
    assert works(gatepost, Client(words["client_id"], words["client_secret"]))


def test_account_create_with_a_key_has_no_secret(gatepost: Service, account_name: str, tmp_path: Path) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    public = jwt.algorithms.ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [public]}))
    made = gatepost.cli_json("account", "create", account_name, "--jwks", f"@{tmp_path / 'keys.json'}")
    assert made["client_secret"] is None
    now = int(time.time())
    claims = {"iss": made["client_id"], "sub": made["client_id"], "aud": gatepost.url, "iat": now, "exp": now + 60}
    form = {
        "grant_type": "client_credentials",
        "scope": ADMIN,
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": jwt.encode(claims | {"jti": account_name}, private, "ES256"),
    }
    answer = gatepost.session.post(f"{gatepost.url}/oauth/tokens", data=form)
    assert answer.status_code == 200, answer.text


def test_account_create_refuses_and_makes_nothing(gatepost: Service, account_name: str, tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("[]")
    for arguments, words in (
        (["access_token_lifetime=1s"], "60s to 24h"),
        (["access_token_lifetime=999999999d"], "60s to 24h"),
        (["access_token_lifetime=99999999999999d"], "not a duration"),
        (["colour=blue"], "there are: access_token_lifetime"),
        (["access_token_lifetime"], "key=value"),
        (["max_clients=1", "max_clients=2"], "given twice"),
        ([f"login_jwks=@{tmp_path / 'none.json'}"], "cannot read"),
        (["--jwks", f"@{tmp_path / 'no.json'}"], "not a JWK set"),
        (["--jwks", '{"keys": []}'], "1 to 20 keys"),
    ):
        assert words in refusal(gatepost, "account", "create", account_name, *arguments)
    assert "account list" in refusal(gatepost, "account", "show", account_name)
    assert "a-z" in refusal(gatepost, "account", "create", "Not A Name")
    gatepost.account(account_name)
    assert "already" in refusal(gatepost, "account", "create", account_name)
    assert "already" in refusal(gatepost, "account", "create", "gatepost")


def test_account_set_reaches_the_running_server(gatepost: Service, account_name: str, tmp_path: Path) -> None:
    account, client = gatepost.account(account_name)
    key = jwt.algorithms.ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
    (tmp_path / "login.json").write_text(json.dumps({"keys": [key]}))
    changed = gatepost.cli_json(
        "account", "set", account_name, "access_token_lifetime=2m", f"login_jwks=@{tmp_path / 'login.json'}"
    )
    assert changed["settings"]["login_jwks"] == {"keys": [key]}
    assert gatepost.token_answer(client, ADMIN).json()["expires_in"] == 120
    assert gatepost.cli_json("account", "set", account, "access_token_lifetime=")["name"] == account_name
    assert gatepost.token_answer(client, ADMIN).json()["expires_in"] == 3600
    assert "60s to 24h" in refusal(
        gatepost, "account", "set", account_name, "access_token_lifetime=25h", "max_scopes=7"
    )
    assert gatepost.cli_json("account", "show", account_name)["settings"]["max_scopes"] == 1000
    assert types(gatepost, account)[:2] == ["oauth.token.issued", "account.changed"]


def test_account_suspend_and_resume(gatepost: Service, account_name: str) -> None:
    account, client = gatepost.account(account_name)
    token = gatepost.token(client, ADMIN)
    assert gatepost.cli_json("account", "suspend", account_name, "--reason", "unpaid")["status"] == "suspended"
    assert not works(gatepost, client)
    assert gatepost.post("/oauth/scopes", token, {"name": "a"}).status_code == 401
    assert gatepost.cli_json("account", "resume", account)["status"] == "active"
    assert works(gatepost, client)
    assert gatepost.post("/oauth/scopes", token, {"name": "a"}).status_code == 201
    [suspended] = gatepost.cli_json("audit", "list", "--account", account, "--type", "account.suspended")
    assert suspended["data"] == {"reason": "unpaid"}
    assert suspended["actor"] == "operator"


def test_the_operators_account_cannot_be_suspended(gatepost: Service) -> None:
    own = gatepost.cli_json("account", "show", "gatepost")["id"]
    for name in ("gatepost", own):
        assert "cannot be suspended" in refusal(gatepost, "account", "suspend", name)


@pytest.mark.parametrize("name", ["nobody", "acc_zzzzzzzzzzzzzzzzzzzzzzzzzz", "acc_", "Ä", "a b"])
def test_an_unknown_account_is_said_plainly(sqlite_gatepost: Service, name: str) -> None:
    assert "account list" in refusal(sqlite_gatepost, "account", "show", name)


@pytest.mark.parametrize("arguments", [("store", "archive", "{}/archive"), ("audit", "verify")])
def test_an_empty_account_is_not_every_account(
    sqlite_gatepost: Service, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """The value may come from a variable that is not set."""
    filled = [argument.format(tmp_path) for argument in arguments]
    ended = sqlite_gatepost.cli(*filled, "--account", "", check=False)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "there is no account ''" in ended.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        *(("audit", "list", f"--{name}") for name in ("client", "subject", "token", "family", "person")),
        *(("consent", "list", f"--{name}") for name in ("client", "subject")),
        *(("delivery", "list", f"--{name}") for name in ("endpoint", "event", "type")),
    ],
    ids=" ".join,
)
def test_an_empty_filter_is_refused(sqlite_gatepost: Service, account_name: str, arguments: tuple[str, ...]) -> None:
    noun, command, option = arguments
    ended = sqlite_gatepost.cli(noun, command, "--account", account_name, option, "", check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"Invalid value for '{option}': the value is empty" in ended.stderr


def test_tables_show_ids_in_full(gatepost: Service, account_name: str) -> None:
    account, client = gatepost.account(account_name)
    assert account in gatepost.cli("account", "list").stdout
    assert client.id in gatepost.cli("client", "list", "--account", account_name).stdout
    shown = gatepost.cli("account", "show", account_name).stdout
    assert re.search(r"^signing_alg +ES256 +default$", shown, re.MULTILINE)
    assert [each["id"] for each in gatepost.cli_json("account", "list") if each["name"] == account_name] == [account]


# --- clients and scopes


def test_client_disable_and_enable(gatepost: Service, account_name: str) -> None:
    account, client = gatepost.account(account_name)
    token = gatepost.token(client, ADMIN)
    assert gatepost.cli_json("client", "disable", client.id)["status"] == "disabled"
    assert not works(gatepost, client)
    assert gatepost.post("/oauth/scopes", token, {"name": "a"}).status_code == 401
    assert gatepost.cli_json("client", "enable", client.id)["status"] == "active"
    assert works(gatepost, client)
    assert types(gatepost, account)[1:4] == ["oauth.client.changed", "oauth.token.refused", "oauth.client.changed"]


def test_client_rotate_secret_overlaps(gatepost: Service, account_name: str) -> None:
    _, first = gatepost.account(account_name)
    rotated = gatepost.cli_json("client", "rotate-secret", first.id)
    second = Client(first.id, rotated["client_secret"])
    assert works(gatepost, first)
    assert works(gatepost, second)
    output = gatepost.cli("client", "rotate-secret", first.id, "--overlap", "0").stdout
    third = Client(first.id, next(line.split()[1] for line in output.splitlines() if line.startswith("client_secret")))
    assert "not valid any more" in output
    assert works(gatepost, third)
    assert not works(gatepost, first)
    assert not works(gatepost, second)


def test_client_commands_refuse(gatepost: Service, account_name: str) -> None:
    _, client = gatepost.account(account_name)
    public = gatepost.define_client(
        gatepost.token(client, ADMIN), grant_types=["authorization_code"], redirect_uris=["https://app.example/cb"],
        token_endpoint_auth_method="none",
    )  # fmt: skip
    assert "client show" in refusal(gatepost, "client", "rotate-secret", public.id)
    assert gatepost.cli("client", "rotate-secret", public.id, check=False).returncode == 4
    created = ("account", "create", f"{account_name}-keys", "--jwks", '{"keys": []}')
    assert gatepost.cli(*created, check=False).returncode == 2
    assert "--overlap: must be from 0 to 30d" in refusal(
        gatepost, "client", "rotate-secret", client.id, "--overlap", "31d"
    )
    assert "not a duration" in refusal(gatepost, "client", "rotate-secret", client.id, "--overlap", "soon")
    assert "client list" in refusal(gatepost, "client", "show", "cli_nobody")
    assert works(gatepost, client)


def test_client_and_scope_lists(gatepost: Service, account_name: str) -> None:
    account, client = gatepost.account(account_name)
    token = gatepost.token(client, ADMIN)
    names = [f"s{number:03}" for number in range(3)]
    for name in names:
        assert gatepost.post("/oauth/scopes", token, {"name": name, "max_lifetime": 60}).status_code == 201
    second = gatepost.define_client(token, scope="s001", client_name="[red]two\x1b[2J")
    listed = gatepost.cli_json("client", "list", "--account", account_name)
    assert [each["client_id"] for each in listed] == [client.id, second.id]
    assert listed[1] == gatepost.cli_json("client", "show", second.id)
    found = gatepost.cli_json("scope", "list", "--account", account)
    assert [each["name"] for each in found] == names
    assert found[0]["resource"] == f"urn:gatepost:{account}"
    assert "s002" in gatepost.cli("scope", "list", "--account", account_name).stdout
    table = gatepost.cli("client", "list", "--account", account_name).stdout
    assert "[red]two" in table, "nothing is read as markup"
    assert "\x1b" not in table, "no control character reaches the terminal"


def test_no_secret_is_shown_twice(gatepost: Service, account_name: str) -> None:
    _, client = gatepost.account(account_name)
    gatepost.token(client, ADMIN)
    for arguments in (
        ["account", "show", account_name],
        ["account", "list"],
        ["client", "list", "--account", account_name],
        ["client", "show", client.id],
        ["audit", "list", "--account", account_name],
    ):
        for output in (gatepost.cli(*arguments).stdout, gatepost.cli(*arguments, "--json").stdout):
            assert "gps_" not in output
            assert client.secret not in output


# --- the commands as a whole


def leaves(group: click.Group, path: str = "") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, each in group.commands.items():
        found |= leaves(each, f"{path}{name} ") if isinstance(each, click.Group) else {f"{path}{name}": each}
    return found


@pytest.mark.parametrize("path", leaves(all_commands()))
def test_every_command_takes_the_same_options(path: str) -> None:
    found = leaves(all_commands())[path]
    options = {option for each in found.params for option in each.opts}
    without_store = {"simulate plan", "simulate capacity", "completion", "audit check-proof", "token get"}
    if path not in without_store:
        assert {"--data", "--database", "--config"} <= options
    assert "--json" in options or path in {"serve", "audit export", "audit prove", "completion"}  # formats of their own
    assert found.help


def test_flags_win_over_the_environment(tmp_path: Path) -> None:
    one, other = command.alone(tmp_path / "one"), command.alone(tmp_path / "other")
    one.cli("store", "migrate")
    assert "no store" in refusal(other, "account", "list")
    assert other.cli_json("account", "list", "--data", str(one.directory)) == one.cli_json("account", "list")
    (tmp_path / "gatepost.toml").write_text(f'data = "{one.directory}"\n')
    del other.environment["GATEPOST_DATA"]
    assert other.cli_json("account", "list", "--config", str(tmp_path / "gatepost.toml"))


# --- the store


def test_without_a_store_commands_say_what_to_do(tmp_path: Path) -> None:
    nothing = command.alone(tmp_path / "data")
    assert "gatepost serve" in refusal(nothing, "account", "list")
    assert "--data" in refusal(nothing, "store", "check")
    assert not nothing.directory.exists(), "looking makes nothing"


def test_a_data_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    store = command.alone(tmp_path / "data")
    for arguments in (["serve"], ["store", "migrate"], ["account", "list"], ["key", "rewrap"]):
        ended = store.cli(*arguments, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (5, "", 1)
        assert str(tmp_path / "data") in ended.stderr
    ended = store.cli("doctor", "--json", check=False)
    assert (ended.returncode, statuses(ended)["data directory"]) == (1, "problem")


def test_a_secret_that_could_not_be_printed_can_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = command.alone(tmp_path / "data")
    store.cli("store", "migrate")
    monkeypatch.setattr(standard_output, "flush", lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    client = ("grant_types=client_credentials", "scope=gatepost:events")
    for arguments, advice in (
        (("account", "create", "lost"), "gatepost client rotate-secret cli_"),
        (("client", "create", *client, "--account", "default"), "gatepost client rotate-secret cli_"),
        (("operator", "token"), "gatepost operator token"),
    ):
        ended = store.cli(*arguments, check=False)
        assert ended.returncode == 1
        assert "the secret cannot be shown: No space left on device; create a" in ended.stderr
        assert advice in ended.stderr


def test_an_empty_database_is_distinguished_from_a_missing_one(postgres_url: str, tmp_path: Path) -> None:
    empty = command.alone(tmp_path / "data", postgres_url)
    assert "gatepost store migrate" in refusal(empty, "account", "list")
    gone = command.alone(tmp_path / "data", postgres_url.replace("/test_", "/gone_"))
    assert "does not exist" in refusal(gone, "account", "list")


def test_store_migrate_makes_the_first_account_once(tmp_path: Path) -> None:
    store = command.alone(tmp_path / "data", dev="true")
    output = store.cli("store", "migrate").stdout
    assert "applied foundation" in output
    words = {line.split()[0]: line.split()[1] for line in output.splitlines() if line.startswith("  ")}
    again = store.cli("store", "migrate").stdout
    assert "up to date" in again
    assert "client_secret" not in again
    assert store.cli_json("store", "migrate") == {"applied": []}
    assert stat.S_IMODE((store.directory / "master.key").stat().st_mode) == 0o600
    assert not (store.directory / "first-client.json").exists()
    with service.running(store.directory) as running:
        assert running.first is None
        assert works(running, Client(words["client_id"], words["client_secret"]))


@pytest.mark.parametrize("how", ["serve", "migrate", "migrate --json"])
def test_the_first_secret_is_written_to_a_file_without_a_terminal(tmp_path: Path, how: str) -> None:
    """Standard output is no terminal: what is printed may be kept in a log."""
    store = command.alone(tmp_path / "data")
    file = store.directory / "first-client.json"
    if how == "serve":
        with service.running(store.directory, dev=False) as running:
            assert running.first is None
        output = (tmp_path / "data.log").read_text()
    else:
        output = store.cli("store", *how.split()).stdout
    assert str(file) in output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first = json.loads(file.read_text())
    assert first["client_secret"] not in output
    with service.running(store.directory, dev=False) as running:
        assert works(running, Client(first["client_id"], first["client_secret"]))


# --- a store that is gone


@pytest.mark.parametrize("left", ["nothing", "an empty file", "an empty database"])
def test_a_lost_store_is_not_silently_created_again(tmp_path: Path, left: str) -> None:
    """The key is on another volume than the store."""
    key = tmp_path / "keys" / "master.key"
    key.parent.mkdir()
    key.write_text("q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k=")
    key.chmod(0o600)
    store = command.alone(tmp_path / "data", master_key_file=str(key))
    store.cli("store", "migrate")
    shutil.rmtree(store.directory)
    if left != "nothing":
        store.directory.mkdir()
        (store.directory / "gatepost.db").touch()
    if left == "an empty database":
        store.execute("PRAGMA user_version = 1")
    output = refusal(store, "store", "migrate")
    assert "initialised" in output
    assert "store restore" in output
    assert str(key.with_name("master.key.store")) in output
    assert "initialised" in refusal(store, "serve")
    command.alone(tmp_path / "another", master_key_file=str(key)).cli("store", "migrate")  # a new one beside it is fine
    key.with_name("master.key.store").unlink()
    assert "applied foundation" in store.cli("store", "migrate").stdout


def test_store_migrate_on_postgres_as_json(postgres_url: str, tmp_path: Path) -> None:
    store = command.alone(tmp_path / "data", postgres_url)
    made = store.cli_json("store", "migrate")
    assert set(made) == {"applied"}
    assert made["applied"][:3] == ["foundation", "webhooks", "flows"]
    assert [each["name"] for each in store.cli_json("account", "list")] == ["gatepost"]
    assert store.cli_json("account", "create", "default")["client_secret"].startswith("gps_")
    assert {each["name"] for each in store.cli_json("account", "list")} == {"default", "gatepost"}


def statuses(ended: Any) -> dict[str, str]:
    return {each["check"]: each["status"] for each in json.loads(ended.stdout)}


def test_store_check_of_a_served_store(gatepost: Service, account_name: str) -> None:
    gatepost.account(account_name)
    found = statuses(gatepost.cli("store", "check", "--json"))
    assert found.keys() >= {"schema", "integrity", "sealing", f"ledger of {account_name}", "ledger of gatepost"}
    assert set(found.values()) == {"ok"}
    assert "ok       schema" in gatepost.cli("store", "check").stdout


def test_store_check_finds_a_broken_file(tmp_path: Path) -> None:
    store = command.alone(tmp_path / "data")
    store.cli("store", "migrate")
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    [(page,)] = store.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'entries'")
    with (store.directory / "gatepost.db").open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 100)
    ended = store.cli("store", "check", "--json", check=False)
    assert ended.returncode == 1
    assert statuses(ended)["integrity"] == "problem"


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_store_check_finds_another_schema(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if database == "postgres" else ""
    store = command.alone(tmp_path / "data", url)
    store.cli("store", "migrate")
    store.execute("UPDATE migrations SET checksum = 'another'")
    ended = store.cli("store", "check", "--json", check=False)
    assert ended.returncode == 1
    assert statuses(ended)["schema"] == "problem"
    store.execute("INSERT INTO migrations VALUES (9999, 'later', '', 0)")
    assert "newer than this release" in refusal(store, "account", "list")


# --- doctor


def test_doctor_beside_a_running_server(gatepost: Service) -> None:
    ended = gatepost.cli("doctor", "--json")
    found = json.loads(ended.stdout)
    assert all(set(each) == {"check", "status", "found", "do"} for each in found)
    assert set(statuses(ended).values()) == {"ok"}, found
    assert statuses(ended).keys() >= {"settings", "base URL", "master key", "store", "durability", "schema"}
    assert ("clock" in statuses(ended)) == bool(gatepost.database)
    ports = [each["found"] for each in found if each["check"].endswith("port")]
    assert all("in use by this service" in each for each in ports)


def test_doctor_does_not_take_another_service_for_its_own(sqlite_gatepost: Service, tmp_path: Path) -> None:
    """One with the same settings on another store, which is ready and has the same issuer."""
    other = command.alone(tmp_path / "data")
    other.cli("store", "migrate")
    public, plane = (url.rpartition(":")[2] for url in (sqlite_gatepost.url, sqlite_gatepost.ops))
    ended = other.cli("doctor", "--json", check=False, port=public, ops_port=plane, dev="true")
    assert statuses(ended)["public port"] == statuses(ended)["operations port"] == "problem", ended.stdout


def test_doctor_cannot_tell_without_a_store(sqlite_gatepost: Service, tmp_path: Path) -> None:
    nothing = command.alone(tmp_path / "data")
    public, plane = (url.rpartition(":")[2] for url in (sqlite_gatepost.url, sqlite_gatepost.ops))
    ended = nothing.cli("doctor", "--json", port=public, ops_port=plane, dev="true")
    assert statuses(ended)["public port"] == statuses(ended)["operations port"] == "warning", ended.stdout


def test_doctor_before_the_first_start(tmp_path: Path) -> None:
    nothing = command.alone(tmp_path / "data")
    ended = nothing.cli("doctor", "--json")
    assert statuses(ended)["store"] == "warning"
    assert statuses(ended)["base URL"] == "warning", "http without --dev can be used on this machine only"
    assert statuses(ended)["public port"] == "ok"
    assert not nothing.directory.exists(), "looking makes nothing"


def test_doctor_warns_of_misspelt_variables(tmp_path: Path) -> None:
    ended = command.alone(tmp_path / "data").cli("doctor", databse="postgresql://db/x")
    assert "GATEPOST_DATABSE is not a variable of Gatepost" in ended.stdout
    assert "did you mean GATEPOST_DATABASE?" in ended.stdout


def test_doctor_names_each_problem(tmp_path: Path) -> None:
    store = command.alone(tmp_path / "data")
    store.cli("store", "migrate")

    def problems(**settings: str) -> dict[str, str]:
        ended = store.cli("doctor", "--json", check=False, **settings)
        found = {
            each["check"]: each["found"] + each["do"]
            for each in json.loads(ended.stdout)
            if each["status"] == "problem"
        }
        assert ended.returncode == (1 if found else 0)
        return found

    assert problems() == {}
    assert "GATEPOST_BASE_URL: http" in problems(base_url="http://example.com")["settings"]
    assert "does not open" in problems(master_key=new_master_key())["server keys"]
    assert problems(master_key="short").keys() == {"master key", "server keys"}
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert problems(port=str(other.getsockname()[1])).keys() == {"public port"}
    store.execute("PRAGMA journal_mode = DELETE")
    assert "journal_mode is delete" in problems()["durability"]
    (store.directory / "master.key").chmod(0o640)
    assert "chmod 600" in problems()["master key"]
    (store.directory / "master.key").unlink()
    assert "needs the key that it was encrypted with" in problems()["master key"]
    (store.directory / "gatepost.db").write_bytes(b"not a database" * 100)
    assert "file is not a database" in problems()["store"]


def test_doctor_on_postgres(postgres_url: str, tmp_path: Path) -> None:
    store = command.alone(tmp_path / "data", postgres_url)
    ended = store.cli("doctor", "--json", check=False)
    assert ended.returncode == 1
    assert statuses(ended)["schema"] == "problem"
    store.cli("store", "migrate")
    assert statuses(store.cli("doctor", "--json"))["clock"] == "ok"
    store.execute(
        "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql "
        "AS 'SELECT pg_catalog.clock_timestamp() + interval ''1 minute'''"
    )
    name = urlsplit(postgres_url).path[1:]
    store.execute(f"ALTER DATABASE {name} SET search_path = public, pg_catalog")
    store.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    ended = store.cli("doctor", "--json", check=False)
    assert ended.returncode == 1
    assert statuses(ended)["clock"] == "problem"
    assert statuses(ended)["durability"] == "problem"
    gone = command.alone(tmp_path / "data", postgres_url.replace("/test_", "/gone_"))
    assert "check that the database runs" in gone.cli("doctor", check=False).stdout
