"""Events about deliveries are delivered too, and yet no loop can form."""

import json

import pytest

from tests.flows.test_delivery import Platform
from tests.receiver import receiver
from tests.service import Service
from tests.waiting import wait_until


@pytest.fixture
def platform(gatepost: Service, account_name: str) -> Platform:
    return Platform(gatepost, account_name)


def test_two_failing_endpoints_that_subscribe_to_failures(platform: Platform) -> None:
    """Each endpoint rejects the event about the failure of the other. These failures are recorded, but not sent."""
    with receiver((500, {}, b"")) as found:
        types = ("invoice.paid", "webhook.delivery.failed")
        one, two = (platform.connect(f"{found.url}/{name}", *types, retry_schedule=[]) for name in "ab")
        result = platform.publish()
        assert result["matched"] == 2
        wait_until(platform.is_quiet, "an end of it")
        requests = [(each.headers[":path"], json.loads(each.body)["type"]) for each in found.requests]
    failures = platform.entries("webhook.delivery.failed")
    assert sorted(each["data"]["event_type"] for each in failures) == sorted([*types, *types])
    for each in failures:
        first = each["data"]["event_type"] == "invoice.paid"
        assert each["matched"] == (1 if first else 0)
    other = {one["id"]: two["id"], two["id"]: one["id"]}
    for each in failures:
        for record in platform.records(event_id=each["id"]):
            assert record["endpoint"]["id"] == other[each["data"]["endpoint"]], "the other one hears of it"
    watched = [each for each in requests if each[1] == "webhook.delivery.failed"]
    assert sorted(watched) == [("/hooks/a", "webhook.delivery.failed"), ("/hooks/b", "webhook.delivery.failed")]


def test_an_endpoint_gets_no_events_about_itself(platform: Platform) -> None:
    with receiver() as found, receiver() as other:
        endpoint = platform.connect(found.url, "webhook.*", "invoice.*")
        watching = platform.connect(other.url, "webhook.endpoint.*", "webhook.subscription.*")
        platform.redefine(endpoint, description="changed")
        platform.subscription(endpoint, "more.*")
        platform.redefine(endpoint, status="disabled")
        platform.redefine(endpoint, status="active")
        other.wait_for(4)
        platform.redefine(watching, description="changed too")
        last = platform.send(type_="invoice.paid")
        platform.once(last, "succeeded")
        wait_until(platform.is_quiet, "everything to be delivered")
        heard = [json.loads(each.body) for each in found.requests]
        reported = [json.loads(each.body) for each in other.requests]
    assert sorted(each["type"] for each in reported) == [
        "webhook.endpoint.changed", "webhook.endpoint.disabled", "webhook.endpoint.enabled",
        "webhook.subscription.created",
    ]  # fmt: skip
    about = {each["id"]: each["subject"] for each in platform.gatepost.entries(platform.account, 1000)}
    assert endpoint["id"] not in {about[each["id"]] for each in heard}
    assert not any(each["data"].get("endpoint") == endpoint["id"] for each in heard if each["data"])
    assert [about[each["id"]] for each in heard if each["type"] == "webhook.endpoint.changed"] == [watching["id"]]


@pytest.mark.parametrize("format_", ["standard", "cloudevents"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.0.0.2", "[::ffff:127.0.0.1]", "LOCALHOST"])
def test_gatepost_itself_is_never_an_endpoint(
    sqlite_gatepost: Service, account_name: str, host: str, format_: str
) -> None:
    platform = Platform(sqlite_gatepost, account_name)
    for listener, path in ((sqlite_gatepost.ops, "/events"), (sqlite_gatepost.url, "/webhooks/endpoints")):
        port = listener.rpartition(":")[2]
        body = {"url": f"http://{host}:{port}{path}", "format": format_}
        assert "Gatepost itself" in platform.post("/webhooks/endpoints", body, 400)["detail"]
    with receiver() as found:
        endpoint = platform.endpoint(found.url)
        change = {"id": endpoint["id"], "url": f"http://{host}:{sqlite_gatepost.ops.rpartition(':')[2]}/events"}
        assert "Gatepost itself" in platform.post("/webhooks/endpoints", change, 400)["detail"]
