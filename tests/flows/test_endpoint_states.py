"""Endpoints and subscriptions are paused, resumed, limited and removed: nothing is lost, and accounts stay isolated."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests

from gatepost.core import ids
from gatepost.ledger.operations import OPERATIONS
from tests.flows.test_delivery import Json, Platform
from tests.receiver import OK, Answer, Receiver, Request, receiver
from tests.service import Service
from tests.waiting import LIMIT, wait_until
from tests.wire import check_refusal

NOWHERE = "http://127.0.0.1:9999/hooks"
BOTH = ("/webhooks/endpoints", "/webhooks/subscriptions")


@pytest.fixture
def platform(gatepost: Service, account_name: str) -> Platform:
    return Platform(gatepost, account_name)


@pytest.fixture
def one_store(sqlite_gatepost: Service, account_name: str) -> Platform:
    return Platform(sqlite_gatepost, account_name)


@contextmanager
def thoughtful() -> Iterator[tuple[Receiver, threading.Event]]:
    """Responds only after it is released."""
    go = threading.Event()

    def answer(_request: Request) -> Answer:
        go.wait(LIMIT)
        return OK

    with receiver(answer) as found:
        yield found, go


def of(platform: Platform, table: str) -> list[str]:
    """The documents of all endpoints or subscriptions, as they are stored."""
    text = f"SELECT document FROM {table} WHERE account = :account"
    account = {"account": ids.raw(platform.account)}
    return [document for (document,) in platform.gatepost.opened.store.read_now(lambda tx: tx.select(text, account))]


# --- paused, suspended, removed


def test_what_is_paused_is_held_and_resumed_without_loss(platform: Platform) -> None:
    with receiver() as found:
        endpoint = platform.connect(found.url)
        paused = platform.redefine(endpoint, status="disabled")
        assert (paused["status"], paused["disabled_reason"], paused["held"]) == ("disabled", "requested", 0)
        assert paused["disabled_at"]
        deliveries = [platform.send(number) for number in range(5)]
        assert platform.redefine(endpoint)["held"] == 5
        assert [each["id"] for each in platform.records(status="held")] == deliveries
        assert platform.records(status="pending") == []
        held = platform.record(deliveries[0])
        assert (held["attempts"], held["ended_reason"], held["retries"]["next_at"]) == ([], None, None)
        assert found.requests == []
        resumed = platform.redefine(endpoint, status="active")
        assert (resumed["disabled_reason"], resumed["disabled_at"], resumed["held"]) == (None, None, 0)
        for each in deliveries:
            platform.once(each, "succeeded")
        assert sorted(json.loads(each.body)["data"] for each in found.requests) == [0, 1, 2, 3, 4]
    for type_ in ("webhook.endpoint.disabled", "webhook.endpoint.enabled"):
        assert [each["subject"] for each in platform.entries(type_)] == [endpoint["id"]]


def test_an_attempt_under_way_finishes_though_its_endpoint_is_paused(platform: Platform) -> None:
    with thoughtful() as (found, go):
        endpoint = platform.connect(found.url)
        first, second = platform.send(1), platform.send(2)
        found.wait_for(1)
        assert platform.redefine(endpoint, status="disabled")["status"] == "disabled"
        go.set()
        record = platform.once(first, "succeeded")
        assert [each["outcome"] for each in record["attempts"]] == ["succeeded"]
        assert platform.once(second, "held")["attempts"] == []
        platform.redefine(endpoint, status="active")
        platform.once(second, "succeeded")


def test_a_suspended_account_holds_what_it_has_and_what_comes(platform: Platform) -> None:
    gatepost = platform.gatepost
    with receiver() as found, receiver() as other:
        endpoint = platform.connect(found.url, status="disabled")
        first = platform.send(1)
        gatepost.cli("account", "suspend", platform.name)
        platform.send_many(1)
        gatepost.cli("endpoint", "enable", endpoint["id"])
        neighbour = Platform(gatepost, f"{platform.name}-neighbour")
        neighbour.connect(other.url)
        neighbour.once(neighbour.send(), "succeeded")
        shown = gatepost.cli_json("delivery", "list", "--account", platform.name)
        assert [each["status"] for each in shown] == ["held", "held"], "the account alone is enough"
        assert found.requests == []
        gatepost.cli("account", "resume", platform.name)
        found.wait_for(2)
        platform.once(first, "succeeded")
        wait_until(lambda: len(platform.records(status="succeeded")) == 2, "both to be delivered")


def test_a_removed_endpoint_ends_what_waits_and_forgets_its_secret(platform: Platform) -> None:
    with thoughtful() as (found, go):
        endpoint = platform.connect(found.url, headers={"X-Api-Key": "of the receiver"})
        deliveries = [platform.send(number) for number in range(3)]
        found.wait_for(1)
        removed = platform.redefine(endpoint, status="removed")
        assert (removed["status"], removed["secrets"], removed["headers"]) == ("removed", [], {})
        assert "secret" not in removed
        go.set()
        first = platform.once(deliveries[0], "succeeded")
        others = [platform.once(each, "cancelled") for each in deliveries[1:]]
        assert len(found.requests) == 1
    assert first["ended_reason"] == "delivered", "it was under way"
    for each in others:
        assert (each["ended_reason"], each["attempts"]) == ("endpoint_removed", [])
        assert each["retries"] == {"made": 0, "remaining": 0, "next_at": None, "plan": []}
    [document] = of(platform, "endpoints")
    assert "sealed" not in document
    assert "of the receiver" not in document
    assert platform.publish()["matched"] == 0
    assert [each["subject"] for each in platform.entries("webhook.endpoint.removed")] == [endpoint["id"]]
    answer = platform.gatepost.post(BOTH[0], platform.token, {"id": endpoint["id"], "status": "active"})
    check_refusal(answer, BOTH[0], "conflict", "final")
    assert platform.redefine(endpoint)["status"] == "removed", "it can still be read"
    assert platform.read(view="endpoints").json()["data"] == []


@pytest.mark.parametrize("status", ["disabled", "removed"])
def test_a_subscription_that_ended_matches_nothing_new_and_its_deliveries_go_on(
    platform: Platform, status: str
) -> None:
    with receiver() as found:
        endpoint = platform.endpoint(found.url, status="disabled")
        subscription = platform.subscription(endpoint, "invoice.*")
        first = platform.send(1)
        assert platform.redefine(subscription, status=status)["status"] == status
        assert platform.publish(2)["matched"] == 0
        platform.redefine(endpoint, status="active")
        platform.once(first, "succeeded")
        if status == "disabled":
            platform.redefine(subscription, status="active")
            platform.once(platform.send(3), "succeeded")
            assert [json.loads(each.body)["data"] for each in found.requests] == [1, 3]
            return
        answer = platform.gatepost.post(BOTH[1], platform.token, {"id": subscription["id"], "status": "active"})
        check_refusal(answer, BOTH[1], "conflict", "final")
        assert [each["subject"] for each in platform.entries("webhook.subscription.removed")] == [subscription["id"]]


# --- limits


def test_limits_and_how_removing_frees_them(gatepost: Service, account_name: str) -> None:
    platform = Platform(gatepost, account_name, "max_endpoints=2", "max_subscriptions=3")
    endpoints = [platform.endpoint(f"{NOWHERE}/{number}") for number in range(2)]
    subscriptions = [platform.subscription(endpoints[0], f"type.n{number}") for number in range(3)]
    bodies: dict[str, Json] = {
        BOTH[0]: {"url": NOWHERE},
        BOTH[1]: {"endpoint_id": endpoints[0]["id"], "events": ["*"]},
    }
    for path, made, limit in zip(BOTH, (endpoints, subscriptions), ("max_endpoints", "max_subscriptions"), strict=True):
        answer = gatepost.post(path, platform.token, bodies[path])
        check_refusal(answer, path, "limit_reached", limit)
        assert answer.status_code == 409
        platform.redefine(made[-1], description="redefining is not creating")
        platform.redefine(made[-1], status="removed")
        platform.post(path, bodies[path], 201)
        check_refusal(gatepost.post(path, platform.token, bodies[path]), path, "limit_reached", limit)


# --- redefining


def test_the_id_alone_reads_and_writes_nothing(platform: Platform) -> None:
    endpoint = platform.endpoint(NOWHERE, description="ours", timeout=7)
    subscription = platform.subscription(endpoint, "invoice.*", filter={"/a": 1})
    before = platform.gatepost.entries(platform.account, 1000)
    assert platform.redefine(endpoint) == {name: value for name, value in endpoint.items() if name != "secret"}
    assert platform.redefine(subscription) == subscription
    assert platform.redefine(endpoint, description="ours", timeout=7)["updated_at"] == endpoint["updated_at"]
    assert platform.redefine(subscription, events=["invoice.*"])["updated_at"] == subscription["updated_at"]
    assert platform.gatepost.entries(platform.account, 1000) == before


def test_only_what_is_sent_changes_and_null_removes(platform: Platform) -> None:
    endpoint = platform.endpoint(
        NOWHERE, description="ours", timeout=7, rate_limit=5, headers={"X-A": "b"}, retry_schedule=[1],
        metadata={"team": "billing"}, format="cloudevents", max_in_flight=3,
    )  # fmt: skip
    changed = platform.redefine(endpoint, timeout=9)
    different = {name for name, value in changed.items() if endpoint[name] != value}
    assert different == {"timeout", "updated_at"}
    names = ("description", "timeout", "rate_limit", "headers", "retry_schedule", "metadata", "format", "max_in_flight")
    plain = platform.endpoint(NOWHERE)
    bare = platform.redefine(endpoint, **dict.fromkeys(names))
    assert {name: bare[name] for name in names} == {name: plain[name] for name in names}
    assert (bare["secrets"], bare["url"]) == (changed["secrets"], NOWHERE)
    [*_, result] = platform.entries("webhook.endpoint.changed")
    assert sorted(result["data"]["changed"]) == sorted(names)
    subscription = platform.subscription(endpoint, "a.b", filter={"/a": 1}, description="ours")
    assert platform.redefine(subscription, events=["c.d"])["filter"] == {"/a": 1}
    assert platform.redefine(subscription, filter=None)["filter"] == {}


@pytest.mark.parametrize(
    ("noun", "change", "pointer"),
    [
        ("endpoint", {"colour": "blue"}, "/colour"),
        ("endpoint", {"url": None}, "/url"),
        ("endpoint", {"secret": "whsec_" + "A" * 43}, "/secret"),
        ("endpoint", {"held": 0}, "/held"),
        ("endpoint", {"timeout": 31}, "/timeout"),
        ("endpoint", {"signing": "v2"}, "/signing"),
        ("subscription", {"colour": "blue"}, "/colour"),
        ("subscription", {"events": None}, "/events"),
        ("subscription", {"endpoint_id": None}, "/endpoint_id"),
        ("subscription", {"replay": {"since": "yesterday"}}, "/replay"),
    ],
)
def test_what_cannot_be_redefined_is_named(one_store: Platform, noun: str, change: Json, pointer: str) -> None:
    endpoint = one_store.endpoint(NOWHERE)
    found = endpoint if noun == "endpoint" else one_store.subscription(endpoint, "invoice.*")
    before = one_store.redefine(found)
    path = f"/webhooks/{noun}s"
    answer = one_store.gatepost.post(path, one_store.token, {"id": found["id"]} | change)
    check_refusal(answer, path, "invalid_request", pointer[1:])
    assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]
    assert one_store.redefine(found) == before
    [*_, result] = one_store.entries(f"webhook.{noun}.refused")
    assert result["id"] == answer.headers["Gatepost-Event"]


# --- once


def test_an_idempotency_key_makes_one_and_tells_the_secret_once(platform: Platform) -> None:
    first = platform.post(BOTH[0], {"url": NOWHERE}, 201, Idempotency_Key="a")
    again = platform.post(BOTH[0], {"url": NOWHERE}, 201, Idempotency_Key="a")
    assert first.pop("secret").startswith("whsec_")
    assert again == first
    other = platform.gatepost.post(BOTH[0], platform.token, {"url": f"{NOWHERE}/2"}, Idempotency_Key="a")
    check_refusal(other, BOTH[0], "idempotency_key_reused")
    assert other.status_code == 422
    body = {"endpoint_id": first["id"], "events": ["*"]}
    made = [platform.post(BOTH[1], body, 201, Idempotency_Key="a") for _ in range(2)]
    assert made[0] == made[1]
    rotate = {"id": first["id"], "rotate_secret": True}
    reported = [platform.post(BOTH[0], rotate, 200, Idempotency_Key="b") for _ in range(2)]
    assert ["secret" in each for each in reported] == [True, False]
    assert reported[0]["secrets"] == reported[1]["secrets"] == platform.redefine(first)["secrets"]
    assert (len(of(platform, "endpoints")), len(of(platform, "subscriptions"))) == (1, 1)


def test_the_answer_with_a_secret_is_not_to_be_kept(one_store: Platform) -> None:
    answer = one_store.gatepost.post(BOTH[0], one_store.token, {"url": NOWHERE})
    assert answer.headers["Cache-Control"] == "no-store"
    secret = answer.json()["secret"]
    shown = [one_store.read(view="endpoints").text, json.dumps(one_store.gatepost.entries(one_store.account, 1000))]
    assert not any(secret.removeprefix("whsec_") in each for each in [*shown, *of(one_store, "endpoints")])
    log = one_store.gatepost.directory.parent / f"{one_store.gatepost.directory.name}.log"
    assert secret.removeprefix("whsec_") not in log.read_text()


# --- whose


class Two:
    """Two accounts; `theirs` is all that the other one has."""

    def __init__(self, gatepost: Service, name: str) -> None:
        self.mine, other = Platform(gatepost, f"{name}-mine"), Platform(gatepost, f"{name}-theirs")
        self.endpoint = self.mine.endpoint(NOWHERE, status="disabled")
        self.subscription = self.mine.subscription(self.endpoint, "*")
        self.mine.send()
        endpoint = other.endpoint(NOWHERE, status="disabled")
        subscription = other.subscription(endpoint, "*")
        self.other = other
        self.theirs = {
            "endpoint": endpoint["id"],
            "subscription": subscription["id"],
            "event": other.publish()["id"],
        }

    def unknown(self, noun: str) -> str:
        return ids.new({"endpoint": "ep", "subscription": "sub"}[noun])


@pytest.fixture
def two(gatepost: Service, account_name: str) -> Two:
    return Two(gatepost, account_name)


def comparable(answer: requests.Response) -> Any:
    """What an answer says, without what differs each time."""
    return answer.status_code, answer.json()


def test_an_id_of_another_account_is_an_unknown_one_in_every_member(two: Two) -> None:
    before = [two.other.redefine({"id": two.theirs["endpoint"]}), two.other.records()]
    for member in ({}, {"status": "removed"}, {"url": NOWHERE}, {"rotate_secret": True}, {"colour": "blue"}):
        tries = [
            two.mine.gatepost.post(BOTH[0], two.mine.token, {"id": each} | member)
            for each in (two.theirs["endpoint"], two.unknown("endpoint"))
        ]
        check_refusal(tries[0], BOTH[0], "not_found", "id")
        assert comparable(tries[0]) == comparable(tries[1])
    for body, noun, name in (
        ({}, "subscription", "id"),
        ({"status": "removed"}, "subscription", "id"),
        ({"replay": {"from": "2026-01-01T00:00:00Z"}}, "subscription", "id"),
        ({"events": ["*"]}, "endpoint", "endpoint_id"),
    ):
        tries = [
            two.mine.gatepost.post(BOTH[1], two.mine.token, {name: each} | body)
            for each in (two.theirs[noun], two.unknown(noun))
        ]
        check_refusal(tries[0], BOTH[1], "not_found", name)
        assert comparable(tries[0]) == comparable(tries[1])
    assert [two.other.redefine({"id": two.theirs["endpoint"]}), two.other.records()] == before


def test_a_replay_finds_nothing_of_another_account(two: Two) -> None:
    two.mine.redefine(two.subscription, replay={"event_ids": [two.theirs["event"]]})
    wait_until(lambda: two.mine.redefine(two.subscription)["replay"]["state"] == "ended", "the replay to end")
    assert two.mine.redefine(two.subscription)["replay"]["made"] == 0
    assert len(two.mine.records()) == 1


# --- who may

MAY = {
    "gatepost:endpoints": ("POST", "/webhooks/endpoints", 201),
    "gatepost:subscriptions": ("POST", "/webhooks/subscriptions", 201),
    "gatepost:deliveries": ("GET", "/webhooks/deliveries", 200),
    "gatepost:events": ("POST", "/events", 200),
    "gatepost:clients": ("POST", "/oauth/clients", 201),
}


@pytest.mark.parametrize("held", [each for each in OPERATIONS if each not in ("gatepost:clients", "gatepost:scopes")])
def test_a_scope_is_good_for_its_own_operation_only(one_store: Platform, held: str) -> None:
    endpoint = one_store.endpoint(NOWHERE, status="disabled")
    bodies: dict[str, Json] = {
        "gatepost:endpoints": {"url": NOWHERE},
        "gatepost:subscriptions": {"endpoint_id": endpoint["id"], "events": ["*"]},
        "gatepost:events": {"specversion": "1.0", "id": held, "source": "/a", "type": "a.b"},
        "gatepost:clients": {"grant_types": ["client_credentials"], "scope": held},
    }
    gatepost = one_store.gatepost
    client = gatepost.define_client(one_store.token, scope=held)
    token = gatepost.token(client, held)
    for wider in OPERATIONS:
        if wider != held:
            assert gatepost.token_answer(client, f"{held} {wider}").json()["error"] == "invalid_scope"
    for needed, (method, path, status) in MAY.items():
        url = f"{gatepost.ops if path == '/events' else gatepost.url}{path}"
        body = bodies.get(needed)
        answer = gatepost.session.request(method, url, json=body, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == (status if needed == held else 403), (needed, answer.text)
        if needed != held:
            assert f'scope="{needed}"' in answer.headers["WWW-Authenticate"]
