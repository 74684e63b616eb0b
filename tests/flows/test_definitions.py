"""Defining clients and scopes: creation, redefinition, rotation, idempotency, limits."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from tests.service import Client, Service
from tests.waiting import wait_until


class Admin:
    """An account's administrator with a token for both operations."""

    def __init__(self, gatepost: Service, name: str, *settings: str) -> None:
        self.gatepost, self.name = gatepost, name
        self.account, self.client = gatepost.account(name, *settings)
        self.token = gatepost.token(self.client, " ".join(ALL))

    def clients(self, body: dict[str, Any], **headers: str) -> requests.Response:
        return self.gatepost.post("/oauth/clients", self.token, body, **headers)

    def scopes(self, body: dict[str, Any], **headers: str) -> requests.Response:
        return self.gatepost.post("/oauth/scopes", self.token, body, **headers)


ALL = [f"gatepost:{noun}" for noun in ("clients", "scopes", "endpoints", "subscriptions", "deliveries", "events")]
MACHINE = {"client_name": "Billing", "grant_types": ["client_credentials"], "scope": "gatepost:deliveries"}


@pytest.fixture
def admin(gatepost: Service, account_name: str) -> Admin:
    return Admin(gatepost, account_name)


def test_a_client_is_created_with_everything_it_needs(admin: Admin) -> None:
    answer = admin.clients(MACHINE | {"metadata": {"team": "blue"}, "contacts": ["ops@example.com"]})
    body = answer.json()
    assert answer.status_code == 201
    assert body["client_id"].startswith("cli_")
    assert body["client_secret"].startswith("gps_")
    assert body["client_secret_expires_at"] == 0
    assert body["account"] == admin.account
    assert body["metadata"] == {"team": "blue"}
    assert [(each["grant_type"], each["scopes"]) for each in body["grants"]] == [
        ("client_credentials", ["gatepost:deliveries"])
    ]
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Gatepost-Event"].startswith("evt_")


def test_an_id_alone_returns_the_client_and_writes_nothing(admin: Admin) -> None:
    made = admin.clients(MACHINE).json()
    before = admin.gatepost.entries(admin.account)
    answer = admin.clients({"client_id": made["client_id"]})
    assert answer.status_code == 200
    assert "client_secret" not in answer.json()
    assert answer.json()["client_name"] == "Billing"
    assert admin.gatepost.entries(admin.account) == before


def test_only_the_members_sent_change_and_null_removes(admin: Admin) -> None:
    made = admin.clients(MACHINE | {"software_id": "x", "metadata": {"a": "b"}}).json()
    answer = admin.clients({"client_id": made["client_id"], "client_name": "Renamed", "metadata": None})
    assert answer.status_code == 200
    changed = answer.json()
    assert changed["client_name"] == "Renamed"
    assert "metadata" not in changed
    assert changed["software_id"] == "x"
    assert changed["grants"] == made["grants"]
    assert "client_secret" not in changed


def test_values_that_are_equal_only_in_python_are_a_change(admin: Admin) -> None:
    made = admin.clients(MACHINE | {"claims": {"admin": 1, "list": [0], "f": 2}}).json()
    changed = {"admin": True, "list": [False], "f": 2.0}
    answer = admin.clients({"client_id": made["client_id"], "claims": changed})
    assert json.dumps(answer.json()["claims"]) == json.dumps(changed)
    assert "Gatepost-Event" in answer.headers


def test_grants_become_explicit_or_built_though_they_look_the_same(admin: Admin) -> None:
    made = admin.clients(MACHINE).json()
    own = {"client_id": made["client_id"]}
    wider = own | {"scope": "gatepost:deliveries gatepost:events"}
    assert "Gatepost-Event" in admin.clients(own | {"grants": made["grants"]}).headers
    assert admin.clients(wider).status_code == 400
    assert "Gatepost-Event" in admin.clients(own | {"grants": None}).headers
    assert admin.clients(wider).json()["grants"][0]["scopes"] == ["gatepost:deliveries", "gatepost:events"]


def test_an_expired_secret_is_not_listed(admin: Admin) -> None:
    client = admin.clients(MACHINE).json()["client_id"]
    assert len(admin.clients({"client_id": client, "rotate_secret": {"overlap": 1}}).json()["secrets"]) == 2
    wait_until(lambda: len(admin.clients({"client_id": client}).json()["secrets"]) == 1, "the end of the overlap")


def test_an_unknown_id_is_not_found(admin: Admin) -> None:
    for client_id in ("cli_00000000000000000000000000", "nonsense", "", 5, ["cli"]):
        answer = admin.clients({"client_id": client_id, "client_name": "x"})
        assert answer.status_code == 404, client_id


def test_a_secret_rotates_with_overlap(admin: Admin) -> None:
    first = Client(admin.clients(MACHINE).json()["client_id"], "")
    made = admin.clients({"client_id": first.id, "rotate_secret": {"overlap": 0}}).json()
    one = Client(first.id, made["client_secret"])
    two = Client(first.id, admin.clients({"client_id": first.id, "rotate_secret": True}).json()["client_secret"])
    scope = "gatepost:deliveries"
    assert admin.gatepost.token_answer(one, scope).status_code == 200
    assert admin.gatepost.token_answer(two, scope).status_code == 200
    last = admin.clients({"client_id": first.id, "rotate_secret": {"overlap": 60}}).json()
    three = Client(first.id, last["client_secret"])
    assert [admin.gatepost.token_answer(each, scope).status_code for each in (one, two, three)] == [401, 200, 200]
    assert len(last["secrets"]) == 2


class TestScopes:
    def test_the_same_definition_again_is_the_same_scope(self, admin: Admin) -> None:
        body = {"name": "read", "description": "Read.", "resource": f"https://{admin.name}.example"}
        assert admin.scopes(body).status_code == 201
        again = admin.scopes(body)
        assert again.status_code == 200
        assert again.json()["created_at"] == again.json()["updated_at"]

    def test_another_definition_needs_to_be_meant(self, admin: Admin) -> None:
        admin.scopes({"name": "read", "description": "Read."})
        assert admin.scopes({"name": "read", "description": "Other."}).status_code == 409
        answer = admin.scopes({"name": "read", "description": "Other.", "redefine": True})
        assert (answer.status_code, answer.json()["description"]) == (200, "Other.")

    def test_without_a_resource_it_is_the_accounts_own(self, admin: Admin) -> None:
        assert admin.scopes({"name": "own"}).json()["resource"] == f"urn:gatepost:{admin.account}"

    def test_a_resource_belongs_to_the_account_that_defined_it_first(self, admin: Admin, gatepost: Service) -> None:
        resource = f"https://{admin.name}.taken.example"
        assert admin.scopes({"name": "read", "resource": resource}).status_code == 201
        other = Admin(gatepost, f"{admin.name}-other")
        answer = other.scopes({"name": "read", "resource": resource})
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
        assert "resource" in answer.json()["error_description"]


class TestIdempotency:
    def test_the_same_key_gives_the_same_answer_without_the_secret(self, admin: Admin) -> None:
        first = admin.clients(MACHINE, Idempotency_Key="a")
        again = admin.clients(MACHINE, Idempotency_Key="a")
        assert (first.status_code, again.status_code) == (201, 201)
        expected = first.json()
        assert expected.pop("client_secret").startswith("gps_")
        assert again.json() == expected
        assert again.headers["Gatepost-Event"] == first.headers["Gatepost-Event"]

    def test_another_body_is_refused(self, admin: Admin) -> None:
        admin.clients(MACHINE, Idempotency_Key="a")
        answer = admin.clients(MACHINE | {"client_name": "Other"}, Idempotency_Key="a")
        assert (answer.status_code, answer.json()["error"]) == (422, "idempotency_key_reused")

    def test_keys_are_of_one_operation_and_one_client(self, admin: Admin) -> None:
        body = {"name": "x"}
        assert admin.scopes(body, Idempotency_Key="a").status_code == 201
        assert admin.clients(MACHINE, Idempotency_Key="a").status_code == 201
        made = admin.clients(MACHINE | {"scope": "gatepost:clients gatepost:deliveries"}).json()
        other = admin.gatepost.token(
            Client(made["client_id"], made["client_secret"]), "gatepost:clients gatepost:deliveries"
        )
        answer = admin.gatepost.post("/oauth/clients", other, MACHINE, Idempotency_Key="a")
        assert answer.status_code == 201
        assert "client_secret" in answer.json()

    def test_parallel_requests_make_one_client(self, admin: Admin) -> None:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: admin.clients(MACHINE, Idempotency_Key="same"), range(16)))
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.json()["client_id"] for answer in answers}) == 1
        assert sum("client_secret" in answer.json() for answer in answers) == 1


def test_limits_hold_under_parallel_requests(gatepost: Service, account_name: str) -> None:
    admin = Admin(gatepost, account_name, "max_clients=5", "max_scopes=3")
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: admin.clients(MACHINE).status_code, range(12)))
        named = list(pool.map(lambda number: admin.scopes({"name": f"s{number}"}).status_code, range(8)))
    assert sorted(made) == [201] * 4 + [409] * 8, "the first client counts"
    assert sorted(named) == [201] * 3 + [409] * 5
    assert admin.clients(MACHINE).json()["error"] == "limit_reached"


def test_operations_need_a_token_with_their_scope(admin: Admin) -> None:
    bare = admin.gatepost.session.post(f"{admin.gatepost.url}/oauth/clients", json=MACHINE)
    assert bare.status_code == 401
    assert bare.headers["WWW-Authenticate"].startswith("Bearer resource_metadata=")
    weak = admin.gatepost.token(admin.client, "gatepost:deliveries")
    answer = admin.gatepost.post("/oauth/clients", weak, MACHINE)
    assert answer.status_code == 403
    assert 'error="insufficient_scope"' in answer.headers["WWW-Authenticate"]
    assert 'scope="gatepost:clients"' in answer.headers["WWW-Authenticate"]
    listed = admin.gatepost.entries(admin.account)
    assert listed[0]["id"] == answer.headers["Gatepost-Event"]
    assert listed[0]["type"] == "oauth.client.refused"
