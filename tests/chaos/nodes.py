"""Several nodes on one database, the load that they serve, and the check that nothing is lost or hidden."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from gatepost.core import ids
from gatepost.ledger import seal_rows, search, verification
from tests import service
from tests.chaos.load import BROKEN, SCOPE, Threads, Token, claims, open_session
from tests.flows.test_delivery import Json, Platform
from tests.receiver import Receiver
from tests.service import free_ports
from tests.waiting import LIMIT, wait_until


class Node:
    """One `gatepost serve` of several on the same database."""

    def __init__(self, directory: Path, database: str, base_url: str) -> None:
        self._directory, self._database, self._base_url = directory, database, base_url
        self._port, self._ops_port = free_ports(2)
        self._stack = ExitStack()
        self.url, self.ops = f"http://127.0.0.1:{self._port}", f"http://127.0.0.1:{self._ops_port}"

    def start(self) -> service.Service:
        self.service = self._stack.enter_context(
            service.running(
                self._directory, self._database, port=str(self._port), ops_port=str(self._ops_port),
                base_url=self._base_url,
            )
        )  # fmt: skip
        return self.service

    def stop(self) -> None:
        """Drain and stop, as an orchestrator does."""
        self._stack.close()

    def kill(self) -> None:
        """Kill every process at once, as when the machine loses power."""
        parent = self.service.process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        for process in (parent, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._stack.close()


class NodeLoad(Threads):
    """Publishes events and requests tokens at the nodes in turn, and goes to the next one if a node is away."""

    def __init__(self, platform: Platform, nodes: list[Node]) -> None:
        super().__init__((self._publish, self._request_tokens))
        self._platform, self._nodes = platform, nodes
        self.accepted: list[Json] = []
        self.tokens: list[Token] = []
        self.unexpected: list[str] = []

    def wait_for(self, more: int) -> None:
        events, tokens = len(self.accepted) + more, len(self.tokens) + more
        wait_until(
            lambda: bool(self.unexpected) or (len(self.accepted) >= events and len(self.tokens) >= tokens),
            f"{more} more events and tokens",
        )

    def _publish(self) -> None:
        headers, number = {"Authorization": f"Bearer {self._platform.token}"}, 0
        while not self._stop.is_set():
            event = {"specversion": "1.0", "id": str(number), "source": "/nodes", "type": "invoice.paid"}
            answer = self._send("events", {"json": event}, headers)
            if answer is not None:
                self.accepted.append(answer.json())
                number += 1

    def _request_tokens(self) -> None:
        headers = {"Authorization": self._platform.client.basic}
        form = {"data": {"grant_type": "client_credentials", "scope": SCOPE}}
        while not self._stop.is_set():
            answer = self._send("tokens", form, headers)
            if answer is not None:
                self.tokens.append(Token(claims(answer.json()["access_token"]), answer.headers["Gatepost-Event"]))

    def _send(
        self, what: str, content: dict[str, Any], headers: dict[str, str]
    ) -> requests.Response | None:  # fmt: skip
        """The response of the first node that accepts the request."""
        turn = len(self.accepted)
        while not self._stop.is_set():
            turn += 1
            node = self._nodes[turn % len(self._nodes)]
            url = f"{node.ops}/events" if what == "events" else f"{node.url}/oauth/tokens"
            try:
                with open_session() as session:
                    answer = session.post(url, headers=headers, timeout=LIMIT, **content)
            except BROKEN:
                self._stop.wait(0.05)
                continue
            if answer.status_code == 200:
                self._stop.wait(0.05)
                return answer
            if answer.status_code != 503:
                self.unexpected.append(f"{answer.status_code} {answer.text}")
                return None
            self._stop.wait(0.05)
        return None


@contextmanager
def running_nodes(directory: Path, database: str, count: int) -> Iterator[list[Node]]:
    (port,) = free_ports(1)
    nodes = [Node(directory / f"node-{number}", database, f"http://127.0.0.1:{port}") for number in range(count)]
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.stop)
            node.start()
        yield nodes


def platform_on(node: Node, url: str) -> Platform:
    """An account with endpoints. Its `gatepost` reaches the node, whatever the base URL says."""
    reached = service.Service(
        node.url, node.ops, node.service.directory, node.service.database, node.service.process,
        node.service.environment, node.service.first,
    )  # fmt: skip
    platform = Platform(reached, "nodes")
    for number in range(4):
        platform.connect(f"{url}/{number}", "invoice.*", max_in_flight=4)
    return platform


def check_everything(platform: Platform, load: NodeLoad, found: Receiver) -> Counter[str]:
    """Check that all that was acknowledged is on record and delivered, and every request a receiver saw is an attempt.

    Returns how many deliveries have so many attempts, by their outcomes.
    """
    assert load.unexpected == []
    wait_until(platform.is_quiet, "every delivery to end")
    records = platform.records()
    assert {each["status"] for each in records} == {"succeeded"}
    by_event = Counter(each["event"]["id"] for each in records)
    assert {each["id"] for each in load.accepted} <= set(by_event)
    assert len({each["id"] for each in load.accepted}) == len(load.accepted), "no event was accepted twice"
    assert set(by_event.values()) == {4}
    seen = Counter((each.headers["webhook-id"], each.headers[":path"]) for each in found.requests)
    attempts = Counter[tuple[str, str]]()
    for each in records:
        attempts[each["event"]["id"], urlsplit(each["endpoint"]["url"]).path] = len(each["attempts"])
    assert set(seen) == set(attempts)
    hidden = {key: (number, attempts[key]) for key, number in seen.items() if number > attempts[key]}
    assert not hidden, "a receiver saw more requests than there are attempts on record"
    _check_tokens(platform, load)
    return Counter(" ".join(attempt["outcome"] for attempt in each["attempts"]) for each in records)


def _check_tokens(platform: Platform, load: NodeLoad) -> None:
    store, key = platform.gatepost.opened.store, platform.gatepost.opened.service.keys.seal
    entries = {each.name: each for each in search.oldest(store, platform.account, search.EntryFilter())}
    for token in load.tokens:
        assert ids.raw(entries[token.event].subject or "") == entries[token.event].id
        assert entries[token.event].subject == token.claims["jti"]
    wait_until(lambda: store.read_now(seal_rows.unsealed_accounts) == [], "everything sealed")
    assert verification.verify(store, key, platform.account).problem == ""
