"""Definitions of clients and scopes that refer to other rows: scopes, resources, and what the operator shares."""

from collections.abc import Callable
from typing import Any

import pytest

from gatepost.accounts import account_rows
from gatepost.core.errors import Refusal
from gatepost.egress.address_guard import Policy
from gatepost.ledger.operations import Answer, Call, operator
from gatepost.oauth import client_rows, define_client, define_scope, scope_rows, scopes, shared_resources
from gatepost.oauth.clients import Client
from gatepost.oauth.grants import client_credentials
from gatepost.oauth.scopes import Scope
from gatepost.oauth.service import Service
from gatepost.oauth.shared_resources import SharedResource
from gatepost.oauth.token_rules import Draft, TokenRequest, decide
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx
from tests.contract.posting import SERVICE

MACHINE = {"grant_types": ["client_credentials"]}
API, PLATFORM = "https://api.example", "https://platform.example"
SHARING = SERVICE._replace(
    shared_resources=shared_resources.index({PLATFORM: SharedResource(["platform:read"])}),
    policy=Policy(dev=True),
)
MOVED = SERVICE._replace(base_url=PLATFORM)

Define = Callable[..., Answer]


@pytest.fixture
def define(store: Store, account: str) -> Define:
    """Define a client, or a scope if the body has a name, under this configuration."""

    def define(service: Service = SERVICE, **body: Any) -> Answer:
        operation = define_scope.define if "name" in body else define_client.define

        def unit(tx: Tx) -> Answer:
            owner = account_rows.lock(tx, account)
            assert owner is not None
            return operation(tx, service, owner, Call(operator(account), body))

        return store.run_now(unit)

    return define


def refusal(answer: Answer) -> str:
    assert answer.refusal is not None, answer.body
    return answer.refusal.detail


STALE: dict[str, tuple[dict[str, Any], Service]] = {
    "a scope of a resource that is no longer shared": ({"scope": "platform:read"}, SERVICE),
    "a resource that is no longer shared": ({"serves": [PLATFORM]}, SERVICE),
    "a resource that has become the base URL": ({"serves": [PLATFORM]}, MOVED),
    "a URL that the policy no longer allows": ({"jwks_uri": "http://127.0.0.1:8080/jwks"}, SERVICE),
}
CHANGES: list[dict[str, Any]] = [
    {"status": "disabled"}, {"rotate_secret": True}, {"client_name": "Renamed"}, {"access_token_lifetime": 60},
]  # fmt: skip


class TestReferencesThatBecameInvalid:
    @pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
    @pytest.mark.parametrize(("members", "service"), STALE.values(), ids=STALE)
    def test_they_do_not_block_other_changes(
        self, define: Define, members: dict[str, Any], service: Service, change: dict[str, Any]
    ) -> None:
        client_id = define(SHARING, **MACHINE, **members).body["client_id"]
        for body in (change, members | change):
            answer = define(service, client_id=client_id, **body)
            assert (answer.status, answer.refusal) == (200, None)
            assert members.items() <= answer.body.items()

    @pytest.mark.parametrize(("members", "service"), STALE.values(), ids=STALE)
    def test_they_cannot_be_added(self, define: Define, members: dict[str, Any], service: Service) -> None:
        client_id = define(SHARING, **MACHINE, **members).body["client_id"]
        assert define(service, client_id=client_id, **dict.fromkeys(members)).refusal is None
        assert refusal(define(service, client_id=client_id, **members)).startswith(f"{next(iter(members))}: ")

    def test_only_what_is_new_is_refused(self, define: Define) -> None:
        client_id = define(SHARING, **MACHINE, scope="platform:read", serves=[PLATFORM]).body["client_id"]
        detail = refusal(define(client_id=client_id, scope="platform:read platform:write"))
        assert detail == "scope: platform:write is not a scope of the account"
        detail = refusal(define(client_id=client_id, serves=[PLATFORM, API]))
        assert detail == f"serves: {API} is not a resource of the account"

    def test_no_token_is_issued_for_such_a_scope(self, define: Define, store: Store, account: str) -> None:
        client_id = define(SHARING, **MACHINE, scope="platform:read").body["client_id"]
        define(client_id=client_id, client_name="Renamed")

        def unit(tx: Tx, service: Service) -> Draft | Refusal:
            owner, client = account_rows.load(tx, account), client_rows.load(tx, client_id)
            assert owner is not None
            assert isinstance(client, Client)
            request = TokenRequest("client_credentials", ("platform:read",))
            draft = Draft(request, owner, client, service.base_url)
            return decide(draft, service.definitions(tx), client_credentials.RULES)

        assert isinstance(store.read_now(lambda tx: unit(tx, SHARING)), Draft)
        decision = store.read_now(lambda tx: unit(tx, SERVICE))
        assert isinstance(decision, Refusal)
        assert decision.detail == "scope: platform:read is not an active scope of the account"


class TestServedResources:
    @pytest.mark.parametrize(("named", "other"), [(API, API + "/"), (API + "/", API), (API + "/v1", API + "/v1/")])
    def test_they_are_spelled_as_a_scope_names_them(self, define: Define, named: str, other: str) -> None:
        """Tokens have this `aud`, and introspection and token exchange compare it."""
        define(name="read", resource=named)
        assert refusal(define(**MACHINE, serves=[other])) == f"serves: {other} must be {named}, as its scopes name it"
        assert define(**MACHINE, serves=[named]).status == 201

    def test_each_of_several_spellings_can_be_served(self, define: Define) -> None:
        define(name="read", resource=API)
        define(name="write", resource=API + "/")
        assert define(**MACHINE, serves=[API, API + "/"]).status == 201

    def test_a_shared_resource_is_spelled_as_the_operator_names_it(self, define: Define) -> None:
        detail = refusal(define(SHARING, **MACHINE, serves=[PLATFORM + "/"]))
        assert detail == f"serves: {PLATFORM}/ must be {PLATFORM}, as its scopes name it"

    def test_the_default_resource_needs_no_scope(self, define: Define, account: str) -> None:
        assert define(**MACHINE, serves=[scopes.default_resource(account)]).status == 201

    def test_a_resource_without_scopes_is_refused(self, define: Define) -> None:
        define(name="read", resource=API)
        define(name="read", resource=API + "/v2", redefine=True)
        assert refusal(define(**MACHINE, serves=[API])) == f"serves: no scope has the resource {API}"


@pytest.mark.parametrize("status", ["active", "retired"])
@pytest.mark.parametrize("resource", [PLATFORM, PLATFORM + "/"])
def test_a_scope_cannot_move_to_a_shared_resource(define: Define, resource: str, status: str) -> None:
    define(name="read", resource=API)
    answer = define(SHARING, name="read", resource=resource, status=status, redefine=True)
    assert refusal(answer) == f"resource: {resource} is shared by all accounts; the operator defines its scopes"


def test_a_scope_of_a_resource_that_became_shared_can_only_be_retired(
    define: Define, store: Store, account: str
) -> None:  # fmt: skip
    define(name="read", resource=PLATFORM)
    assert define(SHARING, name="read", resource=PLATFORM).status == 200
    assert refusal(define(SHARING, name="read", description="Read.", redefine=True)).startswith("resource: ")
    answer = define(SHARING, name="read", status="retired", redefine=True)
    assert answer.status == 200
    stored = store.read_now(lambda tx: scope_rows.load_uncached(tx, account, "read"))
    assert isinstance(stored, Scope)
    assert (stored.resource, stored.status) == (PLATFORM, "retired")
