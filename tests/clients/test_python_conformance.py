"""The conformance table that all clients share, run with the Python client, synchronous and asynchronous."""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from starlette.datastructures import Headers

from gatepost_client import (
    ApiError,
    AsyncClient,
    Client,
    ClientKey,
    ClientSecret,
    RequestCredentials,
    TokenError,
    TokenVerifier,
    VerificationError,
    jose,
)
from gatepost_client.transport import Request, Response, Transport
from gatepost_client.webhooks import verify

FOLDER = Path(__file__).parents[2] / "clients" / "conformance"
GENERATED = "$generated"


def table(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return loaded


def named(cases: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in cases])


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Clock:
    """The time that a case sets."""

    now = 0.0

    def __call__(self) -> float:
        return float(self.now)


# --- webhooks


@named(table("webhooks")["cases"])
@pytest.mark.parametrize("form", ["joined", "separate"])
def test_webhooks(case: dict[str, Any], form: str) -> None:
    now = datetime.fromtimestamp(case["now"], UTC)
    body = case["body"].encode() if "body" in case else b64decode(case["body_base64"])
    pairs = [
        (name, value)
        for name, values in case["headers"].items()
        for value in (values if isinstance(values, list) else [values])
    ]
    headers: Mapping[str, str]
    if form == "separate":  # as in Starlette
        headers = Headers(raw=[(name.lower().encode(), value.encode()) for name, value in pairs])
    else:
        headers = {name: ", ".join(each for other, each in pairs if other == name) for name, _ in pairs}
    if "event" in case["expect"]:
        assert verify(case["secrets"], headers, body, now=now) == case["expect"]["event"]
        return
    with pytest.raises(VerificationError) as raised:
        verify(case["secrets"], headers, body, now=now)
    assert raised.value.check == case["expect"]["check"]


# --- access tokens

TOKENS = table("tokens")


class KeySets(Transport):
    """Responds with one key set after the other."""

    def __init__(self, names: list[str | None]) -> None:
        super().__init__()
        self.names = names
        self.fetches = 0

    def send(self, request: Request) -> Response:
        assert request.method == "GET"
        assert request.url == "https://gatepost.example/oauth/jwks"
        name = self.names[min(self.fetches, len(self.names) - 1)]
        self.fetches += 1
        if name is None:
            return Response(503, {}, b"{}")
        body = json.dumps(TOKENS["key_sets"][name]).encode()
        return Response(200, {"cache-control": "public, max-age=900"}, body)


@named(TOKENS["cases"])
def test_tokens(case: dict[str, Any], mode: str) -> None:
    transport, clock = KeySets(case["key_sets"]), Clock()
    verifier = TokenVerifier(**case["options"], transport=transport, clock=clock)
    for step in case["steps"]:
        clock.now = step["now"]
        request = step["request"]
        credentials = RequestCredentials(request["authorization"], request["dpop"], request["method"], request["url"])
        scopes = step["scopes"]
        calls: Any
        if mode == "sync":
            calls = repeated(lambda: verifier.verify(credentials, scopes=scopes), step.get("times", 1))  # noqa: B023
        else:
            calls = gathered(lambda: verifier.verify_async(credentials, scopes=scopes), step.get("times", 1))  # noqa: B023
        for outcome in calls:
            check_step(step, outcome)
    assert transport.fetches == case["fetches"]


def check_step(step: dict[str, Any], outcome: Any) -> None:
    expect = step["expect"]
    if "claims" in expect:
        assert not isinstance(outcome, BaseException), outcome
        assert outcome.claims == expect["claims"]
        return
    assert isinstance(outcome, TokenError), outcome
    assert outcome.check == expect["check"]
    assert str(outcome) == expect["message"]
    assert outcome.status == expect["status"]
    assert outcome.www_authenticate == (expect["www_authenticate"] or "")


def repeated(function: Callable[[], Any], times: int) -> list[Any]:
    """Call a function in this many threads, and return the results or exceptions."""

    def outcome() -> Any:
        try:
            return function()
        except (TokenError, ApiError) as error:
            return error

    with ThreadPoolExecutor(times) as pool:
        return [future.result() for future in [pool.submit(outcome) for _ in range(times)]]


def gathered(function: Callable[[], Any], times: int) -> list[Any]:
    async def run() -> list[Any]:
        return await asyncio.gather(*(function() for _ in range(times)), return_exceptions=True)

    return asyncio.run(run())


# --- operations


class Service(Transport):
    """Checks each request and gives the answer of the table."""

    def __init__(self, exchanges: list[dict[str, Any]]) -> None:
        super().__init__()
        self.exchanges = list(exchanges)
        self.generated = ""
        self.earlier: set[str] = set()
        self.assertions: set[str] = set()

    def next_call(self) -> None:
        self.earlier.add(self.generated)
        self.generated = ""

    def send(self, request: Request) -> Response:
        assert self.exchanges, f"unexpected request: {request.method} {request.url}"
        exchange = self.exchanges.pop(0)
        self.check(request, exchange["request"])
        answer = exchange["answer"]
        if answer.get("connection") == "failed":
            raise ApiError("connection_failed", "the connection failed")
        body = json.dumps(answer["json"]) if "json" in answer else answer["text"]
        return Response(answer["status"], answer["headers"], body.encode())

    def check(self, request: Request, expect: dict[str, Any]) -> None:
        parts = urlsplit(request.url)
        assert request.method == expect["method"]
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == expect["url"]
        assert dict(parse_qsl(parts.query, strict_parsing=bool(parts.query))) == expect.get("query", {})
        headers = {name.lower(): value for name, value in request.headers.items()}
        for name, value in expect.get("headers", {}).items():
            assert self.same(headers.get(name), value), name
        if "json" in expect:
            assert self.same(json.loads(request.body or b""), expect["json"])
        if "form" in expect:
            form = dict(parse_qsl((request.body or b"").decode(), strict_parsing=True))
            if "assertion" in expect:
                self.check_assertion(form.pop("client_assertion"), expect["assertion"])
            assert form == expect["form"]

    def check_assertion(self, assertion: str, expect: dict[str, Any]) -> None:
        parsed = jose.parse(assertion)
        claims = parsed.claims()
        jti = claims.pop("jti")
        assert jti not in self.assertions
        self.assertions.add(jti)
        keys = json.loads((FOLDER / "keys.json").read_text("utf-8"))
        assert (parsed.header, claims) == (expect["header"], expect["claims"])
        assert parsed.is_signed_by(jose.import_public(keys["client"]))

    def same(self, value: Any, expect: Any) -> bool:
        if expect == GENERATED:
            self.generated = self.generated or value
            return bool(value) and value == self.generated and value not in self.earlier
        if isinstance(expect, dict) and isinstance(value, dict):
            return value.keys() == expect.keys() and all(self.same(value[name], expect[name]) for name in expect)
        return bool(value == expect)


@named(table("operations")["cases"])
def test_operations(case: dict[str, Any], mode: str) -> None:
    service, clock, waits = Service(case["exchanges"]), Clock(), list[float]()
    options = dict(case["options"])
    client_id = options.pop("client_id")
    secret, key = options.pop("client_secret", None), options.pop("private_key", None)
    credentials = ClientSecret(client_id, secret) if secret is not None else ClientKey(client_id, key)
    client = Client(**options, credentials=credentials, transport=service, clock=clock, sleep=waits.append)
    asynchronous = AsyncClient("https://gatepost.example", credentials)
    asynchronous.sync = client
    for call in case["calls"]:
        clock.now = call["now"]
        service.next_call()
        if mode == "sync":
            outcomes = repeated(lambda: listed(method(client, call)()), call.get("times", 1))  # noqa: B023
        else:
            outcomes = gathered(lambda: listed_async(method(asynchronous, call)()), call.get("times", 1))  # noqa: B023
        for outcome in outcomes:
            check_call(call["expect"], outcome)
    assert not service.exchanges
    assert len(waits) == len(case["waits"])
    for wait, (least, most) in zip(waits, case["waits"], strict=True):
        assert least <= wait <= most


def method(client: Client | AsyncClient, call: dict[str, Any]) -> Callable[[], Any]:
    arguments = dict(call["arguments"])
    arguments |= arguments.pop("query", {})
    return lambda: getattr(client, call["operation"])(**arguments)


def listed(result: Any) -> Any:
    """The items of an iterator, and the error after them; any other result as it is."""
    if not isinstance(result, Iterator):
        return result
    items: list[Any] = []
    try:
        items.extend(result)
    except ApiError as error:
        return items, error
    return items, None


async def listed_async(result: Any) -> Any:
    if not isinstance(result, AsyncIterator):
        return await result
    items: list[Any] = []
    try:
        async for item in result:
            items.append(item)  # noqa: PERF401 (the items before an error count)
    except ApiError as error:
        return items, error
    return items, None


def check_call(expect: dict[str, Any], outcome: Any) -> None:
    if "items" in expect:
        items, outcome = outcome
        assert items == expect["items"]
        if "error" not in expect:
            assert outcome is None
    if "result" in expect:
        assert outcome == expect["result"]
    if "error" in expect:
        assert isinstance(outcome, ApiError), outcome
        for name, value in expect["error"].items():
            assert getattr(outcome, name) == value, name
