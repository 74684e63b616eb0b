"""Every metric is on /metrics, once, and right after known work. Services of their own: nothing else happens there."""

import asyncio
import math
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
import requests

from gatepost.core import clock, ids
from gatepost.core.metrics import OF_EVERY_PROCESS
from gatepost.core.supervisor_metrics import OF_SUPERVISOR
from gatepost.run import chores
from gatepost.web.ops.metrics import NO_DEPLOYMENT, UNKNOWN, of_deployment, of_queue
from gatepost.webhooks import replay, replay_rows
from tests import login, postgres, service
from tests.figures import Figures, labels, read
from tests.flows.test_delivery import Platform
from tests.receiver import OK, Raw, hangs_up, receiver, silent
from tests.service import Client, Service
from tests.waiting import LIMIT, LIMIT_MS, wait_until

STORES = [pytest.param(each, marks=pytest.mark.xdist_group(f"metrics-{each}")) for each in ("sqlite", "postgres")]


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes a database by this name, or none for SQLite."""
    if request.param == "sqlite":
        return lambda _name: ""
    found: Callable[[str], str] = request.getfixturevalue("postgres_server").create_database
    return found


@pytest.fixture(scope="module")
def busy(store: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service.running(tmp_path_factory.mktemp("busy") / "data", store("metrics_busy"), workers="2") as running:
        yield running


@pytest.fixture(scope="module")
def still(store: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Without the delivery process: what waits goes on waiting."""
    with service.running(tmp_path_factory.mktemp("still") / "data", store("metrics_still"), only="web") as running:
        yield running


def execute(gatepost: Service, text: str, *values: Any) -> None:
    """Past the service, in its tables. Places for values are written as `?`."""
    if gatepost.database:
        with psycopg.connect(gatepost.database) as database:
            database.execute(text.replace("?", "%s").encode(), values)
    else:
        with closing(apsw.Connection(str(gatepost.directory / "gatepost.db"))) as file:
            file.set_busy_timeout(LIMIT_MS)
            file.execute(text, values)


# --- the page


def test_every_metric_is_there_once(busy: Service, account_name: str) -> None:
    platform = Platform(busy, account_name)
    with receiver() as found:
        platform.connect(found.url)
        platform.once(platform.send(), "succeeded")
    text = Figures(busy.ops).text()
    figures = read(text)  # each once
    known = {family.name for each in (*OF_EVERY_PROCESS, *OF_SUPERVISOR) for family in each.collect()}
    known |= {family.name for family in (*of_queue(UNKNOWN, clock.now()), *of_deployment(NO_DEPLOYMENT))}
    reported = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
    assert sorted(each.removesuffix("_total") for each in reported) == sorted(known)
    assert not any(name.endswith("_created") for name, _ in figures)
    used = {name for _, has in figures for name, _ in has}
    assert used == {
        "path", "status", "grant_type", "outcome", "type", "failure", "waited_for", "state", "what", "le", "chore",
            "host", "kind", "version",
    }  # fmt: skip


# --- tokens, requests and the ledger


def test_tokens_by_grant_and_outcome(busy: Service, account_name: str) -> None:
    people = login.Platform(busy, account_name)
    figures = Figures(busy.ops)
    machine, stranger = busy.define_client(people.admin, scope="things:read"), Client("cli_nobody", "x")
    with (
        figures.growing("gatepost_token_requests_total", by=10) as grown,
        figures.growing("gatepost_requests_total", by=11, path="/oauth/tokens") as asked,
    ):
        given = people.tokens()
        people.refresh(given["refresh_token"])
        for _ in range(3):
            busy.token(machine, "things:read")
        busy.token_answer(machine, "things:read", {"Prefer": "explain"})
        busy.token_answer(machine, "things:write")
        busy.token_answer(Client(machine.id, "gps_wrong"), "things:read")
        people.ask(machine, grant_type="password")
        busy.token_answer(stranger, "things:read")
        busy.session.post(f"{busy.url}/oauth/tokens", data={"grant_type": "client_credentials"})
    machine_grant = {"grant_type": "client_credentials"}
    assert grown == {
        labels(grant_type="authorization_code", outcome="issued"): 1,
        labels(grant_type="refresh_token", outcome="issued"): 1,
        labels(**machine_grant, outcome="issued"): 3,
        labels(**machine_grant, outcome="explained"): 1,
        labels(**machine_grant, outcome="invalid_scope"): 1,
        labels(**machine_grant, outcome="invalid_client"): 2,
        labels(grant_type="", outcome="unsupported_grant_type"): 1,
    }
    tokens = "/oauth/tokens"
    by_status = {key: value for key, value in asked.items() if ("path", tokens) in key}
    assert by_status == {
        labels(path=tokens, status="200"): 6,
        labels(path=tokens, status="400"): 2,
        labels(path=tokens, status="401"): 3,
    }


def test_who_is_unknown_is_counted(busy: Service) -> None:
    figures = Figures(busy.ops)
    with figures.growing("gatepost_unknown_client_total", by=5) as grown:
        busy.token_answer(Client("cli_nobody", "x"), "read")
        for path in ("par", "introspect", "revoke"):
            headers = {"Authorization": Client("cli_nobody", "x").basic}
            busy.session.post(f"{busy.url}/oauth/{path}", data={"token": "x"}, headers=headers)
        busy.session.post(f"{busy.url}/oauth/tokens", data={"grant_type": "client_credentials"})
    assert grown == {(): 5}
    log = Path(f"{busy.directory}.log").read_text()
    assert log.count("client authentication failed") >= 5


def test_strangers_do_not_make_labels(busy: Service) -> None:
    figures = Figures(busy.ops)
    count, seconds = "gatepost_requests_total", "gatepost_request_seconds_count"
    with figures.growing(count, by=4) as grown, figures.growing(seconds, by=4) as timed:
        for path in ("/secret", "/oauth/tokens/x", "/%00"):
            busy.session.get(f"{busy.url}{path}")
        busy.session.request("BREW", f"{busy.url}/oauth/tokens")
    assert grown == {labels(path="", status="404"): 3, labels(path="/oauth/tokens", status="405"): 1}
    assert timed == {labels(path=""): 3, labels(path="/oauth/tokens"): 1}


def test_entries_by_type(busy: Service, account_name: str) -> None:
    """As many as there are, whichever process wrote them: the web's, the supervisor's and the delivery process's."""
    platform = Platform(busy, account_name)
    figures = Figures(busy.ops)
    before = Counter(each["type"] for each in busy.entries(platform.account))
    with figures.growing("gatepost_ledger_entries_total", by=1, type="oauth.token.refused") as grown:
        with receiver((500, {}, b"")) as found:
            platform.connect(found.url, "invoice.paid", retry_schedule=[])
            platform.once(platform.send(1), "failed")
        platform.publish(2, "nobody.listens")
        busy.token_answer(platform.client, "no:such")
    after = Counter(each["type"] for each in busy.entries(platform.account))
    written: Counter[str] = Counter()
    for type_, count in (after - before).items():
        written["platform" if type_ in ("invoice.paid", "nobody.listens") else type_] += count
    assert written["platform"] == 2
    assert written["webhook.delivery.failed"] == written["oauth.token.refused"] == 1
    assert grown == {labels(type=type_): count for type_, count in written.items()}


def test_commits_and_the_units_that_share_them(busy: Service, account_name: str) -> None:
    _, client = busy.account(account_name)
    figures = Figures(busy.ops)
    start = "gatepost_store_commit_"
    units, commits, seconds = f"{start}units_sum", f"{start}units_count", f"{start}seconds_count"
    before = read(figures.text())

    def ask() -> None:
        for _ in range(10):
            answer = requests.post(
                f"{busy.url}/oauth/tokens", data={"grant_type": "client_credentials", "scope": "gatepost:clients"},
                headers={"Authorization": client.basic}, timeout=LIMIT,
            )  # fmt: skip
            assert answer.status_code == 200

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    after = read(figures.text())
    grown = {name: after[name, ()] - before[name, ()] for name in (units, commits, seconds)}
    assert grown[units] >= 160
    assert 0 < grown[commits] < grown[units], "some shared a commit"
    assert grown[commits] == grown[seconds]
    assert after["gatepost_store_commit_seconds_sum", ()] > before["gatepost_store_commit_seconds_sum", ()]


# --- attempts


def test_attempts_by_outcome_and_phase(busy: Service, account_name: str) -> None:
    platform = Platform(busy, account_name)
    figures = Figures(busy.ops)
    attempts, lateness = "gatepost_attempts_total", "gatepost_attempt_lateness_seconds_count"
    with figures.growing(attempts, by=4) as grown, figures.growing(lateness, by=4) as late:
        with receiver([(503, {}, b""), OK]) as found, receiver(Raw(hangs_up)) as rude:
            platform.connect(found.url, "a.b", retry_schedule=[1])
            platform.connect(rude.url, "c.d", retry_schedule=[])
            platform.once(platform.send(type_="a.b"), "succeeded", attempts=2)
            platform.once(platform.send(type_="c.d"), "failed")
        platform.connect(rude.url, "e.f", retry_schedule=[])  # the receiver is closed
        platform.once(platform.send(type_="e.f"), "failed")
    assert grown == {
        labels(outcome="succeeded", failure=""): 1,
        labels(outcome="failed", failure=""): 1,
        labels(outcome="failed", failure="first_byte"): 1,
        labels(outcome="failed", failure="connect"): 1,
    }
    assert sum(late.values()) == 4, "one for each attempt"
    assert {name for key in late for name, _ in key} == {"waited_for"}


def test_what_attempts_waited_for(busy: Service, account_name: str) -> None:
    """Every attempt is counted, also if several start together."""
    platform = Platform(busy, account_name)
    figures = Figures(busy.ops)
    with receiver() as found:
        platform.connect(found.url, "slow.a", rate_limit=5)
        platform.connect(found.url, "quick.a", max_in_flight=64)
        with figures.growing("gatepost_attempt_lateness_seconds_count", by=208) as grown:
            platform.send_many(8, "slow.a")
            platform.send_many(200, "quick.a")
            wait_until(platform.is_quiet, "all to be delivered")
    assert sum(grown.values()) == 208
    assert grown[labels(waited_for="rate_limit")] > 0


def test_attempts_under_way_and_those_of_a_process_that_died(busy: Service, account_name: str) -> None:
    """The gauge is there while the first is under way, and a dead process's share goes with it."""
    platform = Platform(busy, account_name)
    figures = Figures(busy.ops)
    with receiver(Raw(silent)) as found:
        platform.connect(found.url, timeout=30, retry_schedule=[])
        sent = platform.send()
        found.wait_for(1)
        wait_until(lambda: figures("gatepost_attempts_in_flight") == 1, "it to be under way")
        wait_until(lambda: figures("gatepost_deliveries", state="in_flight") == 1, "it to be in flight")
        [process] = busy.delivery_processes()
        with figures.growing("gatepost_attempts_total", by=1) as grown:
            os.kill(process, signal.SIGKILL)
            platform.once(sent, "in_flight", attempts=2)
            found.wait_for(2)
        assert grown == {labels(outcome="interrupted", failure=""): 1}
        assert figures("gatepost_attempts_in_flight") == 1, "and not two"
        found.behaviour = OK
        for stream in list(found.streams):
            stream.shutdown(2)
        platform.once(sent, "failed")
        wait_until(lambda: figures("gatepost_attempts_in_flight") == 0, "nothing to be under way")


# --- what waits


def test_deliveries_by_state(still: Service, account_name: str) -> None:
    platform, other = Platform(still, account_name), Platform(still, f"{account_name}-held")
    figures = Figures(still.ops)
    with figures.growing("gatepost_deliveries", by=6) as grown:
        held = platform.connect("http://127.0.0.1:9999/held", "held.a")
        platform.connect("http://127.0.0.1:9999/sent", "sent.a")
        other.connect("http://127.0.0.1:9999/other", "other.a")
        platform.redefine(held, status="disabled")
        for _ in range(3):
            platform.send(type_="held.a")
        for _ in range(2):
            platform.send(type_="sent.a")
        other.send(type_="other.a")
        still.cli("account", "suspend", other.name)
        wait_until(lambda: figures("gatepost_deliveries", state="held") >= 4, "a fresh count")
    assert grown == {labels(state="pending"): 2, labels(state="held"): 4}


def test_the_age_of_the_queue(still: Service, account_name: str) -> None:
    """Of the longest that could be sent, whichever endpoint it is for; what is held does not count."""
    platform = Platform(still, account_name)
    figures = Figures(still.ops)

    def wait(platform: Platform, since: timedelta, type_: str) -> None:
        delivery = platform.send(type_=type_)
        due = clock.milliseconds(clock.now() - since)
        execute(still, "UPDATE queue SET due = ? WHERE id = ?", due, ids.raw(delivery))

    for number in range(4):
        platform.connect(f"http://127.0.0.1:9999/{number}", f"n{number}.a")
    paused = platform.connect("http://127.0.0.1:9999/paused", "paused.a")
    platform.redefine(paused, status="disabled")
    for number, minutes in enumerate((10, 2000, 30, 20)):
        wait(platform, timedelta(minutes=minutes), f"n{number}.a")
    wait(platform, timedelta(minutes=9000), "paused.a")
    wait_until(lambda: figures("gatepost_queue_age_seconds") >= 2000 * 60, "a fresh count")
    assert 2000 * 60 <= figures("gatepost_queue_age_seconds") < 2010 * 60


def test_the_progress_of_replays(still: Service, account_name: str) -> None:
    platform = Platform(still, account_name)
    figures = Figures(still.ops)
    endpoint = platform.endpoint("http://127.0.0.1:9999/replayed")
    platform.send_many(250)
    names = ("gatepost_replays_running", "gatepost_replay_events")
    with figures.growing(names[0], by=1) as running, figures.growing(names[1], by=1) as dealt_with:
        since = clock.rfc3339(clock.now() - timedelta(hours=1))
        subscription = platform.subscription(endpoint, "invoice.paid", replay={"from": since})
        store = still.opened.store
        [(account, each)] = [
            (account, each) for account, each in store.read_now(replay_rows.running) if account == platform.account
        ]
        assert store.run_now(lambda tx: replay.run_slice(tx, account, each)), "one slice is not all"
        wait_until(lambda: figures(names[1], what="made") > 0, "a fresh count")
    result = platform.redefine(subscription)["replay"]
    assert running == {(): 1}
    assert result["state"] == "running"
    assert dealt_with == {labels(what="examined"): result["examined"], labels(what="made"): result["made"]}
    assert 0 < result["made"] < 250


# --- what must never be


def test_a_delivery_that_is_gone_is_missed(busy: Service, account_name: str) -> None:
    """The recount is of rows: what entries say they made, and what is there."""
    platform = Platform(busy, account_name)
    figures = Figures(busy.ops)
    unaccounted, recounted = "gatepost_deliveries_unaccounted", "gatepost_recounted_entries_total"
    with receiver() as found:
        platform.connect(found.url)
        kept, lost = (platform.send(number) for number in range(2))
        for each in (kept, lost):
            platform.once(each, "succeeded")
    before = figures(recounted)
    wait_until(lambda: figures(recounted) >= before + 50, "some rounds")
    assert figures(unaccounted) == 0
    execute(busy, "DELETE FROM deliveries WHERE id = ?", ids.raw(lost))
    wait_until(lambda: figures(unaccounted) == 1, "the recount to miss it")
    entry = ids.raw(platform.record(kept)["event"]["id"])
    execute(busy, "UPDATE entries SET matched = 0 WHERE account = ? AND id <> ?", ids.raw(platform.account), entry)
    wait_until(lambda: figures(unaccounted) == 0, "the next round")


def test_it_is_not_known_before_a_whole_round(still: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[float] = []
    monkeypatch.setattr(chores, "UNACCOUNTED", type("Told", (), {"set": lambda _self, value: reported.append(value)})())
    monkeypatch.setattr(chores, "RECOUNT_SECONDS", 0.0)  # one page in each run
    recounting = chores.Recounting()
    accounts = len(still.opened.store.read_now(chores._every_account))
    assert accounts > 1
    rounds = 0
    while not reported:
        asyncio.run(recounting.recount(still.opened))
        rounds += 1
    assert rounds == accounts, "a page of each"
    assert reported == [0]


def test_the_age_of_an_unsealed_entry_is_reported(still: Service) -> None:
    """The age of the oldest unsealed entry: here a row without an entry, which is never sealed."""
    figures = Figures(still.ops)
    wait_until(lambda: figures("gatepost_unsealed_age_seconds") < 1, "everything to be sealed")
    account, old = ids.new_raw(), (clock.milliseconds(clock.now()) - 3_600_000).to_bytes(6, "big") + ids.new_raw()[6:]
    execute(still, "INSERT INTO unsealed (account, id) VALUES (?, ?)", account, old)
    wait_until(lambda: figures("gatepost_unsealed_age_seconds") >= 3600, "its age")
    assert figures("gatepost_unsealed_age_seconds") < 3700
    execute(still, "DELETE FROM unsealed WHERE id = ?", old)
    wait_until(lambda: figures("gatepost_unsealed_age_seconds") < 1, "nothing to be unsealed")


def test_sealed_entries_are_counted(busy: Service, account_name: str) -> None:
    figures = Figures(busy.ops)
    before = figures("gatepost_sealed_entries_total")
    account, client = busy.account(account_name)
    busy.token(client, "gatepost:clients")
    written = len(busy.entries(account))
    wait_until(lambda: figures("gatepost_sealed_entries_total") >= before + written, "all of them to be sealed")


@pytest.mark.xdist_group("metrics-postgres")
def test_nothing_is_claimed_of_a_store_that_is_away(tmp_path: Path, postgres_server: postgres.Server) -> None:
    """The page answers, and what waits is not a number."""
    name = "metrics_away"
    with service.running(tmp_path / "data", postgres_server.create_database(name), only="web") as running:
        figures = Figures(running.ops)
        assert figures("gatepost_deliveries", state="pending") == 0
        postgres_server.drop_database(name)
        wait_until(lambda: math.isnan(figures("gatepost_deliveries", state="pending")), "that nothing is known")
        assert math.isnan(figures("gatepost_queue_age_seconds"))
