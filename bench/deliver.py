"""Benchmark of deliveries: one table from one run, with raw libcurl and another service for comparison.

It measures from publish to settled, with the real schema, while a web process issues 500 tokens per second.
`bench.grow` measures the same rate with more and more rows already in the tables.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import certificate, load, ours
from bench.peers import procrastinate
from bench.peers.process import free_port
from bench.publisher import ACCOUNTS, TYPES
from bench.rows import Target, put, waiting
from gatepost.accounts import account_rows
from gatepost.core import ids
from gatepost.ledger.operations import Call, operator
from gatepost.store.transaction import Tx
from gatepost.webhooks import define_endpoint, define_subscription
from tests import postgres
from tests.service import Service

TOKENS = 500  # per second, during all measurements
IN_FLIGHT = 128
SETTLED_WITHIN = 300.0
LONGER = 4  # factor for the limit, which would otherwise end too soon to be measured


class Receiver:
    """The process of the receiver."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process = process
        self.url = url

    def say(self, word: str) -> dict[str, Any]:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the receiver has no pipes")
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found


@contextmanager
def receiving(files: tuple[Path, Path] | None = None) -> Iterator[Receiver]:
    port = free_port()
    command = [sys.executable, "-m", "bench.receiver", str(port), *map(str, files or ())]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise RuntimeError("the receiver did not start")
        yield Receiver(process, f"{'https' if files else 'http'}://localhost:{port}")
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def tokens_beside(target: load.Target) -> Iterator[dict[str, float]]:
    """Request tokens during the block. The dictionary has the result when the block has ended."""
    command = [sys.executable, "-m", "bench.beside", target.url, target.headers["Authorization"], str(TOKENS)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = {}
    try:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise RuntimeError("nobody asks for tokens")
        yield found
    finally:
        found |= json.loads(process.communicate()[0])


def define(gatepost: Service, url: str, *, holes: int = 0) -> None:
    """Define a hundred endpoints in ten accounts, each for one event type. The first `holes` never respond."""
    for number in range(ACCOUNTS):
        _, client = gatepost.account(f"bench-{number}")
        token = gatepost.token(client, "gatepost:endpoints gatepost:subscriptions")
        for kind in range(TYPES):
            path = "hole" if kind * ACCOUNTS + number < holes else f"{number}-{kind}"
            body = {"url": f"{url}/{path}", "max_in_flight": 64}
            made = gatepost.post("/webhooks/endpoints", token, body)
            made.raise_for_status()
            body = {"endpoint_id": made.json()["id"], "events": [f"bench.t{kind}"]}
            gatepost.post("/webhooks/subscriptions", token, body).raise_for_status()


@contextmanager
def publisher(gatepost: Service, count: int, rate: float = 0) -> Iterator[subprocess.Popen[str]]:
    """Start a publisher that has opened its store and waits for `begin`."""
    command = [sys.executable, "-m", "bench.publisher", str(count), str(rate)]
    with subprocess.Popen(
        command, env=gatepost.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise RuntimeError("the publisher did not start")
        yield process
        if process.wait(600):
            raise RuntimeError("the publisher failed")


def begin(process: subprocess.Popen[str]) -> float:
    if process.stdin is None:
        raise RuntimeError("the publisher has no input")
    process.stdin.write("go\n")
    process.stdin.flush()
    return time.monotonic()


def wait_settled(gatepost: Service) -> None:
    end = time.monotonic() + SETTLED_WITHIN
    while gatepost.opened.store.read_now(lambda tx: tx.select("SELECT 1 FROM queue LIMIT 1", {})):
        if time.monotonic() > end:
            raise RuntimeError("deliveries were not settled in time")
        time.sleep(0.01)


@dataclass
class Row:
    name: str
    rates: list[float] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)  # raw libcurl in the same rounds
    latencies: list[str] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates) if self.rates else 0.0

    @property
    def of_limit(self) -> float:
        """The median of the rounds, because the speed of a machine changes more between rounds than within one."""
        return statistics.median(own / limit for own, limit in zip(self.rates, self.limits, strict=True))


def throughput(gatepost: Service, receiver: Receiver, count: int) -> float:
    """Return the deliveries per second, from the first publish until all are acknowledged and recorded."""
    receiver.say("reset")
    with publisher(gatepost, count) as process:
        began = begin(process)
        process.wait(600)
    wait_settled(gatepost)
    took = time.monotonic() - began
    received = receiver.say("count")["count"]
    if received < count:
        raise RuntimeError(f"{count} were published, {received} received")
    return count / took


def latency(gatepost: Service, receiver: Receiver, rate: float, seconds: float) -> str:
    receiver.say("reset")
    with publisher(gatepost, int(rate * seconds), rate) as process:
        begin(process)
    time.sleep(0.3)
    found = receiver.say("stats")
    return f"{found['p50']:.1f} / {found['p99']:.1f}"


def raw(receiver: Receiver, count: int, ca: str = "") -> float:
    urls = [f"{receiver.url}/{number}" for number in range(ACCOUNTS * TYPES)]
    command = [sys.executable, "-m", "bench.raw", str(count), str(IN_FLIGHT), *([ca] if ca else []), *urls]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout)


def compare(count: int, rounds: int, *, peers: bool) -> list[Row]:
    """Measure one service after the other, alternating with raw libcurl. No other service runs meanwhile."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(postgres.running())
        files = certificate.make(folder)
        receiver, secure = stack.enter_context(receiving()), stack.enter_context(receiving(files))
        ca = str(files[0])
        sqlite, postgresql = Row("Gatepost on SQLite"), Row("Gatepost on PostgreSQL")
        tls, peer = Row("Gatepost on SQLite, TLS"), Row("procrastinate, aiohttp")
        with ours.running(folder / "sqlite") as (gatepost, target):
            measure(sqlite, gatepost, target, receiver, count, rounds)
        with ours.running(folder / "postgres", server.create_database("bench")) as (gatepost, target):
            measure(postgresql, gatepost, target, receiver, count, rounds)
        with ours.running(folder / "tls", "", {"egress_ca": ca}) as (gatepost, target):
            measure(tls, gatepost, target, secure, count, rounds, ca)
        holes = Row("  1 % never answer (SQLite)")
        with ours.running(folder / "holes") as (gatepost, target):
            define(gatepost, receiver.url, holes=1)
            with tokens_beside(target):
                holes.latencies.append(latency(gatepost, receiver, sqlite.rate / 10, 5))
        if peers:
            peer.limits.append(statistics.median(sqlite.limits + postgresql.limits))
            peer.rates.append(procrastinate.rate(server.create_database("peer"), receiver, count // 10))
        limit = Row("limit: raw libcurl", sqlite.limits + postgresql.limits, sqlite.limits + postgresql.limits)
        limit_tls = Row("limit: raw libcurl, TLS", tls.limits, tls.limits)
        return [limit, sqlite, holes, postgresql, limit_tls, tls, peer]


def measure(
    row: Row, gatepost: Service, target: load.Target, to: Receiver, count: int, rounds: int, ca: str = ""
) -> None:  # fmt: skip
    define(gatepost, to.url)
    throughput(gatepost, to, count // 4)  # opens its connections
    for _ in range(rounds):
        with tokens_beside(target):
            row.limits.append(raw(to, LONGER * count, ca))
        with tokens_beside(target) as got:
            row.rates.append(throughput(gatepost, to, count))
    row.beside += [got["rate"], got["p99_ms"]]
    with tokens_beside(target):
        row.latencies += [latency(gatepost, to, share * row.rate, 5) for share in (0.1, 0.8)]
    wait_settled(gatepost)


# --- a crowd: slow endpoints and backlogs do not delay other endpoints


def crowd(endpoints: int, backlog: int, one_endpoint: int, seconds: float) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        receiver = stack.enter_context(receiving())
        gatepost, target = stack.enter_context(ours.running(folder / "data"))
        define(gatepost, receiver.url)
        rate = throughput(gatepost, receiver, 5_000)
        with tokens_beside(target):
            quiet = latency(gatepost, receiver, rate / 10, seconds)
        others = define_many(gatepost, receiver.url, endpoints)
        put(gatepost.directory, "", waiting([others[0][0]], one_endpoint))
        put(gatepost.directory, "", waiting(others[1], backlog))
        silent = [each for part in others for each in part[99::100]]
        put(gatepost.directory, "", waiting(silent, 10 * len(silent)))
        time.sleep(2)
        with tokens_beside(target):
            crowded = latency(gatepost, receiver, rate / 10, seconds)
        left = gatepost.opened.store.read_now(lambda tx: tx.select("SELECT count(*) FROM queue", {}))[0][0]
    print(f"publish to receive at 10 % load, p50 / p99 ms: quiet {quiet}, crowded {crowded}")
    print(f"beside: {endpoints:,} endpoints of which 1 % never answer, {one_endpoint:,} waiting for one endpoint,")
    print(f"{backlog:,} for one account; {left:,} still waited at the end")


def define_many(gatepost: Service, url: str, count: int) -> list[list[Target]]:
    """Define accounts with 200 endpoints each, of which 1 % never respond. Returns their targets."""
    found: list[list[Target]] = []
    for number in range(0, count, 200):
        name, _ = gatepost.account(f"crowd-{number}")

        def unit(tx: Tx, name: str = name) -> list[Target]:
            account = account_rows.lock(tx, name)
            if account is None:
                raise LookupError(name)
            made = []
            for each in range(200):
                body = {"url": f"{url}/{'hole' if each % 100 == 99 else each}"}
                call = Call(operator(name), body)
                endpoint = define_endpoint.define(tx, gatepost.opened.service, account, call).body["id"]
                call = Call(operator(name), {"endpoint_id": endpoint, "events": ["crowd.came"]})
                made.append(
                    (endpoint, define_subscription.define(tx, gatepost.opened.service, account, call).body["id"])
                )
            return [(ids.raw(name), ids.raw(one), ids.raw(other), "crowd.came") for one, other in made]

        found.append(gatepost.opened.store.run_now(unit))
    return found


def show(rows: list[Row]) -> None:
    table = Table(title="deliveries: published, sent, acknowledged and on record; 500 tokens/s beside")
    for heading in ("", "per second", "of limit", "10 % load p50/p99 ms", "80 % load p50/p99 ms", "tokens/s, p99 ms"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    for row in rows:
        beside = f"{row.beside[0]:.0f}, {row.beside[1]:.0f}" if row.beside else ""
        of_limit = f"{row.of_limit:.2f}" if row.rates else ""
        latencies = [*row.latencies, "", ""][:2]
        table.add_row(row.name, f"{row.rate:,.0f}" if row.rates else "", of_limit, *latencies, beside)
    Console(width=150).print(table)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--no-peers", action="store_true", help="only ours and the limit")
    options.add_argument("--crowd", action="store_true", help="beside endpoints that hang and accounts with a backlog")
    chosen = options.parse_args()
    if chosen.crowd:
        crowd(10_000, 1_000_000, 100_000, 20)
    else:
        show(compare(chosen.count, chosen.rounds, peers=not chosen.no_peers))


if __name__ == "__main__":
    main()
