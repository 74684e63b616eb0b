"""Reports from the ledger: entries about a token or a person, tokens that could reach an API, unused scopes."""

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gatepost.core import clock
from tests.login import Platform, decode_jwt
from tests.service import Service


@pytest.fixture
def platform(gatepost: Service, account_name: str) -> Platform:
    return Platform(gatepost, f"reports-{account_name}")


def entries(platform: Platform, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = platform.gatepost.cli_json("audit", "list", "--account", platform.name, *options)
    return found


def after_the_last_entry(platform: Platform) -> str:
    """The time by the service's clock, which differs from this process's by a few milliseconds on PostgreSQL."""
    last = datetime.fromisoformat(entries(platform)[0]["at"])
    return clock.rfc3339(last + timedelta(milliseconds=1))


def test_what_mentions_a_token_a_family_or_a_person(platform: Platform) -> None:
    tokens, others = platform.tokens(), platform.tokens(sub="grace")
    token = decode_jwt(tokens["access_token"])[1]
    platform.refresh(tokens["refresh_token"])
    platform.post("revoke", token=tokens["refresh_token"])
    [issued] = entries(platform, "--token", token["jti"])
    assert issued["data"]["grant_type"] == "authorization_code"
    family = issued["data"]["family"]
    of_family = entries(platform, "--family", family)
    assert [each["type"] for each in of_family] == ["oauth.token.revoked", "oauth.token.issued", "oauth.token.issued"]
    of_person = entries(platform, "--person", token["sub"])
    assert {each["type"] for each in of_person} == {"oauth.consent.given", "oauth.token.issued"}
    other = decode_jwt(others["access_token"])[1]
    assert other["jti"] not in {each["subject"] for each in of_person}
    assert len(of_person) == 3


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (["--person", "acc_nobody.x"], "has no consent", 3),
        (["--token", "tok_1", "--family", "fam_1"], "use one of them", 2),
    ],
)
def test_filters_that_cannot_be_combined(platform: Platform, options: list[str], words: str, code: int) -> None:
    done = platform.gatepost.cli("audit", "list", "--account", platform.name, *options, check=False)
    assert done.returncode == code
    assert words in done.stderr


def test_the_tokens_that_could_reach_an_api(platform: Platform) -> None:
    gatepost = platform.gatepost
    machine = gatepost.define_client(platform.admin, scope="things:read")
    token = decode_jwt(gatepost.token(machine, "things:read"))[1]["jti"]
    person = decode_jwt(platform.tokens()["access_token"])[1]["jti"]
    before = after_the_last_entry(platform)
    gatepost.cli("token", "revoke", "--id", token, "--account", platform.name)
    gatepost.cli("client", "disable", platform.client.id)
    after = after_the_last_entry(platform)

    def reached(at: str, audience: str = platform.api) -> dict[str, str | None]:
        options = ("--account", platform.name, "--audience", audience, "--at", at)
        return {each["id"]: each["ended"] for each in gatepost.cli_json("audit", "reach", *options)}

    assert reached(before) == {token: None, person: None}
    assert reached(after) == {token: "revoked_by_operator", person: "client disabled"}
    assert reached(after, "https://elsewhere.example") == {}
    assert reached("0001-01-01T00:00:00Z") == {}
    assert reached("2h") == {}


def test_the_report_of_unused_scopes(platform: Platform) -> None:
    gatepost = platform.gatepost
    machine = gatepost.define_client(platform.admin, client_name="Robot", scope="things:read things:write")
    gatepost.token(machine, "things:read")
    found = gatepost.cli_json("scope", "report", "--account", platform.name)
    assert [each["scope"] for each in found if each["client"] == machine.id] == ["things:write"]
    gatepost.cli("client", "disable", machine.id)
    found = gatepost.cli_json("scope", "report", "--account", platform.name)
    assert not [each for each in found if each["client"] == machine.id]
    shown = gatepost.cli("scope", "report", "--account", platform.name, "--days", "7").stdout
    assert "first client" in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_our_commands(shell: str) -> None:
    command = [sys.executable, "-m", "gatepost"]
    script = subprocess.run([*command, "completion", shell], capture_output=True, text=True, check=True).stdout
    assert "_GATEPOST_COMPLETE" in script


def test_a_shell_completes_a_command() -> None:
    gatepost = Path(sys.executable).with_name("gatepost")
    asked = os.environ | {"_GATEPOST_COMPLETE": "bash_complete", "COMP_WORDS": "gatepost acc", "COMP_CWORD": "1"}
    done = subprocess.run([gatepost], env=asked, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,account"]


def test_json_is_json(platform: Platform) -> None:
    done = platform.gatepost.cli(
        "audit", "reach", "--account", platform.name, "--audience", platform.api, "--at", "1h", "--json"
    )
    assert json.loads(done.stdout) == []
