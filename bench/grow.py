"""Benchmark of growth: the same operations with more and more deliveries in the tables, on SQLite and PostgreSQL.

Loads deliveries with their events and attempts, spread over 30 days, by COPY. At each size it measures publishes,
deliveries from publish to recorded, and every filter of the listing, and in the end how long a day's retention takes.
Each measurement alternates with the same one on a small service, so that the ratio does not depend on how fast the
machine is at the time.
The size on disk is estimated first, and the run is refused if there is not enough space.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from functools import partial
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
from gatepost.store import partition_drops, partitions
from gatepost.store.partition_drops import Progress
from gatepost.store.transaction import Tx
from tests import postgres
from tests.service import Client, Service

DAYS = 30
SMALL = 10_000  # rows of the service for comparison
BYTES = {"SQLite": 1500, "PostgreSQL": 1700}  # of a delivery with its event, attempt and indexes, to check the space
FILTERS = (
    "", "order=oldest", "status=succeeded", "status=failed", "status=pending", "response_code=5xx", "response_code=503",
    "failure=timeout", "event_type=bench.t3", "event_type=nothing.such", "created_after={week}",
    "created_before={week}", "created_after={week}&created_before={later}", "endpoint_id={endpoint}",
    "endpoint_id={endpoint}&status=failed", "subscription_id={subscription}", "event_id={event}", "id={delivery}",
    "due_before={later}",
    "limit=200&include=payload", "view=summary&interval=hour", "view=endpoints",
)  # fmt: skip


class Figure(NamedTuple):
    """A median, and its ratio to that of the small service."""

    value: float
    ratio: float


class Figures(NamedTuple):
    """What was measured with a number of rows. Times are milliseconds."""

    rows: int
    publish: Figure
    rate: Figure
    pages: dict[str, tuple[Figure, float]]  # filter → p50 and p99


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


def measure(gatepost: Service, small: Service, receiver: Receiver, rows: int, count: int, rounds: int) -> Figures:
    for each in (gatepost, small):
        throughput(each, receiver, count // 4)  # opens its connections
    with snapshot(gatepost), snapshot(small):
        rate, _ = alternate(3, *(partial(_throughput, each, receiver, count) for each in (gatepost, small)))
    own, other = reader(gatepost), reader(small)
    published, _ = alternate(200, own.publish, other.publish)
    pages = {}
    for query in FILTERS:
        pages[query] = alternate(rounds, partial(_page, own, query), partial(_page, other, query))
    return Figures(rows, published, rate, pages)


def alternate(rounds: int, measured: Callable[[int], float], compared: Callable[[int], float]) -> tuple[Figure, float]:
    """Measure both in turn. Returns the median of the first with its ratio to the second, and the 99th percentile."""
    pairs = [(measured(number), compared(number)) for number in range(rounds)]
    took = sorted(pair[0] for pair in pairs)
    median = statistics.median(took)
    ratio = median / statistics.median(pair[1] for pair in pairs)
    return Figure(median, ratio), took[min(len(took) - 1, len(took) * 99 // 100)]


def _throughput(gatepost: Service, receiver: Receiver, count: int, _number: int) -> float:
    return throughput(gatepost, receiver, count)


def _page(client: Reader, query: str, _number: int) -> float:
    return client.page(query)


# --- each store


def grow(
    name: str, server: postgres.Server | None, folder: Path, receiver: Receiver, chosen: argparse.Namespace
) -> list[Figures]:
    figures: list[Figures] = []
    total = max(chosen.sizes)
    with serving(folder, f"{name}-growing", server, receiver) as gatepost:
        there = 0
        for size in chosen.sizes:
            began = time.monotonic()
            load(gatepost, there, size, total)
            there = size
            print(f"{name}: {size:,} rows, loaded in {time.monotonic() - began:.0f} s", flush=True)
            with serving(folder, f"{name}-beside-{size}", server, receiver) as small:
                load(small, 0, SMALL, SMALL)
                figures.append(measure(gatepost, small, receiver, size, chosen.count, chosen.rounds))
            publish, rate = figures[-1].publish, figures[-1].rate
            print(f"  publish {publish.value:.2f} ms, {rate.value:,.0f} deliveries/s", flush=True)
        print(f"{name}: {_size(gatepost) / total * 1e6 / 1e9:.2f} GB for a million deliveries", flush=True)
        print(f"{name}: a day's retention took {_retention(gatepost):.2f} s", flush=True)
    return figures


@contextmanager
def serving(folder: Path, name: str, server: postgres.Server | None, receiver: Receiver) -> Iterator[Service]:
    """A service on a new store with the endpoints of the benchmark."""
    database = server.create_database(name.lower()) if server else ""
    with ours.running(folder / name, database) as (gatepost, _):
        define(gatepost, receiver.url)
        if database:
            _past_partitions(database)
        yield gatepost


def load(gatepost: Service, there: int, size: int, total: int) -> None:
    """Add deliveries to those that are there, until there are `size` of `total`."""
    put(gatepost.directory, gatepost.database, history(targets(gatepost), there, size - there, total, DAYS))
    if gatepost.database:
        with psycopg.connect(gatepost.database, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")


def _past_partitions(database: str) -> None:
    """Make the partitions that the service would have made on each of the past days."""
    with psycopg.connect(database, autocommit=True) as connection:
        for days in range(DAYS + 1, -1, -1):
            partitions.make(connection, clock.milliseconds(clock.now() - timedelta(days=days)))


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
            done = partition_drops.maintain(connection, oldest + DAYS * 86_400_000, Progress())
        took = time.monotonic() - began
        print(f"  dropped {', '.join(done.dropped)}; waiting {done.waiting}", flush=True)
        return took
    return float("nan")  # rows are deleted in slices, for as long as it takes


def show(name: str, figures: list[Figures]) -> None:
    table = Table(title=f"{name}: milliseconds, and in parentheses the ratio to {SMALL:,} rows at the same time")
    for heading in ("", *(f"{each.rows:,}" for each in figures)):
        table.add_column(heading, justify="right")
    table.add_row("publish, p50", *(f"{each.publish.value:.2f} ({each.publish.ratio:.2f})" for each in figures))
    table.add_row("deliveries/s", *(f"{each.rate.value:,.0f} ({each.rate.ratio:.2f})" for each in figures))
    for query in FILTERS:
        cells = [(*each.pages[query][0], each.pages[query][1]) for each in figures]
        table.add_row(query or "all", *(f"{p50:.1f} ({ratio:.2f}) / {p99:.1f}" for p50, ratio, p99 in cells))
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
                server = None
                if name == "PostgreSQL":
                    settings = {"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min"}
                    server = own.enter_context(postgres.running(settings, in_memory=False))
                show(name, grow(name, server, folder, receiver, chosen))


if __name__ == "__main__":
    main()
