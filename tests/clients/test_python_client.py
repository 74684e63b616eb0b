"""The Python client with a running service: the six operations, tokens and events."""

import asyncio
import json
import time
from base64 import urlsafe_b64decode
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import pytest
from joserfc.jwk import ECKey

from gatepost_client import ApiError, AsyncClient, Client, ClientKey, ClientSecret, ProofKey, verify_webhook
from gatepost_client.jwks import KeySet
from gatepost_client.sender import Sender
from gatepost_client.transport import Request, Response, Transport
from tests.clients.conftest import Platform
from tests.receiver import Raw, hangs_up, receiver
from tests.waiting import wait_until


def claims(token: str) -> Any:
    return json.loads(urlsafe_b64decode(token.split(".")[1] + "=="))


def test_from_an_endpoint_to_its_delivery(platform: Platform) -> None:
    client = platform.client
    with receiver() as target:
        endpoint = client.define_webhook_endpoint({"url": target.url})
        client.define_webhook_subscription({"endpoint_id": endpoint["id"], "events": ["invoice.*"]})
        published = client.publish_event({"type": "invoice.paid", "source": "/billing", "data": {"invoice": 17}})
        [request] = target.wait_for(1)
        assert verify_webhook(endpoint["secret"], request.headers, request.body)["data"] == {"invoice": 17}
        assert published["matched"] == 1
        wait_until(lambda: [each["status"] for each in client.deliveries(event_type="invoice.paid")] == ["succeeded"])
    [delivery] = client.deliveries(id=published["deliveries"][0])
    assert delivery["event"]["id"] == published["id"]
    assert [each["id"] for each in client.endpoints()] == [endpoint["id"]]
    assert client.delivery_summary(interval="day")["total"]["deliveries"]["made"] == 1
    paused = client.define_webhook_endpoint({"id": endpoint["id"], "status": "disabled"})
    assert (paused["status"], paused["disabled_reason"]) == ("disabled", "requested")


def test_pages(platform: Platform) -> None:
    client = platform.client
    endpoint = client.define_webhook_endpoint({"url": "http://127.0.0.1:9999/hooks", "status": "disabled"})
    client.define_webhook_subscription({"endpoint_id": endpoint["id"], "events": ["*"]})
    published = client.publish_events([{"type": "a.b", "source": "/x", "id": str(n), "data": n} for n in range(5)])
    made = [delivery for event in published for delivery in event["deliveries"]]
    since = datetime.now(UTC) - timedelta(hours=1)
    assert [each["id"] for each in client.deliveries(limit=2, order="oldest", created_after=since)] == made
    page = client.read_webhook_deliveries(limit=2)
    assert len(page["data"]) == 2

    async def listed() -> list[str]:
        async with AsyncClient(platform.service.url, platform.secret) as asynchronous:
            return [each["id"] async for each in asynchronous.deliveries(limit=2, order="oldest")]

    assert asyncio.run(listed()) == made


def test_an_event_is_published_once(platform: Platform) -> None:
    event: Any = {"type": "a.b", "source": "/x", "id": "1", "data": 1}
    first, second = platform.client.publish_event(event), platform.client.publish_event(event)
    assert (first["again"], second["again"], second["id"]) == (False, True, first["id"])
    with pytest.raises(ApiError) as raised:
        platform.client.publish_event(event | {"data": 2})
    assert (raised.value.status, raised.value.code) == (409, "conflict")


def test_tokens_of_a_client_with_a_key(platform: Platform) -> None:
    key = ECKey.generate_key("P-256", parameters={"kid": "one"})
    made = platform.client.define_client(
        {
            "client_name": "Robot",
            "grant_types": ["client_credentials"],
            "scope": "invoices:read",
            "token_endpoint_auth_method": "private_key_jwt",
            "jwks": {"keys": [dict(key.as_dict(private=False))]},
        }
    )
    pem = key.as_pem(private=True)
    for credentials in (
        ClientKey(made["client_id"], dict(key.as_dict(private=True))),
        ClientKey(made["client_id"], pem),
    ):
        with Client(platform.service.url, credentials) as client:
            token = client.token("invoices:read", resource=platform.resource)
            assert claims(token)["client_id"] == made["client_id"]
            assert claims(token)["aud"] == platform.resource
            assert client.token("invoices:read", resource=platform.resource) == token


def test_bound_tokens(platform: Platform) -> None:
    """Token requests, operations and events, each with the nonce that its listener asks for."""
    key = ProofKey()
    with Client(platform.service.url, platform.secret, events_url=platform.service.ops, proof_key=key) as client:
        assert client.define_scope({"name": "bound:scope"})["name"] == "bound:scope"
        assert client.publish_event({"type": "a.b", "source": "/x", "data": None})["again"] is False
        assert list(client.deliveries()) == []
        token = client.token("gatepost:scopes")
        assert claims(token)["cnf"] == {"jkt": key.thumbprint}
        headers = client.headers("GET", "https://api.example.com/x?y", "gatepost:scopes")
        assert headers["Authorization"] == f"DPoP {token}"
        assert claims(headers["DPoP"])["htu"] == "https://api.example.com/x"


def test_concurrent_callers_share_one_token_request(platform: Platform) -> None:
    def issued() -> int:
        found = platform.service.entries(platform.account)
        return sum(
            each["type"] == "oauth.token.issued" and each["data"]["scope"] == "gatepost:clients" for each in found
        )

    with Client(platform.service.url, platform.secret) as client, ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: client.token("gatepost:clients"), range(8)))) == 1
    assert issued() == 1

    async def gathered() -> set[str]:
        async with AsyncClient(platform.service.url, platform.secret) as asynchronous:
            return set(await asyncio.gather(*(asynchronous.token("gatepost:clients") for _ in range(8))))

    assert len(asyncio.run(gathered())) == 1
    assert issued() == 2


class LosesAnswers(Transport):
    """Sends requests to the service, but loses the first answer of an operation."""

    lost = 0

    def send(self, request: Request) -> Response:
        response = super().send(request)
        if "Idempotency-Key" in request.headers and not self.lost:
            self.lost += 1
            raise ApiError("connection_failed", "the connection was closed")
        return response


def test_a_repeated_definition_creates_one_resource(platform: Platform) -> None:
    transport = LosesAnswers()
    with Client(platform.service.url, platform.secret, transport=transport, sleep=lambda _: None) as client:
        endpoint = client.define_webhook_endpoint({"url": "http://127.0.0.1:9999/hooks"})
        assert transport.lost == 1
        assert [each["id"] for each in client.endpoints()] == [endpoint["id"]]
        assert "secret" not in endpoint


def test_a_revoked_token_is_replaced(platform: Platform) -> None:
    client = platform.client
    first = client.token("gatepost:scopes")
    platform.service.cli("token", "revoke", "--account", platform.name, "--id", claims(first)["jti"])
    assert client.define_scope({"name": "again:scope"})["name"] == "again:scope"
    assert client.token("gatepost:scopes") != first


def test_refusals_name_the_member(platform: Platform) -> None:
    with pytest.raises(ApiError) as raised:
        platform.client.define_webhook_endpoint({"url": "ftp://example.com"})
    assert raised.value.status == 400
    assert [each["pointer"] for each in raised.value.errors] == ["/url"]
    assert raised.value.request_id.startswith("req_")
    assert raised.value.event_id.startswith("evt_")
    with pytest.raises(ApiError, match="invalid_client") as raised:
        Client(platform.service.url, ClientSecret(platform.secret.client_id, "gps_wrong")).token("gatepost:clients")
    assert "gps_wrong" not in str(raised.value)
    assert "gps_" not in repr(platform.secret)


def test_a_service_that_does_not_respond() -> None:
    waits: list[float] = []
    with receiver(Raw(hangs_up)) as broken:
        client = Client(broken.url.removesuffix("/hooks"), ClientSecret("a", "b"), sleep=waits.append)
        with pytest.raises(ApiError) as raised:
            client.token("x")
        assert len(broken.requests) == 4
    assert raised.value.code == "connection_failed"
    assert len(waits) == 3


def never(_: float) -> None:
    pytest.fail("the client waits")


def answers_once(answer: Any, *, reads: int = 1) -> Raw:
    """Answers the first request on each connection, and closes it after this many requests without saying so."""

    def act(connection: Any) -> None:
        if connection.read():
            connection.answer((200, {}, json.dumps(answer).encode()))
        for _ in range(reads - 1):
            connection.read()

    return Raw(act)


def test_a_kept_connection_that_was_closed_is_replaced() -> None:
    with receiver(answers_once({})) as target:
        transport = Transport()
        sender = Sender(transport, time.time, never, None)
        for _ in range(3):
            assert sender.send(lambda: Request("GET", target.url, {})).json() == {}
        assert target.connections >= 3
        transport.close()


TOKEN = {"access_token": "token", "token_type": "DPoP", "expires_in": 3600}


def test_a_request_on_a_kept_connection_that_was_closed_has_a_new_assertion_and_proof() -> None:
    """The service may have processed the request before the connection was closed."""
    key = dict(ECKey.generate_key("P-256").as_dict(private=True))
    with receiver(answers_once(TOKEN, reads=2)) as target:
        url = target.url.removesuffix("/hooks")
        with Client(url, ClientKey("a", key), proof_key=ProofKey(), sleep=never) as client:
            assert [client.token(scope) for scope in ("a", "b")] == ["token", "token"]
        assert target.connections == 2
        sent = [(dict(parse_qsl(each.body.decode())), each.headers["dpop"]) for each in target.requests]
    assert [form["scope"] for form, _ in sent] == ["a", "b", "b"]
    assert len({claims(form["client_assertion"])["jti"] for form, _ in sent}) == 3
    assert len({claims(proof)["jti"] for _, proof in sent}) == 3


def test_a_request_that_must_not_be_repeated_uses_a_new_connection() -> None:
    code: Any = {"grant_type": "authorization_code", "code": "c"}
    with receiver(answers_once(TOKEN | {"token_type": "Bearer"}, reads=2)) as target:
        with Client(target.url.removesuffix("/hooks"), ClientSecret("a", "b"), sleep=never) as client:
            client.token("a")
            assert client.obtain_token(code)["access_token"] == "token"
        assert (target.connections, len(target.requests)) == (2, 2)


def test_a_key_set_is_fetched_with_a_new_connection() -> None:
    with receiver(answers_once({"keys": []}, reads=2)) as target:
        transport = Transport()
        transport.send(Request("GET", target.url, {}))
        assert KeySet(target.url, transport).get("kid") is None
        assert (target.connections, len(target.requests)) == (2, 2)
        transport.close()


@pytest.mark.parametrize("url", ["gatepost.example", "ftp://gatepost.example", "https://", "https://a@b.example", ""])
def test_bad_urls(url: str) -> None:
    with pytest.raises(ValueError, match="url: must be a URL"):
        Client(url, ClientSecret("a", "b"))


def test_bad_keys() -> None:
    rsa = {"kty": "RSA", "n": "AQAB", "e": "AQAB"}
    public = ECKey.generate_key("P-256").as_dict(private=False)
    for key in ({}, {"kty": "oct", "k": "x"}, rsa, dict(public)):
        with pytest.raises(ValueError, match="key"):
            ClientKey("a", key)
    with pytest.raises(ValueError, match="alg: the key cannot sign with RS256"):
        ClientKey("a", dict(ECKey.generate_key("P-256").as_dict(private=True)), alg="RS256")
    with pytest.raises(ValueError, match="idempotency_key"):
        Client("https://a.example", ClientSecret("a", "b")).define_scope({"name": "a"}, idempotency_key="a\nb")
