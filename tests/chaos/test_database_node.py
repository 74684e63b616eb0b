"""A database node of a distributed store that stops: the service goes on for all accounts on the other nodes."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests

from tests import citus, service
from tests.citus import Cluster
from tests.flows.shop import Shop, opening
from tests.receiver import OK
from tests.service import Service
from tests.waiting import LIMIT, wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with citus.cluster() as found:
        citus.migrate_and_distribute(found.url)
        yield found


def test_a_node_stops_and_returns(cluster: Cluster, tmp_path: Path) -> None:
    """A definition needs the node of its account, because it has the entry of the ledger."""
    with service.running(tmp_path / "data", cluster.url) as gatepost, ExitStack() as stack:
        shops = shops_by_node(gatepost, cluster, stack)
        (stopped, down), (_, up) = shops.items()
        admin = {shop.name: gatepost.token(shop.client, "gatepost:scopes") for shop in (down, up)}

        def define(shop: Shop, name: str) -> int:
            return gatepost.post("/oauth/scopes", admin[shop.name], {"name": name}).status_code

        def issue(shop: Shop) -> int:
            return gatepost.token_answer(shop.client, "gatepost:deliveries").status_code

        waiting = {shop.name: shop.publish() for shop in (down, up)}
        for shop in (down, up):
            shop.receiver.wait_for(1)
        cluster.nodes[stopped].stop("immediate")
        try:
            wait_until(lambda: ready(gatepost) == {"status": "ready", "unreachable": [stopped]}, "the report")
            assert (issue(down), define(down, "api:one")) == (503, 503)
            assert (issue(up), define(up, "api:one")) == (200, 201)
            up.status(waiting[up.name], "succeeded")
            up.status(up.publish(), "succeeded")
            problems = [each["found"] for each in doctor(gatepost) if each["status"] == "problem"]
            assert [text for text in problems if stopped in text]
        finally:
            cluster.nodes[stopped].start()
        wait_until(lambda: ready(gatepost) == {"status": "ready"}, "the report")
        wait_until(lambda: issue(down) == 200, "the web process to use the node again")
        assert define(down, "api:one") == 201
        down.status(waiting[down.name], "succeeded")
        down.status(down.publish(), "succeeded")
        for shop in (down, up):
            assert len(shop.receiver.requests) == 3, "two deliveries, of which the first has two attempts"
            assert gatepost.cli("audit", "verify", "--account", shop.name).returncode == 0


def shops_by_node(gatepost: Service, cluster: Cluster, stack: ExitStack) -> dict[str, Shop]:
    """An account with an endpoint on each node. The first attempt to an endpoint fails, and the second one succeeds."""
    found: dict[str, Shop] = {}
    for number in range(100):
        shop = stack.enter_context(opening(gatepost, f"acme-{number}", [(503, {"retry-after": "3"}, b""), OK]))
        node = gatepost.cli_json("account", "show", shop.name)["database_node"]
        found.setdefault(node, shop)
        if found.keys() == cluster.nodes.keys():
            return found
    raise AssertionError(found.keys())


def ready(gatepost: Service) -> Any:
    return requests.get(f"{gatepost.ops}/readyz", timeout=LIMIT).json()


def doctor(gatepost: Service) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gatepost.cli("doctor", "--json", check=False).stdout)
    return found
