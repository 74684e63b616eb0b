"""examples/cli_app.py, as a process: a person signs in, it stays signed in, and it takes no answer but its own."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from tests.examples.programs import LoginApplication, Person, command, login_application, run, running
from tests.service import Client, Service, free_ports
from tests.waiting import LIMIT

pytestmark = pytest.mark.xdist_group("example-cli")


class Setting:
    """All four together: the service, the login application, the API, and this client."""

    def __init__(self, login: LoginApplication, api: str, keep: Path) -> None:
        self.login, self.platform, self.api, self.keep = login, login.platform, api, keep
        self.client = self.define()

    def define(self) -> Client:
        return self.platform.define(
            client_name="The command", application_type="native", token_endpoint_auth_method="none",
            redirect_uris=["http://127.0.0.1/callback"], id_token_signed_response_alg="ES256",
            dpop_bound_access_tokens=True,
        )  # fmt: skip

    @property
    def options(self) -> list[str]:
        return ["--issuer", self.platform.url, "--client", self.client.id, "--keep", str(self.keep), "--no-browser"]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command that needs no sign-in."""
        return run("cli_app", *self.options, *arguments)

    @contextmanager
    def started(self) -> Iterator[tuple[str, subprocess.Popen[str]]]:
        """Run a command that needs a sign-in at the address that it prints."""
        process = subprocess.Popen(
            command("cli_app", *self.options, f"{self.api}/things"), text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("Sign in at "):
                    yield line.split()[-1], process
                    return
            raise AssertionError(process.communicate()[1])
        finally:
            process.kill()
            process.communicate()

    def signs_in(self, name: str = "ada") -> list[str]:
        """A person does; what the app printed."""
        with self.started() as (url, process):
            person = Person()
            page = person.goes_to(url)
            assert "The command asks for access" in page.text
            assert person.signs_in(page, name).text == "Done. You may close this window."
            printed, output = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, output
        return printed.splitlines()


@pytest.fixture(scope="module")
def servers(
    sqlite_gatepost: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LoginApplication, str]]:
    [port] = free_ports(1)
    api = f"http://127.0.0.1:{port}"
    with (
        login_application(sqlite_gatepost, "example-cli", tmp_path_factory.mktemp("cli") / "data") as login,
        running("resource_server", "--issuer", sqlite_gatepost.url, "--port", str(port)),
    ):
        for scope in ("things:read", "profile"):
            login.platform.define_scope(name=scope, resource=api, redefine=True)
        yield login, api


@pytest.fixture
def setting(servers: tuple[LoginApplication, str], tmp_path: Path) -> Setting:
    return Setting(*servers, tmp_path / "kept.json")


def test_signing_in_and_staying_so(setting: Setting) -> None:
    who, answer = setting.signs_in()
    assert who == "Signed in as Ada Lovelace"
    status, _, body = answer.partition(" ")
    assert status == "200"
    assert json.loads(body)["for"] == f"{setting.platform.account}.ada"
    assert setting.keep.stat().st_mode & 0o077 == 0
    kept = set()
    for _ in range(2):
        kept.add(json.loads(setting.keep.read_text())["refresh_token"])
        done = setting.run(f"{setting.api}/things")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("200 "), done.stdout
    assert len(kept) == 2, "each refresh token is used once"
    assert setting.keep.stat().st_mode & 0o077 == 0


def test_tokens_are_bound_to_its_key(setting: Setting) -> None:
    """The file without its key is worth nothing."""
    setting.signs_in()
    token = json.loads(setting.keep.read_text())["refresh_token"]
    answer = setting.platform.refresh(token, setting.client)
    assert answer.status_code == 400, answer.text
    assert setting.run(f"{setting.api}/things").stdout.startswith("200 "), "and nothing was used up"


def test_signing_out(setting: Setting) -> None:
    setting.signs_in()
    kept = setting.keep.read_text()
    assert setting.run("--sign-out").stdout == "Signed out.\n"
    assert not setting.keep.exists()
    assert setting.run("--sign-out").returncode == 0, "there is nothing more to do"
    setting.keep.write_text(kept)
    with setting.started() as (url, _):
        assert url, "what was kept is not good any more"


def test_a_person_signs_in_again_after_offboarding(setting: Setting) -> None:
    setting.signs_in("grace")
    setting.login.offboard("grace")
    try:
        assert setting.signs_in("ada")[-2] == "Signed in as Ada Lovelace"
    finally:
        (setting.login.directory / "grace.left").unlink()


def test_a_person_says_no(setting: Setting) -> None:
    with setting.started() as (url, process):
        person = Person()
        assert person.presses(person.goes_to(url), "deny").text.startswith("Done.")
        _, output = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert output == "not signed in: access_denied: the person said no\n"
    assert not setting.keep.exists()


def test_answers_that_are_not_to_its_question(setting: Setting) -> None:
    """Another state, another path: it goes on waiting, and then takes its own."""
    with setting.started() as (url, process):
        asked = {name: value for name, [value] in parse_qs(urlsplit(url).query).items()}
        back = asked["redirect_uri"]
        right = {"state": asked["state"], "iss": setting.platform.url, "code": "x"}
        for sent in (right | {"state": "y"}, {"code": "x", "iss": setting.platform.url}, right | {"state": ""}):
            assert requests.get(back, params=sent).status_code == 400
        assert requests.get(back.replace("callback", "favicon.ico"), params=right).status_code == 400
        person = Person()
        assert person.signs_in(person.goes_to(url)).text.startswith("Done.")
        assert process.communicate(timeout=LIMIT)[0].splitlines()[-1].startswith("200 ")


@pytest.mark.parametrize("issuer", [None, "https://evil.example"])
def test_an_answer_of_another_server(setting: Setting, issuer: str | None) -> None:
    """RFC 9207: a code of another server is not sent to ours, nor ours to another."""
    with setting.started() as (url, process):
        [back], [state] = (parse_qs(urlsplit(url).query)[name] for name in ("redirect_uri", "state"))
        requests.get(back, params={"state": state, "code": "x"} | ({"iss": issuer} if issuer else {}))
        _, output = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert "of another server" in output


def test_what_it_asks_for(setting: Setting) -> None:
    ports = set()
    for _ in range(2):
        with setting.started() as (url, _):
            asked = {name: value for name, [value] in parse_qs(urlsplit(url).query).items()}
            assert asked["code_challenge_method"] == "S256"
            assert len(asked["dpop_jkt"]) == 43
            assert asked["client_id"] == setting.client.id
            where = urlsplit(asked["redirect_uri"])
            assert (where.hostname, where.path) == ("127.0.0.1", "/callback")
            ports.add(asked["code_challenge"])
    assert len(ports) == 2, "made anew each time"
