"""The Express and Go examples: a request with a token publishes an event, which comes back as a webhook."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.clients.toolchains import compile_go, compile_typescript
from tests.examples.programs import EXAMPLES
from tests.interop import npm
from tests.service import Service, free_ports
from tests.waiting import LIMIT

EXPRESS = json.loads((EXAMPLES / "express" / "package.json").read_text("utf-8"))["dependencies"]["express"]

pytestmark = pytest.mark.xdist_group("examples-express-and-go")


def express(directory: Path) -> list[str]:
    """Install the example with the compiled client and Express."""
    client = compile_typescript(directory)
    app = directory / "app"
    (app / "node_modules" / "@gatepost").mkdir(parents=True)
    (app / "node_modules" / "@gatepost" / "client").symlink_to(client)
    (app / "node_modules" / "express").symlink_to(npm.installed(f"express@{EXPRESS}") / "node_modules" / "express")
    shutil.copy(EXAMPLES / "express" / "app.mjs", app)
    return ["node", str(app / "app.mjs")]


def go(directory: Path) -> list[str]:
    return [str(compile_go(EXAMPLES / "go", directory / "app"))]


@contextmanager
def serving(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"serving {environment['RESOURCE']}\n"
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT)


@pytest.mark.parametrize("install", [express, go])
def test_a_payment_is_delivered_to_the_application(
    install: Callable[[Path], list[str]], sqlite_gatepost: Service, account_name: str, tmp_path: Path
) -> None:
    command = install(tmp_path)
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    _, first = sqlite_gatepost.account(account_name)
    token = sqlite_gatepost.token(first, "gatepost:scopes gatepost:clients gatepost:endpoints gatepost:subscriptions")
    assert sqlite_gatepost.post("/oauth/scopes", token, {"name": "invoices:pay", "resource": url}).ok
    robot = sqlite_gatepost.define_client(token, scope="invoices:pay")
    endpoint = sqlite_gatepost.post("/webhooks/endpoints", token, {"url": f"{url}/webhooks"}).json()
    subscription = {"endpoint_id": endpoint["id"], "events": ["invoice.*"]}
    assert sqlite_gatepost.post("/webhooks/subscriptions", token, subscription).ok
    environment = {
        "GATEPOST": sqlite_gatepost.url, "EVENTS": sqlite_gatepost.ops, "CLIENT_ID": first.id,
        "CLIENT_SECRET": first.secret, "RESOURCE": url, "WEBHOOK_SECRET": endpoint["secret"], "PORT": str(port),
    }  # fmt: skip
    with serving(command, environment) as process:

        def pay(**headers: str) -> requests.Response:
            return requests.post(f"{url}/invoices/17/pay", headers=headers, timeout=LIMIT)

        refused = pay()
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        forbidden = pay(Authorization=f"Bearer {token}")
        assert forbidden.status_code == 401, "a token for Gatepost itself"
        assert (
            'error="invalid_token", error_description="The token is for another audience."'
            in (forbidden.headers["WWW-Authenticate"])
        )
        paid = pay(Authorization=f"Bearer {sqlite_gatepost.token(robot, 'invoices:pay')}")
        assert paid.status_code == 200, paid.text
        assert paid.json()["paid"] == 17
        assert process.stdout is not None
        assert process.stdout.readline().startswith(f'received {paid.json()["event"]} {{"')
        assert requests.post(f"{url}/webhooks", json={"id": "evt_1"}, timeout=LIMIT).status_code == 400


@pytest.mark.parametrize("name", ["express/app.mjs", "go/main.go"])
def test_the_example_is_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text("utf-8").splitlines()) < 60
