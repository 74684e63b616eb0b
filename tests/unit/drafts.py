"""Drafts of tokens for the rules to decide about, and the scopes that they look up."""

from datetime import UTC, datetime
from typing import Any

from gatepost.accounts import Account
from gatepost.oauth.client_grants import Grant
from gatepost.oauth.clients import Client
from gatepost.oauth.dpop import Proof
from gatepost.oauth.scopes import Scope
from gatepost.oauth.token_rules import Draft, GrantContext, TokenRequest

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
BASE_URL = "https://gatepost.example"
ACCOUNT = Account("acc_1", "acme", NOW)
STRICT = Account("acc_1", "acme", NOW, settings={"profile": "fapi2"})
API, OTHER = "https://api.example.com", "https://other.example.com"
SHARED = "https://platform.example.com"


class Defined:
    """The scopes of accounts, by account and name."""

    def __init__(self, *known: Scope) -> None:
        self.known = {(scope.account, scope.name): scope for scope in known}

    def scope(self, account: str, name: str) -> Scope | None:
        return self.known.get((account, name))

    def fixed_claims(self, resource: str) -> dict[str, Any] | None:
        return {"plan": "platform"} if resource == SHARED else None


def scope(name: str, resource: str = API, account: str = ACCOUNT.id, **members: Any) -> Scope:
    return Scope(account, name, resource, NOW, NOW, **members)


SCOPES = Defined(
    scope("read"),
    scope("write"),
    scope("other", OTHER),
    scope("short", max_lifetime=120),
    scope("other-short", OTHER, max_lifetime=60),
    scope("retired", status="retired"),
    scope("theirs", account="acc_2"),
)
ALL = ["read", "write", "other", "short", "other-short", "retired", "theirs", "undefined", "gatepost:clients"]


def client(
    *granted: str, grant: dict[str, Any] | None = None, way: str = "client_credentials", **members: Any
) -> Client:
    """A client whose one grant lists these scopes."""
    grants = [Grant("grt_1", way, list(granted), **(grant or {}))]
    return Client("cli_1", ACCOUNT.id, NOW, NOW, grants=grants, **members)


def draft(
    *names: str, resources: tuple[str, ...] = (), by: Client | None = None, account: Account = ACCOUNT, **members: Any
) -> Draft:
    """A request for these scopes by a client that was granted all there are."""
    request = TokenRequest("client_credentials", names, resources)
    return Draft(request, account, by or client(*ALL), BASE_URL, **members)


PERSON = "acc_1.anna"
PROOF = Proof("t" * 43, "1")


def by_code(
    *names: str, agreed: tuple[str, ...], resources: tuple[str, ...] = (), named: tuple[str, ...] = (),
    proof: Proof | None = None, account: Account = ACCOUNT, **members: Any,
) -> Draft:  # fmt: skip
    """A code that is redeemed: what a person agreed to, for these resources, and what of it is asked for."""
    request = TokenRequest("authorization_code", names, named, proof=proof)
    by = client(*ALL, "openid", "offline_access", way="authorization_code", **members)
    return Draft(request, account, by, BASE_URL, GrantContext(PERSON, agreed, resources))
