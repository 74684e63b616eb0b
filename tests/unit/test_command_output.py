"""Tables and records fit the terminal, and keep ids whole. Members are parsed by their schemas."""

import errno
import importlib
import json
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from gatepost.accounts import SETTINGS
from gatepost.cli import profiles, show
from gatepost.cli.define import parse_members
from gatepost.cli.kinds import CLIENT, ENDPOINT, SUBSCRIPTION, Kind
from gatepost.cli.main import all_commands
from gatepost.cli.output import showing_secret
from gatepost.core import ids
from gatepost.core.errors import BadSetting, GatepostError, Refused
from gatepost.run import app
from gatepost.settings import load

COLUMNS = ("id", "status", "url", "next attempt")
ROWS = [
    (ids.new("dlv"), "pending", f"https://receiver.example/{'long/' * number}hooks", "2026-11-15T08:00:00.000Z")
    for number in (1, 7)
]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_tables_fit_and_keep_ids_whole(width: int) -> None:
    lines = show.table_lines(COLUMNS, ROWS, width)
    text = "\n".join(lines)
    assert all(row[0] in text and row[3] in text for row in ROWS)
    assert max(map(len, lines)) <= width or width == 60, "records do not break words"
    is_table = lines[0].split()[:2] == ["id", "status"]
    assert is_table == (width >= 90)


def test_without_a_terminal_each_row_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show.table(COLUMNS, ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["id", ROWS[0][0], ROWS[1][0]]
    show.table(COLUMNS, [])
    assert capsys.readouterr().out.split() == ["id", "status", "url", "next", "attempt"]


def test_records_are_broken_at_spaces() -> None:
    lines = show.record_lines({"id": "x" * 50, "scope": "one two three", "none": None}, 24)
    assert lines == [f"id    {'x' * 50}", "scope one two three", "none  –"]
    assert show.record_lines({"scope": "first second third fourth"}, 24) == ["scope first second third", "      fourth"]
    assert show.record_lines({"a": "two  spaces"}, 80) == ["a two  spaces"]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (CLIENT, "client_name=Billing = two", "Billing = two"),
        (CLIENT, "client_name=", None),
        (CLIENT, "grant_types=client_credentials,refresh_token", ["client_credentials", "refresh_token"]),
        (CLIENT, 'contacts=["a,b", "c"]', ["a,b", "c"]),
        (CLIENT, "require_pkce=false", False),
        (CLIENT, "access_token_lifetime=600", 600),
        (CLIENT, "access_token_lifetime=soon", "soon"),
        (CLIENT, 'metadata={"a": "1"}', {"a": "1"}),
        (CLIENT, "rotate_secret=true", True),
        (ENDPOINT, "retry_schedule=600, 3600", [600, 3600]),
        (ENDPOINT, "retry_schedule=[]", []),
        (ENDPOINT, "description=12", "12"),
        (SUBSCRIPTION, "events=invoice.*,order.paid", ["invoice.*", "order.paid"]),
        (SUBSCRIPTION, 'filter={"/country": "NL"}', {"/country": "NL"}),
    ],
)
def test_members_are_parsed_by_their_schemas(kind: Kind, text: str, value: Any) -> None:
    assert parse_members(kind, [text], "create") == {text.partition("=")[0]: value}


@pytest.mark.parametrize("text", ["colour=blue", "client_id=cli_1", "account=acc_1", "client_name"])
def test_other_members_are_refused(text: str) -> None:
    with pytest.raises(BadSetting, match=r"member|setting"):
        parse_members(CLIENT, [text], "create")


def test_settings_are_written_as_they_are_parsed() -> None:
    for name, setting in SETTINGS.items():
        if setting.default is not None:
            assert setting.parse(setting.write(setting.default), False) == setting.default, name
    assert SETTINGS["retry_schedule"].write([]) == "none"
    assert SETTINGS["refresh_grace"].write(0) == "0s"
    assert SETTINGS["access_token_lifetime"].write(90) == "90s"
    keys = {"keys": [{"kty": "EC"}]}
    assert json.loads(SETTINGS["login_jwks"].write(keys)) == keys


# --- profiles


def test_a_profile_is_read_only_by_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "acme.json"
    profiles.save(file, {"remote": "https://gatepost.example", "client_id": "cli_1", "client_secret": "gps_1"})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert profiles.load("", str(file)) == ("https://gatepost.example", "cli_1", "gps_1")
    assert profiles.load("https://gatepost.example/", str(file)).remote == "https://gatepost.example"
    with pytest.raises(BadSetting, match="its secret is not sent elsewhere"):
        profiles.load("https://other.example", str(file))
    assert "gps_1" not in repr(profiles.load("", str(file)))
    file.chmod(0o640)
    with pytest.raises(BadSetting, match="chmod 600"):
        profiles.load("", str(file))
    monkeypatch.setenv("GATEPOST_CLIENT_ID", "cli_2")
    with pytest.raises(BadSetting, match="GATEPOST_CLIENT_SECRET"):
        profiles.load("https://gatepost.example", "")
    monkeypatch.setenv("GATEPOST_CLIENT_SECRET", "gps_2")
    assert profiles.load("http://127.0.0.1:8080", "") == ("http://127.0.0.1:8080", "cli_2", "gps_2")


@pytest.mark.parametrize(
    ("remote", "words"),
    [
        ("", "--remote"),
        ("gatepost.example", "base URL"),
        ("https://gatepost.example/oauth", "base URL"),
        ("https://user@gatepost.example", "base URL"),
        ("https://:password@gatepost.example", "base URL"),
        ("https://gatepost.example?", "base URL"),
        ("https://gatepost.example#fragment", "base URL"),
        ("https://gatepost.example:port", "base URL"),
        ("http://[", "base URL"),
        ("http://gatepost.example", "unencrypted"),
        ("http://localhost:1\n", "base URL"),
        (" http://localhost:1", "base URL"),
        ("http://local host:1", "base URL"),
        ("https://gatepost%0a.example", "base URL"),
        ("https://gatepost%2e%2eexample", "base URL"),
    ],
)
def test_a_url_that_is_no_service_is_refused(remote: str, words: str) -> None:
    with pytest.raises(BadSetting, match=words):
        profiles.load(remote, "")


def test_an_unreadable_profile_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "list.json").chmod(0o600)
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "empty.json").chmod(0o600)
    (tmp_path / "deep.json").write_text(f'{{"client_id": {"[" * 5000}{"]" * 5000}}}')
    (tmp_path / "deep.json").chmod(0o600)
    for name, words in (
        ("none.json", "cannot read"), ("list.json", "JSON object"), ("deep.json", "JSON object"),
        ("empty.json", "are missing"),
    ):  # fmt: skip
        with pytest.raises(BadSetting, match=words):
            profiles.load("https://gatepost.example", str(tmp_path / name))
    with pytest.raises(Refused, match="rotate"):
        profiles.check_saved(tmp_path / "empty.json", "client_id", "cli_1", "rotate it")


def test_an_error_of_a_database_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = "permission denied\nLINE 1: SELECT\tnumber\n        ^"
    importlib.import_module("gatepost.cli.main")._report(text)
    assert capsys.readouterr().err == "gatepost: permission denied LINE 1: SELECT number ^\n"
    show.checks([show.Check("store", "ok", text)], as_json=False)
    assert capsys.readouterr().out == "ok       store: permission denied LINE 1: SELECT number ^\n"


def test_control_characters_of_others_do_not_reach_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise Refused("\x1b[2J gone")

    module = importlib.import_module("gatepost.cli.main")
    monkeypatch.setattr(module, "commands", fail)
    with pytest.raises(SystemExit):
        module.main()
    assert capsys.readouterr().err == "gatepost: �[2J gone\n"


# --- how a command ends


def ended(monkeypatch: pytest.MonkeyPatch, command: Callable[[], None]) -> int | str | None:
    """Return the exit code of the program whose command does this."""
    module = importlib.import_module("gatepost.cli.main")
    monkeypatch.setattr(module, "commands", command)
    with pytest.raises(SystemExit) as exit_:
        module.main()
    return exit_.value.code


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


def test_a_file_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    denied = PermissionError(errno.EACCES, "Permission denied", "/srv/gatepost/master.key")
    assert ended(monkeypatch, raising(denied)) == 5
    reported = capsys.readouterr().err
    assert reported.startswith("gatepost: cannot use /srv/gatepost/master.key: Permission denied; check the path")
    assert reported.count("\n") == 1


def test_a_defect_stays_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("gatepost.cli.main")
    monkeypatch.setattr(module, "commands", raising(OSError(errno.EBADF, "Bad file descriptor")))
    with pytest.raises(OSError, match="Bad file"):
        module.main()


@pytest.mark.parametrize("buffered", [True, False])
def test_output_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], buffered: bool
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert ended(monkeypatch, lambda: print("lost", flush=not buffered)) == 1
    assert capsys.readouterr().err == "gatepost: the output cannot be written: No space left on device\n"


def test_closed_output_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    assert ended(monkeypatch, lambda: print(sys.stdout.isatty())) == 0
    sys.stdout.close()


def test_a_lost_secret_is_reported_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(GatepostError, match="No space left on device; rotate it"), showing_secret("rotate it"):
            print("secret")


def test_an_interruption_has_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ended(monkeypatch, raising(KeyboardInterrupt())) == 1


def test_an_interruption_of_the_imports_has_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, _name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "gatepost.cli.main", Interrupted("gatepost.cli.main"))
    with pytest.raises(SystemExit) as exit_:
        importlib.reload(importlib.import_module("gatepost.cli"))
    assert exit_.value.code == 1


def test_every_option_is_described() -> None:
    def commands(group: click.Group) -> Iterator[click.Command]:
        for command in group.commands.values():
            yield from commands(command) if isinstance(command, click.Group) else [command]

    every = [(command.name, option) for command in commands(all_commands()) for option in command.params]
    assert [found for found in every if isinstance(found[1], click.Option) and not found[1].help] == []


# --- the data directory and the master key


def test_a_directory_that_cannot_be_written_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = importlib.import_module("gatepost.cli.doctor")._directory_problem
    assert problem(tmp_path / "new") == problem(tmp_path) == ""
    monkeypatch.setattr("os.access", lambda *_: False)
    assert problem(tmp_path / "new") == f"{tmp_path / 'new'} cannot be created by this user"
    assert problem(tmp_path) == f"{tmp_path} cannot be used by this user"


def test_a_store_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "gatepost.db"
    file.write_text("x")
    monkeypatch.setattr("os.access", lambda *_: False)
    for opening in (app.open_store, app.open_for_use, app.open_for_start):
        with pytest.raises(PermissionError) as raised:
            opening(load({"data": str(tmp_path)}, {}))
        assert raised.value.filename == str(file)


def test_a_new_master_key_is_suggested_only_for_a_new_store(tmp_path: Path) -> None:
    for settings, suggested in (
        ({}, False),
        ({"database": "postgresql://db/x"}, True),
        ({"master_key_file": str(tmp_path / "none")}, True),
    ):
        with pytest.raises(BadSetting, match="needs the key that it was encrypted with") as raised:
            app.master_keys(load({"data": str(tmp_path)} | settings, {}))
        assert ("openssl" in str(raised.value)) == suggested
