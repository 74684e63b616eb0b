"""Resources that all accounts share: their scopes are the operator's, and accounts grant them to their clients."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gatepost.accounts import lookup
from gatepost.oauth import scope_rows, scopes
from gatepost.oauth.scopes import Scope
from gatepost.store.transaction import Tx
from tests import service
from tests.login import decode_jwt
from tests.service import Client, Service
from tests.wire import check_refusal

pytestmark = pytest.mark.xdist_group("shared-resources")

PLATFORM = "https://platform.example"
SETTING = msgspec.json.encode({PLATFORM: {"scopes": ["use", "taken"], "claims": {"plan": "platform"}}}).decode()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory: Path = tmp_path_factory.mktemp("shared") / "data"
    with service.running(directory, shared_resources=SETTING, only="web") as found:
        yield found


class Tenant:
    def __init__(self, gatepost: Service, name: str) -> None:
        self.gatepost, self.name = gatepost, name
        self.account, first = gatepost.account(name)
        self.admin = gatepost.token(first, "gatepost:clients gatepost:scopes")

    def machine(self, scope: str) -> Client:
        claims = {"plan": "free", "role": "admin"}
        return self.gatepost.define_client(self.admin, scope=scope, claims=claims)

    def store(self, scope: Scope) -> None:
        """As an earlier release let the account define it."""
        self.gatepost.opened.store.run_now(lambda tx: scope_rows.add(tx, scope))

    def own(self, name: str, resource: str) -> Scope:
        def make(tx: Tx) -> Scope:
            return Scope(lookup.named(tx, self.name).id, name, resource, tx.at, tx.at)

        return self.gatepost.opened.store.read_now(make)


@pytest.fixture
def tenant(running: Service, account_name: str) -> Tenant:
    return Tenant(running, account_name)


def test_a_client_is_granted_a_scope_of_a_shared_resource(tenant: Tenant) -> None:
    claims = decode_jwt(tenant.gatepost.token(tenant.machine("use"), "use"))[1]
    assert (claims["aud"], claims["scope"], claims["account"]) == (PLATFORM, "use", tenant.account)
    assert claims["plan"] == "platform", "the operator's value, not the client's"
    assert "role" not in claims, "a client sets no claim of a token for a shared resource"


@pytest.mark.parametrize("body", [
    {"name": "admin", "resource": PLATFORM}, {"name": "admin", "resource": PLATFORM + "/"}, {"name": "use"},
    {"name": "use", "resource": PLATFORM}, {"name": "use", "resource": "https://api.elsewhere.example"},
])  # fmt: skip
def test_an_account_cannot_define_scopes_of_a_shared_resource(tenant: Tenant, body: dict[str, str]) -> None:
    answer = tenant.gatepost.post("/oauth/scopes", tenant.admin, body)
    check_refusal(answer, "/oauth/scopes", "invalid_request", "shared")


@pytest.mark.parametrize("status", ["active", "retired"])
def test_an_account_cannot_create_a_scope_of_a_shared_resource(tenant: Tenant, status: str) -> None:
    body = {"name": f"own-{status}", "resource": PLATFORM, "status": status}
    answer = tenant.gatepost.post("/oauth/scopes", tenant.admin, body)
    check_refusal(answer, "/oauth/scopes", "invalid_request", "shared")


def test_a_scope_that_was_defined_before_grants_nothing(tenant: Tenant) -> None:
    tenant.store(tenant.own("everything", PLATFORM))
    tenant.store(tenant.own("use", PLATFORM))
    answer = tenant.gatepost.post("/oauth/clients", tenant.admin, {
        "grant_types": ["client_credentials"], "scope": "everything",
    })  # fmt: skip
    check_refusal(answer, "/oauth/clients", "invalid_client_metadata", "everything")
    assert decode_jwt(tenant.gatepost.token(tenant.machine("use"), "use"))[1]["aud"] == PLATFORM
    result = tenant.gatepost.cli("doctor", check=False).stdout
    assert f"{tenant.name} defined everything for {PLATFORM}" in result
    body = {"name": "everything", "status": "retired", "redefine": True}
    assert tenant.gatepost.post("/oauth/scopes", tenant.admin, body).status_code == 200


def test_a_scope_of_ones_own_keeps_its_resource(tenant: Tenant) -> None:
    """It was there before the operator chose the name: its tokens do not change their audience unasked."""
    tenant.store(tenant.own("taken", scopes.default_resource(tenant.account)))
    claims = decode_jwt(tenant.gatepost.token(tenant.machine("taken"), "taken"))[1]
    assert claims["aud"] == scopes.default_resource(tenant.account)
    assert claims["role"] == "admin"
    assert f"{tenant.name} defined its own scope taken" in tenant.gatepost.cli("doctor", check=False).stdout
