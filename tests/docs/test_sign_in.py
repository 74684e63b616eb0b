"""The sign-in tutorial and the incident guide work, and responses match the reference."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest
import requests

from tests.docs.pages import DEFAULT_URL, DOCS, HOW_TO, REFERENCE, bare, blocks, json_with, prose, rows, section
from tests.docs.reader import Reader
from tests.examples import programs
from tests.examples.programs import EXAMPLES, LOGIN_PORT, PASSWORD, STARTED, take_along
from tests.login import Browser, Platform
from tests.receiver import receiver
from tests.service import free_ports
from tests.waiting import LIMIT

HTTP = REFERENCE / "http.md"
TUTORIAL = DOCS / "tutorial" / "first-sign-in.md"
INCIDENT = HOW_TO / "read-an-incident.md"

pytestmark = pytest.mark.xdist_group("docs-sign-in")


def test_the_sign_in_tutorial_works(reader: Reader, tmp_path: Path) -> None:
    """A program fills in the form where a person would use a browser."""
    [port] = free_ports(1)
    own = Reader(tmp_path, reader.service)
    (tmp_path / "gatepost-data").symlink_to(reader.service.directory)
    take_along(tmp_path / "examples", {LOGIN_PORT: str(port), DEFAULT_URL: reader.service.url})
    before = {*tmp_path.iterdir(), tmp_path / "village.json"}
    [starts] = [line for line in "\n".join(blocks(TUTORIAL, "sh")).splitlines() if line.endswith(" &")]
    browser = shlex.quote(shlex.join([sys.executable, "-m", programs.__name__, "%s"]))
    person = f"export BROWSER={browser} PYTHONPATH={EXAMPLES.parent}"
    local = {starts: f"{starts}\n{STARTED.format(port=LOGIN_PORT)}", LOGIN_PORT: str(port)}
    [shown] = [text for text in blocks(TUTORIAL, "text") if "Signed in as" in text]
    for number in (1, 2):
        printed = own.run(TUTORIAL, person, local)
        assert set(tmp_path.iterdir()) == before, "nothing is left behind"
        assert "gatepost.example/docs" not in printed, "nothing was refused"
        assert shown in re.sub(r"acc_\w+", "acc_…", printed)
        assert printed.count("Sign in at ") == 1, "the second run of the app refreshes"
        assert len(re.findall(r"^200 ", printed, re.MULTILINE)) == 2
        issued = re.findall(r"oauth\.token\.issued .*(authorization_code|refresh_token)", printed)
        assert len(issued) == 2 * number, "two tokens each time"
        assert len(re.findall(r"^tok_\w+ +family ended ", printed, re.MULTILINE)) == 2 * number
    assert f"`{PASSWORD}`" in prose(TUTORIAL)


# --- an incident


def test_the_incident_guide_works(reader: Reader) -> None:
    """The account has every problem that the guide describes."""
    platform = Platform(reader.service, "incident")
    given = platform.tokens()
    after = platform.refresh(given["refresh_token"]).json()
    assert platform.refresh(after["refresh_token"]).ok
    assert platform.refresh(given["refresh_token"]).status_code == 400
    token = jwt.decode(platform.tokens()["access_token"], options={"verify_signature": False})
    [reused] = platform.entries("oauth.token.reused")
    with receiver((410, {}, b"")) as to:
        made = reader.prepare_delivery("incident-hooks", to)
    variables = {
        "ACCOUNT": "incident", "TOKEN_ID": token["jti"], "FAMILY_ID": reused["subject"], "SUBJECT": token["sub"],
        "CLIENT_ID": platform.client.id, "EVENT_ID": made.event, "DELIVERY_ID": made.delivery,
    }  # fmt: skip
    hooks = {
        f'delivery {command} --account "$ACCOUNT"': f"delivery {command} --account {made.account}"
        for command in ("list", 'explain "$DELIVERY_ID"')
    }
    audience = {"https://api.example.com": platform.api, "--at 1h": "--at 0s"}
    written = "\n".join(f"{name}={value}" for name, value in variables.items())
    printed = reader.run(INCIDENT, written, hooks | audience)
    assert re.search(r"^state +active$", printed, re.MULTILINE)
    assert printed.count("Revoked: 1 access token.") >= 1
    assert re.search(rf"oauth\.token\.reused .*{reused['subject']}", printed)
    assert f'"family": "{reused["subject"]}"' in printed
    assert re.search(r"^tok_\w+ +(live|reused|revoked_by_\w+) ", printed, re.MULTILINE), "what could reach the API"
    assert "oauth.consent.given" in printed
    assert "endpoint_gone" in printed
    assert "incident: intact: " in printed
    assert (reader.directory / "incident.jsonl").read_text().count("\n") > 10
    (reader.directory / "incident.jsonl").unlink()


# --- what the endpoints of the standards answer


class Answers(NamedTuple):
    tokens: dict[str, Any]
    pushed: requests.Response
    userinfo: dict[str, Any]
    introspected: dict[str, Any]
    refresh: dict[str, Any]
    begun: requests.Response


@pytest.fixture(scope="module")
def answers(reader: Reader) -> Answers:
    platform = Platform(reader.service, "answers")
    asked = platform.auth_request(scope="openid offline_access profile things:read")
    tokens = platform.tokens(asked)
    machine = platform.define(grant_types=["client_credentials"], scope="things:read", redirect_uris=[])
    own = reader.service.token(machine, "things:read")
    result = requests.get(
        f"{platform.url}/oauth/userinfo", headers={"Authorization": f"Bearer {tokens['access_token']}"}, timeout=LIMIT
    )
    return Answers(
        tokens,
        platform.post("par", **asked),
        result.json(),
        platform.introspect(own, machine),
        platform.introspect(tokens["refresh_token"]),
        platform.authorize(Browser(), asked),
    )


def test_responses_match_the_examples(answers: Answers) -> None:
    assert answers.pushed.status_code == 201
    assert list(answers.pushed.json()) == list(json_with(HTTP, "request_uri"))
    assert answers.pushed.json()["expires_in"] == json_with(HTTP, "request_uri")["expires_in"]
    assert set(json_with(HTTP, "email")) == {"name", "email", "sub"}
    assert {"name", "sub"} <= set(answers.userinfo)
    assert list(answers.introspected) == list(json_with(HTTP, "active"))


def test_response_members_match_the_tables(answers: Answers) -> None:
    reported = [
        name for row in rows(HTTP, "member of the response", "present when") for name in re.findall(r"`(\w+)`", row[0])
    ]
    assert set(answers.tokens) | {"issued_token_type"} == set(reported)
    [refresh] = [row for row in rows(HTTP, "token", "response", "available to") if "refresh" in row[0]]
    assert list(answers.refresh) == re.findall(r"`(\w+)`", refresh[1])


def test_claims_match_the_tables(answers: Answers) -> None:
    claims = jwt.decode(answers.tokens["access_token"], options={"verify_signature": False})
    result = {bare(row[0]) for row in rows(HTTP, "claim", "value")}
    further = {name for row in rows(HTTP, "further claim", "value") for name in re.findall(r"`(\w+)`", row[0])}
    assert result <= set(claims) <= result | further
    identity = jwt.decode(answers.tokens["id_token"], options={"verify_signature": False})
    [output] = re.findall(r"It has (.+?), and the claims that", prose(HTTP))
    named = set(re.findall(r"`(\w+)`", output))
    assert {"acr", "amr"} <= named
    assert named - {"acr", "amr"} <= set(identity)
    assert set(identity) <= named, "the claims that the scope releases are at userinfo"


def test_responses_to_browsers_match_the_page(answers: Answers) -> None:
    headers = {name.lower() for name in answers.begun.headers}
    table = section(HTTP, "Headers").partition("Response headers:")[2]
    result = {
        name.lower()
        for cell in re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
        for name in cell.strip("`").split("`, `")
    }
    assert headers - result <= {"content-type", "content-length", "date", "server"}
    assert {"location", "set-cookie", "content-security-policy", "referrer-policy"} <= headers
    assert "access-control-allow-origin" not in headers
