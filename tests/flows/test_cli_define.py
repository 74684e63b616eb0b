"""The operations as commands: on the store, and through the service with the credentials of a client."""

import importlib
import json
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import gatepost as gatepost_package
from gatepost.cli import kinds, profiles, remote
from gatepost.cli.remote import RemoteOperations
from gatepost.core import ids
from gatepost.core.errors import BadSetting, GatepostError, NotFound, Refused, Unavailable
from tests import command, inside
from tests.flows.shop import Shop, opening
from tests.receiver import Raw, receiver, says, silent
from tests.service import Client, Service, free_ports
from tests.waiting import LIMIT, wait_until


class Commander(NamedTuple):
    """Runs commands for one account, on the store or through the service."""

    gatepost: Service
    account: str
    environment: Mapping[str, str]

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = inside.run(arguments, {**self.gatepost.environment, **self.environment}, check=False)
        assert done.returncode == code, done
        return done

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)

    def actors(self, kind: str) -> set[str]:
        return {entry["actor"] for entry in self.gatepost.entries(self.account) if entry["type"] == kind}


def on_store(gatepost: Service, name: str, account: str) -> Commander:
    return Commander(gatepost, account, {"GATEPOST_ACCOUNT": name})


def by_http(gatepost: Service, account: str, client: Client) -> Commander:
    credentials = {"GATEPOST_CLIENT_ID": client.id, "GATEPOST_CLIENT_SECRET": client.secret}
    return Commander(gatepost, account, credentials | {"GATEPOST_REMOTE": gatepost.url})


@pytest.fixture(params=["store", "remote"])
def commander(request: pytest.FixtureRequest, sqlite_gatepost: Service, account_name: str) -> Iterator[Commander]:
    account, client = sqlite_gatepost.account(account_name)
    if request.param == "store":
        yield on_store(sqlite_gatepost, account_name, account)
    else:
        yield by_http(sqlite_gatepost, account, client)


def test_a_whole_account_is_defined(commander: Commander, account_name: str) -> None:
    scope = commander.json("scope", "create", "read", f"resource=https://{account_name}.example")
    assert commander.json("scope", "create", "read", f"resource=https://{account_name}.example") == scope
    assert commander.json("scope", "set", "read", "max_lifetime=300")["max_lifetime"] == 300
    client = commander.json("client", "create", "client_name=Billing", "grant_types=client_credentials", "scope=read")
    assert client["client_secret"].startswith("gps_")
    changed = commander.json("client", "set", client["client_id"], "client_name=", "contacts=a@b.example,c@d.example")
    assert "client_name" not in changed
    assert changed["contacts"] == ["a@b.example", "c@d.example"]
    assert commander.json("client", "disable", client["client_id"])["status"] == "disabled"
    assert commander.json("client", "enable", client["client_id"])["status"] == "active"
    rotated = commander.run("client", "rotate-secret", client["client_id"], "--overlap", "0").stdout
    assert "not valid any more" in rotated
    assert "gps_" not in json.dumps(commander.json("client", "show", client["client_id"]))
    endpoint = commander.json("endpoint", "create", "url=http://127.0.0.1:9999/", "retry_schedule=600,3600")
    assert endpoint["secret"].startswith("whsec_")
    assert commander.json("endpoint", "disable", endpoint["id"])["status"] == "disabled"
    created = commander.json("subscription", "create", f"endpoint_id={endpoint['id']}", "events=invoice.*,order.*")
    assert created["events"] == ["invoice.*", "order.*"]
    assert commander.json("subscription", "show", created["id"]) == created
    assert [each["id"] for each in commander.json("subscription", "list")] == [created["id"]]
    assert commander.json("subscription", "list", "--endpoint", endpoint["id"])[0]["endpoint_id"] == endpoint["id"]
    assert commander.json("subscription", "set", created["id"], "description=x")["description"] == "x"
    shown = commander.json("endpoint", "show", endpoint["id"])
    assert [each["id"] for each in shown["subscriptions"]] == [created["id"]]
    assert [each["id"] for each in commander.json("endpoint", "list")] == [endpoint["id"]]
    replayed = commander.json("subscription", "replay", created["id"], "--since", "1h", "--failed")
    assert (replayed["replay"]["only"], "from" in replayed["replay"]) == ("failed", True)
    assert commander.json("subscription", "remove", created["id"])["status"] == "removed"
    assert commander.json("subscription", "list") == []
    actors = commander.actors("webhook.endpoint.created")
    assert actors == {commander.environment.get("GATEPOST_CLIENT_ID", "operator")}


def test_refusals_have_exit_codes(commander: Commander, account_name: str) -> None:
    commander.run("scope", "create", "read", f"resource=https://{account_name}.example")
    for code, arguments, words in (
        (2, ("client", "create", "colour=blue"), "the members are client_name"),
        (2, ("client", "create", "client_name=x", "--quiet"), "--save"),
        (2, ("endpoint", "create", "--save", "/no/such/directory/x"), "not a directory"),
        (2, ("endpoint", "create", "--save", ""), "not a file"),
        (2, ("account", "create", "unsaved", "--save", "/dev/null"), "not a file"),
        (2, ("subscription", "replay", ids.new("sub")), "--since"),
        (2, ("client", "crate"), "Did you mean 'create'?"),
        (2, ("clint", "create"), "Did you mean 'client'?"),
        (3, ("client", "show", ids.new("cli")), "no such client|has no client"),
        (3, ("endpoint", "set", ids.new("ep"), "timeout=3"), "no such endpoint|has no endpoint"),
        (3, ("subscription", "show", ids.new("sub")), "no such subscription|has no subscription"),
        (3, ("delivery", "show", ids.new("dlv")), "there is no delivery"),
        (3, ("delivery", "show", "dlv_x"), "there is no delivery|not an id"),
        (3, ("subscription", "create", f"endpoint_id={ids.new('ep')}", "events=*"), "endpoint"),
        (4, ("scope", "create", "read", "resource=https://other.example"), "another definition"),
        (4, ("scope", "create", "read", "description=other"), "`gatepost scope set` changes it"),
        (2, ("endpoint", "create", "url=http://127.0.0.1:9999/", "timeout=99"), "timeout"),
        (2, ("client", "create", "grant_types=client_credentials", "scope=unknown"), "unknown"),
        (2, ("client", "create", "grant_types=foo"), "grant_types"),
        (2, ("scope", "create", "a:b", "max_lifetime=x"), "max_lifetime"),
        (2, ("scope", "create", "openid"), "reserved$"),
        (2, ("scope", "create", "name=x"), "name alone"),
        (2, ("scope", "create", "resource=https://a.example", "x"), "name alone"),
        (2, ("subscription", "create"), "endpoint_id"),
        (2, ("endpoint", "rotate-secret", ids.new("ep"), "--overlap", "8d"), "--overlap: must be from 0 to 7d"),
    ):
        assert re.search(words, commander.run(*arguments, code=code).stderr), arguments


def test_what_the_account_does_not_have_is_not_found(sqlite_gatepost: Service, account_name: str) -> None:
    account, client = sqlite_gatepost.account(account_name)
    commander = on_store(sqlite_gatepost, account_name, account)
    assert f"{account_name} has no scope nope" in commander.run("scope", "set", "nope", "description=x", code=3).stderr
    assert commander.json("scope", "list") == []
    other, _ = sqlite_gatepost.account(f"{account_name}-2")
    elsewhere = on_store(sqlite_gatepost, f"{account_name}-2", other).run("client", "show", client.id, code=3).stderr
    assert f"{account_name}-2 has no client {client.id}" in elsewhere
    assert "there is no client nope" in commander.run("audit", "list", "--client", "nope", code=3).stderr
    assert "there is no entry evt_nope" in commander.run("audit", "prove", "evt_nope", code=3).stderr


def test_a_token_has_only_the_scopes_of_the_command(sqlite_gatepost: Service, account_name: str) -> None:
    account, client = sqlite_gatepost.account(account_name)
    commander = by_http(sqlite_gatepost, account, client)
    commander.run("endpoint", "list")
    issued = [entry for entry in sqlite_gatepost.entries(account) if entry["type"] == "oauth.token.issued"]
    assert [entry["data"]["scope"] for entry in issued] == ["gatepost:deliveries"]
    created = commander.json("client", "create", "grant_types=client_credentials", "scope=gatepost:events")
    issued = [entry for entry in sqlite_gatepost.entries(account) if entry["type"] == "oauth.token.issued"]
    assert issued[0]["data"]["scope"] == "gatepost:clients gatepost:events"
    assert commander.json("client", "set", created["client_id"], "client_name=x")["client_name"] == "x"


def test_without_permission_the_service_refuses(sqlite_gatepost: Service, account_name: str) -> None:
    account, first = sqlite_gatepost.account(account_name)
    admin = sqlite_gatepost.token(first, "gatepost:clients gatepost:deliveries")
    reader = sqlite_gatepost.define_client(admin, scope="gatepost:deliveries")
    commander = by_http(sqlite_gatepost, account, reader)
    assert commander.json("delivery", "list") == []
    assert "gatepost:endpoints" in commander.run("endpoint", "create", "url=http://127.0.0.1:9999/", code=4).stderr
    wrong = by_http(sqlite_gatepost, account, Client(reader.id, "gps_wrong"))
    ended = wrong.run("delivery", "list", code=4)
    assert "authentication failed" in ended.stderr
    assert "gps_" not in ended.stderr
    [port] = free_ports(1)
    assert "cannot be reached" in commander.run(
        "--remote", f"http://127.0.0.1:{port}", "delivery", "list", code=5
    ).stderr  # fmt: skip


def test_commands_that_need_the_store_say_so(sqlite_gatepost: Service, account_name: str, tmp_path: Path) -> None:
    account, client = sqlite_gatepost.account(account_name)
    commander = by_http(sqlite_gatepost, account, client)
    for arguments in (
        ("account", "list"), ("client", "list"), ("scope", "list"), ("doctor",), ("serve",), ("audit", "verify"),
        ("event", "publish"), ("delivery", "explain", ids.new("dlv")), ("store", "check"),
    ):  # fmt: skip
        if arguments[0] in ("client", "scope", "event"):
            arguments = (*arguments, "--account", account_name)  # noqa: PLW2901
        assert "needs the store" in commander.run(*arguments, code=2).stderr, arguments
    assert (
        "--if-missing"
        in commander.run("endpoint", "create", "url=http://127.0.0.1:9999/", "--if-missing", code=2).stderr
    )
    assert "those of the client" in commander.run("delivery", "list", "--account", account_name, code=2).stderr
    nothing = command.alone(tmp_path / "data")
    for arguments in (("client", "show", ids.new("cli")), ("account", "list")):
        assert nothing.cli(*arguments, check=False).returncode == 5
    assert nothing.cli("token", "get", "--scope", "a", check=False).returncode == 2


def test_create_is_repeatable_and_secrets_are_saved(gatepost: Service, account_name: str, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        return inside.run(arguments, gatepost.environment, check=True).stdout.strip()

    files = [tmp_path / f"{name}.json" for name in ("account", "client", "endpoint")]
    create = ("account", "create", account_name, "--if-missing", "--save", str(files[0]), "--quiet")
    assert run(*create) == run(*create)
    run("scope", "create", "read", "--account", account_name)
    one = ("--account", account_name, "--if-missing", "--quiet")
    machine = ("client_name=Robot", "grant_types=client_credentials", "scope=read", "--save", str(files[1]))
    client = run("client", "create", *machine, *one)
    assert run("client", "create", *machine, *one) == client
    hook = ("url=http://127.0.0.1:9999/", "--save", str(files[2]))
    endpoint = run("endpoint", "create", *hook, *one)
    assert run("endpoint", "create", *hook, *one) == endpoint
    subscribe = ("subscription", "create", f"endpoint_id={endpoint}", "events=a.*,b.c", *one)
    assert run(*subscribe) == run(*subscribe)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert json.loads(files[2].read_text())["secret"].startswith("whsec_")
    token = run("token", "get", "--profile", str(files[1]), "--scope", "read", "--quiet")
    assert token.count(".") == 2
    explained = run("token", "get", "--profile", str(files[1]), "--scope", "other", "--explain")
    assert re.search(r"^scopes_are_granted +false$", explained, re.MULTILINE)
    assert run("delivery", "list", "--profile", str(files[0]), "--json") == "[]"
    files[1].unlink()
    lost = inside.run(("client", "create", *machine, *one), gatepost.environment, check=False)
    assert (lost.returncode, f"rotate-secret {client} --save" in lost.stderr) == (4, True)
    run("client", "rotate-secret", client, "--save", str(files[1]))
    assert run("client", "create", *machine, *one) == client
    unnamed = inside.run(
        ("client", "create", "--if-missing", "--account", account_name), gatepost.environment, check=False
    )
    assert (unnamed.returncode, "client_name" in unnamed.stderr) == (2, True)


def test_ids_resolve_their_account(shop: Shop) -> None:
    delivery = shop.publish()
    shop.status(delivery, "succeeded")
    event = shop.record(delivery)["event"]["id"]
    for arguments in (
        ("client", "show", shop.client.id), ("endpoint", "show", shop.endpoint), ("endpoint", "enable", shop.endpoint),
        ("subscription", "show", shop.subscription), ("delivery", "show", delivery), ("delivery", "explain", delivery),
        ("delivery", "list", "--endpoint", shop.endpoint), ("delivery", "list", "--event", event),
        ("audit", "show", event), ("audit", "list", "--client", shop.client.id), ("delivery", "retry", delivery),
        ("subscription", "list", "--endpoint", shop.endpoint),
    ):  # fmt: skip
        assert shop.gatepost.cli_json(*arguments), arguments
    assert shop.gatepost.cli_json("audit", "show", event)["account"] == shop.account
    missing = shop.gatepost.cli("delivery", "list", check=False)
    assert (missing.returncode, "GATEPOST_ACCOUNT" in missing.stderr) == (2, True)
    other = inside.run(
        ("delivery", "show", delivery), shop.gatepost.environment | {"GATEPOST_ACCOUNT": "default"}, check=False
    )
    assert other.returncode == 3
    for arguments in (("audit", "show", ids.new("evt")), ("delivery", "cancel", ids.new("dlv"))):
        assert shop.gatepost.cli(*arguments, check=False).returncode == 3
    assert shop.gatepost.cli("delivery", "cancel", delivery, check=False).returncode == 4


def test_a_finished_delivery_is_sent_again_through_the_service(sqlite_gatepost: Service, account_name: str) -> None:
    with opening(sqlite_gatepost, account_name, [(500, {}, b""), (200, {}, b"")], "retry_schedule=1h") as shop:
        commander = by_http(shop.gatepost, shop.account, shop.client)

        def refused(delivery: str) -> str:
            return commander.run("delivery", "retry", delivery, code=4).stderr

        delivery = shop.publish()
        wait_until(lambda: shop.record(delivery)["attempts"] != [] and shop.record(delivery)["status"] == "pending")
        planned = shop.record(delivery)["retries"]["next_at"]
        assert f"not finished, and only an operator can retry it earlier; next attempt: {planned}" in refused(delivery)
        shop.cli("delivery", "retry", delivery)
        shop.status(delivery, "succeeded")
        event = shop.record(delivery)["event"]["id"]
        assert commander.json("delivery", "retry", delivery)["replay"]["event_ids"] == [event]
        wait_until(lambda: len(commander.json("delivery", "list", "--event", event)) == 2)
        shop.cli("endpoint", "disable", shop.endpoint)
        assert "it is held, because its endpoint is disabled" in refused(shop.publish())


def test_an_attempt_in_flight_is_not_retried_through_the_service(sqlite_gatepost: Service, account_name: str) -> None:
    with opening(sqlite_gatepost, account_name, Raw(silent)) as shop:
        delivery = shop.publish()
        shop.status(delivery, "in_flight")
        commander = by_http(shop.gatepost, shop.account, shop.client)
        assert "; an attempt is in flight" in commander.run("delivery", "retry", delivery, code=4).stderr


# --- listen


@pytest.mark.parametrize("where", ["store", "remote"])
def test_listen_forwards_new_deliveries(sqlite_shop: Shop, where: str, tmp_path: Path) -> None:
    shop = sqlite_shop
    shop.status(shop.publish("old"), "succeeded")
    on = on_store(shop.gatepost, shop.name, shop.account)
    commander = on if where == "store" else by_http(shop.gatepost, shop.account, shop.client)
    [port] = free_ports(1)
    with (tmp_path / "output").open("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "gatepost", "listen", shop.endpoint, "--forward", f"http://127.0.0.1:{port}/hooks"],
            env={**shop.gatepost.environment, **commander.environment, "PYTHONUNBUFFERED": "1"},
            stdout=output, stderr=output,
        )  # fmt: skip

        def printed() -> str:
            assert process.poll() is None
            return (tmp_path / "output").read_text()

        try:
            wait_until(lambda: "signing secret: whsec_" in printed())
            secret = re.findall(r"whsec_\S+", printed())[0]
            lost = shop.publish("lost")
            wait_until(lambda: f"{lost}  failed: " in printed())
            with receiver((204, {}, b""), port=port) as local:
                delivery = shop.publish("new")
                wait_until(lambda: f"invoice.paid  {delivery}  204\n" in printed())
                [request] = local.requests
            event = gatepost_package.verify(secret, request.headers, request.body)
            assert event["data"] == "new"
            assert request.headers["webhook-id"] == shop.record(delivery)["event"]["id"]
            process.send_signal(2)
            assert process.wait(LIMIT) == 0
        finally:
            process.kill()
            process.wait()


def test_listen_refuses(sqlite_shop: Shop) -> None:
    shop = sqlite_shop
    for code, arguments, words in (
        (2, (shop.endpoint, "--forward", "localhost:3000"), "--forward"),
        (2, (shop.endpoint, "--forward", "http://["), "--forward"),
        *(
            (2, (ids.new("ep"), "--forward", url), "--forward")
            for url in (
                "http://a..b/",
                "http://.example/",
                f"http://{'a' * 64}.example/",
                "http://a%2e%2eb/",
                "http://%0a",
            )
        ),
        (2, (shop.endpoint, "--forward", "http://localhost:3000", "--secret", "abc"), "--secret"),
        (3, (ids.new("ep"), "--forward", "http://localhost:3000"), "there is no endpoint"),
    ):
        ended = shop.gatepost.cli("listen", *arguments, check=False)
        assert (ended.returncode, words in ended.stderr) == (code, True), ended


def test_serve_says_what_to_do_if_a_port_is_taken(tmp_path: Path) -> None:
    store = command.alone(tmp_path / "data")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = store.cli("serve", "--port", str(port), check=False)
    assert ended.returncode == 2
    assert f"--port {port + 1}, or make serve PORT={port + 1}" in ended.stderr


# --- responses of the service


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((200, {}, b'{"hello": 1}'), Unavailable),
        ((200, {}, b"<html>"), Unavailable),
        (Raw(says(b'HTTP/1.1 400 Bad Request\r\nContent-Length: 100\r\n\r\n{"error"')), Unavailable),  # cut off
        ((429, {}, b'{"detail": "later"}'), Unavailable),
        ((503, {}, b'{"detail": "later"}'), Unavailable),
        ((502, {}, b"<html>"), Unavailable),
        ((302, {"Location": "/login"}, b""), Unavailable),
        ((404, {}, b"<html>"), Unavailable),
        ((404, {}, b'{"detail": "what?"}'), Unavailable),
        ((404, {}, b'{"error": {"message": "what?"}}'), Unavailable),
        ((404, {}, b'{"code": "not_found", "detail": "what?"}'), NotFound),
        ((400, {}, b'{"error": "invalid_scope", "error_description": "no"}'), Refused),
        ((400, {}, b'{"code": "invalid_request", "detail": "no"}'), BadSetting),
    ],
)
def test_responses_have_exit_codes(answer: Any, error: type[GatepostError]) -> None:
    with receiver(answer) as local:
        operations = RemoteOperations(profiles.Profile(f"http://127.0.0.1:{local.port}", "cli_1", "gps_1"))
        with pytest.raises(error) as raised:
            operations.request_token("read")
        assert raised.value.exit_code == error.exit_code


@pytest.mark.parametrize("view", ["", "endpoints"])
@pytest.mark.parametrize("data", ["5", "[5]", "[{}]", '{"id": "a"}', '[{"id": "a", "health": 1, "event": 1}]'])
def test_pages_of_another_form_are_not_from_gatepost(view: str, data: str) -> None:
    page = f'{{"access_token": "a", "data": {data}}}'.encode()
    with receiver((200, {}, page)) as local:
        operations = RemoteOperations(profiles.Profile(f"http://127.0.0.1:{local.port}", "cli_1", "gps_1"))
        with pytest.raises(Unavailable, match="not from Gatepost; check --remote"):
            operations.deliveries({"view": view} if view else {})
        with pytest.raises(Unavailable, match="not from Gatepost; check --remote"):
            operations.define(kinds.ENDPOINT, {"url": "https://a.example"})
        with pytest.raises(Unavailable, match="not from Gatepost; check --remote"):
            operations.request_token("read", explain=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"GATEPOST_REMOTE": "https://a..example.com"}, "--remote: must be the base URL"),
        ({"GATEPOST_REMOTE": f"https://{'a' * 64}.example.com"}, "--remote: must be the base URL"),
        ({"GATEPOST_REMOTE": "https://\udcff.example.com"}, "--remote: must be the base URL"),
        ({"GATEPOST_CLIENT_ID": "cli_\udcff"}, "must be UTF-8 text"),
        ({"GATEPOST_CLIENT_SECRET": "gps_\udcff"}, "must be UTF-8 text"),
    ],
)
def test_values_that_no_request_can_have_are_refused(changes: dict[str, str], words: str) -> None:
    right = {"GATEPOST_REMOTE": "https://a.example", "GATEPOST_CLIENT_ID": "cli_1", "GATEPOST_CLIENT_SECRET": "gps_1"}
    ended = inside.run(("delivery", "list"), right | changes, check=False)
    assert (ended.returncode, words in ended.stderr) == (2, True), ended


def test_a_proxy_does_not_see_credentials_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver((200, {}, b'{"access_token": "a"}')) as local, receiver((502, {}, b"")) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("https_proxy", proxy.url)
        profile = profiles.Profile(f"http://127.0.0.1:{local.port}", "cli_1", "gps_1")
        assert importlib.reload(remote).RemoteOperations(profile).request_token("read") == {"access_token": "a"}
        assert proxy.requests == []
