"""The FastAPI example: a request with a token pays an invoice, and its event comes back as a webhook."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import requests

from gatepost_client import Client, ClientSecret
from tests.clients.test_python_outbox import asyncpg_url
from tests.docs.pages import ROOT
from tests.examples.programs import EXAMPLES
from tests.service import Service, free_ports
from tests.waiting import LIMIT, wait_until


@contextmanager
def serving(port: int, **environment: str) -> Iterator[None]:
    command = [sys.executable, "-m", "granian", "--interface", "asgi", "--port", str(port), "examples.fastapi_app:app"]
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | environment, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: process.poll() is not None or answers(port), "the application")
        yield
    finally:
        process.terminate()
        process.wait(LIMIT)


def answers(port: int) -> bool:
    try:
        return requests.get(f"http://127.0.0.1:{port}/openapi.json", timeout=LIMIT).ok
    except requests.ConnectionError:
        return False


def test_a_payment_is_delivered_to_the_application(postgres_gatepost: Service, account_name: str) -> None:
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    _, first = postgres_gatepost.account(account_name)
    with Client(postgres_gatepost.url, ClientSecret(first.id, first.secret)) as admin:
        admin.define_scope({"name": "invoices:pay", "resource": url})
        robot = admin.define_client(
            {"client_name": "Robot", "grant_types": ["client_credentials"], "scope": "invoices:pay"}
        )
        endpoint = admin.define_webhook_endpoint({"url": f"{url}/webhooks"})
        admin.define_webhook_subscription({"endpoint_id": endpoint["id"], "events": ["invoice.*"]})
    settings = {
        "GATEPOST": postgres_gatepost.url,
        "RESOURCE": url,
        "ACCOUNT": account_name,
        "WEBHOOK_SECRET": endpoint["secret"],
        "DATABASE": asyncpg_url(postgres_gatepost),
    }
    with (
        serving(port, **settings),
        Client(postgres_gatepost.url, ClientSecret(robot["client_id"], robot["client_secret"])) as payer,
    ):

        def pay(headers: dict[str, str]) -> requests.Response:
            return requests.post(f"{url}/invoices/17/pay", headers=headers, timeout=LIMIT)

        refused = pay({})
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        headers = payer.headers("POST", f"{url}/invoices/17/pay", "invoices:pay")
        assert pay(headers).json() == {"paid": 17}
        assert pay(headers).status_code == 500, "the invoice exists, so neither it nor the event is added"
        wait_until(lambda: [each["status"] for each in admin.deliveries()] == ["succeeded"], "the webhook")
        assert requests.post(f"{url}/webhooks", json={"id": "evt_1"}, timeout=LIMIT).status_code == 400


def test_the_example_is_short() -> None:
    assert len((EXAMPLES / "fastapi_app.py").read_text("utf-8").splitlines()) < 60
