"""Clients whose keys are published at a URL: fetched when needed, changed at any time, and never from a wrong place."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import requests
from joserfc.jwk import ECKey, Key, RSAKey

from gatepost.core import clock
from gatepost.egress import remote_jwks
from gatepost.egress.jwks_cache import RETRY_AFTER, REVALIDATED, STALE
from gatepost.egress.remote_jwks import MAX_BYTES, KeyFetcher
from gatepost.run import app
from gatepost.settings import load
from gatepost.web.app import Application
from gatepost.web.context import Context
from tests import service
from tests.assertions import assertion, form, right_claims, signed
from tests.receiver import Answer, Behaviour, Raw, Receiver, Request, receiver, silent
from tests.service import Service
from tests.waiting import LIMIT
from tests.web_beside import web_beside
from tests.wire import check_refusal, session_from_new_address

SCOPE = "things.read"
KEY, NEW = ECKey.generate_key("P-256", {"kid": "one"}), ECKey.generate_key("P-256", {"kid": "two"})
SECOND = timedelta(seconds=1)


def jwks(*keys: Key) -> Answer:
    return 200, {}, json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


@dataclass
class Published:
    """A client whose keys are at a server of the test."""

    gatepost: Service
    server: Receiver
    name: str  # the account's
    admin: str
    client: str = ""

    @property
    def url(self) -> str:
        """A unique URL, because another test may have used the port, and its keys may still be cached."""
        return f"{self.server.url}/{self.name}"

    def define(self, url: str = "", **members: Any) -> requests.Response:
        body = {
            "grant_types": ["client_credentials"], "scope": SCOPE, "token_endpoint_auth_method": "private_key_jwt",
            "jwks_uri": url or self.url,
        }  # fmt: skip
        return self.gatepost.post("/oauth/clients", self.admin, body | members)

    def ask(self, key: Key = KEY) -> requests.Response:
        """From an address of its own: failures are counted by address."""
        with session_from_new_address() as session:
            return session.post(f"{self.gatepost.url}/oauth/tokens", data=self.form(key))

    def form(self, key: Key = KEY) -> dict[str, str]:
        return form(SCOPE, assertion(key, self.client, self.gatepost.url))


@contextmanager
def published(gatepost: Service, name: str, behaviour: Behaviour) -> Iterator[Published]:
    _, first = gatepost.account(name)
    admin = gatepost.token(first, "gatepost:clients gatepost:scopes")
    assert gatepost.post("/oauth/scopes", admin, {"name": SCOPE}).status_code == 201
    with receiver(behaviour) as server:
        made = Published(gatepost, server, name, admin)
        answer = made.define()
        assert answer.status_code == 201, answer.text
        made.client = answer.json()["client_id"]
        yield made


def test_a_key_at_a_url(gatepost: Service, account_name: str) -> None:
    with published(gatepost, account_name, jwks(NEW, KEY, RSAKey.generate_key(2048, {"kid": "rsa"}))) as there:
        assert there.server.requests == [], "nothing is fetched before it is needed"
        answer = there.ask()
        assert answer.status_code == 200, answer.text
        assert there.ask(NEW).status_code == 200
        (request,) = there.server.requests
        assert set(request.headers) == {":method", ":path", "host", "accept", "user-agent"}


def test_a_key_that_is_not_in_the_key_set(sqlite_gatepost: Service, account_name: str) -> None:
    """Asked for once, and then not again for a while."""
    with published(sqlite_gatepost, account_name, jwks(NEW)) as there:
        for _ in range(5):
            check_refusal(there.ask(), "/oauth/tokens", "invalid_client")
        assert len(there.server.requests) == 1
        assert there.ask(NEW).status_code == 200


BAD: dict[str, Answer] = {
    "not found": (404, {}, jwks(KEY)[2]),
    "broken": (500, {}, b""),
    "moved": (302, {"Location": "/elsewhere"}, jwks(KEY)[2]),
    "no JSON": (200, {}, b"<html>keys</html>"),
    "no key set": (200, {}, b'{"key": 1}'),
    "no keys": (200, {}, b'{"keys": []}'),
    "too large": (200, {}, jwks(KEY)[2] + b" " * MAX_BYTES),
    "private keys": (200, {}, json.dumps({"keys": [KEY.as_dict(private=True)]}).encode()),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_key_set(sqlite_gatepost: Service, account_name: str, name: str) -> None:
    """The caller sees what any caller sees who fails."""
    with published(sqlite_gatepost, account_name, BAD[name]) as there:
        for _ in range(2):
            check_refusal(there.ask(), "/oauth/tokens", "invalid_client", "client authentication failed")
        assert len(there.server.requests) == 1


def test_a_server_that_never_answers(sqlite_gatepost: Service, account_name: str) -> None:
    """Its clients are refused when the fetch has timed out."""
    with published(sqlite_gatepost, account_name, Raw(silent)) as there:
        check_refusal(there.ask(), "/oauth/tokens", "invalid_client")
        assert len(there.server.requests) == 1


def test_a_server_that_does_not_answer_delays_no_other_client(
    sqlite_gatepost: Service, account_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_jwks, "TIMEOUT", LIMIT)
    with (
        published(sqlite_gatepost, account_name, Raw(silent)) as there,
        ThreadPoolExecutor(1) as pool,
        web_beside(sqlite_gatepost) as beside,
    ):
        waiting = pool.submit(beside.session.post, f"{beside.url}/oauth/tokens", data=there.form())
        there.server.wait_for(1)
        with published(sqlite_gatepost, account_name + "-other", jwks(KEY)) as other:
            answer = beside.session.post(f"{beside.url}/oauth/tokens", data=other.form())
            assert answer.status_code == 200, answer.text
            assert not waiting.done()
        there.server.close()
        check_refusal(waiting.result(LIMIT), "/oauth/tokens", "invalid_client")


def test_many_at_once_fetch_once(sqlite_gatepost: Service, account_name: str) -> None:
    """All requests are sent before the key set is answered, and by one thread: it needs no time that could run out."""
    sent = threading.Event()

    def answer(_request: Request) -> Answer:
        sent.wait(LIMIT)
        return jwks(KEY)

    with published(sqlite_gatepost, account_name, answer) as there, contextlib.ExitStack() as stack:
        forms = [urlencode(form(SCOPE, assertion(KEY, there.client, sqlite_gatepost.url))) for _ in range(20)]
        host = urlsplit(sqlite_gatepost.url)
        connections = [stack.enter_context(closing(HTTPConnection(host.netloc, timeout=LIMIT))) for _ in forms]
        for connection in connections:
            connection.connect()
        for connection, body in zip(connections, forms, strict=True):
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", "/oauth/tokens", body, headers)
        sent.set()
        assert [connection.getresponse().status for connection in connections] == [200] * 20
        assert len(there.server.requests) == 1


def test_unknown_clients_do_not_cause_a_fetch(sqlite_gatepost: Service, account_name: str) -> None:
    """Only the key set of the client's definition is fetched, not a URL in an assertion."""
    with published(sqlite_gatepost, account_name, jwks(KEY)) as there, receiver(jwks(NEW)) as evil:
        claims = right_claims(there.client, sqlite_gatepost.url)
        named = signed(NEW, claims, jku=evil.url, x5u=evil.url, jwk=NEW.as_dict(private=False))
        with session_from_new_address() as session:
            answer = session.post(f"{sqlite_gatepost.url}/oauth/tokens", data=form(SCOPE, named))
        assert answer.status_code == 401
        assert evil.connections == 0


# --- definitions


WRONG = [
    "ftp://keys.example/", "keys.example/jwks", "https://user:word@keys.example/", "https://keys.example/#part",
    "http://169.254.169.254/latest", "http://[fd00:ec2::254]/", "http://metadata.google.internal/",
    "http://2130706433/", "https://keys.example:22/", "https://keys.example/ space", "javascript:alert(1)", "/jwks",
]  # fmt: skip


def test_urls_that_are_refused_at_definition(sqlite_gatepost: Service, account_name: str) -> None:
    with published(sqlite_gatepost, account_name, jwks(KEY)) as there:
        for url in [*WRONG, f"{sqlite_gatepost.url}/oauth/jwks", f"{sqlite_gatepost.ops}/metrics"]:
            check_refusal(there.define(url), "/oauth/clients", "invalid_client_metadata", "jwks_uri")
        both = there.define(jwks={"keys": [KEY.as_dict(private=False)]})
        check_refusal(both, "/oauth/clients", "invalid_client_metadata", "not both")
        change = {"client_id": there.client, "jwks_uri": WRONG[0]}
        answer = sqlite_gatepost.post("/oauth/clients", there.admin, change)
        check_refusal(answer, "/oauth/clients", "invalid_client_metadata", "jwks_uri")


def test_from_a_url_to_keys_and_to_another_url(sqlite_gatepost: Service, account_name: str) -> None:
    with published(sqlite_gatepost, account_name, jwks(KEY)) as there, receiver(jwks(NEW)) as second:
        assert there.ask().status_code == 200
        for change, key in (
            ({"jwks_uri": f"{second.url}/{account_name}"}, NEW),
            ({"jwks_uri": None, "jwks": {"keys": [KEY.as_dict(private=False)]}}, KEY),
        ):
            answer = sqlite_gatepost.post("/oauth/clients", there.admin, {"client_id": there.client} | change)
            assert answer.status_code == 200, answer.text
            assert there.ask(key).status_code == 200
            assert there.ask(KEY if key is NEW else NEW).status_code == 401


def test_private_addresses_are_refused_without_dev(sqlite_gatepost: Service, account_name: str) -> None:
    """At definition; and at the fetch, for what was defined before."""
    gatepost = sqlite_gatepost
    with published(gatepost, account_name, jwks(KEY)) as there:
        with web_beside(gatepost, dev="false") as strict:
            sent = form(SCOPE, assertion(KEY, there.client, gatepost.url))
            answer = strict.session.post(f"{strict.url}/oauth/tokens", data=sent)
            check_refusal(answer, "/oauth/tokens", "invalid_client")
            assert there.server.connections == 0
            there.gatepost = strict
            for private in ("https://127.0.0.1/", "https://10.0.0.1/", "https://localhost/", "http://keys.example/"):
                check_refusal(there.define(private), "/oauth/clients", "invalid_client_metadata", "jwks_uri")
        there.gatepost = gatepost
        assert there.ask().status_code == 200


# --- as time goes by


@dataclass
class Inside:
    """The same service inside this process, with a clock that the test moves."""

    application: Application
    now: list[datetime]
    url: str
    client: str

    async def ask(self, key: Key) -> int:
        second = int(self.now[0].timestamp())
        sent = form(SCOPE, assertion(key, self.client, self.url, iat=second, exp=second + 60))
        body, answered = urlencode(sent).encode(), []
        scope = {
            "type": "http", "method": "POST", "path": "/oauth/tokens", "query_string": b"", "client": ("10.1.2.3", 1),
            "headers": [(b"host", b"gatepost.test"), (b"content-type", b"application/x-www-form-urlencoded")],
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: dict[str, Any]) -> None:
            answered.append(message)

        await self.application(scope, receive, send)
        return int(answered[0]["status"])


@contextmanager
def inside(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Published, Inside]]:
    """On a store of its own: what happens there happens in the future."""
    now = [datetime.now(UTC)]
    with (
        service.running(directory / "data", only="web") as gatepost,
        published(gatepost, "in-time", jwks(KEY)) as there,
    ):
        monkeypatch.setattr(clock, "now", lambda: now[0])
        opened = app.open_for_use(load({}, gatepost.environment))
        fetcher = KeyFetcher(opened.service.foreign, opened.service.policy_for, clock.now)
        context = Context(opened.store, opened.service, clock.now, fetcher)
        try:
            yield there, Inside(Application(context), now, gatepost.url, there.client)
        finally:
            opened.store.close()


def test_keys_are_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with inside(tmp_path, monkeypatch) as (there, here):

        async def story() -> None:
            assert await here.ask(KEY) == 200
            there.server.behaviour = jwks(KEY, NEW)
            assert await here.ask(NEW) == 401, "asked for a moment ago"
            here.now[0] += RETRY_AFTER
            assert await here.ask(NEW) == 200, "an unknown kid asks again"
            assert await here.ask(KEY) == 200
            assert len(there.server.requests) == 2
            there.server.behaviour = jwks(NEW)
            assert await here.ask(KEY) == 200, "nobody has said yet that it is gone"
            here.now[0] += REVALIDATED
            assert await here.ask(KEY) == 401
            assert await here.ask(NEW) == 200
            assert len(there.server.requests) == 3

        asyncio.run(story())


def test_cached_keys_are_used_while_their_server_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with inside(tmp_path, monkeypatch) as (there, here):

        async def story() -> None:
            assert await here.ask(KEY) == 200
            there.server.behaviour = (503, {}, b"")
            here.now[0] += STALE - SECOND
            assert await here.ask(KEY) == 200
            here.now[0] += SECOND
            assert await here.ask(KEY) == 401
            there.server.behaviour = jwks(KEY)
            here.now[0] += RETRY_AFTER
            assert await here.ask(KEY) == 200

        asyncio.run(story())
