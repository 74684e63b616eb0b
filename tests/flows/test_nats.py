"""Publishing from a NATS stream: once, acknowledged after the commit, and what cannot be published on record."""

import asyncio
import json
import os
import signal
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import nats.errors
import pytest
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api

from gatepost import accounts, settings
from gatepost.accounts import lookup
from gatepost.core import logging
from gatepost.core.errors import BadSetting, Unavailable
from gatepost.ingest import message, nats_connection
from gatepost.ingest import nats as bus
from gatepost.ingest.nats_connection import CONSUMER
from gatepost.ledger import publishable as rules
from gatepost.ledger import search
from gatepost.ledger.entries import OPERATOR, Entry, Origin
from gatepost.ledger.publishable import Event
from gatepost.oauth import account_admin
from gatepost.run import app
from gatepost.run.app import Runtime
from gatepost.webhooks import publish
from tests import nats as server_of
from tests import service, shards
from tests.docs.pages import HOW_TO, blocks, first_column
from tests.nats import Server
from tests.receiver import Authority, receiver
from tests.service import Client, Service
from tests.waiting import LIMIT_MS, wait_until

STREAM = "events"

pytestmark = pytest.mark.xdist_group("nats")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with server_of.running() as found:
        yield found


@pytest.fixture(scope="module")
def running(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that reads STREAM; each test has an account of its own."""
    server.make_stream(STREAM)
    directory = tmp_path_factory.mktemp("nats") / "data"
    with service.running(directory, nats=server.url, nats_stream=STREAM) as found:
        yield found


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Runtime]:
    """A store without a service, with the account acme, for tests that read from NATS in this process."""
    found = app.open_for_start(settings.load({}, service.environment(tmp_path / "data", "")))
    found.store.run_now(lambda tx: account_admin.create(tx, found.service, "acme", {}))
    with closing(found.store):
        yield found


@pytest.fixture
def stream(server: Server, request: pytest.FixtureRequest) -> str:
    """One of the test's own."""
    name = f"own-{abs(hash(request.node.name)):x}"
    server.make_stream(name)
    return name


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The warnings in the log of this process."""
    found: list[str] = []
    monkeypatch.setattr(
        logging.log, "warning", lambda what, **more: found.append(f"{what}: {more['error']}"), raising=False
    )
    return found


@contextmanager
def consuming(opened: Runtime, url: str, stream: str) -> Iterator[None]:
    """Reads in a thread, which must end when `stop` is set."""
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(bus.consume(opened.store, url, stream, stopping),))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(server_of.LONG)
        assert not thread.is_alive()
        loop.close()


def event(number: int, account: Any = "acme", **members: Any) -> dict[str, Any]:
    return {"account": account, "type": "invoice.paid", "data": {"number": number}} | members


def entries(opened: Runtime, account: str, type_: str = "invoice.paid") -> list[Entry]:
    found = opened.store.read_now(lambda tx: lookup.named(tx, account))
    return list(search.oldest(opened.store, found.id, search.EntryFilter((type_,))))


def numbers(opened: Runtime, account: str = "acme") -> list[int]:
    return [json.loads(entry.data or "")["number"] for entry in entries(opened, account)]


def refusals(opened: Runtime, stream: str) -> list[dict[str, Any]]:
    found = [json.loads(each.data or "") for each in entries(opened, accounts.OPERATOR, "webhook.event.refused")]
    return [each for each in found if each["stream"] == stream]


def all_answered(server: Server, stream: str, url: str = "") -> bool:
    """Nothing is in hand, nothing waits, and the last message of the stream is done with."""
    try:
        found = server.consumer(stream, CONSUMER, url)
    except nats.errors.Error:
        return False
    last = server.talk(lambda streams: streams.stream_info(stream), url=url).state.last_seq
    floor = found.ack_floor.stream_seq if found.ack_floor else 0
    return floor == last and found.num_ack_pending == 0 and found.num_pending == 0


def wait_for_answers(server: Server, stream: str, url: str = "") -> None:
    wait_until(lambda: all_answered(server, stream, url), "every message to be answered")


def log_lines(directory: Path) -> list[dict[str, Any]]:
    log = (directory.parent / f"{directory.name}.log").read_text()
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


# --- what is published


def subscribe(running: Service, client: Client, url: str) -> None:
    token = running.token(client, "gatepost:endpoints gatepost:subscriptions")
    endpoint = running.post("/webhooks/endpoints", token, {"url": url})
    assert endpoint.status_code == 201, endpoint.text
    body = {"endpoint_id": endpoint.json()["id"], "events": ["invoice.*"]}
    assert running.post("/webhooks/subscriptions", token, body).status_code == 201


def test_a_message_becomes_an_entry_and_is_delivered(running: Service, server: Server, account_name: str) -> None:
    account, client = running.account(account_name)
    with receiver() as received:
        subscribe(running, client, received.url)
        server.publish(STREAM, event(1, account_name), event(2, account))
        requests = received.wait_for(2)
    found = entries(running.opened, account_name)
    assert [(entry.actor, entry.matched) for entry in found] == [("nats", 1)] * 2
    assert {request.headers["webhook-id"] for request in requests} == {entry.name for entry in found}
    assert sorted(json.loads(request.body)["data"]["number"] for request in requests) == [1, 2]
    wait_for_answers(server, STREAM)


def test_on_postgresql(server: Server, stream: str, postgres_url: str, tmp_path: Path) -> None:
    with service.running(tmp_path / "data", postgres_url, nats=server.url, nats_stream=stream) as running:
        running.account("acme")
        server.publish(stream, *(event(number % 50, id=f"id-{number % 50}") for number in range(150)), b"poison")
        wait_for_answers(server, stream)
        assert sorted(numbers(running.opened)) == list(range(50))
        assert len(refusals(running.opened, stream)) == 1
        assert running.stop() == 0


def test_the_same_id_is_published_once(running: Service, server: Server, account_name: str) -> None:
    running.account(account_name)
    same = event(1, account_name, id="invoice-1")
    first, second = server.publish(STREAM, same, same)
    assert 0 < first < second
    wait_for_answers(server, STREAM)
    assert server.publish(STREAM, same)[0] > second
    wait_for_answers(server, STREAM)
    assert numbers(running.opened, account_name) == [1]


def test_the_id_is_the_same_however_it_is_published(running: Service, server: Server, account_name: str) -> None:
    running.account(account_name)
    same = rules.event("invoice.paid", {"number": 7}, "invoice-7")
    assert isinstance(same, Event)
    running.opened.store.run_now(
        lambda tx: publish.publish_event(tx, lookup.named(tx, account_name), same, Origin(OPERATOR))
    )
    server.publish(STREAM, event(7, account_name, id="invoice-7"))
    wait_for_answers(server, STREAM)
    assert [entry.actor for entry in entries(running.opened, account_name)] == [OPERATOR]


def test_the_header_is_the_id(running: Service, server: Server, account_name: str) -> None:
    """NATS forgets it after a while, which is as short as can be here; the ledger does not."""
    running.account(account_name)
    header = {"Nats-Msg-Id": f"{account_name}-1"}
    assert server.publish(STREAM, event(1, account_name), headers=header)[0]
    wait_until(lambda: server.publish(STREAM, event(1, account_name), headers=header)[0] > 0, "NATS to forget the id")
    server.publish(STREAM, event(2, account_name, id="other"), headers={"Nats-Msg-Id": f"{account_name}-2"})
    wait_for_answers(server, STREAM)
    assert numbers(running.opened, account_name) == [1, 2]
    server.publish(STREAM, event(2, account_name, id="other"))
    wait_for_answers(server, STREAM)
    assert numbers(running.opened, account_name) == [1, 2], "the member goes before the header"


def test_without_an_id_each_message_is_an_event(running: Service, server: Server, account_name: str) -> None:
    running.account(account_name)
    server.publish(STREAM, event(1, account_name), event(1, account_name, id=None))
    wait_for_answers(server, STREAM)
    assert numbers(running.opened, account_name) == [1, 1]


def test_many_in_their_order(running: Service, server: Server, account_name: str) -> None:
    running.account(account_name)
    server.publish(STREAM, *(event(number, account_name) for number in range(350)))
    wait_for_answers(server, STREAM)
    assert numbers(running.opened, account_name) == list(range(350))


# --- what comes again


def test_an_answer_that_is_lost(opened: Runtime, server: Server, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed, and the acknowledgement never reaches NATS: it comes again, good or bad, and is known."""
    lost: list[int] = []

    def losing(answer: Callable[[Msg], Any]) -> Callable[[Msg], Any]:
        async def act(raw: Msg) -> None:
            if raw.metadata.num_delivered > 1:
                await answer(raw)
            else:
                lost.append(raw.metadata.sequence.stream)

        return act

    monkeypatch.setattr(nats_connection, "ACK_WAIT", 1.0)
    monkeypatch.setattr(Msg, "ack", losing(Msg.ack))
    monkeypatch.setattr(Msg, "term", losing(Msg.term))
    server.publish(stream, event(1), b"poison", event(2, id="two"))
    with consuming(opened, server.url, stream):
        wait_for_answers(server, stream)
    assert lost == [1, 2, 3]
    assert numbers(opened) == [1, 2]
    assert [each["sequence"] for each in refusals(opened, stream)] == [2]


def test_delivery_processes_killed(server: Server, stream: str, tmp_path: Path) -> None:
    """With a consumer that was made beforehand, so that what a dead process had in hand comes again soon."""
    mine = api.ConsumerConfig(name=CONSUMER, durable_name=CONSUMER, ack_wait=1.0, description="mine")
    server.talk(lambda streams: streams.add_consumer(stream, mine))
    with service.running(tmp_path / "data", nats=server.url, nats_stream=stream) as running:
        running.account("acme")
        for start in range(0, 600, 200):
            server.publish(stream, *(event(number) for number in range(start, start + 200)))
            wait_until(lambda start=start: len(numbers(running.opened)) > start, "some of them")  # type: ignore[misc]
            for process in running.delivery_processes():
                os.kill(process, signal.SIGKILL)
        wait_for_answers(server, stream)
        assert sorted(numbers(running.opened)) == list(range(600))
        assert server.consumer(stream, CONSUMER).config.description == "mine"


def test_nothing_is_acknowledged_before_the_commit(server: Server, stream: str, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with service.running(directory, nats=server.url, nats_stream=stream) as running:
        running.account("acme")
        server.publish(stream, event(0))
        wait_for_answers(server, stream)
        with closing(apsw.Connection(str(directory / "gatepost.db"))) as somebody:
            somebody.set_busy_timeout(LIMIT_MS)
            somebody.execute("BEGIN EXCLUSIVE")
            server.publish(stream, event(1))
            wait_until(lambda: server.consumer(stream, CONSUMER).num_redelivered == 1, "it to be put off")
            floor = server.consumer(stream, CONSUMER).ack_floor
            assert floor is not None
            assert floor.stream_seq == 1
            somebody.execute("ROLLBACK")
        wait_for_answers(server, stream)
        assert numbers(running.opened) == [0, 1]
        reported = [each for each in log_lines(directory) if each["event"] == "events from NATS wait for the store"]
        assert len(reported) == 1


# --- what cannot be published

POISON: list[tuple[Any, str, str]] = [
    (b"", "invalid_request", "the body is not JSON"),
    (b"hello", "invalid_request", "the body is not JSON"),
    (b'{"account": "\xff"}', "invalid_request", "the body is not UTF-8"),
    (b'{"type": "a.b", "type": "a.c"}', "invalid_request", "'type': the member is repeated"),
    ([event(1)], "invalid_request", "must be a JSON object"),
    (event(1, account=5), "invalid_request", "account: must be the name or the id"),
    (event(1, account="nobody"), "not_found", "account: the account nobody"),
    (event(1, account=""), "not_found", "account: the account"),
    (event(1, account="acc_06h5vfmgmdvjn9tegvbk1s4a3o"), "not_found", "account: the account acc_"),
    ({"account": "acme", "type": "invoice.paid"}, "invalid_request", "data: required"),
    ({"type": "invoice.paid", "data": 1}, "invalid_request", "account: required"),
    (event(1, specversion="1.0"), "invalid_request", "specversion: unknown member; the members are account, type"),
    (event(1, type="Invoice"), "invalid_request", "type: must be a dotted lower-case name"),
    (event(1, type="oauth.token.issued"), "invalid_request", "type: oauth.token.issued is reserved"),
    (event(1, id=""), "invalid_request", "id: must be a string of 1 to 256"),
    (event(1, data="\0"), "invalid_request", "/data contains a NUL"),
    (event(1, data="x" * 300_000), "request_too_large", "data: at most"),
    (event(1, data="x" * 800_000), "request_too_large", "a message may have at most"),
    (event(2, id="taken"), "conflict", "id: published before with another type or other data"),
]


def test_poison_is_recorded_once_and_not_looped(server: Server, stream: str, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with service.running(directory, nats=server.url, nats_stream=stream) as running:
        running.account("acme")
        [first, *bad, last] = server.publish(stream, event(0, id="taken"), *(body for body, _, _ in POISON), event(1))
        wait_for_answers(server, stream)
        assert numbers(running.opened) == [0, 1]
        assert server.consumer(stream, CONSUMER).num_redelivered == 0
        found = refusals(running.opened, stream)
        assert [each["sequence"] for each in found] == bad == list(range(first + 1, last))
        for each, (_, code, words) in zip(found, POISON, strict=True):
            assert each["error"] == code
            assert each["error_description"].startswith(words)
            assert each["subject"] == f"{stream}.test"
        reported = [each["sequence"] for each in log_lines(directory) if each["event"] == "message refused"]
        assert reported == bad


# Messages that only raw protocol commands can publish: subject, headers.
STRANGE = [
    (b"\xff", b"NATS/1.0\r\n\r\n"),
    (b"\x01" + b"a" * 300, b"NATS/1.0\r\n\r\n"),
    (b"a", b"NATS/1.0"),
    (b"a", b"\xff\xfe:"),
    (b"a", b"NATS/1.0 404 No Messages\r\n\r\n"),
    (b"a", b"NATS/1.0 \xff\xff\xff\r\n\r\n"),
    (b"a", b"NATS/1.0\r\nStatus: 404\r\n\r\n"),
    (b"a", b"NATS/1.0\r\nStatus: 503\r\n\r\n"),
    (b"a", b"NATS/1.0\r\nStatus: 100\r\nDescription: Idle Heartbeat\r\n\r\n"),
]


@pytest.mark.parametrize("body", [b"poison", json.dumps(event(1)).encode()], ids=["poison", "event"])
def test_strange_subjects_and_headers(opened: Runtime, server: Server, stream: str, body: bytes) -> None:
    for subject, header in STRANGE:
        server.publish_bytes(stream.encode() + b"." + subject, header, body)
    with consuming(opened, server.url, stream):
        wait_for_answers(server, stream)
    assert server.consumer(stream, CONSUMER).num_redelivered == 0
    found = refusals(opened, stream)
    assert len(numbers(opened)) + len(found) == len(STRANGE)
    assert [each["subject"] for each in found[:2]] == ([f"{stream}.�", f"{stream}.�{'a' * 300}"[:256]] if found else [])


def test_a_defect_keeps_back_one_message_and_not_for_ever(
    opened: Runtime, server: Server, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_event = publish.publish_event

    def failing_for_one_event(tx: Any, account: Any, event: Event, *arguments: Any) -> Any:
        if '"number":3' in event.data:
            raise LookupError("a defect")
        return publish_event(tx, account, event, *arguments)

    monkeypatch.setattr(publish, "publish_event", failing_for_one_event)
    monkeypatch.setattr(bus, "RETRY_PAUSES", (0.05,))
    server.publish(stream, *(event(number) for number in range(6)))
    with consuming(opened, server.url, stream):
        wait_for_answers(server, stream)
    assert sorted(numbers(opened)) == [0, 1, 2, 4, 5]
    [refused] = refusals(opened, stream)
    assert (refused["error"], refused["sequence"]) == ("server_error", 4)
    found = server.consumer(stream, CONSUMER).delivered
    assert found is not None
    assert found.consumer_seq == 6 + publish.MAX_TRIES - 1


def test_an_outage_of_the_store_does_not_count_as_an_error_of_the_message(
    opened: Runtime, server: Server, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redelivered more than MAX_TRIES times because of the outage, then one internal error: it is published."""
    run, publish_event = opened.store.run, publish.publish_event
    outages, defects = [Unavailable("the store cannot answer")] * (publish.MAX_TRIES + 1), [LookupError("a defect")]

    async def run_after_the_outage(unit: Any, **how: Any) -> Any:
        if outages:
            raise outages.pop()
        return await run(unit, **how)

    def failing_once(*arguments: Any) -> Any:
        if defects:
            raise defects.pop()
        return publish_event(*arguments)

    monkeypatch.setattr(opened.store, "run", run_after_the_outage)
    monkeypatch.setattr(publish, "publish_event", failing_once)
    monkeypatch.setattr(bus, "RETRY_PAUSES", (0.05,))
    server.publish(stream, event(1))
    with consuming(opened, server.url, stream):
        wait_for_answers(server, stream)
    assert (outages, defects) == ([], [])
    assert refusals(opened, stream) == []
    assert numbers(opened) == [1]


def test_a_database_node_is_down(opened: Runtime, server: Server, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages for the accounts on that node are delayed. The others are published."""
    monkeypatch.setattr(bus, "NODE_PAUSES", (0.05,))
    down = shards.add_account_on_node_that_is_down(opened, monkeypatch)
    server.publish(stream, event(0), event(1, "down"), event(2), event(3, "down"), event(4))
    with consuming(opened, server.url, stream):
        wait_until(lambda: numbers(opened) == [0, 2, 4], "what does not wait")
        wait_until(lambda: server.consumer(stream, CONSUMER).num_redelivered == 2, "the others to be redelivered")
        assert refusals(opened, stream) == []
        down.clear()
        wait_for_answers(server, stream)
    assert sorted(numbers(opened, "down")) == [1, 3]
    assert numbers(opened) == [0, 2, 4]


def test_a_commit_takes_no_more_than_enough(
    opened: Runtime, server: Server, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message, "MAX_NEW_DELIVERIES", 0)
    monkeypatch.setattr(message, "MAX_BYTES", 1000)
    sizes: list[int] = []

    def counted(tx: Any, messages: list[message.Message]) -> Any:
        sizes.append(len(messages))
        return bus_publish_some(tx, messages)

    bus_publish_some = message.publish_some
    monkeypatch.setattr(bus, "publish_some", counted)
    server.publish(stream, *(event(number, data={"number": number, "x": "x" * 400}) for number in range(10)))
    with consuming(opened, server.url, stream):
        wait_for_answers(server, stream)
    assert numbers(opened) == list(range(10))
    assert max(sizes) == 2
    assert len(sizes) == 10


def test_a_request_is_limited_in_bytes(
    opened: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reported: list[str]
) -> None:
    """Also for messages that were stored when the server accepted larger ones than now."""
    monkeypatch.setattr(bus, "REQUEST_BYTES", 500_000)
    monkeypatch.setattr(bus, "MESSAGE_OVERHEAD", 1000)
    check, responses = bus._check, []

    def counting(status: Msg) -> None:
        responses.append((status.headers or {}).get("Description"))
        check(status)

    monkeypatch.setattr(bus, "_check", counting)
    large = [event(number, data={"number": number, "x": "x" * 200_000}) for number in range(10)]
    file = tmp_path / "nats.conf"
    file.write_text("max_payload: 400000")
    with server_of.running("-c", str(file)) as server:
        server.make_stream("large")
        server.publish("large", *large)
        with consuming(opened, server.url, "large"):
            wait_for_answers(server, "large")
        assert numbers(opened) == list(range(10))
        assert responses.count("Message Size Exceeds MaxBytes") >= 4, "two messages fit into a request"
        server.publish("large", *({**each, "id": f"again-{index}"} for index, each in enumerate(large)))
        monkeypatch.setattr(bus, "REQUEST_BYTES", 100_000)
        server.stop()
        file.write_text("max_payload: 50000")
        server.start()
        with consuming(opened, server.url, "large"):
            wait_for_answers(server, "large")
    assert len(numbers(opened)) == 20
    assert reported == []


# --- NATS itself


def test_the_server_goes_and_comes_back(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with server_of.running() as server, service.running(directory, nats=server.url, nats_stream=STREAM) as running:
        running.account("acme")

        def told(what: str) -> int:
            return sum(each["event"] == what for each in log_lines(directory))

        wait_until(lambda: told("the NATS stream cannot be read") == 1, "it to miss the stream")
        server.make_stream(STREAM)
        wait_until(lambda: told("reading events from NATS") == 1, "it to find the stream")
        soon = api.ConsumerConfig(name=CONSUMER, durable_name=CONSUMER, ack_wait=1.0)
        server.talk(lambda streams: streams.add_consumer(STREAM, soon))  # a crash forgets acknowledgements
        for number in range(3):
            server.publish(STREAM, event(2 * number))
            wait_for_answers(server, STREAM)
            server.stop("KILL" if number % 2 else "TERM")
            wait_until(lambda number=number: told("cannot read from NATS") == number + 1, "it to be missed")  # type: ignore[misc]
            server.start()
            server.publish(STREAM, event(2 * number + 1))
            wait_for_answers(server, STREAM)
        assert numbers(running.opened) == list(range(6))
        assert told("cannot read from NATS") == 3
        assert told("reading events from NATS") == 4
        [checked] = [check for check in running.cli_json("doctor") if check["check"] == "nats"]
        assert (checked["status"], checked["found"]) == ("ok", f"NATS has the stream {STREAM}")
        assert running.stop() == 0


def test_a_stream_made_anew(opened: Runtime, server: Server, stream: str) -> None:
    """It counts from one again: what is there now is something else."""
    with consuming(opened, server.url, stream):
        server.publish(stream, event(1), event(2), b"poison")
        wait_for_answers(server, stream)
        server.talk(lambda streams: streams.delete_stream(stream))
        server.make_stream(stream)
        assert server.publish(stream, event(3), event(4), b"poison") == [1, 2, 3]
        wait_for_answers(server, stream)
    assert numbers(opened) == [1, 2, 3, 4]
    assert [each["sequence"] for each in refusals(opened, stream)] == [3, 3]


def test_it_ends_while_nats_is_away(opened: Runtime) -> None:
    with consuming(opened, "nats://127.0.0.1:1", "nothing"):
        pass


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"ack_policy": "none"}, "must be a pull consumer with explicit acknowledgement"),
        ({"deliver_subject": "x"}, "must be a pull consumer with explicit acknowledgement"),
        ({"headers_only": True}, "must not have headers_only: messages would have no content"),
        ({"max_batch": 99}, "must allow a max_batch of 100"),
        ({"max_expires": 4_000_000_000}, "must allow a max_expires of 5 seconds"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_consumer_that_cannot_be_used(
    opened: Runtime, server: Server, stream: str, reported: list[str], config: dict[str, Any], problem: str
) -> None:
    create_consumer(server, stream, config)
    server.publish(stream, event(1))
    with consuming(opened, server.url, stream):
        wait_until(lambda: bool(reported), "words")
    assert reported[0].endswith(problem)
    assert asyncio.run(nats_connection.problem(server.url, stream)).endswith(problem)
    assert (numbers(opened), refusals(opened, stream)) == ([], [])


def test_a_consumer_with_limits_that_can_be_used(
    opened: Runtime, server: Server, stream: str, reported: list[str]
) -> None:
    limits = {"max_batch": 100, "max_expires": 5_000_000_000, "max_bytes": 2000}
    create_consumer(server, stream, limits)
    server.publish(stream, *(event(number, data={"number": number, "x": "x" * 500 * number}) for number in range(10)))
    with consuming(opened, server.url, stream):
        wait_for_answers(server, stream)
    assert numbers(opened) == list(range(10))
    assert reported == []


def create_consumer(server: Server, stream: str, config: dict[str, Any]) -> None:
    """Create the consumer with members that nats-py does not know."""

    async def create(streams: JetStreamContext) -> Msg:
        body = {"stream_name": stream, "config": {"durable_name": CONSUMER, "ack_policy": "explicit"} | config}
        subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{CONSUMER}"
        return await streams._nc.request(subject, json.dumps(body).encode())

    assert "error" not in json.loads(server.talk(create).data)


NEEDED = ["$JS.API.CONSUMER.INFO.s.gatepost", "$JS.API.CONSUMER.MSG.NEXT.s.gatepost", "$JS.ACK.s.gatepost.>"]


@pytest.mark.parametrize("missing", NEEDED)
def test_a_missing_permission_is_reported_once(
    opened: Runtime, tmp_path: Path, reported: list[str], missing: str
) -> None:
    """Nothing is published without the permission to acknowledge it. Reading begins when the permission is added."""
    file = tmp_path / "nats.conf"

    def configure(subjects: list[str]) -> None:
        allowed = f"{{ publish: {json.dumps(subjects)}, subscribe: ['_INBOX.>'] }}"
        users = f"{{ user: gatepost, password: x, permissions: {allowed} }}, {{ user: admin, password: y }}"
        file.write_text(f"authorization {{ users = [ {users} ] }}")

    configure([subject for subject in NEEDED if subject != missing])
    with server_of.running("-c", str(file)) as server:
        admin = f"nats://admin:y@127.0.0.1:{server.port}"
        server.talk(lambda streams: streams.add_stream(api.StreamConfig(name="s", subjects=["s.>"])), url=admin)
        soon = api.ConsumerConfig(name=CONSUMER, durable_name=CONSUMER, ack_wait=1.0)
        server.talk(lambda streams: streams.add_consumer("s", soon), url=admin)
        server.talk(lambda streams: streams.publish("s.test", json.dumps(event(1)).encode()), url=admin)
        with consuming(opened, f"nats://gatepost:x@127.0.0.1:{server.port}", "s"):
            wait_until(lambda: bool(reported), "a warning")
            assert numbers(opened) == []
            assert "permissions violation for publish" in reported[0]
            assert missing.removesuffix(">").lower() in reported[0]
            url = f"nats://gatepost:x@127.0.0.1:{server.port}"
            if "NEXT" not in missing:
                assert "permissions violation" in asyncio.run(nats_connection.problem(url, "s"))
            delivered = server.consumer("s", CONSUMER, admin).delivered
            assert delivered is not None
            assert delivered.consumer_seq == 0
            server.stop()
            configure(NEEDED)
            server.start()
            wait_for_answers(server, "s", admin)
    assert numbers(opened) == [1]
    assert len([each for each in reported if "permissions violation" in each]) == 1


def test_user_and_password(opened: Runtime) -> None:
    with server_of.running("--user", "pat", "--pass", "p@ss/word") as server:
        url = f"nats://pat:p%40ss%2Fword@127.0.0.1:{server.port}"

        async def connect(password: str) -> None:
            async with nats_connection.connect(url.replace("p%40ss", password), lambda _: None):
                pass

        asyncio.run(connect("p%40ss"))
        with pytest.raises(nats.errors.Error, match="Authorization Violation"):
            asyncio.run(connect("other"))


def test_credentials() -> None:
    assert nats_connection.credentials("nats://a,nats://b:4222") == (None, None, None)
    assert nats_connection.credentials("nats://a,nats://us%65r:p%40@b") == ("user", "p@", None)
    assert nats_connection.credentials("tls://t%6fken@a") == (None, None, "token")


def test_tls_is_asked_for(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(url: str) -> None:
        async with nats_connection.connect(url, lambda _: None):
            pass

    with pytest.raises(nats.errors.SecureConnRequiredError):
        asyncio.run(connect(f"tls://user:secret@127.0.0.1:{server.port}"))
    authority = Authority(tmp_path)
    certificate, key = authority.files("127.0.0.1")
    with server_of.running("--tls", "--tlscert", str(certificate), "--tlskey", str(key)) as secure:
        with pytest.raises(OSError, match="certificate verify failed"):
            asyncio.run(connect(f"tls://127.0.0.1:{secure.port}"))
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        asyncio.run(connect(f"tls://127.0.0.1:{secure.port}"))


# --- settings


@pytest.mark.parametrize("url", ["nats://a", "nats://a:4222", "tls://a:4222", "nats://u:p@a", "nats://a,tls://b:4222"])
def test_right_settings(url: str) -> None:
    assert settings.load({"nats": url, "nats_stream": "my-events_1"}, {}).nats == url


@pytest.mark.parametrize(
    "url", ["a", "http://a", "nats://", "nats:a", "nats://a b", "nats://a:x", "nats://a/b", "nats://a,", "ws://a", "nats://[a"]
)  # fmt: skip
def test_wrong_addresses(url: str) -> None:
    with pytest.raises(BadSetting, match=r"^nats: must be nats://host:port"):
        settings.load({"nats": url}, {})


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a*", ">", "a/b", "a\\b", "ä"])
def test_wrong_streams(name: str) -> None:
    with pytest.raises(BadSetting, match=r"^nats_stream: "):
        settings.load({"nats_stream": name}, {})


def test_the_extra_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda _name: None)
    assert settings.load({}, {}).nats == ""
    with pytest.raises(BadSetting, match=r"gatepost\[nats\]"):
        settings.load({"nats": "nats://a"}, {})


# --- the page


def test_the_page_is_true(tmp_path: Path) -> None:
    page = HOW_TO / "publish-from-nats.md"
    permissions = tmp_path / "nats.conf"
    permissions.write_text(next(text for text in blocks(page, "text") if "authorization" in text))
    [result], [published], [program] = blocks(page, "toml"), blocks(page, "json"), blocks(page, "python")
    with server_of.running("-c", str(permissions)) as server:
        here = f"127.0.0.1:{server.port}"
        admin = f"nats://admin:change-me-as-well@{here}"
        wanted = tomllib.loads(result.replace("nats.example.com:4222", here))
        made = api.StreamConfig(name=wanted["nats_stream"], subjects=["events.>"])
        server.talk(lambda streams: streams.add_stream(made), url=admin)
        with service.running(tmp_path / "data", **wanted) as running:
            server.talk(lambda streams: streams.publish("events.any", published.encode()), url=admin)
            exec(compile(program.replace("nats.example.com:4222", here), page.name, "exec"), {"__name__": "page"})
            server.talk(lambda streams: streams.publish("events.any", b"poison"), url=admin)
            wait_for_answers(server, "events", admin)
            found = [json.loads(entry.data or "") for entry in entries(running.opened, "default")]
            assert found == [{"invoice": 17}, {"invoice": 18}]
            [command] = blocks(page, "sh")
            listed = running.cli(*command.split()[1:]).stdout
            assert "webhook.event.refused" in listed
    assert first_column(page, "member", "value") == list(message.MEMBERS)
    assert f"after {nats_connection.ACK_WAIT:.0f} seconds" in page.read_text()
