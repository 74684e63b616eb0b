"""Nobody gets at a client that can do more with the service than they can: not to make, change, rotate or read it."""

from typing import Any

import pytest
from joserfc.jwk import ECKey

from gatepost.ledger.operations import OPERATIONS
from tests.service import Client, Service
from tests.wire import check_refusal

OTHERS = [name for name in OPERATIONS if name != "gatepost:clients"]
KEY = dict(ECKey.generate_key("P-256").as_dict(private=False))
CREDENTIALS: dict[str, Any] = {"grant_type": "client_credentials"}


class Limited:
    """A caller with gatepost:clients alone, and for each other scope of the service a client that has it."""

    def __init__(self, gatepost: Service, name: str) -> None:
        self.gatepost = gatepost
        self.account, self.first = gatepost.account(name)
        self.everything = gatepost.token(self.first, " ".join(OPERATIONS))
        self.admin = gatepost.define_client(self.everything, scope="gatepost:clients")
        self.token = gatepost.token(self.admin, "gatepost:clients")
        self.holders = {name: gatepost.define_client(self.everything, scope=name) for name in OTHERS}

    def check_refused(self, body: dict[str, Any], needed: str) -> None:
        answer = self.gatepost.post("/oauth/clients", self.token, body)
        check_refusal(answer, "/oauth/clients", "insufficient_scope", needed)
        challenge = answer.headers["WWW-Authenticate"]
        assert challenge.startswith('Bearer error="insufficient_scope", ')
        assert f'scope="{needed}"' in challenge
        assert f'resource_metadata="{self.gatepost.url}/.well-known/oauth-protected-resource"' in challenge
        assert answer.headers["Gatepost-Event"].startswith("evt_")
        assert "client_id" not in answer.json()

    def shown(self, client: Client) -> dict[str, Any]:
        """The client without the last use of its secrets, which is written some seconds after it."""
        found = dict(self.gatepost.post("/oauth/clients", self.everything, {"client_id": client.id}).json())
        return found | {"secrets": [secret | {"last_used_at": None} for secret in found["secrets"]]}


@pytest.fixture(scope="module")
def limited(gatepost: Service) -> Limited:
    return Limited(gatepost, "escalation")


@pytest.fixture(scope="module")
def sqlite_limited(sqlite_gatepost: Service) -> Limited:
    """For rules that no store can change."""
    return Limited(sqlite_gatepost, "escalation-sqlite")


@pytest.mark.parametrize("needed", OTHERS)
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"client_name": "mine"},
        {"status": "disabled"},
        {"rotate_secret": True},
        {"rotate_secret": {"overlap": 0}},
        {"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [KEY]}},
        {"token_endpoint_auth_method": "client_secret_post"},
        {"scope": ""},
        {"scope": None},
        {"scope": "gatepost:clients"},
        {"grants": [CREDENTIALS | {"scopes": []}]},
        {"unknown": "member"},
    ],
)
def test_reading_or_changing_a_client_with_more_scopes_than_the_caller(
    sqlite_limited: Limited, needed: str, change: dict[str, Any]
) -> None:
    holder = sqlite_limited.holders[needed]
    before = sqlite_limited.shown(holder)
    sqlite_limited.check_refused({"client_id": holder.id} | change, needed)
    assert sqlite_limited.shown(holder) == before
    assert sqlite_limited.gatepost.token_answer(holder, needed).status_code == 200


@pytest.mark.parametrize("needed", OTHERS)
@pytest.mark.parametrize("by", ["scope", "grants", "both"])
def test_creating_a_client_with_more_scopes_than_the_caller(sqlite_limited: Limited, needed: str, by: str) -> None:
    scope = f"gatepost:clients {needed}"
    grants: dict[str, Any] = {"grants": [CREDENTIALS | {"scopes": scope.split()}]}
    members = {"scope": {"scope": scope}, "grants": grants, "both": grants | {"scope": scope}}[by]
    sqlite_limited.check_refused({"grant_types": ["client_credentials"]} | members, needed)


@pytest.mark.parametrize("needed", OTHERS)
def test_adding_scopes_to_the_calling_or_another_client(sqlite_limited: Limited, needed: str) -> None:
    own = sqlite_limited.gatepost.define_client(sqlite_limited.token, scope="")
    for client in (sqlite_limited.admin, own):
        sqlite_limited.check_refused({"client_id": client.id, "scope": f"gatepost:clients {needed}"}, needed)
        grants = [CREDENTIALS | {"scopes": [needed]}]
        sqlite_limited.check_refused({"client_id": client.id, "scope": None, "grants": grants}, needed)
    assert sqlite_limited.shown(sqlite_limited.admin)["scope"] == "gatepost:clients"


def test_the_token_decides_not_the_client(limited: Limited) -> None:
    """The first client holds everything, but a narrower token of its own does not."""
    narrow = limited.gatepost.token(limited.first, "gatepost:clients gatepost:scopes")
    answer = limited.gatepost.post("/oauth/clients", narrow, {"client_id": limited.first.id})
    missing = "gatepost:deliveries gatepost:endpoints gatepost:events gatepost:subscriptions"
    check_refusal(answer, "/oauth/clients", "insufficient_scope", missing)
    assert f'scope="{missing}"' in answer.headers["WWW-Authenticate"]


def test_a_kept_answer_is_subject_to_the_same_rule(limited: Limited) -> None:
    """An Idempotency-Key repeats an answer only to a token that may still read the client."""
    gatepost, key = limited.gatepost, {"Idempotency_Key": "kept"}
    body = {"grant_types": ["client_credentials"], "scope": "gatepost:clients gatepost:events"}
    made = gatepost.post("/oauth/clients", limited.everything, body, **key)
    assert made.status_code == 201, made.text
    narrow = gatepost.token(limited.first, "gatepost:clients")
    refused = gatepost.post("/oauth/clients", narrow, body, **key)
    check_refusal(refused, "/oauth/clients", "insufficient_scope", "gatepost:events")
    assert 'scope="gatepost:events"' in refused.headers["WWW-Authenticate"]
    newest = gatepost.entries(limited.account, 1)[0]
    assert (newest["id"], newest["type"]) == (refused.headers["Gatepost-Event"], "oauth.client.refused")
    wide = gatepost.token(limited.first, "gatepost:clients gatepost:events")
    again = gatepost.post("/oauth/clients", wide, body, **key)
    assert (again.status_code, again.json()["client_id"]) == (201, made.json()["client_id"])
    assert again.headers["Gatepost-Event"] == made.headers["Gatepost-Event"]


def test_a_kept_answer_about_a_client_that_can_do_more_by_now(limited: Limited) -> None:
    gatepost, key = limited.gatepost, {"Idempotency_Key": "kept, then raised"}
    body = {"grant_types": ["client_credentials"], "scope": "gatepost:clients"}
    client = gatepost.post("/oauth/clients", limited.token, body, **key).json()["client_id"]
    assert gatepost.post("/oauth/clients", limited.token, body, **key).status_code == 201
    raised = {"client_id": client, "scope": "gatepost:clients gatepost:deliveries"}
    assert gatepost.post("/oauth/clients", limited.everything, raised).status_code == 200
    refused = gatepost.post("/oauth/clients", limited.token, body, **key)
    check_refusal(refused, "/oauth/clients", "insufficient_scope", "gatepost:deliveries")


def test_a_kept_answer_is_not_for_a_caller_that_was_disabled(limited: Limited) -> None:
    gatepost, key = limited.gatepost, {"Idempotency_Key": "kept, then disabled"}
    caller = gatepost.define_client(limited.everything, scope="gatepost:clients")
    token, body = gatepost.token(caller, "gatepost:clients"), {"grant_types": ["client_credentials"]}
    assert gatepost.post("/oauth/clients", token, body, **key).status_code == 201
    disabled = {"client_id": caller.id, "status": "disabled"}
    assert gatepost.post("/oauth/clients", limited.everything, disabled).status_code == 200
    check_refusal(gatepost.post("/oauth/clients", token, body, **key), "/oauth/clients", "invalid_token")


def test_what_it_may_do(limited: Limited) -> None:
    made = limited.gatepost.define_client(limited.token, scope="gatepost:clients")
    for change in ({"client_name": "renamed"}, {"rotate_secret": True}, {"status": "disabled"}, {}):
        answer = limited.gatepost.post("/oauth/clients", limited.token, {"client_id": made.id} | change)
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "needed"),
    [
        ("/oauth/scopes", "gatepost:scopes"),
        ("/webhooks/endpoints", "gatepost:endpoints"),
        ("/webhooks/subscriptions", "gatepost:subscriptions"),
        ("/webhooks/deliveries", "gatepost:deliveries"),
    ],
)
def test_each_operation_needs_its_scope(sqlite_limited: Limited, path: str, needed: str) -> None:
    method = "GET" if path == "/webhooks/deliveries" else "POST"
    headers = {"Authorization": f"Bearer {sqlite_limited.token}"}
    url = f"{sqlite_limited.gatepost.url}{path}"
    answer = sqlite_limited.gatepost.session.request(method, url, json={"name": "a"}, headers=headers)
    check_refusal(answer, path, "insufficient_scope", needed)
    assert f'scope="{needed}"' in answer.headers["WWW-Authenticate"]
    assert answer.headers["Gatepost-Event"].startswith("evt_")
