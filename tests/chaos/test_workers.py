"""Delivery processes killed at any moment: nothing is lost, and no attempt is hidden, by the receiver's own log."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gatepost.accounts import account_rows
from gatepost.core import ids
from gatepost.core.errors import Unavailable
from gatepost.ledger import publishable as ledger
from gatepost.ledger.entries import Origin
from gatepost.ledger.operations import Call, operator
from gatepost.oauth import account_admin
from gatepost.run import app
from gatepost.run.app import Runtime
from gatepost.run.child import Configuration
from gatepost.settings import Settings, load
from gatepost.store.transaction import Tx
from gatepost.webhooks import claim as claiming
from gatepost.webhooks import define_endpoint, define_subscription, health_rows, publish, queue_rows, recover
from gatepost.webhooks import settle as settling
from gatepost.webhooks.claim import Claimed
from gatepost.webhooks.deliveries import ENDS, Queued
from gatepost.webhooks.schedule import Turn
from gatepost.webhooks.settle import SettleBatch, Settled
from gatepost.webhooks.worker import Cycle, Worker
from tests import postgres, service
from tests.chaos import forked_workers
from tests.receiver import OK, Answer, Receiver, Request, receiver
from tests.waiting import LIMIT, wait_until

pytestmark = pytest.mark.xdist_group("chaos-workers")


class WorkerStarter:
    """Starts delivery processes on one store."""

    def __init__(self, process: subprocess.Popen[str], settings: Settings) -> None:
        self._process = process
        self._settings = settings

    def start(self, step: str = "", place: str = "") -> int:
        order = {"settings": msgspec.to_builtins(self._settings), "place": place}
        return self._request({"order": order, "step": step})

    def kill_all(self) -> None:
        self._request(None)

    def _request(self, request: dict[str, Any] | None) -> int:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the process that starts workers has no pipes")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@pytest.fixture(scope="module")
def forking() -> Iterator[subprocess.Popen[str]]:
    """The process that starts workers for all tests: importing everything takes half a second."""
    command = [sys.executable, "-m", "tests.chaos.forked_workers"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.communicate()


@contextmanager
def worker_starter(process: subprocess.Popen[str], settings: Settings) -> Iterator[WorkerStarter]:
    """Kills the workers that are still running at the end."""
    starter = WorkerStarter(process, settings)
    try:
        yield starter
    finally:
        starter.kill_all()


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    database = ""
    if request.param == "postgres":
        server: postgres.Server = request.getfixturevalue("postgres_server")
        database = server.create_database(f"workers_{abs(hash(request.node.name)):x}")
    return load({"dev": True}, service.environment(tmp_path / "data", database))


class Post:
    """One account with two endpoints at one receiver, and what is published to it."""

    def __init__(self, opened: Runtime, url: str) -> None:
        self.opened = opened
        made = opened.created  # on PostgreSQL the first start makes no account
        if made is None:
            made = opened.store.run_now(lambda tx: account_admin.create(tx, opened.service, "default", {}))
        self.account = made.account
        self.published = 0
        for path in ("a", "b"):
            self.add_endpoint(f"{url}/{path}")

    def add_endpoint(self, url: str) -> str:
        body = {"url": url, "max_in_flight": 64, "timeout": 30, "retry_schedule": [1] * 24}
        endpoint = self._define(define_endpoint.define, body)
        self._define(define_subscription.define, {"endpoint_id": endpoint["id"], "events": ["*"]})
        return str(endpoint["id"])

    def _define(self, how: Any, body: dict[str, Any]) -> dict[str, Any]:
        def unit(tx: Any) -> dict[str, Any]:
            account = account_rows.lock(tx, self.account.id)
            assert account is not None
            answer = how(tx, self.opened.service, account, Call(operator(account.id), body))
            assert answer.refusal is None, answer.refusal
            return dict(answer.body)

        return self.opened.store.run_now(unit)

    def publish(self, count: int) -> None:
        events = [ledger.event("thing.happened", {"n": self.published + number}) for number in range(count)]
        assert all(isinstance(each, ledger.Event) for each in events)
        self.opened.store.run_now(
            lambda tx: publish.publish_events(tx, self.account, events, Origin("test"))  # type: ignore[arg-type]
        )
        self.published += count

    def select(self, text: str) -> list[tuple[Any, ...]]:
        return self.opened.store.read_now(lambda tx: tx.select(text, {}))

    def wait_for_the_end(self) -> None:
        wait_until(lambda: self.select("SELECT count(*) FROM queue") == [(0,)], "every delivery to end")

    def check(self, got: list[Request]) -> int:
        """Nothing lost; every request that the receiver saw is an attempt on record. How many duplicates there were."""
        deliveries = self.select("SELECT id, event, endpoint, status, ended_reason FROM deliveries")
        assert len(deliveries) == 2 * self.published
        assert {(status, reason) for *_, status, reason in deliveries} <= {(end[0], why) for why, end in ENDS.items()}
        assert {status for *_, status, _ in deliveries} == {"succeeded"}
        attempts: dict[bytes, list[tuple[int, str]]] = {}
        for delivery, number, outcome in self.select("SELECT delivery, number, outcome FROM attempts"):
            attempts.setdefault(delivery, []).append((number, outcome))
        first, second = sorted({each[2] for each in deliveries})  # in the order of their making
        paths = {first: "/hooks/a", second: "/hooks/b"}
        seen = Counter((each.headers["webhook-id"], each.headers[":path"]) for each in got)
        duplicates = 0
        for delivery, event, endpoint, *_ in deliveries:
            made = sorted(attempts[delivery])
            assert [number for number, _ in made] == list(range(1, len(made) + 1)), "numbered without a gap"
            outcomes = Counter(outcome for _, outcome in made)
            times = seen[ids.text("evt", event), paths[endpoint]]
            assert 1 <= times <= sum(outcomes.values()) - outcomes["not_sent"]
            assert times - 1 <= outcomes["interrupted"] + outcomes["failed"]
            assert outcomes["succeeded"] == 1
            duplicates += times - 1
        return duplicates


@contextmanager
def posting(settings: Settings, answer: Any = OK) -> Iterator[tuple[Post, Receiver]]:
    with receiver(answer) as found:
        opened = app.open_for_start(settings)
        try:
            yield Post(opened, found.url.rstrip("/")), found
        finally:
            opened.store.close()


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def test_killed_at_random_moments_under_load(forking: subprocess.Popen[str], settings: Settings) -> None:
    """A dozen times or two; `make soak` kills two hundred times on each store."""
    times = int(os.environ.get("GATEPOST_TEST_KILLS", "12" if settings.database else "25"))
    dice = random.Random(20261115)
    with posting(settings) as (post, found), worker_starter(forking, settings) as workers:
        for number in range(times):
            worker = workers.start(place="here")
            post.publish(10)
            if number % 2:  # at any moment of its start and work
                time.sleep(dice.uniform(0.02, 0.15))
            else:  # in the midst of sending
                before = len(found.requests)
                wait_until(lambda before=before: len(found.requests) > before, "a first request")  # type: ignore[misc]
                time.sleep(dice.uniform(0, 0.03))
            kill(worker)
        workers.start(place="here")
        post.wait_for_the_end()
        duplicates = post.check(found.requests)
        interrupted = post.select("SELECT count(*) FROM attempts WHERE outcome = 'interrupted'")[0][0]
    assert interrupted > 0, "no kill met an open attempt: the test shows nothing"
    assert duplicates <= interrupted
    print(f"{times} kills, {interrupted} attempts interrupted, {duplicates} duplicates")


def test_the_stores_answers_are_lost(settings: Settings) -> None:
    """The claims are committed, but the result is lost. They were never sent, so nothing is sent twice.

    Other answers come late: what those claimed is not lost, and is not given back.
    """
    lost: list[int] = []
    late: list[int] = []
    waiting: list[int] = []

    async def work(post: Post) -> None:
        store, dice = post.opened.store, random.Random(20261115)
        run = store.run

        async def forgetful(unit: Any, **how: Any) -> Any:
            done = await run(unit, **how)
            claimed = len(done.claimed.claims) if isinstance(done, Cycle) else 0
            if claimed and len(lost) < 8 and (waiting or dice.random() < 0.3):
                lost.append(claimed)
                raise Unavailable("the answer was lost")
            if claimed and len(late) < 8:
                late.append(claimed)
                waiting.append(claimed)
                await asyncio.sleep(0.8)
                waiting.pop()
            return done

        store.run = forgetful  # type: ignore[assignment, method-assign]
        stopping = asyncio.Event()
        working = asyncio.create_task(Worker(post.opened.store, post.opened.service, "here").run(stopping))
        for _ in range(30):
            await asyncio.to_thread(post.publish, 20)
            await asyncio.sleep(0.1)
        await asyncio.to_thread(post.wait_for_the_end)
        stopping.set()
        await working
        store.run = run  # type: ignore[method-assign]

    with posting(settings) as (post, found):
        asyncio.run(work(post))
        assert post.check(found.requests) == 0
        given_back = post.select("SELECT count(*) FROM attempts WHERE outcome = 'not_sent'")[0][0]
        assert given_back == sum(lost) > 0


def is_cycle(unit: Any) -> bool:
    """Whether it is the unit with which a worker settles and claims."""
    return getattr(unit, "__qualname__", "") == "Worker._cycle.<locals>.unit"


def test_a_claim_that_is_committed_after_it_was_reported_as_failed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is committed when the worker has just searched for it, and has found nothing. The worker searches again."""
    searches: list[bytes] = []
    held: list[Any] = []
    late: list[int] = []
    open_attempts = queue_rows.open_attempts

    def counted(tx: Tx, worker: bytes, limit: int) -> list[Queued]:
        searches.append(worker)
        return open_attempts(tx, worker, limit)

    monkeypatch.setattr(queue_rows, "open_attempts", counted)

    async def work(post: Post) -> None:
        store = post.opened.store
        run, read = store.run, store.read

        async def run_late(unit: Any, **how: Any) -> Any:
            if is_cycle(unit) and not held and not late:
                held.append(unit)
                raise Unavailable("the store did not answer in time")
            return await run(unit, **how)

        async def commit_after_search(unit: Any, **how: Any) -> Any:
            before = len(searches)
            result = await read(unit, **how)
            if len(searches) > before and held:
                late.append(len((await run(held.pop())).claimed.claims))
            return result

        monkeypatch.setattr(store, "run", run_late)
        monkeypatch.setattr(store, "read", commit_after_search)
        stopping = asyncio.Event()
        working = asyncio.create_task(Worker(store, post.opened.service, "here").run(stopping))
        await asyncio.to_thread(post.publish, 1)
        await asyncio.to_thread(post.wait_for_the_end)
        stopping.set()
        await working

    with posting(settings) as (post, found):
        asyncio.run(work(post))
        assert post.check(found.requests) == 0
        outcomes = dict(post.select("SELECT outcome, count(*) FROM attempts GROUP BY outcome"))
        assert outcomes == {"not_sent": sum(late), "succeeded": 2}
        assert sum(late) > 0


def test_a_claim_that_another_loop_of_the_worker_is_about_to_send(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is committed, but that loop does not know yet. It must not be recorded as not sent by the other one."""
    cycles = 0

    async def work(post: Post, url: str) -> None:
        store, claimed, failed, released = post.opened.store, asyncio.Event(), asyncio.Event(), asyncio.Event()
        run = store.run

        async def faulty(unit: Any, **how: Any) -> Any:
            nonlocal cycles
            cycles += is_cycle(unit)
            if is_cycle(unit) and cycles == 1:
                raise ValueError("a defect: the first loop goes on with one endpoint at a time")
            if is_cycle(unit) and claimed.is_set() and not failed.is_set():
                failed.set()
                raise Unavailable("the answer was lost: the second loop searches for its claims")
            done = await run(unit, **how)
            if is_cycle(unit) and done.claimed.claims and not claimed.is_set():
                claimed.set()
                with suppress(TimeoutError):
                    await asyncio.wait_for(released.wait(), 2)
            if getattr(unit, "func", None) is recover.release:
                released.set()
            return done

        monkeypatch.setattr(store, "run", faulty)
        stopping = asyncio.Event()
        working = asyncio.create_task(Worker(store, post.opened.service, "here").run(stopping))
        await asyncio.to_thread(post.publish, 1)
        await claimed.wait()
        await asyncio.to_thread(post.add_endpoint, f"{url}/c")
        await asyncio.to_thread(post.publish, 1)
        await failed.wait()
        await asyncio.to_thread(post.wait_for_the_end)
        stopping.set()
        await working

    with posting(settings) as (post, found):
        asyncio.run(work(post, found.url))
        sent = post.select("SELECT count(*) FROM attempts WHERE outcome <> 'not_sent'")
        assert sent == [(len(found.requests),)] == [(5,)]


def test_a_success_that_is_settled_alone_clears_the_failures(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_batch, batches = settling.settle, list[SettleBatch]()

    def fail_first_batch(tx: Tx, batch: SettleBatch) -> Settled:
        batches.append(batch)
        if batch is batches[0]:
            raise ValueError("a defect")
        return settle_batch(tx, batch)

    monkeypatch.setattr(settling, "settle", fail_first_batch)

    async def work(post: Post) -> None:
        stopping = asyncio.Event()
        working = asyncio.create_task(Worker(post.opened.store, post.opened.service, "here").run(stopping))
        await asyncio.to_thread(post.publish, 1)
        await asyncio.to_thread(post.wait_for_the_end)
        stopping.set()
        await working

    with posting(settings) as (post, _):
        for account, endpoint in post.select("SELECT account, id FROM endpoints"):
            post.opened.store.run_now(
                lambda tx, key=(account, endpoint): health_rows.add_failures(tx, key, 1, tx.now, 0)  # type: ignore[misc]
            )
        asyncio.run(work(post))
        assert post.select("SELECT count(*) FROM health WHERE failures > 0") == [(0,)]


# Statements that plant a defect in a delivery process, and the log line with which the process ends.
DEFECTS = {
    "from gatepost.webhooks.schedule import Schedule; Schedule.turns = None": "the worker ends because of a defect",
    "from gatepost.egress.curl_loop import CurlLoop; CurlLoop._run_libcurl = None": (
        "requests can no longer be sent: the process ends"
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_process_that_cannot_deliver_any_more_ends(settings: Settings, defect: str, tmp_path: Path) -> None:
    """The supervisor starts another. A process that only looks alive would not be replaced."""
    program = f"{defect}; from gatepost.run import child, delivery_process; child.main(delivery_process.serve)"
    log = tmp_path / "log"
    with posting(settings) as (post, _), log.open("w") as stderr:
        post.publish(1)
        command = [sys.executable, "-c", program]
        with (
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=stderr) as process,
            ExitStack() as stack,
        ):
            stack.callback(process.kill)
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(Configuration(settings, "here")) + b"\n")
            process.stdin.flush()  # and stays open: its end would stop the process
            assert process.wait(LIMIT) == 1
    assert f'"event": "{DEFECTS[defect]}"' in log.read_text()


def test_a_claim_that_is_committed_while_the_worker_stops(settings: Settings) -> None:
    """It is recorded as not sent by this worker, so no other one has to guess what happened to it."""

    async def work(post: Post) -> None:
        store, claimed, stopping = post.opened.store, asyncio.Event(), asyncio.Event()
        run = store.run

        async def slow(unit: Any, **how: Any) -> Any:
            done = await run(unit, **how)
            if isinstance(done, Cycle) and done.claimed.claims:
                claimed.set()
                await stopping.wait()
                await asyncio.sleep(0.1)  # the other loops of the worker have nothing to do
            return done

        store.run = slow  # type: ignore[assignment, method-assign]
        working = asyncio.create_task(Worker(store, post.opened.service, "here").run(stopping))
        await asyncio.to_thread(post.publish, 5)
        await claimed.wait()
        stopping.set()
        await working
        store.run = run  # type: ignore[method-assign]

    with posting(settings) as (post, found):
        for number in range(8):  # so that some of them are settled by another loop than the one that claims
            post.add_endpoint(f"{found.url}/{number}")
        asyncio.run(work(post))
        assert found.requests == []
        assert post.select("SELECT count(*) FROM queue WHERE worker IS NOT NULL") == [(0,)]
        outcomes = post.select("SELECT outcome, count(*) FROM attempts GROUP BY outcome")
        assert [outcome for outcome, _ in outcomes] == ["not_sent"]
        details = post.select("SELECT document FROM attempts")
        assert all("the service was stopping" in document for (document,) in details)


def test_a_claim_that_always_fails(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deliveries of one endpoint cannot be claimed. Others are delivered, and it is tried less and less often."""
    failed: list[bytes] = []
    broken: list[bytes] = []
    claim = claiming.claim

    def claim_unless_broken(tx: Tx, worker: bytes, turns: list[Turn]) -> Claimed:
        for turn in turns:
            if turn.lane.endpoint in broken:
                failed.append(turn.lane.endpoint)
                raise ValueError("a defect")
        return claim(tx, worker, turns)

    monkeypatch.setattr(claiming, "claim", claim_unless_broken)

    async def work(post: Post, found: Receiver) -> None:
        stopping = asyncio.Event()
        working = asyncio.create_task(Worker(post.opened.store, post.opened.service, "here").run(stopping))
        await asyncio.to_thread(post.publish, 20)
        await asyncio.to_thread(wait_until, lambda: len(found.requests) >= 60 and bool(failed))
        stopping.set()
        await working

    with posting(settings) as (post, found):
        broken.append(ids.raw(post.add_endpoint(f"{found.url}/broken")))
        for number in range(2):
            post.add_endpoint(f"{found.url}/{number}")
        asyncio.run(work(post, found))
        assert len(failed) < 100
        assert "/broken" not in {request.headers[":path"] for request in found.requests}


SENT = "sent, not answered"


@pytest.mark.parametrize("step", [*forked_workers.STEPS, SENT])
def test_killed_at_a_step(forking: subprocess.Popen[str], settings: Settings, step: str) -> None:
    """At its step it kills itself; with a request under way it is killed once the receiver has both requests."""
    dead_is_gone = threading.Event()

    def answer(_request: Request) -> Answer:
        if step == SENT:
            dead_is_gone.wait(LIMIT)
        return OK

    with posting(settings, answer) as (post, found), worker_starter(forking, settings) as workers:
        post.publish(1)  # before a worker can claim it
        dead = workers.start("" if step == SENT else step, place="here")
        if step == SENT:
            found.wait_for(2)
            kill(dead)
        wait_until(lambda: not _alive(dead), "the process to die at its step")
        dead_is_gone.set()
        left = post.select("SELECT count(*) FROM queue")[0][0]
        seen = len(found.requests)
        if step == "settled":
            assert left < 2
        else:
            assert left == 2
        assert (seen == 0) == (step == "claimed, not sent")
        workers.start(place="here")
        post.wait_for_the_end()
        duplicates = post.check(found.requests)
        assert duplicates == {"claimed, not sent": 0, SENT: 2}.get(step, duplicates)
        if step == "answered, not settled":
            assert duplicates >= 1


def _alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_a_worker_that_stopped_beating_is_rescued_by_another(
    forking: subprocess.Popen[str], settings: Settings
) -> None:
    """A worker of another supervisor, whose end only its missing heartbeats show."""
    with posting(settings) as (post, found), worker_starter(forking, settings) as workers:
        post.publish(3)
        dead = workers.start("claimed, not sent", place="there")
        wait_until(lambda: not _alive(dead), "the process to die at its step")
        workers.start(place="here")
        post.wait_for_the_end()
        assert post.check(found.requests) == 0
        assert post.select("SELECT count(*) FROM attempts WHERE outcome = 'interrupted'")[0][0] > 0
