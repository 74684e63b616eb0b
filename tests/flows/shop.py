"""An account with an endpoint and a receiver, for the tests of commands."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from gatepost.accounts import lookup
from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.ledger import publishable as rules
from gatepost.ledger.entries import Origin
from gatepost.ledger.operations import Answer
from gatepost.ledger.publishable import Event
from gatepost.store.transaction import Tx
from gatepost.webhooks import listing, publish
from gatepost.webhooks.listing import Query
from gatepost.webhooks.listing_query import DeliveryFilter
from gatepost.webhooks.publish import Published
from tests.receiver import OK, Behaviour, Receiver, receiver
from tests.service import Client, Service
from tests.waiting import wait_until


class Shop(NamedTuple):
    """An account with one endpoint that is subscribed to invoice.*, and the receiver of the endpoint."""

    gatepost: Service
    name: str
    account: str
    token: str
    endpoint: str
    subscription: str
    receiver: Receiver
    client: Client

    def cli_json(self, *arguments: str) -> Any:
        return self.gatepost.cli_json(*arguments, "--account", self.name)

    def cli(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.gatepost.cli(*arguments, "--account", self.name, **options)

    def publish(self, data: Any = 1) -> str:
        """Publish as `event publish` does, without a process. Returns the id of the delivery."""
        event = rules.event("invoice.paid", data)
        assert isinstance(event, Event)

        def unit(tx: Tx) -> Published | Refusal:
            return publish.publish_event(tx, lookup.named(tx, self.name), event, Origin("operator"))

        made = self.gatepost.opened.store.run_now(unit)
        assert isinstance(made, Published)
        [found] = made.deliveries
        return found

    def record(self, delivery: str) -> dict[str, Any]:
        """Return what `delivery show --json` prints, without a process."""
        opened, filters = self.gatepost.opened, Query(DeliveryFilter(id=ids.raw(delivery)))

        def unit(tx: Tx) -> Answer | Refusal:
            return listing.page(tx, opened.service, lookup.named(tx, self.name), filters)

        answer = opened.store.read_now(unit)
        assert isinstance(answer, Answer)
        found: dict[str, Any] = answer.body["data"][0]
        return found

    def status(self, delivery: str, *filters: str) -> dict[str, Any]:
        """Wait until a list with these filters contains the delivery, and return it."""
        wait_until(lambda: self.record(delivery)["status"] in filters)
        return self.record(delivery)

    def explain(self, delivery: str) -> list[str]:
        return self.cli("delivery", "explain", delivery).stdout.splitlines()


@contextmanager
def opening(gatepost: Service, name: str, behaviour: Behaviour = OK, *settings: str, **members: Any) -> Iterator[Shop]:
    account, client = gatepost.account(name, *settings)
    token = gatepost.token(client, "gatepost:endpoints gatepost:subscriptions")
    with receiver(behaviour) as behind:
        endpoint = gatepost.post("/webhooks/endpoints", token, {"url": behind.url} | members)
        assert endpoint.status_code == 201, endpoint.text
        body = {"endpoint_id": endpoint.json()["id"], "events": ["invoice.*"]}
        subscription = gatepost.post("/webhooks/subscriptions", token, body)
        assert subscription.status_code == 201, subscription.text
        yield Shop(gatepost, name, account, token, endpoint.json()["id"], subscription.json()["id"], behind, client)


def refusal(shop: Shop, *arguments: str, stdin: str | None = None) -> str:
    ended = shop.cli(*arguments, check=False, stdin=stdin)
    assert ended.returncode in {2, 3, 4}, ended
    assert ended.stdout == ""
    assert ended.stderr.startswith("gatepost: ")
    assert ended.stderr.count("\n") == 1
    return ended.stderr


def platform(shop: Shop, limit: int = 1000) -> list[Any]:
    """Return the data of the published events, oldest first."""
    found = shop.gatepost.entries(shop.account, limit)[::-1]
    return [each["data"] for each in found if each["type"].startswith("invoice.")]


def lines(*numbers: int, **more: Any) -> str:
    """Return events with ids as lines of JSON, which `event publish` reads."""
    return "".join(
        json.dumps({"type": "invoice.paid", "data": number, "id": f"n{number}"} | more) + "\n" for number in numbers
    )
