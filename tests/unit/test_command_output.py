"""Tables and records fit the terminal, and keep ids whole. Members are parsed by their schemas."""

import importlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from gatepost.accounts import SETTINGS
from gatepost.cli import profiles, show
from gatepost.cli.define import parse_members
from gatepost.cli.kinds import CLIENT, ENDPOINT, SUBSCRIPTION, Kind
from gatepost.core import ids
from gatepost.core.errors import BadSetting, Refused

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
    for name, words in (("none.json", "cannot read"), ("list.json", "JSON object"), ("empty.json", "are missing")):
        with pytest.raises(BadSetting, match=words):
            profiles.load("https://gatepost.example", str(tmp_path / name))
    with pytest.raises(Refused, match="rotate"):
        profiles.check_saved(tmp_path / "empty.json", "client_id", "cli_1", "rotate it")


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
