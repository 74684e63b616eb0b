"""Benchmark of fairness: the token requests of other accounts, without and with a storm of one account.

Run it with `python -m bench.fair`. The ratio of the p99 is measured in the same round, one after the other.
`--commit-ms` makes each commit take so much longer, as with a slow disk, so that the store is the bottleneck. `--quota`
limits the requests in progress of the account with the storm.
"""

import argparse
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import load, ours
from bench.load import Sample, Target
from tests import postgres
from tests.service import Service

STORM = 200  # connections
OTHERS = (4, 16)
STORES = ("SQLite", "PostgreSQL")
# Python runs this file in every process that it starts. SQLite's own syncs, of checkpoints, are not slower.
SLOW_SYNC = """
import os, time
sync = os.fdatasync
os.fdatasync = lambda descriptor: (time.sleep({seconds}), sync(descriptor))[1]
"""
_BEFORE = 1.0  # seconds of storm before and after the measurement


def other_account(gatepost: Service) -> Target:
    """The token request of a client of another account."""
    _, first = gatepost.account("other")
    admin = gatepost.token(first, "gatepost:clients gatepost:scopes")
    gatepost.post("/oauth/scopes", admin, {"name": "api:read"}).raise_for_status()
    client = gatepost.define_client(admin, scope="api:read")
    return Target(f"{gatepost.url}/oauth/tokens", ours.MEDIA | {"Authorization": client.basic}, ours.FORM)


def during(storm: Target, target: Target, connections: int, seconds: float) -> tuple[Sample, Sample]:
    """Measure the target while the storm is on. Returns both samples."""
    with ThreadPoolExecutor(1) as pool:
        stormed = pool.submit(load.measure, storm, STORM, seconds + 2 * _BEFORE)
        time.sleep(_BEFORE)
        measured = load.measure(target, connections, seconds)
        return measured, stormed.result()


def measure(database: str, folder: Path, rounds: int, seconds: float, quota: int) -> list[list[str]]:
    rows = []
    with ours.running(folder, database, {"max_requests_per_address": "0"}) as (gatepost, storm):
        other = other_account(gatepost)
        if quota:
            gatepost.cli("account", "set", "default", f"max_concurrent_token_requests={quota}")
        for target in (storm, other):
            load.measure(target, 16, 1)
        for connections in OTHERS:
            quiet, stormy, storms = [], [], []
            for _ in range(rounds):
                quiet.append(load.measure(other, connections, seconds))
                measured, stormed = during(storm, other, connections, seconds)
                stormy.append(measured)
                storms.append(stormed)
            ratio = statistics.median(two.p99_ms / one.p99_ms for one, two in zip(quiet, stormy, strict=True))
            rows.append([str(connections), *_shown(quiet), *_shown(stormy), f"{ratio:.2f}", f"{_rate(storms):,.0f}"])
    return rows


def _rate(samples: list[Sample]) -> float:
    return statistics.median(sample.rate for sample in samples)


def _shown(samples: list[Sample]) -> list[str]:
    p50, p99 = (statistics.median(each) for each in zip(*((one.p50_ms, one.p99_ms) for one in samples), strict=True))
    return [f"{_rate(samples):,.0f}", f"{p50:.1f}", f"{p99:.1f}"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=3)
    options.add_argument("--commit-ms", type=int, default=0, help="how much longer a commit takes")
    options.add_argument("--quota", type=int, default=0, help="max_concurrent_token_requests of the account")
    chosen = options.parse_args()
    table = Table(title=f"token requests of others, storm of {STORM} connections, load by {load.name()}")
    for heading in (
        "store",
        "conn",
        "quiet /s",
        "p50 ms",
        "p99 ms",
        "storm /s",
        "p50 ms",
        "p99 ms",
        "p99 x",
        "storm's /s",
    ):
        table.add_column(heading, justify="right")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        slow = {"commit_delay": str(1000 * chosen.commit_ms), "commit_siblings": "0"} if chosen.commit_ms else {}
        server = stack.enter_context(postgres.running(slow))
        if chosen.commit_ms:
            (folder / "sitecustomize.py").write_text(SLOW_SYNC.format(seconds=chosen.commit_ms / 1000))
            os.environ["PYTHONPATH"] = str(folder)
        for store, database in zip(STORES, ("", server.create_database("fair")), strict=True):
            for row in measure(database, folder / store, chosen.rounds, chosen.seconds, chosen.quota):
                table.add_row(store, *row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
