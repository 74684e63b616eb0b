"""POST /events on the operations plane: CloudEvents, one or a batch, for the account of the token."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from gatepost.core.errors import ERRORS
from gatepost.web.responses import VERSION
from tests import service, wire
from tests.service import Client, Service
from tests.waiting import LIMIT

SINGLE = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
ALL = "gatepost:events gatepost:endpoints gatepost:subscriptions"


def cloud_event(**changes: Any) -> dict[str, Any]:
    made = {
        "specversion": "1.0",
        "id": "1",
        "source": "/billing",
        "type": "invoice.paid",
        "data": {"amount": 1},
    } | changes
    return {name: value for name, value in made.items() if value is not ...}


def send(gatepost: Service, token: str, body: Any, media_type: str = SINGLE, **headers: str) -> requests.Response:
    sent = {"Authorization": f"Bearer {token}", "Content-Type": media_type}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return gatepost.session.post(f"{gatepost.ops}/events", data=text, headers=sent)


def refused(answer: requests.Response, code: str, pointer: str | None = None, *words: str) -> None:
    body = answer.json()
    assert answer.status_code == ERRORS[code].status, body
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Request-Id"].startswith("req_")
    assert answer.headers["Gatepost-Version"] == VERSION
    assert body["code"] == code
    found = [each["pointer"] for each in body.get("errors", [])]
    assert found == ([] if pointer is None else [pointer])
    missing = [word for word in words if word not in body["detail"]]
    assert not missing, body["detail"]


@pytest.fixture
def caller(gatepost: Service, account_name: str) -> tuple[str, str]:
    """An account and a token of it."""
    account, client = gatepost.account(account_name)
    return account, gatepost.token(client, ALL)


def subscribe(gatepost: Service, token: str, *events: str) -> str:
    endpoint = gatepost.post("/webhooks/endpoints", token, {"url": "http://127.0.0.1:9999/", "status": "disabled"})
    assert endpoint.status_code == 201, endpoint.text
    body = {"endpoint_id": endpoint.json()["id"], "events": list(events)}
    made = gatepost.post("/webhooks/subscriptions", token, body)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def platform(gatepost: Service, account: str) -> list[dict[str, Any]]:
    """What was published, oldest first."""
    return [each for each in gatepost.entries(account)[::-1] if each["type"].startswith("invoice.")]


def refusals(gatepost: Service, account: str) -> list[dict[str, Any]]:
    return [each for each in gatepost.entries(account) if each["type"] == "webhook.event.refused"]


# --- what is taken


def test_one_event_is_recorded_with_its_deliveries(gatepost: Service, caller: tuple[str, str]) -> None:
    account, token = caller
    for pattern in ("invoice.*", "*", "other.*"):
        subscribe(gatepost, token, pattern)
    answer = send(gatepost, token, cloud_event(subject="in_1", time="2026-11-15T08:00:00Z", dataschema="/s",
                                               datacontenttype="application/json; charset=utf-8"))  # fmt: skip
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert set(body) == {"id", "type", "at", "matched", "deliveries", "again"}
    assert (body["type"], body["matched"], len(body["deliveries"]), body["again"]) == ("invoice.paid", 2, 2, False)
    [entry] = platform(gatepost, account)
    assert (entry["id"], entry["at"], entry["subject"], entry["data"], entry["matched"]) == (
        body["id"], body["at"], "in_1", {"amount": 1}, 2,
    )  # fmt: skip
    assert entry["actor"].startswith("cli_")
    assert entry["request"] == answer.headers["X-Request-Id"]
    assert entry["source"] == "127.0.0.1"


@pytest.mark.parametrize("media_type", [SINGLE, "application/json", f"{SINGLE}; charset=utf-8", SINGLE.upper()])
def test_single_media_types(gatepost: Service, caller: tuple[str, str], media_type: str) -> None:
    assert send(gatepost, caller[1], cloud_event(), media_type).status_code == 200


@pytest.mark.parametrize("data", [None, ..., "text", 0, [], {"deep": [{"ünï": "雪"}]}, 0.1, True])
def test_any_json_is_data(gatepost: Service, caller: tuple[str, str], data: Any) -> None:
    account, token = caller
    assert send(gatepost, token, cloud_event(data=data)).status_code == 200
    [entry] = platform(gatepost, account)
    assert entry["data"] == (None if data is ... else data)
    assert type(entry["data"]) is type(None if data is ... else data)


def test_a_batch_is_recorded_in_order(gatepost: Service, caller: tuple[str, str]) -> None:
    account, token = caller
    subscribe(gatepost, token, "*")
    batch = [cloud_event(id=str(number), data=number) for number in range(100)]
    answer = send(gatepost, token, batch, BATCH)
    assert answer.status_code == 200, answer.text
    result = answer.json()["data"]
    found = [each for each in gatepost.entries(account, 200)[::-1] if each["type"] == "invoice.paid"]
    assert [each["id"] for each in result] == [each["id"] for each in found]
    assert [each["data"] for each in found] == list(range(100))
    assert all(each["matched"] == len(each["deliveries"]) == 1 for each in result)
    assert send(gatepost, token, [], BATCH).json() == {"data": []}


def test_a_suspended_accounts_token_publishes_nothing(gatepost: Service, account_name: str) -> None:
    account, client = gatepost.account(account_name)
    token = gatepost.token(client, "gatepost:events")
    gatepost.cli("account", "suspend", account_name)
    refused(send(gatepost, token, cloud_event()), "invalid_token")
    assert platform(gatepost, account) == []


# --- once


def test_id_and_source_make_it_once(gatepost: Service, caller: tuple[str, str]) -> None:
    account, token = caller
    subscribe(gatepost, token, "*")
    first = send(gatepost, token, cloud_event()).json()
    again = send(gatepost, token, cloud_event()).json()
    assert again == first | {"again": True}
    assert not send(gatepost, token, cloud_event(source="/shop")).json()["again"]
    assert not send(gatepost, token, cloud_event(id="2")).json()["again"]
    assert len(platform(gatepost, account)) == 3


@pytest.mark.parametrize("changes", [{"data": {"amount": 2}}, {"type": "invoice.sent"}, {"subject": "x"}])
def test_the_same_id_with_another_body_is_a_conflict(
    gatepost: Service, caller: tuple[str, str], changes: dict[str, Any]
) -> None:
    account, token = caller
    send(gatepost, token, cloud_event())
    answer = send(gatepost, token, cloud_event(**changes))
    refused(answer, "conflict", "/id", "published before")
    [result] = refusals(gatepost, account)
    assert answer.headers["Gatepost-Event"] == result["id"]
    assert result["data"]["error"] == "conflict"
    assert len(platform(gatepost, account)) == 1


def test_a_batch_is_published_whole_or_not_at_all(gatepost: Service, caller: tuple[str, str]) -> None:
    account, token = caller
    subscribe(gatepost, token, "*")
    send(gatepost, token, cloud_event(id="b"))
    batch = [cloud_event(id="a"), cloud_event(id="b", data=2), cloud_event(id="c")]
    answer = send(gatepost, token, batch, BATCH)
    refused(answer, "conflict", "/1/id", "event 1", "published before")
    assert answer.headers["Gatepost-Event"] == refusals(gatepost, account)[0]["id"]
    assert len(platform(gatepost, account)) == 1
    batch[1] = cloud_event(id="b")
    result = send(gatepost, token, batch, BATCH).json()["data"]
    assert [each["again"] for each in result] == [False, True, False]
    assert [each["matched"] for each in result] == [1, 1, 1]
    assert len(platform(gatepost, account)) == 3


def test_a_batch_may_not_contradict_itself(gatepost: Service, caller: tuple[str, str]) -> None:
    account, token = caller
    refused(send(gatepost, token, [cloud_event(), cloud_event(data=2)], BATCH), "conflict", "/1/id")
    assert platform(gatepost, account) == []
    result = send(gatepost, token, [cloud_event(), cloud_event()], BATCH).json()["data"]
    assert [each["again"] for each in result] == [False, True]
    assert result[0]["id"] == result[1]["id"]


def test_many_at_once_with_one_id_make_one_event(gatepost: Service, caller: tuple[str, str]) -> None:
    account, token = caller
    subscribe(gatepost, token, "*")
    together = threading.Barrier(8)

    def one(_number: int) -> requests.Response:
        together.wait(LIMIT)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": SINGLE}
        return requests.post(f"{gatepost.ops}/events", data=json.dumps(cloud_event()), headers=headers, timeout=LIMIT)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(8)))
    assert [each.status_code for each in answers] == [200] * 8
    assert sorted(each.json()["again"] for each in answers) == [False] + [True] * 7
    assert len({each.json()["id"] for each in answers}) == 1
    assert {tuple(each.json()["deliveries"]) for each in answers} == {tuple(answers[0].json()["deliveries"])}
    assert len(platform(gatepost, account)) == 1


# --- who may


def test_publishing_needs_a_token(gatepost: Service) -> None:
    for headers in ({}, {"Authorization": "Basic eA=="}, {"Authorization": "Bearer"}):
        answer = gatepost.session.post(f"{gatepost.ops}/events", json=cloud_event(), headers=headers)
        refused(answer, "invalid_token")
        assert 'scope="gatepost:events"' in answer.headers["WWW-Authenticate"]
        assert "resource_metadata=" in answer.headers["WWW-Authenticate"]
    answer = send(gatepost, "not-a-token", cloud_event())
    refused(answer, "invalid_token")
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]
    assert "Gatepost-Event" not in answer.headers


def test_another_scope_is_not_enough(gatepost: Service, account_name: str) -> None:
    account, client = gatepost.account(account_name)
    answer = send(gatepost, gatepost.token(client, "gatepost:clients"), cloud_event())
    refused(answer, "insufficient_scope")
    assert 'error="insufficient_scope"' in answer.headers["WWW-Authenticate"]
    assert 'scope="gatepost:events"' in answer.headers["WWW-Authenticate"]
    [result] = refusals(gatepost, account)
    assert answer.headers["Gatepost-Event"] == result["id"]
    assert platform(gatepost, account) == []


def test_the_account_is_the_tokens(gatepost: Service, account_name: str) -> None:
    """The same id in two accounts is two events, and neither sees the other's."""
    made: list[tuple[str, Client]] = [gatepost.account(f"{account_name}-{each}") for each in "ab"]
    for account, client in made:
        token = gatepost.token(client, "gatepost:events")
        assert not send(gatepost, token, cloud_event(data=account)).json()["again"]
        assert [each["data"] for each in platform(gatepost, account)] == [account]


# --- what is refused

BAD: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "no specversion": ({"specversion": ...}, "/specversion", "required"),
    "old specversion": ({"specversion": "0.3"}, "/specversion", '"1.0"'),
    "no id": ({"id": ...}, "/id", "required"),
    "null id": ({"id": None}, "/id", "required"),
    "empty id": ({"id": ""}, "/id", "1 to 256"),
    "id not text": ({"id": 1}, "/id", "a string"),
    "long id": ({"id": "x" * 257}, "/id", "256"),
    "no source": ({"source": ...}, "/source", "required"),
    "empty source": ({"source": ""}, "/source", "URI reference"),
    "source with a space": ({"source": "a b"}, "/source", "URI reference"),
    "no type": ({"type": ...}, "/type", "required"),
    "type not dotted": ({"type": "paid"}, "/type", "dotted"),
    "type in capitals": ({"type": "com.Example.Paid"}, "/type", "dotted"),
    "type of the service": ({"type": "oauth.token.issued"}, "/type", "reserved"),
    "empty subject": ({"subject": ""}, "/subject", "string"),
    "long subject": ({"subject": "x" * 257}, "/subject", "256"),
    "subject not text": ({"subject": 1}, "/subject", "string"),
    "time": ({"time": "yesterday"}, "/time", "2026-11-15T08:00:00Z"),
    "time without offset": ({"time": "2026-11-15T08:00:00"}, "/time", "offset"),
    "content type": ({"datacontenttype": "text/xml"}, "/datacontenttype", "application/json"),
    "schema": ({"dataschema": 1}, "/dataschema", "URI reference"),
    "binary": ({"data_base64": "eA==", "data": ...}, "/data_base64", "send JSON as data"),
    "extension": ({"traceparent": "00-1"}, "/traceparent", "unknown attribute"),
    "pointer": ({"a/b~c": 1}, "/a~1b~0c", "unknown attribute"),
}


@pytest.mark.parametrize(("changes", "pointer", "words"), BAD.values(), ids=BAD.keys())
def test_a_bad_event_is_refused_by_name(
    sqlite_gatepost: Service, account_name: str, changes: dict[str, Any], pointer: str, words: str
) -> None:
    account, client = sqlite_gatepost.account(account_name)
    token = sqlite_gatepost.token(client, "gatepost:events")
    answer = send(sqlite_gatepost, token, cloud_event(**changes))
    refused(answer, "invalid_request", pointer, pointer[1:].replace("~1", "/").replace("~0", "~"), words)
    assert refusals(sqlite_gatepost, account)[0]["id"] == answer.headers["Gatepost-Event"]
    batch = [cloud_event(), cloud_event(**changes)]
    refused(send(sqlite_gatepost, token, batch, BATCH), "invalid_request", f"/1{pointer}", "event 1", words)
    assert platform(sqlite_gatepost, account) == []


@pytest.mark.parametrize(
    ("body", "media_type", "code", "words"),
    [
        (b"", SINGLE, "invalid_request", "not JSON"),
        (b"{", SINGLE, "invalid_request", "not JSON"),
        (b"\xff", SINGLE, "invalid_request", "UTF-8"),
        (b"[]", SINGLE, "invalid_request", "object"),
        (b"{}", BATCH, "invalid_request", "list"),
        (b"[1]", BATCH, "invalid_request", "object"),
        (b'{"id": "a", "id": "b"}', SINGLE, "invalid_request", "repeated"),
        (b'{"data": "\\u0000"}', SINGLE, "invalid_request", "NUL"),
        (b'{"data": NaN}', SINGLE, "invalid_request", "not JSON"),
        (b'{"data": 1e999}', SINGLE, "invalid_request", "64 bits"),
        (b"[" * 5000, BATCH, "invalid_request", ""),
        (json.dumps([cloud_event()] * 101).encode(), BATCH, "request_too_large", "at most 100"),
        (b"{}", "text/plain", "unsupported_media_type", BATCH),
        (b"{}", "application/x-www-form-urlencoded", "unsupported_media_type", SINGLE),
        (b"{}", "", "unsupported_media_type", SINGLE),
    ],
)
def test_a_bad_body_is_refused(
    sqlite_gatepost: Service, account_name: str, body: bytes, media_type: str, code: str, words: str
) -> None:
    account, client = sqlite_gatepost.account(account_name)
    answer = send(sqlite_gatepost, sqlite_gatepost.token(client, "gatepost:events"), body, media_type)
    assert answer.json()["code"] == code, answer.text
    assert answer.status_code == ERRORS[code].status
    assert words in answer.json()["detail"]
    assert refusals(sqlite_gatepost, account)[0]["id"] == answer.headers["Gatepost-Event"]


def test_binary_mode_is_refused_in_words(gatepost: Service, caller: tuple[str, str]) -> None:
    answer = send(gatepost, caller[1], {"amount": 1}, "application/json", ce_specversion="1.0", ce_id="1")
    refused(answer, "unsupported_media_type", None, "binary mode", SINGLE)


def test_a_body_is_taken_up_to_its_limit_and_not_beyond(gatepost: Service, caller: tuple[str, str]) -> None:
    account, token = caller
    room = 256 * 1024 - len(json.dumps(cloud_event(data="")))
    assert send(gatepost, token, cloud_event(data="x" * room)).status_code == 200
    refused(send(gatepost, token, cloud_event(id="2", data="x" * (room + 1))), "request_too_large", None, "262144")
    assert len(platform(gatepost, account)) == 1


def test_a_body_that_does_not_say_its_length_has_the_same_limit(gatepost: Service, caller: tuple[str, str]) -> None:
    parts = urlsplit(gatepost.ops)
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    lines = ("POST /events HTTP/1.1", f"Host: {parts.netloc}", f"Authorization: Bearer {caller[1]}",
             f"Content-Type: {SINGLE}", "Transfer-Encoding: chunked", "", "")  # fmt: skip
    answer = wire.exchange(gatepost.ops, "\r\n".join(lines).encode() + chunk * 6 + b"0\r\n\r\n")
    assert answer.status == 413
    assert json.loads(answer.body)["code"] == "request_too_large"


def test_only_post_and_only_under_its_own_name(gatepost: Service, caller: tuple[str, str]) -> None:
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        answer = gatepost.session.request(method, f"{gatepost.ops}/events")
        assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    answer = send(gatepost, caller[1], cloud_event(), Host="evil.example")
    assert answer.status_code == 421
    assert (
        send(gatepost, caller[1], cloud_event(), Gatepost_Version="1999-01-01").json()["code"] == "unsupported_version"
    )
    assert platform(gatepost, caller[0]) == []
    assert gatepost.session.post(f"{gatepost.url}/events", json=cloud_event()).status_code == 404


@pytest.mark.parametrize(
    ("dev", "intake", "status"), [(True, "off", 404), (False, "", 404), (False, "http", 401)], ids=str
)
def test_it_is_there_only_where_it_is_wanted(tmp_path: Path, *, dev: bool, intake: str, status: int) -> None:
    settings = {"intake": intake} if intake else {}
    with service.running(tmp_path / "data", dev=dev, only="web", **settings) as gatepost:
        answer = gatepost.session.post(f"{gatepost.ops}/events", json=cloud_event())
        assert answer.status_code == status
