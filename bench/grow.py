"""Benchmark of growth: the same operations with more and more deliveries in the tables, on SQLite and PostgreSQL.

Loads deliveries with their events and attempts, spread over 30 days, by COPY. At each size it measures publishes,
deliveries from publish to recorded, and every filter of the listing, and in the end how long a day's retention takes.
The size on disk is estimated first, and the run is refused if there is not enough space.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import apsw
import psycopg
from rich.console import Console
from rich.table import Table

from bench import ours
from bench.deliver import Receiver, define, receiving, throughput
from bench.rows import Target, history, put
from gatepost.accounts import Account, account_rows, lookup
from gatepost.core import clock, ids
from gatepost.ledger.operations import Call, operator
from gatepost.oauth import define_client
from gatepost.store import partitions
from gatepost.store.transaction import Tx
from tests import postgres
from tests.service import Client, Service

DAYS = 30
BYTES = {"SQLite": 1500, "PostgreSQL": 1700}  # of a delivery with its event, attempt and indexes, to check the space
FILTERS = (
    "", "order=oldest", "status=succeeded", "status=failed", "status=pending", "response_code=5xx", "response_code=503",
    "failure=timeout", "event_type=bench.t3", "event_type=nothing.such", "created_after={week}",
    "created_before={week}", "created_after={week}&created_before={later}", "endpoint_id={endpoint}",
    "endpoint_id={endpoint}&status=failed", "subscription_id={subscription}", "event_id={event}", "id={delivery}",
    "due_before={later}",
    "limit=200&include=payload", "view=summary&interval=hour", "view=endpoints",
)  # fmt: skip


class Figures(NamedTuple):
    """What was measured with a number of rows. Times are milliseconds."""

    rows: int
    publish: float
    rate: float
    pages: dict[str, tuple[float, float]]  # filter → p50 and p99


def targets(gatepost: Service) -> list[Target]:
    """Return the endpoints that `define` created, with their raw ids."""
    text = "SELECT account, endpoint, id, document FROM subscriptions ORDER BY account, id"
    rows = gatepost.opened.store.read_now(lambda tx: tx.select(text, {}))
    return [(account, endpoint, each, json.loads(document)["events"][0]) for account, endpoint, each, document in rows]


@contextmanager
def snapshot(gatepost: Service) -> Iterator[None]:
    """Hold a read transaction, which prevents the cleanup of all later changes."""
    if gatepost.database:
        with psycopg.connect(gatepost.database) as database:
            database.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            database.execute("SELECT count(*) FROM workers")
            yield
    else:
        with closing(apsw.Connection(str(gatepost.directory / "gatepost.db"))) as file:
            file.execute("BEGIN")
            file.execute("SELECT count(*) FROM workers").fetchall()
            yield


class Reader(NamedTuple):
    """A client that reads the deliveries of the first account and publishes its events."""

    gatepost: Service
    token: str
    values: dict[str, str]  # for the filters

    def page(self, query: str) -> float:
        """Read a page, and return how long that took."""
        began = time.perf_counter()
        answer = self.gatepost.session.get(
            f"{self.gatepost.url}/webhooks/deliveries?{query.format(**self.values)}",
            headers={"Authorization": f"Bearer {self.token}"},
        )
        answer.raise_for_status()
        return (time.perf_counter() - began) * 1000

    def publish(self, number: int) -> float:
        """Publish an event without subscribers, and return how long that took."""
        event = {"specversion": "1.0", "id": f"{time.time_ns()}-{number}", "source": "/grow", "type": "bench.none"}
        began = time.perf_counter()
        answer = self.gatepost.session.post(
            f"{self.gatepost.ops}/events", json=event, headers={"Authorization": f"Bearer {self.token}"}
        )
        answer.raise_for_status()
        return (time.perf_counter() - began) * 1000


def reader(gatepost: Service) -> Reader:
    raw, endpoint, subscription, _ = targets(gatepost)[0]
    account = gatepost.opened.store.read_now(lambda tx: account_rows.load(tx, ids.text("acc", raw)))
    if account is None:
        raise LookupError(raw.hex())
    rows = gatepost.opened.store.read_now(
        lambda tx: tx.select("SELECT id, event FROM deliveries WHERE account = :account LIMIT 1", {"account": raw})
    )
    made = gatepost.opened.store.run_now(lambda tx: _reader(tx, gatepost, account))
    now = clock.now()
    return Reader(
        gatepost, gatepost.token(Client(*made), "gatepost:deliveries gatepost:events"),
        {
            "endpoint": ids.text("ep", endpoint), "subscription": ids.text("sub", subscription),
            "delivery": ids.text("dlv", rows[0][0]), "event": ids.text("evt", rows[0][1]),
            "week": clock.rfc3339(now - timedelta(days=7)), "later": clock.rfc3339(now - timedelta(days=6)),
        },
    )  # fmt: skip


def _reader(tx: Tx, gatepost: Service, account: Account) -> tuple[str, str]:
    body = {"grant_types": ["client_credentials"], "scope": "gatepost:deliveries gatepost:events"}
    locked = account_rows.lock(tx, lookup.named(tx, account.name).id)
    if locked is None:
        raise LookupError(account.name)
    answer = define_client.define(tx, gatepost.opened.service, locked, Call(operator(account.id), body))
    return answer.body["client_id"], answer.body["client_secret"]


def measure(gatepost: Service, receiver: Receiver, rows: int, count: int, rounds: int) -> Figures:
    throughput(gatepost, receiver, count // 4)  # opens its connections
    with snapshot(gatepost):
        rate = statistics.median(throughput(gatepost, receiver, count) for _ in range(3))
    client = reader(gatepost)
    published = sorted(client.publish(number) for number in range(200))
    pages = {}
    for query in FILTERS:
        took = sorted(client.page(query) for _ in range(rounds))
        pages[query] = (statistics.median(took), took[min(len(took) - 1, len(took) * 99 // 100)])
    return Figures(rows, statistics.median(published), rate, pages)


# --- each store


def grow(name: str, database: str, folder: Path, receiver: Receiver, chosen: argparse.Namespace) -> list[Figures]:
    figures: list[Figures] = []
    with ours.running(folder / name, database) as (gatepost, _):
        define(gatepost, receiver.url)
        if database:
            _past_partitions(database)
        there, total = 0, max(chosen.sizes)
        for size in chosen.sizes:
            began = time.monotonic()
            put(gatepost.directory, database, history(targets(gatepost), there, size - there, total, DAYS))
            there = size
            if database:
                with psycopg.connect(database, autocommit=True) as connection:
                    connection.execute("VACUUM ANALYZE")
            print(f"{name}: {size:,} rows, loaded in {time.monotonic() - began:.0f} s", flush=True)
            figures.append(measure(gatepost, receiver, size, chosen.count, chosen.rounds))
            print(f"  publish {figures[-1].publish:.2f} ms, {figures[-1].rate:,.0f} deliveries/s", flush=True)
        print(f"{name}: {_size(gatepost) / total * 1e6 / 1e9:.2f} GB for a million deliveries", flush=True)
        print(f"{name}: a day's retention took {_retention(gatepost):.2f} s", flush=True)
    return figures


def _past_partitions(database: str) -> None:
    """Make the partitions that the service would have made on each of the past days."""
    with psycopg.connect(database, autocommit=True) as connection:
        for days in range(DAYS + 1, -1, -1):
            partitions.maintain(connection, clock.milliseconds(clock.now() - timedelta(days=days)))


def _size(gatepost: Service) -> int:
    if not gatepost.database:
        return (gatepost.directory / "gatepost.db").stat().st_size
    with psycopg.connect(gatepost.database) as connection:
        return int(connection.execute("SELECT pg_database_size(current_database())").fetchall()[0][0])


def _retention(gatepost: Service) -> float:
    """Return how long it takes to remove the oldest day."""
    if gatepost.database:
        with psycopg.connect(gatepost.database, autocommit=True) as connection:
            oldest = min(partition.until for partition in partitions.existing(connection, partitions.DELIVERIES))
            began = time.monotonic()
            done = partitions.maintain(connection, oldest + DAYS * 86_400_000)
        took = time.monotonic() - began
        print(f"  dropped {', '.join(done.dropped)}; waiting {done.waiting}", flush=True)
        return took
    return float("nan")  # rows are deleted in slices, for as long as it takes


def show(name: str, figures: list[Figures]) -> None:
    table = Table(title=f"{name}: milliseconds, and the ratio to the smallest size")
    for heading in ("", *(f"{each.rows:,}" for each in figures)):
        table.add_column(heading, justify="right")
    first = figures[0]
    table.add_row("publish, p50", *(f"{each.publish:.2f} ({each.publish / first.publish:.2f})" for each in figures))
    table.add_row("deliveries/s", *(f"{each.rate:,.0f} ({each.rate / first.rate:.2f})" for each in figures))
    for query in FILTERS:
        cells = [f"{each.pages[query][0]:.1f} / {each.pages[query][1]:.1f}" for each in figures]
        table.add_row(query or "all", *cells)
    Console(width=150).print(table)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_000_000, 10_000_000, 20_000_000])
    options.add_argument("--stores", nargs="+", choices=list(BYTES), default=list(BYTES))
    options.add_argument("--count", type=int, default=4_000, help="deliveries in each measurement")
    options.add_argument("--rounds", type=int, default=30, help="pages for each filter")
    options.add_argument("--directory", type=Path, help="where the tables are; a temporary directory if omitted")
    chosen = options.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=chosen.directory)))
        needed = max(BYTES[name] for name in chosen.stores) * max(chosen.sizes)
        free = shutil.disk_usage(folder).free
        print(f"this needs about {needed / 1e9:.0f} GB, {free / 1e9:.0f} GB are free", flush=True)
        if needed * 1.2 > free:
            sys.exit("there is not enough space")
        receiver = stack.enter_context(receiving())
        for name in chosen.stores:
            with ExitStack() as own:
                database = ""
                if name == "PostgreSQL":
                    settings = {"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min"}
                    database = own.enter_context(postgres.running(settings, in_memory=False)).create_database("growth")
                show(name, grow(name, database, folder, receiver, chosen))


if __name__ == "__main__":
    main()
