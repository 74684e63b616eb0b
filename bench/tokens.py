"""Benchmark of token requests: one table from one run, with the upper limit and other services for comparison.

Absolute figures depend on the machine and its load. The rounds are interleaved, so the ratios are more reliable.
`python -m bench.tokens --memory` issues a million tokens instead, and reports the memory of the web process.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import load, ours
from bench.load import Sample, Target
from bench.peers import oauth_toolkit, oidc_provider
from bench.people import People
from tests import postgres

CONNECTIONS = (1, 16, 64)
LIMIT, SQLITE, BESIDE, SQLITE_REFRESH, SQLITE_INTROSPECT, POSTGRES, POSTGRES_REFRESH, POSTGRES_INTROSPECT = (
    "limit: parse, sign, answer",
    "Gatepost on SQLite",
    "  with a second writer at full speed",
    "  refresh_token",
    "  introspection",
    "Gatepost on PostgreSQL",
    "  refresh_token ",
    "  introspection ",
)
PEER, TOOLKIT = (
    "oidc-provider, in memory",
    "django-oauth-toolkit, gunicorn",
)
BESIDE_OWN = {
    SQLITE_REFRESH: SQLITE, SQLITE_INTROSPECT: SQLITE, POSTGRES_REFRESH: POSTGRES, POSTGRES_INTROSPECT: POSTGRES,
}  # fmt: skip
ROWS = (
    LIMIT, SQLITE, SQLITE_REFRESH, SQLITE_INTROSPECT, BESIDE, POSTGRES, POSTGRES_REFRESH, POSTGRES_INTROSPECT, PEER,
    TOOLKIT,
)  # fmt: skip


@dataclass
class Results:
    samples: dict[tuple[str, int], list[Sample]] = field(default_factory=dict)

    def add(self, name: str, connections: int, sample: Sample) -> None:
        self.samples.setdefault((name, connections), []).append(sample)

    def rate(self, name: str, connections: int) -> float:
        return statistics.median(sample.rate for sample in self.samples[(name, connections)])

    def ratio(self, name: str, to: str, connections: int) -> float:
        pairs = zip(self.samples[(name, connections)], self.samples[(to, connections)], strict=True)
        return statistics.median(one.rate / other.rate for one, other in pairs)


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.writer", str(directory)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.communicate()


def compare(rounds: int, seconds: float, *, peers: bool) -> Results:
    results = Results()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(postgres.running())
        database = server.create_database("bench")
        limit = stack.enter_context(ours.limit())
        on_sqlite, sqlite = stack.enter_context(ours.running(folder / "sqlite"))
        on_postgres, postgresql = stack.enter_context(ours.running(folder / "postgres", database))
        people = {SQLITE_REFRESH: People(on_sqlite), POSTGRES_REFRESH: People(on_postgres)}
        targets: dict[str, Target] = {
            LIMIT: limit,
            SQLITE: sqlite,
            SQLITE_INTROSPECT: people[SQLITE_REFRESH].introspection,
            POSTGRES: postgresql,
            POSTGRES_INTROSPECT: people[POSTGRES_REFRESH].introspection,
        }
        if peers:
            targets[PEER] = stack.enter_context(oidc_provider.running())
        for target in targets.values():
            load.measure(target, 16, 1)
        for connections in CONNECTIONS:
            for _ in range(rounds):
                for name, target in targets.items():
                    results.add(name, connections, load.measure(target, connections, seconds))
                for name, those in people.items():
                    target = those.refreshing(2 * connections)
                    results.add(name, connections, load.measure(target, connections, seconds))
                with writing(folder / "sqlite"):
                    results.add(BESIDE, connections, load.measure(targets[SQLITE], connections, seconds))
        if peers:
            toolkit = stack.enter_context(oauth_toolkit.running())
            for connections in CONNECTIONS:
                results.add(TOOLKIT, connections, load.measure(toolkit, connections, seconds))
    return results


def show(results: Results) -> None:
    table = Table(title=f"client_credentials, one web process, load by {load.name()}")
    table.add_column("", no_wrap=True)
    for connections in CONNECTIONS:
        for heading in (f"{connections} conn /s", "p50 ms", "p99 ms", "of limit"):
            table.add_column(heading, justify="right")
    for name in ROWS:
        row = [name]
        for connections in CONNECTIONS:
            samples = results.samples.get((name, connections))
            if samples is None:
                break
            of_limit = f"{results.ratio(name, LIMIT, connections):.2f}" if name != TOOLKIT else ""
            row += [
                f"{results.rate(name, connections):,.0f}",
                f"{statistics.median(sample.p50_ms for sample in samples):.2f}",
                f"{statistics.median(sample.p99_ms for sample in samples):.1f}",
                of_limit,
            ]
        else:
            table.add_row(*row)
    Console(width=150).print(table)
    errors = {name: sum(each.errors for each in found) for (name, _), found in results.samples.items()}
    print("errors:", {name: count for name, count in errors.items() if count} or "none")
    for store, rows in (
        (SQLITE, (SQLITE_REFRESH, SQLITE_INTROSPECT)),
        (POSTGRES, (POSTGRES_REFRESH, POSTGRES_INTROSPECT)),
    ):
        for name in rows:
            told = ", ".join(f"{results.ratio(name, store, each):.2f} at {each}" for each in CONNECTIONS)
            print(f"{store}: {name.strip()} / client_credentials: {told}")
    if (PEER, 64) in results.samples:
        print(f"Gatepost on SQLite, durable / oidc-provider in memory, 64 conn: {results.ratio(SQLITE, PEER, 64):.2f}")


def memory(count: int) -> None:
    """Print the resident memory of the web process at each tenth of the run."""
    with tempfile.TemporaryDirectory() as folder, ours.running(Path(folder) / "data") as (gatepost, target):
        [web] = gatepost.web_processes()
        issued = 0
        print(f"{'tokens':>10} {'MiB':>6}")
        while issued < count:
            issued += load.measure(target, 64, 5).requests
            print(f"{issued:>10,} {resident(web) / 2**20:>6.0f}", flush=True)


def resident(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=3)
    options.add_argument("--no-peers", action="store_true", help="only ours and the limit")
    options.add_argument("--memory", action="store_true", help="a million tokens, and the memory of the web process")
    chosen = options.parse_args()
    if chosen.memory:
        memory(1_000_000)
    else:
        show(compare(chosen.rounds, chosen.seconds, peers=not chosen.no_peers))


if __name__ == "__main__":
    main()
