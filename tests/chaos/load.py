"""Threads that request tokens in a loop and record every response."""

import json
import threading
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

import requests

from gatepost.core import ids
from gatepost.ledger import seal_rows, search, verification
from gatepost.ledger.entries import Entry
from tests.service import Client, Service
from tests.waiting import LIMIT, wait_until

LONG = LIMIT
SCOPE = "gatepost:deliveries"
# Seconds before a thread that got no token asks again: asking thousands of times takes the CPU from what is to start.
PAUSE = 0.1
BROKEN = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)  # before or during a response


class Token(NamedTuple):
    """A token that a client received: its claims, and the id of its event."""

    claims: dict[str, Any]
    event: str


def open_session() -> requests.Session:
    """A session for a thread. It does not read the environment, which a command in this process may be replacing."""
    session = requests.Session()
    session.trust_env = False
    return session


class Threads:
    """Threads that run while the context lasts. Each of them ends when `_stop` is set."""

    def __init__(self, targets: Iterable[Callable[[], None]]) -> None:
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=target) for target in targets]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(LONG)


class Load(Threads):
    """Requests tokens over several connections until the context ends, and reconnects after failures."""

    def __init__(self, service: Service, client: Client, threads: int = 6) -> None:
        super().__init__([self._ask] * threads)
        self._service, self._client = service, client
        self.tokens: list[Token] = []
        self.unavailable = 0
        self.broken = 0
        self.unexpected: list[str] = []

    def wait_for_tokens(self, more: int) -> None:
        wanted = len(self.tokens) + more
        wait_until(lambda: len(self.tokens) >= wanted, f"{more} more tokens, after {self}")

    def __str__(self) -> str:
        return f"{len(self.tokens)} tokens, {self.unavailable} times 503, {self.broken} broken connections"

    def _ask(self) -> None:
        session = open_session()
        while not self._stop.is_set():
            try:
                answer = session.post(
                    f"{self._service.url}/oauth/tokens",
                    data={"grant_type": "client_credentials", "scope": SCOPE},
                    headers={"Authorization": self._client.basic},
                    timeout=LONG,
                )
            except BROKEN:
                self.broken += 1
                session.close()
                self._stop.wait(PAUSE)
                continue
            self._keep(answer)
        session.close()

    def _keep(self, answer: requests.Response) -> None:
        if answer.status_code == 200:
            self.tokens.append(Token(claims(answer.json()["access_token"]), answer.headers["Gatepost-Event"]))
        elif answer.status_code == 503 and answer.headers.get("Retry-After", "").isdigit():
            self.unavailable += 1
            self._stop.wait(PAUSE)
        else:
            self.unexpected.append(f"{answer.status_code} {dict(answer.headers)} {answer.text}")


def claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def check_ledger(service: Service, load: Load) -> None:
    """Check that every token that a client received is in the ledger, and that the ledger verifies."""
    store, key = service.opened.store, service.opened.service.keys.seal
    assert load.unexpected == []
    assert load.tokens
    account = load.tokens[0].claims["account"]
    found: dict[str, Entry] = {entry.name: entry for entry in search.oldest(store, account, search.EntryFilter())}
    for token in load.tokens:
        entry = found[token.event]
        assert (entry.type, entry.subject) == ("oauth.token.issued", token.claims["jti"])
        assert ids.raw(entry.subject) == entry.id
    wait_until(lambda: store.read_now(seal_rows.unsealed_accounts) == [], "everything sealed")
    verdict = verification.verify(store, key, account)
    assert verdict.problem == ""
    assert verdict.entries >= len(load.tokens)
