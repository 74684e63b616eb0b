"""An account of a running service with an API, and a client that may do everything in the account."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from gatepost_client import Client, ClientSecret
from tests.service import Service

API = "https://api.example.com"


@dataclass(frozen=True)
class Platform:
    """An account, its first client, and the resource of its API, for which there are two scopes."""

    service: Service
    name: str
    account: str
    secret: ClientSecret
    client: Client
    resource: str


@pytest.fixture
def platform(sqlite_gatepost: Service, account_name: str) -> Iterator[Platform]:
    account, first = sqlite_gatepost.account(account_name)
    secret = ClientSecret(first.id, first.secret)
    resource = f"{API}/{account_name}"
    with Client(sqlite_gatepost.url, secret, events_url=sqlite_gatepost.ops) as client:
        for scope in ("invoices:read", "invoices:write"):
            client.define_scope({"name": scope, "resource": resource})
        yield Platform(sqlite_gatepost, account_name, account, secret, client, resource)
