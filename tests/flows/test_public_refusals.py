"""Anyone can send requests as a public client: the entries that such requests create are limited."""

from typing import Any

import pytest
import requests

from tests.flows.test_par import pushed
from tests.login import Platform
from tests.service import Client, Service
from tests.wire import check_refusal, session_from_new_address

LONG = "x" * 60_000
REFUSED: dict[str, tuple[str, str, dict[str, str]]] = {
    "refresh": ("tokens", "invalid_grant", {"grant_type": "refresh_token", "refresh_token": "x", "scope": LONG}),
    "code": ("tokens", "invalid_grant", {"grant_type": "authorization_code", "code": LONG, "scope": "a b c"}),
    "no such grant": ("tokens", "unsupported_grant_type", {"grant_type": LONG}),
    "not its grant": ("tokens", "unauthorized_client", {"grant_type": "client_credentials", "scope": LONG}),
    "no grant": ("tokens", "invalid_request", {"scope": LONG}),
    "pushed": ("par", "invalid_request", {"redirect_uri": LONG}),
    "pushed scope": ("par", "invalid_scope", {"scope": LONG}),
    "introspect": ("introspect", "invalid_client", {"token": LONG}),
    "revoke": ("revoke", "invalid_request", {"tokens": LONG}),
}


@pytest.fixture(scope="module")
def platform(gatepost: Service) -> Platform:
    return Platform(gatepost, "public-refusals")


def send(platform: Platform, session: requests.Session, client: Client, name: str) -> requests.Response:
    path, _, changes = REFUSED[name]
    sent = (platform.auth_request(client) if path == "par" else {}) | changes | {"client_id": client.id}
    headers = {"Authorization": client.basic} if client.secret else {}
    return session.post(f"{platform.url}/oauth/{path}", data=sent, headers=headers)


def refusals(platform: Platform, client: Client) -> list[dict[str, Any]]:
    found = platform.entries("oauth.token.refused", "oauth.request.refused")
    return [each for each in found if each["subject"] == client.id]


@pytest.mark.parametrize("name", REFUSED)
def test_ten_refusals_a_minute_are_recorded_individually(platform: Platform, name: str) -> None:
    """The responses do not change: a caller still learns what is wrong, even if others use the client."""
    path, error, _ = REFUSED[name]
    client = platform.define(token_endpoint_auth_method="none")
    with session_from_new_address() as session:
        answers = [send(platform, session, client, name) for _ in range(13)]
    for answer in answers:
        check_refusal(answer, f"/oauth/{path}", error)
    assert [("Gatepost-Event" in answer.headers) for answer in answers] == [True] * 10 + [False] * 3
    entries = refusals(platform, client)
    assert len(entries) == 10
    for entry in entries:
        assert max(len(str(value)) for value in entry["data"].values()) <= 256
    with session_from_new_address() as session:
        assert "Gatepost-Event" in send(platform, session, client, name).headers, "another address has its own count"


def test_refusals_of_an_authenticated_client_are_all_recorded(platform: Platform) -> None:
    """The ledger of an authenticated client's refusals is whole, but what it repeats is cut."""
    client = platform.define()
    with session_from_new_address() as session:
        answers = [send(platform, session, client, "refresh") for _ in range(13)]
    assert {answer.status_code for answer in answers} == {400}
    entries = refusals(platform, client)
    assert [each["id"] for each in reversed(entries)] == [each.headers["Gatepost-Event"] for each in answers]
    assert {each["data"]["scope"] for each in entries} == {"x" * 255 + "…"}


def test_a_public_client_that_is_flooded_still_works(platform: Platform) -> None:
    client = platform.define(token_endpoint_auth_method="none")
    with session_from_new_address() as session:
        for name in ("refresh", "pushed"):
            for _ in range(12):
                send(platform, session, client, name)
    assert pushed(platform, client)
    tokens = platform.tokens(platform.auth_request(client), client)
    assert platform.refresh(tokens["refresh_token"], client).status_code == 200


def test_an_explained_refusal_repeats_no_more(platform: Platform) -> None:
    client = platform.define(grant_types=["client_credentials"], scope="things:read", redirect_uris=[])
    answer = platform.gatepost.token_answer(client, LONG, {"Prefer": "explain"})
    assert answer.json()["decision"] == "refuse"
    [entry] = [each for each in platform.entries("oauth.token.explained") if each["subject"] == client.id]
    assert len(entry["data"]["scope"]) == 256
