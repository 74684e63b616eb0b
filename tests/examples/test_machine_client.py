"""examples/machine_client.py: a token is asked for once and kept while it is good, by secret and by key."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from examples import machine_client
from examples.machine_client import EARLY, Tokens, by_key, by_secret, own_key
from tests.examples.programs import run, running
from tests.login import Platform
from tests.receiver import receiver
from tests.service import Client, Service, free_ports
from tests.waiting import LIMIT

pytestmark = pytest.mark.xdist_group("example-machine")


class Setting:
    def __init__(self, gatepost: Service, port: int) -> None:
        self.api = f"http://127.0.0.1:{port}"
        self.platform = Platform(gatepost, "example-machine")
        self.platform.define_scope(name="things:read", resource=self.api, redefine=True)

    def define(self, **members: object) -> Client:
        machine = {"grant_types": ["client_credentials"], "scope": "things:read", "redirect_uris": []}
        return self.platform.define(**(machine | members))

    def issued_to(self, client: Client) -> int:
        entries = self.platform.entries("oauth.token.issued")
        return sum(each["actor"] == client.id for each in entries)

    def run(self, client: Client, *arguments: str, secret: str | None = None, scope: str = "things:read") -> list[str]:
        done = run(
            "machine_client", "--issuer", self.platform.url, "--client", client.id, "--scope", scope, *arguments,
            CLIENT_SECRET=client.secret if secret is None else secret,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        assert "Traceback" not in done.stderr
        return (done.stdout + done.stderr).splitlines()


@pytest.fixture(scope="module")
def setting(sqlite_gatepost: Service) -> Iterator[Setting]:
    [port] = free_ports(1)
    with running("resource_server", "--issuer", sqlite_gatepost.url, "--port", str(port)):
        yield Setting(sqlite_gatepost, port)


def test_several_calls_take_one_token(setting: Setting) -> None:
    client = setting.define()
    result = setting.run(client, *[f"{setting.api}/things"] * 3)
    assert [json.loads(line)["for"] for line in result] == [client.id] * 3
    assert setting.issued_to(client) == 1


def test_with_a_key(setting: Setting, tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    keys = run("machine_client", "--key", str(file), "--jwks")
    assert file.stat().st_mode & 0o077 == 0
    assert '"d"' not in keys.stdout
    client = setting.define(token_endpoint_auth_method="private_key_jwt", jwks=json.loads(keys.stdout))
    for _ in range(2):
        [result] = setting.run(client, "--key", str(file), f"{setting.api}/things")
        assert json.loads(result)["for"] == client.id
    assert setting.issued_to(client) == 2


def test_a_refusal_returns_its_entry(setting: Setting) -> None:
    client = setting.define()
    [result] = setting.run(client, f"{setting.api}/things", scope="things:write")
    assert result.startswith("no token: invalid_scope: scope: things:write is not in the client's grant (entry evt_")
    [result] = setting.run(client, f"{setting.api}/things", secret="gps_wrong")
    assert result == "no token: invalid_client: client authentication failed (entry none)"


def test_a_refusal_of_the_api_is_printed(setting: Setting) -> None:
    setting.platform.define_scope(name="things:other", resource=setting.api)
    client = setting.define(scope="things:other")
    [result] = setting.run(client, f"{setting.api}/things", scope="things:other")
    assert ": 403 Bearer error=" in result


# --- keeping a token


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def tokens(setting: Setting, client: Client, clock: Clock) -> Tokens:
    return Tokens(setting.platform.url, "things:read", by_secret(client.id, client.secret), clock)


def test_kept_until_shortly_before_its_end(setting: Setting) -> None:
    clock, client = Clock(), setting.define(access_token_lifetime=120)
    kept = tokens(setting, client, clock)
    first = kept.get()
    clock.now += 120 - EARLY - 1
    assert kept.get() == first
    clock.now += 1
    second = kept.get()
    assert second != first
    clock.now += 1
    assert kept.get() == second
    assert setting.issued_to(client) == 2


def test_many_threads_ask_once(setting: Setting) -> None:
    client = setting.define()
    kept, barrier = tokens(setting, client, Clock()), threading.Barrier(8)

    def get(_: int) -> str:
        barrier.wait(LIMIT)
        return kept.get()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(get, range(8)))) == 1
    assert setting.issued_to(client) == 1


def test_a_token_that_was_refused_is_asked_for_anew(setting: Setting) -> None:
    """Once: an API that refuses every token is not asked for ever."""
    client = setting.define()
    refused = (401, {"www-authenticate": 'Bearer error="invalid_token"'}, b"{}")
    with receiver([refused, (200, {}, b'{"fine": true}')]) as api:
        assert machine_client.call(api.url, tokens(setting, client, Clock())) == {"fine": True}
        sent = [each.headers["authorization"] for each in api.requests]
    assert len(set(sent)) == 2
    assert setting.issued_to(client) == 2
    with receiver(refused) as api, pytest.raises(SystemExit, match="401"):
        machine_client.call(api.url, tokens(setting, client, Clock()))
    assert setting.issued_to(client) == 4


def test_each_assertion_is_another(setting: Setting, tmp_path: Path) -> None:
    sign = by_key("cli_1", own_key(tmp_path / "key.json"), setting.platform.url)
    assert sign() != sign()
