"""Token quotas, end to end: the response, the ledger entry, and what they leave alone."""

from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

import pytest
import requests

from gatepost.oauth import refusal_counts, refusals
from gatepost.store.transaction import Tx
from tests.flows.test_client_credentials import Setting
from tests.flows.test_stalled_store import locked
from tests.login import Platform
from tests.service import Client, Service
from tests.waiting import LIMIT, wait_until
from tests.wire import check_refusal


@pytest.fixture
def setting(gatepost: Service, account_name: str) -> Setting:
    return Setting(gatepost, account_name)


def use_up(setting: Setting, client: Client, quota: int, *, used: int = 0) -> requests.Response:
    """Send requests until one is refused. A new minute may begin meanwhile."""
    answers: list[requests.Response] = []
    while not answers or answers[-1].status_code == 200:
        assert len(answers) <= 2 * quota, "the quota does not refuse"
        answers.append(setting.gatepost.token_answer(client, "read"))
    assert len(answers) > quota - used, "the quota refuses too early"
    return answers[-1]


def counted(setting: Setting) -> int:
    """How many refused requests of the client the store has counted."""
    text = "SELECT count FROM refusals WHERE client = :client"
    rows = setting.gatepost.opened.store.read_now(lambda tx: tx.select(text, {"client": setting.client.id}))
    return int(rows[0][0]) if rows else 0


def end_windows(gatepost: Service) -> None:
    """Do what a chore does a minute later."""

    def unit(tx: Tx) -> None:
        refusals.sum_up(tx, refusal_counts.end(tx, tx.at + refusals.WINDOW))

    gatepost.opened.store.run_now(unit)


def refused(setting: Setting) -> list[dict[str, Any]]:
    entries = setting.gatepost.entries(setting.account)
    return [entry["data"] for entry in entries if entry["type"] == "oauth.token.refused"]


def test_requests_beyond_the_quota_of_a_client_are_refused_and_counted_in_one_entry(setting: Setting) -> None:
    assert setting.redefine(max_tokens_per_minute=3)["max_tokens_per_minute"] == 3
    answer = use_up(setting, setting.client, 3)
    check_refusal(answer, "/oauth/tokens", "quota_exceeded", "client", "3 tokens")
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert "Gatepost-Event" not in answer.headers
    number = 1 + sum(setting.gatepost.token_answer(setting.client, "read").status_code == 429 for _ in range(4))
    wait_until(lambda: counted(setting) == number, "the number of refused requests")
    assert refused(setting) == []
    end_windows(setting.gatepost)
    entry = {"error": "quota_exceeded", "rule": "client_max_tokens_per_minute", "count": number}
    assert refused(setting) == [entry]


def test_a_quota_concerns_no_one_else_and_no_wrong_credentials(setting: Setting, account_name: str) -> None:
    setting.redefine(max_tokens_per_minute=2)
    use_up(setting, setting.client, 2)
    sibling = setting.gatepost.define_client(setting.token, scope="read")
    other = Setting(setting.gatepost, f"{account_name}-other")
    for client in (sibling, other.client):
        assert [setting.gatepost.token_answer(client, "read").status_code for _ in range(5)] == [200] * 5
    guessed = setting.gatepost.token_answer(Client(setting.client.id, "gps_wrong"), "read")
    check_refusal(guessed, "/oauth/tokens", "invalid_client")
    wrong = [setting.gatepost.token_answer(Client(sibling.id, "gps_wrong"), "read").status_code for _ in range(3)]
    assert wrong == [401] * 3


def test_the_quota_of_an_account_is_shared_by_its_clients(setting: Setting, account_name: str) -> None:
    setting.gatepost.cli("account", "set", account_name, "max_tokens_per_minute=4")
    sibling = setting.gatepost.define_client(setting.token, scope="read")
    check_refusal(use_up(setting, sibling, 4), "/oauth/tokens", "quota_exceeded", "account")
    check_refusal(use_up(setting, setting.client, 4, used=4), "/oauth/tokens", "quota_exceeded", "account")
    setting.gatepost.cli("account", "set", account_name, "max_tokens_per_minute=")
    wait_until(lambda: setting.gatepost.token_answer(setting.client, "read").status_code == 200, "the quota to end")


def test_a_request_in_progress_counts_until_its_response(setting: Setting) -> None:
    setting.redefine(max_concurrent_token_requests=1)
    assert setting.gatepost.token_answer(setting.client, "read").status_code == 200

    def send(_number: int) -> requests.Response:
        body = {"grant_type": "client_credentials", "scope": "read"}
        headers = {"Authorization": setting.client.basic}
        return requests.post(f"{setting.gatepost.url}/oauth/tokens", data=body, headers=headers, timeout=LIMIT)

    with ThreadPoolExecutor(2) as pool:
        with locked(setting.gatepost):
            done, held = wait([pool.submit(send, number) for number in range(2)], LIMIT, FIRST_COMPLETED)
        [early], [late] = done, held
        check_refusal(early.result(), "/oauth/tokens", "quota_exceeded", "in progress")
        assert early.result().headers["Retry-After"] == "1"
        assert late.result().status_code == 200
    assert setting.gatepost.token_answer(setting.client, "read").status_code == 200


def test_a_refused_request_does_not_use_up_its_code(sqlite_gatepost: Service, account_name: str) -> None:
    platform = Platform(sqlite_gatepost, account_name)
    client = platform.define()
    codes = [platform.code(platform.auth_request(client)) for _ in range(3)]
    sqlite_gatepost.cli("account", "set", account_name, "max_tokens_per_minute=1")
    first = next(code for code in codes if platform.redeem(code, client).status_code == 429)
    sqlite_gatepost.cli("account", "set", account_name, "max_tokens_per_minute=")
    wait_until(lambda: platform.redeem(first, client).status_code == 200, "the quota to end")
