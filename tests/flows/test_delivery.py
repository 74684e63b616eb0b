"""An event goes out at once: what the receiver gets, byte for byte, and what the record says of it.

`Platform` is how the delivery stories speak to a running service, through its public surface.
"""

import itertools
import json
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
import requests
from standardwebhooks import Webhook

from gatepost import __version__
from gatepost.accounts import account_rows
from gatepost.core import clock
from gatepost.ledger import publishable as ledger
from gatepost.ledger.entries import Origin
from gatepost.ledger.operations import OPERATIONS
from gatepost.ledger.publishable import Event
from gatepost.verify import VerificationError, verify
from gatepost.webhooks import publish
from tests.receiver import OK, Raw, Request, hangs_up, receiver, says
from tests.service import Service
from tests.waiting import wait_until

Json = dict[str, Any]
_numbers = itertools.count(1)


def instant(text: str) -> datetime:
    found = clock.parse_rfc3339(text)
    assert found is not None
    return found


def arrived(request: Request) -> datetime:
    """The receiver's own clock, as the time of day."""
    return clock.now() - timedelta(seconds=time.monotonic() - request.at)


class Platform:
    """An account of a running service: what it defines, publishes and reads."""

    def __init__(self, gatepost: Service, name: str, *settings: str) -> None:
        self.gatepost, self.name = gatepost, name
        self.account, self.client = gatepost.account(name, *settings)
        self.token = gatepost.token(self.client, " ".join(OPERATIONS))

    # --- defining

    def post(self, path: str, body: Json, status: int, **headers: str) -> Json:
        answer = self.gatepost.post(path, self.token, body, **headers)
        assert answer.status_code == status, answer.text
        found: Json = answer.json()
        return found

    def endpoint(self, url: str, **members: Any) -> Json:
        return self.post("/webhooks/endpoints", {"url": url} | members, 201)

    def subscription(self, endpoint: Json, *events: str, **members: Any) -> Json:
        body = {"endpoint_id": endpoint["id"], "events": list(events)} | members
        return self.post("/webhooks/subscriptions", body, 201)

    def connect(self, url: str, *events: str, **members: Any) -> Json:
        """An endpoint that is subscribed to these types, or to all of the platform's."""
        made = self.endpoint(url, **members)
        self.subscription(made, *(events or ("*",)))
        return made

    def redefine(self, found: Json, **members: Any) -> Json:
        """An endpoint or a subscription; with nothing said it is only read."""
        path = "/webhooks/subscriptions" if "endpoint_id" in found else "/webhooks/endpoints"
        return self.post(path, {"id": found["id"]} | members, 200)

    # --- publishing

    def publish(self, data: Any = None, type_: str = "invoice.paid") -> Json:
        """Through the operations plane: the entry, with the ids of its deliveries."""
        event = {"specversion": "1.0", "id": str(next(_numbers)), "source": "/tests", "type": type_, "data": data}
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = self.gatepost.session.post(f"{self.gatepost.ops}/events", json=event, headers=headers)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    def send(self, data: Any = None, type_: str = "invoice.paid") -> str:
        """Publish what one subscription matches: the id of the delivery."""
        [found] = self.publish(data, type_)["deliveries"]
        return str(found)

    def send_many(self, count: int, type_: str = "invoice.paid") -> None:
        """Beside the service, on its store: for thousands."""
        store = self.gatepost.opened.store
        for start in range(0, count, 100):
            made = [ledger.event(type_, {"n": number}) for number in range(start, min(start + 100, count))]
            events = [each for each in made if isinstance(each, Event)]

            def unit(tx: Any, events: list[Event] = events) -> None:
                account = account_rows.load(tx, self.account)
                assert account is not None
                publish.publish_events(tx, account, events, Origin("test"))

            store.run_now(unit)

    # --- reading

    def read(self, **query: str) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = self.gatepost.session.get(f"{self.gatepost.url}/webhooks/deliveries", params=query, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer

    def records(self, **query: str) -> list[Json]:
        """All pages of them, oldest first."""
        found: list[Json] = []
        query = {"limit": "200", "order": "oldest"} | query
        while True:
            page = self.read(**query).json()
            found += page["data"]
            if page["next_cursor"] is None:
                return found
            query["cursor"] = page["next_cursor"]

    def record(self, delivery: str, **query: str) -> Json:
        [found] = self.records(id=delivery, **query)
        return found

    def once(self, delivery: str, status: str, attempts: int = 0) -> Json:
        """The record, as soon as it is in that state after so many attempts."""
        found: list[Json] = []

        def is_so() -> bool:
            found[:] = [self.record(delivery)]
            return found[0]["status"] == status and len(found[0]["attempts"]) >= attempts

        wait_until(is_so, f"{delivery} to be {status} after {attempts} attempts")
        return found[0]

    def is_quiet(self) -> bool:
        """What follows from a delivery is recorded with its end: when none is unfinished, nothing more will come."""
        now = self.read(view="summary").json()["now"]
        return bool(now["pending"] + now["held"] + now["in_flight"] == 0)

    def entries(self, type_: str) -> list[Json]:
        """Of the ledger, oldest first."""
        return [each for each in self.gatepost.entries(self.account, 1000)[::-1] if each["type"] == type_]


@pytest.fixture
def platform(gatepost: Service, account_name: str) -> Platform:
    return Platform(gatepost, account_name)


@pytest.fixture
def one_store(sqlite_gatepost: Service, account_name: str) -> Platform:
    return Platform(sqlite_gatepost, account_name)


# --- what the receiver gets

# As JSON writes it: the order of keys, numbers and letters of any script are kept.
DATA = '{"z":1,"a":[0.1,1e300,-0.0,9007199254740993],"text":"Grüße, 雪 \\" \\\\ \\n","none":null,"":{}}'


@pytest.mark.parametrize("signing", ["v1", "v1a"])
def test_the_receiver_gets_the_event_as_it_was_recorded_and_signed(platform: Platform, signing: str) -> None:
    with receiver() as found:
        endpoint = platform.connect(found.url, signing=signing)
        result = platform.publish(json.loads(DATA))
        [request] = found.wait_for(1)
        record = platform.once(result["deliveries"][0], "succeeded")
    start = (
        f'{{"id":"{result["id"]}","type":"invoice.paid","timestamp":"{result["at"]}","account":"{platform.account}",'
    )
    assert request.body.decode() == f'{start}"data":{DATA}}}'
    headers = request.headers
    assert verify(endpoint["secret"], headers, request.body)["data"] == json.loads(DATA)
    if signing == "v1":
        assert Webhook(endpoint["secret"]).verify(request.body, headers)["id"] == result["id"]
    for changed in (request.body.replace(b"0.1", b"0.10"), request.body + b" "):
        with pytest.raises(VerificationError):
            verify(endpoint["secret"], headers, changed)
    assert (headers[":method"], headers[":path"]) == ("POST", "/hooks")
    assert headers["webhook-id"] == result["id"]
    assert int(headers["webhook-timestamp"]) == int(instant(record["attempts"][0]["started_at"]).timestamp())
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"] == f"Gatepost/{__version__}"
    assert set(headers) - {":method", ":path"} == {
        "host", "accept", "content-length", "content-type", "user-agent", "webhook-id", "webhook-timestamp",
        "webhook-signature",
    }  # fmt: skip


def test_a_cloud_event(platform: Platform) -> None:
    with receiver() as found:
        endpoint = platform.connect(found.url, format="cloudevents")
        result = platform.publish({"amount": 1})
        [request] = found.wait_for(1)
    assert request.headers["content-type"] == "application/cloudevents+json"
    assert verify(endpoint["secret"], request.headers, request.body) == {
        "specversion": "1.0",
        "id": result["id"],
        "source": f"urn:gatepost:{platform.account}",
        "type": "invoice.paid",
        "time": result["at"],
        "datacontenttype": "application/json",
        "data": {"amount": 1},
    }


def test_headers_of_the_endpoints_own(one_store: Platform) -> None:
    with receiver() as found:
        one_store.connect(found.url, headers={"X-Shop": "7", "X-Api-Key": "not to be shown"})
        one_store.send()
        [request] = found.wait_for(1)
    assert (request.headers["x-shop"], request.headers["x-api-key"]) == ("7", "not to be shown")


@pytest.mark.parametrize(
    "name",
    [
        "Webhook-Id", "webhook-signature", "WEBHOOK-TIMESTAMP", "webhook-anything", "Host", "Content-Length",
        "content-type", "Transfer-Encoding", "Authorization", "Connection", "User-Agent", "Expect",
    ],
)  # fmt: skip
def test_headers_that_are_not_the_endpoints_to_set(one_store: Platform, name: str) -> None:
    body = {"url": "http://127.0.0.1:9999/", "headers": {name: "x"}}
    result = one_store.post("/webhooks/endpoints", body, 400)
    assert name in result["detail"]
    assert result["errors"][0]["pointer"] == "/headers"


@pytest.mark.parametrize("value", ["a\r\nwebhook-id: evt_1", "a\nb", "a\rb", "a\tb", " a", "\x7f", "é", ""])
def test_header_values_that_could_become_something_else(one_store: Platform, value: str) -> None:
    body = {"url": "http://127.0.0.1:9999/", "headers": {"X-Shop": value}}
    assert "X-Shop" in one_store.post("/webhooks/endpoints", body, 400)["detail"]


# --- what the record says


def test_the_record_of_one_that_was_delivered(platform: Platform) -> None:
    with receiver((202, {}, b"thanks")) as found:
        endpoint = platform.connect(found.url)
        result = platform.publish({"amount": 1})
        record = platform.once(result["deliveries"][0], "succeeded")
    [attempt] = record.pop("attempts")
    assert record == {
        "id": result["deliveries"][0],
        "account": platform.account,
        "endpoint": {"id": endpoint["id"], "url": found.url},
        "subscription_id": record["subscription_id"],
        "event": {"id": result["id"], "type": "invoice.paid", "at": result["at"]},
        "status": "succeeded",
        "created_at": record["created_at"],
        "ended_at": attempt["ended_at"],
        "ended_reason": "delivered",
        "trigger": "event",
        "retries": {"made": 0, "remaining": 0, "next_at": None, "plan": []},
    }
    assert (attempt["number"], attempt["outcome"], attempt["response_code"], attempt["failure"]) == (
        1, "succeeded", 202, None,
    )  # fmt: skip
    assert (attempt["url"], attempt["remote_ip"]) == (found.url, "127.0.0.1")
    assert attempt["signed_with"] == [each["id"] for each in endpoint["secrets"]]
    assert attempt["waited"]["for"] in ("plan", "turn")
    assert attempt["worker"].startswith("wrk_")
    times = [record["event"]["at"], attempt["planned_at"], attempt["started_at"], attempt["ended_at"]]
    assert times == sorted(times)
    assert attempt["waited"]["ms"] == (instant(times[2]) - instant(times[1])) // timedelta(milliseconds=1)
    timings = attempt["timings"]
    assert 0 < timings["connect_ms"] <= timings["first_byte_ms"] <= attempt["duration_ms"]


def test_payload_and_responses_only_when_asked_for(platform: Platform) -> None:
    with receiver((200, {"Set-Cookie": "session=of-the-receiver"}, b"thanks")) as found:
        platform.connect(found.url, headers={"X-Api-Key": "key-of-the-receiver"})
        delivery = platform.send({"amount": 12345})
        platform.once(delivery, "succeeded")
        [request] = found.requests
    plain = platform.read(id=delivery).text
    assert "12345" not in plain
    assert "thanks" not in plain
    assert platform.record(delivery, include="payload") == platform.record(delivery) | {
        "payload": json.loads(request.body)
    }
    [attempt] = platform.record(delivery, include="responses")["attempts"]
    assert attempt["response"] == "thanks"
    everything = [platform.read(id=delivery, include="payload,responses").text, platform.read(view="endpoints").text]
    for secret in ("of-the-receiver", "whsec_", request.headers["webhook-signature"]):
        assert not any(secret in each for each in everything)


@pytest.mark.parametrize("body", [b"\0", b"a\0b", b"\xff\xfe", b"\xed\xa0\x80", "ü".encode()[:1], b"x" * 100_000])
def test_any_answer_can_be_kept(platform: Platform, body: bytes) -> None:
    with receiver((500, {}, body)) as found:
        platform.connect(found.url, retry_schedule=[])
        delivery = platform.send()
        platform.once(delivery, "failed")
    [attempt] = platform.record(delivery, include="responses")["attempts"]
    assert attempt["response_code"] == 500
    assert attempt["response"] == body[:4096].decode("utf-8", "replace").replace("\0", "�")


def test_no_receiver_stops_the_worker(platform: Platform) -> None:
    """However it answers: each is on record as it was, and the next one has its webhook."""
    rude = {
        "first_byte": Raw(hangs_up),
        "no http": Raw(says(b"\xff\0\r\n\r\n")),
        "headers": Raw(says(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000)),
        "long header": Raw(says(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 1_000_000)),
    }
    deliveries = {}
    for name, behaviour in rude.items():
        with receiver(behaviour) as found:
            endpoint = platform.connect(found.url, f"{name.replace(' ', '-')}.sent", retry_schedule=[])
            deliveries[name] = platform.send(name, f"{name.replace(' ', '-')}.sent")
            record = platform.once(deliveries[name], "failed")
            assert record["endpoint"]["id"] == endpoint["id"]
            assert (record["ended_reason"], len(record["attempts"])) == ("attempts_exhausted", 1)
            assert record["attempts"][0]["failure"] == "first_byte"
            assert record["attempts"][0]["detail"]
    with receiver() as found:
        platform.connect(found.url, "good.sent")
        platform.once(platform.send(type_="good.sent"), "succeeded")


# --- who gets it


def test_each_subscription_gets_what_it_asked_for(platform: Platform) -> None:
    events: dict[str, tuple[str, Any]] = {
        "paid": ("invoice.paid", {"customer": {"id": "a"}, "amount": 1}),
        "paid by b": ("invoice.paid", {"customer": {"id": "b"}, "amount": 1}),
        "line": ("invoice.line.added", {"amount": 1}),
        "alike": ("invoices.paid", {"customer": {"id": "a"}}),
        "not an object": ("invoice.paid", ["a"]),
    }
    wanted: dict[str, tuple[list[str], Json, set[str]]] = {
        "all": (["*"], {}, {"paid", "paid by b", "line", "alike", "not an object"}),
        "exact": (["invoice.paid"], {}, {"paid", "paid by b", "not an object"}),
        "below": (["invoice.*"], {}, {"paid", "paid by b", "line", "not an object"}),
        "two": (["invoices.paid", "invoice.line.*"], {}, {"alike", "line"}),
        "of a": (["*"], {"/customer/id": "a"}, {"paid", "alike"}),
        "of a, one": (["*"], {"/customer/id": "a", "/amount": 1}, {"paid"}),
        "first": (["invoice.*"], {"/0": "a"}, {"not an object"}),
        "nobody": (["other.*"], {}, set()),
    }
    with receiver() as found:
        endpoints = [platform.endpoint(f"{found.url}/{number}") for number in range(2)]
        subscriptions = {
            name: platform.subscription(endpoints[number % 2], *types, filter=filter_)["id"]
            for number, (name, (types, filter_, _)) in enumerate(wanted.items())
        }
        names = {}
        for name, (type_, data) in events.items():
            result = platform.publish(data, type_)
            names[result["id"]] = name
            assert result["matched"] == len(result["deliveries"]) == sum(name in each for *_, each in wanted.values())
        total = sum(len(each) for *_, each in wanted.values())
        found.wait_for(total)
        wait_until(lambda: len(platform.records(status="succeeded")) == total, "everything to be delivered")
        got = sorted((each.headers[":path"], each.headers["webhook-id"]) for each in found.requests)
    records = platform.records()
    for name, (*_, expected) in wanted.items():
        mine = [each for each in records if each["subscription_id"] == subscriptions[name]]
        assert {names[each["event"]["id"]] for each in mine} == expected, name
        assert len(mine) == len(expected), "each once"
    where = {each["id"]: f"/hooks/{number}" for number, each in enumerate(endpoints)}
    assert got == sorted((where[each["endpoint"]["id"]], each["event"]["id"]) for each in records)


def test_events_of_the_service_must_be_named(platform: Platform) -> None:
    with receiver() as found, receiver() as other:
        platform.connect(other.url, "*")
        endpoint = platform.connect(found.url, "oauth.token.*")
        answer = platform.gatepost.token_answer(platform.client, "gatepost:deliveries")
        [request] = found.wait_for(1)
        result = verify(endpoint["secret"], request.headers, request.body)
        records = platform.records(event_id=answer.headers["Gatepost-Event"])
        assert [each["endpoint"]["id"] for each in records] == [endpoint["id"]]
        platform.send("the star is awake", "invoice.paid")
        [sent] = other.wait_for(1)
    assert (result["id"], result["type"]) == (answer.headers["Gatepost-Event"], "oauth.token.issued")
    assert result["data"]["scope"] == "gatepost:deliveries"
    assert answer.json()["access_token"].encode() not in request.body
    assert json.loads(sent.body)["type"] == "invoice.paid"


def test_an_event_without_subscribers_is_in_the_ledger(platform: Platform) -> None:
    result = platform.publish({"amount": 1}, "nobody.listens")
    assert (result["matched"], result["deliveries"]) == (0, [])
    [entry] = platform.entries("nobody.listens")
    assert (entry["id"], entry["data"], entry["matched"]) == (result["id"], {"amount": 1}, 0)
    assert platform.records(event_id=result["id"]) == []


def test_what_is_published_twice_is_delivered_once(platform: Platform) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/twice", "type": "invoice.paid", "data": 1}
    headers = {"Authorization": f"Bearer {platform.token}"}
    with receiver(OK) as found:
        platform.connect(found.url)
        first, again = (
            platform.gatepost.session.post(f"{platform.gatepost.ops}/events", json=event, headers=headers).json()
            for _ in range(2)
        )
        assert (again["again"], again["deliveries"]) == (True, first["deliveries"])
        platform.once(first["deliveries"][0], "succeeded")
        platform.once(platform.send(2), "succeeded")
    assert [json.loads(each.body)["data"] for each in found.requests] == [1, 2]
