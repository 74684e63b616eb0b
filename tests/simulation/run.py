"""Runs one history and returns its outcome."""

import gc
import hashlib
import tempfile
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from tests.simulation import script
from tests.simulation.deployment import Deployment, Violation
from tests.simulation.operations import Totals
from tests.simulation.scenario import Scenario


class Outcome(NamedTuple):
    """The outcome of a history. The digest covers all rows of the ledger and of the deliveries."""

    seed: int
    totals: Totals
    script: str  # the digest of the operations and faults
    digest: str
    violation: str = ""
    at_day: float = 0.0


def simulate(seed: int, days: int, database: str = "") -> Outcome:
    """Run a history of this many days."""
    with tempfile.TemporaryDirectory(prefix="gatepost-simulation-", dir=_memory()) as directory:
        deployment = Deployment(seed, Path(directory) / "data", database)
        scenario = Scenario(deployment, seed)
        violation, digest = "", ""
        with deployment.installed():
            deployment.begin()
            try:
                deployment.loop.run(_history(scenario, days))
                digest = _digest(scenario)
            except Violation as found:
                violation = str(found)
        outcome = Outcome(
            seed, scenario.totals, script.digest(seed, days), digest, violation, deployment.loop.time() / 86_400
        )
    del deployment, scenario
    _finalize_crashed()
    return outcome


def _finalize_crashed() -> None:
    """Finalize the tasks of crashed processes now, so that none of their code runs during a later history."""
    with mock.patch("sys.unraisablehook"):  # "coroutine ignored GeneratorExit"
        gc.collect()


async def _history(scenario: Scenario, days: int) -> None:
    await scenario.begin()
    for _ in range(days):
        await scenario.day()


def _digest(scenario: Scenario) -> str:
    rows = []
    for query in (
        "SELECT account, id, type, at, actor, subject, matched FROM entries ORDER BY account, id",
        "SELECT account, id, endpoint, event, status, ended_at, ended_reason FROM deliveries ORDER BY account, id",
        "SELECT account, delivery, number, outcome FROM attempts ORDER BY account, delivery, number",
    ):
        rows += scenario.invariants.select(query)
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


def _memory() -> str | None:
    """Return a directory in memory, if there is one: the store of a simulation need not be durable."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
