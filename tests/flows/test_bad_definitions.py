"""The error documents for members of clients and scopes that are not accepted, and that a refusal changes nothing.

tests/unit/test_bad_definitions.py has the whole tables of bad values. Here one value of each member is sent over HTTP,
and those values that only the store can refuse are sent to both stores.
"""

from typing import Any

import pytest
import requests

from gatepost.ledger.operations import OPERATIONS
from tests.service import Client, Service
from tests.unit.test_bad_definitions import BAD_CLIENT, BAD_REDIRECT_URIS, BAD_SCOPE
from tests.wire import check_refusal

MACHINE: dict[str, Any] = {"grant_types": ["client_credentials"]}


class Definer:
    def __init__(self, gatepost: Service, name: str) -> None:
        self.gatepost = gatepost
        _, first = gatepost.account(name)
        self.token = gatepost.token(first, " ".join(OPERATIONS))
        self.known: Client = gatepost.define_client(self.token, client_name="known")

    def client(self, body: dict[str, Any]) -> requests.Response:
        return self.gatepost.post("/oauth/clients", self.token, body)

    def scope(self, body: dict[str, Any]) -> requests.Response:
        return self.gatepost.post("/oauth/scopes", self.token, body)

    def shown(self) -> dict[str, Any]:
        return dict(self.client({"client_id": self.known.id}).json())

    def check_client_member(self, member: str, value: Any) -> None:
        """The value is refused when a client is created and when one is redefined, and the client does not change."""
        before = self.shown()
        code = "invalid_client_metadata"
        check_refusal(self.client(MACHINE | {member: value}), "/oauth/clients", code, member)
        check_refusal(self.client({"client_id": self.known.id, member: value}), "/oauth/clients", code, member)
        assert self.shown() == before


@pytest.fixture(scope="module")
def definer(gatepost: Service) -> Definer:
    return Definer(gatepost, "bad-definitions")


@pytest.fixture(scope="module")
def sqlite_definer(sqlite_gatepost: Service) -> Definer:
    return Definer(sqlite_gatepost, "bad-definitions-sqlite")


@pytest.mark.parametrize("member", BAD_CLIENT)
def test_a_client_member(sqlite_definer: Definer, member: str) -> None:
    sqlite_definer.check_client_member(member, BAD_CLIENT[member][0])


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("scope", "nobody:knows"),
        ("serves", ["https://nobody.example"]),
        ("jwks_uri", "ftp://a.example/"),
        ("jwks_uri", "http://169.254.169.254/"),
    ],
)
def test_a_client_member_that_needs_the_account_to_be_checked(definer: Definer, member: str, value: Any) -> None:
    definer.check_client_member(member, value)


@pytest.mark.parametrize("uri", BAD_REDIRECT_URIS[:3])
def test_a_redirect_uri(sqlite_definer: Definer, uri: str) -> None:
    answer = sqlite_definer.client({"redirect_uris": ["https://app.example.com/cb", uri]})
    check_refusal(answer, "/oauth/clients", "invalid_redirect_uri", "redirect_uris")


def test_a_good_redirect_uri_is_kept_as_it_is(sqlite_definer: Definer) -> None:
    uri = "https://app.example.com/cb?x=1&y=%2F"
    answer = sqlite_definer.client({"redirect_uris": [uri], "application_type": "web"})
    assert answer.status_code == 201, answer.text
    assert answer.json()["redirect_uris"] == [uri]


@pytest.mark.parametrize(
    "member", ["client_secret", "account", "owner", "id", "secrets", "created_at", "explicit_grants", "é", "a" * 500]
)
def test_an_unknown_member_is_ignored_when_creating_and_named_when_redefining(
    sqlite_definer: Definer, member: str
) -> None:
    created = sqlite_definer.client(MACHINE | {member: "acc_00000000000000000000000000"})
    assert created.status_code == 201
    assert created.json().get(member) != "acc_00000000000000000000000000"
    answer = sqlite_definer.client({"client_id": created.json()["client_id"], member: "x"})
    named = member[:64] if member.isascii() else "?"
    check_refusal(answer, "/oauth/clients", "invalid_client_metadata", f"{named}: unknown member")


@pytest.mark.parametrize(
    "client_id", [None, "", "cli_", 5, [], {}, "https://app.example.com", "cli_" + "0" * 26, "CLI_0"]
)
def test_a_client_id_is_never_chosen_by_the_caller(sqlite_definer: Definer, client_id: Any) -> None:
    answer = sqlite_definer.client(MACHINE | {"client_id": client_id})
    check_refusal(answer, "/oauth/clients", "not_found", "client_id")


@pytest.mark.parametrize("member", BAD_SCOPE)
def test_a_scope_member(sqlite_definer: Definer, member: str) -> None:
    named = member[:64] if member.isascii() else "?"
    answer = sqlite_definer.scope({"name": "bad:scope"} | {member: BAD_SCOPE[member][0]})
    check_refusal(answer, "/oauth/scopes", "invalid_request", f"{named}: ")
    unknown = sqlite_definer.client(MACHINE | {"scope": "bad:scope"})
    check_refusal(unknown, "/oauth/clients", "invalid_client_metadata", "bad:scope is not a scope of the account")
