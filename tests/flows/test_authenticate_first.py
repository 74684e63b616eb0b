"""A body is parsed only for a caller with a valid access token, so others cannot cause that work."""

import asyncio
from typing import Any, SupportsIndex

import pytest

from gatepost.core import clock
from gatepost.ingest import http
from gatepost.web import definitions
from gatepost.web.context import Context, Handler
from gatepost.web.requests import Request
from gatepost.web.responses import Reply
from tests.service import Client, Service

OPERATIONS: dict[str, tuple[Handler, str]] = {
    f"/{operation.noun}": (definitions.perform(operation), operation.scope)
    for operation in (definitions.CLIENTS, definitions.SCOPES, definitions.ENDPOINTS, definitions.SUBSCRIPTIONS)
} | {"/events": (http.answer, http.SCOPE)}


class Parsed(Exception):
    """A parser looked into the body."""


class Body(bytes):
    def decode(self, *_arguments: Any, **_options: Any) -> str:
        raise Parsed

    def __getitem__(self, _index: SupportsIndex | slice) -> Any:
        raise Parsed


@pytest.fixture
def context(gatepost: Service) -> Context:
    return Context(gatepost.opened.store, gatepost.opened.service, clock.now)


def post(context: Context, path: str, authorization: str) -> Reply:
    headers = {"authorization": authorization, "content-type": "application/json", "host": "gatepost.test"}
    request = Request("POST", path, "", headers, Body(b"{"), "192.0.2.1", "req_1")

    async def answer() -> Reply:
        return await OPERATIONS[path][0](context, request)

    return asyncio.run(answer())


def revoke(gatepost: Service, client: Client, token: str) -> None:
    headers = {"Authorization": client.basic}
    answer = gatepost.session.post(f"{gatepost.url}/oauth/revoke", data={"token": token}, headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize("path", OPERATIONS)
class TestBodies:
    @pytest.mark.parametrize("token", ["x", "a.b.c", "x" * 5000], ids=["short", "in parts", "long"])
    def test_of_a_stranger_are_not_parsed(self, context: Context, path: str, token: str) -> None:
        for _ in range(2):
            assert post(context, path, f"Bearer {token}").status == 401
        assert post(context, path, f"DPoP {token}").status == 401

    def test_with_a_token_that_was_revoked_are_not_parsed(
        self, context: Context, gatepost: Service, path: str, account_name: str
    ) -> None:
        _, client = gatepost.account(account_name)
        token = gatepost.token(client, OPERATIONS[path][1])
        with pytest.raises(Parsed):
            post(context, path, f"Bearer {token}")
        revoke(gatepost, client, token)
        context = Context(gatepost.opened.store, gatepost.opened.service, clock.now)
        assert post(context, path, f"Bearer {token}").status == 401

    def test_sent_with_a_bound_token_but_no_proof_are_not_parsed(
        self, context: Context, gatepost: Service, path: str, account_name: str
    ) -> None:
        _, client = gatepost.account(account_name)
        token = gatepost.token(client, OPERATIONS[path][1])
        assert post(context, path, f"DPoP {token}").status == 401


def test_a_token_that_ends_is_refused_although_it_was_accepted_before(gatepost: Service, account_name: str) -> None:
    _, client = gatepost.account(account_name)
    token = gatepost.token(client, "gatepost:scopes")
    assert gatepost.post("/oauth/scopes", token, {"name": "read"}).status_code == 201
    revoke(gatepost, client, token)
    for _ in range(2):
        assert gatepost.post("/oauth/scopes", token, {"name": "read"}).status_code == 401
