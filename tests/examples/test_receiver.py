"""examples/receiver.py: it accepts what Gatepost signs, and refuses everything else."""

import select
import subprocess

import pytest
import requests

from tests.examples.programs import run, running
from tests.flows.test_delivery import Platform
from tests.service import Service, free_ports
from tests.waiting import LIMIT

pytestmark = pytest.mark.xdist_group("example-receiver")


def line(receiver: subprocess.Popen[str]) -> str:
    assert receiver.stdout is not None
    assert select.select([receiver.stdout], [], [], LIMIT)[0], "nothing is printed"
    return receiver.stdout.readline()


def test_a_webhook_is_verified(sqlite_gatepost: Service) -> None:
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}/hooks"
    platform = Platform(sqlite_gatepost, "example-receiver")
    secret = platform.connect(url, "invoice.*")["secret"]
    with running("receiver", "--port", str(port), WEBHOOK_SECRET=secret) as receiver:
        delivery = platform.send({"invoice": 17})
        assert line(receiver) == 'delivered and verified: invoice.paid {"invoice": 17}\n'
        platform.once(delivery, "succeeded")
        assert requests.post(url, json={"type": "invoice.paid"}).status_code == 400
        assert line(receiver) == "refused: the webhook-id header is missing\n"


def test_a_webhook_of_another_secret_is_refused(sqlite_gatepost: Service) -> None:
    [port] = free_ports(1)
    platform = Platform(sqlite_gatepost, "example-receiver-refuses")
    platform.connect(f"http://127.0.0.1:{port}/hooks", "invoice.*", retry_schedule=[])
    with running("receiver", "--port", str(port), WEBHOOK_SECRET="whsec_b3RoZXI=") as receiver:
        platform.send({"invoice": 17})
        assert line(receiver) == "refused: no signature matches a secret\n"


def test_it_says_what_it_needs() -> None:
    done = run("receiver", WEBHOOK_SECRET="")
    assert done.returncode == 2
    assert "or set WEBHOOK_SECRET" in done.stderr
