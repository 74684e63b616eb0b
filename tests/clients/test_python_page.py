"""The page about the Python client: its code works, and its figures and names are those of the code."""

import re
from typing import Any

import psycopg
import pytest

from gatepost_client import Client, access_tokens, dpop, jwks, sender
from tests.clients.conftest import Platform
from tests.docs.pages import DEFAULT_OPS, DEFAULT_URL, HOW_TO, blocks, prose
from tests.receiver import receiver
from tests.service import Service
from tests.waiting import wait_until

PAGE = HOW_TO / "use-the-python-client.md"
OPERATIONS = "gatepost:endpoints gatepost:subscriptions gatepost:deliveries gatepost:events"


def run_page(replaced: dict[str, str]) -> dict[str, Any]:
    """The names that the code of the page defines."""
    text = "\n".join(blocks(PAGE, "python"))
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    known: dict[str, Any] = {}
    exec(compile(text, PAGE.name, "exec"), known)
    return known


def test_the_code_works(platform: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    with Client(platform.service.url, platform.secret, scope=f"gatepost:clients {OPERATIONS}") as admin:
        scope = f"invoices:read {OPERATIONS}"
        robot = admin.define_client({"client_name": "R", "grant_types": ["client_credentials"], "scope": scope})
    known = run_page(
        {
            DEFAULT_URL: platform.service.url,
            DEFAULT_OPS: platform.service.ops,
            "https://api.example.com": platform.resource,
            "cli_…": robot["client_id"],
            "gps_…": robot["client_secret"],
        }
    )
    with receiver() as target, known["client"]:
        secret = known["subscribe"](target.url)
        known["announce"](17)
        [request] = target.wait_for(1)
        assert known["receive"](secret, request.headers, request.body) == 204
        assert known["receive"](secret, request.headers, b"{}") == 400
        assert known["failed_today"]() == []
        assert known["call"](target.url) == b"ok"
        headers = {name.title(): value for name, value in target.wait_for(2)[1].headers.items()}
        assert known["authorize"]("GET", target.url, headers).client_id == robot["client_id"]
        assert known["authorize"]("GET", target.url, {}) is None
    printed = capsys.readouterr().out
    assert "invoice.paid {'invoice': 17}" in printed
    assert "refused: signature no signature matches a secret" in printed
    assert "401 {'WWW-Authenticate': 'Bearer', 'Cache-Control': 'no-store'} {}" in printed


def test_publishing_in_a_transaction_works(postgres_gatepost: Service, account_name: str) -> None:
    account, _ = postgres_gatepost.account(account_name)
    known = run_page({'account="default"': f'account="{account_name}"'})
    with psycopg.connect(postgres_gatepost.database) as connection:
        known["pay"](connection, 21)

    def published() -> bool:
        found = [each["data"] for each in postgres_gatepost.entries(account) if each["type"] == "invoice.paid"]
        return found == [{"invoice": 21}]

    wait_until(published)


def test_every_check_is_in_the_table() -> None:
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]+)\|", prose(PAGE), re.MULTILINE))))
    assert named >= {check for check in access_tokens.CHECKS if not check.startswith("dpop_")}
    assert "dpop_scheme" in named


def test_figures() -> None:
    text = prose(PAGE)
    for figure in (
        f"every {jwks.DEFAULT_MAX_AGE / 60:.0f} minutes",
        f"with {access_tokens.LEEWAY:.0f} seconds of leeway",
        f"up to {dpop.MAX_REMEMBERED:,}",
        f"up to {dpop.MAX_OF_ONE_KEY:,} of one key",
    ):
        assert figure in text
    assert (sender.RETRIES, sender.LONGEST_WAIT, jwks.RETRY_AFTER) == (3, 60, 60)
    assert re.search(r"up to three times, after `Retry-After` \(at most a minute\)", text)
