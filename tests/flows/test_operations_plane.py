"""The operations plane: health, readiness, metrics and the interface's description; only under its own name."""

from pathlib import Path

import pytest

from gatepost.web.ops import operator
from gatepost.web.responses import VERSION
from tests.proofs import Prover
from tests.service import Client, Service, running
from tests.waiting import wait_until

EVENT = b'{"specversion": "1.0", "id": "1", "source": "/ops", "type": "invoice.paid"}'


def test_health_and_readiness(gatepost: Service) -> None:
    alive = {"status": "alive", "instance": gatepost.opened.service.keys.instance}
    assert gatepost.session.get(f"{gatepost.ops}/healthz").json() == alive
    assert gatepost.session.get(f"{gatepost.ops}/readyz").json() == {"status": "ready"}


def test_another_name_is_refused(gatepost: Service) -> None:
    for host in ("evil.example", "evil.example:9090", "127.0.0.1", ""):
        answer = gatepost.session.get(f"{gatepost.ops}/healthz", headers={"Host": host})
        assert answer.status_code in (400, 421), host


def test_further_names_can_be_allowed(tmp_path: Path) -> None:
    allowed = "ops.example.com gatepost.internal:9443"
    with running(tmp_path / "data", ops_allowed_hosts=allowed, only="web") as gatepost:
        for host, status in (
            ("ops.example.com", 200), ("OPS.example.com", 200), ("gatepost.internal:9443", 200),
            (gatepost.ops.removeprefix("http://"), 200), ("gatepost.internal", 421), ("ops.example.com:9443", 421),
            ("ops.example.com.evil.example", 421), ("example.com", 421),
        ):  # fmt: skip
            answer = gatepost.session.get(f"{gatepost.ops}/healthz", headers={"Host": host})
            assert answer.status_code == status, host
        assert gatepost.first is not None
        prover = Prover(gatepost.url)
        proven = prover.headers()
        token = gatepost.token_answer(gatepost.first, "gatepost:events", proven).json()["access_token"]
        for host, htu, status in (
            ("ops.example.com", "https://ops.example.com/events", 200),  # a proxy terminates TLS
            ("ops.example.com", "http://ops.example.com/events", 200),
            ("ops.example.com", "https://gatepost.internal:9443/events", 401),
            (gatepost.ops.removeprefix("http://"), f"{gatepost.ops.replace('http', 'https')}/events", 401),
        ):
            headers = {"Host": host, "Content-Type": "application/cloudevents+json"}
            answer = gatepost.session.post(
                f"{gatepost.ops}/events", data=EVENT, headers=headers | prover.headers("POST", htu, token)
            )
            assert answer.status_code == status, answer.text
            assert status == 200 or "htu must be" in answer.json()["detail"]
        for path in ("/operator", "/operator/", *operator.VIEWS):  # off by default
            assert gatepost.session.get(f"{gatepost.ops}{path}").status_code == 404, path


def test_unknown_paths_and_methods(gatepost: Service) -> None:
    assert gatepost.session.get(f"{gatepost.ops}/oauth/tokens").status_code == 404
    for path in ("/%2Fhealthz", "/console%2F", "/console%2Findex.html"):
        assert gatepost.session.get(f"{gatepost.ops}{path}").status_code == 404, path
    answer = gatepost.session.post(f"{gatepost.ops}/healthz")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/", "/console"])
def test_the_console_is_found_from_the_root(gatepost: Service, path: str) -> None:
    answer = gatepost.session.get(f"{gatepost.ops}{path}", allow_redirects=False)
    assert (answer.status_code, answer.headers["Location"]) == (307, "/console/")
    assert gatepost.session.get(f"{gatepost.ops}{path}").headers["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/events", "/nothing"])
def test_an_unknown_version_is_refused(gatepost: Service, path: str) -> None:
    answer = gatepost.session.get(f"{gatepost.ops}{path}", headers={"Gatepost-Version": "2020-01-01"})
    assert (answer.status_code, answer.json()["code"]) == (400, "unsupported_version")
    assert answer.headers["Gatepost-Version"] == VERSION


def test_the_interface_is_described(gatepost: Service) -> None:
    document = gatepost.session.get(f"{gatepost.ops}/openapi.json").json()
    assert sum(len(operations) for operations in document["paths"].values()) == 6


def test_metrics_count_what_happened(gatepost: Service, account_name: str) -> None:
    def value(name: str) -> float:
        lines = gatepost.session.get(f"{gatepost.ops}/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    issued = 'gatepost_token_requests_total{grant_type="client_credentials",outcome="issued"}'
    before, unknown, sealed = (
        value(issued),
        value("gatepost_unknown_client_total"),
        value("gatepost_sealed_entries_total"),
    )
    _, admin = gatepost.account(account_name)
    gatepost.token(admin, "gatepost:clients")
    gatepost.token_answer(Client("cli_nobody", "x"), "read")
    assert value(issued) == before + 1
    assert value("gatepost_unknown_client_total") == unknown + 1
    wait_until(lambda: value("gatepost_sealed_entries_total") > sealed, "a sealed entry")
    assert "gatepost_unsealed_age_seconds" in gatepost.session.get(f"{gatepost.ops}/metrics").text
