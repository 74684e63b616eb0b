"""Measures what `gatepost simulate capacity` assumes, on PostgreSQL: `python -m bench.costs`.

For tokens, refreshes, introspections, events, deliveries and pages of deliveries: the CPU time of the processes of each
kind and of PostgreSQL, the WAL, the size of the tables, and the bytes of the messages. For each process: its
connections. The load is as high as the machine allows, so commits are shared as they are on a busy deployment.
"""

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench import load, ours
from bench.deliver import receiving, wait_settled
from bench.load import Target
from bench.people import People
from gatepost.core import ids
from gatepost.ledger import entries
from gatepost.ledger.entries import Origin
from gatepost.ledger.record import append_entry
from gatepost.run import chores
from tests import postgres
from tests.service import Client, Service

CONNECTIONS = 64
ENTRIES = ("entries", "unsealed", "seals", "tree_seals", "tree_nodes")
EVENTS = (*ENTRIES, "published")
DELIVERIES = (*EVENTS, "deliveries", "attempts", "queue")
_TICK = os.sysconf("SC_CLK_TCK")
EVENT = """
wrk.method = "POST"
wrk.headers = {{["Authorization"] = "Bearer {token}", ["Content-Type"] = "application/cloudevents+json"}}
local n = 0
function request()
  n = n + 1
  return wrk.format(nil, nil, nil, string.format(
    '{{"specversion":"1.0","id":"{prefix}-%d","source":"/bench","type":"{type}",' ..
    '"data":{{"invoice":"in_%012d","amount":1234,"currency":"EUR","customer":"cus_%012d"}}}}', n, n, n))
end
"""


@dataclass
class Snapshot:
    """CPU seconds by kind of process, and bytes that PostgreSQL has written."""

    cpu: dict[str, float]
    wal: int
    sizes: dict[str, int]


def cpu_of(process: int) -> float:
    """Return the CPU seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICK


def postgres_processes(server: postgres.Server) -> list[int]:
    first = int((server.directory / "data" / "postmaster.pid").read_text().split()[0])
    return [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]


class Costs:
    """A service on PostgreSQL and what it has used."""

    def __init__(self, gatepost: Service, server: postgres.Server) -> None:
        self._gatepost, self._server = gatepost, server
        self._database = psycopg.connect(gatepost.database, autocommit=True)

    def snapshot(self) -> Snapshot:
        gatepost = self._gatepost
        kinds = {
            "web": gatepost.web_processes(), "operations": gatepost.operations_processes(),
            "deliveries": gatepost.delivery_processes(), "supervisor": [gatepost.process.pid],
            "PostgreSQL": postgres_processes(self._server),
        }  # fmt: skip
        cpu = {kind: sum(map(cpu_of, processes)) for kind, processes in kinds.items()}
        [(wal,)] = self._database.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')").fetchall()
        return Snapshot(cpu, int(wal), {table: self._size(table) for table in DELIVERIES})

    def _size(self, table: str) -> int:
        """Return the size of a table with its indexes and partitions."""
        text = """SELECT coalesce((SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(%(table)s)),
            pg_total_relation_size(%(table)s))"""
        [(size,)] = self._database.execute(text, {"table": table}).fetchall()
        return int(size)

    def report(self, name: str, before: Snapshot, count: int, tables: tuple[str, ...]) -> None:
        after = self.snapshot()
        cpu = ", ".join(f"{kind} {(used - before.cpu[kind]) / count * 1e6:.0f}" for kind, used in after.cpu.items())
        size = sum(after.sizes[table] - before.sizes[table] for table in tables)
        print(f"{name}: {count}; CPU microseconds each: {cpu}", flush=True)
        print(f"  bytes each: WAL {(after.wal - before.wal) / count:.0f}, tables {size / count:.0f}", flush=True)

    def connections(self) -> None:
        text = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        [(found,)] = self._database.execute(text).fetchall()
        gatepost = self._gatepost
        processes = gatepost.web_processes() + gatepost.operations_processes() + gatepost.delivery_processes()
        print(f"connections: {found} of {len(processes)} processes and their supervisor", flush=True)

    def close(self) -> None:
        self._database.close()


def publish(
    gatepost: Service, token: str, type_: str, prefix: str, seconds: int, *, connections: int = CONNECTIONS
) -> int:  # fmt: skip
    """Publish single events. Returns how many of this type were accepted until now."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "event.lua")
        script.write_text(EVENT.format(token=token, type=type_, prefix=prefix))
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), f"{gatepost.ops}/events"]
        subprocess.run(command, capture_output=True, timeout=seconds + 30, check=True)
    text = "SELECT count(*) FROM entries WHERE type = :type"
    return int(gatepost.opened.store.read_now(lambda tx: tx.select(text, {"type": type_}))[0][0])


def subscribe(gatepost: Service, token: str, url: str, type_: str) -> None:
    body = {"url": url, "max_in_flight": 64}
    made = gatepost.post("/webhooks/endpoints", token, body)
    made.raise_for_status()
    body = {"endpoint_id": made.json()["id"], "events": [type_]}
    gatepost.post("/webhooks/subscriptions", token, body).raise_for_status()


def message_sizes(gatepost: Service, token: str, target: Target) -> None:
    """Print the bytes of one token request with its response, and of one delivery with a short response."""
    host, _, port = gatepost.url.partition("://")[2].partition(":")
    head = "".join(f"{name}: {value}\r\n" for name, value in target.headers.items())
    request = f"POST /oauth/tokens HTTP/1.1\r\nHost: {host}\r\n{head}Content-Length: {len(target.body)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(request.encode() + target.body)
        answer = connection.recv(65536)
    print(f"token: {len(request) + len(target.body)} bytes sent, {len(answer)} received")
    with socket.create_server(("127.0.0.1", 0)) as server:
        received: list[bytes] = []

        def serve() -> None:
            accepted, _ = server.accept()
            with accepted:
                received.append(accepted.recv(65536))
                accepted.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

        thread = threading.Thread(target=serve)
        thread.start()
        subscribe(gatepost, token, f"http://localhost:{server.getsockname()[1]}/", "bench.size")
        publish_one = {"specversion": "1.0", "id": "size", "source": "/bench", "type": "bench.size"}
        data = {"invoice": "in_000000000001", "amount": 1234, "currency": "EUR", "customer": "cus_000000000001"}
        headers = {"Authorization": f"Bearer {token}"}
        gatepost.session.post(f"{gatepost.ops}/events", json=publish_one | {"data": data}, headers=headers | {
            "Content-Type": "application/cloudevents+json"
        }).raise_for_status()  # fmt: skip
        thread.join(30)
    print(f"delivery: {len(received[0])} bytes sent, without TLS", flush=True)


def seals(costs: Costs, gatepost: Service, count: int) -> None:
    """Publish one event in each of many accounts, and seal these ledgers with the chore of a supervisor."""
    store = gatepost.opened.store
    gatepost.process.send_signal(signal.SIGSTOP)  # so that its supervisor does not seal them
    try:
        names = [gatepost.account(f"many-{number}")[0] for number in range(count)]
        asyncio.run(chores.seal(gatepost.opened))
        entry = entries.new(
            "bench.alone", account="", origin=Origin("bench"), subject="", data={"n": 1}, at=store.now(), keep_days=30
        )
        for name in names:
            mine = entry._replace(account=name, id=ids.new_raw())
            store.run_now(lambda tx, mine=mine: append_entry(tx, mine))  # type: ignore[misc]
        before, began, used = costs.snapshot(), time.monotonic(), time.process_time()
        asyncio.run(chores.seal(gatepost.opened))
        took, used = time.monotonic() - began, time.process_time() - used
        print(f"seals of one entry: {count}; {took / count * 1e3:.2f} ms each; supervisor {used / count * 1e6:.0f}")
        costs.report("the same", before, count, ENTRIES)
    finally:
        gatepost.process.send_signal(signal.SIGCONT)


def prepare(gatepost: Service) -> tuple[Client, str]:
    _, client = gatepost.account("costs")
    return client, gatepost.token(
        client, "gatepost:events gatepost:endpoints gatepost:subscriptions gatepost:deliveries"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=int, default=8)
    seconds = options.parse_args().seconds
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(postgres.running())
        receiver = stack.enter_context(receiving())
        gatepost, target = stack.enter_context(ours.running(folder, server.create_database("costs")))
        costs = Costs(gatepost, server)
        stack.callback(costs.close)
        _, token = prepare(gatepost)
        message_sizes(gatepost, token, target)
        load.measure(target, CONNECTIONS, 2)
        before = costs.snapshot()
        costs.report("tokens", before, load.measure(target, CONNECTIONS, seconds).requests, ENTRIES)
        people = People(gatepost)
        refreshing = people.refreshing(4 * CONNECTIONS)
        before = costs.snapshot()
        costs.report("refreshes", before, load.measure(refreshing, CONNECTIONS, seconds).requests, ENTRIES)
        before = costs.snapshot()
        costs.report("introspections", before, load.measure(people.introspection, CONNECTIONS, seconds).requests, ())
        before = costs.snapshot()
        costs.report("events without a subscription", before, publish(
            gatepost, token, "bench.alone", "a", seconds), EVENTS)  # fmt: skip
        subscribe(gatepost, token, f"{receiver.url}/", "bench.sent")
        before = costs.snapshot()
        count = publish(gatepost, token, "bench.sent", "b", seconds)
        wait_settled(gatepost)
        costs.report("events with one delivery each", before, count, DELIVERIES)
        page = Target(f"{gatepost.url}/webhooks/deliveries", {"Authorization": f"Bearer {token}"}, b"", "GET")
        before = costs.snapshot()
        costs.report("pages of deliveries", before, load.measure(page, 1, seconds).requests, ())
        costs.connections()
        seals(costs, gatepost, 500)


if __name__ == "__main__":
    main()
