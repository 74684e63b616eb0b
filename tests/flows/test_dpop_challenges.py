"""DPoP nonce challenges (RFC 9449, section 8) at the endpoints that authenticate clients.

A challenge is answered before the client is authenticated: it uses up nothing, records nothing and reveals nothing.
"""

from typing import Any

import pytest
import requests
from joserfc.jwk import ECKey

from gatepost.core import ids
from gatepost.web.tokens import ASSERTION_TYPE
from tests.assertions import assertion
from tests.login import Platform
from tests.proofs import Prover
from tests.service import Client, Service
from tests.wire import check_refusal, session_from_new_address

KEY = ECKey.generate_key("P-256", {"kid": "ec"})
ENDPOINTS = ("/oauth/tokens", "/oauth/par")


@pytest.fixture
def platform(gatepost: Service, account_name: str) -> Platform:
    return Platform(gatepost, account_name)


def keyed(platform: Platform) -> Client:
    members = {"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [KEY.as_dict(private=False)]}}
    return platform.define(**members)


def form(platform: Platform, client: Client, path: str) -> dict[str, Any]:
    """A pushed request that is right, or a token request that is refused once the client is authenticated."""
    if path == "/oauth/par":
        return platform.auth_request(client)
    return {"grant_type": "refresh_token", "refresh_token": "x"}


@pytest.mark.parametrize("path", ENDPOINTS)
def test_the_same_assertion_is_accepted_with_the_nonce(platform: Platform, path: str) -> None:
    """Client libraries resend the assertion of the challenged request with a new proof."""
    client = keyed(platform)
    prover, address = Prover(platform.url), platform.url + path
    shown = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion(KEY, client.id, platform.url)}
    sent = form(platform, client, path) | shown
    challenge = requests.post(address, data=sent, headers=prover.headers(path=path, nonce=None))
    check_refusal(challenge, path, "use_dpop_nonce")
    again = requests.post(address, data=sent, headers=prover.headers(path=path, nonce=challenge.headers["DPoP-Nonce"]))
    if path == "/oauth/par":
        assert again.status_code == 201, again.text
    else:
        check_refusal(again, path, "invalid_grant", "refresh_token")
    replayed = requests.post(address, data=sent, headers=prover.headers(path=path))
    check_refusal(replayed, path, "invalid_client")


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_challenge_is_not_ledgered(platform: Platform, path: str) -> None:
    before = platform.entries()
    headers = {"Authorization": platform.client.basic} | Prover(platform.url).headers(path=path, nonce=None)
    answer = requests.post(platform.url + path, data=form(platform, platform.client, path), headers=headers)
    check_refusal(answer, path, "use_dpop_nonce")
    assert "Gatepost-Event" not in answer.headers
    assert platform.entries() == before


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_challenge_looks_the_same_for_every_caller(platform: Platform, path: str) -> None:
    """It depends only on the proof, so it reveals nothing about clients or secrets."""
    prover, client = Prover(platform.url), platform.client
    callers = (client, Client(client.id, "gps_wrong"), Client(ids.new("cli"), "gps_wrong"))
    seen = []
    with session_from_new_address() as session:
        for caller in callers * 4:
            sent = form(platform, caller, path)
            headers = {"Authorization": caller.basic} | prover.headers(path=path, nonce=None)
            answer = session.post(platform.url + path, data=sent, headers=headers)
            seen.append((answer.status_code, answer.content))
        assert set(seen) == {seen[0]}
        wrong = Client(client.id, "gps_wrong")
        headers = {"Authorization": wrong.basic} | prover.headers(path=path)
        answer = session.post(platform.url + path, data=form(platform, wrong, path), headers=headers)
        check_refusal(answer, path, "invalid_client")  # not 429: challenges are not failed authentications


def test_a_missing_proof_is_refused_with_a_nonce(platform: Platform) -> None:
    """RFC 9449, section 8: the client can send its first proof with it."""
    members = {"grant_types": ["client_credentials"], "redirect_uris": None, "scope": "things:read"}
    client = platform.define(dpop_bound_access_tokens=True, **members)
    refused = platform.ask(client, grant_type="client_credentials", scope="things:read")
    check_refusal(refused, "/oauth/tokens", "invalid_dpop_proof")
    prover = Prover(platform.url)
    headers = prover.headers(nonce=refused.headers["DPoP-Nonce"])
    bound = platform.ask(client, headers, grant_type="client_credentials", scope="things:read")
    assert bound.status_code == 200, bound.text
    without = {"Authorization": f"DPoP {bound.json()['access_token']}"}
    for address in (f"{platform.url}/oauth/scopes", f"{platform.gatepost.ops}/events"):
        answer = requests.post(address, json={}, headers=without)
        assert answer.status_code == 401, answer.text
        assert answer.headers["DPoP-Nonce"]
